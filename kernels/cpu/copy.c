/* Strided copies, of collapsed dimensions. If input and output are contiguous along different axes (a transpose), the
 * copy goes through square tiles, so that both sides use whole cache lines. */
#include "copy.h"
#include "bytes.h"
#include "cast.h"
#include "dtype.h"
#include "parts.h"
#include "simd.h"
#include "transpose.h"

enum { TILE = 16 };

#define STRIDED(T) { \
    const T *x = (const T *)in; T *y = (T *)out; \
    if (in_step == 1 && out_step == 1) \
        plk_copy_bytes(y, x, (size_t)n * sizeof(T)); \
    else if (in_step == 0 && out_step == 1) { \
        T v = x[0]; \
        for (int64_t i = 0; i < n; i++) y[i] = v; \
    } else if (in_step == -1 && out_step == 1) \
        for (int64_t i = 0; i < n; i++) y[i] = x[-i]; \
    else if (in_step == 2 && out_step == 1)         /* of a known step: in vectors */ \
        for (int64_t i = 0; i < n; i++) y[i] = x[2 * i]; \
    else if (in_step == 3 && out_step == 1) \
        for (int64_t i = 0; i < n; i++) y[i] = x[3 * i]; \
    else if (in_step == 4 && out_step == 1) \
        for (int64_t i = 0; i < n; i++) y[i] = x[4 * i]; \
    else \
        for (int64_t i = 0; i < n; i++) y[i * out_step] = x[i * in_step]; \
    break; }

static void copy_run(char *out, int64_t out_step, const char *in, int64_t in_step, int64_t n, int size)
{
    switch (size) {
    case 1: STRIDED(uint8_t)
    case 2: STRIDED(uint16_t)
    case 4: STRIDED(uint32_t)
    case 8: STRIDED(uint64_t)
    }
}

#define TILED(T) { \
    const T *x = (const T *)in; T *y = (T *)out; \
    for (int64_t i0 = 0; i0 < n; i0 += TILE) \
        for (int64_t j0 = 0; j0 < m; j0 += TILE) { \
            int64_t i1 = i0 + TILE < n ? i0 + TILE : n, j1 = j0 + TILE < m ? j0 + TILE : m; \
            for (int64_t i = i0; i < i1; i++) \
                for (int64_t j = j0; j < j1; j++) y[i * out_row + j] = x[j * in_row + i]; \
        } \
    break; }

TRANSPOSE_BLOCKS(int32_t, 32, LANES)
TRANSPOSE_BLOCKS(int64_t, 64, LANES64)

/* 8 x 8 bytes: exchanges the blocks off the diagonal, of 4, then 2, then 1. */
static void transpose_bytes(uint8_t *y, int64_t out_row, const uint8_t *x, int64_t in_row)
{
    static const uint64_t low[3] = {0x00000000ffffffff, 0x0000ffff0000ffff, 0x00ff00ff00ff00ff};
    uint64_t row[8];
    for (int j = 0; j < 8; j++)
        memcpy(row + j, x + j * in_row, 8);
    for (int k = 0, apart = 4; apart; k++, apart /= 2)
        for (int j = 0; j < 8; j++)
            if (!(j & apart)) {
                uint64_t t = ((row[j] >> (8 * apart)) ^ row[j + apart]) & low[k];
                row[j + apart] ^= t;
                row[j] ^= t << (8 * apart);
            }
    for (int i = 0; i < 8; i++)
        memcpy(y + i * out_row, row + i, 8);
}

/* out (n, m) with rows out_row apart = the transpose of in (m, n) with rows in_row apart */
static void transpose_run(char *out, int64_t out_row, const char *in, int64_t in_row, int64_t n, int64_t m, int size)
{
    switch (size) {
    case 1: {
        enum { EDGE = 64 };
        const uint8_t *x = (const uint8_t *)in;
        uint8_t *y = (uint8_t *)out;
        int64_t n0 = n / 8 * 8, m0 = m / 8 * 8;
        for (int64_t i0 = 0; i0 < n0; i0 += EDGE)
            for (int64_t j0 = 0; j0 < m0; j0 += EDGE)
                for (int64_t i = i0; i < n0 && i < i0 + EDGE; i += 8)
                    for (int64_t j = j0; j < m0 && j < j0 + EDGE; j += 8)
                        transpose_bytes(y + i * out_row + j, out_row, x + j * in_row + i, in_row);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i < n0 ? m0 : 0; j < m; j++)
                y[i * out_row + j] = x[j * in_row + i];
        break;
    }
    case 2: TILED(uint16_t)
    case 4:
        if (n >= 16 && m >= 16) {
            transpose_blocks_32((int32_t *)(void *)out, out_row, (const int32_t *)(const void *)in, in_row, n, m);
            break;
        }
        TILED(uint32_t)
    case 8:
        if (n >= 8 && m >= 8) {
            transpose_blocks_64((int64_t *)(void *)out, out_row, (const int64_t *)(const void *)in, in_row, n, m);
            break;
        }
        TILED(uint64_t)
    }
}

typedef struct { const plk_copy *p; const char *in; char *out; int cross, split; int64_t runs; } shared_copy;

/* Runs [begin, end), or rows [begin, end) of all runs. */
static void copy_part(void *arg, int64_t begin, int64_t end)
{
    const shared_copy *s = arg;
    const plk_copy *p = s->p;
    int last = p->ndim - 1, cross = s->cross;
    int64_t size = p->size, row = 0, row_end = cross >= 0 ? p->shape[cross] : 0;
    if (s->split) {
        row = begin;
        row_end = end;
        begin = 0;
        end = s->runs;
    }
    int64_t index[PLK_MAX_DIMS], x = 0, y = 0, at = begin;
    for (int d = last - 1; d >= 0; d--) {
        index[d] = d == cross ? 0 : at % p->shape[d];
        at = d == cross ? at : at / p->shape[d];
        x += index[d] * p->in_strides[d];
        y += index[d] * p->out_strides[d];
    }
    for (int64_t r = begin; r < end; r++) {
        if (cross >= 0)
            transpose_run(s->out + (y + row * p->out_strides[cross]) * size, p->out_strides[cross],
                          s->in + (x + row) * size, p->in_strides[last], row_end - row, p->shape[last], p->size);
        else
            copy_run(s->out + y * size, p->out_strides[last], s->in + x * size, p->in_strides[last], p->shape[last],
                     p->size);
        for (int d = last - 1; d >= 0; d--) {           /* the next run: the last dimension moves first */
            if (d == cross)
                continue;
            x += p->in_strides[d];
            y += p->out_strides[d];
            if (++index[d] < p->shape[d])
                break;
            x -= p->shape[d] * p->in_strides[d];
            y -= p->shape[d] * p->out_strides[d];
            index[d] = 0;
        }
    }
}

static void copy(const plk_copy *p, const char *in, char *out)
{
    int last = p->ndim - 1, cross = -1;
    int64_t size = p->size;
    in += p->in_offset * size;
    out += p->out_offset * size;
    if (p->ndim == 0) {
        memcpy(out, in, (size_t)size);
        return;
    }
    if (p->out_strides[last] == 1 && p->in_strides[last] != 1)
        for (int d = 0; d < last; d++)
            if (p->in_strides[d] == 1)
                cross = d;
    int64_t runs = p->n / p->shape[last] / (cross >= 0 ? p->shape[cross] : 1);
    int n_threads = pl_threads(p->n / 2);
    int split = n_threads > 1 && runs < n_threads && cross >= 0;       /* one big matrix: threads share its rows */
    shared_copy s = {p, in, out, cross, split, runs};
    plk_run_parts(p->n / 2, split ? p->shape[cross] : runs, split ? TILE : 1, copy_part, &s);
}

/* Copies, with the scalar of the call added to one of the offsets. */
static int place(const plk_copy *p, const double *scalars, const char *in, char *out)
{
    if (!p->n)
        return PL_OK;
    if (p->placed != PLK_PLACED_FIRMLY) {
        if (!(scalars[0] >= (double)p->lowest && scalars[0] <= (double)p->highest))
            return pl_fail(PL_EINVAL, "a part of an array must lie inside it");
        int64_t at = (int64_t)scalars[0] * p->size;
        if (p->placed == PLK_PLACED_IN)
            in += at;
        else
            out += at;
    }
    copy(p, in, out);
    return PL_OK;
}

static int copy_all(const plk_copy *p, const double *scalars, const char *x, char *y)
{
    return x == y && p->out_n == p->n ? PL_OK : place(p, scalars, x, y);      /* PL_OK: a view kept in place */
}

/* bufs: x, y */
PLK_KERNEL(plk_copy_run) { return copy_all(params, scalars, bufs[0], bufs[1]); }

/* bufs: x, an array whose contents are not read, y */
PLK_KERNEL(plk_copy_like) { return copy_all(params, scalars, bufs[0], bufs[2]); }

/* bufs: x, y: zeros where nothing is copied */
PLK_KERNEL(plk_copy_into_zeros)
{
    const plk_copy *p = params;
    memset(bufs[1], 0, (size_t)(p->out_n * p->size));
    return place(p, scalars, bufs[0], bufs[1]);
}

/* bufs: base, x, y: base where nothing is copied */
PLK_KERNEL(plk_copy_into_base)
{
    const plk_copy *p = params;
    if (bufs[2] != bufs[0])
        plk_copy_bytes(bufs[2], bufs[0], (size_t)(p->out_n * p->size));
    return place(p, scalars, bufs[1], bufs[2]);
}

/* bufs: base, y: base where nothing is copied.  scalars: the value that is copied */
PLK_KERNEL(plk_scalar_into_base)
{
    const plk_copy *p = params;
    double value = scalars[0];
    uint64_t number = 0;
    plk_cast one = {1, PLK_F64, p->dtype};
    plk_cast_run(&one, (void *[]){&value, &number}, NULL);
    if (bufs[1] != bufs[0])
        plk_copy_bytes(bufs[1], bufs[0], (size_t)(p->out_n * p->size));
    if (p->n)
        copy(p, (const char *)&number, bufs[1]);
    return PL_OK;
}

typedef struct { const plk_join *p; char *whole, *const *parts; int split; } shared_join;

static void join_part(void *arg, int64_t begin, int64_t end)
{
    const shared_join *s = arg;
    const plk_join *p = s->p;
    for (int64_t o = begin; o < end; o++) {
        char *at = s->whole + o * p->total;
        for (int k = 0; k < p->n_parts; k++) {
            char *part = s->parts[k] + o * p->bytes[k];
            if (part == at)
                ;                         /* already in place, where a concurrent branch may read it */
            else if (s->split)
                plk_copy_bytes(part, at, (size_t)p->bytes[k]);
            else
                plk_copy_bytes(at, part, (size_t)p->bytes[k]);
            at += p->bytes[k];
        }
    }
}

/* Rows of one element each: part k is every n_parts-th element. */
#define ONE_BY_ONE(T) \
    for (int64_t at = begin, next; at < end; at = next) {   /* some rows, which stay in the cache for all parts */ \
        next = end - at < 512 ? end : at + 512; \
        for (int k = 0; k < n; k++) { \
            T *whole = (T *)(void *)s->whole + k, *part = (T *)(void *)s->parts[k]; \
            if (s->split) \
                for (int64_t o = at; o < next; o++) \
                    part[o] = whole[o * n]; \
            else \
                for (int64_t o = at; o < next; o++) \
                    whole[o * n] = part[o]; \
        } \
    } \
    break;

static void join_elements(void *arg, int64_t begin, int64_t end)
{
    const shared_join *s = arg;
    const int64_t n = s->p->n_parts;
    switch (s->p->bytes[0]) {
    case 1: ONE_BY_ONE(uint8_t)
    case 2: ONE_BY_ONE(uint16_t)
    case 4:
        if (n == 2 && !s->split) {
            uint32_t *y = (uint32_t *)(void *)s->whole;
            const uint32_t *a = (const uint32_t *)(void *)s->parts[0], *b = (const uint32_t *)(void *)s->parts[1];
            for (int64_t o = begin; o < end; o++)
                y[2 * o] = a[o], y[2 * o + 1] = b[o];
            break;
        }
        ONE_BY_ONE(uint32_t)
    default: ONE_BY_ONE(uint64_t)
    }
}

/* Are rows single words? Several elements that are a word may begin at any of them. */
static int of_elements(const plk_join *p, const char *whole, char *const *parts)
{
    int64_t size = p->bytes[0];
    uintptr_t places = (uintptr_t)whole;
    for (int k = 0; k < p->n_parts; k++) {
        if (p->bytes[k] != size)
            return 0;
        places |= (uintptr_t)parts[k];
    }
    int word = size == 1 || size == 2 || size == 4 || size == 8;
    return word && places % (uintptr_t)size == 0 && p->outer > 1 && p->n_parts > 1;
}

static void join(const plk_join *p, char *whole, char *const *parts, int split)
{
    if (of_elements(p, whole, parts)) {
        plk_run_parts(p->outer * p->n_parts, p->outer, 64, join_elements, &(shared_join){p, whole, parts, split});
        return;
    }
    plk_run_parts(p->outer * p->total / 8, p->outer, 1, join_part, &(shared_join){p, whole, parts, split});
}

/* bufs: parts, whole */
PLK_KERNEL(plk_join_run)
{
    const plk_join *p = params;
    (void)scalars;
    join(p, bufs[p->n_parts], (char *const *)bufs, 0);
    return PL_OK;
}

/* bufs: whole, parts */
PLK_KERNEL(plk_join_split)
{
    (void)scalars;
    join(params, bufs[0], (char *const *)bufs + 1, 1);
    return PL_OK;
}

/* even: all bytes of a value are equal. */
typedef struct { char *y; int size, even; } shared_fill;

static void fill_part(void *arg, int64_t begin, int64_t end)
{
    const shared_fill *s = arg;
    char *to = s->y + (begin + 1) * s->size;
    if (s->even)
        memset(to, s->y[0], (size_t)((end - begin) * s->size));
    else
        copy_run(to, 1, s->y, 0, end - begin, s->size);
}

/* bufs: y.  scalars: the value, if dynamic */
PLK_KERNEL(plk_fill_run)
{
    const plk_fill *p = params;
    double value = p->dynamic ? scalars[0] : p->value;
    char *y = bufs[0];
    size_t size = plk_dtype_bytes(p->dtype);
    plk_cast one = {1, PLK_F64, p->dtype};
    void *ends[2] = {&value, y};
    if (p->n == 0)
        return PL_OK;
    plk_cast_run(&one, ends, NULL);
    shared_fill s = {y, (int)size, memcmp(y, y + 1, size - 1) == 0};
    plk_run_parts(p->n / 2, p->n - 1, 64, fill_part, &s);
    return PL_OK;
}

/* Bytes [begin, end) of the output. */
static void roll_part(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_roll *p = call->params;
    const char *x = call->bufs[0];
    char *y = call->bufs[1];
    for (int64_t at = begin, n; at < end; at += n) {
        int64_t c = at % p->width, stop = c < p->head ? p->head : p->width;
        n = stop - c < end - at ? stop - c : end - at;
        plk_copy_bytes(y + at, x + at - p->head + (c < p->head ? p->width : 0), (size_t)n);
    }
}

/* bufs: x, y */
PLK_KERNEL(plk_roll_run)
{
    const plk_roll *p = params;
    plk_run_parts(p->n / 8, p->n, 64, roll_part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
