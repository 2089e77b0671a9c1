/* The order of a reduction, once for each accumulator: ACC its type, METHOD_OF that of its methods, OF(name) the names.
 * Included by reduce.c. The order of additions depends on shapes only. */

typedef struct {
    const METHOD_OF *m;
    const char *x;
    int64_t n, chunk;
    size_t size;
    int ends, ended;                                 /* may one part decide; has one */
    ACC parts[MAX_CHUNKS];
} OF(chunks);

static void OF(chunk_piece)(void *arg, int64_t c)
{
    OF(chunks) *s = arg;
    int64_t begin = c * s->chunk, some = s->n - begin < s->chunk ? s->n - begin : s->chunk;
    int left_out = some <= 0 || (s->ends && __atomic_load_n(&s->ended, __ATOMIC_RELAXED));
    s->parts[c] = left_out ? s->m->start : s->m->run(s->x + (size_t)begin * s->size, some);
    if (s->ends && s->parts[c] != s->m->start)
        __atomic_store_n(&s->ended, 1, __ATOMIC_RELAXED);
}

/* One long run, in chunks whose number does not depend on the threads. */
static ACC OF(run_chunks)(const METHOD_OF *m, const char *x, int64_t n, size_t size, int ends, int n_threads)
{
    ACC total = m->start;
    int64_t n_chunks = (n + CHUNK - 1) / CHUNK;
    n_chunks = n_chunks > MAX_CHUNKS ? MAX_CHUNKS : n_chunks;
    int64_t chunk = (n + n_chunks - 1) / n_chunks;
    OF(chunks) s = {.m = m, .x = x, .n = n, .chunk = chunk, .size = size, .ends = ends};
    pl_thread_pool_run(n_threads, n_chunks, OF(chunk_piece), &s);
    for (int64_t c = 0; c < n_chunks; c++)
        total = m->merge(total, s.parts[c]);
    return total;
}

typedef struct {
    const plk_reduce *p;
    const METHOD_OF *m;
    void *const *bufs;
    int64_t n_reduced, tiles;
} OF(job);

/* Short runs, one after the other: several at once, as columns; each is added in the order of a run. */
static void OF(short_runs)(const OF(job) *j, int64_t begin, int64_t end)
{
    const plk_reduce *p = j->p;
    size_t size = plk_dtype_bytes(p->dtype);
    ACC acc[MANY];
    uint64_t columns[SHORT_RUN * MANY];
    for (int64_t o = begin, width; o < end; o += width) {
        width = end - o < MANY ? end - o : MANY;
        to_columns(columns, (const char *)j->bufs[0] + (size_t)(o * p->inner) * size, p->inner, width, size);
        for (int64_t i = 0; i < width; i++)
            acc[i] = j->m->start;
        j->m->rows(acc, columns, p->inner, MANY, width);
        for (int64_t i = 0; i < width; i++)
            OF(store)(p, j->bufs[1], o + i, acc[i]);
    }
}

static void OF(runs_part)(void *arg, int64_t begin, int64_t end)
{
    const OF(job) *j = arg;
    const plk_reduce *p = j->p;
    const METHOD_OF *m = j->m;
    size_t size = plk_dtype_bytes(p->dtype);
    if (p->inner < SHORT_RUN && p->n_reduced == 0 && p->n_kept == 1 && p->kept_strides[0] == p->inner) {
        OF(short_runs)(j, begin, end);
        return;
    }
    for (int64_t o = begin; o < end; o++) {
        int64_t base = offset_of(o, p->n_kept, p->kept_shape, p->kept_strides);
        ACC acc = m->start;
        for (int64_t r = 0; r < j->n_reduced && (p->kind < PLK_ANY || acc == m->start); r++) {
            int64_t at = base + offset_of(r, p->n_reduced, p->reduced_shape, p->reduced_strides);
            acc = m->merge(acc, m->run((const char *)j->bufs[0] + at * (int64_t)size, p->inner));
        }
        OF(store)(p, j->bufs[1], o, acc);
    }
}

/* Adds all rows of a tile of columns. Short contiguous rows are taken several at once, as one wide row. */
static void OF(add_rows)(const OF(job) *j, ACC *acc, int64_t base, int64_t width)
{
    const plk_reduce *p = j->p;
    const METHOD_OF *m = j->m;
    int64_t size = (int64_t)plk_dtype_bytes(p->dtype), last = p->n_reduced - 1;
    int64_t n = p->n_reduced ? p->reduced_shape[last] : 1, step = p->n_reduced ? p->reduced_strides[last] : 0;
    int64_t fold = step == width && width <= TILE / 8 ? TILE / width : 1;
    for (int64_t i = 0; i < width * fold; i++)
        acc[i] = m->start;
    for (int64_t r = 0; r < j->n_reduced; r += n) {
        int64_t at = base + offset_of(r, p->n_reduced, p->reduced_shape, p->reduced_strides), wide = n / fold;
        const char *x = (const char *)j->bufs[0] + at * size;
        m->rows(acc, x, wide, step * fold, width * fold);
        m->rows(acc, x + wide * fold * step * size, n - wide * fold, step, width);
    }
    for (int64_t k = 1; k < fold; k++)
        for (int64_t i = 0; i < width; i++)
            acc[i] = m->merge(acc[i], acc[k * width + i]);
}

static void OF(tiles_part)(void *arg, int64_t begin, int64_t end)
{
    const OF(job) *j = arg;
    const plk_reduce *p = j->p;
    int64_t tiles = j->tiles;
    for (int64_t u = begin; u < end; u++) {
        ACC acc[TILE];
        int64_t first = u % tiles * TILE, width = p->inner - first < TILE ? p->inner - first : TILE;
        int64_t base = offset_of(u / tiles, p->n_kept, p->kept_shape, p->kept_strides) + first;
        OF(add_rows)(j, acc, base, width);
        for (int64_t i = 0; i < width; i++)
            OF(store)(p, j->bufs[1], u / tiles * p->inner + first + i, acc[i]);
    }
}

static void OF(reduce)(const plk_reduce *p, const METHOD_OF *m, void *const *bufs)
{
    size_t size = plk_dtype_bytes(p->dtype);
    int64_t n_reduced = 1, tiles = (p->inner + TILE - 1) / TILE;
    for (int d = 0; d < p->n_reduced; d++)
        n_reduced *= p->reduced_shape[d];
    if (p->inner_reduced && p->n_out < FEW_RUNS && p->inner > CHUNK && n_reduced == 1) {
        for (int64_t o = 0; o < p->n_out; o++) {
            const char *from = (const char *)bufs[0] +
                               offset_of(o, p->n_kept, p->kept_shape, p->kept_strides) * (int64_t)size;
            ACC total = OF(run_chunks)(m, from, p->inner, size, p->kind >= PLK_ANY, pl_threads(p->n_in / 2));
            OF(store)(p, bufs[1], o, total);
        }
        return;
    }
    int64_t units = p->inner_reduced ? p->n_out : p->n_out / p->inner * tiles;
    OF(job) j = {p, m, bufs, n_reduced, tiles};
    plk_run_parts(p->n_in / 2, units, 1, p->inner_reduced ? OF(runs_part) : OF(tiles_part), &j);
}
