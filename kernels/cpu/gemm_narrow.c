/* Matrix products of bfloat16, float16, int8 and uint8, summed in float32 and int32; narrow_tile.h.
 *
 * A task is a piece of rows and a stripe of columns. Its thread packs the stripe of B once, then blocks of rows of A,
 * in blocks of depth; sums that are not complete wait in float32 or int32 next to the packed operands. A result is
 * rounded once, when its sum and what follows the product are complete. */
#include "act.h"
#include "cache.h"
#include "engine/core/scratch.h"
#include "narrow_tile.h"
#include "parts.h"
#include "simd.h"

/* OF_DEPTH: units of a block of depth, which is seldom divided, as panels stream from the L2 cache */
enum { OF_DEPTH = 1 << 11, BLOCK_ROWS = 98, TASKS_EACH = 4,
       LEAST_PANELS = 4, AT_ONCE = 256, THIN = 8, THIN_COLUMNS = 32 };

/* units of a stripe of B, and of rows of A packed at once */
static int64_t of_stripe(void) { return plk_cache_own() / 2 / (int64_t)sizeof(plk_unit); }
static int64_t of_rows(void) { return plk_cache_own() / 4 / (int64_t)sizeof(plk_unit); }

typedef struct {
    const plk_gemm *g;
    operand a, b;
    const char *bias, *residual;
    char *c, *pre;
    int64_t width, stripes, height, pieces;    /* of stripes of columns, and of pieces of rows */
    int64_t depth, block_rows;                 /* units of a block of depth, rows of A packed at once */
    int32_t whole, status;                     /* whole: sums are integers */
} product;

/* The memory of one task. once: all its rows are one block, so each panel of B is read while it is in the L1 cache */
typedef struct { plk_unit *a, *b, *sums, *acc; int32_t keeps_b, once; } room;

static int64_t bytes_of(const product *w) { return (int64_t)plk_dtype_bytes(w->g->dtype); }
static int64_t of_row(const product *w) { return row_units(w->a.as, w->depth); }
static int64_t units_of(const product *w) { return up(w->g->k, per_unit(w->a.as.way)); }

/* A complete tile of floats, of a dtype that is a constant, if nothing but a bias follows. */
PLK_INLINE void store_tile(const int dtype, const product *w, const float *v, const float *bias, char *to, int64_t rows)
{
    const vector left = *(const vector *)bias, right = *(const vector *)(bias + WIDTH);
    const int64_t item = (int64_t)plk_dtype_bytes(dtype);
    for (int64_t r = 0; r < rows; r++, v += COLUMNS, to += w->g->n * item) {
        store_vector(dtype, to, w->g->alpha * *(const vector *)v + left);
        store_vector(dtype, to + WIDTH * item, w->g->alpha * *(const vector *)(v + WIDTH) + right);
    }
}

/* Stores a complete tile of floats. */
static void finish_floats(const product *w, const float *v, int64_t i, int64_t j, int64_t rows, int64_t columns)
{
    const plk_gemm *g = w->g;
    int64_t at = i * g->n + j;
    const source floats = {PLK_BY_FLOAT, g->dtype, 0, 0};
    float x[MOST_ROWS * COLUMNS], more[MOST_ROWS * COLUMNS], bias[COLUMNS] = {0};
    int64_t item = bytes_of(w);
    if (w->bias)
        convert_run(floats, bias, w->bias + j * item, columns);
    if (columns == COLUMNS && !w->pre && !w->residual && g->act == PLK_ACT_NONE) {
        char *to = w->c + at * item;
        if (g->dtype == PLK_BF16)
            store_tile(PLK_BF16, w, v, bias, to, rows);
        else
            store_tile(PLK_F16, w, v, bias, to, rows);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        for (int q = 0; q < COLUMNS; q++)
            x[r * COLUMNS + q] = g->alpha * v[r * COLUMNS + q] + bias[q];
    for (int64_t r = 0; r < rows && w->pre; r++)
        store_run(g->dtype, w->pre + (at + r * g->n) * item, x + r * COLUMNS, columns);
    plk_activate(g->act, x, rows * COLUMNS);
    if (w->residual) {
        for (int64_t r = 0; r < rows; r++)
            convert_run(floats, more + r * COLUMNS, w->residual + (at + r * g->n) * item, columns);
        for (int64_t r = 0; r < rows; r++)
            if (g->slope)
                plk_slope(g->slope, more + r * COLUMNS, x + r * COLUMNS, columns);
            else
                for (int64_t q = 0; q < columns; q++)
                    x[r * COLUMNS + q] += more[r * COLUMNS + q];
    }
    for (int64_t r = 0; r < rows; r++)
        store_run(g->dtype, w->c + (at + r * g->n) * item, x + r * COLUMNS, columns);
}

static int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

static int32_t whole_at(const product *w, int64_t i)
{
    return w->g->dtype == PLK_I8 ? ((const int8_t *)w->bias)[i] : ((const uint8_t *)w->bias)[i];
}

/* The same of integers; sums: of the columns of B */
static void finish_integers(const product *w, const plk_unit *v, const plk_unit *sums, int64_t i, int64_t j,
                            int64_t rows, int64_t columns)
{
    const plk_gemm *g = w->g;
    int32_t add[COLUMNS] = {0}, x[COLUMNS], low = g->dtype == PLK_I8 ? -128 : 0, high = low + 255;
    for (int64_t q = 0; q < columns; q++)
        add[q] = (w->bias ? whole_at(w, j + q) : 0) - (w->a.as.shift ? w->a.as.shift * sums[q] : 0);
    for (int64_t r = 0; r < rows; r++) {
        char *to = w->c + (i + r) * g->n + j;
        for (int q = 0; q < COLUMNS; q++)
            x[q] = clamp(v[r * COLUMNS + q] + add[q], low, high);
        for (int64_t q = 0; q < columns; q++)
            to[q] = (char)x[q];
    }
}

/* Stores a complete tile at row i and column j. */
static void finish(const product *w, const plk_unit *v, const plk_unit *sums, int64_t i, int64_t j, int64_t rows,
                   int64_t columns)
{
    if (w->whole)
        finish_integers(w, v, sums, i, j, rows, columns);
    else
        finish_floats(w, (const float *)v, i, j, rows, columns);
}

/* sums of a panel's columns of bytes, added to `sums` */
static void sum_columns(const plk_unit *panel, int64_t n_units, plk_unit *sums)
{
#if defined(__AVX512F__)
    const plk_units ones = 0x01010101 - (plk_units){0};
    plk_units left = *(plk_units *)sums, right = *(plk_units *)(sums + WIDTH);
    for (int64_t u = 0; u < n_units; u++, panel += COLUMNS) {
        add_units(PLK_BY_BYTE, &left, ones, *(const plk_units *)panel);
        add_units(PLK_BY_BYTE, &right, ones, *(const plk_units *)(panel + WIDTH));
    }
    *(plk_units *)sums = left;
    *(plk_units *)(sums + WIDTH) = right;
#endif
}

/* Rows [i, i + n_rows) of columns [j, j_end) of one product. fresh: B is not packed yet. */
static void block(const product *w, const room *m, int64_t i, int64_t n_rows, int64_t j, int64_t j_end, int fresh)
{
    const plk_gemm *g = w->g;
    int by_steps = w->a.step_bytes != bytes_of(w);
    int64_t per = per_unit(w->a.as.way), n_units = units_of(w), panels = up(j_end - j, COLUMNS);
    int64_t height = rows_of(w->a.as);
    plk_unit v[MOST_ROWS * COLUMNS] __attribute__((aligned(64)));
    int64_t u = 0;
    do {    /* once also if the depth is 0 */
        int64_t n = least(w->depth, n_units - u), steps = least(n * per, g->k - u * per);
        for (int64_t r = 0; r < n_rows; r += height)
            pack_rows(m->a + r * of_row(w), operand_at(w->a, i + r, u * per), least(height, n_rows - r), steps);
        begin_products(w->a.as, n);
        for (int64_t p = 0; p < panels; p++) {
            int64_t columns = least(COLUMNS, j_end - j - p * COLUMNS);
            plk_unit *panel = m->b + (m->once ? 0 : (m->keeps_b ? u * panels * COLUMNS : 0) + p * COLUMNS * n);
            plk_unit *sums = m->sums + p * COLUMNS;
            if (fresh || !m->keeps_b)
                pack_columns(panel, operand_at(w->b, j + p * COLUMNS, u * per), columns, steps);
            if (fresh && u == 0)
                memset(sums, 0, COLUMNS * sizeof *sums);
            if (fresh && w->a.as.shift)
                sum_columns(panel, n, sums);
            for (int64_t r = 0; r < n_rows; r += height) {
                int64_t rows = least(height, n_rows - r);
                plk_unit *out = m->acc ? m->acc + (r * panels + p * height) * COLUMNS : v;    /* a tile is contiguous */
                multiply_panels(w->a.as, by_steps, rows, n, m->a + r * of_row(w), panel, out, COLUMNS, u > 0);
                if (u + n >= n_units)
                    finish(w, out, sums, i + r, j + p * COLUMNS, rows, columns);
            }
        }
        u += n;
    } while (u < n_units);
}

/* One product of the batch. */
static product one_of(const product *w, int64_t at)
{
    const plk_gemm *g = w->g;
    product one = *w;
    int64_t item = bytes_of(w), first = at * g->m * g->n * item;
    one.a.from += at * g->a_step * item;
    one.b.from += at * g->b_step * item;
    one.c += first;
    one.pre += one.pre ? first : 0;
    one.residual += one.residual ? first : 0;
    return one;
}

static void dots_in_place(int dtype, int64_t m, int64_t n, const plk_unit *a, int64_t a_step, const char *b,
                          int64_t b_bytes, plk_units *sums)
{
#define CASE(of, rows) \
    case rows * PLK_DTYPE_COUNT + of: float_dots(of, rows, n, a, a_step, b, b_bytes, sums); break;
    switch (m * PLK_DTYPE_COUNT + dtype) {
        CASE(PLK_BF16, 1) CASE(PLK_BF16, 2) CASE(PLK_BF16, 3) CASE(PLK_F16, 1) CASE(PLK_F16, 2) CASE(PLK_F16, 3)
    }
#undef CASE
}

/* Few rows times columns that are contiguous along the depth, which are read once and not packed. */
static void run_thin(void *arg, int64_t task)
{
    const product *w = arg;
    int64_t strips = up(w->g->n, THIN_COLUMNS), j = task % strips * THIN_COLUMNS;
    product one = one_of(w, task / strips);
    int64_t j_end = least(w->g->n, j + THIN_COLUMNS), m = w->g->m, k = w->g->k, item = bytes_of(w);
    int64_t per = per_unit(w->a.as.way), length = up(up(k, per), RUN) * RUN;
    plk_unit *a = plk_gemm_scratch(sizeof(plk_unit) * (size_t)(m * length)), b[DOTS * RUN], v[THIN * COLUMNS] = {0};
    if (!a) {
        __atomic_store_n(&((product *)arg)->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    memset(a, 0, sizeof(plk_unit) * (size_t)(m * length));
    for (int64_t r = 0; r < m; r++)
        convert_run(w->a.as, a + r * length, one.a.from + r * one.a.line_bytes, k);
    for (; j < j_end; j += DOTS) {
        plk_units acc[THIN * DOTS];
        int64_t columns = least(DOTS, j_end - j);
        memset(acc, 0, sizeof acc);
        memset(b, 0, sizeof b);
        int64_t direct = columns == DOTS && w->a.as.way == PLK_BY_FLOAT && m <= 3 ? k / RUN * RUN : 0;
        if (direct)
            dots_in_place(w->g->dtype, m, direct, a, length, one.b.from + j * one.b.line_bytes, one.b.line_bytes, acc);
        for (int64_t d = direct, some; d < k; d += some) {
            some = least(RUN * per, k - d);
            if (some < RUN * per)
                memset(b, 0, sizeof b);
            for (int64_t c = 0; c < columns; c++)
                convert_run(w->b.as, b + c * RUN, one.b.from + (j + c) * one.b.line_bytes + d * item, some);
            for (int64_t r = 0, n; r < m; r += n) {
                n = least(3, m - r);
#define DO(way, rows) \
    unit_dots(way, rows, RUN, a + r * length + d / per, length, b, RUN, acc + r * DOTS)
#define ROWS_OF(way) \
    if (n == 3) \
        DO(way, 3); \
    else if (n == 2) \
        DO(way, 2); \
    else \
        DO(way, 1)
                switch (w->a.as.way) {
                case PLK_BY_FLOAT: ROWS_OF(PLK_BY_FLOAT); break;
#if defined(__AVX512F__)
                case PLK_BY_BRAIN: ROWS_OF(PLK_BY_BRAIN); break;
#endif
                case PLK_BY_SHORT: ROWS_OF(PLK_BY_SHORT); break;
                default: ROWS_OF(PLK_BY_INT);
                }
#undef ROWS_OF
#undef DO
            }
        }
        for (int64_t r = 0; r < m; r++)
            for (int64_t c = 0; c < columns; c++) {
                plk_units x = acc[r * DOTS + c];
                vector f = (vector)x;
                for (int half = WIDTH / 2; half; half /= 2)
                    for (int l = 0; l < half; l++)
                        f[l] += f[l + half], x[l] += x[l + half];
                if (w->whole)
                    v[r * COLUMNS + c] = x[0];
                else
                    memcpy(v + r * COLUMNS + c, &f, sizeof *v);
            }
        for (int64_t r = 0; r < m; r += ROWS)
            finish(&one, v + r * COLUMNS, v, r, j, least(ROWS, m - r), columns);
    }
}

static void run_task(void *arg, int64_t task)
{
    const product *w = arg;
    const plk_gemm *g = w->g;
    int64_t stripe = task % w->stripes, piece = task / w->stripes % w->pieces, at = task / w->stripes / w->pieces;
    int64_t j = stripe * w->width, j_end = least(g->n, j + w->width), i = piece * w->height;
    int64_t i_end = least(g->m, i + w->height), panels = up(j_end - j, COLUMNS), n_units = units_of(w);
    product one = one_of(w, at);
    room m = {.keeps_b = panels * COLUMNS * n_units <= 4 * of_stripe(), .once = i_end - i <= w->block_rows};
    int64_t of_a = w->block_rows * of_row(w), of_b = panels * COLUMNS * (m.keeps_b ? n_units : w->depth);
    int64_t of_acc = n_units > w->depth ? w->block_rows * panels * COLUMNS : 0;
    plk_unit *memory = plk_gemm_scratch(sizeof(plk_unit) * (size_t)(of_a + of_b + panels * COLUMNS + of_acc));
    if (!memory) {
        __atomic_store_n(&((product *)arg)->status, PL_ENOMEM, __ATOMIC_RELAXED);
        return;
    }
    m.a = memory, m.b = m.a + of_a, m.sums = m.b + of_b, m.acc = of_acc ? m.sums + panels * COLUMNS : NULL;
    for (int64_t r = i; r < i_end; r += w->block_rows)
        block(&one, &m, r, least(w->block_rows, i_end - r), j, j_end, r == i);
    end_products(w->a.as);
}

/* sums[i] = the sum of row i of A, rounded once */
static void sum_rows(const plk_gemm *g, const operand *a, char *sums)
{
    const source floats = {PLK_BY_FLOAT, g->dtype, 0, 0};
    int64_t item = (int64_t)plk_dtype_bytes(g->dtype);
    float x[AT_ONCE], total[AT_ONCE];
    for (int64_t i = 0; i < g->m; i += AT_ONCE) {
        int64_t n = least(AT_ONCE, g->m - i);
        memset(total, 0, sizeof total);
        if (a->line_bytes == item)
            for (int64_t d = 0; d < g->k; d++) {
                convert_run(floats, x, a->from + i * item + d * a->step_bytes, n);
                for (int64_t r = 0; r < n; r++)
                    total[r] += x[r];
            }
        else
            for (int64_t r = 0; r < n; r++)
                for (int64_t d = 0, some; d < g->k; d += some) {
                    some = least(AT_ONCE, g->k - d);
                    convert_run(floats, x, a->from + (i + r) * a->line_bytes + d * item, some);
                    for (int64_t q = 0; q < some; q++)
                        total[r] += x[q];
                }
        store_run(g->dtype, sums + i * item, total, n);
    }
}

/* Tasks for all threads: stripes of B that stay in the cache, then pieces of the longer side. */
static void divide(product *w, int n_threads)
{
    const plk_gemm *g = w->g;
    int64_t most = units_of(w), wanted = n_threads > 1 ? n_threads * TASKS_EACH : 1;
    int64_t width = of_stripe() / (most < 1 ? 1 : most) / COLUMNS * COLUMNS, rows = rows_of(w->a.as);
    w->width = least(up(g->n, COLUMNS) * COLUMNS, width < 2 * COLUMNS ? 2 * COLUMNS : width);
    w->height = up(g->m, rows) * rows;
    w->depth = least(most, OF_DEPTH);
    int64_t tiles = of_rows() / (rows * of_row(w) + 1);
    w->block_rows = plk_clamp(tiles, 1, BLOCK_ROWS / rows) * rows;
    for (;;) {
        w->stripes = up(g->n, w->width);
        w->pieces = up(g->m, w->height);
        if (g->n_batch * w->stripes * w->pieces >= wanted)
            return;
        if (w->height > LEAST_PANELS * rows && w->height >= w->width)
            w->height = up(w->height / 2, rows) * rows;
        else if (w->width > COLUMNS)
            w->width = up(w->width / 2, COLUMNS) * COLUMNS;
        else if (w->height > LEAST_PANELS * rows)
            w->height = up(w->height / 2, rows) * rows;
        else
            return;
    }
}

static int run_all(product *w)
{
    const plk_gemm *g = w->g;
    int n_threads = plk_gemm_threads(g->n_batch * g->m, g->n, g->k);
    if (g->n_batch == 0 || g->m == 0 || g->n == 0)
        return PL_OK;
    if (g->m <= THIN && w->a.step_bytes == bytes_of(w) && w->b.step_bytes == bytes_of(w)) {
        if (w->a.as.way == PLK_BY_BYTE)
            w->a.as.way = w->b.as.way = PLK_BY_SHORT;
        pl_thread_pool_run(n_threads, g->n_batch * up(g->n, THIN_COLUMNS), run_thin, w);
    } else {
        w->a.as.amx = narrow_amx(w->a.as.way);
        w->a.as.shift = w->a.as.way == PLK_BY_BYTE && !w->a.as.amx ? 128 : 0;
        divide(w, n_threads);
        pl_thread_pool_run(n_threads, g->n_batch * w->stripes * w->pieces, run_task, w);
    }
    return w->status ? pl_fail(w->status, "out of memory for a matrix product") : PL_OK;
}

/* As plk_gemm_run, for the other dtypes. */
PLK_KERNEL(plk_gemm_narrow)
{
    const plk_gemm *g = params;
    plk_gemm turned;
    int64_t item = (int64_t)plk_dtype_bytes(g->dtype), lda = g->transpose_a ? g->m : g->k;
    int64_t ldb = g->transpose_b ? g->k : g->n;
    int at = 2, way = narrow_way(g->dtype, g->dtype);
    product w = {.g = g, .whole = g->dtype == PLK_I8 || g->dtype == PLK_U8};
    (void)scalars;
    w.a = (operand){.as = {way, g->dtype, 0}, .from = bufs[0], .line_bytes = (g->transpose_a ? 1 : lda) * item,
                    .step_bytes = (g->transpose_a ? lda : 1) * item};
    w.b = (operand){.as = {way, g->dtype, 0}, .from = bufs[1], .line_bytes = (g->transpose_b ? ldb : 1) * item,
                    .step_bytes = (g->transpose_b ? 1 : ldb) * item};
    w.bias = g->bias ? bufs[at++] : NULL;
    w.residual = g->residual ? bufs[at++] : NULL;
    w.c = bufs[at++];
    w.pre = g->keep ? bufs[at++] : NULL;
    if (g->sums)
        sum_rows(g, &w.a, bufs[at]);
    if (g->n == 1 && g->m > 1 && !g->bias) {    /* C^T is one row: A is packed as B */
        turned = *g;
        turned.m = 1, turned.n = g->m, turned.a_step = g->b_step, turned.b_step = g->a_step;
        operand a = w.a;
        w.g = &turned, w.a = w.b, w.b = a;
    }
    return run_all(&w);
}
