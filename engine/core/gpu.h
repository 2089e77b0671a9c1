/* GPUs: the driver, devices and their contexts, modules, errors. See docs/design/gpu.md. */
#ifndef PLAIT_GPU_H
#define PLAIT_GPU_H
#include "cuda.h"
#include "lane.h"
#include "stream.h"
/* cffi reads from here on: */
/* Loads the driver's library (a path or name) unless it is loaded. PL_OK, or PL_FAILED: no driver, or no GPU. */
int pl_gpu_open(const char *library);
int pl_gpu_count(void);                       /* 0 before pl_gpu_open */
typedef struct {
    char name[128];
    int32_t major, minor, driver;             /* compute capability; driver: 13000 is CUDA 13.0 */
    int32_t n_multiprocessors, max_shared_bytes, warp_threads, max_block_threads;
    size_t total_bytes;
} pl_gpu_properties;
int pl_gpu_get_properties(int device, pl_gpu_properties *properties);
int pl_gpu_memory(int device, size_t *free_bytes, size_t *total_bytes);
/* image: a cubin, fatbin or PTX text that ends with 0; borrowed.  Modules stay loaded.  0: failure. */
uintptr_t pl_gpu_module(int device, const void *image);
uintptr_t pl_gpu_function(int device, uintptr_t module, const char *name);    /* its mangled name */
int pl_gpu_function_shared(int device, uintptr_t function, int32_t bytes);    /* dynamic shared memory over 48 KiB */
int pl_gpu_fail(int code, const char *what);  /* a CUresult as a status, with a message; PL_OK for 0 */
/* cffi stops reading here */

enum { PL_MAX_GPUS = 32 };

struct pl_gpu {
    int number;
    cu_device device;
    cu_context context;
    pl_stream streams[PL_LANE_COUNT - PL_LANE_GPU_COMPUTE];
    pl_timing *spare_timing;         /* under pl_lock */
};

pl_gpu *pl_gpu_get(int device);                                  /* opened at the first use; NULL, with a message */
pl_gpu *pl_gpu_open_at(int device);                              /* NULL: not opened yet */
typedef struct { cu_context before; bool changed; } pl_gpu_scope;
int pl_gpu_begin(pl_gpu *gpu, pl_gpu_scope *scope);              /* makes its context current on this thread */
void pl_gpu_end(const pl_gpu_scope *scope);
void pl_gpu_forget(void);                                        /* in a forked child: no GPU can be used there */
#endif
