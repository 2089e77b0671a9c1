/* The functions of plait.h: they pass on to the library that a network came from. */
#include "network.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))
static _Thread_local char load_error[512];

API plait_net *plait_load(const char *path, int n_threads)
{
    void *handle = NULL;
    const net_library *library = &plait_network;
    if (path) {
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle) {
            snprintf(load_error, sizeof load_error, "%s", dlerror());
            return NULL;
        }
        library = dlsym(handle, "plait_network");
    }
    plait_net *net = NULL;
    if (!library)
        snprintf(load_error, sizeof load_error, "%s is no network that plait compiled", path ? path : "this program");
    else if (library->version != NET_VERSION)
        snprintf(load_error, sizeof load_error, "%s is a network of version %d, not %d: compile it again",
                 path ? path : "this program", library->version, NET_VERSION);
    else
        net = library->init(n_threads, load_error, sizeof load_error);
    if (net)
        net->handle = handle;
    else if (handle)
        dlclose(handle);
    return net;
}

API void plait_free(plait_net *net)
{
    if (!net)
        return;
    void *handle = net->handle;
    net->library->free(net);
    if (handle)
        dlclose(handle);
}

API int plait_n_inputs(const plait_net *net) { return net->library->network->n_inputs; }
API int plait_n_outputs(const plait_net *net) { return net->library->network->n_outputs; }

API const plait_array *plait_input(const plait_net *net, int i)
{
    return i >= 0 && i < plait_n_inputs(net) ? &net->library->network->inputs[i] : NULL;
}

API const plait_array *plait_output(const plait_net *net, int i)
{
    return i >= 0 && i < plait_n_outputs(net) ? &net->library->network->outputs[i] : NULL;
}

API int plait_run(plait_net *net, const void *const *inputs, void *const *outputs)
{
    return net->library->run(net, inputs, outputs);
}

API const char *plait_error(const plait_net *net) { return net ? net->error : load_error; }
