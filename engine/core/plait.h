/* plait's engine: the whole public interface.
 *
 * Three nouns. A Var guards one storage chunk: a version counter, a FIFO queue of requests, an error if the chunk is
 * poisoned. An Op is a function with the vars it reads and writes. A Lane is a queue of ready ops with a worker thread.
 * Reads of a var run together, writes alone, in the order of pushing. An op whose requests are all granted goes to its
 * lane, or runs inline on the caller when it is cheap. A failed op poisons what it would have written.
 *
 * Failure: an op that fails poisons what it writes; an op that reads poisoned data is skipped and passes the poison on;
 * an op that overwrites a whole array without reading it heals it. Every wait on a poisoned array reports the error.
 *
 * Pointers are borrowed (caller keeps), given (callee frees) or new (caller frees). Handles (uintptr_t) are pointers
 * that Python holds as plain ints; 0 means failure, the text is pl_error_last(). Everything is thread-safe.
 * Read on in: internal.h, engine.c (dependencies), wait.c, lane.c, team.c, process.c, error.c, storage.c, array.c,
 * plan.c, program.c, profiler.c.
 */
#ifndef PLAIT_H
#define PLAIT_H
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */

/* ---- status and errors ------------------------------------------------------------------------------------ */
enum { PL_OK = 0, PL_FAILED = 1, PL_AGAIN = 2, PL_ENOMEM = 3, PL_EINVAL = 4, PL_EINDEX = 5 };
typedef int (*pl_fn)(void *arg);              /* returns PL_OK or pl_fail(...) */
typedef void (*pl_free_fn)(void *arg);
const char *pl_error_last(void);              /* text of this thread's last failure; borrowed, until the next one */
int pl_error_status(void);                    /* its status; of an op that failed: what its function returned */
int pl_fail(int status, const char *text);    /* for kernels: keeps the text (copied) and returns status */
int pl_fail_with(int status, const char *text, pl_free_fn release, void *owner); /* owner: given, kept with the error */
void *pl_error_owner(void);                   /* the owner of the error reported last, or NULL; borrowed until
                                                 the next report or pl_error_forget */
void pl_error_forget(void);                   /* lets go of the error reported last to this thread, and of its owner */
int32_t pl_error_location(void);              /* where the op was pushed whose error a wait reported last; -1 unknown */
const char *pl_error_name(void);              /* the name of that op */

const char *pl_name(const char *text);        /* the one copy of a name, valid forever; NULL when out of memory */

/* ---- engine ----------------------------------------------------------------------------------------------- */
void pl_engine_set_naive(int naive);          /* 1: every op runs on its caller, in order */
int pl_engine_set_priority(int priority);     /* of what this thread pushes without one.  Returns the value before */
int pl_engine_set_inline(int on);             /* 1: this thread runs its ops itself where their arrays are free, dear
                                                 ones too.  Returns the value before */
void pl_engine_set_limits(int64_t n_ops, size_t held_bytes);  /* beyond either a push waits; 0 keeps a limit */
void pl_engine_set_patience(int timeout_ms);  /* a push that waited so long returns PL_AGAIN and has done nothing, so
                                                 that its caller can look for Ctrl-C; 0, as at the start: it waits on */
int pl_engine_set_bulk(int size);             /* this thread wakes a sleeping lane once per `size` ops or when anybody
                                                 waits; 0 or 1: at every op.  Returns the size before */
void pl_engine_stop(void);                    /* waits for all ops and joins the workers; they restart on demand */
int pl_engine_close(int timeout_ms);          /* from now on every op runs on its caller (end of process); waits for
                                                 the others.  PL_AGAIN when the time is over: call again */
void pl_engine_fail_at_exit(void);            /* a process that would end with status 0 ends with 1 */
void pl_engine_fork_begin(void);              /* before fork(), for callers that hold locks which ops need (the GIL) */
void pl_engine_fork_end(void);                /* after it, in parent and child */
/* All ops done. PL_AGAIN when the time is over; PL_FAILED with the oldest error not yet reported: call again for
 * the next one, until PL_OK.  Inside an op it fails at once. */
int pl_wait_all(int timeout_ms);
int pl_engine_is_lane(void);                  /* 1 on a worker thread */
int pl_team_threads(void);                    /* how many threads a lane's kernels have */
void pl_team_limit(int n_threads);            /* what this thread's kernels may have, for processes that share cores */
/* Around a kernel that opens a team of OpenMP's (oneDNN) with n_threads: helpers leave their cores to it.
 * Returns the usual number of threads, for the end. */
int pl_team_lend(int n_threads);
void pl_team_take_back(int n_threads, int usual);
int64_t pl_engine_pending(void);              /* ops pushed and not finished */
int pl_threads(int64_t work);                 /* how many threads `work` elementary steps deserve here */
/* Calls run(arg, i) for each piece i in [0, n_pieces), on this thread and up to n_threads - 1 that have nothing better
 * to do, each beginning with neighbours; all are done on return. Pieces never wait for each other and enter no OpenMP
 * region.
 * arg: borrowed.  Takes this thread alone where it is not the worker of cpu(0), or inside a piece. */
typedef void (*pl_piece)(void *arg, int64_t i);
void pl_team_run(int n_threads, int64_t n_pieces, pl_piece run, void *arg);
int pl_team_place(void);                      /* inside a piece: which of the n_threads this one is */
void pl_workspace_add(int64_t bytes);         /* counts scratch memory of threads in the statistics; negative: freed */
/* this thread's scratch memory, valid until the kernel returns; or NULL */
void *pl_scratch(size_t bytes);
void pl_seed(uint64_t seed);                  /* restarts the stream of random operators */
/* Where that stream is, to be returned to: the seed and how many draws were claimed. */
void pl_random_get(uint64_t *seed, uint64_t *counter);
void pl_random_set(uint64_t seed, uint64_t counter);

/* Queues fn(arg) after all earlier writers of `reads` and all earlier users of `writes` (array handles; one that is in
 * both is read and written).  arg: given, freed by free_arg (may be NULL) after fn or instead of it.  lane: PL_LANE_*;
 * device: id.  priority: higher first among ready ops.  name: borrowed for ever (a literal or pl_name), may be NULL.
 * fn may push and wait itself: a waiting worker runs other ready ops of its lane; the arrays that the op claimed are
 * ready inside it; a wait that can never end fails.
 * Returns PL_OK, or an error with nothing queued and arg still the caller's. */
enum { PL_LANE_CPU = 0, PL_LANE_IO = 1, PL_LANE_COMM = 2, PL_LANE_GPU_COMPUTE = 3, PL_LANE_GPU_H2D = 4,
       PL_LANE_GPU_D2H = 5, PL_LANE_GPU_COMM = 6, PL_LANE_COUNT = 7 };
int pl_noop(void *arg);                       /* a pl_fn that does nothing */
int pl_push(pl_fn fn, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads,
            const uintptr_t *writes, int n_writes, int lane, int device, int priority, const char *name,
            int32_t location);

/* ---- arrays: a view of a var's storage -------------------------------------------------------------------- */
enum { PL_MEMORY_HOST = 0, PL_MEMORY_PINNED = 1, PL_MEMORY_GPU = 2 };  /* of gpu(i): PL_MEMORY_GPU + i */
uintptr_t pl_array_new(size_t bytes);                             /* new; memory from the pool, uninitialised */
uintptr_t pl_array_new_in(int memory, size_t bytes);              /* new; page-locked needs pl_gpu_open */
uintptr_t pl_array_view(uintptr_t array, int64_t offset_bytes);   /* new; shares the var */
uintptr_t pl_array_wrap(void *data, size_t bytes, pl_free_fn release, void *owner); /* new; foreign memory */
uintptr_t pl_array_wrap_in(int memory, void *data, size_t bytes, pl_free_fn release, void *owner);
int pl_array_memory(uintptr_t array);                             /* PL_MEMORY_* */
void pl_array_free(uintptr_t array);                              /* storage lives until pending ops are done */
void *pl_array_data(uintptr_t array);                             /* wait first */
uint64_t pl_array_version(uintptr_t array);        /* finished writes of its var: they can be seen */
int pl_array_shares(uintptr_t a, uintptr_t b);                    /* 1: the same var */
int pl_array_users(uintptr_t array);                              /* arrays that share its var, itself too, and its
                                                                     requests that are not finished */
int pl_wait_read(uintptr_t array, int timeout_ms);                /* earlier writes done; PL_OK, PL_AGAIN, PL_FAILED */
int pl_wait_write(uintptr_t array, int timeout_ms);               /* earlier reads done too */
int pl_array_poisoned(uintptr_t array);
void pl_array_expose(uintptr_t array);        /* its memory was shown to others, who may write it at any time */
void pl_array_protect(uintptr_t array);       /* from now on an op that would write its memory is refused: PL_EINVAL */
int pl_array_protected(uintptr_t array);
/* Names the contents that an array has when all that is pushed is done: equal stamps, equal contents, while the array
 * that the first was taken of is kept.  Exposed arrays never give the same stamp twice. */
typedef struct { uint64_t var, data, writes; } pl_stamp;
void pl_arrays_stamp(const uintptr_t *arrays, int n, pl_stamp *stamps);
void pl_array_overwritten(uintptr_t array);   /* the caller waited for writing and stored new contents: heals */

/* ---- storage ---------------------------------------------------------------------------------------------- */
typedef struct {
    size_t used_bytes, pooled_bytes, peak_bytes;
    int64_t n_alloc, n_hit, workspace_bytes;
} pl_storage_stats;
void pl_storage_get_stats(pl_storage_stats *stats);
void pl_storage_trim(void);                   /* gives pooled memory back to the system */
enum { PL_GUARD_OFF = 0, PL_GUARD_AFTER = 1, PL_GUARD_BEFORE = 2 };
void pl_storage_guard(int side);              /* debugging: new arrays have an unreadable page at that side */
void pl_memory_get_stats(int memory, pl_storage_stats *stats);   /* of PL_MEMORY_PINNED or a GPU's */
void pl_memory_trim(int memory);              /* waits for what still uses it */

/* ---- plans: one operator call with everything known but the arrays ----------------------------------------- */
/* bufs: inputs, then outputs.  scalars: the dynamic parameters; for random plans then seed and call counter. */
typedef int (*pl_kernel)(const void *params, void *const *bufs, const double *scalars);
enum { PL_PLAN_INLINE = 1,   /* cheaper than a hand-over: run on the caller when ready */
       PL_PLAN_RANDOM = 2, PL_PLAN_OPENMP = 4 /* enters OpenMP by itself (oneDNN) */,
       PL_PLAN_PYTHON = 8,   /* takes the GIL: no stream's lock is held meanwhile */
       PL_PLAN_TO_HOST = 16, PL_PLAN_TO_PINNED = 32 /* where new outputs lie; else on the lane's device */ };
/* params: borrowed, copied.  mutates: n_in bytes, 1 = that input is written in place (may be NULL). */
uintptr_t pl_plan_new(pl_kernel kernel, const void *params, size_t params_bytes, int n_in, int n_out,
                      const size_t *out_bytes, const uint8_t *mutates, int n_scalars, int flags, int lane, int device,
                      const char *name);
void pl_plan_free(uintptr_t plan);            /* pending ops and programs keep it until they are done */
void pl_plan_own(uintptr_t plan, pl_free_fn release, void *owner);   /* owner: given, released with the plan */
int pl_plan_label(uintptr_t plan, const char *label);   /* shown by the profiler, e.g. "(64,128)x(128,10)" */
/* Runs a plan. out[i]: 0 asks for a new array, whose handle is stored there; otherwise that array is written.
 * On failure nothing is queued and out is as it was. */
int pl_invoke(uintptr_t plan, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location);
uintptr_t pl_invoke1(uintptr_t plan, uintptr_t a, double scalar);          /* one output: its handle, 0 on failure */
uintptr_t pl_invoke2(uintptr_t plan, uintptr_t a, uintptr_t b);

/* ---- programs: a graph lowered to instructions over one arena ---------------------------------------------- */
enum { PL_SLOT_INPUT = 0, PL_SLOT_OUTPUT = 1, PL_SLOT_ARENA = 2 };
typedef struct { int32_t kind, index; int64_t offset_bytes; } pl_slot;   /* index: of the input or output */
/* plans: n_instr handles (borrowed, kept alive by the program); slots: for each instruction its inputs, then outputs;
 * scalars: for each instruction its dynamic parameters; in_modes: n_in of PL_READ/PL_WRITE/PL_READWRITE. All copied. */
enum { PL_READ = 0, PL_WRITE = 1, PL_READWRITE = 2 };
uintptr_t pl_program_new(int n_in, const uint8_t *in_modes, int n_out, const size_t *out_bytes, int n_instr,
                         const uintptr_t *plans, const pl_slot *slots, const double *scalars, size_t arena_bytes,
                         int flags, int lane, int device, const char *name);
void pl_program_free(uintptr_t program);
/* Before the first run: all instructions fall into n consecutive branches, which end before the instructions ends[i].
 * Branches of equal section (an ascending number) are independent: up to `threads` of them run at once where a run owns
 * the OpenMP team, one after the other elsewhere.  ends, sections: borrowed, copied. */
int pl_program_split(uintptr_t program, int threads, int n, const int32_t *ends, const int32_t *sections);
/* Before the first run: each run gives the scalars at these n indices anew. at: borrowed, copied. */
int pl_program_give(uintptr_t program, int n, const int32_t *at);
/* numbers: those scalars; borrowed, copied. */
int pl_program_run(uintptr_t program, const uintptr_t *in, uintptr_t *out, const double *numbers, int32_t location);

/* Runs a program at once, inside a kernel and on this thread. data: memory of its inputs, then its outputs; room:
 * pl_program_room bytes of the host; arena: pl_program_arena bytes where the program's arrays lie; both aligned to 64;
 * all borrowed. Random instructions draw (seed, *counter), which moves on. */
size_t pl_program_room(uintptr_t program);
size_t pl_program_arena(uintptr_t program);
int pl_program_call(uintptr_t program, char *const *data, void *room, void *arena, uint64_t seed, uint64_t *counter);

/* ---- control flow: kernels whose params hold programs ------------------------------------------------------- */
/* A program and where its inputs come from: at[k] is the number of an input of the kernel (whole, or the slice of the
 * iteration), of a state, or of a constant. All borrowed from the plan's owner. */
enum { PL_PART_WHOLE = 0, PL_PART_SLICE = 1, PL_PART_STATE = 2, PL_PART_CONSTANT = 3 };
typedef struct {
    uintptr_t program;
    int32_t n_in, n_out;
    const int32_t *kinds, *at;
    const int64_t *slice_bytes;
    char *const *constants;
} pl_part;
/* bufs: n_in inputs, then outputs. Output result_at[k] has `length` slices, each an output stacked_at[k] of the body;
 * final_at[s] is state s at the end: it starts as input states_at[s], the body's output next_at[s] is the next one.
 * test: while true; its program may be 0. count_at: the input (int64) that tells the number of iterations, count_out:
 * the output that gets it; or -1. Slices that no iteration wrote are zeros. */
typedef struct {
    pl_part body, test;
    int64_t length;
    int32_t n_in, n_stacked, n_states, reverse, count_at, count_out, random, flag_bytes, flag_floating;
    const int32_t *states_at, *stacked_at, *next_at, *result_at, *final_at;
    const int64_t *state_bytes, *out_bytes;
} pl_loop;
/* ways: if test is true, else. Both write the first n_shared outputs; then way i writes those from first_own[i] on.
 * flag_at: the output (int64) that tells which way was gone, 1 or 0; or -1. */
typedef struct {
    pl_part test, ways[2];
    int32_t n_in, n_shared, first_own[2], flag_at, random, flag_bytes, flag_floating;
} pl_branch;
int pl_kernel_loop(const void *params, void *const *bufs, const double *scalars);
int pl_kernel_branch(const void *params, void *const *bufs, const double *scalars);

/* ---- GPUs ------------------------------------------------------------------------------------------------- */
/* Loads the driver's library (a path or name) unless it is loaded. PL_OK, or PL_FAILED: no driver, or no GPU. */
int pl_gpu_open(const char *library);
int pl_gpu_count(void);                       /* 0 before pl_gpu_open */
typedef struct {
    char name[128];
    int32_t major, minor, driver;             /* compute capability; driver: 13000 is CUDA 13.0 */
    int32_t n_multiprocessors, max_shared_bytes, warp_threads, max_block_threads;
    size_t total_bytes;
} pl_gpu_properties;
int pl_gpu_get_properties(int device, pl_gpu_properties *properties);
int pl_gpu_memory(int device, size_t *free_bytes, size_t *total_bytes);
/* image: a cubin, fatbin or PTX text that ends with 0; borrowed.  Modules stay loaded.  0: failure. */
uintptr_t pl_gpu_module(int device, const void *image);
uintptr_t pl_gpu_function(int device, uintptr_t module, const char *name);    /* its mangled name */
int pl_gpu_function_shared(int device, uintptr_t function, int32_t bytes);  /* dynamic shared memory beyond 48 KiB */

/* Inside a kernel of a plan on a GPU: its device is current on this thread, its stream's lock is held. */
int pl_gpu_device(void);
void *pl_gpu_stream(void);                    /* CUstream; NULL outside */
void *pl_gpu_compute_stream(int device);      /* of its compute lane, at any time; NULL: there is none */
void *pl_gpu_scratch(size_t bytes);           /* of the stream: until the kernel returns; NULL, with a text */
int pl_gpu_fail(int code, const char *what);  /* a CUresult as a status, with a text; PL_OK for 0 */

/* The kernel of plans that consist of CUDA launches; params: pl_launches (what it points to is the plan's owner's). */
enum { PL_LAUNCH_KERNEL = 0, PL_LAUNCH_FILL = 1, PL_LAUNCH_COPY = 2, PL_LAUNCH_TOGETHER = 3 };  /* all blocks at once */
enum { PL_ARGUMENT_BUFFER = 0, PL_ARGUMENT_SCRATCH = 1, PL_ARGUMENT_SCALAR = 2 };
enum { PL_SCALAR_FLOAT32 = 0, PL_SCALAR_FLOAT64 = 1, PL_SCALAR_INT32 = 2, PL_SCALAR_INT64 = 3, PL_SCALAR_UINT64 = 4 };
typedef struct { int32_t kind, index, at, type; int64_t offset_bytes; } pl_argument;   /* at: byte of the arguments */
typedef struct {
    uintptr_t function;
    int32_t kind, shared_bytes, n_params, first_param, n_arguments, first_argument, data_at, data_bytes;
    uint32_t grid[3], block[3];
} pl_launch;
typedef struct {
    int32_t n;
    int64_t scratch_bytes;
    const pl_launch *launches;
    const int32_t *offsets;                   /* where each parameter of a launch begins in its data */
    const pl_argument *arguments;             /* what a call puts into the data */
    /* constant arguments; FILL: (to, value, bytes), COPY: (to, from, bytes) */
    const char *data;
} pl_launches;
int pl_kernel_launch(const void *params, void *const *bufs, const double *scalars);
/* Inside a kernel with PL_PLAN_PYTHON: runs another kernel of its GPU, which may use scratch memory. */
int pl_kernel_run_locked(pl_kernel kernel, const void *params, void *const *bufs, const double *scalars);

/* The kernel of copies between memories; params: pl_transfer.  On the lanes GPU_H2D and GPU_D2H it is finished when the
 * copy is there.  staged: the page-locked source is used by nobody else, so nobody need wait. */
typedef struct { size_t bytes; int32_t staged; } pl_transfer;
int pl_kernel_transfer(const void *params, void *const *bufs, const double *scalars);
/* Inside a kernel with PL_PLAN_PYTHON: copies from and to its device, after all that its stream runs; waits. */
int pl_gpu_read(void *to, const void *from, size_t bytes);
int pl_gpu_write(void *to, const void *from, size_t bytes);

/* ---- profiler --------------------------------------------------------------------------------------------- */
enum { PL_EVENT_OP = 0, PL_EVENT_INSTRUCTION = 1 };    /* an instruction lies inside its program's op */
typedef struct {
    const char *name, *label;                 /* valid forever; label may be NULL */
    int64_t push_ns, start_ns, end_ns;        /* pl_profiler_now's clock; push_ns 0 for instructions */
    int64_t used_bytes;                       /* storage in use at the end */
    int32_t thread, kind;
} pl_event;
void pl_profiler_set(int on);
int64_t pl_profiler_now(void);                /* ns, monotonic */
int64_t pl_profiler_take(pl_event *events, int64_t max);   /* removes up to max events; how many; not in order */
const char *pl_profiler_thread(int thread);   /* "cpu(0)", "thread 3", ...; valid forever, NULL: no such thread */
/* cffi stops reading here */
#endif
