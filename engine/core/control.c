/* Kernels of control flow: loops and branches whose bodies are programs, run at once on this thread and on plain
 * memory. A body reads slices of arrays where they lie; states alternate between two places. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static bool is_true(const void *data, size_t bytes, bool floating)
{
    const uint8_t *b = data;
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++)                 /* little endian: the sign of -0.0 is the last bit */
        any |= floating && i + 1 == bytes ? b[i] & 0x7f : b[i];
    return any != 0;
}

static uint64_t mixed(uint64_t x)                      /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The seed of one call of a random body; numbers travel as doubles. */
static uint64_t own_seed(const double *scalars)
{
    return mixed(mixed((uint64_t)scalars[0]) ^ (uint64_t)scalars[1]) >> 12;
}

static void *memory_new(size_t bytes)
{
    pl_enter();
    void *data = pl_storage_alloc(bytes);
    pl_leave();
    return data;
}

static void memory_free(void *data, size_t bytes)
{
    pl_enter();
    pl_storage_free(data, bytes);
    pl_leave();
}

/* What of an input a body reads in iteration t. */
static char *given(const pl_part *part, int k, void *const *bufs, char *const *states, int64_t t)
{
    int i = part->at[k];
    switch (part->kinds[k]) {
    case PL_PART_SLICE: return (char *)bufs[i] + t * part->slice_bytes[k];
    case PL_PART_STATE: return states[i];
    case PL_PART_CONSTANT: return part->constants[i];
    default: return bufs[i];
    }
}

/* One run of a part; outs: where its outputs go. */
static int part_run(const pl_part *part, void *const *bufs, char *const *states, int64_t t, char *const *outs,
                    char **data, void *room, uint64_t seed, uint64_t *counter)
{
    for (int k = 0; k < part->n_in; k++)
        data[k] = given(part, k, bufs, states, t);
    for (int k = 0; k < part->n_out; k++)
        data[part->n_in + k] = outs[k];
    return pl_program_call(part->program, data, room, seed, counter);
}

static size_t part_room(const pl_part *part)
{
    return part->program ? (pl_program_room(part->program) + 63) & ~(size_t)63 : 0;
}

int pl_kernel_loop(const void *params, void *const *bufs, const double *scalars)
{
    const pl_loop *p = params;
    const pl_part *body = &p->body, *test = &p->test;
    void *const *results = bufs + p->n_in;
    enum { FLAG_BYTES = 64 };
    size_t states_bytes = 0, room_bytes = part_room(body), test_bytes = part_room(test);
    for (int s = 0; s < p->n_states; s++)
        states_bytes += ((size_t)p->state_bytes[s] + 63) & ~(size_t)63;
    size_t n_data = (size_t)(body->n_in + body->n_out + test->n_in + 1);
    size_t n_pointers = n_data + 3 * (size_t)p->n_states + (size_t)body->n_out;
    size_t bytes = FLAG_BYTES + room_bytes + test_bytes + states_bytes + n_pointers * sizeof(char *);
    char *memory = memory_new(bytes);
    if (!memory)
        return PL_ENOMEM;
    char *flag = memory, *room = flag + FLAG_BYTES, *test_room = room + room_bytes, *spare = test_room + test_bytes;
    char **data = (char **)(spare + states_bytes), **now = data + n_data, **even = now + p->n_states,
         **odd = even + p->n_states, **outs = odd + p->n_states;
    int64_t n = p->count_at >= 0 ? *(const int64_t *)bufs[p->count_at] : p->length, done = 0;
    uint64_t seed = p->random ? own_seed(scalars) : 0, counter = 0;
    int status = PL_OK;
    for (int s = 0; s < p->n_states; s++) {
        now[s] = bufs[p->states_at[s]];
        even[s] = results[p->final_at[s]];                          /* with a known count the last iteration writes there */
        odd[s] = spare;
        spare += ((size_t)p->state_bytes[s] + 63) & ~(size_t)63;
    }
    for (; done < n && status == PL_OK; done++) {
        int64_t t = p->reverse ? n - 1 - done : done;
        if (test->program) {
            status = part_run(test, bufs, now, t, &flag, data, test_room, seed, &counter);
            if (status != PL_OK || !is_true(flag, (size_t)p->flag_bytes, p->flag_floating))
                break;
        }
        char **next = (test->program ? done : n - 1 - done) % 2 ? odd : even;
        for (int k = 0; k < p->n_stacked; k++)
            outs[p->stacked_at[k]] = (char *)results[p->result_at[k]] + t * p->out_bytes[k];
        for (int s = 0; s < p->n_states; s++)
            outs[p->next_at[s]] = next[s];
        status = part_run(body, bufs, now, t, outs, data, room, seed, &counter);
        for (int s = 0; s < p->n_states; s++)
            now[s] = next[s];
    }
    for (int s = 0; s < p->n_states && status == PL_OK; s++)
        if (now[s] != even[s])
            memcpy(even[s], now[s], (size_t)p->state_bytes[s]);
    int64_t rows = p->count_at >= 0 ? n : done;
    for (int k = 0; k < p->n_stacked && status == PL_OK; k++)
        memset((char *)results[p->result_at[k]] + rows * p->out_bytes[k], 0,
               (size_t)((p->length - rows) * p->out_bytes[k]));
    if (p->count_out >= 0 && status == PL_OK)
        *(int64_t *)results[p->count_out] = done;
    memory_free(memory, bytes);
    return status;
}

int pl_kernel_branch(const void *params, void *const *bufs, const double *scalars)
{
    const pl_branch *p = params;
    void *const *results = bufs + p->n_in;
    size_t room_bytes = part_room(&p->test), data_max = (size_t)(p->test.n_in + p->test.n_out);
    for (int i = 0; i < 2; i++) {
        size_t room = part_room(&p->ways[i]), n = (size_t)(p->ways[i].n_in + p->ways[i].n_out);
        room_bytes = room > room_bytes ? room : room_bytes;
        data_max = n > data_max ? n : data_max;
    }
    size_t bytes = 64 + room_bytes + 2 * data_max * sizeof(char *);
    char *flag = memory_new(bytes);
    if (!flag)
        return PL_ENOMEM;
    char *room = flag + 64, **data = (char **)(room + room_bytes), **outs = data + data_max;
    uint64_t seed = p->random ? own_seed(scalars) : 0, counter = 0;
    int status = part_run(&p->test, bufs, NULL, 0, &flag, data, room, seed, &counter);
    if (status == PL_OK) {
        int way = is_true(flag, (size_t)p->flag_bytes, p->flag_floating) ? 0 : 1;
        const pl_part *part = &p->ways[way];
        for (int k = 0; k < part->n_out; k++)
            outs[k] = results[k < p->n_shared ? k : k + p->first_own[way] - p->n_shared];
        status = part_run(part, bufs, NULL, 0, outs, data, room, seed, &counter);
        if (p->flag_at >= 0)
            *(int64_t *)results[p->flag_at] = 1 - way;
    }
    memory_free(flag, bytes);
    return status;
}
