/* The memory in which threads pack the operands of matrix products. */
#include "gemm.h"
#include "engine/core/scratch.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct { size_t bytes; char data[] __attribute__((aligned(64))); } buffer;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void room_free(void *data)
{
    buffer *r = data;
    pl_workspace_add(r ? -(int64_t)r->bytes : 0);
    free(r);
}

static void make_key(void) { pthread_key_create(&key, room_free); }

/* Not pl_scratch, because kernels that use it may call a matrix product. */
void *plk_gemm_scratch(size_t bytes)
{
    pthread_once(&once, make_key);
    buffer *r = pthread_getspecific(key);
    if (!r || r->bytes < bytes) {
        room_free(r);
        pthread_setspecific(key, NULL);
        if (posix_memalign((void **)&r, 64, sizeof(buffer) + bytes))
            return NULL;
        r->bytes = bytes;
        pl_workspace_add((int64_t)bytes);
        pthread_setspecific(key, r);
    }
    return r->data;
}
