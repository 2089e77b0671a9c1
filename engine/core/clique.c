/* NCCL: the library, and communicators. They do not block: joining is polled, and so is what a call leaves undone.
 *
 * A communicator that fails is ended, and its streams go on with undefined values. So nothing that a GPU has from then
 * on is valid: pl_gpu_lose. */
#include "clique.h"
#include "comm.h"
#include "flight.h"
#include "profiler.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONFIG_MAGIC = (int)0xcafebeef, CONFIG_VERSION = 21400, MESSAGE_BYTES = 1000 };

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
nccl_functions nccl;
pl_array *pl_nccl_order;
pthread_mutex_t pl_nccl_lock = PTHREAD_MUTEX_INITIALIZER;
atomic_bool pl_nccl_given_up;
static pl_clique *_Atomic cliques;

/* ---- the library ------------------------------------------------------------------------------------------------ */

int pl_nccl_open(const char *library)
{
    char text[MESSAGE_BYTES];
    int status = PL_OK;
    pthread_mutex_lock(&opening);
    void *found = pl_nccl_order ? NULL : dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!pl_nccl_order && !found) {
        snprintf(text, sizeof text, "NCCL cannot be loaded: %s", dlerror());
        status = pl_fail(PL_FAILED, text);
    }
#define NCCL_FIND(name, symbol, parameters) \
    if (found && status == PL_OK && !(*(void **)&nccl.name = dlsym(found, #symbol))) \
        status = pl_fail(PL_FAILED, "NCCL is too old, it has no " #symbol "\n  fix: NCCL 2.14 or later");
    NCCL_FUNCTIONS(NCCL_FIND)
    NCCL_FIND(error_string, ncclGetErrorString, )
    if (found)
        *(void **)&nccl.last_error = dlsym(found, "ncclGetLastError");
    if (found && status == PL_OK && !(pl_nccl_order = (pl_array *)pl_array_new(0)))
        status = PL_ENOMEM;
    if (found && status != PL_OK)
        dlclose(found);
    pthread_mutex_unlock(&opening);
    return status;
}

int pl_nccl_fail(int code, const char *what, nccl_comm *comm)
{
    if (code == NCCL_OK)
        return PL_OK;
    const char *more = nccl.last_error ? nccl.last_error(comm) : NULL;
    char text[MESSAGE_BYTES];
    snprintf(text, sizeof text, "%s: NCCL: %s%s%s", what, nccl.error_string(code), more && *more ? ": " : "",
             more ? more : "");
    return pl_fail(PL_FAILED, text);
}

int pl_nccl_new_id(void *id) { return pl_nccl_fail(nccl.new_id(id), "a communicator cannot be made", NULL); }

/* ---- communicators ---------------------------------------------------------------------------------------------- */

uintptr_t pl_clique_new(int n_ranks, int first_rank, const int32_t *devices, int n_devices, uintptr_t group)
{
    pl_clique *q = calloc(1, sizeof *q + (size_t)n_devices * sizeof *q->members);
    if (!q || !(q->joined = (pl_array *)pl_array_new(0))) {
        free(q);
        pl_fail(PL_ENOMEM, "NCCL: out of memory");
        return 0;
    }
    q->n_ranks = n_ranks;
    q->first_rank = first_rank;
    q->n_members = n_devices;
    q->group = group;
    for (int i = 0; i < n_devices; i++) {
        q->members[i].gpu = pl_gpu_get(devices[i]);
        if (!q->members[i].gpu || pl_stream_find(PL_LANE_GPU_COMM, devices[i], &q->members[i].stream) != PL_OK) {
            pl_array_free((uintptr_t)q->joined);
            free(q);
            return 0;
        }
    }
    pl_group_keep(group);
    pthread_mutex_lock(&pl_nccl_lock);
    q->next = cliques;
    cliques = q;
    pthread_mutex_unlock(&pl_nccl_lock);
    return (uintptr_t)q;
}

int pl_clique_state(const pl_clique *q, nccl_comm **at)
{
    int found = NCCL_OK;
    for (int i = 0; i < q->n_members && (found == NCCL_OK || found == NCCL_IN_PROGRESS); i++) {
        int state = NCCL_OK, code = nccl.state(*at = q->members[i].comm, &state);
        if (code != NCCL_OK || state != NCCL_OK)
            found = code != NCCL_OK ? code : state;
    }
    return found;
}

/* What runs on the GPUs returns. */
static void clique_end(pl_clique *q)
{
    q->ended = true;
    for (int i = 0; i < q->n_members; i++) {
        if (q->members[i].comm)
            nccl.abort(q->members[i].comm);
        q->members[i].comm = NULL;
    }
}

void pl_clique_lose(pl_clique *q, const char *name, int32_t location)
{
    pl_gpu_lose(pl_error_new(pl_error_status(), name, location));
    clique_end(q);
}

void pl_nccl_give_up(const char *message)
{
    if (cliques) {
        pl_fail(PL_FAILED, message);
        pl_gpu_lose(pl_error_new(PL_FAILED, NULL, -1));
    }
    atomic_store(&pl_nccl_given_up, true);    /* a launch that waits for other ranks releases the lock */
    pthread_mutex_lock(&pl_nccl_lock);
    for (pl_clique *q = cliques; q; q = q->next)
        clique_end(q);
    pthread_mutex_unlock(&pl_nccl_lock);
}

typedef struct { pl_clique *clique; pl_array *id; const char *name; double timeout_s; int64_t start_ns; } joining;

static int join_begin(pl_clique *q, const nccl_id *id, const char *name)
{
    const nccl_config config = {sizeof config, CONFIG_MAGIC, CONFIG_VERSION, 0};
    pl_gpu_scope scope;
    int status = pl_nccl_fail(nccl.group_start(), name, NULL);
    if (status != PL_OK)
        return status;
    for (int i = 0; i < q->n_members && status == PL_OK; i++) {
        if ((status = pl_gpu_begin(q->members[i].gpu, &scope)) != PL_OK)
            break;
        int code = nccl.join(&q->members[i].comm, q->n_ranks, *id, q->first_rank + i, &config);
        status = pl_nccl_fail(code == NCCL_IN_PROGRESS ? NCCL_OK : code, name, NULL);
        pl_gpu_end(&scope);
    }
    int code = nccl.group_end();
    return status == PL_OK && code != NCCL_IN_PROGRESS ? pl_nccl_fail(code, name, NULL) : status;
}

static int join_poll(void *arg)
{
    joining *j = arg;
    pl_clique *q = j->clique;
    nccl_comm *at = NULL;
    int status = PL_OK;
    pthread_mutex_lock(&pl_nccl_lock);
    if (!q->joining) {
        q->joining = true;
        j->start_ns = pl_profiler_now();
        status = join_begin(q, (const nccl_id *)j->id->data, j->name);
    }
    int state = status == PL_OK && !q->ended ? pl_clique_state(q, &at) : NCCL_OK;
    if (state == NCCL_IN_PROGRESS || (status == PL_OK && q->ended))      /* ended: pl_flight_abort says why */
        status = PL_PENDING;
    else if (status == PL_OK)
        status = pl_nccl_fail(state, j->name, at);
    if (status != PL_OK && status != PL_PENDING)
        clique_end(q);
    pthread_mutex_unlock(&pl_nccl_lock);
    return status;
}

static int join_cancel(void *arg)
{
    joining *j = arg;
    char text[MESSAGE_BYTES];
    pthread_mutex_lock(&pl_nccl_lock);
    if (!pl_nccl_given_up && j->timeout_s > 0 && pl_profiler_now() - j->start_ns >= (int64_t)(j->timeout_s * 1e9)) {
        snprintf(text, sizeof text, "%s: rank %d waited %g s for the other ranks' GPUs\n  fix: look what they do; "
                 "PLAIT_COMM_TIMEOUT=seconds if it may take so long", j->name, pl_group_self(j->clique->group),
                 j->timeout_s);
        pl_fail(PL_ETIMEOUT, text);
    }
    clique_end(j->clique);
    pthread_mutex_unlock(&pl_nccl_lock);
    return PL_OK;
}

static void join_free(void *arg)
{
    joining *j = arg;
    pl_array_free((uintptr_t)j->id);
    free(j);
}

int pl_clique_join(uintptr_t handle, uintptr_t id, double timeout_s, const char *name, int32_t location)
{
    pl_clique *q = (pl_clique *)handle;
    joining *j = calloc(1, sizeof *j);
    uintptr_t joined = (uintptr_t)q->joined;
    if (!j || !(j->id = (pl_array *)pl_array_view(id, 0))) {
        free(j);
        return pl_fail(PL_ENOMEM, "NCCL: out of memory");
    }
    j->clique = q;
    j->name = name;
    j->timeout_s = timeout_s;
    int status = pl_push_polled(join_poll, join_cancel, j, join_free, &id, 1, &joined, 1, 0, PL_LANE_COMM, 0, 0,
                                timeout_s, name, location);
    if (status != PL_OK)
        join_free(j);
    return status;
}
