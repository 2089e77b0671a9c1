/* The float32 matrix product: packed panels and a register tile of ROWS x COLUMNS, after Goto and van de Geijn 2008.
 * The epilogue (bias, activation, addition) is applied to each tile while it is in the L1 cache.
 *
 * C is divided into stripes of columns. A thread packs its own copy of a stripe of B, then takes blocks of rows of that
 * stripe from a common counter: threads never wait for each other, a thread with less processor time takes fewer
 * blocks, and packed data stays in the caches of the core that packed it (reading it from another core's cache costs
 * four times as much).
 */
#include "act.h"
#include "cache.h"
#include "parts.h"
#include "simd.h"
#include "tile.h"

enum { TASK_ROWS = 96, TASK_TILES = TASK_ROWS / ROWS, MAX_K = 2048, MAX_GROUPS = 64, TASKS_LEFT = 4, LEAST_TILES = 4,
       IN_PLACE = 12, MOST_SHORT = 4, PAGE = 1024, PAGES = 128, SHORT = 64 };
enum { LEAST_PACKED = 4 * MAX_K * COLUMNS, MOST_PACKED = 2 << 20 };    /* bytes of a stripe of B */

typedef struct { const float *bias, *residual; float *c, *pre, *sums; } ends;

/* The operands of a tile: rows of A, packed (apart = 0) or in place, and columns of B. keep: where the tile packs
 * these, or NULL. soon: as many lines like those of B, to be fetched into the L2 cache, or NULL */
typedef struct { const float *a, *b; int64_t apart, b_step; float *keep; const float *soon; } operands;

static inline void multiply(const plk_matmul *p, const operands *x, int64_t rows, int64_t depth, float beta,
                            const float *bias, float *out, int64_t out_step)
{
    if (x->keep && rows <= FEW_ROWS)
        (p->a_depth == 1 ? few_rows_keep : few_steps_keep)(depth, x->a, x->keep, x->b, x->b_step, p->alpha, beta, bias,
                                                           out, out_step);
    else if (x->keep)
        (p->a_depth == 1 ? tile_rows_keep : tile_steps_keep)(depth, x->a, x->keep, x->b, x->b_step, p->alpha, beta,
                                                             bias, out, out_step);
    else if (x->soon)
        (rows <= FEW_ROWS ? few_rows_soon : tile_rows_soon)(depth, x->a, x->soon, x->b, x->b_step, p->alpha, beta, bias,
                                                            out, out_step);
    else if (rows <= FEW_ROWS)
        (p->a_depth == 1 ? few_rows : few_steps)(depth, x->a, x->b, x->b_step, p->alpha, beta, bias, out, out_step);
    else if (!x->apart)
        (p->a_depth == 1 ? tile_rows : tile_steps)(depth, x->a, x->b, x->b_step, p->alpha, beta, bias, out, out_step);
    else
        (p->a_depth == 1 ? tile_rows_apart : tile_steps_apart)(depth, x->a, x->apart, x->b, x->b_step, p->alpha, beta,
                                                               bias, out, out_step);
}

/* One tile of C; the last block of depth also applies the epilogue. */
static inline void finish(const plk_matmul *p, const ends *e, const operands *x, int64_t depth, int64_t i, int64_t rows,
                          int64_t j, int first, int last)
{
    int64_t columns = p->n - j < COLUMNS ? p->n - j : COLUMNS;
    float beta = first ? p->beta : 1, *c = e->c + i * p->c_row + j;
    const float *bias = last && e->bias ? e->bias + j : NULL;
    last = last && (e->pre || e->residual || p->act != PLK_ACT_NONE);
    if ((rows == ROWS || rows == FEW_ROWS) && columns == COLUMNS && !last) {
        multiply(p, x, rows, depth, beta, bias ? bias : no_bias, c, p->c_row);
        return;
    }
    float v[ROWS * COLUMNS] = {0};
    for (int64_t r = 0; r < rows && last && e->residual; r++)
        __builtin_prefetch(e->residual + (i + r) * p->c_row + j);
    multiply(p, x, rows, depth, 0, no_bias, v, COLUMNS);
    if (!bias)                                    /* not a choice for each element: masked loads at NULL are slow */
        bias = no_bias;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t q = 0; q < columns; q++)
            v[r * COLUMNS + q] += beta != 0 ? beta * c[r * p->c_row + q] + bias[q] : bias[q];
    if (last) {
        for (int64_t r = 0; r < rows && e->pre; r++)
            memcpy(e->pre + (i + r) * p->c_row + j, v + r * COLUMNS, (size_t)columns * sizeof *v);
        plk_activate(p->act, v, ROWS * COLUMNS);
        if (p->slope) {
            float at[ROWS * COLUMNS] = {0};
            for (int64_t r = 0; r < rows; r++)
                memcpy(at + r * COLUMNS, e->residual + (i + r) * p->c_row + j, (size_t)columns * sizeof *at);
            plk_slope(p->slope, at, v, ROWS * COLUMNS);
        }
        for (int64_t r = 0; r < rows && e->residual && !p->slope; r++)
            for (int64_t q = 0; q < columns; q++)
                v[r * COLUMNS + q] += e->residual[(i + r) * p->c_row + j + q];
    }
    for (int64_t r = 0; r < rows; r++)
        memcpy(c + r * p->c_row, v + r * COLUMNS, (size_t)columns * sizeof *v);
}

/* n divided into equal pieces of whole units: the size of one */
static int64_t piece(int64_t n, int64_t n_pieces, int64_t unit) { return up(up(n, unit), n_pieces) * unit; }

/* The current part of the product: columns [j, j_end), steps [k, k_end) in blocks of `depth`. */
typedef struct { int64_t j, j_end, k, k_end, depth; } stripe;

/* sums[i] += the sum of row i of A over a block of depth */
static void add_sums(float *sums, const plk_matmul *p, const float *a, int64_t rows, int64_t depth)
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

/* With few tiles per panel, packing costs more than it saves, unless its lines are in one cache set or in more pages
 * than processors have at hand. */
static int in_place(int64_t n_tiles, int64_t step, int64_t depth)
{
    return n_tiles <= 1 || (n_tiles <= IN_PLACE && step % PAGE != 0 && least(step, PAGE) * depth <= PAGES * PAGE);
}

/* How rows are cut into tiles: n_whole tiles of ROWS rows, then short ones of FEW_ROWS. */
typedef struct { int64_t n_rows, n_whole, n_tiles; } cut;

/* The cut that multiplies the fewest rows. */
static cut cut_rows(int64_t n_rows)
{
    int64_t whole = up(n_rows, ROWS), fewest = whole * ROWS;
    cut best = {n_rows, whole, whole};
    for (int64_t n_short = 1; n_short <= MOST_SHORT; n_short++) {
        whole = n_rows > n_short * FEW_ROWS ? up(n_rows - n_short * FEW_ROWS, ROWS) : 0;
        if (whole * ROWS + n_short * FEW_ROWS < fewest) {
            fewest = whole * ROWS + n_short * FEW_ROWS;
            best = (cut){n_rows, whole, whole + n_short};
        }
    }
    return best;
}

/* Where a tile begins. */
static int64_t tile_row(const cut *c, int64_t tile)
{
    return tile < c->n_whole ? tile * ROWS : least(c->n_rows, c->n_whole * ROWS + (tile - c->n_whole) * FEW_ROWS);
}

/* Cache lines that are packed next: each tile prefetches some of them into the L2 cache. */
typedef struct { const float *at; int64_t step, n_lines, length, n_each; } ahead;

/* n elements at a distance of `step`, for each of `others`; the contiguous axis may be either. */
static ahead ahead_of(const float *at, int64_t n, int64_t step, int64_t others, int64_t other_step, int64_t n_tiles)
{
    return step == 1 ? (ahead){at, other_step, others, n, up(others, n_tiles)}
                     : (ahead){at, step, n, others, up(n, n_tiles)};
}

static inline void fetch(ahead *f)
{
    int64_t n = least(f->n_each, f->n_lines);
    f->n_lines -= n;
    for (; n > 0; n--, f->at += f->step)
        for (int64_t x = 0; x < f->length; x += LINE)
            __builtin_prefetch(f->at + x, 0, 2);
}

/* Rows [i, i_end) of a stripe. */
typedef struct { int64_t stripe, i, i_end; } task;

/* The block of A that is packed next: of the next block of depth, or the first one of the next task. */
static ahead next_a(const plk_matmul *p, const stripe *s, const float *a, const task *t, const task *next, int64_t d,
                    int64_t n_tiles)
{
    if (d >= s->k_end) {
        if (!next)
            return (ahead){0};
        t = next;
        d = s->k;
    }
    return ahead_of(a + t->i * p->a_row + d * p->a_depth, least(s->depth, s->k_end - d), p->a_depth, t->i_end - t->i,
                    p->a_row, n_tiles);
}

/* A task of a stripe; fresh: its panels of B are not packed yet. next: the task after this one, or NULL. */
static void block(const plk_matmul *p, const ends *e, const stripe *s, const float *a, const float *b, float *packed_b,
                  float *packed_a, const task *t, const task *next, int fresh)
{
    int64_t n_rows = t->i_end - t->i, n_panels = up(s->j_end - s->j, COLUMNS), depth;
    const cut rows = cut_rows(n_rows);
    const int64_t n_tiles = rows.n_tiles;
    int a_here = (p->a_depth == 1 || p->a_row == 1) && in_place(up(p->n, COLUMNS), p->a_depth, s->depth);
    int64_t n_here = a_here ? least(rows.n_whole, n_rows / ROWS) : 0;    /* tiles that are read in place */
    int b_here = p->b_column == 1 && in_place(up(p->m, ROWS), p->b_depth, s->depth);
    int again = t->i > 0 || t->i_end < p->m;      /* other tasks read these panels of B */
    float *sums = s->j == 0 && e->sums ? e->sums + t->i : NULL;
    if (sums && s->k == 0)
        memset(sums, 0, (size_t)n_rows * sizeof *sums);
    int64_t d = s->k;
    do {                                          /* once also if the depth is 0: for the epilogue */
        depth = least(s->depth, s->k_end - d);
        const float *from = a + t->i * p->a_row + d * p->a_depth;
        for (int64_t n = n_here; n < n_tiles; n++) {
            int64_t i = tile_row(&rows, n), height = tile_row(&rows, n + 1) - i;
            pack_a(packed_a + n * ROWS * DEPTH, from + i * p->a_row, p->a_row, p->a_depth, height, depth);
        }
        if (sums)
            add_sums(sums, p, from, n_rows, depth);
        ahead f = fresh ? (ahead){0} : next_a(p, s, a, t, next, d + depth, n_tiles * n_panels);
        /* many multiplications of a panel of B one after the other, or, if these are few, rows of C: stores in order */
        int64_t inner = depth > SHORT ? n_tiles : n_panels, outer = n_tiles * n_panels / inner;
        for (int64_t o = 0; o < outer; o++)
            for (int64_t n = 0; n < inner; n++) {
                int64_t tile = depth > SHORT ? n : o, i = tile_row(&rows, tile), height = tile_row(&rows, tile + 1) - i;
                int64_t q = depth > SHORT ? o : n, j = s->j + q * COLUMNS, columns = least(p->n - j, COLUMNS);
                const float *panel = plk_column(p, b, j) + d * p->b_depth, *soon = NULL;
                int64_t b_step = p->panel || (b_here && columns == COLUMNS) ? p->b_depth : COLUMNS;
                float *keep = NULL;
                if (p->panel && fresh && tile == 0 && j + COLUMNS < s->j_end)
                    soon = plk_column(p, b, j + COLUMNS) + d * p->b_depth;
                if (!p->panel && (!b_here || columns < COLUMNS)) {
                    float *to = packed_b + (again || depth <= SHORT ? q * COLUMNS * depth : 0);
                    if (fresh && tile == 0) {
                        if (p->b_column == 1 && columns == COLUMNS && n_tiles >= 2 && n_here == 0) {
                            keep = to;            /* the first of many tiles packs */
                        } else {
                            pack_b(to, panel, p->b_depth, p->b_column, columns, depth);
                            f = ahead_of(panel + COLUMNS * p->b_column, depth, p->b_depth,
                                         least(p->n - j - columns, COLUMNS), p->b_column, n_tiles);
                        }
                    }
                    if (keep)
                        b_step = p->b_depth;
                    else
                        panel = to;
                }
                operands x = {packed_a + tile * ROWS * DEPTH, panel, 0, b_step, keep, soon};
                if (tile < n_here)
                    x = (operands){from + i * p->a_row, panel, p->a_depth == 1 ? p->a_row : p->a_depth, b_step, NULL,
                                   NULL};
                fetch(&f);
                finish(p, e, &x, depth, t->i + i, height, j, d == 0, d + depth >= p->k);
            }
        packed_b += n_panels * COLUMNS * depth;
        d += depth;
    } while (d < s->k_end);
}

/* Shared by the threads of one product. A group of threads takes its tasks from its own counter, then helps others. */
typedef struct {
    const plk_matmul *p;
    void *const *bufs;
    int status;
    int64_t k, k_end, depth, width, n_tiles, n_stripes, groups, next[MAX_GROUPS];
} work;

static void plan_work(work *w, const plk_matmul *p, void *const *bufs, int64_t k)
{
    int64_t k_end = least(p->k, k + MAX_K), span = k_end > k ? k_end - k : 1, groups = 1;
    /* with one stripe each thread packs all of B, with a stripe each it packs all of A: choose the lesser work */
    while (groups < MAX_GROUPS && groups < p->n_threads && groups * groups * p->m < p->n_threads * p->n)
        groups *= 2;
    /* a stripe may leave the second-level cache, but not this core's part of the third */
    int64_t fit = plk_clamp(plk_cache_share() / 2, LEAST_PACKED, MOST_PACKED) / (int64_t)sizeof(float);
    int64_t width = least(piece(p->n, groups, COLUMNS), fit / span / COLUMNS * COLUMNS);
    *w = (work){p, bufs, PL_OK, k, k_end, piece(span, up(span, DEPTH), CHUNK), width, up(p->m, ROWS), up(p->n, width),
                groups, {0}};
}

/* The next task of a thread; 0: there is none. Tasks get smaller towards the end, so that threads end together. */
static int claim(work *w, int64_t thread, int64_t *other, task *t)
{
    for (; *other < w->groups; ++*other) {
        int64_t g = (thread + *other) % w->groups, first = g * w->n_stripes / w->groups;
        int64_t n = ((g + 1) * w->n_stripes / w->groups - first) * w->n_tiles, some;
        int64_t at = __atomic_load_n(&w->next[g], __ATOMIC_RELAXED);
        do {
            some = (n - at) / (TASKS_LEFT * w->p->n_threads);
            some = w->p->n_threads == 1 ? TASK_TILES : least(TASK_TILES, some < LEAST_TILES ? LEAST_TILES : some);
            some = least(some, w->n_tiles - at % w->n_tiles);
        } while (at < n &&
                 !__atomic_compare_exchange_n(&w->next[g], &at, at + some, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        if (at < n) {
            int64_t i = at % w->n_tiles * ROWS;
            *t = (task){first + at / w->n_tiles, i, least(w->p->m, i + some * ROWS)};
            return 1;
        }
    }
    return 0;
}

/* The work of one thread. */
static void take_tasks(void *arg, int64_t thread)
{
    work *w = arg;
    const plk_matmul *p = w->p;
    const float *a = w->bufs[0], *b = w->bufs[1];
    const ends e = {w->bufs[2], w->bufs[3], w->bufs[4], w->bufs[5], w->bufs[6]};
    int64_t panels = piece(w->width, 1, COLUMNS) * (w->k_end - w->k), packed = -1, other = 0;
    float *packed_a = plk_gemm_scratch(sizeof(float) * (size_t)(DEPTH * (TASK_ROWS + ROWS) + panels));
    if (!packed_a) {
        __atomic_store_n(&w->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    float *packed_b = packed_a + DEPTH * (TASK_ROWS + ROWS);
    task t, next;
    for (int more = claim(w, thread, &other, &t); more; t = next) {
        int64_t j = t.stripe * w->width;
        stripe s = {j, least(p->n, j + w->width), w->k, w->k_end, w->depth};
        more = claim(w, thread, &other, &next);
        block(p, &e, &s, a, b, packed_b, packed_a, &t, more ? &next : NULL, t.stripe != packed);
        packed = t.stripe;
    }
}

/* params: plk_matmul.  bufs: a, b, bias, residual, c, pre, sums; all but a, b, c may be NULL */
PLK_KERNEL(plk_matmul_run)
{
    const plk_matmul *p = params;
    int64_t k = 0;
    if (p->panel % COLUMNS)
        return plk_matmul_thin(params, bufs, scalars);
    do {
        work w;
        plan_work(&w, p, bufs, k);
        int n_threads = (int)least(p->n_threads, up(w.n_tiles, LEAST_TILES) * w.n_stripes);
        pl_thread_pool_run(n_threads, n_threads, take_tasks, &w);
        if (w.status)
            return pl_fail(w.status, "out of memory for a matrix product");
        k = w.k_end;
    } while (k < p->k);
    return PL_OK;
}
