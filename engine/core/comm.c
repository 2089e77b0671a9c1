/* Collectives: a schedule is run by one loop, over messages of MPI.
 *
 * An operation is started by its first poll and then polled until all its slices are done. A slice that is done leaves
 * its slot, with its part of the scratch memory, to the next one. Slices use SLICE_TAGS tags in turn: one begins when
 * the one that had its tag is done here, and MPI keeps messages of one tag in order. MPI knows handles as words: an int
 * of MPICH and a pointer of Open MPI are both passed in a register; in memory each has its own size.
 *
 * The requests of all operations lie in one table. MPI looks at its links, a system call over TCP, in each call that
 * tests a request; so one call tests all of them, and one operation of those that are polled in turn makes it. */
#include "comm.h"
#include "array.h"
#include "clique.h"
#include "flight.h"
#include "heartbeat.h"
#include "profiler.h"
#include "storage.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_BITS = 12, SLICE_TAGS = (1 << TAG_BITS) - 1, DESCRIPTION_TAG = SLICE_TAGS };
enum { DESCRIPTION_BYTES = 512, MESSAGE_BYTES = 4400 };
static const int64_t FINISHED_NS = 1000000000;
static const int64_t DOUBT_NS = 5000000000;   /* for a better reason than that a message failed */
enum { MAX_WORK = 16, IDLE_NS = 8000, REQUEST_NS = 20 };    /* of tests that find nothing: less than that */
enum { NOT_POSTED = 0, POSTED, COMPLETE, ARRIVED };     /* complete: for MPI; arrived: the operation knows */

static struct {
    int (*isend)(const void *data, int n, uintptr_t type, int to, int tag, uintptr_t communicator, void *request);
    int (*irecv)(void *data, int n, uintptr_t type, int from, int tag, uintptr_t communicator, void *request);
    int (*testany)(int n, void *requests, int *index, int *flag, void *status);
    int (*get_count)(const void *status, uintptr_t type, int *n);
    int (*error_string)(int code, char *text, int *n);
    int (*error_class)(int code, int *class);
    uintptr_t byte, no_request;
    size_t request_bytes;
    int n_ids, truncated;                     /* truncated: the class of a message longer than its receive */
} mpi;

/* Guards MPI, which need not be thread-safe, and what follows: in naive mode several threads poll. */
static pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t credit_bytes = (int64_t)4 << 20, sent_bytes;     /* sent: on their way now */
static int64_t moved_ns;                      /* when a message arrived last */
static pl_comm_stats stats;
static atomic_bool gave_up;
static char reason[MESSAGE_BYTES];            /* why; written once, before gave_up is set */
static int64_t finished_ns;                   /* when a rank ended well the last time; 0: none did */

typedef struct {
    atomic_int refs;
    uintptr_t communicator;
    int rank, n_ranks;
    int32_t world_ranks[];
} group;

typedef struct {
    atomic_int refs;
    pl_schedule_spec spec;
    int max_messages;                         /* of a round */
} schedule;

typedef struct { int64_t bytes; int state, code, n_got; bool sends; } message;      /* code, n_got: once complete */

/* What MPI works on. Messages of operations that were abandoned stay here until they are complete. */
static struct {
    char *requests;
    message **messages;
    int n, max;
    int64_t n_looks;
    bool is_new;                              /* something was posted since the last look */
} posted;

typedef struct {
    int slice, round;                         /* slice: -1: the slot is free */
    message *messages;                        /* of the round */
} slot;

typedef struct {
    schedule *schedule;
    group *group;
    pl_array **arrays;                        /* views: they keep the memory */
    char *scratch;
    slot *slots;
    const char *name;
    int id, n_next, n_open;                   /* slices: the next one, and those not done */
    int64_t start_ns;                         /* 0: not started */
    char *doubt;                              /* NULL, or how a message failed; given up with it at doubt_ns */
    int64_t doubt_ns;
    int doubt_status;
    int64_t n_looks;                          /* at the last poll */
    double timeout_s;
    bool described, abandoned;
    message mine, theirs;                     /* the descriptions: to the right neighbour, from the left one */
    char sent_text[DESCRIPTION_BYTES], got_text[DESCRIPTION_BYTES];
} call;

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
    char text[MESSAGE_BYTES];
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
    int64_t ids = ((int64_t)largest_tag + 1) >> TAG_BITS;
    mpi.n_ids = ids < 1 << 16 ? (int)ids : 1 << 16;
    if (mpi.n_ids < 2)
        return pl_fail(PL_EINVAL, "MPI: its tags are too small for collectives of plait");
    return PL_OK;
}

int pl_group_ids(void) { return mpi.n_ids; }

uintptr_t pl_group_new(uintptr_t communicator, int rank, int n_ranks, const int32_t *world_ranks)
{
    group *made = malloc(sizeof *made + (size_t)n_ranks * sizeof *world_ranks);
    if (!made) {
        pl_fail(PL_ENOMEM, "group: out of memory");
        return 0;
    }
    made->refs = 1;
    made->communicator = communicator;
    made->rank = rank;
    made->n_ranks = n_ranks;
    memcpy(made->world_ranks, world_ranks, (size_t)n_ranks * sizeof *world_ranks);
    return (uintptr_t)made;
}

void pl_group_free(uintptr_t handle)
{
    group *g = (group *)handle;
    if (g && atomic_fetch_sub(&g->refs, 1) == 1)
        free(g);
}

void pl_group_keep(uintptr_t handle)
{
    if (handle)
        atomic_fetch_add(&((group *)handle)->refs, 1);
}

int pl_group_self(uintptr_t handle)
{
    const group *g = (const group *)handle;
    return g ? g->world_ranks[g->rank] : 0;
}

static bool left_long_ago(void)               /* some rank */
{
    return finished_ns && pl_profiler_now() - (finished_ns > moved_ns ? finished_ns : moved_ns) >= FINISHED_NS;
}

int pl_group_left(uintptr_t handle)
{
    const group *g = (const group *)handle;
    int found = -1;
    pthread_mutex_lock(&comm_lock);
    for (int r = 0; g && left_long_ago() && r < g->n_ranks && found < 0; r++)
        if (pl_heartbeat_state(g->world_ranks[r]) == PL_RANK_FINISHED)
            found = g->world_ranks[r];
    pthread_mutex_unlock(&comm_lock);
    return found;
}

uintptr_t pl_schedule_new(const pl_schedule_spec *spec)
{
    schedule *made = calloc(1, sizeof *made);
    if (!made)
        goto no_memory;
    made->refs = 1;
    made->spec = *spec;
    pl_schedule_spec *s = &made->spec;
    s->steps = pl_copied(spec->steps, (size_t)spec->n_steps, sizeof *spec->steps);
    s->places = pl_copied(spec->places, (size_t)spec->n_places, sizeof *spec->places);
    s->rounds = pl_copied(spec->rounds, (size_t)spec->n_rounds, sizeof *spec->rounds);
    s->slices = pl_copied(spec->slices, (size_t)spec->n_slices, sizeof *spec->slices);
    s->plans = pl_copied(spec->plans, (size_t)spec->n_plans, sizeof *spec->plans);
    pl_enter();
    for (int i = 0; s->plans && i < s->n_plans; i++)
        ((pl_plan *)s->plans[i])->object.refs++;
    pl_leave();
    for (int i = 0; s->rounds && i < s->n_rounds; i++)
        if (s->rounds[i].n_messages > made->max_messages)
            made->max_messages = s->rounds[i].n_messages;
    if (s->steps && s->places && s->rounds && s->slices && s->plans)
        return (uintptr_t)made;
    pl_schedule_free((uintptr_t)made);
no_memory:
    pl_fail(PL_ENOMEM, "schedule: out of memory");
    return 0;
}

void pl_schedule_free(uintptr_t handle)
{
    schedule *s = (schedule *)handle;
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    pl_enter();
    for (int i = 0; s->spec.plans && i < s->spec.n_plans; i++)
        pl_object_unref(&((pl_plan *)s->spec.plans[i])->object);
    pl_leave();
    free((void *)s->spec.steps);
    free((void *)s->spec.places);
    free((void *)s->spec.rounds);
    free((void *)s->spec.slices);
    free((void *)s->spec.plans);
    free(s);
}

static void call_free(void *arg)
{
    call *c = arg;
    if (c->abandoned)                         /* MPI may still read and write its memory */
        return;
    for (int i = 0; i < c->schedule->spec.n_arrays; i++)
        pl_array_free((uintptr_t)c->arrays[i]);
    if (c->scratch) {
        pl_enter();
        pl_storage_free(c->scratch, (size_t)(c->schedule->spec.scratch_bytes * c->schedule->spec.n_slots));
        pl_leave();
    }
    pl_schedule_free((uintptr_t)c->schedule);
    pl_group_free((uintptr_t)c->group);
    free(c->doubt);
    free(c);
}

/* ---- one message ------------------------------------------------------------------------------------------------ */

static char *address(const call *c, const slot *s, pl_place at)
{
    if (at.array == PL_AT_SCRATCH)
        return c->scratch + (s - c->slots) * c->schedule->spec.scratch_bytes + at.offset;
    return c->arrays[at.array]->data + at.offset;
}

static bool has_room(void)
{
    if (posted.n < posted.max)
        return true;
    int max = posted.max ? 2 * posted.max : 64;
    char *requests = realloc(posted.requests, (size_t)max * mpi.request_bytes);
    if (requests)
        posted.requests = requests;
    message **messages = realloc(posted.messages, (size_t)max * sizeof *messages);
    if (messages)
        posted.messages = messages;
    if (!requests || !messages)
        return false;
    posted.max = max;
    return true;
}

static void *request_at(int i) { return posted.requests + (size_t)i * mpi.request_bytes; }

static int post(const call *c, message *m, bool sends, void *data, int64_t bytes, int peer, int number)
{
    if (!has_room())
        return pl_fail(PL_ENOMEM, "collective: out of memory for messages");
    int tag = c->id << TAG_BITS | number;
    void *request = request_at(posted.n);
    int code = sends ? mpi.isend(data, (int)bytes, mpi.byte, peer, tag, c->group->communicator, request)
                     : mpi.irecv(data, (int)bytes, mpi.byte, peer, tag, c->group->communicator, request);
    if (code)
        return mpi_fail(code, c->name);
    *m = (message){.state = POSTED, .bytes = bytes, .sends = sends};
    posted.messages[posted.n++] = m;
    posted.is_new = true;
    stats.n_messages++;
    if (sends) {
        stats.sent_bytes += bytes;
        sent_bytes += bytes;
    }
    return PL_OK;
}

/* MPI is done with a message of the table. */
static void complete(int i, int code, int n_got)
{
    message *m = posted.messages[i];
    m->state = COMPLETE;
    m->code = code;
    m->n_got = n_got;
    if (m->sends)
        sent_bytes -= m->bytes;
    posted.messages[i] = posted.messages[--posted.n];
    memmove(request_at(i), request_at(posted.n), mpi.request_bytes);
}

/* Lets MPI work once, and takes what is complete from the table. */
static int work(const call *c)
{
    uint64_t status[32];                      /* larger than the status of any MPI */
    for (int flag = 1; flag && posted.n;) {
        int i = 0, n_got = 0, n = posted.n, code = mpi.testany(n, posted.requests, &i, &flag, status);
        if (code) {                           /* of requests that failed MPI leaves none */
            for (i = n - 1; i >= 0; i--)
                if (!memcmp(request_at(i), &mpi.no_request, mpi.request_bytes))
                    complete(i, code, 0);
            if (posted.n == n)
                return mpi_fail(code, c->name);
        } else if (flag) {
            if (mpi.get_count(status, mpi.byte, &n_got))
                n_got = -1;
            complete(i, 0, n_got);
        }
    }
    return PL_OK;
}

/* Lets MPI work until a message is complete (*moved), or there is no more to do: it does not say, but a call that does
 * nothing is short. Each moves little: UCX reads 64 KiB of a socket. */
static int look(const call *c, bool *moved)
{
    int n_before = posted.n, status = PL_OK;
    int64_t start_ns = pl_profiler_now(), end_ns;
    posted.is_new = false;
    posted.n_looks++;
    for (int k = 0; k < MAX_WORK; k++) {
        stats.n_looks++;
        if ((status = work(c)) != PL_OK)
            return status;
        end_ns = pl_profiler_now();
        if (posted.n < n_before) {
            *moved = true;
            moved_ns = end_ns;
            break;
        }
        if (end_ns - start_ns < IDLE_NS + (int64_t)posted.n * REQUEST_NS)
            break;
        start_ns = end_ns;
    }
    return PL_OK;
}

/* Takes a message that is complete. */
static int take(const call *c, message *m)
{
    int class = 0;
    char got[32] = "more";
    bool is_longer = m->code && !m->sends && !mpi.error_class(m->code, &class) && class == mpi.truncated;
    if (m->code && !is_longer)
        return mpi_fail(m->code, c->name);
    m->state = ARRIVED;
    if (is_longer || (!m->sends && m->n_got != m->bytes)) {
        char text[300];
        if (!is_longer)
            snprintf(got, sizeof got, "%d", m->n_got);
        snprintf(text, sizeof text, "%s: %lld bytes were expected, and %s came\n"
                 "  fix: the same shapes and dtypes on all ranks", c->name, (long long)m->bytes, got);
        return pl_fail(PL_EINVAL, text);
    }
    return PL_OK;
}

/* May so many bytes more be on their way? The limit lets what has priority overtake the rest. It must not stop all: the
 * receiver of what is on its way may need what another rank holds back. So it doubles with each idle millisecond. */
static bool has_credit(int64_t bytes)
{
    if (!sent_bytes || sent_bytes + bytes <= credit_bytes)
        return true;
    int64_t idle_ms = (pl_profiler_now() - moved_ns) / 1000000;
    return sent_bytes + bytes <= credit_bytes << (idle_ms < 20 ? idle_ms : 20);
}

/* Posts what may be posted of a round and takes what is complete. Sets *n_left. */
static int exchange(call *c, slot *s, const pl_round *round, int *n_left)
{
    *n_left = round->n_messages;
    for (int i = 0; i < round->n_messages; i++) {
        const pl_step *step = &c->schedule->spec.steps[round->first_step + i];
        message *m = &s->messages[i];
        bool sends = step->kind == PL_STEP_SEND;
        int status = PL_OK;
        if (m->state == NOT_POSTED && (!sends || has_credit(step->bytes)))
            status = post(c, m, sends, address(c, s, step->at), step->bytes, step->peer,
                          s->slice % SLICE_TAGS);
        else if (m->state == COMPLETE)
            status = take(c, m);
        if (status != PL_OK)
            return status;
        *n_left -= m->state == ARRIVED;
    }
    return PL_OK;
}

static int compute(const call *c, const slot *s, const pl_step *step)
{
    const pl_schedule_spec *spec = &c->schedule->spec;
    if (step->kind == PL_STEP_COPY) {
        memcpy(address(c, s, step->at), address(c, s, spec->places[step->first]), (size_t)step->bytes);
        return PL_OK;
    }
    void *bufs[step->n + 1];
    for (int i = 0; i < step->n; i++)
        bufs[i] = address(c, s, spec->places[step->first + i]);
    bufs[step->n] = address(c, s, step->at);
    return pl_kernel_run((pl_plan *)spec->plans[step->plan], bufs, NULL);
}

/* Is the slice done that had the tag of the next one? */
static bool has_tag(const call *c)
{
    for (int k = 0; k < c->schedule->spec.n_slots; k++)
        if (c->slots[k].slice >= 0 && c->slots[k].slice <= c->n_next - SLICE_TAGS)
            return false;
    return true;
}

/* Runs a slot as far as it gets. */
static int slot_advance(call *c, slot *s)
{
    const pl_schedule_spec *spec = &c->schedule->spec;
    for (;;) {
        if (s->slice < 0) {
            if (c->n_next == spec->n_slices || !has_tag(c))
                return PL_OK;
            s->slice = c->n_next++;
            s->round = 0;
        }
        const pl_slice *slice = &spec->slices[s->slice];
        if (s->round == slice->n_rounds) {
            s->slice = -1;
            c->n_open--;
            continue;
        }
        const pl_round *round = &spec->rounds[slice->first_round + s->round];
        int n_left, status = exchange(c, s, round, &n_left);
        if (status != PL_OK || n_left)
            return status;
        for (int i = round->n_messages; status == PL_OK && i < round->n_steps; i++)
            status = compute(c, s, &spec->steps[round->first_step + i]);
        if (status != PL_OK)
            return status;
        memset(s->messages, 0, (size_t)c->schedule->max_messages * sizeof *s->messages);
        s->round++;
    }
}

/* ---- one operation ---------------------------------------------------------------------------------------------- */

/* Sends its description to the right neighbour and compares that of the left one. */
static int describe(call *c)
{
    group *g = c->group;
    int left = (g->rank + g->n_ranks - 1) % g->n_ranks, right = (g->rank + 1) % g->n_ranks, status = PL_OK;
    if (c->mine.state == NOT_POSTED) {
        status = post(c, &c->theirs, false, c->got_text, sizeof c->got_text, left, DESCRIPTION_TAG);
        if (status == PL_OK)
            status = post(c, &c->mine, true, c->sent_text, sizeof c->sent_text, right, DESCRIPTION_TAG);
    }
    if (status == PL_OK && c->mine.state == COMPLETE)
        status = take(c, &c->mine);
    if (status == PL_OK && c->theirs.state == COMPLETE) {
        status = take(c, &c->theirs);
        /* what follows a line break may differ: where the user's code is */
        size_t n = strcspn(c->sent_text, "\n") + 1;
        if (status == PL_OK && strncmp(c->sent_text, c->got_text, n)) {
            char text[MESSAGE_BYTES];
            snprintf(text, sizeof text,
                     "%s: ranks do not run the same operations\n  rank %d: %s\n  rank %d: %s\n"
                     "  fix: the same code, with the same shapes in the same order, on all ranks",
                     c->name, g->world_ranks[g->rank], c->sent_text, g->world_ranks[left], c->got_text);
            return pl_fail(PL_EINVAL, text);
        }
    }
    c->described = c->mine.state == ARRIVED && c->theirs.state == ARRIVED;
    return status;
}

static int start(call *c)
{
    const pl_schedule_spec *spec = &c->schedule->spec;
    c->start_ns = pl_profiler_now();
    c->n_open = spec->n_slices;
    stats.n_operations++;
    if (spec->scratch_bytes) {
        pl_enter();
        c->scratch = pl_storage_alloc((size_t)(spec->scratch_bytes * spec->n_slots));
        pl_leave();
        if (!c->scratch)
            return PL_ENOMEM;
    }
    return PL_OK;
}

/* Does it wait for a message to or from a rank of the group? */
static bool waits_for(const call *c, int rank)
{
    const pl_schedule_spec *spec = &c->schedule->spec;
    for (int k = 0; k < spec->n_slots; k++) {
        const slot *s = &c->slots[k];
        if (s->slice < 0)
            continue;
        const pl_round *round = &spec->rounds[spec->slices[s->slice].first_round + s->round];
        for (int i = 0; i < round->n_messages; i++)
            if (spec->steps[round->first_step + i].peer == rank && s->messages[i].state < COMPLETE)
                return true;
    }
    int n = c->group->n_ranks, left = (c->group->rank + n - 1) % n;
    return !c->described && c->theirs.state == POSTED && rank == left;
}

/* Whom it waited for: more than the engine can say. */
static void say_timed_out(const call *c)
{
    char ranks[256] = "", text[MESSAGE_BYTES];
    size_t n = 0;
    for (int r = 0; r < c->group->n_ranks && n < sizeof ranks - 16; r++)
        if (waits_for(c, r))
            n += (size_t)snprintf(ranks + n, sizeof ranks - n, "%s%d", n ? ", " : "", c->group->world_ranks[r]);
    snprintf(text, sizeof text, "%s: rank %d waited %g s for rank %s\n"
             "  fix: look what that rank does; PLAIT_COMM_TIMEOUT=seconds if it may take so long",
             c->name, c->group->world_ranks[c->group->rank], c->timeout_s, n ? ranks : "?");
    pl_fail(PL_ETIMEOUT, text);
}

/* Fails if it waits for a rank whose program has ended, and whose last messages had time to arrive. */
static int check_finished(const call *c)
{
    if (!left_long_ago())
        return PL_OK;
    for (int r = 0; r < c->group->n_ranks; r++) {
        int rank = c->group->world_ranks[r];
        if (pl_heartbeat_state(rank) != PL_RANK_FINISHED || !waits_for(c, r))
            continue;
        char text[MESSAGE_BYTES];
        snprintf(text, sizeof text, "%s: rank %d waits for rank %d, whose program has ended\n"
                 "  fix: the same number of batches on all ranks",
                 c->name, c->group->world_ranks[c->group->rank], rank);
        return pl_fail(PL_FAILED, text);
    }
    return PL_OK;
}

/* A message failed, or has another size. Ranks may differ in what they run: which one does not say, but some rank's
 * comparison of descriptions soon will, this one's or another's. So that counts, and this error only after a time. */
static int doubt(call *c, int status)
{
    if (!(c->doubt = strdup(pl_error_message())))
        return status;
    c->doubt_status = status;
    c->doubt_ns = pl_profiler_now() + DOUBT_NS;
    pl_fail_forget();
    return PL_OK;
}

/* Messages that are on their way keep their memory for ever: MPI may still use it. */
static void abandon(call *c)
{
    const schedule *s = c->schedule;
    for (int k = 0; k < s->spec.n_slots; k++)
        for (int i = 0; i < s->max_messages; i++)
            c->abandoned |= c->slots[k].messages[i].state == POSTED;
    c->abandoned |= c->mine.state == POSTED || c->theirs.state == POSTED;
}

static int call_cancel(void *arg)
{
    call *c = arg;
    pthread_mutex_lock(&comm_lock);
    int64_t since_ns = moved_ns > c->start_ns ? moved_ns : c->start_ns;
    bool is_over = c->timeout_s > 0 && pl_profiler_now() - since_ns >= (int64_t)(c->timeout_s * 1e9);
    if (atomic_load(&gave_up))                /* another rank was a moment faster */
        pl_fail(PL_FAILED, reason);
    else if (c->doubt)
        pl_fail(c->doubt_status, c->doubt);
    else if (is_over)
        say_timed_out(c);
    abandon(c);
    pthread_mutex_unlock(&comm_lock);
    return c->abandoned ? PL_PENDING : PL_OK;
}

/* Goes as far as messages let it. */
static int advance(call *c)
{
    int status = c->described ? PL_OK : describe(c);
    for (int k = 0; status == PL_OK && !c->doubt && k < c->schedule->spec.n_slots; k++)
        if ((status = slot_advance(c, &c->slots[k])) != PL_OK)
            status = doubt(c, status);
    if (status == PL_OK && c->doubt && pl_profiler_now() >= c->doubt_ns)
        status = pl_fail(c->doubt_status, c->doubt);
    return status;
}

static bool is_done(const call *c) { return c->described && c->n_open == 0; }

static int call_poll(void *arg)
{
    call *c = arg;
    bool moved = false;
    int status = PL_OK;
    pthread_mutex_lock(&comm_lock);
    stats.n_polls++;
    if (atomic_load(&gave_up))
        status = pl_fail(PL_FAILED, reason);
    if (status == PL_OK && !c->start_ns)
        status = start(c);
    if (status == PL_OK)
        status = advance(c);
    /* of the operations that are polled in turn the first looks, for all of them */
    if (status == PL_OK && !is_done(c) && (c->n_looks == posted.n_looks || posted.is_new))
        status = look(c, &moved);
    c->n_looks = posted.n_looks;
    if (status == PL_OK && moved)
        status = advance(c);
    /* it may stand behind others whose messages travel: only a link on which nothing comes is too late */
    pl_flight_alive(moved_ns);
    bool done = is_done(c);
    if (status == PL_OK && !done && !moved && !c->doubt)
        status = check_finished(c);
    if (status != PL_OK)
        abandon(c);
    pthread_mutex_unlock(&comm_lock);
    if (status != PL_OK || done)
        return status;
    if (moved)
        pl_flight_progressed();
    return PL_PENDING;
}

int pl_schedule_push(uintptr_t schedule_handle, uintptr_t group_handle, const uintptr_t *arrays, const uint8_t *uses,
                     int id, const char *description, int priority, double timeout_s, const char *name,
                     int32_t location)
{
    schedule *s = (schedule *)schedule_handle;
    group *g = (group *)group_handle;
    int n = s->spec.n_arrays, n_slots = s->spec.n_slots, n_messages = s->max_messages;
    size_t bytes = sizeof(call) + (size_t)n * sizeof(pl_array *) + (size_t)n_slots * sizeof(slot) +
                   (size_t)n_slots * (size_t)n_messages * sizeof(message);
    call *c = calloc(1, bytes);
    if (!c)
        return pl_fail(PL_ENOMEM, "collective: out of memory");
    atomic_fetch_add(&s->refs, 1);
    atomic_fetch_add(&g->refs, 1);
    c->schedule = s;
    c->group = g;
    c->arrays = (pl_array **)(c + 1);
    c->slots = (slot *)(c->arrays + n);
    message *messages = (message *)(c->slots + n_slots);
    for (int k = 0; k < n_slots; k++)
        c->slots[k] = (slot){.slice = -1, .messages = messages + k * n_messages};
    c->name = name;
    c->id = id;
    c->timeout_s = timeout_s;
    c->described = !description || g->n_ranks == 1;
    snprintf(c->sent_text, sizeof c->sent_text, "%s", description ? description : name);
    uintptr_t reads[n + 1], writes[n + 1];
    int n_reads = 0, n_writes = 0, status = PL_OK;
    for (int i = 0; i < n; i++) {
        if (!(c->arrays[i] = (pl_array *)pl_array_view(arrays[i], 0)))
            status = PL_ENOMEM;
        if (uses[i] != PL_WRITE)
            reads[n_reads++] = arrays[i];
        if (uses[i] != PL_READ)
            writes[n_writes++] = arrays[i];
    }
    if (status == PL_OK)
        status = pl_push_polled(call_poll, call_cancel, c, call_free, reads, n_reads, writes, n_writes, 0,
                                PL_LANE_COMM, 0, priority, timeout_s, name, location);
    if (status != PL_OK)
        call_free(c);
    return status;
}

void pl_comm_set_credit(int64_t bytes)
{
    pthread_mutex_lock(&comm_lock);
    credit_bytes = bytes;
    pthread_mutex_unlock(&comm_lock);
}

void pl_comm_get_stats(pl_comm_stats *into)
{
    pthread_mutex_lock(&comm_lock);
    *into = stats;
    pthread_mutex_unlock(&comm_lock);
}

void pl_comm_give_up(const char *text)
{
    pthread_mutex_lock(&comm_lock);
    if (!atomic_load(&gave_up)) {
        snprintf(reason, sizeof reason, "%s", text);
        atomic_store(&gave_up, true);
    }
    pthread_mutex_unlock(&comm_lock);
    pl_nccl_give_up(reason);                  /* first: what runs on GPUs returns */
    pl_fail(PL_FAILED, reason);
    pl_flight_abort(PL_LANE_COMM, 0);
}

void pl_comm_rank_left(int rank, int state, const char *text)
{
    (void)rank;                               /* it is in the text */
    if (state != PL_RANK_FINISHED) {
        pl_comm_give_up(text);
        return;
    }
    pthread_mutex_lock(&comm_lock);
    finished_ns = pl_profiler_now();
    pthread_mutex_unlock(&comm_lock);
}
