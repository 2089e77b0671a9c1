/* Products of rows with a pruned weight. Two forms:
 *     groups of 16 rows of w: an entry is 16 values of one column, times one number of each row of x; no transposition
 *     single rows: an entry is one value, times a line of x^T, which holds up to STRIP rows of x beside each other
 * Sums go over the entries in order, whatever the number of threads. */
#include "sparse_dense.h"
#include "engine/core/scratch.h"
#include "gemm.h"
#include "parts.h"
#include "simd.h"

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { HEIGHT = 16, VECTORS = HEIGHT / LANES, AT_ONCE = 128 / LANES / VECTORS, STRIP_VECTORS = 4, TASKS = 8 };
enum { STRIP = STRIP_VECTORS * LANES };
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

typedef struct {
    const plk_sparse_dense *p;
    const float *x, *values, *bias;
    const int32_t *columns, *starts;
    float *y, *turned;      /* x^T of the strip */
    int64_t per, first, wide, lines;    /* groups of a task; the strip: its first row, its rows, with padding */
} work;

/* n_rows of x, from row i, with one group */
PLK_INLINE void tall(const work *w, const int n_rows, int64_t i, int64_t group)
{
    const plk_sparse_dense *p = w->p;
    const float *x = w->x + i * p->k;
    vector acc[8][VECTORS] = {{{0}}};
    for (int64_t e = w->starts[group]; e < w->starts[group + 1]; e++) {
        const vector *value = (const vector *)(w->values + e * HEIGHT);
        const float *at = x + w->columns[e];
        _Pragma("GCC unroll 8") for (int r = 0; r < n_rows; r++)
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)
                acc[r][v] += value[v] * at[r * p->k];
    }
    int64_t j = group * HEIGHT, n = p->n - j < HEIGHT ? p->n - j : HEIGHT;
    for (int r = 0; r < n_rows; r++) {
        float sums[HEIGHT];
        memcpy(sums, acc[r], sizeof sums);
        for (int64_t q = 0; q < n; q++)
            w->y[(i + r) * p->n + j + q] = sums[q] + (w->bias ? w->bias[j + q] : 0);
    }
}

static void groups_of_rows(void *arg, int64_t task)
{
    const work *w = arg;
    int64_t groups = (w->p->n + HEIGHT - 1) / HEIGHT, end = (task + 1) * w->per < groups ? (task + 1) * w->per : groups;
    for (int64_t g = task * w->per; g < end; g++) {
        int64_t i = 0;
        for (; AT_ONCE >= 8 && i + 8 <= w->p->m; i += 8)
            tall(w, 8, i, g);
        for (; i + 4 <= w->p->m; i += 4)
            tall(w, 4, i, g);
        for (; i < w->p->m; i++)
            tall(w, 1, i, g);
    }
}

/* Row j of w with n_vectors of the strip. Entries are dealt to `chains` sums, so that additions need not wait. */
PLK_INLINE void line(const work *w, const int n_vectors, const int chains, int64_t j, float *sums)
{
    vector acc[4][STRIP_VECTORS] = {{{0}}};
    int64_t e = w->starts[j], end = w->starts[j + 1];
    for (; e + chains <= end; e += chains)
        _Pragma("GCC unroll 4") for (int c = 0; c < chains; c++) {
            const vector *at = (const vector *)(w->turned + w->columns[e + c] * w->lines);
            _Pragma("GCC unroll 4") for (int v = 0; v < n_vectors; v++)
                acc[c][v] += at[v] * w->values[e + c];
        }
    for (; e < end; e++) {
        const vector *at = (const vector *)(w->turned + w->columns[e] * w->lines);
        _Pragma("GCC unroll 4") for (int v = 0; v < n_vectors; v++)
            acc[0][v] += at[v] * w->values[e];
    }
    _Pragma("GCC unroll 4") for (int v = 0; v < n_vectors; v++) {
        vector sum = acc[0][v];
        for (int c = 1; c < chains; c++)
            sum += acc[c][v];
        memcpy(sums + v * LANES, &sum, sizeof sum);
    }
}

static void single_rows(void *arg, int64_t task)
{
    const work *w = arg;
    const plk_sparse_dense *p = w->p;
    int64_t end = (task + 1) * w->per < p->n ? (task + 1) * w->per : p->n;
    float sums[STRIP];
    for (int64_t j = task * w->per; j < end; j++) {
        switch (w->lines / LANES) {
        case 1: line(w, 1, 4, j, sums); break;
        case 2: line(w, 2, 2, j, sums); break;
        case 3: line(w, 3, 2, j, sums); break;
        default: line(w, 4, 2, j, sums);
        }
        float b = w->bias ? w->bias[j] : 0;
        for (int64_t i = 0; i < w->wide; i++)
            w->y[(w->first + i) * p->n + j] = sums[i] + b;
    }
}

/* bufs: x, values, columns, starts, bias if any, y */
PLK_KERNEL(plk_sparse_dense_run)
{
    const plk_sparse_dense *p = params;
    work w = {.p = p, .x = bufs[0], .values = bufs[1], .columns = bufs[2], .starts = bufs[3],
              .bias = p->bias ? bufs[4] : NULL, .y = bufs[4 + p->bias]};
    int64_t groups = (p->n + p->height - 1) / p->height;
    int n_threads = plk_gemm_threads(p->m, p->height, p->entries);
    (void)scalars;
    w.per = groups / (TASKS * n_threads) + 1;
    int64_t tasks = (groups + w.per - 1) / w.per;
    for (int64_t e = 0; e < p->entries; e++)
        if (w.columns[e] < 0 || w.columns[e] >= p->k)
            return pl_fail(PL_EINVAL, "a column of a sparse weight lies outside it");
    int ordered = w.starts[0] >= 0 && w.starts[groups] <= p->entries;
    for (int64_t g = 0; g < groups; g++)
        ordered &= w.starts[g] <= w.starts[g + 1];
    if (!ordered)
        return pl_fail(PL_EINVAL, "the rows of a sparse weight are not in order");
    if (p->height == HEIGHT) {
        pl_thread_pool_run(n_threads, tasks, groups_of_rows, &w);
        return PL_OK;
    }
    w.turned = pl_scratch(sizeof(float) * (size_t)(STRIP * (p->k ? p->k : 1)));
    if (!w.turned)
        return pl_fail(PL_ENOMEM, "out of memory for a product with a sparse weight");
    for (w.first = 0; w.first < p->m; w.first += w.wide) {
        w.wide = p->m - w.first < STRIP ? p->m - w.first : STRIP;
        w.lines = (w.wide + LANES - 1) / LANES * LANES;
        for (int64_t d = 0; d < p->k; d++)
            for (int64_t i = 0; i < w.lines; i++)
                w.turned[d * w.lines + i] = i < w.wide ? w.x[(w.first + i) * p->k + d] : 0;
        pl_thread_pool_run(n_threads, tasks, single_rows, &w);
    }
    return PL_OK;
}
