/* Blocks of channels in kernels that are written once for LANES of them and compiled for several numbers.
 *
 * A block is one vector register: 16 channels with AVX-512, 8 with AVX2, otherwise 4 (NEON, SSE). Code for a lesser
 * instruction set than the machine's (tests lower it) meets the machine's blocks. Nothing is compiled for more floats
 * than a register of any of the architecture's machines: GCC keeps longer vectors in memory. */
#ifndef PLK_BLOCKS_OF_LANES_H
#define PLK_BLOCKS_OF_LANES_H
#include <stdint.h>

/* PLK_ONE_BLOCK: a compiled network meets the blocks of its own processor alone. */
#if defined(PLK_ONE_BLOCK) && defined(__AVX512F__)
#define BLOCKS_OF_16
#elif defined(PLK_ONE_BLOCK) && defined(__AVX2__)
#define BLOCKS_OF_8
#else
#if defined(__x86_64__) && !defined(PLK_ONE_BLOCK)
#define BLOCKS_OF_8
#define BLOCKS_OF_16
#endif
#if !defined(__AVX2__)
#define BLOCKS_OF_4
#endif
#endif

/* OF_LANES(n, name): the function `name` for blocks of n channels. */
#ifdef BLOCKS_OF_16
typedef float vec16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t mask16 __attribute__((vector_size(64)));
#endif
#ifdef BLOCKS_OF_8
typedef float vec8 __attribute__((vector_size(32), aligned(4)));
typedef int32_t mask8 __attribute__((vector_size(32)));
#endif
#ifdef BLOCKS_OF_4
typedef float vec4 __attribute__((vector_size(16), aligned(4)));
typedef int32_t mask4 __attribute__((vector_size(16)));
#endif
#if defined(BLOCKS_OF_4) && defined(BLOCKS_OF_8)
#define OF_LANES(n, name) ((n) == 4 ? name##_4 : (n) == 8 ? name##_8 : name##_16)
#elif defined(BLOCKS_OF_8) && defined(BLOCKS_OF_16)
#define OF_LANES(n, name) ((n) == 8 ? name##_8 : name##_16)
#elif defined(BLOCKS_OF_16)
#define OF_LANES(n, name) name##_16
#elif defined(BLOCKS_OF_8)
#define OF_LANES(n, name) name##_8
#else
#define OF_LANES(n, name) name##_4
#endif
#endif
