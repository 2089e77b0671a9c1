// What needs PTX: conversions of 16-bit floats, tensor cores, asynchronous copies, barriers of a grid.
// The emulator (tests/gpu/emulator) replaces this file; nothing else in kernels/cuda/ holds inline assembly.
#pragma once
#define PL_DEVICE static __device__ __forceinline__

// ---- conversions: round to nearest even; NaN stays NaN ------------------------------------------
PL_DEVICE unsigned short half_of_float(float x)
{
    unsigned short r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
PL_DEVICE float float_of_half(unsigned short x)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}
PL_DEVICE unsigned short bfloat16_of_float(float x)
{
    unsigned short r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
}
// two at a time, `low` in the lower half: what a fragment of a tensor core holds
PL_DEVICE unsigned half2_of_floats(float low, float high)
{
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
PL_DEVICE unsigned bfloat162_of_floats(float low, float high)
{
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
PL_DEVICE unsigned tf32_of_float(float x)
{
    unsigned r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

// ---- fast functions, for 16-bit results: 2 ulp and flushed denormals; tanh 2^-11 ----------------
PL_DEVICE float fast_exp2(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
PL_DEVICE float fast_tanh(float x)
{
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
PL_DEVICE float fast_reciprocal(float x)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// ---- tensor cores: all lanes of a warp, d += a b ------------------------------------------------
// Lane l has g = l / 4, t = l % 4. Of a 16x16 (row g or g + 8): a[0] (g; 2t, 2t+1), a[1] (g+8; same),
// a[2] (g; 2t+8, +9), a[3] (g+8; 2t+8, +9). Of b 16x8: b[0] (2t, 2t+1; g), b[1] (2t+8, +9; g).
// Of d 16x8: d[0], d[1] (g; 2t, 2t+1), d[2], d[3] (g+8; same).
PL_DEVICE void mma_half(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PL_DEVICE void mma_bfloat16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// a 16x8: a[0] (g; t), a[1] (g+8; t), a[2] (g; t+4), a[3] (g+8; t+4); b 8x8: b[0] (t; g), b[1] (t+4; g); d as above.
PL_DEVICE void mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
PL_DEVICE unsigned shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}
// Four 8x8 matrices of 16-bit numbers from shared memory: lane l gives the address (16 bytes aligned) of row l % 8 of
// matrix l / 8, and gets (row g; 2t, 2t+1) of each. Transposed: (2t, 2t+1; g).
PL_DEVICE void load_matrix4(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
PL_DEVICE void load_matrix4_transposed(unsigned (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
// Two of them; the addresses of lanes 0 ... 15 count.
PL_DEVICE void load_matrix2(unsigned (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}
PL_DEVICE void load_matrix2_transposed(unsigned (&r)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(shared_address(row)) : "memory");
}

// ---- asynchronous copies to shared memory -------------------------------------------------------
// 16 bytes, both addresses aligned to 16; where not `valid`, zeros, and `from` is not read.
PL_DEVICE void copy_async16(void *shared, const void *from, bool valid = true)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(shared)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
PL_DEVICE void copy_async4(void *shared, const void *from, bool valid = true)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :: "r"(shared_address(shared)), "l"(from), "r"(valid ? 4 : 0) : "memory");
}
// Closes a group of this thread's copies; waits until at most N of the groups are not done (a __syncthreads must follow
// before other threads read).
PL_DEVICE void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> PL_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }

// ---- memory ---------------------------------------------------------------------------------------
// Loads and stores that other blocks of a running grid may see and have seen.
PL_DEVICE unsigned load_acquire(const unsigned *p)
{
    unsigned r;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(p) : "memory");
    return r;
}
PL_DEVICE void atomic_add_half(unsigned short *p, float v)
{
    asm volatile("{ .reg .b16 r; atom.global.add.noftz.f16 r, [%0], %1; }" :: "l"(p), "h"(half_of_float(v)) : "memory");
}

// ---- all blocks of a grid -------------------------------------------------------------------------
// Of a cooperative launch. count: one zero of global memory for the launch, the same for each barrier; round: how many
// barriers this thread has passed, counted here.
PL_DEVICE void grid_barrier(unsigned *count, unsigned &round)
{
    __syncthreads();
    round++;
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
        unsigned goal = round * gridDim.x * gridDim.y * gridDim.z;
        __threadfence();
        atomicAdd(count, 1u);
        while (load_acquire(count) < goal)
            __nanosleep(20);
        __threadfence();
    }
    __syncthreads();
}
