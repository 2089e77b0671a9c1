/* Runs a network that is linked in: driver THREADS < inputs > outputs. Two instances run at once, each three times, on
 * arrays that are aligned for four bytes only; all results must be the same bits. Counts what run allocates, where
 * COUNTS_MALLOC is defined (with glibc, and no sanitizer). */
#include "plait.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 3, INSTANCES = 2 };

#ifdef COUNTS_MALLOC
static atomic_int n_allocated;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
static void count(void) { atomic_fetch_add(&n_allocated, 1); }
void *malloc(size_t bytes) { return count(), __libc_malloc(bytes); }
void *calloc(size_t n, size_t bytes) { return count(), __libc_calloc(n, bytes); }
void *realloc(void *block, size_t bytes) { return count(), __libc_realloc(block, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return count(), __libc_memalign(alignment, bytes); }
int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = (count(), __libc_memalign(alignment, bytes));
    return *block ? 0 : ENOMEM;
}
static int allocated(void) { return atomic_load(&n_allocated); }
#else
static int allocated(void) { return 0; }
#endif

typedef struct { void *memory; unsigned char *data; size_t bytes; } array;
typedef struct { int n_threads; plait_net *net; const void **inputs; array *outputs; int failed; } instance;
static pthread_barrier_t all_loaded, all_ran;

/* A place that is aligned for four bytes and not for eight. */
static array array_new(size_t bytes)
{
    void *memory = malloc(bytes + 16);
    if (!memory)
        exit(3);
    memset(memory, 0xa5, bytes + 16);
    return (array){memory, (unsigned char *)memory + 4, bytes};
}

static void *run(void *arg)
{
    instance *me = arg;
    me->net = plait_load(NULL, me->n_threads);
    pthread_barrier_wait(&all_loaded);
    if (!me->net) {
        fprintf(stderr, "driver: %s\n", plait_error(NULL));
        me->failed = 1;
    }
    void *outputs[64];
    for (int i = 0; me->net && i < plait_n_outputs(me->net); i++)
        outputs[i] = me->outputs[i].data;
    int before = allocated();
    for (int k = 0; k < RUNS && !me->failed; k++)
        if (plait_run(me->net, me->inputs, outputs)) {
            fprintf(stderr, "driver: %s\n", plait_error(me->net));
            me->failed = 1;
        }
    if (allocated() != before) {
        fprintf(stderr, "driver: run allocates\n");
        me->failed = 1;
    }
    pthread_barrier_wait(&all_ran);
    plait_free(me->net);
    return NULL;
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? atoi(argv[1]) : 1, failed = 0;
    plait_net *net = plait_load(NULL, 1);
    if (!net) {
        fprintf(stderr, "driver: %s\n", plait_error(NULL));
        return 1;
    }
    int n_in = plait_n_inputs(net), n_out = plait_n_outputs(net);
    array inputs[64], outputs[INSTANCES][64];
    const void *given[64];
    for (int i = 0; i < n_in; i++) {
        inputs[i] = array_new(plait_input(net, i)->bytes);
        given[i] = inputs[i].data;
        if (fread(inputs[i].data, 1, inputs[i].bytes, stdin) != inputs[i].bytes)
            return 3;
    }
    pthread_barrier_init(&all_loaded, NULL, INSTANCES);
    pthread_barrier_init(&all_ran, NULL, INSTANCES);
    pthread_t threads[INSTANCES];
    instance all[INSTANCES];
    for (int k = 0; k < INSTANCES; k++) {
        for (int i = 0; i < n_out; i++)
            outputs[k][i] = array_new(plait_output(net, i)->bytes);
        all[k] = (instance){n_threads + k, NULL, given, outputs[k], 0};
    }
    plait_free(net);
    for (int k = 0; k < INSTANCES; k++)
        if (pthread_create(&threads[k], NULL, run, &all[k]))
            return 3;
    for (int k = 0; k < INSTANCES; k++) {
        pthread_join(threads[k], NULL);
        failed |= all[k].failed;
    }
    for (int i = 0; i < n_out; i++) {
        array a = outputs[0][i], b = outputs[1][i];
        if (memcmp(a.data, b.data, a.bytes) && !failed) {
            fprintf(stderr, "driver: instances differ in output %d\n", i);
            failed = 1;
        }
        for (int k = 0; k < INSTANCES; k++)
            for (int j = 0; j < 12; j++)
                failed |= outputs[k][i].data[a.bytes + (size_t)j] != 0xa5;
        fwrite(a.data, 1, a.bytes, stdout);
        free(a.memory);
        free(b.memory);
    }
    for (int i = 0; i < n_in; i++)
        free(inputs[i].memory);
    return failed;
}
