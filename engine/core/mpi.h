/* Messages over MPI, whose functions are found in the library that mpi4py has loaded. */
#ifndef PLAIT_MPI_H
#define PLAIT_MPI_H
#include "error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */
/* Finds MPI's functions in a library that is already loaded.  byte, no_request: the handles of MPI_BYTE and
 * MPI_REQUEST_NULL; request_bytes: of such a handle in memory; truncated: MPI_ERR_TRUNCATE. */
int pl_mpi_open(const char *library, uintptr_t byte, uintptr_t no_request, size_t request_bytes, int largest_tag,
                int truncated);
/* cffi stops reading here */

/* Complete: for MPI. Arrived: taken by its operation. */
enum { PL_MESSAGE_NEW = 0, PL_MESSAGE_POSTED, PL_MESSAGE_COMPLETE, PL_MESSAGE_ARRIVED };
typedef struct { int64_t bytes; int state, code, n_got; bool sends; } pl_message;      /* code, n_got: once complete */

/* MPI need not be thread-safe: the caller's lock guards all that follows. */
typedef struct {
    int64_t credit_bytes, travelling_bytes;   /* that may be, and are, on their way */
    int64_t moved_ns;                         /* when a message was complete last */
    int64_t n_looks;
    bool is_new;                              /* something was posted since the last look */
    int largest_tag;
    int64_t n_messages, sent_bytes, n_works;  /* counts since the start; n_works: calls that let MPI work */
} pl_mpi_state;
extern pl_mpi_state pl_mpi;

/* Hands a message to MPI, which uses `data` until it is complete. name: of the operation, for errors. */
int pl_mpi_post(pl_message *m, bool sends, void *data, int64_t bytes, int peer, int tag, uintptr_t communicator,
                const char *name);
int pl_mpi_look(const char *name, bool *moved);   /* lets MPI work until it is idle, or messages are complete: *moved */
int pl_mpi_take(pl_message *m, const char *name);       /* takes one that is complete; fails where it failed */
bool pl_mpi_has_credit(int64_t bytes);        /* may so many more travel? So what has priority can overtake the rest */
#endif
