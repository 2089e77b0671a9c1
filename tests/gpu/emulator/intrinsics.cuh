// The functions of kernels/cuda/intrinsics.cuh on the emulator.
#pragma once
#define PL_DEVICE static inline __attribute__((always_inline))

// ---- conversions --------------------------------------------------------------------------------
PL_DEVICE unsigned short half_of_float(float x)
{
    unsigned b = __float_as_uint(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
    if (a > 0x7f800000)
        return 0x7fff;
    if (a >= 0x477ff000)
        return (unsigned short)(sign | 0x7c00);
    if (a < 0x38800000)
        return (unsigned short)(sign | (__float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000));
    return (unsigned short)(sign | (a - 0x38000000 + 0xfff + (a >> 13 & 1)) >> 13);
}
PL_DEVICE float float_of_half(unsigned short h)
{
    unsigned sign = (unsigned)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00)
        return __uint_as_float(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    float f = __uint_as_float(rest << 13) * 5.192296858534828e33f; /* 2^112 */
    return __uint_as_float(sign | __float_as_uint(f));
}
PL_DEVICE unsigned short bfloat16_of_float(float x)
{
    unsigned b = __float_as_uint(x);
    return (unsigned short)(x != x ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16);
}
PL_DEVICE float emu_float_of_bfloat16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
PL_DEVICE unsigned half2_of_floats(float low, float high)
{
    return half_of_float(low) | (unsigned)half_of_float(high) << 16;
}
PL_DEVICE unsigned bfloat162_of_floats(float low, float high)
{
    return bfloat16_of_float(low) | (unsigned)bfloat16_of_float(high) << 16;
}
PL_DEVICE unsigned tf32_of_float(float x) { return (__float_as_uint(x) + 0x1000) & ~0x1fffu; }
PL_DEVICE float fast_exp2(float x) { return exp2f(x); }
PL_DEVICE float fast_tanh(float x) { return tanhf(x); }
PL_DEVICE float fast_reciprocal(float x) { return 1 / x; }

// ---- tensor cores -------------------------------------------------------------------------------
struct emu_fragments { unsigned a[4], b[2]; };
template <int K, class F>
static inline void emu_mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], F value, const char *file,
                           int line)
{
    emu_fragments mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const char *slots = emu_host_table->meet(~0u, &mine, sizeof mine, file, line);
    int g = emu_lane() / 4, t = emu_lane() % 4;
    emu_fragments rows[4], columns[2][4];
    for (int l = 0; l < 4; l++) {
        rows[l] = emu_slot<emu_fragments>(slots, g * 4 + l);
        columns[0][l] = emu_slot<emu_fragments>(slots, 2 * t * 4 + l);
        columns[1][l] = emu_slot<emu_fragments>(slots, (2 * t + 1) * 4 + l);
    }
    for (int i = 0; i < 4; i++) {
        double sum = 0;
        for (int k = 0; k < K; k++) {
            int lane = K == 16 ? k % 8 / 2 : k % 4, high = K == 16 ? k / 8 : k / 4, part = K == 16 ? k % 2 : 0;
            sum += (double)value(rows[lane].a[i / 2 + 2 * high], part) * value(columns[i % 2][lane].b[high], part);
        }
        d[i] += (float)sum;
    }
}
PL_DEVICE void mma_half(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_HERE)
{
    emu_mma<16>(
        d, a, b, [](unsigned v, int part) { return float_of_half((unsigned short)(v >> 16 * part)); }, file, line);
}
PL_DEVICE void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_HERE)
{
    emu_mma<16>(d, a, b, [](unsigned v, int part) { return emu_float_of_bfloat16((unsigned short)(v >> 16 * part)); },
                file, line);
}
PL_DEVICE void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], EMU_HERE)
{
    emu_mma<8>(d, a, b, [](unsigned v, int) { return __uint_as_float(v & ~0x1fffu); }, file, line);
}
template <int N>
static inline void emu_load_matrix(unsigned (&r)[N], const void *row, bool transposed, const char *file, int line)
{
    if (emu_lane() < 8 * N && (uintptr_t)row % 16)
        emu_host_table->fail("a row of load_matrix must be aligned to 16 bytes", file, line);
    const char *slots = emu_host_table->meet(~0u, &row, sizeof row, file, line);
    int g = emu_lane() / 4, t = emu_lane() % 4;
    for (int m = 0; m < N; m++) {
        unsigned short two[2];
        for (int k = 0; k < 2; k++) {
            int i = transposed ? 2 * t + k : g, j = transposed ? g : 2 * t + k;
            memcpy(&two[k], emu_slot<const char *>(slots, 8 * m + i) + 2 * j, 2);
        }
        r[m] = two[0] | (unsigned)two[1] << 16;
    }
    emu_host_table->meet(~0u, &row, sizeof row, file, line); /* nobody writes there before all have read */
}
PL_DEVICE void load_matrix4(unsigned (&r)[4], const void *row, EMU_HERE) { emu_load_matrix(r, row, false, file, line); }
PL_DEVICE void load_matrix4_transposed(unsigned (&r)[4], const void *row, EMU_HERE)
{
    emu_load_matrix(r, row, true, file, line);
}
PL_DEVICE void load_matrix2(unsigned (&r)[2], const void *row, EMU_HERE) { emu_load_matrix(r, row, false, file, line); }
PL_DEVICE void load_matrix2_transposed(unsigned (&r)[2], const void *row, EMU_HERE)
{
    emu_load_matrix(r, row, true, file, line);
}

// ---- asynchronous copies: done when somebody waits, no sooner -------------------------------------
static inline void emu_copy_async(void *to, const void *from, bool valid, int bytes, const char *file, int line)
{
    emu_thread *me = emu_self();
    if ((uintptr_t)to % bytes || (valid && (uintptr_t)from % bytes))
        emu_host_table->fail("an asynchronous copy must be aligned to its size", file, line);
    if (me->n_copies == EMU_COPIES)
        emu_host_table->fail("too many asynchronous copies that nobody waits for", file, line);
    me->copies[me->n_copies++] = {to, valid ? from : nullptr, bytes, me->group};
}
PL_DEVICE void copy_async16(void *to, const void *from, bool valid = true, EMU_HERE)
{
    emu_copy_async(to, from, valid, 16, file, line);
}
PL_DEVICE void copy_async4(void *to, const void *from, bool valid = true, EMU_HERE)
{
    emu_copy_async(to, from, valid, 4, file, line);
}
PL_DEVICE void copy_async_commit() { emu_self()->group++; }
template <int N> static inline void copy_async_wait()
{
    emu_thread *me = emu_self();
    int kept = 0;
    for (int i = 0; i < me->n_copies; i++) {
        const emu_copy &c = me->copies[i];
        if (c.group >= me->group - N)
            me->copies[kept++] = c;
        else if (c.from)
            memcpy(c.to, c.from, c.bytes);
        else
            memset(c.to, 0, c.bytes);
    }
    me->n_copies = kept;
}

// ---- memory and grids -----------------------------------------------------------------------------
PL_DEVICE unsigned load_acquire(const unsigned *p)
{
    emu_host_table->pause();
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
PL_DEVICE void atomic_add_half(unsigned short *p, float v)
{
    emu_atomic(p, [=](unsigned short a) { return half_of_float(float_of_half(a) + float_of_half(half_of_float(v))); });
}
PL_DEVICE void grid_barrier(unsigned *, unsigned &round, EMU_HERE)
{
    round++;
    emu_host_table->grid_barrier(file, line);
}
