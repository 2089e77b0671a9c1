/* Memory of kernels: three blocks for each thread, taken when the network is loaded. */
#include "thread.h"
#include "engine/core/scratch.h"
#include "kernels/cpu/gemm.h"

#include <stdlib.h>
#include <string.h>

_Thread_local net_thread net_here;

static size_t rounded(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

static void *block_new(size_t bytes) { return aligned_alloc(64, rounded(bytes ? bytes : 1)); }

/* A block of at least so many bytes; NULL: out of memory, or larger than what was measured. */
static void *at_least(char **block, size_t *has, size_t bytes)
{
    if (net_here.memory->measures && (!*block || bytes > *has)) {
        free(*block);
        *block = block_new(bytes);
        *has = bytes;
    }
    return bytes <= *has ? *block : NULL;
}

void *pl_scratch(size_t bytes) { return at_least(&net_here.memory->scratch, &net_here.memory->scratch_bytes, bytes); }

void *plk_gemm_scratch(size_t bytes)
{
    return at_least(&net_here.memory->packed, &net_here.memory->packed_bytes, bytes);
}

/* More than was measured is a block of its own: what a kernel wants may depend on values, and zeros were measured. */
void *net_take(size_t bytes)
{
    net_memory *m = net_here.memory;
    size_t at = m->heap_used, end = at + rounded(bytes ? bytes : 1);
    if (m->measures)
        m->heap_bytes = end > m->heap_bytes ? end : m->heap_bytes;
    else if (end > m->heap_bytes)
        return block_new(bytes);
    m->heap_used = end;
    m->heap_live++;
    return m->measures ? block_new(bytes) : m->heap + at;
}

void *net_take_zeros(size_t n, size_t bytes)
{
    void *block = bytes && n > SIZE_MAX / bytes ? NULL : net_take(n * bytes);
    return block ? memset(block, 0, n * bytes) : NULL;
}

void net_give(void *block)
{
    net_memory *m = net_here.memory;
    bool apart = !m->heap || (uintptr_t)block - (uintptr_t)m->heap >= m->heap_bytes;
    if (apart)
        free(block);
    if (block && (!apart || m->measures) && --m->heap_live == 0)
        m->heap_used = 0;
}

int net_memory_fix(net_memory *measured, net_memory *threads, int n)
{
    for (int i = 0; i < n; i++) {
        net_memory *m = &threads[i];
        *m = (net_memory){.scratch = block_new(measured->scratch_bytes), .scratch_bytes = measured->scratch_bytes,
                          .packed = block_new(measured->packed_bytes), .packed_bytes = measured->packed_bytes,
                          .heap = block_new(measured->heap_bytes), .heap_bytes = measured->heap_bytes};
        if (!m->scratch || !m->packed || !m->heap)
            return 0;
    }
    return 1;
}

void net_memory_free(net_memory *m)
{
    free(m->scratch);
    free(m->packed);
    free(m->heap);
}
