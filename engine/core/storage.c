/* Pooled memory: 64-byte aligned blocks in size classes (four per power of two), kept for re-use when freed. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_BYTES = 1 << 21 };

#ifdef PL_PLAIN_MALLOC                        /* sanitizers want to see every free, and where blocks really end */
enum { PLAIN = 1 };
#else
enum { PLAIN = 0 };
#endif

typedef struct block { struct block *next; } block;

static block *pool[PL_SIZE_CLASSES];
static pl_storage_stats stats;
static _Atomic int64_t workspace_bytes;                /* of threads, which take no lock for it */
static size_t machine_bytes;
static char empty[64] __attribute__((aligned(64)));    /* what zero-size arrays point to */

size_t pl_machine_bytes(void)
{
    if (!machine_bytes) {
        long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
        machine_bytes = pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : PL_MAX_BLOCK_BYTES;
        size_t container_bytes = 0;           /* cgroup v2; the file says "max" without a limit */
        FILE *file = fopen("/sys/fs/cgroup/memory.max", "re");
        if (file && fscanf(file, "%zu", &container_bytes) == 1 && container_bytes < machine_bytes)
            machine_bytes = container_bytes;
        if (file)
            fclose(file);
    }
    return machine_bytes;
}

/* The class of a size and the class's own size: 64, 80, 96, 112, 128, 160, ..., rounded up to lines of 64. */
int pl_size_class(size_t bytes, size_t *class_bytes)
{
    if (bytes <= 64) {
        *class_bytes = 64;
        return 0;
    }
    int shift = 63 - __builtin_clzll(bytes - 1);
    size_t step = (size_t)1 << (shift - 2);
    size_t quarter = (bytes - 1 - ((size_t)1 << shift)) / step;
    *class_bytes = (((size_t)1 << shift) + (quarter + 1) * step + 63) & ~(size_t)63;
    return 4 * (shift - PL_MIN_SHIFT) + (int)quarter + 1;
}

static void pool_trim(void)
{
    for (int class = 0; class < PL_SIZE_CLASSES; class++)
        while (pool[class]) {
            block *b = pool[class];
            pool[class] = b->next;
            free(b);
        }
    stats.pooled_bytes = 0;
}

/* Memory from the system; when that is tight, after giving back what is pooled. */
static void *system_alloc(size_t bytes, size_t class_bytes)
{
    void *data = NULL;
    if (pl_guard_side())
        return pl_guard_alloc(bytes);
    size_t align = class_bytes >= HUGE_BYTES ? HUGE_BYTES : 64;
    if (stats.used_bytes + stats.pooled_bytes + class_bytes > pl_machine_bytes() / 4 * 3)
        pool_trim();
    size_t asked = PLAIN ? bytes : class_bytes;
    if (posix_memalign(&data, align, asked) != 0) {
        pool_trim();
        if (posix_memalign(&data, align, asked) != 0)
            return NULL;
    }
#ifdef MADV_HUGEPAGE
    if (align == HUGE_BYTES && !PLAIN)
        madvise(data, class_bytes & ~(size_t)(HUGE_BYTES - 1), MADV_HUGEPAGE);
#endif
    return data;
}

static void *no_memory(size_t bytes)
{
    char text[160];
    snprintf(text, sizeof text, "array: out of memory for %zu bytes (%zu in use, the machine has %zu)", bytes,
             stats.used_bytes, pl_machine_bytes());
    pl_fail(PL_ENOMEM, text);
    return NULL;
}

void *pl_storage_alloc(size_t bytes)
{
    if (bytes == 0 && !pl_guard_side())
        return empty;
    if (bytes > pl_machine_bytes() || bytes > PL_MAX_BLOCK_BYTES)
        return no_memory(bytes);
    size_t class_bytes;
    int class = pl_size_class(bytes, &class_bytes);
    void *data = pl_guard_side() ? NULL : pool[class];
    if (data) {
        pool[class] = pool[class]->next;
        stats.n_hit++;
        stats.pooled_bytes -= class_bytes;
    } else if (!(data = system_alloc(bytes, class_bytes))) {
        return no_memory(bytes);
    }
    stats.n_alloc++;
    stats.used_bytes += class_bytes;
    if (stats.used_bytes > stats.peak_bytes)
        stats.peak_bytes = stats.used_bytes;
    return data;
}

void pl_storage_free(void *data, size_t bytes)
{
    if (data == empty)
        return;
    size_t class_bytes;
    int class = pl_size_class(bytes, &class_bytes);
    stats.used_bytes -= class_bytes;
    if (pl_guard_owns(data)) {
        pl_guard_free(data, bytes);
        return;
    }
    if (PLAIN) {
        free(data);
        return;
    }
    ((block *)data)->next = pool[class];
    pool[class] = data;
    stats.pooled_bytes += class_bytes;
}

void pl_workspace_add(int64_t bytes) { workspace_bytes += bytes; }

size_t pl_storage_used(void) { return stats.used_bytes; }

void pl_storage_trim(void)
{
    pl_enter();
    pool_trim();
    pl_leave();
}

void pl_storage_get_stats(pl_storage_stats *out)
{
    pl_enter();
    *out = stats;
    out->workspace_bytes = workspace_bytes;
    pl_leave();
}
