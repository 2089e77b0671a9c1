/* Blocks between unreadable pages, for debugging. */
#ifndef PLAIT_GUARD_H
#define PLAIT_GUARD_H
#include <stdbool.h>
#include <stddef.h>
/* cffi reads from here on: */
enum { PL_GUARD_OFF = 0, PL_GUARD_AFTER = 1, PL_GUARD_BEFORE = 2 };
void pl_storage_guard(int side);              /* new arrays have an unreadable page on that side */
/* cffi stops reading here */

/* With the lock: */
int pl_guard_side(void);                      /* PL_GUARD_* */
bool pl_guard_owns(const void *data);
void *pl_guard_alloc(size_t bytes);           /* NULL: out of memory or of addresses */
void pl_guard_free(void *data, size_t bytes);
#endif
