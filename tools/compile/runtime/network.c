/* Runs a network: its steps in order, on one arena. */
#include "thread.h"
#include "engine/core/error.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };
_Thread_local char net_message[256];

int pl_fail(int status, const char *message)
{
    snprintf(net_message, sizeof net_message, "%s", message);
    return status;
}

static int step_run(plait_net *net, const net_step *step, const void *const *inputs, void *const *outputs)
{
    const net_network *n = net->library->network;
    for (int k = 0; k < step->n_slots; k++) {
        const net_slot *s = &step->slots[k];
        const char *base = s->kind == NET_INPUT ? inputs[s->index] : s->kind == NET_OUTPUT ? outputs[s->index] :
                           s->kind == NET_ARENA ? net->arena : n->weights;
        net->bufs[k] = (char *)(uintptr_t)base + s->offset;
    }
    return step->run(step->params, net->bufs, step->scalars);
}

int net_network_run(plait_net *net, const void *const *inputs, void *const *outputs)
{
    const net_network *n = net->library->network;
    net_thread outer = net_here;              /* of another network whose caller this is: none */
    int status = PL_OK;
    net_here = (net_thread){net->pool, net->memory};
    net_pool_begin(net->pool);
    for (int i = 0; i < n->n_steps && status == PL_OK; i++)
        if ((status = step_run(net, &n->steps[i], inputs, outputs)) != PL_OK)
            snprintf(net->error, sizeof net->error, "%s: %s", n->steps[i].name, net_message);
    net_pool_end(net->pool);
    net_here = outer;
    return status;
}

/* How much memory kernels want: each runs once, on zeros and alone. One that fails on zeros has got what it wanted. */
static bool measure(plait_net *net, net_memory *measured)
{
    const net_network *n = net->library->network;
    void *inputs[n->n_inputs + 1], *outputs[n->n_outputs + 1];
    bool fits = true;
    for (int i = 0; i < n->n_inputs; i++)
        fits &= (inputs[i] = calloc(1, n->inputs[i].bytes + 1)) != NULL;
    for (int i = 0; i < n->n_outputs; i++)
        fits &= (outputs[i] = calloc(1, n->outputs[i].bytes + 1)) != NULL;
    net_thread outer = net_here;
    net_here = (net_thread){net->pool, measured};
    for (int i = 0; i < n->n_steps && fits; i++)
        fits = step_run(net, &n->steps[i], (const void *const *)inputs, outputs) != PL_ENOMEM;
    net_here = outer;
    for (int i = 0; i < n->n_inputs; i++)
        free(inputs[i]);
    for (int i = 0; i < n->n_outputs; i++)
        free(outputs[i]);
    return fits;
}

void net_network_free(plait_net *net)
{
    net_pool_free(net->pool);
    for (int i = 0; i < net->n_threads && net->memory; i++)
        net_memory_free(&net->memory[i]);
    free(net->memory);
    free(net->arena);
    free(net->bufs);
    free(net);
}

static int n_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}

plait_net *net_network_new(const net_library *library, int n_threads, char *error, size_t error_bytes)
{
    const net_network *n = library->network;
    if (!n->serves()) {
        snprintf(error, error_bytes, "%s was compiled for %s, which this processor lacks", n->name, n->instructions);
        return NULL;
    }
    n_threads = n_threads > 0 ? n_threads : n_cores();
    n_threads = n_threads < MAX_THREADS ? n_threads : MAX_THREADS;
    net_memory measured = {.measures = true};
    plait_net *net = calloc(1, sizeof *net);
    bool fits = net != NULL;
    if (fits) {
        net->library = library;
        net->n_threads = n_threads;
        net->arena = aligned_alloc(64, ((size_t)n->arena_bytes + 64) & ~(size_t)63);
        net->bufs = calloc((size_t)n->max_slots + 1, sizeof *net->bufs);
        net->memory = calloc((size_t)n_threads, sizeof *net->memory);
        net->pool = net->memory ? net_pool_new(n_threads, net->memory) : NULL;
        fits = net->arena && net->bufs && net->pool;
    }
    if (fits) {
        memset(net->arena, 0, (size_t)n->arena_bytes);
        fits = measure(net, &measured) && net_memory_fix(&measured, net->memory, n_threads);
    }
    net_memory_free(&measured);
    if (fits)
        return net;
    if (net)
        net_network_free(net);
    snprintf(error, error_bytes, "out of memory for %s", n->name);
    return NULL;
}
