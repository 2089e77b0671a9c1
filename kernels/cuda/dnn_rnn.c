/* Recurrent layers by cuDNN 9's v8 functions. Forward and backward must agree on the format of the reserve, so the
 * library is chosen once for all calls of the same sizes on a device. Source: cuDNN API reference, library adv of 9. */
#include "dnn_rnn.h"
#include "dnn.h"
#include "engine/core/gpu.h"
#include "kernels/cpu/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int dnn_status;                       /* cudnnStatus_t: 0 is success */
typedef void *dnn_handle, *dnn_tensor, *dnn_rnn, *dnn_data;

enum {
    DNN_FLOAT = 0, DNN_HALF = 2, DNN_BFLOAT16 = 9,                                       /* cudnnDataType_t */
    DNN_DEFAULT_MATH = 0, DNN_TENSOR_OP_MATH = 1, DNN_FMA_MATH = 3,                      /* cudnnMathType_t */
    /* cudnnRNNAlgo_t, BiasMode, InputMode */
    DNN_ALGO_STANDARD = 0, DNN_DOUBLE_BIAS = 2, DNN_LINEAR_INPUT = 0,
    /* cudnnRNNMode_t; relu 0, tanh 1 */
    DNN_LSTM = 2, DNN_GRU = 3,
    /* cudnnRNNDataLayout_t, ForwardMode */
    DNN_PACKED = 1, DNN_INFERENCE = 0, DNN_TRAINING = 1, DNN_WGRAD_ADD = 0,
    DNN_NOT_INITIALIZED = 1001                                                           /* cudnnStatus_t */
};

#define DNN_FUNCTIONS(X) \
    X(tensor_new, cudnnCreateTensorDescriptor, (dnn_tensor *tensor)) \
    X(tensor_set, cudnnSetTensorNdDescriptor, \
      (dnn_tensor tensor, int type, int n, const int *sizes, const int *steps)) \
    X(tensor_get, cudnnGetTensorNdDescriptor, \
      (dnn_tensor tensor, int most, int *type, int *n, int *sizes, int *steps)) \
    X(tensor_free, cudnnDestroyTensorDescriptor, (dnn_tensor tensor)) \
    X(data_new, cudnnCreateRNNDataDescriptor, (dnn_data *data)) \
    X(data_set, cudnnSetRNNDataDescriptor, (dnn_data data, int type, int layout, int steps, int batch, int size, \
                                            const int *lengths, void *padding)) \
    X(data_free, cudnnDestroyRNNDataDescriptor, (dnn_data data)) \
    X(rnn_new, cudnnCreateRNNDescriptor, (dnn_rnn *rnn)) \
    X(rnn_set, cudnnSetRNNDescriptor_v8, \
      (dnn_rnn rnn, int algorithm, int mode, int bias, int direction, int input, int type, int precision, int math, \
       int32_t inputs, int32_t hidden, int32_t projection, int32_t layers, void *dropout, uint32_t flags)) \
    X(rnn_free, cudnnDestroyRNNDescriptor, (dnn_rnn rnn)) \
    X(weight_bytes, cudnnGetRNNWeightSpaceSize, (dnn_handle handle, dnn_rnn rnn, size_t *bytes)) \
    X(weight_find, cudnnGetRNNWeightParams, \
      (dnn_handle handle, dnn_rnn rnn, int32_t cell, size_t bytes, const void *weights, int32_t id, \
       dnn_tensor matrix, void **matrix_at, dnn_tensor bias, void **bias_at)) \
    X(spaces, cudnnGetRNNTempSpaceSizes, (dnn_handle handle, dnn_rnn rnn, int training, dnn_data x, size_t *space, \
                                         size_t *reserve_bytes)) \
    X(forward, cudnnRNNForward, \
      (dnn_handle handle, dnn_rnn rnn, int training, const int32_t *lengths, dnn_data x_desc, const void *x, \
       dnn_data y_desc, void *y, dnn_tensor h_desc, const void *hx, void *hy, dnn_tensor c_desc, const void *cx, \
       void *cy, size_t weight_bytes, const void *weights, size_t space_bytes, void *space, size_t reserve_bytes, \
       void *reserve)) \
    X(back, cudnnRNNBackwardData_v8, \
      (dnn_handle handle, dnn_rnn rnn, const int32_t *lengths, dnn_data y_desc, const void *y, const void *dy, \
       dnn_data x_desc, void *dx, dnn_tensor h_desc, const void *hx, const void *dhy, void *dhx, dnn_tensor c_desc, \
       const void *cx, const void *dcy, void *dcx, size_t weight_bytes, const void *weights, size_t space_bytes, \
       void *space, size_t reserve_bytes, void *reserve)) \
    X(back_weights, cudnnRNNBackwardWeights_v8, (dnn_handle handle, dnn_rnn rnn, int add, const int32_t *lengths, \
                                                 dnn_data x_desc, const void *x, dnn_tensor h_desc, const void *hx, \
                                                 dnn_data y_desc, const void *y, size_t weight_bytes, void *dweights, \
                                                 size_t space_bytes, void *space, size_t reserve_bytes, void *reserve))

#define DNN_DECLARE(name, symbol, parameters) dnn_status (*name) parameters;
static struct { DNN_FUNCTIONS(DNN_DECLARE) } dnn;

/* Which library runs the RNNs of some sizes on a device. UNTRIED: cuDNN will be tried; the first call that succeeds or
 * fails decides for the process. Backward uses the decision of forward. */
enum { UNTRIED, CUDNN, OURS };
typedef struct { int32_t device, training, dtype, mode, steps, batch, inputs, hidden, layers, directions; } sizes;
typedef struct verdict {
    struct verdict *next;
    sizes of;
    atomic_int who;
    size_t weight_bytes, space_bytes, reserve_bytes;
} verdict;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* guards loading, and the list */
static bool loaded;
static verdict *verdicts;

/* What a plan keeps between calls; guarded by its stream's lock. */
typedef struct {
    dnn_rnn rnn;
    dnn_data x, y;
    dnn_tensor states;
    bool described;
    verdict *found;
} rnn_state;

int plk_cudnn_rnn_load(const char *path)
{
#define DNN_NAME(name, symbol, parameters) #symbol,
    static const char *const names[] = {DNN_FUNCTIONS(DNN_NAME)};
    pthread_mutex_lock(&lock);
    loaded = loaded || plk_library_load(path, (int)(sizeof names / sizeof *names), names, (void **)&dnn);
    bool found = loaded;
    pthread_mutex_unlock(&lock);
    return found;
}

uintptr_t plk_cudnn_rnn_new(void)
{
    return (uintptr_t)calloc(1, sizeof(rnn_state));
}

void plk_cudnn_rnn_free(uintptr_t handle)
{
    rnn_state *s = (rnn_state *)handle;
    if (!s)
        return;
    if (s->rnn)
        dnn.rnn_free(s->rnn);
    if (s->x)
        dnn.data_free(s->x);
    if (s->y)
        dnn.data_free(s->y);
    if (s->states)
        dnn.tensor_free(s->states);
    free(s);
}

static int type_of(const plk_cudnn_rnn *p)
{
    return p->dtype == PLK_F16 ? DNN_HALF : p->dtype == PLK_BF16 ? DNN_BFLOAT16 : DNN_FLOAT;
}
static size_t item_bytes(const plk_cudnn_rnn *p) { return p->dtype == PLK_F32 ? 4 : 2; }
static int gates_of(const plk_cudnn_rnn *p) { return p->mode == DNN_LSTM ? 4 : p->mode == DNN_GRU ? 3 : 1; }

static dnn_status state_make(const plk_cudnn_rnn *p, rnn_state *s)
{
    int type = type_of(p), math = type != DNN_FLOAT ? DNN_TENSOR_OP_MATH : p->tf32 ? DNN_DEFAULT_MATH : DNN_FMA_MATH;
    int n[3] = {p->layers * p->directions, p->batch, p->hidden}, steps[3] = {p->batch * p->hidden, p->hidden, 1};
    int *lengths = malloc((size_t)p->batch * sizeof *lengths);
    if (!lengths)
        return DNN_NOT_INITIALIZED;
    for (int b = 0; b < p->batch; b++)
        lengths[b] = p->steps;
    dnn_status status = dnn.rnn_new(&s->rnn);
#define TRY(call) if (!status) status = call;
    TRY(dnn.rnn_set(s->rnn, DNN_ALGO_STANDARD, p->mode, DNN_DOUBLE_BIAS, p->directions - 1, DNN_LINEAR_INPUT, type,
                    DNN_FLOAT, math, p->inputs, p->hidden, p->hidden, p->layers, NULL, 0))
    TRY(dnn.data_new(&s->x))
    TRY(dnn.data_set(s->x, type, DNN_PACKED, p->steps, p->batch, p->inputs, lengths, NULL))
    TRY(dnn.data_new(&s->y))
    TRY(dnn.data_set(s->y, type, DNN_PACKED, p->steps, p->batch, p->directions * p->hidden, lengths, NULL))
    TRY(dnn.tensor_new(&s->states))
    TRY(dnn.tensor_set(s->states, type, 3, n, steps))
#undef TRY
    free(lengths);
    return status;
}

/* Is that tensor a matrix of these sizes, or for columns 1 a vector? */
static bool is_matrix(dnn_tensor tensor, int type, int rows, int columns)
{
    int has_type, n, size[3], step[3];
    return !dnn.tensor_get(tensor, 3, &has_type, &n, size, step) && has_type == type && n == 3 && size[0] == 1 &&
           size[1] == rows && size[2] == columns && step[1] == columns && step[2] == 1;
}

/* Are all matrices and biases of cuDNN at the offsets where the operator packs them? The operator's gates are in
 * cuDNN's order: lstm input, forget, new, output; gru reset, update, new. weight_bytes: of all of them. */
static bool packed_alike(const plk_cudnn_rnn *p, dnn_handle handle, const rnn_state *s, size_t weight_bytes,
                         const char *weights)
{
    int gates = gates_of(p), n_cells = p->layers * p->directions, type = type_of(p);
    int64_t hidden = p->hidden, at = 0, item = (int64_t)item_bytes(p);
    dnn_tensor matrix = NULL, bias = NULL;
    bool same = !dnn.tensor_new(&matrix) && !dnn.tensor_new(&bias);
    for (int pass = 0; pass < 2; pass++)      /* the biases come after all matrices */
        for (int cell = 0; cell < n_cells; cell++)
            for (int id = 0; id < 2 * gates && same; id++) {
                int columns = id >= gates ? p->hidden : cell < p->directions ? p->inputs : p->directions * p->hidden;
                void *matrix_at = NULL, *bias_at = NULL;
                same = !dnn.weight_find(handle, s->rnn, cell, weight_bytes, weights, id, matrix, &matrix_at, bias,
                                        &bias_at) &&
                    (pass ? (char *)bias_at : (char *)matrix_at) == weights + at * item &&
                    is_matrix(matrix, type, p->hidden, columns) && is_matrix(bias, type, p->hidden, 1);
                at += pass ? hidden : hidden * columns;
            }
    if (matrix)
        dnn.tensor_free(matrix);
    if (bias)
        dnn.tensor_free(bias);
    return same && (size_t)(at * item) == weight_bytes;
}

/* Can cuDNN take these sizes? Fills the bytes in. */
static bool can_serve(const plk_cudnn_rnn *p, dnn_handle handle, const rnn_state *s, const char *weights, verdict *v)
{
    return !dnn.weight_bytes(handle, s->rnn, &v->weight_bytes) &&
        packed_alike(p, handle, s, v->weight_bytes, weights) &&
        !dnn.spaces(handle, s->rnn, v->of.training ? DNN_TRAINING : DNN_INFERENCE, s->x, &v->space_bytes,
                   &v->reserve_bytes) &&
        v->space_bytes <= PLK_CUDNN_RNN_WORKSPACE_BYTES &&
        (!v->of.training || v->reserve_bytes <= (size_t)p->reserve_bytes);
}

/* Makes the descriptors of a plan and finds the decision for its sizes; NULL: out of memory. */
static verdict *decide(const plk_cudnn_rnn *p, rnn_state *s, dnn_handle handle, const char *weights)
{
    sizes of = {pl_gpu_device(), p->kind != PLK_CUDNN_RNN_INFER, p->dtype, p->mode, p->steps, p->batch, p->inputs,
                p->hidden, p->layers, p->directions};
    s->described = handle && !state_make(p, s);
    pthread_mutex_lock(&lock);
    verdict *v = verdicts;
    while (v && memcmp(&v->of, &of, sizeof of))
        v = v->next;
    if (!v && (v = calloc(1, sizeof *v))) {
        v->of = of;
        v->who = s->described && can_serve(p, handle, s, weights, v) ? UNTRIED : OURS;
        v->next = verdicts;
        verdicts = v;
    }
    pthread_mutex_unlock(&lock);
    return v;
}

static dnn_status compute(const plk_cudnn_rnn *p, const rnn_state *s, dnn_handle handle, void *const *bufs,
                          char *scratch)
{
#define AT(name) void *name = plk_where_find(&p->name, bufs, scratch);
    AT(x) AT(parameters) AT(h) AT(c) AT(y) AT(last_h) AT(last_c) AT(lengths) AT(reserve)
    AT(dy) AT(dlast_h) AT(dlast_c) AT(dx) AT(dparameters) AT(dh) AT(dc)
#undef AT
    const verdict *v = s->found;
    void *space = scratch + p->workspace_at;
    if (p->kind != PLK_CUDNN_RNN_BACK)
        return dnn.forward(handle, s->rnn, p->kind == PLK_CUDNN_RNN_TRAIN ? DNN_TRAINING : DNN_INFERENCE, lengths, s->x,
                           x, s->y, y, s->states, h, last_h, s->states, c, last_c, v->weight_bytes, parameters,
                           v->space_bytes, space, v->reserve_bytes, reserve);
    dnn_status status = dnn.back(handle, s->rnn, lengths, s->y, y, dy, s->x, dx, s->states, h, dlast_h, dh, s->states,
                                 c, dlast_c, dc, v->weight_bytes, parameters, v->space_bytes, space, v->reserve_bytes,
                                 reserve);
    return status ? status
                  : dnn.back_weights(handle, s->rnn, DNN_WGRAD_ADD, lengths, s->x, x, s->states, h, s->y, y,
                                     v->weight_bytes, dparameters, v->space_bytes, space, v->reserve_bytes, reserve);
}

int plk_cudnn_rnn_run(const void *params, void *const *bufs, const double *scalars)
{
    const plk_cudnn_rnn *p = params;
    rnn_state *s = (rnn_state *)p->state;
    dnn_handle handle = plk_cudnn_handle();
    if (!s->found)
        s->found = decide(p, s, handle, plk_where_find(&p->parameters, bufs, NULL));
    if (!s->found)
        return pl_fail(PL_ENOMEM, "out of memory for an RNN");
    int who = s->found->who;
    bool back = p->kind == PLK_CUDNN_RNN_BACK;
    if (who == OURS || (back && who == UNTRIED))
        return p->otherwise.run(p->otherwise.params, bufs, scalars);
    handle = s->described ? handle : NULL;
    char *scratch = handle ? pl_gpu_scratch((size_t)p->workspace_at + s->found->space_bytes) : NULL;
    int status = scratch && p->before ? pl_kernel_launch(p->before, bufs, scalars) : PL_OK;
    if (status != PL_OK)
        return status;
    dnn_status failed = scratch ? compute(p, s, handle, bufs, scratch) : DNN_NOT_INITIALIZED;
    if (!failed) {
        s->found->who = CUDNN;
        return p->after ? pl_kernel_launch(p->after, bufs, scalars) : PL_OK;
    }
    /* A failure while recording decides nothing, because the call can still run. While training, a success decides:
     * its reserve is in cuDNN's format, which our kernels cannot read. */
    if (!pl_gpu_now.recorder && (who == UNTRIED || p->kind == PLK_CUDNN_RNN_INFER)) {
        s->found->who = OURS;
        return p->otherwise.run(p->otherwise.params, bufs, scalars);
    }
    if (handle && !scratch)
        return PL_ENOMEM;                     /* its message is there */
    char message[160];
    snprintf(message, sizeof message, "gpu: cuDNN cannot run an RNN that it ran before (cudnnStatus_t %d)", failed);
    return pl_fail(PL_FAILED, message);
}
