/* Kernels of control flow: loops and branches whose bodies are programs, run on this thread. A body reads slices of
 * arrays without copying; states alternate between two buffers. On a GPU the bodies are enqueued one after the other,
 * and the host waits only where it must read a flag. */
#include "control.h"
#include "memory.h"
#include "object.h"
#include "program.h"
#include "stream.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

static bool is_true(const void *data, size_t bytes, bool floating)
{
    const uint8_t *b = data;
    uint8_t any = 0;
    for (size_t i = 0; i < bytes; i++)                 /* little endian: the sign bit of -0.0 is in the last byte */
        any |= floating && i + 1 == bytes ? b[i] & 0x7f : b[i];
    return any != 0;
}

static size_t rounded(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static uint64_t mixed(uint64_t x)                      /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The seed of one call of a random body. Below 2^52, because scalars are doubles. */
static uint64_t own_seed(const double *scalars)
{
    return mixed(mixed((uint64_t)scalars[0]) ^ (uint64_t)scalars[1]) >> 12;
}

/* Memory of one run of a kernel: `host` for pointers, `device` for arrays. On the CPU they are one block. */
typedef struct { char *host, *device; size_t bytes; pl_block *block; } memory;

static void memory_free(memory *m)
{
    pl_enter();
    pl_storage_free(m->host, m->bytes);
    if (m->block)
        pl_block_give(m->block);
    pl_leave();
}

static int memory_new(memory *m, size_t host_bytes, size_t device_bytes)
{
    bool on_gpu = pl_gpu_stream() != NULL;
    host_bytes = rounded(host_bytes);
    m->bytes = on_gpu ? host_bytes : host_bytes + device_bytes;
    pl_enter();
    m->host = pl_storage_alloc(m->bytes);
    m->block = m->host && on_gpu ? pl_block_new(PL_MEMORY_GPU + pl_gpu_device(), device_bytes) : NULL;
    if (m->host && on_gpu && !m->block) {
        pl_storage_free(m->host, m->bytes);
        m->host = NULL;
    }
    pl_leave();
    if (!m->host)
        return PL_ENOMEM;
    m->device = on_gpu ? m->block->data : m->host + host_bytes;
    int status = m->block ? pl_block_take(m->block) : PL_OK;
    if (status != PL_OK)
        memory_free(m);
    return status;
}

/* ---- single values and whole arrays, on the host or on a GPU ---------------------------------------------- */

static int value_get(void *to, const void *from, size_t bytes)
{
    if (pl_gpu_stream())
        return pl_gpu_read(to, from, bytes);
    memcpy(to, from, bytes);
    return PL_OK;
}

static int value_put(void *to, const void *from, size_t bytes)
{
    if (pl_gpu_stream())
        return pl_gpu_write(to, from, bytes);
    memcpy(to, from, bytes);
    return PL_OK;
}

static int array_copy(void *to, const void *from, size_t bytes)
{
    if (pl_gpu_stream())
        return pl_gpu_copy(to, from, bytes);
    memcpy(to, from, bytes);
    return PL_OK;
}

static int array_zero(void *to, size_t bytes)
{
    if (pl_gpu_stream())
        return pl_gpu_zero(to, bytes);
    memset(to, 0, bytes);
    return PL_OK;
}

/* The memory of input k of a body in iteration t. */
static char *input_of(const pl_part *part, int k, void *const *bufs, char *const *states, int64_t t)
{
    int i = part->at[k];
    switch (part->kinds[k]) {
    case PL_PART_SLICE: return (char *)bufs[i] + t * part->slice_bytes[k];
    case PL_PART_STATE: return states[i];
    case PL_PART_CONSTANT: return part->constants[i];
    default: return bufs[i];
    }
}

/* One run of a part; outs: memory of its outputs. */
static int part_run(const pl_part *part, void *const *bufs, char *const *states, int64_t t, char *const *outs,
                    char **data, void *scratch, void *arena, uint64_t seed, uint64_t *counter)
{
    for (int k = 0; k < part->n_in; k++)
        data[k] = input_of(part, k, bufs, states, t);
    for (int k = 0; k < part->n_out; k++)
        data[part->n_in + k] = outs[k];
    return pl_program_call(part->program, data, scratch, arena, seed, counter);
}

static size_t part_scratch_bytes(const pl_part *part)
{
    return part->program ? rounded(pl_program_scratch_bytes(part->program)) : 0;
}

static size_t part_arena_bytes(const pl_part *part)
{
    return part->program ? rounded(pl_program_arena_bytes(part->program)) : 0;
}

/* Runs a part whose output is a flag, and reads the flag. flag: memory of that output. */
static int test_run(const pl_part *test, void *const *bufs, char *const *states, int64_t t, char *flag, int flag_bytes,
                    bool floating, char **data, void *scratch, void *arena, uint64_t seed, uint64_t *counter,
                    bool *answer)
{
    uint64_t seen = 0;
    int status = part_run(test, bufs, states, t, &flag, data, scratch, arena, seed, counter);
    if (status == PL_OK)
        status = value_get(&seen, flag, (size_t)flag_bytes);
    *answer = status == PL_OK && is_true(&seen, (size_t)flag_bytes, floating);
    return status;
}

int pl_kernel_loop(const void *params, void *const *bufs, const double *scalars)
{
    const pl_loop *p = params;
    const pl_part *body = &p->body, *test = &p->test;
    void *const *results = bufs + p->n_in;
    enum { FLAG_BYTES = 64 };
    size_t states_bytes = 0, scratch_bytes = part_scratch_bytes(body), arena_bytes = part_arena_bytes(body);
    for (int s = 0; s < p->n_states; s++)
        states_bytes += rounded((size_t)p->state_bytes[s]);
    size_t n_data = (size_t)(body->n_in + body->n_out + test->n_in + 1);
    size_t n_pointers = n_data + 3 * (size_t)p->n_states + (size_t)body->n_out;
    memory m;
    int status = memory_new(&m, scratch_bytes + part_scratch_bytes(test) + n_pointers * sizeof(char *),
                            FLAG_BYTES + arena_bytes + part_arena_bytes(test) + states_bytes);
    if (status != PL_OK)
        return status;
    char *scratch = m.host, *test_scratch = scratch + scratch_bytes;
    char **data = (char **)(test_scratch + part_scratch_bytes(test));
    char **now = data + n_data, **even = now + p->n_states, **odd = even + p->n_states, **outs = odd + p->n_states;
    char *flag = m.device, *arena = flag + FLAG_BYTES, *test_arena = arena + arena_bytes;
    char *spare = test_arena + part_arena_bytes(test);
    int64_t n = p->length, done = 0;
    uint64_t seed = p->random ? own_seed(scalars) : 0, counter = 0;
    if (p->count_at >= 0)
        status = value_get(&n, bufs[p->count_at], sizeof n);
    for (int s = 0; s < p->n_states; s++) {
        now[s] = bufs[p->states_at[s]];
        even[s] = results[p->final_at[s]];        /* where the last iteration writes if the count is known */
        odd[s] = spare;
        spare += rounded((size_t)p->state_bytes[s]);
    }
    for (; done < n && status == PL_OK; done++) {
        int64_t t = p->reverse ? n - 1 - done : done;
        bool go_on = true;
        if (test->program)
            status = test_run(test, bufs, now, t, flag, p->flag_bytes, p->flag_floating, data, test_scratch, test_arena,
                              seed, &counter, &go_on);
        if (!go_on)
            break;
        char **next = (test->program ? done : n - 1 - done) % 2 ? odd : even;
        for (int k = 0; k < p->n_stacked; k++)
            outs[p->stacked_at[k]] = (char *)results[p->result_at[k]] + t * p->out_bytes[k];
        for (int s = 0; s < p->n_states; s++)
            outs[p->next_at[s]] = next[s];
        status = part_run(body, bufs, now, t, outs, data, scratch, arena, seed, &counter);
        for (int s = 0; s < p->n_states; s++)
            now[s] = next[s];
    }
    for (int s = 0; s < p->n_states && status == PL_OK; s++)
        if (now[s] != even[s])
            status = array_copy(even[s], now[s], (size_t)p->state_bytes[s]);
    int64_t rows = p->count_at >= 0 ? n : done;
    for (int k = 0; k < p->n_stacked && status == PL_OK; k++)
        status = array_zero((char *)results[p->result_at[k]] + rows * p->out_bytes[k],
                            (size_t)((p->length - rows) * p->out_bytes[k]));
    if (p->count_out >= 0 && status == PL_OK)
        status = value_put(results[p->count_out], &done, sizeof done);
    memory_free(&m);
    return status;
}

int pl_kernel_branch(const void *params, void *const *bufs, const double *scalars)
{
    const pl_branch *p = params;
    void *const *results = bufs + p->n_in;
    enum { FLAG_BYTES = 64 };
    size_t scratch_bytes = part_scratch_bytes(&p->test), arena_bytes = part_arena_bytes(&p->test);
    size_t data_max = (size_t)(p->test.n_in + p->test.n_out);
    for (int i = 0; i < 2; i++) {
        size_t scratch = part_scratch_bytes(&p->ways[i]), arena = part_arena_bytes(&p->ways[i]);
        size_t n = (size_t)(p->ways[i].n_in + p->ways[i].n_out);
        scratch_bytes = scratch > scratch_bytes ? scratch : scratch_bytes;
        arena_bytes = arena > arena_bytes ? arena : arena_bytes;
        data_max = n > data_max ? n : data_max;
    }
    memory m;
    int status = memory_new(&m, scratch_bytes + 2 * data_max * sizeof(char *), FLAG_BYTES + arena_bytes);
    if (status != PL_OK)
        return status;
    char *scratch = m.host, **data = (char **)(scratch + scratch_bytes), **outs = data + data_max;
    char *flag = m.device, *arena = flag + FLAG_BYTES;
    uint64_t seed = p->random ? own_seed(scalars) : 0, counter = 0;
    bool yes = false;
    status = test_run(&p->test, bufs, NULL, 0, flag, p->flag_bytes, p->flag_floating, data, scratch, arena, seed,
                      &counter, &yes);
    if (status == PL_OK) {
        int way = yes ? 0 : 1;
        const pl_part *part = &p->ways[way];
        for (int k = 0; k < part->n_out; k++)
            outs[k] = results[k < p->n_shared ? k : k + p->first_own[way] - p->n_shared];
        status = part_run(part, bufs, NULL, 0, outs, data, scratch, arena, seed, &counter);
        int64_t taken = yes;
        if (p->flag_at >= 0 && status == PL_OK)
            status = value_put(results[p->flag_at], &taken, sizeof taken);
    }
    memory_free(&m);
    return status;
}
