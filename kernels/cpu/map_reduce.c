/* A generated loop whose outputs are reduced as they are computed: a block of values stays in the L1 cache between the
 * loop and the reduction. The order of additions depends only on shapes, never on the number of threads.
 *
 *     rows     the innermost dimension is reduced: each run of a row becomes one number
 *     columns  it is kept: rows are added to a tile of numbers
 */
#include "blocks.h"
#include "engine/core/scratch.h"
#include "parts.h"
#include "reduce_methods.h"
#include "simd.h"

enum { CHUNK = 32768, MAX_CHUNKS = 64, LEAST_ROWS = 64 };

typedef struct {
    const plk_map_reduce *p;
    const method *methods[PLK_MAX_RESULTS];          /* NULL: the output is stored whole */
    int64_t n_reduced;                               /* product of reduced_shape */
} plan;

typedef struct {
    plk_blocks b;
    double acc[PLK_MAX_RESULTS][BLOCK];
    uint64_t values[PLK_MAX_RESULTS][BLOCK + PAD];   /* the outputs of the loop, before they are reduced */
} worker;

static int is_f64(const plan *m, int k) { return m->p->map.out_dtype[k] == PLK_F64; }

/* This thread's scratch memory: the parts of the caller, and its own worker. */
static worker *scratch_begin(size_t parts_bytes, double **parts)
{
    parts_bytes = (parts_bytes + 63) & ~(size_t)63;
    char *scratch = pl_scratch(parts_bytes + sizeof(worker));
    *parts = (double *)(void *)scratch;
    return scratch ? (worker *)(void *)(scratch + parts_bytes) : NULL;
}

/* Shared by the pieces of one reduction. workers: of each thread, NULL until it joins; the first one is the
 * caller's. */
typedef struct {
    const plan *m;
    const plk_job *j;
    worker *first, **workers;
    double *parts;
    int64_t n_chunks, tile, tiles;
    int failed;
} reduction;

/* This thread's worker; NULL: out of memory. */
static worker *worker_of(reduction *r)
{
    int place = pl_thread_pool_index();
    if (r->workers[place])
        return r->workers[place];
    worker *w = place ? pl_scratch(sizeof(worker)) : r->first;
    if (!w) {
        __atomic_store_n(&r->failed, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    blocks_begin(&w->b, r->j);
    for (int k = 0; k < r->m->p->map.n_out; k++)
        w->b.apart[k] = r->m->methods[k] ? w->values[k] : NULL;
    return r->workers[place] = w;
}

static void store(const plan *m, const plk_job *j, int k, int64_t at, double v)
{
    const plk_pointwise *map = &m->p->map;
    void *y = j->bufs[map->n_in + k];
    v *= m->p->scale[k];
    if (m->p->root[k])
        v = sqrt(v);
    if (map->out_dtype[k] == PLK_F32) {
        ((float *)y)[at] = (float)v;
    } else if (map->out_dtype[k] == PLK_F64) {
        ((double *)y)[at] = v;
    } else {
        float single = (float)v;
        convert(PLK_F32, &single, map->out_dtype[k], (uint16_t *)y + at, 1);
    }
}

static int64_t base_of(const plan *m, int64_t kept)
{
    return offset_of(kept, m->p->n_kept, m->p->kept_shape, m->p->kept_strides);
}

static int64_t reduced_offset(const plan *m, int64_t r)
{
    return offset_of(r, m->p->n_reduced, m->p->reduced_shape, m->p->reduced_strides);
}

/* Adds the elements [at, at + n) to acc[k][0]. */
static void add_run(worker *w, const plan *m, int64_t at, int64_t n)
{
    for (int64_t end = at + n, some; at < end; at += some) {
        some = blocks_next(&w->b, at, end);
        blocks_run(&w->b, at, some);
        for (int k = 0; k < m->p->map.n_out; k++)
            if (m->methods[k])
                w->acc[k][0] = m->methods[k]->merge(w->acc[k][0], m->methods[k]->run(w->values[k], some));
    }
}

static void start(worker *w, const plan *m, int64_t width)
{
    for (int k = 0; k < m->p->map.n_out; k++)
        for (int64_t i = 0; m->methods[k] && i < width; i++)
            w->acc[k][i] = m->methods[k]->start;
}

/* Short adjacent rows: as many as fit are computed at once. */
static void short_rows(worker *w, const plan *m, const plk_job *j, int64_t begin, int64_t end)
{
    int64_t length = m->p->run, per = BLOCK / length;
    for (int64_t row = begin; row < end; row += per) {
        int64_t n = per < end - row ? per : end - row;
        for (int64_t done = 0, some; done < n; done += some) {
            some = w->b.by_row ? 1 : n;
            blocks_run(&w->b, (row + done) * length, some * length);
            for (int k = 0; k < m->p->map.n_out; k++)
                for (int64_t i = 0; m->methods[k] && i < some; i++) {
                    const char *v = (const char *)w->values[k] + (size_t)(i * length) * (is_f64(m, k) ? 8 : 4);
                    store(m, j, k, row + done + i, m->methods[k]->run(v, length));
                }
        }
    }
}

static void short_piece(void *arg, int64_t part)
{
    reduction *r = arg;
    int64_t begin, end;
    worker *w = worker_of(r);
    plk_share(r->m->p->n_results, 1, (int)part, MAX_CHUNKS, &begin, &end);
    if (w)
        short_rows(w, r->m, r->j, begin, end);
}

/* One chunk of a row. */
static void row_piece(void *arg, int64_t u)
{
    reduction *r = arg;
    const plan *m = r->m;
    const plk_map_reduce *p = m->p;
    worker *w = worker_of(r);
    if (!w)
        return;
    int64_t base = base_of(m, u / r->n_chunks), begin, end;
    int chunk = (int)(u % r->n_chunks), n_out = p->map.n_out;
    start(w, m, 1);
    if (m->n_reduced == 1) {
        plk_share(p->run, w->b.step, chunk, (int)r->n_chunks, &begin, &end);
        add_run(w, m, base + begin, end - begin);
    } else {
        plk_share(m->n_reduced, 1, chunk, (int)r->n_chunks, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            add_run(w, m, base + reduced_offset(m, i), p->run);
    }
    for (int k = 0; k < n_out; k++)
        r->parts[u * n_out + k] = w->acc[k][0];
}

static void merge_rows(const reduction *r)
{
    const plan *m = r->m;
    int n_out = m->p->map.n_out;
    for (int64_t o = 0; o < m->p->n_results; o++)
        for (int k = 0; k < n_out; k++) {
            if (!m->methods[k])
                continue;
            double v = r->parts[o * r->n_chunks * n_out + k];
            for (int64_t c = 1; c < r->n_chunks; c++)
                v = m->methods[k]->merge(v, r->parts[(o * r->n_chunks + c) * n_out + k]);
            store(m, r->j, k, o, v);
        }
}

static int run_rows(const plan *m, const plk_job *j, int n_threads)
{
    const plk_map_reduce *p = m->p;
    int64_t inner = p->map.ndim ? p->map.shape[p->map.ndim - 1] : 1, length = m->n_reduced * p->run;
    int side_by_side = p->n_reduced == 0 && p->n_kept <= 1 && p->run <= BLOCK / 2 &&
                       (p->run == inner || inner < LONG_ROW);
    int64_t n_chunks = p->n_results >= MAX_CHUNKS ? 1 : (length + CHUNK - 1) / CHUNK;
    n_chunks = n_chunks * p->n_results > 4 * MAX_CHUNKS ? 4 * MAX_CHUNKS / p->n_results : n_chunks;
    n_chunks = n_chunks < 1 ? 1 : n_chunks;
    int64_t units = p->n_results * n_chunks;
    worker *workers[n_threads];
    memset(workers, 0, sizeof workers);
    reduction r = {.m = m, .j = j, .workers = workers, .n_chunks = n_chunks};
    r.first = scratch_begin(sizeof(double) * (size_t)p->map.n_out * (size_t)units, &r.parts);
    if (!r.first)
        return pl_fail(PL_ENOMEM, "out of memory for the parts of a reduction");
    if (side_by_side && n_chunks == 1) {
        pl_thread_pool_run(n_threads, MAX_CHUNKS, short_piece, &r);
    } else {
        pl_thread_pool_run(n_threads, units, row_piece, &r);
        if (!r.failed)
            merge_rows(&r);
    }
    return r.failed ? pl_fail(PL_ENOMEM, "out of memory for the blocks of a reduction") : PL_OK;
}

/* Rows [begin, end) of one tile of columns, added to acc. */
static void add_columns(worker *w, const plan *m, int64_t base, int64_t first, int64_t width, int64_t begin,
                        int64_t end)
{
    const plk_map_reduce *p = m->p;
    int last = p->n_reduced - 1;
    int side_by_side = !w->b.by_row && last >= 0 && p->reduced_strides[last] == w->b.inner;
    int64_t per = side_by_side ? BLOCK / w->b.inner : 1;
    for (int64_t r = begin, n; r < end; r += n) {
        n = end - r < per ? end - r : per;
        if (n > 1) {
            int64_t left = p->reduced_shape[last] - r % p->reduced_shape[last];
            n = n < left ? n : left;
        }
        blocks_run(&w->b, base + reduced_offset(m, r) + first, n * width);
        for (int k = 0; k < p->map.n_out; k++)
            if (m->methods[k])
                m->methods[k]->rows(w->acc[k], w->values[k], n, width, width);
    }
}

/* One chunk of the rows of one tile of columns. */
static void column_piece(void *arg, int64_t u)
{
    reduction *r = arg;
    const plan *m = r->m;
    const plk_map_reduce *p = m->p;
    worker *w = worker_of(r);
    if (!w)
        return;
    int64_t inner = p->map.ndim ? p->map.shape[p->map.ndim - 1] : 1, o = u / r->n_chunks / r->tiles, begin, end;
    int64_t first = u / r->n_chunks % r->tiles * r->tile, chunk = u % r->n_chunks, at = o * inner + first;
    int64_t width = inner - first < r->tile ? inner - first : r->tile;
    int n_out = p->map.n_out;
    plk_share(m->n_reduced, 1, (int)chunk, (int)r->n_chunks, &begin, &end);
    start(w, m, width);
    add_columns(w, m, base_of(m, o), first, width, begin, end);
    for (int k = 0; k < n_out; k++) {
        if (!m->methods[k])
            continue;
        if (r->parts)
            memcpy(r->parts + ((chunk * n_out + k) * p->n_results + at), w->acc[k], (size_t)width * sizeof(double));
        else
            for (int64_t i = 0; i < width; i++)
                store(m, r->j, k, at + i, w->acc[k][i]);
    }
}

static int run_columns(const plan *m, const plk_job *j, int n_threads)
{
    const plk_map_reduce *p = m->p;
    int64_t inner = p->map.ndim ? p->map.shape[p->map.ndim - 1] : 1;
    int64_t tile = inner < BLOCK ? inner : BLOCK, tiles = (inner + tile - 1) / tile;
    int64_t outer = p->n_results / inner, n_chunks = m->n_reduced / LEAST_ROWS, enough = 16 / (outer * tiles);
    n_chunks = n_chunks < enough ? n_chunks : enough;
    n_chunks = n_chunks < 1 ? 1 : n_chunks;
    int n_out = p->map.n_out;
    size_t n_parts = n_chunks > 1 ? (size_t)(n_chunks * n_out * p->n_results) : 0;
    worker *workers[n_threads];
    memset(workers, 0, sizeof workers);
    reduction r = {.m = m, .j = j, .workers = workers, .n_chunks = n_chunks, .tile = tile, .tiles = tiles};
    r.first = scratch_begin(n_parts * sizeof(double), &r.parts);
    double *parts = r.parts = n_parts ? r.parts : NULL;
    if (!r.first)
        return pl_fail(PL_ENOMEM, "out of memory for the parts of a reduction");
    pl_thread_pool_run(n_threads, outer * tiles * n_chunks, column_piece, &r);
    for (int k = 0; parts && !r.failed && k < n_out; k++)
        for (int64_t i = 0; m->methods[k] && i < p->n_results; i++) {
            double v = parts[k * p->n_results + i];
            for (int64_t c = 1; c < n_chunks; c++)
                v = m->methods[k]->merge(v, parts[(c * n_out + k) * p->n_results + i]);
            store(m, j, k, i, v);
        }
    return r.failed ? pl_fail(PL_ENOMEM, "out of memory for the blocks of a reduction") : PL_OK;
}

/* bufs: inputs, outputs.  scalars: the expression's. */
PLK_KERNEL(plk_map_reduce_run)
{
    const plk_map_reduce *p = params;
    plan m = {.p = p, .n_reduced = 1};
    plk_job j;
    plk_apart apart;
    int64_t n_reduced[PLK_MAX_RESULTS];
    if (p->map.n == 0)
        return pl_fail(PL_EINVAL, "a reduction of no elements has no fused kernel");
    if (job_begin(&j, &p->map, bufs, scalars) != PL_OK)
        return PL_EINVAL;
    for (int k = 0; k < p->map.n_out; k++) {
        n_reduced[k] = p->kind[k] < 0 ? 0 : p->n_results;
        if (p->kind[k] >= 0)
            m.methods[k] = (is_f64(&m, k) ? methods_f64 : methods_f32) + p->kind[k];
    }
    for (int d = 0; d < p->n_reduced; d++)
        m.n_reduced *= p->reduced_shape[d];
    if (apart_begin(&apart, &j, n_reduced) != PL_OK)
        return PL_ENOMEM;
    int n_threads = pl_threads(p->map.work);
    int status = p->inner_reduced ? run_rows(&m, &j, n_threads) : run_columns(&m, &j, n_threads);
    apart_end(&apart, &p->map, bufs);
    return status;
}
