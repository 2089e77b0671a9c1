/* Programs: a lowered graph, as instructions over one arena. */
#ifndef PLAIT_PROGRAM_H
#define PLAIT_PROGRAM_H
#include "engine.h"
#include "plan.h"
/* cffi reads from here on: */
enum { PL_SLOT_INPUT = 0, PL_SLOT_OUTPUT = 1, PL_SLOT_ARENA = 2 };
typedef struct { int32_t kind, index; int64_t offset_bytes; } pl_slot;   /* index: of the input or output */
/* plans: n_instr handles (borrowed, kept alive by the program); slots: for each instruction its inputs, then outputs;
 * scalars: for each instruction its dynamic parameters; in_modes: n_in of PL_READ/PL_WRITE/PL_READWRITE. All copied. */
uintptr_t pl_program_new(int n_in, const uint8_t *in_modes, int n_out, const size_t *out_bytes, int n_instr,
                         const uintptr_t *plans, const pl_slot *slots, const double *scalars, size_t arena_bytes,
                         int flags, int lane, int device, const char *name);
void pl_program_free(uintptr_t program);
/* The layers of its instructions, for the profiler: runs that are pushed from now on have these names. layers: n_instr
 * names that are never freed (pl_name), some of them NULL; copied. */
int pl_program_set_layers(uintptr_t program, const char *const *layers);
/* Before the first run: divides all instructions into n consecutive branches, which end before the instructions
 * ends[i]. Branches of the same section (numbers that ascend) are independent: up to `threads` of them run at once
 * where a run may use the thread pool, and one after the other elsewhere.  ends, sections: borrowed, copied. */
int pl_program_split(uintptr_t program, int threads, int n, const int32_t *ends, const int32_t *sections);
/* Before the first run: the scalars with these n indices are set anew by each run. at: borrowed, copied. */
int pl_program_set_dynamic(uintptr_t program, int n, const int32_t *at);
/* dynamic: the values of those scalars; borrowed, copied. */
int pl_program_run(uintptr_t program, const uintptr_t *in, uintptr_t *out, const double *dynamic, int32_t location);

/* Runs a program at once, inside a kernel and on this thread. data: memory of its inputs, then its outputs; scratch:
 * pl_program_scratch_bytes of the host; arena: pl_program_arena_bytes on the device of the arrays; both aligned to 64;
 * all borrowed. Random instructions take their counters from *counter, which moves on. */
size_t pl_program_scratch_bytes(uintptr_t program);
size_t pl_program_arena_bytes(uintptr_t program);
int pl_program_call(uintptr_t program, char *const *data, void *scratch, void *arena, uint64_t seed,
                    uint64_t *counter);
/* cffi stops reading here */

typedef struct { pl_plan *plan; int first_slot, n_bufs, first_scalar, n_scalars; bool random; } pl_instruction;

typedef struct pl_program {
    pl_object object;
    int n_in, n_out, n_instr, n_slots, n_random, n_dynamic, max_bufs, max_scalars, flags, lane, device;
    size_t arena_bytes;
    uint8_t *in_modes;
    size_t *out_bytes;
    pl_instruction *instr;
    pl_slot *slots;
    double *scalars;
    int64_t n_scalars;
    int32_t *dynamic;           /* indices of `scalars` that each run sets */
    int32_t *order, *last;      /* of inputs, then outputs: see pl_claims; n_releases of them */
    int32_t *first;             /* or NULL: see pl_claims */
    int n_releases;
    int n_branches, threads;
    int32_t *ends, *sections;   /* of branches: see pl_program_split */
    const char *name;
    struct layer_names *layers;      /* or NULL; the latest first: queued runs may have earlier ones */
    struct pl_replays *replays;      /* of a GPU, or NULL: recorded runs; replay.c */
} pl_program;

/* The payload of an op that runs a program; then the data pointers of inputs and outputs, scratch for the scalars and
 * the buffers of one instruction, all scalars if some of them are dynamic, its claims, the number of each array's
 * request, and a byte for each output. */
typedef struct {
    const pl_program *program;
    pl_op *op;               /* or NULL: no request of it ends early */
    int n_reported;          /* arrays of the program's `order` */
    double *scalars;         /* of one instruction that draws random numbers */
    const double *all;       /* of all instructions */
    void **bufs;
    int32_t *requests;
    uint64_t seed, counter;
    const char *const *layers;       /* of the instructions, or NULL */
    int64_t seq;             /* of its op; 0: none */
    int begin, end;          /* the instructions to run now */
    char *arena;
    char *data[];
} pl_program_args;

/* Fills in the buffers of an instruction; returns its scalars. Random instructions move the counter on. */
const double *pl_instruction_args(const pl_instruction *in, pl_program_args *call, void **bufs);
void pl_program_report(pl_program_args *call, int n_done);   /* the first n_done instructions are done */
int pl_section_end(const pl_program *p, int branch);         /* one past the last branch of its section */
/* Runs instructions [begin, end) on this thread; leaves *at on the one that failed, or on the end. */
int pl_instructions_run(pl_program_args *call, int *at);
#endif
