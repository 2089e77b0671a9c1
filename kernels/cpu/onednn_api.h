/* Shared by the files that build oneDNN primitives: its functions, found with dlopen, and runnable primitives.
 * Empty where plait was built without oneDNN's headers. */
#ifndef PLK_ONEDNN_API_H
#define PLK_ONEDNN_API_H
#include "kernel.h"
#if __has_include("oneapi/dnnl/dnnl.h")
#define PLK_ONEDNN 1
#include "oneapi/dnnl/dnnl.h"
#include "oneapi/dnnl/dnnl_debug.h"

#define PLK_DNN_FUNCTIONS(F) \
    F(dnnl_version) F(dnnl_engine_create) F(dnnl_stream_create) F(dnnl_memory_create) \
    F(dnnl_memory_destroy) F(dnnl_memory_set_data_handle) F(dnnl_memory_desc_create_with_strides) \
    F(dnnl_memory_desc_create_with_tag) F(dnnl_memory_desc_destroy) F(dnnl_memory_desc_equal) \
    F(dnnl_memory_desc_get_size) F(dnnl_memory_desc_clone) F(dnnl_memory_desc_query) F(dnnl_fmt_tag2str) \
    F(dnnl_primitive_attr_create) F(dnnl_primitive_attr_destroy) F(dnnl_primitive_attr_set_scratchpad_mode) \
    F(dnnl_primitive_attr_set_post_ops) F(dnnl_post_ops_create) F(dnnl_post_ops_destroy) F(dnnl_post_ops_append_sum) \
    F(dnnl_primitive_create) F(dnnl_primitive_execute) F(dnnl_primitive_destroy) F(dnnl_primitive_desc_destroy) \
    F(dnnl_primitive_desc_query) F(dnnl_primitive_desc_query_md) \
    F(dnnl_reorder_primitive_desc_create) \
    F(dnnl_convolution_forward_primitive_desc_create) F(dnnl_convolution_backward_data_primitive_desc_create) \
    F(dnnl_convolution_backward_weights_primitive_desc_create)
#define PLK_DNN_POINTER(name) __typeof__(&name) name;
typedef struct { PLK_DNN_FUNCTIONS(PLK_DNN_POINTER) } plk_dnn_functions;
extern plk_dnn_functions plk_dnn_api;            /* filled by plk_dnn_load */
extern dnnl_engine_t plk_dnn_engine;             /* NULL: not loaded */

enum { PLK_DNN_MAX_ARGS = 8 };

typedef struct {
    int id, is_output, buf;                      /* DNNL_ARG_*; which of the kernel's bufs */
    dnnl_memory_desc_t given, chosen;            /* of the caller's array, and of the primitive's */
    dnnl_primitive_t reorder;                    /* between the two; NULL: they are the same */
    size_t bytes;                                /* of the reordered array, in scratch */
} plk_dnn_arg;

/* A primitive that runs on a kernel's bufs. Threads may share it: the memory objects belong to a run, and are kept
 * for the next one. It runs on the number of threads that it was made with: oneDNN plans its work for it. */
typedef struct {
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t scratch;
    size_t scratch_bytes;
    int n_args, n_threads;
    plk_dnn_arg args[PLK_DNN_MAX_ARGS];
    void *spare;                                 /* the memory objects of a run that ended, or NULL */
} plk_dnn_object;

/* The layout of an array whose logical axes are dims: "" is row-major, else oneDNN's tag. new; NULL: no such layout */
dnnl_memory_desc_t plk_dnn_desc(int ndim, const int64_t *dims, const char *layout);
/* Finds the first tag after number `after` that names a layout, and writes it to text (PLK_LAYOUT_CHARS). Returns its
 * number; 0: there is none. */
int plk_dnn_tag(const_dnnl_memory_desc_t md, int after, char *text);
/* Adds an argument whose array the caller has as `given` (given). 0: failed */
int plk_dnn_add_arg(plk_dnn_object *o, dnnl_primitive_desc_t pd, int id, int is_output, int buf,
                    dnnl_memory_desc_t given);
/* Makes the primitive and its scratch after all arguments were added. pd: borrowed. 0: failed */
int plk_dnn_finish(plk_dnn_object *o, dnnl_primitive_desc_t pd);
#endif
#endif
