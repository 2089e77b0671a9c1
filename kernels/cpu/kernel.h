/* What every kernel file starts from: the kernel signature, dtypes, and compilation for several instruction sets.
 *
 * A file that includes "simd.h" is compiled once for each instruction set, through wrappers that generate.py writes;
 * PLK_KERNEL(name) then defines name_ISA, and a generated dispatcher called `name` picks one at run time.
 */
#ifndef PLK_KERNEL_H
#define PLK_KERNEL_H
#include <string.h>
#include "plait.h"
/* cffi reads from here on: */
enum { PLK_F32 = 0, PLK_F64, PLK_F16, PLK_U8, PLK_I32, PLK_I8, PLK_I64, PLK_BOOL, PLK_I16, PLK_U16, PLK_U32, PLK_U64,
       PLK_BF16, PLK_DTYPE_COUNT };              /* MXNet's type flags */
enum { PLK_MAX_DIMS = 8, PLK_MAX_INPUTS = 8 };
enum { PLK_BASELINE = 0, PLK_AVX2, PLK_AVX512, PLK_ISA_COUNT };
int plk_isa_best(void);                          /* what this machine runs */
int plk_isa_get(void);
void plk_isa_set(int isa);                       /* for tests: at most plk_isa_best() */
void plk_isa_limit(int isa);                     /* for tests: as if the machine ran no more */
/* A generated loop over n elements; bufs are contiguous: inputs, then outputs (which may be one of the inputs). */
typedef void (*plk_loop)(int64_t n, void *const *bufs, const double *scalars);
enum { PLK_ACT_SCALARS = 8 };
/* What is applied to each element of a result when it is done: a loop of one float32 input, or 0. */
typedef struct { uintptr_t loop; double scalars[PLK_ACT_SCALARS]; } plk_act;
/* cffi stops reading here */

static inline void plk_apply(const plk_act *act, int64_t n, float *y)
{
    if (act->loop)
        ((plk_loop)act->loop)(n, (void *const[]){y, y}, act->scalars);
}

static inline size_t plk_dtype_bytes(int dtype)
{
    static const uint8_t bytes[] = {4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2};
    _Static_assert(sizeof bytes == PLK_DTYPE_COUNT, "one size for each dtype");
    return bytes[dtype];
}

#ifndef PLK_ISA
#define PLK_NAME(name) name
#else
#define PLK_JOIN2(a, b) a##_##b
#define PLK_JOIN(a, b) PLK_JOIN2(a, b)
#define PLK_NAME(name) PLK_JOIN(name, PLK_ISA)
#endif
/* Defines a pl_kernel that plans can name. */
#define PLK_KERNEL(name) \
    int PLK_NAME(name)(const void *params, void *const *bufs, const double *scalars); \
    int PLK_NAME(name)(const void *params, void *const *bufs, const double *scalars)

/* Elements [begin, end) of n for thread i of n_threads, at multiples of `unit`. */
static inline void plk_share(int64_t n, int64_t unit, int i, int n_threads, int64_t *begin, int64_t *end)
{
    int64_t units = (n + unit - 1) / unit, per = units / n_threads, more = units % n_threads;
    int64_t first = i * per + (i < more ? i : more), last = first + per + (i < more);
    *begin = first * unit < n ? first * unit : n;
    *end = last * unit < n ? last * unit : n;
}
#endif
