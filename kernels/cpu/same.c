/* Are two arrays equal in all elements? The first block that differs ends the search. */
#include "dtype.h"
#include "parts.h"
#include "search.h"
#include "simd.h"

enum { BLOCK_BYTES = 4096 };

/* Halves as bits: NaN, above infinity without its sign, is not equal to itself, and 0 is equal to -0. */
#define DIFFER(a, b) ((a) != (b))
#define DIFFER_HALF(a, b, INFINITE) \
    ((((a) != (b)) & ((((a) | (b)) & 0x7fff) != 0)) | (((a) & 0x7fff) > INFINITE) | (((b) & 0x7fff) > INFINITE))
#define DIFFER_F16(a, b) DIFFER_HALF(a, b, 0x7c00)
#define DIFFER_BF16(a, b) DIFFER_HALF(a, b, 0x7f80)
#define BLOCK_DIFFERS(T, HOW) { \
    const T *a = (const T *)x, *b = (const T *)y; \
    T any = 0; \
    for (int64_t i = 0; i < n; i++) \
        any |= (T)HOW(a[i], b[i]); \
    return any != 0; }
#define FLOATS_DIFFER(T, WHOLE) { \
    const T *a = (const T *)x, *b = (const T *)y; \
    WHOLE any = 0; \
    for (int64_t i = 0; i < n; i++) \
        any |= a[i] != b[i] ? 1 : 0; \
    return any != 0; }

static int block_differs(const char *x, const char *y, int64_t n, int dtype)
{
    switch (dtype) {
    case PLK_F32: FLOATS_DIFFER(float, int32_t)
    case PLK_F64: FLOATS_DIFFER(double, int64_t)
    case PLK_F16: BLOCK_DIFFERS(uint16_t, DIFFER_F16)
    case PLK_BF16: BLOCK_DIFFERS(uint16_t, DIFFER_BF16)
    default: return memcmp(x, y, (size_t)n * plk_dtype_bytes(dtype)) != 0;
    }
}

typedef struct { const plk_numbers *p; const char *x, *y; int differ; } comparison;

static void compare_part(void *arg, int64_t begin, int64_t end)
{
    comparison *c = arg;
    int64_t size = (int64_t)plk_dtype_bytes(c->p->dtype), most = BLOCK_BYTES / size;
    for (int64_t at = begin; at < end && !__atomic_load_n(&c->differ, __ATOMIC_RELAXED); at += most)
        if (block_differs(c->x + at * size, c->y + at * size, end - at < most ? end - at : most, c->p->dtype))
            __atomic_store_n(&c->differ, 1, __ATOMIC_RELAXED);
}

/* bufs: x, y, a bool */
PLK_KERNEL(plk_same_run)
{
    const plk_numbers *p = params;
    comparison c = {p, bufs[0], bufs[1], 0};
    (void)scalars;
    plk_run_parts(p->n / 2, p->n, 64, compare_part, &c);
    *(uint8_t *)bufs[2] = !c.differ;
    return PL_OK;
}
