/* The CUDA language for g++: what a compiler of device code knows without any include. Each module includes this
 * first. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "device.h"

#define EMU_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

#define EMU_EXPORT extern "C" __attribute__((visibility("default")))

static const emu_host *emu_host_table;
EMU_EXPORT void emu_set_host(const emu_host *host) { emu_host_table = host; }
/* __shared__ variables are thread-local: a stream's thread runs its blocks */
static thread_local char emu_first_shared;
EMU_EXPORT void *emu_touch() { return &emu_first_shared; }

/* -fsanitize=alignment,bounds calls these; the data begins with the place: file, line, column */
struct emu_place { const char *file; unsigned line, column; };
void emu_out_of_bounds(emu_place *, unsigned long) __asm__("__ubsan_handle_out_of_bounds_abort");
void emu_misaligned(emu_place *, unsigned long) __asm__("__ubsan_handle_type_mismatch_v1_abort");
__attribute__((used)) void emu_out_of_bounds(emu_place *at, unsigned long index)
{
    char text[96];
    snprintf(text, sizeof text, "index %ld is out of the array's bounds", (long)index);
    emu_host_table->fail(text, at->file, (int)at->line);
}
__attribute__((used)) void emu_misaligned(emu_place *at, unsigned long address)
{
    char text[96];
    snprintf(text, sizeof text, "the address 0x%lx is not aligned for its type", address);
    emu_host_table->fail(text, at->file, (int)at->line);
}

static inline emu_thread *emu_self()
{
    return reinterpret_cast<emu_thread *>(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) &
                                          -(uintptr_t)EMU_STACK);
}

/* ---- qualifiers and indices ------------------------------------------------------------------------------------ */
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __global__
#define __shared__ thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __nv_bfloat16 use_bfloat16_of_device_cuh
#define threadIdx (emu_self()->thread_idx)
#define blockIdx (emu_self()->block_idx)
#define blockDim (emu_self()->block_dim)
#define gridDim (emu_self()->grid_dim)
#define warpSize 32

/* ---- vector types ---------------------------------------------------------------------------------------------- */
#define EMU_VECTORS(T, name, a2, a4)                                                                                   \
    struct name##1 { T x; };                                                                                           \
    struct alignas(a2) name##2 { T x, y; };                                                                            \
    struct name##3 { T x, y, z; };                                                                                     \
    struct alignas(a4) name##4 { T x, y, z, w; };                                                                      \
    static inline name##1 make_##name##1(T x) { return {x}; }                                                          \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                  \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                          \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(signed char, char, 2, 4)
EMU_VECTORS(unsigned char, uchar, 2, 4)
EMU_VECTORS(short, short, 4, 8)
EMU_VECTORS(unsigned short, ushort, 4, 8)
EMU_VECTORS(int, int, 8, 16)
EMU_VECTORS(unsigned, uint, 8, 16)
EMU_VECTORS(long, long, 16, 16)
EMU_VECTORS(unsigned long, ulong, 16, 16)
EMU_VECTORS(long long, longlong, 16, 16)
EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
EMU_VECTORS(float, float, 8, 16)
EMU_VECTORS(double, double, 16, 16)
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* ---- meeting points -------------------------------------------------------------------------------------------- */
static inline void __syncthreads(EMU_HERE) { emu_host_table->barrier(0, 0, file, line); }
static inline int __syncthreads_count(int p, EMU_HERE) { return emu_host_table->barrier(p, 0, file, line); }
static inline int __syncthreads_and(int p, EMU_HERE) { return emu_host_table->barrier(p, 1, file, line); }
static inline int __syncthreads_or(int p, EMU_HERE) { return emu_host_table->barrier(p, 2, file, line); }

template <class T> static inline T emu_slot(const char *slots, int lane)
{
    T v;
    memcpy(&v, slots + lane * EMU_SLOT, sizeof v);
    return v;
}
static inline void __syncwarp(unsigned mask = ~0u, EMU_HERE) { emu_host_table->meet(mask, &mask, 4, file, line); }
static inline int emu_lane() { return static_cast<int>(emu_self()->linear % EMU_WARP); }
/* the value of the lane `from`; of a lane that gave none it is rubbish, as on a GPU */
template <class T> static inline T emu_shuffle(unsigned mask, T v, int from, const char *file, int line)
{
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    const char *slots = emu_host_table->meet(mask, &v, sizeof v, file, line);
    if (!(mask >> from & 1))
        emu_host_table->fail("a shuffle reads a lane that is not in its mask", file, line);
    return emu_slot<T>(slots, from);
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32, EMU_HERE)
{
    return emu_shuffle(mask, v, (emu_lane() & ~(width - 1)) | (source & (width - 1)), file, line);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, EMU_HERE)
{
    int lane = emu_lane(), from = lane - static_cast<int>(by);
    return emu_shuffle(mask, v, from < (lane & ~(width - 1)) ? lane : from, file, line);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, EMU_HERE)
{
    int lane = emu_lane(), from = lane + static_cast<int>(by);
    return emu_shuffle(mask, v, from > (lane | (width - 1)) ? lane : from, file, line);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, EMU_HERE)
{
    int lane = emu_lane(), from = lane ^ by;
    return emu_shuffle(mask, v, from > (lane | (width - 1)) ? lane : from, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int p, EMU_HERE)
{
    const char *slots = emu_host_table->meet(mask, &p, sizeof p, file, line);
    unsigned found = 0, n = emu_self()->block_dim.x * emu_self()->block_dim.y * emu_self()->block_dim.z;
    for (unsigned l = 0, first = emu_self()->linear & ~31u; l < EMU_WARP && first + l < n; l++)
        found |= mask >> l & 1 && emu_slot<int>(slots, static_cast<int>(l)) ? 1u << l : 0;
    return found;
}
static inline int __any_sync(unsigned mask, int p, EMU_HERE) { return __ballot_sync(mask, p, file, line) != 0; }
static inline int __all_sync(unsigned mask, int p, EMU_HERE) { return __ballot_sync(mask, !p, file, line) == 0; }
template <class T> static inline unsigned __match_any_sync(unsigned mask, T v, EMU_HERE)
{
    const char *slots = emu_host_table->meet(mask, &v, sizeof v, file, line);
    unsigned found = 0, n = emu_self()->block_dim.x * emu_self()->block_dim.y * emu_self()->block_dim.z;
    for (unsigned l = 0, first = emu_self()->linear & ~31u; l < EMU_WARP && first + l < n; l++)
        found |= mask >> l & 1 && emu_slot<T>(slots, static_cast<int>(l)) == v ? 1u << l : 0;
    return found;
}
template <class T, class F> static inline T emu_reduce(unsigned mask, T v, F f, const char *file, int line)
{
    const char *slots = emu_host_table->meet(mask, &v, sizeof v, file, line);
    unsigned n = emu_self()->block_dim.x * emu_self()->block_dim.y * emu_self()->block_dim.z;
    T r = v;
    for (unsigned l = 0, first = emu_self()->linear & ~31u; l < EMU_WARP && first + l < n; l++)
        if (mask >> l & 1 && static_cast<int>(l) != emu_lane())
            r = f(r, emu_slot<T>(slots, static_cast<int>(l)));
    return r;
}
template <class T> static inline T __reduce_add_sync(unsigned mask, T v, EMU_HERE)
{
    return emu_reduce(mask, v, [](T a, T b) { return a + b; }, file, line);
}
template <class T> static inline T __reduce_max_sync(unsigned mask, T v, EMU_HERE)
{
    return emu_reduce(mask, v, [](T a, T b) { return a > b ? a : b; }, file, line);
}
template <class T> static inline T __reduce_min_sync(unsigned mask, T v, EMU_HERE)
{
    return emu_reduce(mask, v, [](T a, T b) { return a < b ? a : b; }, file, line);
}
static inline unsigned __activemask(EMU_HERE)
{
    emu_host_table->fail("__activemask says nothing about who will come: name the lanes", file, line);
    return 0;
}
static inline void __nanosleep(unsigned) { emu_host_table->pause(); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __threadfence(); }
static inline void __threadfence_system() { __threadfence(); }
static inline void emu_trap(EMU_HERE) { emu_host_table->fail("trap", file, line); }
#define __trap() emu_trap()
#undef assert
#define assert(c) ((c) ? (void)0 : emu_host_table->fail("assertion failed: " #c, __FILE__, __LINE__))
static inline long long clock64() { return 0; }

/* ---- atomics: of one address among all threads, since streams run side by side ----------------------------------- */
template <class T, class F> static inline T emu_atomic(T *p, F f)
{
    T old, now;
    __atomic_load(p, &old, __ATOMIC_SEQ_CST);
    do
        now = f(old);
    while (!__atomic_compare_exchange(p, &old, &now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    return old;
}
template<class T, class U> static inline T atomicAdd(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(a + T(v)); });
}
template<class T, class U> static inline T atomicSub(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(a - T(v)); });
}
template <class T, class U> static inline T atomicMin(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(v) < a ? T(v) : a; });
}
template <class T, class U> static inline T atomicMax(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(v) > a ? T(v) : a; });
}
template<class T, class U> static inline T atomicAnd(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(a & T(v)); });
}
template<class T, class U> static inline T atomicOr(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(a | T(v)); });
}
template<class T, class U> static inline T atomicXor(T *p, U v)
{
    return emu_atomic(p, [=](T a) { return T(a ^ T(v)); });
}
template <class T, class U> static inline T atomicExch(T *p, U v) { return emu_atomic(p, [=](T) { return T(v); }); }
static inline unsigned atomicInc(unsigned *p, unsigned most)
{
    return emu_atomic(p, [=](unsigned a) { return a >= most ? 0 : a + 1; });
}
static inline unsigned atomicDec(unsigned *p, unsigned most)
{
    return emu_atomic(p, [=](unsigned a) { return a == 0 || a > most ? most : a - 1; });
}
template <class T, class U, class V> static inline T atomicCAS(T *p, U expected, V desired)
{
    T old = T(expected), now = T(desired);
    __atomic_compare_exchange(p, &old, &now, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return old;
}

/* ---- bits and integers ------------------------------------------------------------------------------------------ */
template <class To, class From> static inline To emu_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &v, sizeof to);
    return to;
}
static inline int __float_as_int(float x) { return emu_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return emu_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emu_bits<double>(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t)a * b >> 32); }
static inline int __mulhi(int a, int b) { return static_cast<int>((int64_t)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return static_cast<unsigned long long>((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x)
{
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
    uint64_t v = (uint64_t)b << 32 | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++)
        r |= static_cast<unsigned>(v >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
    return c;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
    return static_cast<unsigned>(((uint64_t)high << 32 | low) << (n & 31) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
    return static_cast<unsigned>(((uint64_t)high << 32 | low) >> (n & 31));
}
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }

/* ---- arithmetic ------------------------------------------------------------------------------------------------- */
#define EMU_MINMAX(T)                                                                                                  \
    static inline T max(T a, T b) { return a > b ? a : b; }                                                            \
    static inline T min(T a, T b) { return a < b ? a : b; }
EMU_MINMAX(int)
EMU_MINMAX(unsigned)
EMU_MINMAX(long)
EMU_MINMAX(unsigned long)
EMU_MINMAX(long long)
EMU_MINMAX(unsigned long long)
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float min(float a, float b) { return fminf(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline int __float2int_rn(float x) { return static_cast<int>(rintf(x)); }
static inline int __float2int_rz(float x) { return static_cast<int>(x); }
static inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
static inline float __int2float_rn(int x) { return static_cast<float>(x); }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float a) { return 1 / a; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frsqrt_rn(float a) { return 1 / sqrtf(a); }
static inline float rsqrtf(float a) { return 1 / sqrtf(a); }
static inline double rsqrt(double a) { return 1 / sqrt(a); }
static inline float rcbrtf(float a) { return 1 / cbrtf(a); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
/* libm has functions of these names */
#define __expf emu__expf
#define __exp10f emu__exp10f
#define __logf emu__logf
#define __log2f emu__log2f
#define __powf emu__powf
#define __sinf emu__sinf
#define __cosf emu__cosf
#define __tanhf emu__tanhf
#define __sincosf emu__sincosf
static inline float __expf(float x) { return expf(x); }
static inline float __exp10f(float x) { return powf(10, x); }
static inline float __logf(float x) { return logf(x); }
static inline float __log2f(float x) { return log2f(x); }
static inline float __powf(float x, float y) { return powf(x, y); }
static inline float __sinf(float x) { return sinf(x); }
static inline float __cosf(float x) { return cosf(x); }
static inline float __tanhf(float x) { return tanhf(x); }
static inline void __sincosf(float x, float *s, float *c) { *s = sinf(x), *c = cosf(x); }
static inline float sinpif(float x) { return static_cast<float>(sin(x * 3.14159265358979323846)); }
static inline float cospif(float x) { return static_cast<float>(cos(x * 3.14159265358979323846)); }
static inline double sinpi(double x) { return sin(x * 3.14159265358979323846); }
static inline double cospi(double x) { return cos(x * 3.14159265358979323846); }
static inline void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
static inline float normcdff(float x) { return static_cast<float>(normcdf(x)); }
static inline double erfinv(double x) /* Winitzki's start, Newton and Halley's steps */
{
    if (!(x > -1 && x < 1))
        return x == 1 ? INFINITY : x == -1 ? -INFINITY : NAN;
    double l = log((1 - x) * (1 + x)), t = 4.3307467508 + l / 2;
    double y = copysign(sqrt(sqrt(t * t - l / 0.147) - t), x);
    for (int i = 0; i < 3; i++) {
        double e = x < 0 ? erfc(-y) - (1 + x) : (1 - x) - erfc(y);
        double step = e / (1.1283791670955126 * exp(-y * y));
        y -= step / (1 + y * step);
    }
    return x == 0 ? x : y;
}
static inline float erfinvf(float x) { return static_cast<float>(erfinv(x)); }

/* ---- kernels by name -------------------------------------------------------------------------------------------- */
template <class T> struct emu_plain { typedef T type; };
template <class T> struct emu_plain<T &> { typedef T type; };
template <class T> struct emu_plain<const T> { typedef T type; };
template <size_t... I> struct emu_indices {};
template <size_t N, size_t... I> struct emu_count : emu_count<N - 1, N - 1, I...> {};
template <size_t... I> struct emu_count<0, I...> { typedef emu_indices<I...> type; };
template <auto F, class T = decltype(F)> struct emu_call;
template <auto F, class... A> struct emu_call<F, void (*)(A...)> {
    template <size_t... I> static void with(void *const *args, emu_indices<I...>)
    {
        F(*static_cast<typename emu_plain<A>::type *>(args[I])...);
    }
    static void call(void *const *args) { with(args, typename emu_count<sizeof...(A)>::type()); }
    static constexpr int n = sizeof...(A);
    static constexpr size_t sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
};
#define EMU_KERNEL(name, ...)                                                                                          \
    {name, emu_call<&__VA_ARGS__>::call, emu_call<&__VA_ARGS__>::n, emu_call<&__VA_ARGS__>::sizes}
