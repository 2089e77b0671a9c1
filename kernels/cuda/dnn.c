/* Convolutions by cuDNN 9, found with dlopen. Its few types are declared here, so that building needs no toolkit. A
 * call that cuDNN rejects runs on our own kernels, from then on without trying cuDNN. Source: cuDNN API reference, the
 * legacy functions of 9. */
#include "dnn.h"
#include "engine/core/gpu.h"
#include "kernels/cpu/dtype.h"

#include <stdlib.h>

typedef int dnn_status;                       /* cudnnStatus_t: 0 is success */
typedef void *dnn_handle, *dnn_tensor, *dnn_filter, *dnn_conv, *dnn_activation;
typedef struct {                              /* the three cudnnConvolution*AlgoPerf_t are alike */
    int algorithm;
    dnn_status status;
    float ms;
    size_t space_bytes;
    int deterministic, math, reserved[3];
} dnn_choice;

enum {
    DNN_FLOAT = 0, DNN_DOUBLE = 1, DNN_HALF = 2, DNN_BFLOAT16 = 9,                       /* cudnnDataType_t */
    DNN_NCHW = 0, DNN_NHWC = 1, DNN_CROSS_CORRELATION = 1, DNN_RELU = 1, DNN_PROPAGATE_NAN = 1,
    DNN_DEFAULT_MATH = 0, DNN_TENSOR_OP_MATH = 1, DNN_FMA_MATH = 3,                      /* cudnnMathType_t */
    MAX_CHOICES = 8
};

#define DNN_FUNCTIONS(X) \
    X(create, cudnnCreate, (dnn_handle *handle)) \
    X(stream_set, cudnnSetStream, (dnn_handle handle, void *stream)) \
    X(tensor_new, cudnnCreateTensorDescriptor, (dnn_tensor *tensor)) \
    X(tensor_set, cudnnSetTensorNdDescriptor, \
      (dnn_tensor tensor, int type, int n, const int *sizes, const int *steps)) \
    X(tensor_free, cudnnDestroyTensorDescriptor, (dnn_tensor tensor)) \
    X(filter_new, cudnnCreateFilterDescriptor, (dnn_filter *filter)) \
    X(filter_set, cudnnSetFilterNdDescriptor, (dnn_filter filter, int type, int format, int n, const int *sizes)) \
    X(filter_free, cudnnDestroyFilterDescriptor, (dnn_filter filter)) \
    X(conv_new, cudnnCreateConvolutionDescriptor, (dnn_conv *conv)) \
    X(conv_set, cudnnSetConvolutionNdDescriptor, (dnn_conv conv, int n, const int *pad, const int *stride, \
                                                  const int *dilate, int mode, int type)) \
    X(conv_groups, cudnnSetConvolutionGroupCount, (dnn_conv conv, int groups)) \
    X(conv_math, cudnnSetConvolutionMathType, (dnn_conv conv, int math)) \
    X(conv_free, cudnnDestroyConvolutionDescriptor, (dnn_conv conv)) \
    X(activation_new, cudnnCreateActivationDescriptor, (dnn_activation *activation)) \
    X(activation_set, cudnnSetActivationDescriptor, \
      (dnn_activation activation, int mode, int nan, double coefficient)) \
    X(activation_free, cudnnDestroyActivationDescriptor, (dnn_activation activation)) \
    X(forward_choices, cudnnGetConvolutionForwardAlgorithm_v7, \
      (dnn_handle handle, dnn_tensor x, dnn_filter w, dnn_conv c, dnn_tensor y, int wanted, int *n, \
       dnn_choice *found)) \
    X(data_choices, cudnnGetConvolutionBackwardDataAlgorithm_v7, (dnn_handle handle, dnn_filter w, dnn_tensor dy, \
                                                                  dnn_conv c, dnn_tensor dx, int wanted, int *n, \
                                                                  dnn_choice *found)) \
    X(weight_choices, cudnnGetConvolutionBackwardFilterAlgorithm_v7, (dnn_handle handle, dnn_tensor x, dnn_tensor dy, \
                                                                      dnn_conv c, dnn_filter dw, int wanted, int *n, \
                                                                      dnn_choice *found)) \
    X(forward, cudnnConvolutionForward, (dnn_handle handle, const void *alpha, dnn_tensor x_desc, const void *x, \
                                         dnn_filter w_desc, const void *w, dnn_conv c, int algorithm, void *space, \
                                         size_t space_bytes, const void *beta, dnn_tensor y_desc, void *y)) \
    X(forward_relu, cudnnConvolutionBiasActivationForward, \
      (dnn_handle handle, const void *alpha, dnn_tensor x_desc, const void *x, dnn_filter w_desc, const void *w, \
       dnn_conv c, int algorithm, void *space, size_t space_bytes, const void *alpha2, dnn_tensor z_desc, \
       const void *z, dnn_tensor bias_desc, const void *bias, dnn_activation activation, dnn_tensor y_desc, void *y)) \
    X(data, cudnnConvolutionBackwardData, (dnn_handle handle, const void *alpha, dnn_filter w_desc, const void *w, \
                                           dnn_tensor dy_desc, const void *dy, dnn_conv c, int algorithm, void *space, \
                                           size_t space_bytes, const void *beta, dnn_tensor dx_desc, void *dx)) \
    X(weight, cudnnConvolutionBackwardFilter, (dnn_handle handle, const void *alpha, dnn_tensor x_desc, const void *x, \
                                               dnn_tensor dy_desc, const void *dy, dnn_conv c, int algorithm, \
                                               void *space, size_t space_bytes, const void *beta, dnn_filter dw_desc, \
                                               void *dw))

#define DNN_DECLARE(name, symbol, parameters) dnn_status (*name) parameters;
static struct { DNN_FUNCTIONS(DNN_DECLARE) } dnn;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* guards loading, and the handles */
static bool loaded;
static dnn_handle handles[PL_MAX_GPUS];

/* What a plan keeps between calls; guarded by its stream's lock. */
typedef struct {
    dnn_tensor x, y, bias;
    dnn_filter w;
    dnn_conv conv;
    dnn_activation activation;
    dnn_choice choice;
    bool ready, refused;
} plk_cudnn_state;

int plk_cudnn_load(const char *path)
{
#define DNN_NAME(name, symbol, parameters) #symbol,
    static const char *const names[] = {DNN_FUNCTIONS(DNN_NAME)};
    pthread_mutex_lock(&lock);
    loaded = loaded || plk_library_load(path, (int)(sizeof names / sizeof *names), names, (void **)&dnn);
    bool found = loaded;
    pthread_mutex_unlock(&lock);
    return found;
}

dnn_handle plk_cudnn_handle(void)
{
    int device = pl_gpu_device();
    if (device < 0 || device >= PL_MAX_GPUS)
        return NULL;
    pthread_mutex_lock(&lock);
    if (!handles[device] && dnn.create(&handles[device]))
        handles[device] = NULL;
    dnn_handle found = handles[device];
    pthread_mutex_unlock(&lock);
    return found && !dnn.stream_set(found, pl_gpu_stream()) ? found : NULL;
}

uintptr_t plk_cudnn_new(void)
{
    return (uintptr_t)calloc(1, sizeof(plk_cudnn_state));
}

void plk_cudnn_free(uintptr_t handle)
{
    plk_cudnn_state *s = (plk_cudnn_state *)handle;
    if (!s)
        return;
    dnn_tensor tensors[] = {s->x, s->y, s->bias};
    for (int i = 0; i < 3; i++)
        if (tensors[i])
            dnn.tensor_free(tensors[i]);
    if (s->w)
        dnn.filter_free(s->w);
    if (s->conv)
        dnn.conv_free(s->conv);
    if (s->activation)
        dnn.activation_free(s->activation);
    free(s);
}

static dnn_status state_make(const plk_cudnn *p, plk_cudnn_state *s)
{
    int type = p->dtype == PLK_F64 ? DNN_DOUBLE : p->dtype == PLK_F16 ? DNN_HALF : p->dtype == PLK_BF16 ? DNN_BFLOAT16
                                                                                                       : DNN_FLOAT;
    int math = type == DNN_HALF || type == DNN_BFLOAT16 ? DNN_TENSOR_OP_MATH
        : p->tf32                                       ? DNN_DEFAULT_MATH
                                                        : DNN_FMA_MATH;
    int n = p->nd + 2, bias[5] = {1, p->w[0], 1, 1, 1}, bias_steps[5] = {p->w[0], 1, 1, 1, 1};
    dnn_status status = dnn.tensor_new(&s->x);
#define TRY(call) if (!status) status = call;
    TRY(dnn.tensor_set(s->x, type, n, p->x, p->x_steps))
    TRY(dnn.tensor_new(&s->y))
    TRY(dnn.tensor_set(s->y, type, n, p->y, p->y_steps))
    TRY(dnn.tensor_new(&s->bias))
    TRY(dnn.tensor_set(s->bias, type, n, bias, bias_steps))
    TRY(dnn.filter_new(&s->w))
    TRY(dnn.filter_set(s->w, type, p->channels_last ? DNN_NHWC : DNN_NCHW, n, p->w))
    TRY(dnn.conv_new(&s->conv))
    TRY(dnn.conv_set(s->conv, p->nd, p->pad, p->stride, p->dilate, DNN_CROSS_CORRELATION,
                     type == DNN_DOUBLE ? DNN_DOUBLE : DNN_FLOAT))
    TRY(dnn.conv_groups(s->conv, p->groups))
    TRY(dnn.conv_math(s->conv, math))
    TRY(dnn.activation_new(&s->activation))
    TRY(dnn.activation_set(s->activation, DNN_RELU, DNN_PROPAGATE_NAN, 0.0))
#undef TRY
    return status;
}

/* The fastest algorithm, by cuDNN's own rules, whose workspace fits. */
static bool choose(const plk_cudnn *p, plk_cudnn_state *s, dnn_handle handle)
{
    dnn_choice found[MAX_CHOICES];
    int n = 0;
    dnn_status status;
    if (p->kind == PLK_CUDNN_FORWARD)
        status = dnn.forward_choices(handle, s->x, s->w, s->conv, s->y, MAX_CHOICES, &n, found);
    else if (p->kind == PLK_CUDNN_DATA)
        status = dnn.data_choices(handle, s->w, s->y, s->conv, s->x, MAX_CHOICES, &n, found);
    else
        status = dnn.weight_choices(handle, s->x, s->y, s->conv, s->w, MAX_CHOICES, &n, found);
    for (int i = 0; i < n && !status; i++)
        if (!found[i].status && found[i].space_bytes <= PLK_CUDNN_WORKSPACE_BYTES) {
            s->choice = found[i];
            return !dnn.conv_math(s->conv, found[i].math);
        }
    return false;
}

static dnn_status compute(const plk_cudnn *p, plk_cudnn_state *s, dnn_handle handle, void *const *bufs, char *scratch)
{
    void *left = plk_where_find(&p->left, bufs, scratch), *right = plk_where_find(&p->right, bufs, scratch);
    void *out = plk_where_find(&p->out, bufs, scratch), *bias = plk_where_find(&p->bias, bufs, scratch);
    void *addend = plk_where_find(&p->addend, bufs, scratch), *space = scratch + p->workspace_at;
    float one = 1, zero = 0;
    double wide_one = 1, wide_zero = 0;
    bool wide = p->dtype == PLK_F64;
    const void *alpha = wide ? (void *)&wide_one : &one, *beta = wide ? (void *)&wide_zero : &zero;
    int algorithm = s->choice.algorithm;
    size_t bytes = s->choice.space_bytes;
    if (p->kind == PLK_CUDNN_DATA)
        return dnn.data(handle, alpha, s->w, right, s->y, left, s->conv, algorithm, space, bytes, beta, s->x, out);
    if (p->kind == PLK_CUDNN_WEIGHT)
        return dnn.weight(handle, alpha, s->x, right, s->y, left, s->conv, algorithm, space, bytes, beta, s->w, out);
    if (p->act)
        return dnn.forward_relu(handle, alpha, s->x, left, s->w, right, s->conv, algorithm, space, bytes,
                                addend ? alpha : beta, s->y, addend ? addend : out, s->bias, bias, s->activation, s->y,
                                out);
    return dnn.forward(handle, alpha, s->x, left, s->w, right, s->conv, algorithm, space, bytes, beta, s->y, out);
}

int plk_cudnn_run(const void *params, void *const *bufs, const double *scalars)
{
    const plk_cudnn *p = params;
    plk_cudnn_state *s = (plk_cudnn_state *)p->state;
    if (s->refused)
        return pl_kernel_launch(p->otherwise, bufs, scalars);
    dnn_handle handle = plk_cudnn_handle();
    if (handle && !s->ready)
        s->ready = !state_make(p, s) && choose(p, s, handle);
    char *scratch = handle && s->ready ? pl_gpu_scratch((size_t)p->workspace_at + s->choice.space_bytes + 1) : NULL;
    if (!scratch || compute(p, s, handle, bufs, scratch)) {
        s->refused = true;
        return pl_kernel_launch(p->otherwise, bufs, scalars);
    }
    return p->after ? pl_kernel_launch(p->after, bufs, scalars) : PL_OK;
}
