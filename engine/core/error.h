/* Errors: the last failure of each thread, the error that poisoned arrays share, and the errors not yet reported. */
#ifndef PLAIT_ERROR_H
#define PLAIT_ERROR_H
#include <stdbool.h>
#include <stdint.h>
/* cffi reads from here on: */
/* PL_AGAIN: nothing was done, call again.  PL_PENDING: of a polled function that is not done (flight.h). */
enum { PL_OK = 0, PL_FAILED = 1, PL_AGAIN = 2, PL_ENOMEM = 3, PL_EINVAL = 4, PL_EINDEX = 5, PL_ETIMEOUT = 6,
       PL_PENDING = 7 };
typedef int (*pl_fn)(void *arg);              /* returns PL_OK or pl_fail(...) */
typedef void (*pl_free_fn)(void *arg);
const char *pl_error_message(void);           /* of this thread's last failure; borrowed until the next one */
int pl_error_status(void);                    /* its status; of an op that failed: what its function returned */
int pl_fail(int status, const char *message); /* for kernels: keeps a copy of the message and returns status */
/* owner: given, kept with the error and passed to `release` at the end */
int pl_fail_with(int status, const char *message, pl_free_fn release, void *owner);
/* The owner of the error that was reported last, or NULL; borrowed until the next report or pl_error_forget. */
void *pl_error_owner(void);
void pl_error_forget(void);                   /* releases the error reported last to this thread, and its owner */
int32_t pl_error_location(void);              /* where the op was pushed whose error was reported last; -1: unknown */
const char *pl_error_name(void);              /* the name of that op */
/* cffi stops reading here */

typedef struct pl_error pl_error;
extern _Thread_local bool pl_failed;          /* this thread has a failure */
void pl_fail_forget(void);                    /* clears it; without the lock */
pl_error *pl_error_new(int status, const char *name, int32_t location);   /* from this thread's failure; never NULL */

/* With the lock: */
void pl_error_ref(pl_error *error);
void pl_error_unref(pl_error *error);
int pl_error_report(pl_error *error);         /* copies it to this thread and marks it as reported; PL_FAILED */
void pl_error_remember(pl_error *error);      /* adds it to the errors not yet reported */
/* For an error made before an op failed with it, and shared by several: names the first of them and remembers it. */
void pl_error_share(pl_error *error, const char *name, int32_t location);
pl_error *pl_error_oldest_unreported(void);   /* borrowed, or NULL */
void pl_error_forget_all(void);               /* in a forked child: they belong to the parent */
#endif
