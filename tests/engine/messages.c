/* Collectives over an MPI of this file: random schedules of several ranks, all in this process, with failures. Messages
 * of it move when a request is tested, in any order that the standard allows. Its handles are those of MPICH. */
#include "driver.h"
#include "engine/core/comm.h"
#include "engine/core/mpi.h"
#include "engine/core/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE = 17, NULL_REQUEST = 0x2c000000, TRUNCATED = 14, BROKEN = 15, MAX_REQUESTS = 1 << 14 };
enum { MAX_RANKS = 4, MAX_CALLS = 6, MAX_SLICES = 9 };

typedef struct {
    bool used, sends, done;
    int rank, peer, tag, n, n_got, code;      /* rank: whose it is */
    char *data;
} request;

static request requests[MAX_REQUESTS];        /* guarded by the lock of comm.c; sent in the order of numbers */
static int n_requests;
static uint64_t chance;                       /* of the order of messages */
static int n_breaking;                        /* how many messages fail, together */

static int below(uint64_t *t, int n)
{
    *t = *t * 6364136223846793005u + 1442695040888963407u;
    return (int)((*t >> 33) % (uint64_t)n);
}

static int begin(bool sends, void *data, int n, uintptr_t type, int peer, int tag, uintptr_t communicator, int *made)
{
    CHECK(type == BYTE && n_requests < MAX_REQUESTS);
    requests[n_requests] = (request){true, sends, false, (int)communicator - 100, peer, tag, n, 0, 0, data};
    *made = n_requests++;
    return 0;
}

int MPI_Isend(const void *data, int n, uintptr_t type, int to, int tag, uintptr_t communicator, int *made);
int MPI_Irecv(void *data, int n, uintptr_t type, int from, int tag, uintptr_t communicator, int *made);
int MPI_Testany(int n, int *tested, int *index, int *flag, int *status);
int MPI_Get_count(const int *status, uintptr_t type, int *n);
int MPI_Error_string(int code, char *text, int *n);
int MPI_Error_class(int code, int *class);

int MPI_Isend(const void *data, int n, uintptr_t type, int to, int tag, uintptr_t communicator, int *made)
{
    return begin(true, (void *)(uintptr_t)data, n, type, to, tag, communicator, made);
}

int MPI_Irecv(void *data, int n, uintptr_t type, int from, int tag, uintptr_t communicator, int *made)
{
    return begin(false, data, n, type, from, tag, communicator, made);
}

/* Some messages arrive, of those with equal tags the first. */
static void move_some(void)
{
    for (int i = 0; i < n_requests; i++) {
        request *r = &requests[i];
        if (!r->used || r->sends || r->done || below(&chance, 3) == 0)
            continue;
        for (int k = 0; k < n_requests; k++) {
            request *s = &requests[k];
            if (!s->used || !s->sends || s->done || s->rank != r->peer || s->peer != r->rank || s->tag != r->tag)
                continue;
            r->code = s->n > r->n ? TRUNCATED : 0;
            r->n_got = s->n > r->n ? r->n : s->n;
            memcpy(r->data, s->data, (size_t)r->n_got);
            r->done = s->done = true;
            break;
        }
    }
    for (int i = 0; n_breaking > 0 && i < n_requests; i++)
        if (requests[i].used && !requests[i].done) {
            requests[i].done = true;
            requests[i].code = BROKEN;
            n_breaking--;
        }
}

/* A failure frees all requests that failed, as Open MPI's does. */
int MPI_Testany(int n, int *tested, int *index, int *flag, int *status)
{
    int code = 0, first = -1;
    for (int again = 0; first < 0 && again < 2; again++) {
        if (again)
            move_some();
        for (int i = 0; first < 0 && i < n; i++)
            if (requests[tested[i]].done)
                first = i;
    }
    *flag = first >= 0;
    *index = first;
    if (first < 0)
        return 0;
    code = requests[tested[first]].code;
    *status = requests[tested[first]].n_got;
    for (int i = 0; i < n; i++) {
        request *r = &requests[tested[i]];
        if (i == first || (code && r->done && r->code)) {
            r->used = false;
            tested[i] = NULL_REQUEST;
        }
    }
    return code;
}

int MPI_Get_count(const int *status, uintptr_t type, int *n)
{
    CHECK(type == BYTE);
    *n = *status;
    return 0;
}

int MPI_Error_string(int code, char *text, int *n)
{
    *n = sprintf(text, code == TRUNCATED ? "truncated" : "broken");
    return 0;
}

int MPI_Error_class(int code, int *class)
{
    *class = code;
    return 0;
}

/* ---- random collectives ----------------------------------------------------------------------------------- */

static char value(int rank, int at, int salt) { return (char)(rank * 31 + at * 7 + salt); }

/* Slices of two rounds: every rank sends a part to each rank; then what it gave itself goes once to the right. Arrays:
 * parts sent, parts received, what the left one gave itself. */
static uintptr_t schedule_of(int rank, int n_ranks, int n_slices, int n_slots, int bytes)
{
    enum { MAX_STEPS = MAX_SLICES * (3 * MAX_RANKS + 3) };
    static pl_step steps[MAX_STEPS];
    static pl_place places[MAX_STEPS];
    static pl_round rounds[2 * MAX_SLICES];
    static pl_slice slices[MAX_SLICES];
    int n = 0, n_places = 0, left = (rank + n_ranks - 1) % n_ranks;
    for (int k = 0; k < n_slices; k++) {
        slices[k] = (pl_slice){2 * k, 2};
        int first = n;
        for (int p = 0; p < n_ranks; p++)
            if (p != rank) {
                steps[n++] = (pl_step){{(int64_t)(p * n_slices + k) * bytes, 0, 0}, bytes, PL_STEP_SEND, p, -1, 0, 0};
                steps[n++] = (pl_step){{(int64_t)p * bytes, PL_AT_SCRATCH, 0}, bytes, PL_STEP_RECEIVE, p, -1, 0, 0};
            }
        int n_messages = n - first;
        for (int p = 0; p < n_ranks; p++) {
            int64_t at = (int64_t)(p * n_slices + k) * bytes;
            places[n_places] = p == rank ? (pl_place){at, 0, 0} : (pl_place){(int64_t)p * bytes, PL_AT_SCRATCH, 0};
            steps[n++] = (pl_step){{at, 1, 0}, bytes, PL_STEP_COPY, -1, -1, n_places++, 1};
        }
        rounds[2 * k] = (pl_round){first, n_messages, n - first};
        first = n;
        steps[n++] = (pl_step){{(int64_t)(rank * n_slices + k) * bytes, 1, 0}, bytes, PL_STEP_SEND,
                               (rank + 1) % n_ranks, -1, 0, 0};
        steps[n++] = (pl_step){{(int64_t)k * bytes, 2, 0}, bytes, PL_STEP_RECEIVE, left, -1, 0, 0};
        rounds[2 * k + 1] = (pl_round){first, 2, 2};
    }
    pl_schedule_spec spec = {steps, places, rounds, slices, NULL, n, n_places, 2 * n_slices, n_slices, 0, 3, n_slots,
                             (int64_t)n_ranks * bytes};
    uintptr_t made = pl_schedule_new(&spec);
    CHECK(made);
    return made;
}

typedef struct { uintptr_t arrays[3]; int n_slices, bytes, salt; } call;

static void push(call *c, uintptr_t group, int rank, int n_ranks, int id, double timeout_s, uint64_t *t)
{
    int64_t n = (int64_t)n_ranks * c->n_slices * c->bytes;
    uintptr_t schedule = schedule_of(rank, n_ranks, c->n_slices, 1 + below(t, 4), c->bytes);
    for (int i = 0; i < 3; i++)
        CHECK((c->arrays[i] = pl_array_new((size_t)(i < 2 ? n : (int64_t)c->n_slices * c->bytes))));
    for (int i = 0; i < n; i++)
        ((char *)pl_array_data(c->arrays[0]))[i] = value(rank, i, c->salt);
    static const uint8_t uses[] = {PL_READ, PL_WRITE, PL_WRITE};
    CHECK(pl_schedule_push(schedule, group, c->arrays, uses, id, id % 2 ? "same" : NULL, below(t, 5) - 2, timeout_s,
                           "messages", 7) == PL_OK);
    pl_schedule_free(schedule);
}

static void check(const call *c, int rank, int n_ranks)
{
    int part = c->n_slices * c->bytes, left = (rank + n_ranks - 1) % n_ranks;
    CHECK(wait_read(c->arrays[1]) == PL_OK && wait_read(c->arrays[2]) == PL_OK);
    const char *got = pl_array_data(c->arrays[1]), *ring = pl_array_data(c->arrays[2]);
    for (int i = 0; i < n_ranks * part; i++)
        CHECK(got[i] == value(i / part, rank * part + i % part, c->salt));
    for (int i = 0; i < part; i++)
        CHECK(ring[i] == value(left, left * part + i, c->salt));
}

/* Ranks push their calls in orders of their own. fails: some messages fail, and what waits for them times out. */
static void collectives(uint64_t *t, int n_calls, int first_id, bool fails)
{
    static const int32_t world[] = {0, 1, 2, 3};
    int n_ranks = 2 + below(t, MAX_RANKS - 1), n_broken = 0;
    call calls[MAX_RANKS][MAX_CALLS];
    for (int k = 0; k < n_calls; k++) {
        call c = {.n_slices = 1 + below(t, MAX_SLICES), .bytes = 1 + below(t, 40), .salt = below(t, 100)};
        for (int rank = 0; rank < n_ranks; rank++)
            calls[rank][k] = c;
    }
    pl_comm_set_credit(1 + below(t, 200));
    n_requests = 0;
    n_breaking = fails ? 3 : 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        uintptr_t group = pl_group_new((uintptr_t)(100 + rank), rank, n_ranks, world);
        int at = below(t, n_calls);
        for (int k = 0; k < n_calls; k++, at = (at + 1) % n_calls)
            push(&calls[rank][at], group, rank, n_ranks, first_id + at, fails ? 0.05 : 60, t);
        pl_group_free(group);
    }
    for (int rank = 0; rank < n_ranks; rank++)
        for (int k = 0; k < n_calls; k++) {
            if (!fails)
                check(&calls[rank][k], rank, n_ranks);
            else if (wait_read(calls[rank][k].arrays[1]) != PL_OK)
                n_broken += strstr(pl_error_message(), "MPI: messages: broken") != NULL;
            for (int i = 0; i < 3; i++)
                pl_array_free(calls[rank][k].arrays[i]);
        }
    CHECK(n_broken >= fails);
    report_all();
}

void random_messages(uint64_t seed)
{
    chance = seed * 2654435761u;
    collectives(&seed, 1 + below(&seed, MAX_CALLS), 0, false);
}

/* Last: what failed leaves messages that are never complete. */
void failed_messages(void)
{
    uint64_t t = 5;
    collectives(&t, MAX_CALLS, 1000, true);
    n_breaking = 0;
}

void open_messages(void)
{
    CHECK(pl_mpi_open(NULL, BYTE, NULL_REQUEST, sizeof(int), (1 << 28) - 1, TRUNCATED) == PL_OK);
}
