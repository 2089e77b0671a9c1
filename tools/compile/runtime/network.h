/* A network as constant data, and what runs it. net.c holds the data: plait wrote it. */
#ifndef PLAIT_NETWORK_H
#define PLAIT_NETWORK_H
#include <stdbool.h>
#include "plait.h"

enum { NET_INPUT, NET_OUTPUT, NET_ARENA, NET_WEIGHTS };    /* where an array of a step lies: from there, in bytes */
typedef struct { int32_t kind, index; int64_t offset; } net_slot;
typedef int (*net_kernel)(const void *params, void *const *bufs, const double *scalars);

typedef struct {
    net_kernel run;
    const void *params;
    const net_slot *slots;                    /* of its inputs, then its outputs */
    const double *scalars;
    int n_slots;
    const char *name;                         /* the layer, for errors */
} net_step;

typedef struct {
    const char *name;
    const plait_array *inputs, *outputs;
    const net_step *steps;
    const char *weights;
    int n_inputs, n_outputs, n_steps, max_slots;
    int64_t arena_bytes;
    bool (*serves)(void);                     /* has this processor the instructions that it is compiled for? */
    const char *instructions;                 /* their name */
} net_network;

/* What a library exports, as the symbol plait_network: so that a program need not hold the same runtime. */
enum { NET_VERSION = 1 };
typedef struct {
    int version;
    const net_network *network;
    /* error: borrowed; where the text of a failure goes */
    plait_net *(*init)(int n_threads, char *error, size_t error_bytes);
    int (*run)(plait_net *net, const void *const *inputs, void *const *outputs);
    void (*free)(plait_net *net);
} net_library;

int net_network_run(plait_net *net, const void *const *inputs, void *const *outputs);
void net_network_free(plait_net *net);
plait_net *net_network_new(const net_library *library, int n_threads, char *error, size_t error_bytes);
extern const net_library plait_network __attribute__((weak));    /* of the network linked with a file, if any */

typedef struct net_pool net_pool;
typedef struct net_memory net_memory;
struct plait_net {
    const net_library *library;
    void *handle;                             /* of dlopen, or NULL */
    net_pool *pool;
    net_memory *memory;                       /* of each thread of the pool */
    char *arena;
    void **bufs;                              /* of one step */
    int n_threads;
    char error[256];
};
#endif
