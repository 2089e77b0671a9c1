/* Memory of the host: pooled, 64-byte aligned blocks. */
#ifndef PLAIT_STORAGE_H
#define PLAIT_STORAGE_H
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */
typedef struct {
    size_t used_bytes, pooled_bytes, peak_bytes;
    int64_t n_alloc, n_hit, workspace_bytes;
} pl_storage_stats;
void pl_storage_get_stats(pl_storage_stats *stats);
void pl_storage_trim(void);                   /* returns pooled memory to the system */
/* cffi stops reading here */

/* With the lock: */
void *pl_storage_alloc(size_t bytes);         /* NULL, with a message */
void pl_storage_free(void *data, size_t bytes);
size_t pl_storage_used(void);                 /* without the lock, too */
size_t pl_machine_bytes(void);                /* physical memory */

enum { PL_MIN_SHIFT = 6, PL_MAX_SHIFT = 46, PL_SIZE_CLASSES = 4 * (PL_MAX_SHIFT - PL_MIN_SHIFT + 1) };
#define PL_MAX_BLOCK_BYTES ((size_t)1 << PL_MAX_SHIFT)
int pl_size_class(size_t bytes, size_t *class_bytes);      /* the class of a size, and the bytes of its blocks */
#endif
