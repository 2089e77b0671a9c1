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

enum { TASK_ROWS = 96, MAX_K = 2048, PACKED_B = 1 << 19, MAX_GROUPS = 64, TASKS_LEFT = 4 };

typedef struct { const float *bias, *residual; float *c, *pre, *sums; } ends;

static inline void packed_tile(const plk_product *p, int64_t depth, const float *a, const float *b, float beta, const float *bias,
                               float *out, int64_t out_step)
{
    if (p->a_depth == 1)
        tile_rows(depth, a, CHUNK, (ROWS - 1) * CHUNK, b, p->alpha, beta, bias, out, out_step);
    else
        tile_steps(depth, a, ROWS, 0, b, p->alpha, beta, bias, out, out_step);
}

/* One tile of C; the last block of depth also does what follows the product. */
static inline void finish(const plk_product *p, const ends *e, int64_t depth, const float *a, const float *b, int64_t i,
                          int64_t j, int first, int last)
{
    int64_t rows = p->m - i < ROWS ? p->m - i : ROWS, columns = p->n - j < COLUMNS ? p->n - j : COLUMNS;
    float beta = first ? p->beta : 1, *c = e->c + i * p->c_row + j;
    const float *bias = last && e->bias ? e->bias + j : NULL;
    last = last && (e->pre || e->residual || p->act != PLK_ACT_NONE);
    if (rows == ROWS && columns == COLUMNS && !last) {
        packed_tile(p, depth, a, b, beta, bias ? bias : no_bias, c, p->c_row);
        return;
    }
    float v[ROWS * COLUMNS];
    packed_tile(p, depth, a, b, 0, no_bias, v, COLUMNS);
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

/* Lines of memory that are packed next: some are fetched into the L2 cache beside each tile. */
typedef struct { const float *at; int64_t step, n_lines, length, n_each; } ahead;

static inline void fetch(ahead *f)
{
    int64_t n = least(f->n_each, f->n_lines);
    f->n_lines -= n;
    for (; n > 0; n--, f->at += f->step)
        for (int64_t x = 0; x < f->length; x += 16)
            __builtin_prefetch(f->at + x, 0, 2);
}

/* Rows [i, i_end) of a stripe. */
typedef struct { int64_t stripe, i, i_end; } task;

/* A task of a stripe; fresh: its panels of B are yet to be packed. next: the task after this one, or NULL. */
static void block(const plk_product *p, const ends *e, const stripe *s, const float *a, const float *b, float *packed_b,
                  float *packed_a, const task *t, const task *next, int fresh)
{
    int64_t d = s->k, n_rows = t->i_end - t->i, n_tiles = up(n_rows, ROWS), n_panels = up(s->j_end - s->j, COLUMNS);
    float *sums = s->j == 0 && e->sums ? e->sums + t->i : NULL;
    if (sums && d == 0)
        memset(sums, 0, (size_t)n_rows * sizeof *sums);
    do {
        int64_t depth = least(s->depth, s->k_end - d), last = d + depth >= s->k_end;
        const float *from = a + t->i * p->a_row + d * p->a_depth;
        ahead f = {0};
        pack_a(packed_a, from, p->a_row, p->a_depth, n_rows, depth);
        if (sums)
            add_sums(sums, p, from, n_rows, depth);
        if (!fresh && (!last || next)) {
            const float *at = last ? a + next->i * p->a_row + s->k * p->a_depth : from + depth * p->a_depth;
            int64_t then_rows = last ? next->i_end - next->i : n_rows, then = least(s->depth, s->k_end - (last ? s->k : d + depth));
            f = p->a_depth == 1 ? (ahead){at, p->a_row, then_rows, then, up(then_rows, n_tiles * n_panels)}
                                : (ahead){at, p->a_depth, then, then_rows, up(then, n_tiles * n_panels)};
        }
        for (int64_t j = s->j; j < s->j_end; j += COLUMNS, packed_b += COLUMNS * depth) {
            if (fresh) {
                const float *at = b + d * p->b_depth + j * p->b_column;
                pack_b(packed_b, at, p->b_depth, p->b_column, least(p->n - j, COLUMNS), depth);
                at += COLUMNS * p->b_column;
                f = j + 2 * COLUMNS > p->n ? (ahead){0}
                    : p->b_depth == 1 ? (ahead){at, p->b_column, COLUMNS, depth, up(COLUMNS, n_tiles)}
                                      : (ahead){at, p->b_depth, depth, COLUMNS, up(depth, n_tiles)};
            }
            for (int64_t i = t->i; i < t->i_end; i += ROWS) {
                fetch(&f);
                finish(p, e, depth, packed_a + (i - t->i) * DEPTH, packed_b, i, j, d == 0, d + depth >= p->k);
            }
        }
        d += depth;
    } while (d < s->k_end);
}

/* What the threads of one product share. A group of threads takes its tasks from its own counter, then helps others. */
typedef struct {
    const plk_product *p;
    void *const *bufs;
    int64_t k, k_end, depth, width, n_tiles, n_stripes, groups, next[MAX_GROUPS];
} work;

static void plan_work(work *w, const plk_product *p, void *const *bufs, int64_t k)
{
    int64_t k_end = least(p->k, k + MAX_K), span = k_end > k ? k_end - k : 1, groups = 1;
    /* threads with one stripe pack all of B each, threads with stripes of their own all of A: the lesser work */
    while (groups < MAX_GROUPS && groups < p->n_threads && groups * groups * p->m < p->n_threads * p->n)
        groups *= 2;
    int64_t width = least(piece(p->n, groups, COLUMNS), PACKED_B / span / COLUMNS * COLUMNS);
    *w = (work){p, bufs, k, k_end, piece(span, up(span, DEPTH), CHUNK), width, up(p->m, ROWS), up(p->n, width), groups, {0}};
}

/* The next task of a thread; 0, there is none. Tasks get smaller towards the end, so that threads end together. */
static int claim(work *w, int64_t thread, int64_t *other, task *t)
{
    for (; *other < w->groups; ++*other) {
        int64_t g = (thread + *other) % w->groups, first = g * w->n_stripes / w->groups;
        int64_t n = ((g + 1) * w->n_stripes / w->groups - first) * w->n_tiles, at = w->next[g], some;
        at = __atomic_load_n(&w->next[g], __ATOMIC_RELAXED);
        do {
            some = (n - at) / (TASKS_LEFT * w->p->n_threads);
            some = w->p->n_threads == 1 || some > TASK_ROWS / ROWS ? TASK_ROWS / ROWS : some < 4 ? 4 : some;
            some = least(some, w->n_tiles - at % w->n_tiles);
        } while (at < n && !__atomic_compare_exchange_n(&w->next[g], &at, at + some, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        if (at < n) {
            int64_t i = at % w->n_tiles * ROWS;
            *t = (task){first + at / w->n_tiles, i, least(w->p->m, i + some * ROWS)};
            return 1;
        }
    }
    return 0;
}

static int take_tasks(work *w, int64_t thread)
{
    const plk_product *p = w->p;
    const float *a = w->bufs[0], *b = w->bufs[1];
    const ends e = {w->bufs[2], w->bufs[3], w->bufs[4], w->bufs[5], w->bufs[6]};
    int64_t panels = piece(w->width, 1, COLUMNS) * (w->k_end - w->k), packed = -1, other = 0;
    float *packed_a = plk_gemm_room(sizeof(float) * (size_t)(DEPTH * (TASK_ROWS + ROWS) + panels));
    if (!packed_a)
        return pl_fail(PL_ENOMEM, "out of memory for a matrix product");
    float *packed_b = packed_a + DEPTH * (TASK_ROWS + ROWS);
    task t, next;
    for (int more = claim(w, thread, &other, &t); more; t = next) {
        int64_t j = t.stripe * w->width;
        stripe s = {j, least(p->n, j + w->width), w->k, w->k_end, w->depth};
        more = claim(w, thread, &other, &next);
        block(p, &e, &s, a, b, packed_b, packed_a, &t, more ? &next : NULL, t.stripe != packed);
        packed = t.stripe;
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
        int n_threads = (int)least(p->n_threads, up(w.n_tiles, 4) * w.n_stripes);
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
