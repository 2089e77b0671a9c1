/* Kernels of control flow, whose params hold programs: loops and branches. */
#ifndef PLAIT_CONTROL_H
#define PLAIT_CONTROL_H
#include <stdint.h>
/* cffi reads from here on: */
/* A program and the sources of its inputs: at[k] is the number of an input of the kernel (the whole array, or the slice
 * of the iteration), of a state, or of a constant. All borrowed from the plan's owner. */
enum { PL_PART_WHOLE = 0, PL_PART_SLICE = 1, PL_PART_STATE = 2, PL_PART_CONSTANT = 3 };
typedef struct {
    uintptr_t program;
    int32_t n_in, n_out;
    const int32_t *kinds, *at;
    const int64_t *slice_bytes;
    char *const *constants;
} pl_part;
/* bufs: n_in inputs, then outputs. Output result_at[k] has `length` slices, each an output stacked_at[k] of the body.
 * final_at[s] is state s at the end: it starts as input states_at[s], and the body's output next_at[s] is its next
 * value. test: the loop runs while it is true; its program may be 0. count_at: the input (int64) with the number of
 * iterations; count_out: the output that gets it; or -1. Slices that no iteration wrote are zeros. */
typedef struct {
    pl_part body, test;
    int64_t length;
    int32_t n_in, n_stacked, n_states, reverse, count_at, count_out, random, flag_bytes, flag_floating;
    const int32_t *states_at, *stacked_at, *next_at, *result_at, *final_at;
    const int64_t *state_bytes, *out_bytes;
} pl_loop;
/* ways[0] runs if test is true, else ways[1]. Both write the first n_shared outputs; then way i writes those from
 * first_own[i] on. flag_at: the output (int64) that gets 1 if test was true, else 0; or -1. */
typedef struct {
    pl_part test, ways[2];
    int32_t n_in, n_shared, first_own[2], flag_at, random, flag_bytes, flag_floating;
} pl_branch;
int pl_kernel_loop(const void *params, void *const *bufs, const double *scalars);
int pl_kernel_branch(const void *params, void *const *bufs, const double *scalars);
/* cffi stops reading here */
#endif
