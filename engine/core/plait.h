/* plait's engine: the whole public interface.
 *
 * Three nouns. A Var guards one storage chunk: a version counter, a FIFO queue of requests, an error if the chunk is
 * poisoned. An Op is a function with the vars it reads and writes. A Lane is a queue of ready ops with a worker thread.
 * Reads of a var run together, writes alone, in the order of pushing. An op whose requests are all granted goes to its
 * lane, or runs inline on the caller when it is cheap. A failed op poisons what it would have written.
 *
 * Pointers are borrowed (caller keeps), given (callee frees) or new (caller frees). Handles (uintptr_t) are pointers
 * that Python holds as plain ints; 0 means failure, the text is pl_error_last(). Everything is thread-safe.
 * Read on in: internal.h, engine.c (dependencies), lane.c, storage.c, array.c, program.c.
 */
#ifndef PLAIT_H
#define PLAIT_H
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */

/* ---- status and errors ------------------------------------------------------------------------------------ */
enum { PL_OK = 0, PL_FAILED = 1, PL_AGAIN = 2, PL_ENOMEM = 3, PL_EINVAL = 4 };
const char *pl_error_last(void);              /* text of this thread's last failure; borrowed, until the next one */
int pl_fail(int status, const char *text);    /* for kernels: keeps the text (copied) and returns status */
int32_t pl_error_location(void);              /* where the op was pushed whose error a wait reported last; -1 unknown */
const char *pl_error_name(void);              /* the name of that op */

/* ---- engine ----------------------------------------------------------------------------------------------- */
typedef int (*pl_fn)(void *arg);              /* returns PL_OK or pl_fail(...) */
typedef void (*pl_free_fn)(void *arg);
void pl_engine_set_naive(int naive);          /* 1: every op runs on its caller, in order */
void pl_engine_stop(void);                    /* waits for all ops and joins the workers; they restart on demand */
int pl_wait_all(int timeout_ms);              /* PL_AGAIN when the time is over, PL_FAILED with an error nobody was told */
int pl_engine_is_lane(void);                  /* 1 on a worker thread */
int64_t pl_engine_pending(void);              /* ops pushed and not finished */
int pl_threads(int64_t work);                 /* how many OpenMP threads `work` elementary steps deserve here */
void *pl_scratch(size_t bytes);               /* this thread's scratch memory, valid until the kernel returns; or NULL */
void pl_seed(uint64_t seed);                  /* restarts the stream of random operators */

/* Queues fn(arg) after all earlier writers of `reads` and all earlier users of `writes` (array handles; one that is in
 * both is read and written).  arg: given, freed by free_arg (may be NULL) after fn.  lane: PL_LANE_*; device: id.
 * Returns PL_OK, or an error with nothing queued and arg still the caller's. */
enum { PL_LANE_CPU = 0, PL_LANE_IO = 1, PL_LANE_COMM = 2, PL_LANE_GPU_COMPUTE = 3, PL_LANE_GPU_H2D = 4,
       PL_LANE_GPU_D2H = 5, PL_LANE_COUNT = 6 };
int pl_push(pl_fn fn, void *arg, pl_free_fn free_arg, const uintptr_t *reads, int n_reads,
            const uintptr_t *writes, int n_writes, int lane, int device, int priority, const char *name,
            int32_t location);

/* ---- arrays: a view of a var's storage -------------------------------------------------------------------- */
uintptr_t pl_array_new(size_t bytes);                             /* new; memory from the pool, uninitialised */
uintptr_t pl_array_view(uintptr_t array, int64_t offset_bytes);   /* new; shares the var */
uintptr_t pl_array_wrap(void *data, size_t bytes, pl_free_fn release, void *owner); /* new; foreign memory */
void pl_array_free(uintptr_t array);                              /* storage lives until pending ops are done */
void *pl_array_data(uintptr_t array);                             /* wait first */
uint64_t pl_array_version(uintptr_t array);                       /* finished writes of its var */
int pl_array_shares(uintptr_t a, uintptr_t b);                    /* 1: the same var */
int pl_wait_read(uintptr_t array, int timeout_ms);                /* earlier writes done; PL_OK, PL_AGAIN, PL_FAILED */
int pl_wait_write(uintptr_t array, int timeout_ms);               /* earlier reads done too */
int pl_array_poisoned(uintptr_t array);

/* ---- storage ---------------------------------------------------------------------------------------------- */
typedef struct { size_t used_bytes, pooled_bytes, peak_bytes; int64_t n_alloc, n_hit; } pl_storage_stats;
void pl_storage_get_stats(pl_storage_stats *stats);
void pl_storage_trim(void);                   /* gives pooled memory back to the system */

/* ---- plans: one operator call with everything known but the arrays ----------------------------------------- */
/* bufs: inputs, then outputs.  scalars: the dynamic parameters; for random plans then seed and call counter. */
typedef int (*pl_kernel)(const void *params, void *const *bufs, const double *scalars);
enum { PL_PLAN_INLINE = 1,   /* cheaper than a hand-over: run on the caller when ready */
       PL_PLAN_RANDOM = 2, PL_PLAN_OPENMP = 4 /* enters OpenMP by itself (oneDNN) */ };
/* params: borrowed, copied.  mutates: n_in bytes, 1 = that input is written in place (may be NULL). */
uintptr_t pl_plan_new(pl_kernel kernel, const void *params, size_t params_bytes, int n_in, int n_out,
                      const size_t *out_bytes, const uint8_t *mutates, int n_scalars, int flags, int lane, int device,
                      double cost_us, const char *name);
void pl_plan_free(uintptr_t plan);
/* Runs a plan. out[i]: 0 asks for a new array, whose handle is stored there; otherwise that array is written. */
int pl_invoke(uintptr_t plan, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location);
uintptr_t pl_invoke1(uintptr_t plan, uintptr_t a, double scalar);          /* one output: its handle, 0 on failure */
uintptr_t pl_invoke2(uintptr_t plan, uintptr_t a, uintptr_t b);

/* ---- programs: a graph lowered to instructions over one arena ---------------------------------------------- */
enum { PL_SLOT_INPUT = 0, PL_SLOT_OUTPUT = 1, PL_SLOT_ARENA = 2 };
typedef struct { int32_t kind, index; int64_t offset_bytes; } pl_slot;   /* index: of the input or output */
/* plans: n_instr handles (borrowed, must outlive the program); slots: for each instruction its inputs, then outputs;
 * scalars: for each instruction its dynamic parameters; in_modes: n_in of PL_READ/PL_WRITE/PL_READWRITE. All copied. */
enum { PL_READ = 0, PL_WRITE = 1, PL_READWRITE = 2 };
uintptr_t pl_program_new(int n_in, const uint8_t *in_modes, int n_out, const size_t *out_bytes, int n_instr,
                         const uintptr_t *plans, const pl_slot *slots, const double *scalars, size_t arena_bytes,
                         int flags, int lane, int device, const char *name);
void pl_program_free(uintptr_t program);
int pl_program_run(uintptr_t program, const uintptr_t *in, uintptr_t *out, int32_t location);
/* cffi stops reading here */
#endif
