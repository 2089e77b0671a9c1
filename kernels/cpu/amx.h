/* Products of tiles by AMX, of the units of narrow_tile.h: 16 rows of 16 units times 16 units of 16 columns. There are
 * eight tiles: here 0 to 3 are sums, of two tiles of rows and two of columns; 4 and 6 hold A, 5 and 7 hold B. */
#ifndef PLK_AMX_H
#define PLK_AMX_H
#include <stdint.h>

enum { AMX_UNITS = 16, AMX_ROWS = 32 };    /* units of a chunk and rows of a panel of A: two tiles */

#if defined(__AVX512F__)
/* Between these two a thread multiplies. rest: units of the last chunk, for tiles 6 and 7; 0 if it is whole. */
static inline void amx_begin(int64_t rest)
{
    struct { uint8_t palette, start, none[14]; uint16_t bytes[16]; uint8_t rows[16]; } shapes = {.palette = 1};
    for (int t = 0; t < 8; t++)
        shapes.bytes[t] = 4 * AMX_UNITS, shapes.rows[t] = 16;
    if (rest)
        shapes.bytes[6] = (uint16_t)(4 * rest), shapes.rows[7] = (uint8_t)rest;
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
}

static inline void amx_end(void) { __asm__ volatile("tilerelease"); }

#define AMX_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define AMX_LOAD(t, at, step) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(at), "r"((int64_t)(step) * 4) : "memory")
#define AMX_STORE(t, at, step) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(at), "r"((int64_t)(step) * 4) : "memory")
#define AMX_MULTIPLY(op, sum, a, b) __asm__ volatile(op " %%tmm" #b ", %%tmm" #a ", %%tmm" #sum : :)

/* out (rows x 32 columns, out_step apart) = or += n_units of a panel of A times those of a panel of B. tall: more than
 * 16 rows. A panel of A is (chunk, 32 rows, 16 units), of B (unit, 32 columns). */
#define AMX_PRODUCT(name, op) \
    static void name(int64_t n_units, const int32_t *a, const int32_t *b, int32_t *out, int64_t out_step, int add, \
                     int tall) \
    { \
        const int64_t half = AMX_ROWS / 2 * AMX_UNITS, rest = n_units % AMX_UNITS; \
        int32_t *low = out + AMX_ROWS / 2 * out_step; \
        AMX_ZERO(0); \
        AMX_ZERO(1); \
        AMX_ZERO(2); \
        AMX_ZERO(3); \
        if (add) { \
            AMX_LOAD(0, out, out_step); \
            AMX_LOAD(1, out + 16, out_step); \
        } \
        if (add && tall) { \
            AMX_LOAD(2, low, out_step); \
            AMX_LOAD(3, low + 16, out_step); \
        } \
        for (int64_t n = n_units / AMX_UNITS; n > 0; n--, a += AMX_ROWS * AMX_UNITS, b += 32 * AMX_UNITS) { \
            AMX_LOAD(4, a, AMX_UNITS); \
            AMX_LOAD(5, b, 32); \
            AMX_MULTIPLY(op, 0, 4, 5); \
            if (!tall) { \
                AMX_LOAD(5, b + 16, 32); \
                AMX_MULTIPLY(op, 1, 4, 5); \
            } else if (!rest) { \
                AMX_LOAD(6, a + half, AMX_UNITS); \
                AMX_MULTIPLY(op, 2, 6, 5); \
                AMX_LOAD(7, b + 16, 32); \
                AMX_MULTIPLY(op, 1, 4, 7); \
                AMX_MULTIPLY(op, 3, 6, 7); \
            } else { \
                AMX_LOAD(4, a + half, AMX_UNITS); \
                AMX_MULTIPLY(op, 2, 4, 5); \
                AMX_LOAD(5, b + 16, 32); \
                AMX_MULTIPLY(op, 3, 4, 5); \
                AMX_LOAD(4, a, AMX_UNITS); \
                AMX_MULTIPLY(op, 1, 4, 5); \
            } \
        } \
        if (rest) { \
            AMX_LOAD(6, a, AMX_UNITS); \
            AMX_LOAD(7, b, 32); \
            AMX_MULTIPLY(op, 0, 6, 7); \
            if (tall) { \
                AMX_LOAD(6, a + half, AMX_UNITS); \
                AMX_MULTIPLY(op, 2, 6, 7); \
            } \
            AMX_LOAD(7, b + 16, 32); \
            if (tall) { \
                AMX_MULTIPLY(op, 3, 6, 7); \
                AMX_LOAD(6, a, AMX_UNITS); \
            } \
            AMX_MULTIPLY(op, 1, 6, 7); \
        } \
        AMX_STORE(0, out, out_step); \
        AMX_STORE(1, out + 16, out_step); \
        if (tall) { \
            AMX_STORE(2, low, out_step); \
            AMX_STORE(3, low + 16, out_step); \
        } \
    }
AMX_PRODUCT(amx_brain, "tdpbf16ps")
AMX_PRODUCT(amx_bytes, "tdpbssd")
AMX_PRODUCT(amx_plain_bytes, "tdpbusd")    /* unsigned rows */
#undef AMX_PRODUCT
#endif
#endif
