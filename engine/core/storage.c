/* Pooled memory: 64-byte aligned blocks in size classes (four per power of two), kept for re-use when freed.
 *
 * The pool is bounded when it would grow: if memory in use and pooled would together exceed twice the recent peak of
 * memory in use, plus KEPT_BYTES, the least recently used classes return blocks to the system. A training step that
 * repeats finds all its blocks in the pool, so nothing is freed then; a program whose sizes always change does not keep
 * blocks of every size. */
#include "storage.h"
#include "error.h"
#include "guard.h"
#include "object.h"
#include "scratch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_BYTES = 1 << 21, MAPPED_BYTES = 1 << 20, KEPT_BYTES = 64 << 20, WINDOW = 4 };

#ifdef PL_PLAIN_MALLOC                        /* sanitizers must see every free, and where blocks end */
enum { PLAIN = 1 };
#else
enum { PLAIN = 0 };
#endif

typedef struct block { struct block *next; } block;

static block *pool[PL_SIZE_CLASSES];
static int64_t freed_at[PL_SIZE_CLASSES];              /* n_alloc when a block of the class was freed last */
static size_t peak_now, peak_before;                   /* of memory in use, in this window and in the one before it */
static size_t window_bytes;                            /* handed out; a window ends at WINDOW times all memory */
static pl_storage_stats stats;
static atomic_size_t used_now;       /* stats.used_bytes, for readers without the lock */
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

/* Large blocks are mapped one by one: the process would keep what it passes to free() while neighbours are in use. */
static void *system_get(size_t bytes, size_t class_bytes)
{
    void *data = NULL;
    if (PLAIN || class_bytes < MAPPED_BYTES)
        return posix_memalign(&data, class_bytes >= HUGE_BYTES ? HUGE_BYTES : 64, PLAIN ? bytes : class_bytes)
                   ? NULL : data;
    size_t over = class_bytes >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *map = mmap(NULL, class_bytes + over, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    size_t before = over ? (size_t)(-(uintptr_t)map & (HUGE_BYTES - 1)) : 0;
    if (before)
        munmap(map, before);
    if (over - before)
        munmap(map + before + class_bytes, over - before);
#ifdef MADV_HUGEPAGE
    if (over)
        madvise(map + before, class_bytes & ~(size_t)(HUGE_BYTES - 1), MADV_HUGEPAGE);
#endif
    return map + before;
}

static void system_free(void *data, size_t class_bytes)
{
    if (PLAIN || class_bytes < MAPPED_BYTES)
        free(data);
    else
        munmap(data, class_bytes);
}

/* Frees blocks of a class until no more than `kept` bytes are pooled. */
static void class_trim(int class, size_t class_bytes, size_t kept)
{
    block *b;
    while (stats.pooled_bytes > kept && (b = pool[class])) {
        pool[class] = b->next;
        stats.pooled_bytes -= class_bytes;
        system_free(b, class_bytes);
    }
}

/* The size of a class: the inverse of pl_size_class. */
static size_t size_of_class(int class)
{
    if (class == 0)
        return 64;
    int shift = PL_MIN_SHIFT + (class - 1) / 4;
    size_t quarters = (size_t)((class - 1) % 4 + 5);
    return ((quarters << (shift - 2)) + 63) & ~(size_t)63;
}

/* Frees blocks of the least recently used classes until no more than `kept` bytes are pooled. */
static void pool_trim(size_t kept)
{
    while (stats.pooled_bytes > kept) {
        int oldest = -1;
        for (int class = 0; class < PL_SIZE_CLASSES; class++)
            if (pool[class] && (oldest < 0 || freed_at[class] < freed_at[oldest]))
                oldest = class;
        class_trim(oldest, size_of_class(oldest), kept);
    }
}

/* Before the pool grows. Frees an eighth more than needed, so that few allocations search for old classes. */
static void pool_bound(size_t class_bytes)
{
    size_t all = stats.used_bytes + stats.pooled_bytes;
    if (window_bytes > WINDOW * all) {
        peak_before = peak_now;
        peak_now = stats.used_bytes;
        window_bytes = 0;
    }
    size_t peak = peak_now > peak_before ? peak_now : peak_before, in_use = stats.used_bytes + class_bytes;
    if (peak < in_use)
        peak = in_use;
    if (stats.pooled_bytes + in_use > 2 * peak + KEPT_BYTES) {
        size_t kept = 2 * peak + KEPT_BYTES - in_use;
        pool_trim(kept - kept / 8);
    }
}

/* Memory from the system; when it is low, after returning what is pooled. */
static void *system_alloc(size_t bytes, size_t class_bytes)
{
    if (pl_guard_side())
        return pl_guard_alloc(bytes);
    pool_bound(class_bytes);
    if (stats.used_bytes + stats.pooled_bytes + class_bytes > pl_machine_bytes() / 4 * 3)
        pool_trim(0);
    void *data = system_get(bytes, class_bytes);
    if (data)
        return data;
    pool_trim(0);
    return system_get(bytes, class_bytes);
}

static void *no_memory(size_t bytes)
{
    char message[160];
    snprintf(message, sizeof message, "array: out of memory for %zu bytes (%zu in use, the machine has %zu)", bytes,
             stats.used_bytes, pl_machine_bytes());
    pl_fail(PL_ENOMEM, message);
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
    atomic_store_explicit(&used_now, stats.used_bytes, memory_order_relaxed);
    window_bytes += class_bytes;
    if (stats.used_bytes > peak_now) {
        peak_now = stats.used_bytes;
        if (peak_now > stats.peak_bytes)
            stats.peak_bytes = peak_now;
    }
    return data;
}

void pl_storage_free(void *data, size_t bytes)
{
    if (data == empty)
        return;
    size_t class_bytes;
    int class = pl_size_class(bytes, &class_bytes);
    stats.used_bytes -= class_bytes;
    atomic_store_explicit(&used_now, stats.used_bytes, memory_order_relaxed);
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
    freed_at[class] = stats.n_alloc;
    stats.pooled_bytes += class_bytes;
}

size_t pl_storage_used(void) { return atomic_load_explicit(&used_now, memory_order_relaxed); }

void pl_storage_trim(void)
{
    pl_enter();
    pool_trim(0);
    pl_leave();
}

void pl_storage_get_stats(pl_storage_stats *out)
{
    pl_enter();
    *out = stats;
    out->workspace_bytes = pl_workspace_bytes();
    pl_leave();
}
