/* Scratch memory: one block for each thread, which grows and is freed when the thread ends. */
#include "scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static _Atomic int64_t workspace_bytes;
static _Thread_local struct { void *data; size_t bytes; } scratch;
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

void pl_workspace_add(int64_t bytes) { workspace_bytes += bytes; }

int64_t pl_workspace_bytes(void) { return workspace_bytes; }

static void scratch_free(void *arg)
{
    (void)arg;
    free(scratch.data);
    pl_workspace_add(-(int64_t)scratch.bytes);
    scratch.data = NULL;
    scratch.bytes = 0;
}

static void scratch_key_new(void) { pthread_key_create(&scratch_key, scratch_free); }

void *pl_scratch(size_t bytes)
{
#ifdef PL_PLAIN_MALLOC                        /* sanitizers must see where it ends, and that no kernel keeps it */
    bool fits = false;
#else
    bool fits = scratch.data && bytes <= scratch.bytes;    /* of 0 bytes, too, there is some */
#endif
    if (!fits) {
        scratch_free(NULL);
        pthread_once(&scratch_once, scratch_key_new);
        pthread_setspecific(scratch_key, &scratch);       /* freed when the thread ends */
        if (posix_memalign(&scratch.data, 64, bytes) != 0) {
            scratch.data = NULL;
            return NULL;
        }
        scratch.bytes = bytes;
        pl_workspace_add((int64_t)bytes);
    }
    return scratch.data;
}
