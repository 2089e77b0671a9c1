/* A float32 matrix product of our own: packed panels and a register tile of ROWS x COLUMNS, after Goto and van de Geijn
 * 2008, with what follows the product (bias, activation, addition) done on each tile while it is in the L1 cache.
 *
 * C is cut into stripes of columns. A thread packs a stripe of B for itself, then takes blocks of rows of that stripe
 * from a common counter: threads never wait for each other, a thread that the machine slows down takes fewer blocks, and
 * packed data stays in the caches of the core that packed it (reading it from another core's costs four times as much).
 */
#include "simd.h"
#include "act.h"
#include "tile.h"

enum { TASK_ROWS = 96, MAX_K = 2048, PACKED_B = 1 << 19, MAX_GROUPS = 64, TASKS_PER_THREAD = 32 };

typedef struct { const float *bias, *residual; float *c, *pre, *sums; } ends;

/* One tile of C; the last block of depth also does what follows the product. */
static inline void finish(const plk_product *p, const ends *e, int64_t depth, const float *a, const float *b, int64_t i,
                          int64_t j, int first, int last)
{
    int64_t rows = p->m - i < ROWS ? p->m - i : ROWS, columns = p->n - j < COLUMNS ? p->n - j : COLUMNS;
    float beta = first ? p->beta : 1, *c = e->c + i * p->c_row + j;
    const float *bias = last && e->bias ? e->bias + j : NULL;
    last = last && (e->pre || e->residual || p->act != PLK_ACT_NONE);
    if (rows == ROWS && columns == COLUMNS && !last) {
        tile(depth, a, b, p->alpha, beta, bias ? bias : no_bias, c, p->c_row);
        return;
    }
    float v[ROWS * COLUMNS];
    tile(depth, a, b, p->alpha, 0, no_bias, v, COLUMNS);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t q = 0; q < columns; q++)
            v[r * COLUMNS + q] += (beta != 0 ? beta * c[r * p->c_row + q] : 0) + (bias ? bias[q] : 0);
    if (last) {
        for (int64_t r = 0; r < rows && e->pre; r++)
            memcpy(e->pre + (i + r) * p->c_row + j, v + r * COLUMNS, (size_t)columns * sizeof *v);
        plk_activate(p->act, v, ROWS * COLUMNS);
        for (int64_t r = 0; r < rows && e->residual; r++)
            for (int64_t q = 0; q < columns; q++)
                v[r * COLUMNS + q] += e->residual[(i + r) * p->c_row + j + q];
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(c + r * p->c_row, v + r * COLUMNS, (size_t)columns * sizeof *v);
}

/* n cut into equal pieces of whole units: the size of one */
static int64_t piece(int64_t n, int64_t n_pieces, int64_t unit) { return up(up(n, unit), n_pieces) * unit; }

/* The part of the product that is worked on: columns [j, j_end), steps [k, k_end) in blocks of `depth`. */
typedef struct { int64_t j, j_end, k, k_end, depth; } stripe;

/* All panels of B of a stripe: for each block of depth the panels side by side. */
static void pack_stripe(float *to, const plk_product *p, const float *b, const stripe *s)
{
    for (int64_t d = s->k; d < s->k_end; d += s->depth) {
        int64_t depth = least(s->depth, s->k_end - d);
        for (int64_t j = s->j; j < s->j_end; j += COLUMNS, to += COLUMNS * depth)
            pack_b(to, b + d * p->b_depth + j * p->b_column, p->b_depth, p->b_column, least(p->n - j, COLUMNS), depth);
    }
}

/* sums[i] += the sum of row i of A over a block of depth */
static void add_sums(float *sums, const plk_product *p, const float *a, int64_t rows, int64_t depth)
{
    float total[TASK_ROWS + ROWS] = {0};
    if (p->a_depth == 1)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t d = 0; d < depth; d++)
                total[i] += a[i * p->a_row + d];
    else
        for (int64_t d = 0; d < depth; d++)
            for (int64_t i = 0; i < rows; i++)
                total[i] += a[i * p->a_row + d * p->a_depth];
    for (int64_t i = 0; i < rows; i++)
        sums[i] += total[i];
}

/* Rows [i0, i_end) of a stripe whose panels of B are packed. */
static void block(const plk_product *p, const ends *e, const stripe *s, const float *a, const float *packed_b,
                  float *packed_a, int64_t i0, int64_t i_end)
{
    int64_t d = s->k;
    float *sums = s->j == 0 && e->sums ? e->sums + i0 : NULL;
    if (sums && d == 0)
        memset(sums, 0, (size_t)(i_end - i0) * sizeof *sums);
    do {
        int64_t depth = least(s->depth, s->k_end - d);
        const float *from = a + i0 * p->a_row + d * p->a_depth;
        pack_a(packed_a, from, p->a_row, p->a_depth, i_end - i0, depth);
        if (sums)
            add_sums(sums, p, from, i_end - i0, depth);
        for (int64_t j = s->j; j < s->j_end; j += COLUMNS, packed_b += COLUMNS * depth)
            for (int64_t i = i0; i < i_end; i += ROWS)
                finish(p, e, depth, packed_a + (i - i0) * DEPTH, packed_b, i, j, d == 0, d + depth >= p->k);
        d += depth;
    } while (d < s->k_end);
}

/* What the threads of one product share. A group of threads takes its tasks from its own counter, then helps others. */
typedef struct {
    const plk_product *p;
    void *const *bufs;
    int64_t k, k_end, depth, width, rows, n_blocks, n_stripes, groups, next[MAX_GROUPS];
} work;

static void plan_work(work *w, const plk_product *p, void *const *bufs, int64_t k)
{
    int64_t k_end = least(p->k, k + MAX_K), span = k_end > k ? k_end - k : 1, groups = 1, rows = TASK_ROWS;
    /* threads with one stripe pack all of B each, threads with stripes of their own all of A: the lesser work */
    while (groups < MAX_GROUPS && groups < p->n_threads && groups * groups * p->m < p->n_threads * p->n)
        groups *= 2;
    int64_t width = least(piece(p->n, groups, COLUMNS), PACKED_B / span / COLUMNS * COLUMNS), n_stripes = up(p->n, width);
    while (p->n_threads > 1 && rows > 4 * ROWS && up(p->m, rows) * n_stripes < TASKS_PER_THREAD * p->n_threads)
        rows /= 2;
    rows = piece(p->m, up(p->m, rows), ROWS);
    *w = (work){p, bufs, k, k_end, piece(span, up(span, DEPTH), CHUNK), width, rows, up(p->m, rows), n_stripes, groups, {0}};
}

static int take_tasks(work *w, int64_t thread)
{
    const plk_product *p = w->p;
    const float *a = w->bufs[0], *b = w->bufs[1];
    const ends e = {w->bufs[2], w->bufs[3], w->bufs[4], w->bufs[5], w->bufs[6]};
    int64_t panels = piece(w->width, 1, COLUMNS) * (w->k_end - w->k), packed = -1, t;
    float *packed_a = plk_gemm_room(sizeof(float) * (size_t)(DEPTH * (TASK_ROWS + ROWS) + panels));
    if (!packed_a)
        return pl_fail(PL_ENOMEM, "out of memory for a matrix product");
    float *packed_b = packed_a + DEPTH * (TASK_ROWS + ROWS);
    for (int64_t other = 0; other < w->groups; other++) {
        int64_t g = (thread + other) % w->groups, first = g * w->n_stripes / w->groups;
        int64_t n_tasks = ((g + 1) * w->n_stripes / w->groups - first) * w->n_blocks;
        while ((t = __atomic_fetch_add(&w->next[g], 1, __ATOMIC_RELAXED)) < n_tasks) {
            int64_t number = first + t / w->n_blocks, i = t % w->n_blocks * w->rows, j = number * w->width;
            stripe s = {j, least(p->n, j + w->width), w->k, w->k_end, w->depth};
            if (number != packed)
                pack_stripe(packed_b, p, b, &s);
            packed = number;
            block(p, &e, &s, a, packed_b, packed_a, i, least(p->m, i + w->rows));
        }
    }
    return PL_OK;
}

/* params: plk_product.  bufs: a, b, bias, residual, c, pre, sums; all but a, b, c may be NULL */
PLK_KERNEL(plk_product_run)
{
    const plk_product *p = params;
    int status = PL_OK;
    int64_t k = 0;
    (void)scalars;
    do {
        work w;
        plan_work(&w, p, bufs, k);
        int n_threads = (int)least(p->n_threads, w.n_blocks * w.n_stripes);
#pragma omp parallel for num_threads(n_threads) schedule(static, 1) if (n_threads > 1)
        for (int t = 0; t < n_threads; t++) {
            int s = take_tasks(&w, t);
            if (s)
                status = s;
        }
        k = w.k_end;
    } while (k < p->k && status == PL_OK);
    return status;
}
