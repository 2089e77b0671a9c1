/* take and Embedding: rows, or elements, at indices. */
#include "dtype.h"
#include "bytes.h"
#include "index.h"
#include "parts.h"
#include "simd.h"

#include <stdatomic.h>
#include <stdio.h>

enum { SOME = 256 };

/* The places of the indices [first, first + n). Returns whether one is outside, where that fails. */
static int bounded_some(const plk_take *p, const void *indices, int64_t first, int64_t n, int64_t *at)
{
    int64_t most = p->n - 1;
    if (p->index_dtype == PLK_I32)
        for (int64_t i = 0; i < n; i++)
            at[i] = ((const int32_t *)indices)[first + i];
    else if (p->index_dtype == PLK_I64)
        memcpy(at, (const int64_t *)indices + first, (size_t)n * sizeof *at);
    else
        for (int64_t i = 0; i < n; i++)
            at[i] = plk_index_at(indices, p->index_dtype, first + i);
    int outside = 0;
    if (p->mode == PLK_TAKE_WRAP)
        for (int64_t i = 0; i < n; i++)
            if (at[i] < 0 || at[i] > most)
                at[i] = (at[i] % p->n + p->n) % p->n;
    if (p->mode == PLK_TAKE_CLIP)
        for (int64_t i = 0; i < n; i++)
            at[i] = at[i] < 0 ? 0 : at[i] > most ? most : at[i];
    if (p->mode == PLK_TAKE_INDEX || p->mode == PLK_TAKE_RAISE)
        for (int64_t i = 0, before = p->mode == PLK_TAKE_INDEX ? p->n : 0; i < n; i++) {
            int64_t k = at[i] < 0 ? at[i] + before : at[i];
            int out = (uint64_t)k >= (uint64_t)p->n;
            at[i] = out ? 0 : k;
            outside |= out;
        }
    return outside;
}

typedef struct { plk_call call; _Atomic int outside; } take_call;

/* Says which index is outside. */
static int take_fail(const plk_take *p, const void *indices)
{
    char message[160];
    int64_t low = p->mode == PLK_TAKE_INDEX ? -p->n : 0;
    for (int64_t i = 0; i < p->n_indices; i++) {
        int64_t k = plk_index_at(indices, p->index_dtype, i);
        if (k < low || k >= p->n) {
            snprintf(message, sizeof message, "take: indices must be in [%lld, %lld), got %lld\n  fix: "
                     "mode='clip' or mode='wrap'", (long long)low, (long long)p->n, (long long)k);
            return pl_fail(PL_EINDEX, message);
        }
    }
    return PL_OK;
}

/* A row may be several elements of an array that begins at any of them. */
typedef uint16_t word2 __attribute__((aligned(1), may_alias));
typedef uint32_t word4 __attribute__((aligned(1), may_alias));
typedef uint64_t word8 __attribute__((aligned(1), may_alias));

#define GATHER(T) \
    for (int64_t i = 0; i < n; i++) \
        ((T *)(void *)y)[i] = ((const T *)(const void *)x)[at[i]]; \
    break;

static void take_part(void *arg, int64_t begin, int64_t end)
{
    take_call *shared = arg;
    const plk_take *p = shared->call.params;
    void *const *bufs = shared->call.bufs;
    int64_t row_bytes = p->inner * p->size, at[SOME];
    for (int64_t r = begin, n; r < end; r += n) {
        int64_t o = r / p->n_indices, first = r % p->n_indices;
        n = p->n_indices - first < end - r ? p->n_indices - first : end - r;
        n = n < SOME ? n : SOME;
        if (bounded_some(p, bufs[1], first, n, at))
            shared->outside = 1;
        const char *x = (const char *)bufs[0] + o * p->n * row_bytes;
        char *y = (char *)bufs[2] + r * row_bytes;
        switch (row_bytes) {                       /* a copy of known size is one instruction */
        case 1: GATHER(uint8_t)
        case 2: GATHER(word2)
        case 4: GATHER(word4)
        case 8: GATHER(word8)
        default:
            for (int64_t i = 0; i < n; i++)
                plk_copy_bytes(y + i * row_bytes, x + at[i] * row_bytes, (size_t)row_bytes);
        }
    }
}

/* bufs: a, indices, y */
static int take(const plk_take *p, void *const *bufs, const double *scalars)
{
    int64_t row_bytes = p->inner * p->size, rows = p->outer * p->n_indices;
    take_call shared = {{p, bufs, scalars}, 0};
    plk_run_parts(rows * row_bytes / 8, rows, 1, take_part, &shared);
    return shared.outside ? take_fail(p, bufs[1]) : PL_OK;
}

PLK_KERNEL(plk_take_run) { return take(params, bufs, scalars); }

/* bufs: indices, weight, y */
PLK_KERNEL(plk_embedding_run)
{
    void *swapped[3] = {bufs[1], bufs[0], bufs[2]};
    return take(params, swapped, scalars);
}
