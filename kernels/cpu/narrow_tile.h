/* Register tiles of matrix products of narrow types (16-bit floats, 8-bit integers), and the packing of operands.
 *
 * Both operands are packed into *units* of 32 bits, each of PER_UNIT steps of depth, which one instruction multiplies
 * and adds up in the 32 bits of its result. So one layout and one tile serve every type:
 *
 *     way            a unit holds    one instruction                            where
 *     PLK_BY_FLOAT   1 float32       vfmadd231ps                                all; 16-bit floats are converted
 *     PLK_BY_BRAIN   2 bfloat16      vdpbf16ps                                  AVX512-BF16
 *     PLK_BY_INT     1 int32         multiply and add                           all
 *     PLK_BY_SHORT   2 int16         vpmaddwd, vpaddd                           x86
 *     PLK_BY_BYTE    4 bytes         vpdpbusd: unsigned rows, signed columns    AVX512-VNNI, B of int8
 *
 * AMX multiplies the units of the last two in tiles of its own: panels of A have more rows then, and larger chunks.
 * Missing steps, rows and columns are zeros. A signed A is shifted by 128 for vpdpbusd; the sums of B's columns correct
 * that. */
#ifndef PLK_NARROW_TILE_H
#define PLK_NARROW_TILE_H
#include "amx.h"
#include "dtype.h"
#include "half.h"
#include "narrow_way.h"
#include "tile.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef int32_t plk_unit __attribute__((may_alias));
typedef uint16_t half_word __attribute__((may_alias));
typedef float real_unit __attribute__((may_alias));
typedef int32_t plk_units __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));
typedef union { plk_unit whole; uint16_t halves[2]; uint8_t bytes[4]; } parts;
enum { RUN = 64, MOST_ROWS = (int)ROWS > AMX_ROWS ? (int)ROWS : AMX_ROWS };    /* RUN: units transposed at once */

/* ---- packing --------------------------------------------------------------------------------------------------- */

/* What an operand is packed from: the dtype, by how much a byte is shifted (128: int8 becomes uint8), is it for AMX */
typedef struct { int way, dtype, shift, amx; } source;

/* The rows of a panel of A, and how many units of a row are next to each other; a row of n units, in whole chunks */
PLK_INLINE int64_t rows_of(source s) { return s.amx ? (int)AMX_ROWS : (int)ROWS; }
PLK_INLINE int64_t chunk_of(source s) { return s.amx ? (int)AMX_UNITS : (int)CHUNK; }
static inline int64_t row_units(source s, int64_t n) { return up(n, chunk_of(s)) * chunk_of(s); }

#define EACH(n, T, U, expression) \
    { \
        const T *restrict x = from; \
        U *restrict y = to; \
        for (int64_t i = 0; i < n; i++) \
            y[i] = (U)(expression); \
        break; \
    }
/* n elements of one row, as they lie in units */
PLK_INLINE void convert_run(source s, void *to, const void *from, int64_t n)
{
    switch (s.way * PLK_DTYPE_COUNT + s.dtype) {
#if defined(__F16C__)
    case PLK_BY_FLOAT * PLK_DTYPE_COUNT + PLK_F16: {
        const half_word *x = from;
        float *y = to;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
        for (; i < n; i++)
            y[i] = half_to_float(x[i]);
        break;
    }
#else
    case PLK_BY_FLOAT * PLK_DTYPE_COUNT + PLK_F16: EACH(n, half_word, real_unit, half_to_float(x[i]))
#endif
    case PLK_BY_FLOAT * PLK_DTYPE_COUNT + PLK_BF16: EACH(n, half_word, plk_unit, (uint32_t)x[i] << 16)
    case PLK_BY_BRAIN * PLK_DTYPE_COUNT + PLK_BF16: memcpy(to, from, (size_t)n * 2); break;
    case PLK_BY_INT * PLK_DTYPE_COUNT + PLK_I8: EACH(n, int8_t, plk_unit, x[i])
    case PLK_BY_INT * PLK_DTYPE_COUNT + PLK_U8: EACH(n, uint8_t, plk_unit, x[i])
    case PLK_BY_SHORT * PLK_DTYPE_COUNT + PLK_I8: EACH(n, int8_t, half_word, x[i])
    case PLK_BY_SHORT * PLK_DTYPE_COUNT + PLK_U8: EACH(n, uint8_t, half_word, x[i])
    default:    /* PLK_BY_BYTE */
        if (s.shift)
            EACH(n, uint8_t, uint8_t, x[i] ^ 0x80)
        memcpy(to, from, (size_t)n);
    }
}
#undef EACH

/* Does `work` with the source `k`, a constant where elements are converted: then no loop chooses for each run. */
#define SOURCE(by, of, work) \
    case by * PLK_DTYPE_COUNT + of: { \
        const source k = {by, of, 0, 0}; \
        work; \
        break; \
    }
#define FOR_SOURCE(s, work) \
    switch ((s).way * PLK_DTYPE_COUNT + (s).dtype) { \
        SOURCE(PLK_BY_FLOAT, PLK_F16, work) \
        SOURCE(PLK_BY_FLOAT, PLK_BF16, work) \
        SOURCE(PLK_BY_INT, PLK_I8, work) \
        SOURCE(PLK_BY_INT, PLK_U8, work) \
        SOURCE(PLK_BY_SHORT, PLK_I8, work) \
        SOURCE(PLK_BY_SHORT, PLK_U8, work) \
        SOURCE(PLK_BY_BRAIN, PLK_BF16, work) \
    default: { \
        const source k = s; \
        work; \
    } \
    }

/* n floats in a 16-bit dtype, or as they are */
static inline void store_run(int dtype, char *to, const float *x, int64_t n)
{
    half_word *y = (half_word *)to;
    int64_t i = 0;
    if (dtype == PLK_BF16)
        for (; i < n; i++)
            y[i] = float_to_brain(x[i]);
#if defined(__F16C__)
    for (; dtype == PLK_F16 && i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
#endif
    for (; dtype == PLK_F16 && i < n; i++)
        y[i] = float_to_half(x[i]);
    if (dtype == PLK_F32)
        memcpy(to, x, (size_t)n * sizeof *x);
}

/* The low bytes of a vector's numbers. */
PLK_INLINE void store_bytes(char *to, vector v)
{
#if defined(__AVX512F__)
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8((__m512i)v));
#elif defined(__AVX2__)
    const __m256i low = _mm256_set1_epi32(0x0c080400), halves = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8((__m256i)v, low), halves);
    _mm_storel_epi64((__m128i *)(void *)to, _mm256_castsi256_si128(bytes));
#elif defined(__SSE2__)
    __m128i low = _mm_and_si128((__m128i)v, _mm_set1_epi32(0xff)), halves = _mm_packs_epi32(low, low);
    int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(halves, halves));
    memcpy(to, &bytes, sizeof bytes);
#else
    for (int l = 0; l < WIDTH; l++)
        to[l] = (char)((plk_units)v)[l];
#endif
}

#if defined(__AVX512F__)
/* vcvtneps2bf16 would take denormals for zeros. */
PLK_INLINE __m256i brains_of(__m512 v)
{
    __m512i b = _mm512_castps_si512(v), one = _mm512_set1_epi32(1), nan = _mm512_set1_epi32(0x400000);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), one);
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), b, nan);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}
#endif

/* A vector of results, rounded to a dtype: to nearest even. */
PLK_INLINE void store_vector(const int dtype, char *to, vector v)
{
    float x[WIDTH];
    switch (dtype) {
#if defined(__AVX512F__)
    case PLK_BF16: _mm256_storeu_si256((__m256i *)(void *)to, brains_of((__m512)v)); break;
#endif
    case PLK_F32: *(vector *)(void *)to = v; break;
    case PLK_I8:
    case PLK_U8: store_bytes(to, v + 12582912.0f); break;    /* that sum has no bits below 1 */
    default: memcpy(x, &v, sizeof x); store_run(dtype, to, x, WIDTH);
    }
}

/* One line of units from the lines of PER_UNIT steps, `width` elements each; lines past n_lines are zeros. */
PLK_INLINE void zip_lines(source s, plk_unit *to, const char *from, int64_t step_bytes, int64_t n_lines,
                             int64_t width)
{
    half_word halves[2][COLUMNS];
    int n_parts = per_unit(s.way);
    if (n_parts == 1) {
        if (width == COLUMNS)
            convert_run(s, to, from, COLUMNS);
        else
            convert_run(s, to, from, width);
        return;
    }
    if (n_parts == 2) {
        const half_word *x[2];
        for (int q = 0; q < 2; q++) {
            x[q] = halves[q];
            if (q >= n_lines)
                memset(halves[q], 0, sizeof halves[q]);
            else if (s.way == PLK_BY_BRAIN)
                x[q] = (const half_word *)(const void *)(from + q * step_bytes);
            else
                convert_run(s, halves[q], from + q * step_bytes, width);
        }
        if (width == COLUMNS)
            for (int j = 0; j < COLUMNS; j++)
                to[j] = (plk_unit)(x[0][j] | (uint32_t)x[1][j] << 16);
        else
            for (int64_t j = 0; j < width; j++)
                to[j] = (plk_unit)(x[0][j] | (uint32_t)x[1][j] << 16);
        return;
    }
    static const uint8_t none[COLUMNS];
    const uint8_t *x[4];
    for (int q = 0; q < 4; q++)
        x[q] = q < n_lines ? (const uint8_t *)from + q * step_bytes : none;
    uint32_t mask = s.shift ? 0x80808080u : 0;
    if (width == COLUMNS)
        for (int j = 0; j < COLUMNS; j++)
            to[j] = (plk_unit)(mask ^ (x[0][j] | (uint32_t)x[1][j] << 8 | (uint32_t)x[2][j] << 16 |
                                       (uint32_t)x[3][j] << 24));
    else
        for (int64_t j = 0; j < width; j++)
            to[j] = (plk_unit)(mask ^ (x[0][j] | (uint32_t)x[1][j] << 8 | (uint32_t)x[2][j] << 16 |
                                       (uint32_t)x[3][j] << 24));
}

/* Element (line, step) is at from + line * line_bytes + step * step_bytes; one of both is the size of an element. */
typedef struct {
    source as;
    const char *from;
    int64_t line_bytes, step_bytes;
} operand;

static inline operand operand_at(operand x, int64_t line, int64_t step)
{
    x.from += line * x.line_bytes + step * x.step_bytes;
    return x;
}

/* The last unit of a row, with zeros for the steps that it lacks */
static inline plk_unit last_unit(source s, const char *from, int64_t n)
{
    parts p = {0};
    convert_run(s, &p, from, n);
    return p.whole;
}

/* n chunks of a row, where a panel of A has them. step: 0, the same elements again and again */
static inline void place_chunks(source s, plk_unit *to, const char *from, int64_t n, int64_t step)
{
    if (s.amx) {
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * AMX_ROWS * AMX_UNITS, from + i * step, AMX_UNITS * sizeof *to);
        return;
    }
    switch (s.way) {
    case PLK_BY_BRAIN:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * ROWS * CHUNK, from + i * step, CHUNK * sizeof *to);
        break;
    case PLK_BY_BYTE:
        for (int64_t i = 0; i < n; i++) {
            uint64_t v[CHUNK / 2], mask = s.shift ? 0x8080808080808080u : 0;
            memcpy(v, from + i * step, sizeof v);
            for (int q = 0; q < CHUNK / 2; q++)
                v[q] ^= mask;
            memcpy(to + i * ROWS * CHUNK, v, sizeof v);
        }
        break;
    default:
        FOR_SOURCE(s, for (int64_t i = 0; i < n; i++)
                          convert_run(k, to + i * ROWS * CHUNK, from + i * step, CHUNK * per_unit(k.way)))
    }
}

/* A panel of A, of at most rows_of rows. If the steps of a row are contiguous, and for AMX: (chunk, row, units of a
 * chunk), else (unit, row). */
__attribute__((unused)) static void pack_rows(plk_unit *to, operand a, int64_t n_rows, int64_t depth)
{
    int64_t per = per_unit(a.as.way), n_units = up(depth, per), item = (int64_t)plk_dtype_bytes(a.as.dtype);
    int64_t rows = rows_of(a.as), chunk = chunk_of(a.as);
    if (n_rows < rows)
        memset(to, 0, sizeof *to * (size_t)(rows * row_units(a.as, n_units)));
    if (a.step_bytes == item) {
        for (int64_t r = 0; r < n_rows; r++) {
            const char *from = a.from + r * a.line_bytes;
            plk_unit *at = to + r * chunk;
            int64_t chunks = depth / (chunk * per), d = chunks * chunk * per;
            place_chunks(a.as, at, from, chunks, chunk * per * item);
            at += chunks * rows * chunk;
            int64_t whole = (depth - d) / per * per;
            convert_run(a.as, at, from + d * item, whole);
            if (d + whole < depth)
                at[whole / per] = last_unit(a.as, from + (d + whole) * item, depth - d - whole);
        }
    } else if (a.as.amx) {
        plk_unit lines[AMX_UNITS * AMX_ROWS];
        for (int64_t u = 0; u < n_units; u += AMX_UNITS, to += AMX_ROWS * AMX_UNITS) {
            int64_t n = least(AMX_UNITS, n_units - u);
            for (int64_t q = 0; q < n; q++)
                zip_lines(a.as, lines + q * AMX_ROWS, a.from + (u + q) * per * a.step_bytes, a.step_bytes,
                          least(per, depth - (u + q) * per), n_rows);
            transpose((float *)to, AMX_UNITS, (const float *)lines, AMX_ROWS, n, n_rows);
        }
    } else {
        FOR_SOURCE(a.as, for (int64_t u = 0; u < n_units; u++)
                             zip_lines(k, to + u * ROWS, a.from + u * per * a.step_bytes, a.step_bytes,
                                       least(per, depth - u * per), n_rows))
    }
}

/* A panel of B: lines of COLUMNS units. */
static void pack_columns(plk_unit *to, operand b, int64_t n_columns, int64_t depth)
{
    int64_t per = per_unit(b.as.way), n_units = up(depth, per), item = (int64_t)plk_dtype_bytes(b.as.dtype);
    if (n_columns < COLUMNS)
        memset(to, 0, sizeof *to * (size_t)(n_units * COLUMNS));
    if (b.step_bytes == item && b.line_bytes != item) {
        int64_t n_whole = depth / per;
        plk_unit run[HEIGHT * RUN];
        for (int64_t c = 0; c < n_columns; c += HEIGHT)    /* few lines at a time: they may share a set of the cache */
            for (int64_t u = 0; u < n_whole; u += RUN) {
                int64_t n = least(RUN, n_whole - u), some = least(HEIGHT, n_columns - c), step = RUN;
                const char *from = b.from + c * b.line_bytes + u * per * item;
                const float *lines = (const float *)run;
                /* units lie in memory as they are */
                if (per * item == 4 && !b.as.shift && b.line_bytes % 4 == 0 && (uintptr_t)from % 4 == 0) {
                    lines = (const float *)from;
                    step = b.line_bytes / 4;
                } else {
                    for (int64_t r = 0; r < some; r++)
                        convert_run(b.as, run + r * RUN, from + r * b.line_bytes, n * per);
                }
                transpose((float *)to + u * COLUMNS + c, COLUMNS, lines, step, some, n);
            }
        for (int64_t c = 0; c < n_columns && n_whole < n_units; c++)
            to[n_whole * COLUMNS + c] =
                last_unit(b.as, b.from + c * b.line_bytes + n_whole * per * item, depth - n_whole * per);
    } else {
        FOR_SOURCE(b.as, for (int64_t u = 0; u < n_units; u++)
                             zip_lines(k, to + u * COLUMNS, b.from + u * per * b.step_bytes, b.step_bytes,
                                       least(per, depth - u * per), n_columns))
    }
}

/* ---- the tile -------------------------------------------------------------------------------------------------- */

/* to += the product of two vectors of units. Sums of integers are instructions, since the compiler would add up the
 * products of two steps first, for which there are no registers. */
#if defined(__AVX512F__)
#define SHORT_PRODUCT(x, y) (plk_units)_mm512_madd_epi16((__m512i)(x), (__m512i)(y))
#define ADD_UNITS(sum, x) __asm__("vpaddd %1, %0, %0" : "+v"(sum) : "v"(x))
#elif defined(__AVX2__)
#define SHORT_PRODUCT(x, y) (plk_units)_mm256_madd_epi16((__m256i)(x), (__m256i)(y))
#define ADD_UNITS(sum, x) __asm__("vpaddd %1, %0, %0" : "+x"(sum) : "x"(x))
#elif defined(__SSE2__)
#define SHORT_PRODUCT(x, y) (plk_units)_mm_madd_epi16((__m128i)(x), (__m128i)(y))
#define ADD_UNITS(sum, x) __asm__("paddd %1, %0" : "+x"(sum) : "x"(x))
#else
#define SHORT_PRODUCT(x, y) ((x) * (y))    /* no way of this machine */
#define ADD_UNITS(sum, x) (sum += (x))
#endif
PLK_INLINE void add_units(const int way, plk_units *to, plk_units x, plk_units y)
{
    switch (way) {
#if defined(__AVX512F__)
    case PLK_BY_BRAIN: __asm__("vdpbf16ps %2, %1, %0" : "+v"(*to) : "v"(x), "v"(y)); break;
    case PLK_BY_BYTE: __asm__("vpdpbusd %2, %1, %0" : "+v"(*to) : "v"(x), "v"(y)); break;
#endif
    case PLK_BY_SHORT: {
        plk_units product = SHORT_PRODUCT(x, y);
        ADD_UNITS(*to, product);
        break;
    }
    case PLK_BY_INT: *to += x * y; break;
    default: {
        vector sum = (vector)*to;
        ADD_PRODUCT(sum, (vector)x, (vector)y);
        *to = (plk_units)sum;
    }
    }
}

/* acc[r * DOTS + c] += row r of A times column c of B, each contiguous along the depth */
enum { DOTS = 4 };
PLK_INLINE void unit_dots(const int way, const int n_rows, int64_t n_units, const plk_unit *a, int64_t a_step,
                          const plk_unit *b, int64_t b_step, plk_units *sums)
{
    plk_units acc[3][DOTS];
    _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[r][c] = sums[r * DOTS + c];
    _Pragma("GCC unroll 1") for (int64_t u = 0; u < n_units; u += WIDTH) {
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++) {
            plk_units y = *(const plk_units *)(b + c * b_step + u);
            _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
                add_units(way, &acc[r][c], *(const plk_units *)(a + r * a_step + u), y);
        }
    }
    _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            sums[r * DOTS + c] = acc[r][c];
}

/* A vector of 16-bit floats as float32. */
PLK_INLINE vector widened_floats(const int dtype, const half_word *x)
{
#if defined(__AVX512F__)
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)x);
    return dtype == PLK_BF16 ? (vector)_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16) : (vector)_mm512_cvtph_ps(v);
#elif defined(__AVX2__) && defined(__F16C__)
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)x);
    return dtype == PLK_BF16 ? (vector)_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16) : (vector)_mm256_cvtph_ps(v);
#else
    float y[WIDTH];
    convert_run((source){PLK_BY_FLOAT, dtype, 0, 0}, y, x, WIDTH);
    return *(const vector *)y;
#endif
}

/* The same as unit_dots where B is n 16-bit floats of each of DOTS lines: they are converted where they are used. */
PLK_INLINE void float_dots(const int dtype, const int n_rows, int64_t n, const plk_unit *a, int64_t a_step,
                           const char *b, int64_t b_bytes, plk_units *sums)
{
    vector acc[3][DOTS];
    _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            acc[r][c] = (vector)sums[r * DOTS + c];
    _Pragma("GCC unroll 1") for (int64_t u = 0; u < n; u += WIDTH) {
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++) {
            vector y = widened_floats(dtype, (const half_word *)(const void *)(b + c * b_bytes) + u);
            _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
                ADD_PRODUCT(acc[r][c], (vector)*(const plk_units *)(a + r * a_step + u), y);
        }
    }
    _Pragma("GCC unroll 3") for (int r = 0; r < n_rows; r++)
        _Pragma("GCC unroll 4") for (int c = 0; c < DOTS; c++)
            sums[r * DOTS + c] = (plk_units)acc[r][c];
}

/* out (n_rows x COLUMNS, out_step apart) = or += panels of A and B; element (row r, unit u) of A is at
 * u / chunk * next + u * step + r * row. */
#define STEP(s) \
    { \
        const plk_units *line = (const plk_units *)(b + s * COLUMNS), zeros = {0}; \
        plk_units b0 = line[0], b1 = line[1]; \
        _Pragma("GCC unroll 16") for (int r = 0; r < n_rows; r++) { \
            plk_units x = (r < ROWS / 2 ? a[r * row + s * step] : low[(r - ROWS / 2) * row + s * step]) - zeros; \
            add_units(way, &acc[r][0], x, b0); \
            add_units(way, &acc[r][1], x, b1); \
        } \
        __asm__ volatile("" ::: "memory"); \
    }
PLK_INLINE void unit_tile(const int way, const int n_rows, const int64_t chunk, const int64_t next, const int64_t row,
                          const int64_t step, int64_t n_units, const plk_unit *a, const plk_unit *b, plk_unit *out,
                          int64_t out_step, int add)
{
    plk_units acc[ROWS][2];
    _Pragma("GCC unroll 16") for (int r = 0; r < n_rows; r++) {
        acc[r][0] = add ? *(plk_units *)(out + r * out_step) : (plk_units){0};
        acc[r][1] = add ? *(plk_units *)(out + r * out_step + WIDTH) : (plk_units){0};
    }
    for (int64_t left = n_units; left > 0; left -= chunk, a += next) {
        int64_t n = left < chunk ? left : chunk;
        _Pragma("GCC unroll 1") for (; n >= 2; n -= 2, a += 2 * step, b += 2 * COLUMNS) {
            const plk_unit *low = a + ROWS / 2 * row;
            STEP(0) STEP(1)
        }
        if (n > 0) {
            const plk_unit *low = a + ROWS / 2 * row;
            STEP(0)
            a += step, b += COLUMNS;
        }
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < n_rows; r++) {
        *(plk_units *)(out + r * out_step) = acc[r][0];
        *(plk_units *)(out + r * out_step + WIDTH) = acc[r][1];
    }
}
#undef STEP

typedef void (*unit_product)(int64_t n_units, const plk_unit *a, const plk_unit *b, plk_unit *out, int64_t out_step,
                             int add);
#define TILE(name, way, n_rows, chunk, next, row, step) \
    __attribute__((noinline, unused)) static void name(int64_t n_units, const plk_unit *a, const plk_unit *b, \
                                                       plk_unit *out, int64_t out_step, int add) \
    { \
        unit_tile(way, n_rows, chunk, next, row, step, n_units, a, b, out, out_step, add); \
    }
#define TILES(name, way, n_rows) \
    TILE(name##_rows, way, n_rows, CHUNK, (ROWS - 1) * CHUNK, CHUNK, 1) \
    TILE(name##_steps, way, n_rows, INT64_MAX, 0, 1, ROWS)
#define WAYS(way) TILES(way##_all, way, ROWS) TILES(way##_few, way, FEW_ROWS) TILES(way##_one, way, 1)
#define OF(way) \
    {{way##_one_rows, way##_few_rows, way##_all_rows}, {way##_one_steps, way##_few_steps, way##_all_steps}}
WAYS(PLK_BY_FLOAT)
WAYS(PLK_BY_INT)
WAYS(PLK_BY_SHORT)
#if defined(__AVX512F__)
WAYS(PLK_BY_BRAIN)
WAYS(PLK_BY_BYTE)
#endif
/* [way][are the steps of A contiguous in a panel, not its rows: 0][height: one, few, all rows] */
static const unit_product unit_products[][2][3] = {
    [PLK_BY_FLOAT] = OF(PLK_BY_FLOAT), [PLK_BY_INT] = OF(PLK_BY_INT), [PLK_BY_SHORT] = OF(PLK_BY_SHORT),
#if defined(__AVX512F__)
    [PLK_BY_BRAIN] = OF(PLK_BY_BRAIN), [PLK_BY_BYTE] = OF(PLK_BY_BYTE),
#endif
};
#undef OF
#undef WAYS
#undef TILES
#undef TILE

/* out (rows x COLUMNS, out_step apart) = or += n_units of a panel of A times those of a panel of B; between the two
 * functions below. by_steps: the panel of A is (unit, row). */
static inline void multiply_panels(source s, int by_steps, int64_t rows, int64_t n_units, const plk_unit *a,
                                   const plk_unit *b, plk_unit *out, int64_t out_step, int add)
{
#if defined(__AVX512F__)
    if (s.amx) {
        (s.way == PLK_BY_BRAIN ? amx_brain : s.dtype == PLK_I8 ? amx_bytes : amx_plain_bytes)(
            n_units, a, b, out, out_step, add, rows > AMX_ROWS / 2);
        return;
    }
#endif
    unit_products[s.way][by_steps][rows == 1 ? 0 : rows <= FEW_ROWS ? 1 : 2](n_units, a, b, out, out_step, add);
}

/* n_units: of each of the next products */
static inline void begin_products(source s, int64_t n_units)
{
#if defined(__AVX512F__)
    if (s.amx)
        amx_begin(n_units % AMX_UNITS);
#endif
}

static inline void end_products(source s)
{
#if defined(__AVX512F__)
    if (s.amx)
        amx_end();
#endif
}
#endif
