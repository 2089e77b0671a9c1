/* Memory of GPUs, and page-locked memory of the host: pooled in the host's size classes. A freed block keeps its uses;
 * the stream that gets it next waits for them, on the GPU. */
#include "memory.h"
#include "engine.h"
#include "gpu.h"
#include "stream.h"
#include "wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256, CHUNK_BYTES = 2 << 20, MAX_CARVED = 512 << 10 };

/* One memory. Small blocks are parts of chunks, which are never freed; large ones are allocated one by one. */
typedef struct {
    pl_block *pool[PL_SIZE_CLASSES];
    char *chunk;
    size_t chunk_left;
    pl_storage_stats stats;
} pl_memory;

static pl_memory memories[1 + PL_MAX_GPUS];   /* page-locked, then the GPUs' */
static pl_block *spare;                       /* freed descriptors */

static pl_memory *memory_of(int memory) { return &memories[memory - PL_MEMORY_PINNED]; }
static int memory_number(const pl_block *b) { return b->gpu ? PL_MEMORY_GPU + b->gpu->number : PL_MEMORY_PINNED; }

static pl_block *block_make(pl_gpu *gpu, void *data, size_t class_bytes, int size_class)
{
    pl_block *b = spare;
    if (b)
        spare = b->next;
    else if (!(b = malloc(sizeof *b))) {
        pl_fail(PL_ENOMEM, "array: out of memory");
        return NULL;
    }
    *b = (pl_block){.gpu = gpu, .data = data, .class_bytes = class_bytes, .size_class = size_class};
    return b;
}

static void block_drop(pl_block *b)
{
    b->next = spare;
    spare = b;
}

/* ---- the driver ------------------------------------------------------------------------------------------- */

static int driver_alloc(pl_gpu *gpu, size_t bytes, void **data)
{
    pl_gpu_scope scope;
    cu_pointer device_data = 0;
    pl_gpu *owner = gpu ? gpu : pl_gpu_get(0);
    if (!owner || pl_gpu_begin(owner, &scope) != PL_OK)
        return PL_FAILED;
    int code = gpu ? cu.memory_new(&device_data, bytes) : cu.host_new(data, bytes, CU_HOST_PORTABLE);
    if (gpu)
        *data = (void *)(uintptr_t)device_data;
    pl_gpu_end(&scope);
    return code;
}

static void driver_free(pl_gpu *gpu, void *data)
{
    pl_gpu_scope scope;
    pl_gpu *owner = gpu ? gpu : pl_gpu_get(0);
    if (!owner || pl_gpu_begin(owner, &scope) != PL_OK)
        return;
    if (gpu)
        cu.memory_free((cu_pointer)(uintptr_t)data);
    else
        cu.host_free(data);
    pl_gpu_end(&scope);
}

static void memory_trim(pl_memory *m)
{
    for (int class = 0; class < PL_SIZE_CLASSES; class++) {
        pl_block *kept = NULL, *b;
        while ((b = m->pool[class])) {
            m->pool[class] = b->next;
            if (b->class_bytes <= MAX_CARVED) {
                b->next = kept;
                kept = b;
                continue;
            }
            pl_block_settle(b);
            driver_free(b->gpu, b->data);
            m->stats.pooled_bytes -= b->class_bytes;
            block_drop(b);
        }
        m->pool[class] = kept;
    }
}

static int no_memory(int memory, size_t bytes, int code)
{
    char message[240], name[24] = "page-locked";
    pl_memory *m = memory_of(memory);
    if (code != CU_OUT_OF_MEMORY && code != PL_FAILED)
        return pl_gpu_fail(code, "gpu: memory cannot be allocated");
    if (code == PL_FAILED && memory == PL_MEMORY_PINNED)
        return PL_FAILED;                     /* the message is there */
    if (memory >= PL_MEMORY_GPU)
        snprintf(name, sizeof name, "gpu(%d)", memory - PL_MEMORY_GPU);
    snprintf(message, sizeof message, "array: out of memory for %zu bytes on %s (%zu in use here, %zu pooled)\n"
             "  fix: free arrays, use a smaller batch, or see mx.context.gpu_memory_info for what others hold", bytes,
             name, m->stats.used_bytes, m->stats.pooled_bytes);
    return pl_fail(PL_ENOMEM, message);
}

/* Memory from the driver; when it is low, after returning what is pooled. */
static void *driver_get(int memory, pl_gpu *gpu, size_t bytes, size_t asked_bytes)
{
    void *data = NULL;
    int code = driver_alloc(gpu, bytes, &data);
    if (code == CU_OUT_OF_MEMORY) {
        memory_trim(memory_of(memory));
        code = driver_alloc(gpu, bytes, &data);
    }
    if (code == 0)
        return data;
    no_memory(memory, asked_bytes, code);
    return NULL;
}

/* A small block: a part of a chunk. */
static void *carve(int memory, pl_gpu *gpu, size_t bytes, size_t asked_bytes)
{
    pl_memory *m = memory_of(memory);
    if (m->chunk_left < bytes) {
        char *chunk = driver_get(memory, gpu, CHUNK_BYTES, asked_bytes);
        if (!chunk)
            return NULL;
        m->chunk = chunk;
        m->chunk_left = CHUNK_BYTES;
    }
    m->chunk_left -= bytes;
    return m->chunk + m->chunk_left;
}

/* ---- blocks ----------------------------------------------------------------------------------------------- */

/* A pooled block, or NULL. The host does not wait for uses of page-locked blocks: it takes one that is idle. */
static pl_block *pool_take(pl_memory *m, int class)
{
    pl_block **at = &m->pool[class], *b;
    while ((b = *at) && !b->gpu && !pl_block_idle(b))
        at = &b->next;
    if (b)
        *at = b->next;
    return b;
}

pl_block *pl_block_new(int memory, size_t bytes)
{
    pl_gpu *gpu = memory >= PL_MEMORY_GPU ? pl_gpu_get(memory - PL_MEMORY_GPU) : NULL;
    if (memory >= PL_MEMORY_GPU && !gpu)
        return NULL;
    pl_memory *m = memory_of(memory);
    size_t class_bytes, rounded = ((bytes ? bytes : 1) + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (rounded > PL_MAX_BLOCK_BYTES) {
        no_memory(memory, bytes, CU_OUT_OF_MEMORY);
        return NULL;
    }
    int class = pl_size_class(rounded, &class_bytes);
    class_bytes = (class_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    pl_block *b = pool_take(m, class);
    if (b) {
        m->stats.n_hit++;
        m->stats.pooled_bytes -= class_bytes;
    } else {
        void *data = class_bytes <= MAX_CARVED ? carve(memory, gpu, class_bytes, bytes)
                                               : driver_get(memory, gpu, class_bytes, bytes);
        if (!data || !(b = block_make(gpu, data, class_bytes, class)))
            return NULL;                      /* out of memory for a descriptor: the block is leaked */
    }
    m->stats.n_alloc++;
    m->stats.used_bytes += class_bytes;
    if (m->stats.used_bytes > m->stats.peak_bytes)
        m->stats.peak_bytes = m->stats.used_bytes;
    return b;
}

bool pl_memory_wait(int memory)
{
    if (memory < PL_MEMORY_GPU || pl_running)
        return false;
    pl_enter();
    bool waited = pl_engine.n_queued > 0;
    int status = waited ? pl_wait_queue(1000) : PL_OK;
    while (status == PL_AGAIN)
        status = pl_wait_queue(1000);
    pl_leave();
    return waited;
}

pl_block *pl_block_wrap(int memory, void *data)
{
    pl_gpu *gpu = memory >= PL_MEMORY_GPU ? pl_gpu_get(memory - PL_MEMORY_GPU) : NULL;
    pl_block *b = memory >= PL_MEMORY_GPU && !gpu ? NULL : block_make(gpu, data, 0, -1);
    pl_stream *lender = pl_gpu_now.stream ? pl_gpu_now.stream : gpu ? &gpu->streams[0] : NULL;
    if (b && gpu)    /* what is enqueued comes first: on the stream of the op that wraps it, else the compute stream */
        pl_block_record_use(b, lender, atomic_fetch_add(&lender->last, 1) + 1, true);
    return b;
}

void pl_block_free(pl_block *b)
{
    if (b->size_class < 0) {
        block_drop(b);
        return;
    }
    pl_memory *m = memory_of(memory_number(b));
    m->stats.used_bytes -= b->class_bytes;
    m->stats.pooled_bytes += b->class_bytes;
    b->watched = false;
    b->next = m->pool[b->size_class];
    m->pool[b->size_class] = b;
}

pl_use pl_block_record_use(pl_block *b, pl_stream *stream, uint64_t number, bool wrote)
{
    int i = 0;
    pl_use evicted = {NULL, 0};
    if (wrote) {                              /* it waited for all earlier uses */
        b->write = (pl_use){stream, number};
        b->n_reads = 0;
        return evicted;
    }
    while (i < b->n_reads && b->reads[i].stream != stream)
        i++;
    if (i == PL_MAX_READS)
        evicted = b->reads[i = 0];
    else if (i == b->n_reads)
        b->reads[b->n_reads++] = (pl_use){stream, 0};
    b->reads[i] = (pl_use){stream, b->reads[i].stream == stream && b->reads[i].number > number
                                       ? b->reads[i].number : number};
    return evicted;
}

int pl_array_memory(uintptr_t array)
{
    const pl_block *b = ((pl_array *)array)->var->block;
    return b ? memory_number(b) : PL_MEMORY_HOST;
}

void pl_memory_trim(int memory)
{
    pl_enter();
    memory_trim(memory_of(memory));
    pl_leave();
}

void pl_memory_get_stats(int memory, pl_storage_stats *stats)
{
    pl_enter();
    *stats = memory_of(memory)->stats;
    pl_leave();
}
