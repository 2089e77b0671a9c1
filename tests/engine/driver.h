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
void report_all(void);                        /* waits until nothing is pending and every error is reported */

/* programs.c */
void random_control(uint64_t seed);

/* early.c */
void early_rules(void);
void random_early(uint64_t seed);

/* flight.c */
void flight_rules(void);
bool flight_memory(void);                     /* true when nothing failed */
void random_flight(uint64_t seed);

/* regions.c */
void regions(void);

/* beats.c */
void beats(void);
#endif
