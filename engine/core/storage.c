/* Pooled memory: 64-byte aligned blocks in size classes (four per power of two), kept for re-use when freed. */
#include "internal.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { MIN_SHIFT = 6, CLASS_COUNT = 4 * 42, HUGE_BYTES = 1 << 21 };

typedef struct block { struct block *next; } block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *pool[CLASS_COUNT];
static pl_storage_stats stats;
static char empty[64] __attribute__((aligned(64)));    /* what zero-size arrays point to */

/* The class of a size and the class's own size: 64, 80, 96, 112, 128, 160, ... */
static int class_of(size_t bytes, size_t *class_bytes)
{
    size_t n = bytes <= 64 ? 64 : bytes;
    int shift = 63 - __builtin_clzll(n - 1 ? n - 1 : 1);
    size_t step = (size_t)1 << (shift > 2 ? shift - 2 : 0);
    if (n <= 64) {
        *class_bytes = 64;
        return 0;
    }
    size_t quarter = (n - 1 - ((size_t)1 << shift)) / step;
    *class_bytes = (((size_t)1 << shift) + (quarter + 1) * step + 63) & ~(size_t)63;
    return 4 * (shift - MIN_SHIFT) + (int)quarter + 1;
}

void *pl_storage_alloc(size_t bytes)
{
    if (bytes == 0)
        return empty;
    if (bytes > (size_t)1 << 46)
        return NULL;
    size_t class_bytes;
    int class = class_of(bytes, &class_bytes);
    pthread_mutex_lock(&lock);
    block *b = pool[class];
    stats.n_alloc++;
    if (b) {
        pool[class] = b->next;
        stats.n_hit++;
        stats.pooled_bytes -= class_bytes;
    }
    stats.used_bytes += class_bytes;
    if (stats.used_bytes > stats.peak_bytes)
        stats.peak_bytes = stats.used_bytes;
    pthread_mutex_unlock(&lock);
    if (b)
        return b;
    void *data = NULL;
    size_t align = class_bytes >= HUGE_BYTES ? HUGE_BYTES : 64;
    if (posix_memalign(&data, align, class_bytes) != 0) {
        pl_storage_trim();
        if (posix_memalign(&data, align, class_bytes) != 0) {
            pthread_mutex_lock(&lock);
            stats.used_bytes -= class_bytes;
            pthread_mutex_unlock(&lock);
            return NULL;
        }
    }
#ifdef MADV_HUGEPAGE
    if (align == HUGE_BYTES)
        madvise(data, class_bytes & ~(size_t)(HUGE_BYTES - 1), MADV_HUGEPAGE);
#endif
    return data;
}

void pl_storage_free(void *data, size_t bytes)
{
    if (!data || data == empty)
        return;
    size_t class_bytes;
    int class = class_of(bytes, &class_bytes);
    pthread_mutex_lock(&lock);
    ((block *)data)->next = pool[class];
    pool[class] = data;
    stats.used_bytes -= class_bytes;
    stats.pooled_bytes += class_bytes;
    pthread_mutex_unlock(&lock);
}

void pl_storage_trim(void)
{
    pthread_mutex_lock(&lock);
    for (int class = 0; class < CLASS_COUNT; class++)
        while (pool[class]) {
            block *b = pool[class];
            pool[class] = b->next;
            free(b);
        }
    stats.pooled_bytes = 0;
    pthread_mutex_unlock(&lock);
}

void pl_storage_get_stats(pl_storage_stats *out)
{
    pthread_mutex_lock(&lock);
    *out = stats;
    pthread_mutex_unlock(&lock);
}
