/* A float32 matrix product of our own: packed panels and a register tile of ROWS x COLUMNS, after Goto and van de Geijn
 * 2008, with what follows the product (bias, activation, addition) done on each tile while it is in the L1 cache.
 *
 * C is cut into stripes of columns. A thread packs a stripe of B for itself, then takes blocks of rows of that stripe
 * from a common counter: threads never wait for each other, a thread that the machine slows down takes fewer blocks, and
 * packed data stays in the caches of the core that packed it (reading it from another core's costs four times as much).
 */
#include "simd.h"
#include "act.h"

#if defined(__AVX512F__)
enum { WIDTH = 16, ROWS = 14, DEPTH = 256 };
#elif defined(__AVX2__)
enum { WIDTH = 8, ROWS = 6, DEPTH = 256 };
#elif defined(__aarch64__)
enum { WIDTH = 4, ROWS = 8, DEPTH = 256 };
#else
enum { WIDTH = 4, ROWS = 6, DEPTH = 256 };
#endif
enum { COLUMNS = 2 * WIDTH, CHUNK = 16, TASK_ROWS = 96, MAX_K = 2048, PACKED_B = 1 << 20, MAX_GROUPS = 64,
       TASKS_PER_THREAD = 8 };
typedef float vector __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));

/* The columns of 4 x 4 elements to four places. */
static inline void transpose4(float *to0, float *to1, float *to2, float *to3, const float *from, int64_t from_step)
{
    quad a = *(const quad *)from, b = *(const quad *)(from + from_step), c = *(const quad *)(from + 2 * from_step),
         d = *(const quad *)(from + 3 * from_step);
    quad ab = __builtin_shuffle(a, b, (quad_index){0, 4, 1, 5}), AB = __builtin_shuffle(a, b, (quad_index){2, 6, 3, 7});
    quad cd = __builtin_shuffle(c, d, (quad_index){0, 4, 1, 5}), CD = __builtin_shuffle(c, d, (quad_index){2, 6, 3, 7});
    *(quad *)to0 = __builtin_shuffle(ab, cd, (quad_index){0, 1, 4, 5});
    *(quad *)to1 = __builtin_shuffle(ab, cd, (quad_index){2, 3, 6, 7});
    *(quad *)to2 = __builtin_shuffle(AB, CD, (quad_index){0, 1, 4, 5});
    *(quad *)to3 = __builtin_shuffle(AB, CD, (quad_index){2, 3, 6, 7});
}

/* to[c * to_step + r] = from[r * from_step + c] for rows x columns elements */
static void transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t columns)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= columns; c += 4)
            transpose4(to + c * to_step + r, to + (c + 1) * to_step + r, to + (c + 2) * to_step + r,
                       to + (c + 3) * to_step + r, from + r * from_step + c, from_step);
        for (; c < columns; c++)
            for (int64_t i = r; i < r + 4; i++)
                to[c * to_step + i] = from[i * from_step + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            to[c * to_step + r] = from[r * from_step + c];
}

/* Where row i of a block of A goes: panels of ROWS rows, in them chunks of CHUNK steps, in these the rows. */
static inline int64_t row_place(int64_t i) { return i / ROWS * ROWS * DEPTH + i % ROWS * CHUNK; }
static inline int64_t step_place(int64_t d) { return d / CHUNK * ROWS * CHUNK + d % CHUNK; }

/* A block of A, with zeros for missing rows of the last panel; sums: of each row, or NULL. */
static void pack_a(float *to, const plk_product *p, const float *a, int64_t rows, int64_t depth)
{
    int64_t d = 0;
    if (p->a_depth == 1)
        for (int64_t i = 0; i < rows; i++) {
            const float *from = a + i * p->a_row;
            float *row = to + row_place(i);
            for (d = 0; d + CHUNK <= depth; d += CHUNK, from += CHUNK, row += ROWS * CHUNK)
                memcpy(row, from, CHUNK * sizeof *row);
            memcpy(row, from, (size_t)(depth - d) * sizeof *row);
        }
    else {
        for (; d + 4 <= depth && p->a_row == 1; d += 4) {
            const float *from = a + d * p->a_depth;
            int64_t i = 0;
            for (; i + 4 <= rows; i += 4) {
                float *t = to + step_place(d);
                transpose4(t + row_place(i), t + row_place(i + 1), t + row_place(i + 2), t + row_place(i + 3), from + i,
                           p->a_depth);
            }
            for (; i < rows; i++)
                for (int64_t s = d; s < d + 4; s++)
                    to[row_place(i) + step_place(s)] = a[i + s * p->a_depth];
        }
        for (; d < depth; d++)
            for (int64_t i = 0; i < rows; i++)
                to[row_place(i) + step_place(d)] = a[i * p->a_row + d * p->a_depth];
    }
    for (int64_t i = rows; i % ROWS; i++)
        for (d = 0; d < depth; d += CHUNK)
            memset(to + row_place(i) + step_place(d), 0, CHUNK * sizeof *to);
}

/* One panel of B: `depth` steps of COLUMNS; missing columns are zeros. */
static void pack_b(float *to, const plk_product *p, const float *b, int64_t columns, int64_t depth)
{
    if (columns < COLUMNS)
        memset(to, 0, (size_t)(depth * COLUMNS) * sizeof *to);
    if (p->b_column == 1 && columns == COLUMNS)
        for (int64_t d = 0; d < depth; d++, to += COLUMNS)
            memcpy(to, b + d * p->b_depth, COLUMNS * sizeof *to);
    else if (p->b_depth == 1)
        transpose(to, COLUMNS, b, p->b_column, columns, depth);
    else
        for (int64_t d = 0; d < depth; d++)
            for (int64_t j = 0; j < columns; j++)
                to[d * COLUMNS + j] = b[d * p->b_depth + j * p->b_column];
}

/* out (ROWS x COLUMNS) = alpha * a panel of A times one of B + beta * out + bias.  Neither inlined nor unrolled: then compilers keep the sums in
 * registers. */
__attribute__((noinline)) static void tile(int64_t depth, const float *a, const float *b, float alpha, float beta,
                                           const float *bias, float *out, int64_t out_step)
{
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        __builtin_prefetch(out + r * out_step, 1);
    vector acc[ROWS][2];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        acc[r][0] = acc[r][1] = (vector){0};
    for (int64_t d = 0; d < depth; d += CHUNK, a += (ROWS - 1) * CHUNK) {
        const float *end = a + (depth - d < CHUNK ? depth - d : CHUNK);
#pragma GCC unroll 1
        for (; a < end; a++, b += COLUMNS) {
            vector b0 = *(const vector *)b, b1 = *(const vector *)(b + WIDTH);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                acc[r][0] += a[r * CHUNK] * b0;
                acc[r][1] += a[r * CHUNK] * b1;
            }
        }
    }
    vector b0 = *(const vector *)bias, b1 = *(const vector *)(bias + WIDTH);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++, out += out_step) {
        vector *to = (vector *)out, *next = (vector *)(out + WIDTH);
        vector x = alpha * acc[r][0] + b0, y = alpha * acc[r][1] + b1;
        if (beta != 0) {
            x += beta * *to;
            y += beta * *next;
        }
        *to = x;
        *next = y;
    }
}

typedef struct { const float *bias, *residual; float *c, *pre, *sums; } ends;

static const float no_bias[COLUMNS];

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

static int64_t up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }
/* n cut into equal pieces of whole units: the size of one */
static int64_t piece(int64_t n, int64_t n_pieces, int64_t unit) { return up(up(n, unit), n_pieces) * unit; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The part of the product that is worked on: columns [j, j_end), steps [k, k_end) in blocks of `depth`. */
typedef struct { int64_t j, j_end, k, k_end, depth; } stripe;

/* All panels of B of a stripe: for each block of depth the panels side by side. */
static void pack_stripe(float *to, const plk_product *p, const float *b, const stripe *s)
{
    for (int64_t d = s->k; d < s->k_end; d += s->depth) {
        int64_t depth = least(s->depth, s->k_end - d);
        for (int64_t j = s->j; j < s->j_end; j += COLUMNS, to += COLUMNS * depth)
            pack_b(to, p, b + d * p->b_depth + j * p->b_column, least(p->n - j, COLUMNS), depth);
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
        pack_a(packed_a, p, from, i_end - i0, depth);
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
