/* Collectives: a schedule is run by one loop, over messages of MPI.
 *
 * An operation is started by its first poll and then polled until all its slices are done. A slice that is done leaves
 * its slot, with its part of the scratch memory, to the next one. Slices use SLICE_TAGS tags in turn: one begins when
 * the one that had its tag is done here, and MPI keeps messages of one tag in order. */
#include "comm.h"
#include "array.h"
#include "clique.h"
#include "flight.h"
#include "heartbeat.h"
#include "mpi.h"
#include "profiler.h"
#include "storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_BITS = 12, SLICE_TAGS = (1 << TAG_BITS) - 1, DESCRIPTION_TAG = SLICE_TAGS };
enum { DESCRIPTION_BYTES = 512, MESSAGE_BYTES = 4400 };
static const int64_t FINISHED_NS = 1000000000;
static const int64_t DOUBT_NS = 5000000000;   /* for a better reason than that a message failed */

/* Guards MPI and what follows: in naive mode several threads poll. */
static pthread_mutex_t comm_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t n_operations, n_polls;
static atomic_bool gave_up;
static char reason[MESSAGE_BYTES];            /* why; written once, before gave_up is set */
static int64_t finished_ns;                   /* when a rank ended well the last time; 0: none did */

typedef struct {
    int slice, round;                         /* slice: -1: the slot is free */
    pl_message *messages;                     /* of the round */
} slot;

typedef struct {
    pl_schedule *schedule;
    pl_group *group;
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
    pl_message mine, theirs;                  /* the descriptions: to the right neighbour, from the left one */
    char sent_text[DESCRIPTION_BYTES], got_text[DESCRIPTION_BYTES];
} call;

int pl_group_ids(void)
{
    int64_t ids = ((int64_t)pl_mpi.largest_tag + 1) >> TAG_BITS;
    return ids < 1 << 16 ? (int)ids : 1 << 16;
}

static bool left_long_ago(void)               /* some rank */
{
    int64_t last_ns = finished_ns > pl_mpi.moved_ns ? finished_ns : pl_mpi.moved_ns;
    return finished_ns && pl_profiler_now() - last_ns >= FINISHED_NS;
}

int pl_group_left(uintptr_t handle)
{
    const pl_group *g = (const pl_group *)handle;
    int found = -1;
    pthread_mutex_lock(&comm_lock);
    for (int r = 0; g && left_long_ago() && r < g->n_ranks && found < 0; r++)
        if (pl_heartbeat_state(g->world_ranks[r]) == PL_RANK_FINISHED)
            found = g->world_ranks[r];
    pthread_mutex_unlock(&comm_lock);
    return found;
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

static int post(const call *c, pl_message *m, bool sends, void *data, int64_t bytes, int peer, int number)
{
    return pl_mpi_post(m, sends, data, bytes, peer, c->id << TAG_BITS | number, c->group->communicator, c->name);
}

/* Posts what may be posted of a round and takes what is complete. Sets *n_left. */
static int exchange(call *c, slot *s, const pl_round *round, int *n_left)
{
    *n_left = round->n_messages;
    for (int i = 0; i < round->n_messages; i++) {
        const pl_step *step = &c->schedule->spec.steps[round->first_step + i];
        pl_message *m = &s->messages[i];
        bool sends = step->kind == PL_STEP_SEND;
        int status = PL_OK;
        if (m->state == PL_MESSAGE_NEW && (!sends || pl_mpi_has_credit(step->bytes)))
            status = post(c, m, sends, address(c, s, step->at), step->bytes, step->peer,
                          s->slice % SLICE_TAGS);
        else if (m->state == PL_MESSAGE_COMPLETE)
            status = pl_mpi_take(m, c->name);
        if (status != PL_OK)
            return status;
        *n_left -= m->state == PL_MESSAGE_ARRIVED;
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
    pl_group *g = c->group;
    int left = (g->rank + g->n_ranks - 1) % g->n_ranks, right = (g->rank + 1) % g->n_ranks, status = PL_OK;
    if (c->mine.state == PL_MESSAGE_NEW) {
        status = post(c, &c->theirs, false, c->got_text, sizeof c->got_text, left, DESCRIPTION_TAG);
        if (status == PL_OK)
            status = post(c, &c->mine, true, c->sent_text, sizeof c->sent_text, right, DESCRIPTION_TAG);
    }
    if (status == PL_OK && c->mine.state == PL_MESSAGE_COMPLETE)
        status = pl_mpi_take(&c->mine, c->name);
    if (status == PL_OK && c->theirs.state == PL_MESSAGE_COMPLETE) {
        status = pl_mpi_take(&c->theirs, c->name);
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
    c->described = c->mine.state == PL_MESSAGE_ARRIVED && c->theirs.state == PL_MESSAGE_ARRIVED;
    return status;
}

static int start(call *c)
{
    const pl_schedule_spec *spec = &c->schedule->spec;
    c->start_ns = pl_profiler_now();
    c->n_open = spec->n_slices;
    n_operations++;
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
            if (spec->steps[round->first_step + i].peer == rank && s->messages[i].state < PL_MESSAGE_COMPLETE)
                return true;
    }
    int n = c->group->n_ranks, left = (c->group->rank + n - 1) % n;
    return !c->described && c->theirs.state == PL_MESSAGE_POSTED && rank == left;
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
    const pl_schedule *s = c->schedule;
    for (int k = 0; k < s->spec.n_slots; k++)
        for (int i = 0; i < s->max_messages; i++)
            c->abandoned |= c->slots[k].messages[i].state == PL_MESSAGE_POSTED;
    c->abandoned |= c->mine.state == PL_MESSAGE_POSTED || c->theirs.state == PL_MESSAGE_POSTED;
}

static int call_cancel(void *arg)
{
    call *c = arg;
    pthread_mutex_lock(&comm_lock);
    int64_t since_ns = pl_mpi.moved_ns > c->start_ns ? pl_mpi.moved_ns : c->start_ns;
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
    n_polls++;
    if (atomic_load(&gave_up))
        status = pl_fail(PL_FAILED, reason);
    if (status == PL_OK && !c->start_ns)
        status = start(c);
    if (status == PL_OK)
        status = advance(c);
    /* of the operations that are polled in turn the first looks, for all of them */
    if (status == PL_OK && !is_done(c) && (c->n_looks == pl_mpi.n_looks || pl_mpi.is_new))
        status = pl_mpi_look(c->name, &moved);
    c->n_looks = pl_mpi.n_looks;
    if (status == PL_OK && moved)
        status = advance(c);
    /* it may stand behind others whose messages travel: only a link on which nothing comes is too late */
    pl_flight_alive(pl_mpi.moved_ns);
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
    pl_schedule *s = (pl_schedule *)schedule_handle;
    pl_group *g = (pl_group *)group_handle;
    int n = s->spec.n_arrays, n_slots = s->spec.n_slots, n_messages = s->max_messages;
    size_t bytes = sizeof(call) + (size_t)n * sizeof(pl_array *) + (size_t)n_slots * sizeof(slot) +
                   (size_t)n_slots * (size_t)n_messages * sizeof(pl_message);
    call *c = calloc(1, bytes);
    if (!c)
        return pl_fail(PL_ENOMEM, "collective: out of memory");
    atomic_fetch_add(&s->refs, 1);
    atomic_fetch_add(&g->refs, 1);
    c->schedule = s;
    c->group = g;
    c->arrays = (pl_array **)(c + 1);
    c->slots = (slot *)(c->arrays + n);
    pl_message *messages = (pl_message *)(c->slots + n_slots);
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
    pl_mpi.credit_bytes = bytes;
    pthread_mutex_unlock(&comm_lock);
}

void pl_comm_get_stats(pl_comm_stats *into)
{
    pthread_mutex_lock(&comm_lock);
    *into = (pl_comm_stats){n_operations, pl_mpi.n_messages, pl_mpi.sent_bytes, n_polls, pl_mpi.n_works};
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
