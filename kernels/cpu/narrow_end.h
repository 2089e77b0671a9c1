/* What follows the sums of a convolution of small numbers, while they are in the L1 cache: scale, shift, bias, addend,
 * limits or an activation, and rounding to the dtype of the result. */
#ifndef PLK_NARROW_END_H
#define PLK_NARROW_END_H
#include "conv_narrow.h"
#include "narrow_tile.h"

/* y (outputs, filters) and what is read for it. whole: sums are integers; integers: results are sums; shift: by how
 * much the data were shifted before they were multiplied. */
typedef struct {
    const plk_narrow_conv *c;
    const char *bias, *addend;
    const float *scale;
    float addend_scale;
    char *y;
    int whole, integers, shift;
} ending;

/* What is added to and multiplied with sums, for the columns of a panel. unshift: what shifted data added to a sum,
 * negative; both may have wrapped, their sum has not. */
typedef struct { float scale[COLUMNS], shift[COLUMNS]; int32_t unshift[COLUMNS], bias[COLUMNS]; } by_column;

static void floats_of(int dtype, float *to, const char *from, int64_t n)
{
    switch (dtype) {
    case PLK_F32: memcpy(to, from, (size_t)n * sizeof *to); break;
    case PLK_I32:
        for (int64_t i = 0; i < n; i++)
            to[i] = (float)((const int32_t *)(const void *)from)[i];
        break;
    case PLK_I8:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const int8_t *)from)[i];
        break;
    case PLK_U8:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const uint8_t *)from)[i];
        break;
    default: convert_run((source){PLK_BY_FLOAT, dtype, 0, 0}, to, from, n);
    }
}

/* sums: of each column's weights, if the data were shifted */
static by_column of_columns(const ending *e, int64_t filter, int64_t n, const int32_t *sums)
{
    const plk_narrow_conv *c = e->c;
    by_column v = {{0}, {0}, {0}, {0}};
    for (int64_t q = 0; q < n; q++) {
        v.scale[q] = c->scaled ? e->scale[filter + q] : 1;
        v.unshift[q] = e->shift ? -e->shift * sums[q] : 0;
    }
    if (c->bias_dtype < 0)
        return v;
    const char *bias = e->bias + filter * (int64_t)plk_dtype_bytes(c->bias_dtype);
    if (c->bias_dtype == PLK_F32 || c->bias_dtype == PLK_F16 || c->bias_dtype == PLK_BF16)
        floats_of(c->bias_dtype, v.shift, bias, n);
    else
        for (int64_t q = 0; q < n; q++)
            v.bias[q] = c->bias_dtype == PLK_I32  ? ((const int32_t *)(const void *)bias)[q]
                        : c->bias_dtype == PLK_I8 ? ((const int8_t *)bias)[q]
                                                  : ((const uint8_t *)bias)[q];
    return v;
}

/* A vector of numbers of a dtype. */
PLK_INLINE vector load_vector(int dtype, const char *from)
{
    float x[WIDTH];
#if defined(__AVX512F__)
    if (dtype == PLK_I8)
        return (vector)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
    if (dtype == PLK_BF16)
        return (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from)),
                                         16);
    if (dtype == PLK_U8)
        return (vector)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from)));
#elif defined(__AVX2__)
    if (dtype == PLK_I8)
        return (vector)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from)));
    if (dtype == PLK_U8)
        return (vector)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from)));
#endif
    floats_of(dtype, x, from, WIDTH);
    return *(const vector *)x;
}

/* The larger and the smaller one; `v` where one is NaN. */
#if defined(__AVX512F__)
#define AT_LEAST(low, v) (vector)_mm512_max_ps((__m512)(low), (__m512)(v))
#define AT_MOST(high, v) (vector)_mm512_min_ps((__m512)(high), (__m512)(v))
#elif defined(__AVX2__)
#define AT_LEAST(low, v) (vector)_mm256_max_ps((__m256)(low), (__m256)(v))
#define AT_MOST(high, v) (vector)_mm256_min_ps((__m256)(high), (__m256)(v))
#else
#define CHOOSE(mask, a, b) (vector)(((plk_units)(mask) & (plk_units)(a)) | (~(plk_units)(mask) & (plk_units)(b)))
#define AT_LEAST(low, v) CHOOSE((low) > (v), low, v)
#define AT_MOST(high, v) CHOOSE((high) < (v), high, v)
#endif

PLK_INLINE plk_units unshifted(const by_column *by, const plk_unit *v, int q)
{
    return *(const plk_units *)(v + q) + *(const plk_units *)(by->unshift + q);
}

/* Columns [q, q + WIDTH) of one row: the sum, scaled and shifted, and cut to what is wanted. add_dtype -1: no addend */
PLK_INLINE vector finished(const ending *e, const by_column *by, int whole, int add_dtype, const plk_unit *v,
                           const char *addend, int q, float low, float high)
{
    vector scale = *(const vector *)(by->scale + q), shift = *(const vector *)(by->shift + q), x, lows, highs;
    if (whole)
        x = __builtin_convertvector(unshifted(by, v, q) + *(const plk_units *)(by->bias + q), vector);
    else
        x = *(const vector *)(const void *)(v + q);
    x = x * scale + shift;
    if (add_dtype >= 0)
        x += load_vector(add_dtype, addend + q * (int64_t)plk_dtype_bytes(add_dtype)) * e->addend_scale;
    lows = low - (vector){0}, highs = high - (vector){0};
    return AT_MOST(highs, AT_LEAST(lows, x));
}

/* Rows of bytes; to, addend: the first row's, `all` elements apart. */
PLK_INLINE void finish_bytes(const ending *e, const by_column *by, const int add_dtype, const plk_unit *v, char *to,
                             const char *addend, int64_t rows, int64_t all, float low, float high)
{
    int64_t add_row = add_dtype < 0 ? 0 : all * (int64_t)plk_dtype_bytes(add_dtype);
    for (int64_t r = 0; r < rows; r++, v += COLUMNS, to += all, addend += add_row)
        for (int q = 0; q < COLUMNS; q += WIDTH)
            store_vector(PLK_I8, to + q, finished(e, by, 1, add_dtype, v, addend, q, low, high));
}

/* Up to ROWS rows of sums. */
static void finish_some(const ending *e, const by_column *by, const plk_unit *v, int64_t row, int64_t rows,
                        int64_t filter, int64_t columns, float low, float high)
{
    const plk_narrow_conv *c = e->c;
    int64_t out_item = (int64_t)plk_dtype_bytes(c->out_dtype), all = c->filters;
    int64_t add_item = c->add_dtype < 0 ? 0 : (int64_t)plk_dtype_bytes(c->add_dtype);
    int later = c->act.loop != 0;
    float x[ROWS * COLUMNS];
    char done[4 * COLUMNS], more[4 * COLUMNS] = {0};
    for (int64_t r = 0; r < rows; r++, v += COLUMNS) {
        char *to = e->y + ((row + r) * all + filter) * out_item, *at = columns < COLUMNS ? done : to;
        const char *addend = c->add_dtype < 0 ? NULL : e->addend + ((row + r) * all + filter) * add_item;
        if (addend && columns < COLUMNS)
            addend = memcpy(more, addend, (size_t)(columns * add_item));
        for (int q = 0; q < COLUMNS; q += WIDTH) {
            vector y = finished(e, by, e->whole, c->add_dtype, v, addend, q, low, high);
            if (later)
                *(vector *)(x + r * COLUMNS + q) = y;
            else
                store_vector(c->out_dtype, at + q * out_item, y);
        }
        if (at == done && !later)
            memcpy(to, done, (size_t)(columns * out_item));
    }
    if (!later)
        return;
    plk_apply(&c->act, rows * COLUMNS, x);
    for (int64_t r = 0; r < rows; r++) {
        for (int q = 0; q < COLUMNS; q += WIDTH)
            store_vector(c->out_dtype, done + q * out_item, *(const vector *)(x + r * COLUMNS + q));
        memcpy(e->y + ((row + r) * all + filter) * out_item, done, (size_t)(columns * out_item));
    }
}

static void finish_floats(const ending *e, const by_column *by, const plk_unit *v, int64_t row, int64_t rows,
                          int64_t filter, int64_t columns)
{
    const plk_narrow_conv *c = e->c;
    int bytes = c->out_dtype == PLK_I8 || c->out_dtype == PLK_U8;
    float low = c->low, high = c->high;
    if (bytes) {    /* limits that the dtype holds; an activation comes before them */
        low = low > (c->out_dtype == PLK_I8 ? -128 : 0) ? low : c->out_dtype == PLK_I8 ? -128 : 0;
        high = high < (c->out_dtype == PLK_I8 ? 127 : 255) ? high : c->out_dtype == PLK_I8 ? 127 : 255;
    }
    int fast = bytes && e->whole && !c->act.loop && columns == COLUMNS;
    int64_t at = row * c->filters + filter;
    if (fast && c->add_dtype < 0)
        finish_bytes(e, by, -1, v, e->y + at, NULL, rows, c->filters, low, high);
    else if (fast && c->add_dtype == PLK_I8)
        finish_bytes(e, by, PLK_I8, v, e->y + at, e->addend + at, rows, c->filters, low, high);
    else if (fast && c->add_dtype == PLK_U8)
        finish_bytes(e, by, PLK_U8, v, e->y + at, e->addend + at, rows, c->filters, low, high);
    else
        for (int64_t r = 0; r < rows; r += ROWS)
            finish_some(e, by, v + r * COLUMNS, row + r, least(ROWS, rows - r), filter, columns, low, high);
}

/* WIDTH sums and their bias: what int32 does not hold becomes its limit, as what lies beyond [low, high] does. */
PLK_INLINE plk_units finished_integers(plk_units x, const int32_t *bias, int32_t low, int32_t high)
{
    typedef uint32_t words __attribute__((vector_size(4 * WIDTH)));
    plk_units more = *(const plk_units *)bias, sum = (plk_units)((words)x + (words)more);
    plk_units over = ((x ^ sum) & (more ^ sum)) >> 31, limit = (sum >> 31) ^ INT32_MIN;
    sum = (sum & ~over) | (limit & over);
    plk_units less = sum < low, greater = sum > high;
    return (sum & ~(less | greater)) | (low & less) | (high & greater);
}

/* Sums that stay integers. */
static void finish_integers(const ending *e, const by_column *by, const plk_unit *v, int64_t row, int64_t rows,
                            int64_t filter, int64_t columns)
{
    const plk_narrow_conv *c = e->c;
    int64_t item = (int64_t)plk_dtype_bytes(c->out_dtype);
    int32_t low = c->out_dtype == PLK_I8 ? -128 : c->out_dtype == PLK_U8 ? 0 : INT32_MIN;
    int32_t high = c->out_dtype == PLK_I8 ? 127 : c->out_dtype == PLK_U8 ? 255 : INT32_MAX;
    char done[4 * COLUMNS];
    for (int64_t r = 0; r < rows; r++, v += COLUMNS) {
        char *to = e->y + ((row + r) * c->filters + filter) * item, *at = columns < COLUMNS ? done : to;
        for (int q = 0; q < COLUMNS; q += WIDTH) {
            plk_units sum = finished_integers(unshifted(by, v, q), by->bias + q, low, high);
            if (c->out_dtype == PLK_I32)
                *(plk_units *)(void *)(at + q * item) = sum;
            else
                store_bytes(at + q, (vector)sum);
        }
        if (at == done)
            memcpy(to, done, (size_t)(columns * item));
    }
}

/* Rows of outputs from `row` on, filters from `filter` on, of which there are `columns`. v: COLUMNS sums of a row. */
static void finish(const ending *e, const by_column *by, const plk_unit *v, int64_t row, int64_t rows, int64_t filter,
                   int64_t columns)
{
    if (e->integers)
        finish_integers(e, by, v, row, rows, filter, columns);
    else
        finish_floats(e, by, v, row, rows, filter, columns);
}
#endif
