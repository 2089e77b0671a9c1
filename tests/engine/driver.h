/* Shared by the files of the driver. */
#ifndef PLAIT_DRIVER_H
#define PLAIT_DRIVER_H
#include "engine/core/process.h"
#include "engine/core/program.h"
#include "engine/core/push.h"
#include "engine/core/wait.h"

#define CHECK(condition) ((condition) ? (void)0 : fail_at(__FILE__, __LINE__, #condition))

_Noreturn void fail_at(const char *file, int line, const char *condition);
int wait_read(uintptr_t array);
int wait_all(void);
void report_all(void);                        /* waits until nothing is pending and every error is reported */

/* Kernels of doubles: the sum of two; x * scalar + 0.5 (of plan_of); a failure; a random call's seed and counter. */
int add_run(const void *params, void *const *bufs, const double *scalars);
int scale_run(const void *params, void *const *bufs, const double *scalars);
int fails_run(const void *params, void *const *bufs, const double *scalars);
int random_run(const void *params, void *const *bufs, const double *scalars);
extern const size_t one_double[];
uintptr_t plan_of(pl_kernel kernel, int n_in, int n_scalars, int flags);
uintptr_t double_array(double value);
double double_value(uintptr_t array);             /* waits for it */
uintptr_t array_of(uint64_t value);
void nothing_is_left(void);                      /* no op is pending, no thread is blocked */

/* rules.c */
void rules(void);
uintptr_t small_program(uintptr_t add, uintptr_t scale, uintptr_t random);

/* memory.c */
void memory_failures(void);

/* programs.c */
void random_control(uint64_t seed);

/* claims.c */
void claims_rules(void);

/* claims_random.c */
void random_claims(uint64_t seed);

/* flight.c */
void flight_rules(void);
bool flight_memory(void);                     /* true when nothing failed */

/* flight_random.c */
void random_flight(uint64_t seed);

/* messages.c: first open_messages, last failed_messages */
void open_messages(void);
void random_messages(uint64_t seed);
void failed_messages(void);

/* regions.c */
void regions(void);

/* beats.c */
void beats(void);
#endif
