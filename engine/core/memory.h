/* Blocks of memory of GPUs, and of page-locked memory of the host; pooled in the host's size classes. */
#ifndef PLAIT_MEMORY_H
#define PLAIT_MEMORY_H
#include <stdbool.h>
#include "storage.h"
/* cffi reads from here on: */
enum { PL_MEMORY_HOST = 0, PL_MEMORY_PINNED = 1, PL_MEMORY_GPU = 2 };   /* of gpu(i): PL_MEMORY_GPU + i */
int pl_array_memory(uintptr_t array);                             /* PL_MEMORY_* */
void pl_memory_get_stats(int memory, pl_storage_stats *stats);    /* of PL_MEMORY_PINNED or a GPU's */
void pl_memory_trim(int memory);              /* waits for what still uses the pooled memory */
/* cffi stops reading here */

typedef struct pl_gpu pl_gpu;
typedef struct pl_stream pl_stream;

/* A use of a block: everything that a stream has enqueued up to its operation `number`. */
typedef struct { pl_stream *stream; uint64_t number; } pl_use;
enum { PL_MAX_READS = 3 };
typedef struct pl_block {
    pl_gpu *gpu;                /* NULL: page-locked memory of the host */
    void *data;
    size_t class_bytes;
    int size_class;             /* -1: foreign memory */
    int n_reads;
    bool watched;               /* another stream or the host has waited for a write: the next write records an event */
    pl_use write, reads[PL_MAX_READS];      /* last write, later reads (one of each stream); stream NULL: none */
    struct pl_block *next;      /* in its pool */
} pl_block;

/* With the lock: */
pl_block *pl_block_new(int memory, size_t bytes);        /* NULL, with a message; keeps the uses of its last owner */
pl_block *pl_block_wrap(int memory, void *data);
void pl_block_free(pl_block *block);
/* Returns the read that had to make place for this one (stream NULL: none): the stream must wait for that read and
 * record its use again. */
pl_use pl_block_record_use(pl_block *block, pl_stream *stream, uint64_t number, bool wrote);

/* Without the lock, after an allocation on a GPU failed: waits for queued ops. True: some memory may be free now. */
bool pl_memory_wait(int memory);
#endif
