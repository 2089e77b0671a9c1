/* Functions made from references by kernels/loops/c.py: the loops of one call, one after the other. */
#ifndef PLK_TRACED_H
#define PLK_TRACED_H
#include <stdint.h>
/* cffi reads from here on: */
enum { PLK_TRACED_ARGUMENTS = 512, PLK_TRACED_SCRATCH = -1, PLK_TRACED_CONSTANT = -2, PLK_TRACED_FIXED = -1 };
/* Elements [begin, end) of a loop. Returns whether an index was out of range: no memory outside arrays is touched. */
typedef int (*plk_traced_function)(int64_t begin, int64_t end, void *const *places, const int64_t *sizes,
                                   const double *numbers);
typedef struct { int32_t buffer; int64_t at; } plk_traced_place;  /* buffer: bufs[buffer], PLK_TRACED_...; at: bytes */
typedef struct { int32_t scalar; double value; } plk_traced_number;  /* scalars[scalar], PLK_TRACED_FIXED: value */
typedef struct {
    int32_t function;                            /* plk_traced_find() */
    int32_t n_places, n_numbers;
    const plk_traced_place *places;
    const int64_t *sizes;
    const plk_traced_number *numbers;
    int64_t n, unit, work;                       /* elements that threads share, in units; elementary steps */
} plk_traced_step;
typedef struct {
    int32_t n_steps;
    int64_t scratch_bytes;
    const plk_traced_step *steps;
    const char *error;                           /* where an index is out of range */
} plk_traced;
int plk_traced_find(const char *name);           /* -1: not generated */
plk_traced_function plk_traced_get(int function);
/* cffi stops reading here */
#endif
