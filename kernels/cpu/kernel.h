/* What every kernel file starts from: the kernel signature, and compilation for several instruction sets.
 *
 * A file that includes "simd.h" is compiled once for each instruction set, through wrappers that generate.py writes;
 * PLK_KERNEL(name) then defines name_ISA, and a generated dispatcher called `name` picks one at run time.
 */
#ifndef PLK_KERNEL_H
#define PLK_KERNEL_H
#include <stdint.h>
#include <string.h>
#include "engine/core/error.h"
/* cffi reads from here on: */
enum { PLK_MAX_DIMS = 8 };                       /* of an array */
/* cffi stops reading here */

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
#endif
