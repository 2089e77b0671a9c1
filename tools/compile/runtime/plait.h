/* Compiled networks: what every library that `plait compile` made can do. The same text for all of them.
 *
 *     plait_net *net = plait_load("build/libnet.so", 2);
 *     if (!net || plait_run(net, inputs, outputs))
 *         puts(plait_error(net));
 *     plait_free(net);
 *
 * Link with plait.c (and -ldl), or with any of the libraries: each holds these functions. */
#ifndef PLAIT_H
#define PLAIT_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An input or an output: a row-major array. */
typedef struct {
    const char *name, *dtype;                 /* "float32", "int8" ...: as NumPy names them, and bfloat16 */
    int n_dims;
    const int64_t *shape;
    size_t bytes;                             /* of all elements */
} plait_array;

typedef struct plait_net plait_net;           /* an instance; used by one thread at a time */

/* The network of a library; path NULL: the one that this library, or this program, was linked with. n_threads: that run
 * may use, the caller's too; 0: one for each core. All memory is taken here. Returns NULL on failure: see plait_error.
 * Thread-safe. */
plait_net *plait_load(const char *path, int n_threads);
void plait_free(plait_net *net);              /* net: given; may be NULL */

int plait_n_inputs(const plait_net *net);
int plait_n_outputs(const plait_net *net);
const plait_array *plait_input(const plait_net *net, int i);     /* borrowed; NULL: there is no such input */
const plait_array *plait_output(const plait_net *net, int i);

/* Computes the outputs. inputs, outputs: one address for each, aligned for its dtype, of as many bytes as its
 * plait_array says; outputs overlap nothing else. Allocates nothing. Returns 0, or not 0: see plait_error. */
int plait_run(plait_net *net, const void *const *inputs, void *const *outputs);

/* Why the last call of plait_run failed; NULL: why this thread's last plait_load did. Borrowed until the next call. */
const char *plait_error(const plait_net *net);

#ifdef __cplusplus
}
#endif
#endif
