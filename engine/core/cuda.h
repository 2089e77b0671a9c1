/* The CUDA driver's functions that plait calls, and their types. Declared here, so that building needs no toolkit.
 * Source: CUDA Driver API reference. */
#ifndef PLAIT_CUDA_H
#define PLAIT_CUDA_H
#include <stddef.h>
#include <stdint.h>

typedef int cu_result;                        /* CUresult: 0 is success */
typedef int cu_device;
typedef uint64_t cu_pointer;                  /* CUdeviceptr */
typedef void *cu_context, *cu_stream, *cu_event, *cu_module, *cu_function, *cu_graph, *cu_exec, *cu_node;

enum {
    CU_OUT_OF_MEMORY = 2, CU_NOT_READY = 600, CU_NO_DEVICE = 100,
    CU_STREAM_NON_BLOCKING = 1, CU_EVENT_DISABLE_TIMING = 2, CU_HOST_PORTABLE = 1, CU_CAPTURE_RELAXED = 2,
    CU_EVENT_EXTERNAL = 1,
    CU_ATTRIBUTE_MAX_BLOCK_THREADS = 1, CU_ATTRIBUTE_WARP = 10, CU_ATTRIBUTE_MULTIPROCESSORS = 16,
    CU_ATTRIBUTE_MAJOR = 75, CU_ATTRIBUTE_MINOR = 76, CU_ATTRIBUTE_SHARED_OPTIN = 97,
    CU_FUNCTION_MAX_DYNAMIC_SHARED = 8
};

typedef struct {                              /* CUDA_KERNEL_NODE_PARAMS_v1 */
    cu_function function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params, **extra;
} cu_kernel_node;

/* name of our pointer, exported symbol, parameters */
#define CU_FUNCTIONS(X) \
    X(init, cuInit, (unsigned flags)) \
    X(driver_version, cuDriverGetVersion, (int *version)) \
    X(error_name, cuGetErrorName, (cu_result code, const char **text)) \
    X(error_string, cuGetErrorString, (cu_result code, const char **text)) \
    X(device_count, cuDeviceGetCount, (int *n)) \
    X(device_get, cuDeviceGet, (cu_device *device, int number)) \
    X(device_name, cuDeviceGetName, (char *name, int bytes, cu_device device)) \
    X(device_bytes, cuDeviceTotalMem_v2, (size_t *bytes, cu_device device)) \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, cu_device device)) \
    X(device_peer, cuDeviceCanAccessPeer, (int *can, cu_device device, cu_device peer)) \
    X(primary_retain, cuDevicePrimaryCtxRetain, (cu_context *context, cu_device device)) \
    X(context_set, cuCtxSetCurrent, (cu_context context)) \
    X(context_get, cuCtxGetCurrent, (cu_context *context)) \
    X(context_peer, cuCtxEnablePeerAccess, (cu_context peer, unsigned flags)) \
    X(memory_info, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes)) \
    X(memory_new, cuMemAlloc_v2, (cu_pointer *data, size_t bytes)) \
    X(memory_free, cuMemFree_v2, (cu_pointer data)) \
    X(host_new, cuMemHostAlloc, (void **data, size_t bytes, unsigned flags)) \
    X(host_free, cuMemFreeHost, (void *data)) \
    X(copy, cuMemcpyAsync, (cu_pointer to, cu_pointer from, size_t bytes, cu_stream stream)) \
    X(fill, cuMemsetD8Async, (cu_pointer to, unsigned char value, size_t bytes, cu_stream stream)) \
    X(stream_new, cuStreamCreateWithPriority, (cu_stream *stream, unsigned flags, int priority)) \
    X(stream_free, cuStreamDestroy_v2, (cu_stream stream)) \
    X(stream_sync, cuStreamSynchronize, (cu_stream stream)) \
    X(stream_wait, cuStreamWaitEvent, (cu_stream stream, cu_event event, unsigned flags)) \
    X(event_new, cuEventCreate, (cu_event *event, unsigned flags)) \
    X(event_free, cuEventDestroy_v2, (cu_event event)) \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream)) \
    X(event_record_inside, cuEventRecordWithFlags, (cu_event event, cu_stream stream, unsigned flags)) \
    X(event_query, cuEventQuery, (cu_event event)) \
    X(event_sync, cuEventSynchronize, (cu_event event)) \
    X(event_elapsed, cuEventElapsedTime, (float *ms, cu_event start, cu_event end)) \
    X(module_new, cuModuleLoadData, (cu_module *module, const void *image)) \
    X(module_free, cuModuleUnload, (cu_module module)) \
    X(module_function, cuModuleGetFunction, (cu_function *function, cu_module module, const char *name)) \
    X(function_set, cuFuncSetAttribute, (cu_function function, int attribute, int value)) \
    X(launch, cuLaunchKernel, (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, \
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, \
                               cu_stream stream, void **params, void **extra)) \
    X(launch_together, cuLaunchCooperativeKernel, (cu_function function, unsigned grid_x, unsigned grid_y, \
                               unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, \
                               unsigned shared_bytes, cu_stream stream, void **params)) \
    X(capture_begin, cuStreamBeginCapture_v2, (cu_stream stream, int mode)) \
    X(capture_end, cuStreamEndCapture, (cu_stream stream, cu_graph *graph)) \
    X(capture_info, cuStreamGetCaptureInfo_v2, (cu_stream stream, int *status, uint64_t *id, cu_graph *graph, \
                                                const cu_node **last, size_t *n_last)) \
    X(graph_free, cuGraphDestroy, (cu_graph graph)) \
    X(exec_new, cuGraphInstantiateWithFlags, (cu_exec *exec, cu_graph graph, unsigned long long flags)) \
    X(exec_free, cuGraphExecDestroy, (cu_exec exec)) \
    X(exec_launch, cuGraphLaunch, (cu_exec exec, cu_stream stream)) \
    X(exec_set_kernel, cuGraphExecKernelNodeSetParams, (cu_exec exec, cu_node node, const cu_kernel_node *params))

#define CU_DECLARE(name, symbol, parameters) cu_result (*name) parameters;
typedef struct { CU_FUNCTIONS(CU_DECLARE) } cu_functions;
#undef CU_DECLARE
extern cu_functions cu;                       /* set by pl_gpu_open */
#endif
