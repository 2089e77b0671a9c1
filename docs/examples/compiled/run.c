/* Runs a compiled network as a filter: the inputs' numbers from stdin, the outputs' to stdout, in memory's form.
 *
 *     plait compile net-symbol.json net-0000.params --shape data=1,1,28,28 -o build
 *     make -C build
 *     cc -Ibuild run.c build/source/runtime/plait.c -Ibuild/source -ldl -o run
 *     ./run build/libnet.so 2 < digit.bin > scores.bin
 */
#include "plait.h"

#include <stdio.h>
#include <stdlib.h>

static void fail(const char *why)
{
    fprintf(stderr, "run: %s\n", why);
    exit(1);
}

static void *block(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        fail("out of memory");
    return p;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("usage: run LIBRARY THREADS < inputs > outputs");
    plait_net *net = plait_load(argv[1], atoi(argv[2]));
    if (!net)
        fail(plait_error(NULL));
    int n_in = plait_n_inputs(net), n_out = plait_n_outputs(net);
    const void **inputs = block((size_t)n_in * sizeof *inputs);
    void **outputs = block((size_t)n_out * sizeof *outputs);
    for (int i = 0; i < n_in; i++) {
        const plait_array *a = plait_input(net, i);
        void *data = block(a->bytes);
        if (fread(data, 1, a->bytes, stdin) != a->bytes)
            fail("stdin ends within the inputs");
        inputs[i] = data;
    }
    for (int i = 0; i < n_out; i++)
        outputs[i] = block(plait_output(net, i)->bytes);
    if (plait_run(net, inputs, outputs))
        fail(plait_error(net));
    for (int i = 0; i < n_out; i++) {
        const plait_array *a = plait_output(net, i);
        fprintf(stderr, "%s: %s of %d axes\n", a->name, a->dtype, a->n_dims);
        fwrite(outputs[i], 1, a->bytes, stdout);
        free(outputs[i]);
    }
    for (int i = 0; i < n_in; i++)
        free((void *)inputs[i]);
    free(inputs);
    free(outputs);
    plait_free(net);
    return 0;
}
