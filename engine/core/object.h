/* The engine's lock, and objects that count their references. */
#ifndef PLAIT_OBJECT_H
#define PLAIT_OBJECT_H
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

extern pthread_mutex_t pl_lock;               /* guards all state of the engine that no comment excepts */
void pl_enter(void);                          /* takes the lock */
void pl_leave(void);                          /* releases it, then destroys dead objects */
bool pl_flush(void);                          /* with the lock: true if it was released for a moment */

/* The head of vars, errors, plans and programs. An object with 0 references is destroyed outside the lock, because the
 * release function of its owner may be Python code. */
typedef struct pl_object pl_object;
struct pl_object { int32_t refs; void (*destroy)(pl_object *object); pl_object *next_dead; };
void pl_object_unref(pl_object *object);      /* with the lock */
#endif
