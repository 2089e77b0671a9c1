/* What a program consists of, for the files that run it. */
#ifndef PLAIT_PROGRAM_H
#define PLAIT_PROGRAM_H
#include "internal.h"

typedef struct { pl_plan *plan; int first_slot, n_bufs, first_scalar, n_scalars; bool random; } pl_instruction;

typedef struct pl_program {
    pl_object object;
    int n_in, n_out, n_instr, n_slots, n_random, n_given, max_bufs, max_scalars, flags, lane, device;
    size_t arena_bytes;
    uint8_t *in_modes;
    size_t *out_bytes;
    pl_instruction *instr;
    pl_slot *slots;
    double *scalars;
    int64_t n_scalars;
    int32_t *given;      /* where in `scalars` the numbers of a run go */
    int32_t *order, *last;      /* of inputs, then outputs: see pl_early; n_early of them */
    int n_early;
    int n_branches, threads;
    int32_t *ends, *sections;   /* of branches: see pl_program_split */
    const char *name;
    struct pl_replays *replays;      /* of a GPU, or NULL: recorded runs; replay.c */
} pl_program;

/* The payload of an op that runs a program; then the data pointers of inputs and outputs, room for one instruction's
 * scalars and buffers, a byte for each output, and all scalars where a run gives some of them. */
typedef struct {
    const pl_program *program;
    pl_op *op;               /* or NULL: nothing of it ends early */
    int n_told;              /* of the program's `order` */
    double *scalars;         /* of one instruction that draws random numbers */
    const double *all;       /* of all instructions */
    void **bufs;
    uint64_t seed, counter;
    char *arena;
    char *data[];
} pl_program_args;

/* Fills in the buffers of an instruction; returns its scalars. Random instructions move the counter on. */
const double *pl_instruction_args(const pl_instruction *in, pl_program_args *call, void **bufs);
void pl_program_tell(pl_program_args *call, int n_done);   /* the first n_done instructions have ended */
int pl_section_end(const pl_program *p, int branch);      /* behind the last branch of its section */
/* Runs all instructions on this thread; leaves *at on the one that failed. */
int pl_instructions_run(pl_program_args *call, int *at);

/* replay.c */
int pl_program_marks(pl_op *op);                          /* finds where events are recorded; how many */
void pl_program_mark(pl_program_args *call, int first_told, int n_done);
int pl_program_run_on_gpu(pl_op *op, pl_program_args *call, int *at);
void pl_replays_free(struct pl_replays *replays);
#endif
