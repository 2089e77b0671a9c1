/* Replaces the toolkit's headers: integer types, 16-bit floats, warp operations. */
#pragma once
#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#else
#include <math.h>
#include <stdint.h>
#endif
#include "intrinsics.cuh"

#define DEVICE __device__ __forceinline__

struct float16 { uint16_t bits; };
struct bfloat16 { uint16_t bits; };

DEVICE float to_float(float16 x) { return float_of_half(x.bits); }
DEVICE float to_float(bfloat16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
DEVICE float16 to_float16(float x) { return {half_of_float(x)}; }
DEVICE bfloat16 to_bfloat16(float x) { return {bfloat16_of_float(x)}; }
template<class T> DEVICE T shuffle_xor(T v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
