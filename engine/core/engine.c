/* The dependency algorithm: requests on vars are granted in the order of pushing, reads together and writes alone.
 *
 * Invariants (under pl_lock):
 *   writing           => n_readers == 0
 *   head != NULL      => the head cannot be granted now
 *   op->n_missing     == number of its requests that are still queued at a var
 */
#include "internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SMALL_BLOCK = 512, MAX_PENDING = 20000 };

pthread_mutex_t pl_lock = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;      /* a var with waiters changed, or nothing is pending */
static int64_t n_pending, next_seq;
static int32_t n_all_waiters;
static bool naive;
static pl_error *untold;                                    /* errors nobody has been told, newest first */
static pl_op *spare;                                        /* freed small ops */
static uint64_t random_seed, random_counter;

/* ---- vars ------------------------------------------------------------------------------------------------- */

void pl_var_unref(pl_var *var)
{
    if (--var->refs > 0)
        return;
    assert(!var->writing && !var->n_readers && !var->head);
    if (var->error)
        pl_error_unref(var->error);
    if (!var->release) {
        pl_storage_free(var->data, var->bytes);
    } else {
        pthread_mutex_unlock(&pl_lock);       /* the owner's release may be Python code */
        var->release(var->owner);
        pthread_mutex_lock(&pl_lock);
    }
    free(var);
}

static bool request_append(pl_request *r)
{
    pl_var *v = r->var;
    if (r->mode != PL_READ)
        v->writes_pushed++;
    if (!v->head && !v->writing && (r->mode == PL_READ || !v->n_readers)) {
        if (r->mode == PL_READ)
            v->n_readers++;
        else
            v->writing = true;
        return true;
    }
    r->next = NULL;
    if (v->head)
        v->tail->next = r;
    else
        v->head = r;
    v->tail = r;
    return false;
}

static void op_granted(pl_op *op)
{
    if (--op->n_missing == 0)
        pl_lane_put(op);                      /* STATE: waiting -> ready */
}

static void request_release(pl_request *r)
{
    pl_var *v = r->var;
    if (r->mode == PL_READ) {
        v->n_readers--;
    } else {
        v->writing = false;
        v->version++;
    }
    while (v->head && !v->writing) {
        pl_request *q = v->head;
        if (q->mode != PL_READ && v->n_readers)
            break;
        v->head = q->next;
        if (q->mode == PL_READ)
            v->n_readers++;
        else
            v->writing = true;
        op_granted(q->op);
    }
    if (v->n_waiters)
        pthread_cond_broadcast(&done);
    pl_var_unref(v);
}

static struct timespec deadline_after(int ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    return t;
}

/* ---- ops -------------------------------------------------------------------------------------------------- */

pl_op *pl_op_new(int max_requests, size_t payload_bytes)
{
    size_t requests_bytes = (size_t)max_requests * sizeof(pl_request);
    size_t bytes = sizeof(pl_op) + requests_bytes + payload_bytes;
    pl_op *op = NULL;
    if (bytes <= SMALL_BLOCK) {
        bytes = SMALL_BLOCK;
        pthread_mutex_lock(&pl_lock);
        op = spare;
        if (op)
            spare = op->next;
        pthread_mutex_unlock(&pl_lock);
    }
    if (!op && !(op = malloc(bytes)))
        return NULL;
    memset(op, 0, sizeof *op);
    op->block_bytes = bytes;
    op->location = -1;
    op->payload = (char *)op->requests + requests_bytes;
    return op;
}

static void op_free(pl_op *op)
{
    if (op->block_bytes == SMALL_BLOCK) {
        op->next = spare;
        spare = op;
    } else {
        free(op);
    }
}

void pl_op_discard(pl_op *op)
{
    pthread_mutex_lock(&pl_lock);
    op_free(op);
    pthread_mutex_unlock(&pl_lock);
}

void pl_op_claim(pl_op *op, pl_var *var, uint8_t mode)
{
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].var == var) {
            if (op->requests[i].mode != mode)
                op->requests[i].mode = PL_READWRITE;
            return;
        }
    op->requests[op->n_requests++] = (pl_request){.op = op, .var = var, .mode = mode};
}

/* The error that a skipped op inherits, or NULL. */
static pl_error *op_inherited(const pl_op *op)
{
    for (int i = 0; i < op->n_requests; i++)
        if (op->requests[i].mode != PL_WRITE && op->requests[i].var->error)
            return op->requests[i].var->error;
    return NULL;
}

static void var_set_error(pl_var *var, pl_error *error)
{
    if (error)
        error->refs++;
    if (var->error)
        pl_error_unref(var->error);
    var->error = error;
}

static void op_complete(pl_op *op, pl_error *error)
{
    for (int i = 0; i < op->n_requests; i++) {
        pl_request *r = &op->requests[i];
        if (r->mode != PL_READ && (error || r->var->error))
            var_set_error(r->var, error);     /* STATE: valid -> poisoned, or poisoned -> overwritten */
    }
    for (int i = 0; i < op->n_requests; i++)
        request_release(&op->requests[i]);
    n_pending--;
    if (n_all_waiters && n_pending == 0)
        pthread_cond_broadcast(&done);
    op_free(op);                              /* STATE: running -> done */
}

void pl_op_execute(pl_op *op)
{
    pl_error *error = op_inherited(op);
    if (error)
        error->refs++;
    pthread_mutex_unlock(&pl_lock);
    int status = error ? PL_OK : op->run(op);
    if (status != PL_OK)
        error = pl_error_new(pl_error_last(), op->name, op->location);
    if (op->dispose)
        op->dispose(op);
    pthread_mutex_lock(&pl_lock);
    if (status != PL_OK && error) {
        error->refs++;
        error->next = untold;
        untold = error;
    }
    op_complete(op, error);
    pl_error_unref(error);
}

void pl_op_submit(pl_op *op, bool may_inline)
{
    pthread_mutex_lock(&pl_lock);
    if (n_pending >= MAX_PENDING && !pl_engine_is_lane()) {
        n_all_waiters++;
        while (n_pending >= MAX_PENDING / 2) {
            struct timespec end = deadline_after(1);
            pthread_cond_timedwait(&done, &pl_lock, &end);
        }
        n_all_waiters--;
    }
    op->seq = next_seq++;
    op->n_missing = 1;                        /* held until every request stands in its queue */
    n_pending++;
    for (int i = 0; i < op->n_requests; i++) {
        op->requests[i].var->refs++;
        if (!request_append(&op->requests[i]))
            op->n_missing++;
    }
    if (--op->n_missing == 0) {
        if (may_inline || naive)
            pl_op_execute(op);                /* STATE: new -> running, on the caller */
        else
            pl_lane_put(op);                  /* STATE: new -> ready */
    }
    pthread_mutex_unlock(&pl_lock);
}

/* ---- waiting ---------------------------------------------------------------------------------------------- */

int pl_wait_var(pl_var *var, bool for_write, int timeout_ms)
{
    int status = PL_OK;
    pthread_mutex_lock(&pl_lock);
    uint64_t target = var->writes_pushed;
    if (var->version < target || (for_write && (var->n_readers || var->head))) {
        struct timespec end = deadline_after(timeout_ms);
        var->refs++;
        var->n_waiters++;
        while (status == PL_OK && (var->version < target || (for_write && (var->n_readers || var->head))))
            if (pthread_cond_timedwait(&done, &pl_lock, &end) == ETIMEDOUT)
                status = PL_AGAIN;
        var->n_waiters--;
        if (status == PL_OK && var->error)
            status = pl_error_report(var->error);
        pl_var_unref(var);
    } else if (var->error) {
        status = pl_error_report(var->error);
    }
    pthread_mutex_unlock(&pl_lock);
    return status;
}

int pl_wait_all(int timeout_ms)
{
    int status = PL_OK;
    struct timespec end = deadline_after(timeout_ms);
    pthread_mutex_lock(&pl_lock);
    n_all_waiters++;
    while (n_pending > 0 && status == PL_OK)
        if (pthread_cond_timedwait(&done, &pl_lock, &end) == ETIMEDOUT)
            status = PL_AGAIN;
    n_all_waiters--;
    while (untold && status == PL_OK) {
        pl_error *error = untold;
        untold = error->next;
        if (!error->told)
            status = pl_error_report(error);
        pl_error_unref(error);
    }
    pthread_mutex_unlock(&pl_lock);
    return status;
}

int64_t pl_engine_pending(void)
{
    pthread_mutex_lock(&pl_lock);
    int64_t n = n_pending;
    pthread_mutex_unlock(&pl_lock);
    return n;
}

void pl_engine_stop(void)
{
    while (pl_wait_all(1000) == PL_AGAIN) {}
    pl_lane_stop_all();
}

void pl_engine_set_naive(int value) { naive = value; }

void pl_seed(uint64_t seed)
{
    pthread_mutex_lock(&pl_lock);
    random_seed = seed;
    random_counter = 0;
    pthread_mutex_unlock(&pl_lock);
}

uint64_t pl_random_claim(int n, uint64_t *seed)
{
    pthread_mutex_lock(&pl_lock);
    uint64_t first = random_counter;
    random_counter += (uint64_t)n;
    *seed = random_seed;
    pthread_mutex_unlock(&pl_lock);
    return first;
}

/* ---- functions as ops ------------------------------------------------------------------------------------- */

typedef struct { pl_fn fn; void *arg; pl_free_fn free_arg; } function_call;

static int function_run(pl_op *op)
{
    function_call *call = op->payload;
    return call->fn(call->arg);
}

static void function_dispose(pl_op *op)
{
    function_call *call = op->payload;
    if (call->free_arg)
        call->free_arg(call->arg);
}

int pl_push(pl_fn fn, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads, const uintptr_t *writes,
            int n_writes, int lane, int device, int priority, const char *name, int32_t location)
{
    pl_op *op = pl_op_new(n_reads + n_writes, sizeof(function_call));
    if (!op)
        return pl_fail(PL_ENOMEM, "push: out of memory");
    *(function_call *)op->payload = (function_call){fn, arg, free_arg};
    op->run = function_run;
    op->dispose = function_dispose;
    op->priority = priority;
    op->name = name;
    op->location = location;
    for (int i = 0; i < n_reads; i++)
        pl_op_claim(op, ((pl_array *)reads[i])->var, PL_READ);
    for (int i = 0; i < n_writes; i++)
        pl_op_claim(op, ((pl_array *)writes[i])->var, PL_WRITE);
    pthread_mutex_lock(&pl_lock);
    op->lane = pl_lane_get(lane, device);
    pthread_mutex_unlock(&pl_lock);
    if (!op->lane) {
        pl_op_discard(op);
        return pl_fail(PL_ENOMEM, "push: the lane's worker thread could not be started");
    }
    pl_op_submit(op, false);
    return PL_OK;
}
