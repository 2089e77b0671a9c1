/* Conversion between any two dtypes, as NumPy's astype; floats beyond an integer type give what the processor gives. */
#include "cast.h"
#include "dtype.h"
#include "half.h"
#include "parts.h"
#include "simd.h"
#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static void halves_to_floats(int64_t n, const uint16_t *x, float *y)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#elif defined(__aarch64__)
    for (; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(x + i))));
#endif
    for (; i < n; i++)
        y[i] = half_to_float(x[i]);
}

static void floats_to_halves(int64_t n, const float *x, uint16_t *y)
{
    int64_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
#elif defined(__aarch64__)
    for (; i + 4 <= n; i += 4)
        vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(x + i))));
#endif
    for (; i < n; i++)
        y[i] = float_to_half(x[i]);
}

#define IDENTITY(v) (v)
#define NOT_ZERO(v) ((v) != 0)
#define LOOP(T, U, load, store) { \
    const T *x = in; U *y = out; \
    for (int64_t i = 0; i < n; i++) y[i] = (U)store(load(x[i])); \
    return; }
#define FROM_ALL(U) \
    switch (from) { \
    case PLK_F32: LOOP(float, U, IDENTITY, IDENTITY) \
    case PLK_F64: LOOP(double, U, IDENTITY, IDENTITY) \
    case PLK_F16: LOOP(uint16_t, U, half_to_float, IDENTITY) \
    case PLK_BF16: LOOP(uint16_t, U, brain_to_float, IDENTITY) \
    case PLK_U8: case PLK_BOOL: LOOP(uint8_t, U, IDENTITY, IDENTITY) \
    case PLK_I8: LOOP(int8_t, U, IDENTITY, IDENTITY) \
    case PLK_I16: LOOP(int16_t, U, IDENTITY, IDENTITY) \
    case PLK_U16: LOOP(uint16_t, U, IDENTITY, IDENTITY) \
    case PLK_I32: LOOP(int32_t, U, IDENTITY, IDENTITY) \
    case PLK_U32: LOOP(uint32_t, U, IDENTITY, IDENTITY) \
    case PLK_I64: LOOP(int64_t, U, IDENTITY, IDENTITY) \
    case PLK_U64: LOOP(uint64_t, U, IDENTITY, IDENTITY) \
    } return;
#define TO_ALL(T, whole) \
    switch (to) { \
    case PLK_F32: LOOP(T, float, IDENTITY, IDENTITY) \
    case PLK_F64: LOOP(T, double, IDENTITY, IDENTITY) \
    case PLK_F16: LOOP(T, uint16_t, (float), float_to_half) \
    case PLK_BF16: LOOP(T, uint16_t, (float), float_to_brain) \
    case PLK_U8: LOOP(T, uint8_t, whole, IDENTITY) \
    case PLK_I8: LOOP(T, int8_t, whole, IDENTITY) \
    case PLK_I16: LOOP(T, int16_t, whole, IDENTITY) \
    case PLK_U16: LOOP(T, uint16_t, whole, IDENTITY) \
    case PLK_I32: LOOP(T, int32_t, IDENTITY, IDENTITY) /* directly, not through int64: NumPy's result for NaN */ \
    case PLK_U32: LOOP(T, uint32_t, whole, IDENTITY) \
    case PLK_I64: LOOP(T, int64_t, whole, IDENTITY) \
    case PLK_U64: LOOP(T, uint64_t, whole, IDENTITY) \
    case PLK_BOOL: LOOP(T, uint8_t, IDENTITY, NOT_ZERO) \
    } return;

/* rare pairs: optimised for size */
#define PLK_SMALL __attribute__((optimize("O2")))
PLK_SMALL static void to_double(int64_t n, int from, const void *in, double *out) { FROM_ALL(double) }
PLK_SMALL static void to_int64(int64_t n, int from, const void *in, int64_t *out) { FROM_ALL(int64_t) }
static void to_float(int64_t n, int from, const void *in, float *out) { FROM_ALL(float) }
PLK_SMALL static void double_to(int64_t n, const double *in, int to, void *out) { TO_ALL(double, (int64_t)) }
static void float_to(int64_t n, const float *in, int to, void *out) { TO_ALL(float, (int64_t)) }
PLK_SMALL static void int64_to(int64_t n, const int64_t *in, int to, void *out) { TO_ALL(int64_t, IDENTITY) }

static int is_float(int dtype) { return dtype == PLK_F32 || dtype == PLK_F64 || dtype == PLK_F16 || dtype == PLK_BF16; }

static void convert(int64_t n, int from, const void *in, int to, void *out)
{
    if (from == to) {
        memmove(out, in, (size_t)n * plk_dtype_bytes(from));
        return;
    }
    if (to == PLK_BOOL && plk_dtype_bytes(from) == 1) {
        const uint8_t *x = in;
        uint8_t *y = out;
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] != 0;
        return;
    }
    if (from == PLK_F16 && to == PLK_F32) {
        halves_to_floats(n, in, out);
        return;
    }
    if (from == PLK_F32 && to == PLK_F16) {
        floats_to_halves(n, in, out);
        return;
    }
    if (to == PLK_F32) {
        to_float(n, from, in, out);
        return;
    }
    if (from == PLK_F32) {
        float_to(n, in, to, out);
        return;
    }
    enum { BLOCK = 512 };
    union { double f[BLOCK]; int64_t i[BLOCK]; } hub;    /* other pairs are converted through double or int64 */
    size_t from_bytes = plk_dtype_bytes(from), to_bytes = plk_dtype_bytes(to);
    for (int64_t at = 0, some; at < n; at += some) {
        some = n - at < BLOCK ? n - at : BLOCK;
        const void *x = (const char *)in + (size_t)at * from_bytes;
        void *y = (char *)out + (size_t)at * to_bytes;
        if (is_float(from) || is_float(to)) {
            to_double(some, from, x, hub.f);
            double_to(some, hub.f, to, y);
        } else {
            to_int64(some, from, x, hub.i);
            int64_to(some, hub.i, to, y);
        }
    }
}

static void cast_part(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_cast *p = call->params;
    convert(end - begin, p->from, (const char *)call->bufs[0] + (size_t)begin * plk_dtype_bytes(p->from), p->to,
            (char *)call->bufs[1] + (size_t)begin * plk_dtype_bytes(p->to));
}

/* bufs: x, y */
PLK_KERNEL(plk_cast_run)
{
    const plk_cast *p = params;
    plk_run_parts(p->n, p->n, 64, cast_part, &(plk_call){params, bufs, scalars});
    return PL_OK;
}
