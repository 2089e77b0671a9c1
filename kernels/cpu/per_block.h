/* Compiles the file PER_BLOCK once for each number of channels that a block may have: LANES. VEC, MASK: a register of
 * them; NAME(name): a name of its own; FMA: whether the instruction set multiplies and adds these at once. */
#ifdef BLOCKS_OF_4
#define LANES 4
#define VEC vec4
#define MASK mask4
#define NAME(name) name##_4
#define FMA 0
#include PER_BLOCK
#undef LANES
#undef VEC
#undef MASK
#undef NAME
#undef FMA
#endif
#ifdef BLOCKS_OF_8
#define LANES 8
#define VEC vec8
#define MASK mask8
#define NAME(name) name##_8
#ifdef __FMA__
#define FMA 1
#else
#define FMA 0
#endif
#include PER_BLOCK
#undef LANES
#undef VEC
#undef MASK
#undef NAME
#undef FMA
#endif
#ifdef BLOCKS_OF_16
#define LANES 16
#define VEC vec16
#define MASK mask16
#define NAME(name) name##_16
#ifdef __AVX512F__
#define FMA 1
#else
#define FMA 0
#endif
#include PER_BLOCK
#undef LANES
#undef VEC
#undef MASK
#undef NAME
#undef FMA
#endif
