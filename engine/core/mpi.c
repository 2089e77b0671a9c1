/* Messages over MPI. MPI knows handles as words: an int of MPICH and a pointer of Open MPI are both passed in a
 * register; in memory each has its own size.
 *
 * The requests of all operations lie in one table. MPI looks at its links, a system call over TCP, in each call that
 * tests a request; so one call tests all of them, and one operation of those that are polled in turn makes it. */
#include "mpi.h"
#include "profiler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORK = 16, IDLE_NS = 8000, REQUEST_NS = 20 };    /* of tests that find nothing: less than that */

pl_mpi_state pl_mpi = {.credit_bytes = (int64_t)4 << 20};

static struct {
    int (*isend)(const void *data, int n, uintptr_t type, int to, int tag, uintptr_t communicator, void *request);
    int (*irecv)(void *data, int n, uintptr_t type, int from, int tag, uintptr_t communicator, void *request);
    int (*testany)(int n, void *requests, int *index, int *flag, void *status);
    int (*get_count)(const void *status, uintptr_t type, int *n);
    int (*error_string)(int code, char *text, int *n);
    int (*error_class)(int code, int *class);
    uintptr_t byte, no_request;
    size_t request_bytes;
    int truncated;                            /* the class of a message longer than its receive */
} mpi;

/* What MPI works on. Messages of operations that were abandoned stay here until they are complete. */
static struct {
    char *requests;
    pl_message **messages;
    int n, max;
} posted;

static int mpi_fail(int code, const char *what)
{
    char text[512] = "", message_text[700];
    int n = 0;
    mpi.error_string(code, text, &n);
    snprintf(message_text, sizeof message_text, "MPI: %s: %s", what, text);
    return pl_fail(PL_FAILED, message_text);
}

int pl_mpi_open(const char *library, uintptr_t byte, uintptr_t no_request, size_t request_bytes, int largest_tag,
                int truncated)
{
    void *found = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    const struct { const char *name; void **to; } functions[] = {
        {"MPI_Isend", (void **)&mpi.isend}, {"MPI_Irecv", (void **)&mpi.irecv},
        {"MPI_Testany", (void **)&mpi.testany}, {"MPI_Get_count", (void **)&mpi.get_count},
        {"MPI_Error_string", (void **)&mpi.error_string}, {"MPI_Error_class", (void **)&mpi.error_class},
    };
    char text[4400];                          /* a path may have 4,096 bytes */
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        *functions[i].to = found ? dlsym(found, functions[i].name) : NULL;
        if (!*functions[i].to) {
            snprintf(text, sizeof text, "MPI: %s has no %s: %s", library, functions[i].name, dlerror());
            return pl_fail(PL_FAILED, text);
        }
    }
    mpi.byte = byte;
    mpi.truncated = truncated;
    mpi.no_request = no_request;
    mpi.request_bytes = request_bytes;
    pl_mpi.largest_tag = largest_tag;
    return PL_OK;
}

static bool has_capacity(void)
{
    if (posted.n < posted.max)
        return true;
    int max = posted.max ? 2 * posted.max : 64;
    char *requests = realloc(posted.requests, (size_t)max * mpi.request_bytes);
    if (requests)
        posted.requests = requests;
    pl_message **messages = realloc(posted.messages, (size_t)max * sizeof *messages);
    if (messages)
        posted.messages = messages;
    if (!requests || !messages)
        return false;
    posted.max = max;
    return true;
}

static void *request_at(int i) { return posted.requests + (size_t)i * mpi.request_bytes; }

int pl_mpi_post(pl_message *m, bool sends, void *data, int64_t bytes, int peer, int tag, uintptr_t communicator,
                const char *name)
{
    if (!has_capacity())
        return pl_fail(PL_ENOMEM, "collective: out of memory for messages");
    void *request = request_at(posted.n);
    int code = sends ? mpi.isend(data, (int)bytes, mpi.byte, peer, tag, communicator, request)
                     : mpi.irecv(data, (int)bytes, mpi.byte, peer, tag, communicator, request);
    if (code)
        return mpi_fail(code, name);
    *m = (pl_message){.state = PL_MESSAGE_POSTED, .bytes = bytes, .sends = sends};
    posted.messages[posted.n++] = m;
    pl_mpi.is_new = true;
    pl_mpi.n_messages++;
    if (sends) {
        pl_mpi.sent_bytes += bytes;
        pl_mpi.travelling_bytes += bytes;
    }
    return PL_OK;
}

/* MPI is done with a message of the table. */
static void complete(int i, int code, int n_got)
{
    pl_message *m = posted.messages[i];
    m->state = PL_MESSAGE_COMPLETE;
    m->code = code;
    m->n_got = n_got;
    if (m->sends)
        pl_mpi.travelling_bytes -= m->bytes;
    posted.messages[i] = posted.messages[--posted.n];
    memmove(request_at(i), request_at(posted.n), mpi.request_bytes);
}

/* Lets MPI work once, and takes what is complete from the table. */
static int work(const char *name)
{
    uint64_t status[32];                      /* larger than the status of any MPI */
    for (int flag = 1; flag && posted.n;) {
        int i = 0, n_got = 0, n = posted.n, code = mpi.testany(n, posted.requests, &i, &flag, status);
        if (code) {                           /* of requests that failed MPI leaves none */
            for (i = n - 1; i >= 0; i--)
                if (!memcmp(request_at(i), &mpi.no_request, mpi.request_bytes))
                    complete(i, code, 0);
            if (posted.n == n)
                return mpi_fail(code, name);
        } else if (flag) {
            if (mpi.get_count(status, mpi.byte, &n_got))
                n_got = -1;
            complete(i, 0, n_got);
        }
    }
    return PL_OK;
}

/* MPI does not say whether there is more to do, but a call that does nothing is short. Each moves little: UCX reads
 * 64 KiB of a socket. */
int pl_mpi_look(const char *name, bool *moved)
{
    int n_before = posted.n, status = PL_OK;
    int64_t start_ns = pl_profiler_now(), end_ns;
    pl_mpi.is_new = false;
    pl_mpi.n_looks++;
    for (int k = 0; k < MAX_WORK; k++) {
        pl_mpi.n_works++;
        if ((status = work(name)) != PL_OK)
            return status;
        end_ns = pl_profiler_now();
        if (posted.n < n_before) {
            *moved = true;
            pl_mpi.moved_ns = end_ns;
            break;
        }
        if (end_ns - start_ns < IDLE_NS + (int64_t)posted.n * REQUEST_NS)
            break;
        start_ns = end_ns;
    }
    return PL_OK;
}

int pl_mpi_take(pl_message *m, const char *name)
{
    int class = 0;
    char got[32] = "more";
    bool is_longer = m->code && !m->sends && !mpi.error_class(m->code, &class) && class == mpi.truncated;
    if (m->code && !is_longer)
        return mpi_fail(m->code, name);
    m->state = PL_MESSAGE_ARRIVED;
    if (is_longer || (!m->sends && m->n_got != m->bytes)) {
        char text[300];
        if (!is_longer)
            snprintf(got, sizeof got, "%d", m->n_got);
        snprintf(text, sizeof text, "%s: %lld bytes were expected, and %s came\n"
                 "  fix: the same shapes and dtypes on all ranks", name, (long long)m->bytes, got);
        return pl_fail(PL_EINVAL, text);
    }
    return PL_OK;
}

/* It must not stop all: the receiver of what is on its way may need what another rank holds back. So the limit doubles
 * with each idle millisecond. */
bool pl_mpi_has_credit(int64_t bytes)
{
    if (!pl_mpi.travelling_bytes || pl_mpi.travelling_bytes + bytes <= pl_mpi.credit_bytes)
        return true;
    int64_t idle_ms = (pl_profiler_now() - pl_mpi.moved_ns) / 1000000;
    return pl_mpi.travelling_bytes + bytes <= pl_mpi.credit_bytes << (idle_ms < 20 ? idle_ms : 20);
}
