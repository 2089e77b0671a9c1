/* GPUs: the library of the CUDA driver, devices and their contexts, modules, errors. */
#include "gpu.h"
#include "error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

cu_functions cu;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_gpus;
static pl_gpu *_Atomic gpus[PL_MAX_GPUS];
static bool forked;

int pl_gpu_fail(int code, const char *what)
{
    if (code == 0)
        return PL_OK;
    const char *name = NULL, *message = NULL;
    char line[300];
    cu.error_name(code, &name);
    cu.error_string(code, &message);
    snprintf(line, sizeof line, "%s: %s (%s)", what, message ? message : "unknown error", name ? name : "no name");
    return pl_fail(code == CU_OUT_OF_MEMORY ? PL_ENOMEM : PL_FAILED, line);
}

static int load(const char *library)
{
    char message[300];
    void *handle = dlopen(library ? library : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        snprintf(message, sizeof message, "gpu: the CUDA driver cannot be loaded (%s)", dlerror());
        return pl_fail(PL_FAILED, message);
    }
#define CU_FIND(name, symbol, parameters) \
    if (!(*(void **)&cu.name = dlsym(handle, #symbol))) { \
        pl_fail(PL_FAILED, "gpu: the CUDA driver is too old, it has no " #symbol); \
        goto failed; \
    }
    CU_FUNCTIONS(CU_FIND)
#undef CU_FIND
    int n = 0, status = pl_gpu_fail(cu.init(0), "gpu: the CUDA driver cannot be initialized");
    if (status == PL_OK)
        status = pl_gpu_fail(cu.device_count(&n), "gpu: the CUDA driver cannot count its devices");
    if (status == PL_OK && n == 0)
        status = pl_fail(PL_FAILED, "gpu: the CUDA driver finds no GPU");
    if (status == PL_OK) {
        n_gpus = n < PL_MAX_GPUS ? n : PL_MAX_GPUS;
        return PL_OK;
    }
failed:
    dlclose(handle);
    return PL_FAILED;
}

int pl_gpu_open(const char *library)
{
    pthread_mutex_lock(&opening);
    int status = forked ? pl_fail(PL_FAILED, "gpu: a GPU cannot be used in a process forked from one that used it")
                 : n_gpus ? PL_OK : load(library);
    pthread_mutex_unlock(&opening);
    return status;
}

int pl_gpu_count(void) { return n_gpus; }

void pl_gpu_forget(void)
{
    forked = forked || n_gpus;
    n_gpus = 0;
    pthread_mutex_init(&opening, NULL);
}

/* ---- devices ---------------------------------------------------------------------------------------------- */

int pl_gpu_begin(pl_gpu *gpu, pl_gpu_scope *scope)
{
    *scope = (pl_gpu_scope){0};
    if (forked)
        return pl_fail(PL_FAILED, "gpu: a GPU cannot be used in a process forked from one that used it");
    cu.context_get(&scope->before);
    if (scope->before == gpu->context)
        return PL_OK;
    scope->changed = true;
    return pl_gpu_fail(cu.context_set(gpu->context), "gpu: its context cannot be made current");
}

void pl_gpu_end(const pl_gpu_scope *scope)
{
    if (scope->changed && scope->before)      /* other libraries on this thread keep their context */
        cu.context_set(scope->before);
}

static int gpu_init(pl_gpu *gpu, int device)
{
    pl_gpu_scope scope = {0};
    gpu->number = device;
    int status = pl_gpu_fail(cu.device_get(&gpu->device, device), "gpu: no such device");
    if (status == PL_OK)
        status = pl_gpu_fail(cu.primary_retain(&gpu->context, gpu->device), "gpu: a context cannot be created");
    if (status == PL_OK)
        status = pl_gpu_begin(gpu, &scope);
    for (int i = 0; i < PL_LANE_COUNT - PL_LANE_GPU_COMPUTE && status == PL_OK; i++)
        status = pl_stream_open(&gpu->streams[i], gpu, PL_LANE_GPU_COMPUTE + i);
    for (int i = 0; i < device && status == PL_OK; i++) {     /* GPUs without peer access copy through the host */
        int there = 0, back = 0;
        if (!gpus[i])
            continue;
        if (cu.device_peer(&there, gpu->device, gpus[i]->device) == 0 && there)
            cu.context_peer(gpus[i]->context, 0);
        if (cu.device_peer(&back, gpus[i]->device, gpu->device) == 0 && back && cu.context_set(gpus[i]->context) == 0) {
            cu.context_peer(gpu->context, 0);
            cu.context_set(gpu->context);
        }
    }
    pl_gpu_end(&scope);
    return status;
}

pl_gpu *pl_gpu_open_at(int device) { return device >= 0 && device < PL_MAX_GPUS ? gpus[device] : NULL; }

pl_gpu *pl_gpu_get(int device)
{
    char message[120];
    pl_gpu *gpu = pl_gpu_open_at(device);
    if (gpu && !forked)
        return gpu;
    if (device < 0 || device >= n_gpus) {
        const char *rule = forked ? "gpu(%d): a GPU cannot be used in a process forked from one that used it"
                                  : "gpu(%d): there are %d GPUs";
        snprintf(message, sizeof message, rule, device, (int)n_gpus);
        pl_fail(PL_EINVAL, message);
        return NULL;
    }
    pthread_mutex_lock(&opening);
    if (!(gpu = gpus[device]) && (gpu = calloc(1, sizeof *gpu))) {
        if (gpu_init(gpu, device) == PL_OK) {
            gpus[device] = gpu;
        } else {
            free(gpu);
            gpu = NULL;
        }
    } else if (!gpu) {
        pl_fail(PL_ENOMEM, "gpu: out of memory");
    }
    pthread_mutex_unlock(&opening);
    return gpu;
}

int pl_gpu_get_properties(int device, pl_gpu_properties *p)
{
    pl_gpu *gpu = pl_gpu_get(device);
    const struct { int attribute; int32_t *value; } asked[] = {
        {CU_ATTRIBUTE_MAJOR, &p->major}, {CU_ATTRIBUTE_MINOR, &p->minor},
        {CU_ATTRIBUTE_MULTIPROCESSORS, &p->n_multiprocessors}, {CU_ATTRIBUTE_SHARED_OPTIN, &p->max_shared_bytes},
        {CU_ATTRIBUTE_WARP, &p->warp_threads}, {CU_ATTRIBUTE_MAX_BLOCK_THREADS, &p->max_block_threads}};
    if (!gpu)
        return PL_EINVAL;
    *p = (pl_gpu_properties){0};
    int code = cu.device_name(p->name, sizeof p->name, gpu->device);
    for (size_t i = 0; i < sizeof asked / sizeof *asked && code == 0; i++)
        code = cu.device_attribute(asked[i].value, asked[i].attribute, gpu->device);
    if (code == 0)
        code = cu.device_bytes(&p->total_bytes, gpu->device);
    if (code == 0)
        code = cu.driver_version(&p->driver);
    return pl_gpu_fail(code, "gpu: its properties cannot be read");
}

int pl_gpu_memory(int device, size_t *free_bytes, size_t *total_bytes)
{
    pl_gpu_scope scope;
    pl_gpu *gpu = pl_gpu_get(device);
    int status = gpu ? pl_gpu_begin(gpu, &scope) : PL_EINVAL;
    if (status != PL_OK)
        return status;
    status = pl_gpu_fail(cu.memory_info(free_bytes, total_bytes), "gpu: its memory cannot be read");
    pl_gpu_end(&scope);
    return status;
}

/* ---- modules ---------------------------------------------------------------------------------------------- */

uintptr_t pl_gpu_module(int device, const void *image)
{
    pl_gpu_scope scope;
    cu_module module = NULL;
    pl_gpu *gpu = pl_gpu_get(device);
    if (!gpu || pl_gpu_begin(gpu, &scope) != PL_OK)
        return 0;
    pl_gpu_fail(cu.module_new(&module, image), "gpu: a compiled module cannot be loaded");
    pl_gpu_end(&scope);
    return (uintptr_t)module;
}

uintptr_t pl_gpu_function(int device, uintptr_t module, const char *name)
{
    pl_gpu_scope scope;
    cu_function function = NULL;
    pl_gpu *gpu = pl_gpu_get(device);
    if (!gpu || pl_gpu_begin(gpu, &scope) != PL_OK)
        return 0;
    char what[200];
    snprintf(what, sizeof what, "gpu: a module has no function %s", name);
    pl_gpu_fail(cu.module_function(&function, (cu_module)module, name), what);
    pl_gpu_end(&scope);
    return (uintptr_t)function;
}

int pl_gpu_function_shared(int device, uintptr_t function, int32_t bytes)
{
    pl_gpu_scope scope;
    pl_gpu *gpu = pl_gpu_get(device);
    int status = gpu ? pl_gpu_begin(gpu, &scope) : PL_EINVAL;
    if (status != PL_OK)
        return status;
    status = pl_gpu_fail(cu.function_set((cu_function)function, CU_FUNCTION_MAX_DYNAMIC_SHARED, bytes),
                         "gpu: a kernel cannot have that much shared memory");
    pl_gpu_end(&scope);
    return status;
}
