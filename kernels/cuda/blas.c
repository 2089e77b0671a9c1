/* Matrix products by cuBLASLt, found with dlopen. Its few types are declared here, so that building needs no toolkit.
 * It is column-major and plait is row-major, so it computes C^T = op(B)^T op(A)^T. Source: cuBLASLt API
 * reference. */
#include "blas.h"
#include "engine/core/gpu.h"
#include "kernels/cpu/dtype.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef int lt_status;                        /* cublasStatus_t: 0 is success */
typedef void *lt_handle, *lt_desc, *lt_layout, *lt_preference;
typedef struct { uint64_t data[8]; } lt_algorithm;
typedef struct {
    lt_algorithm algorithm;
    size_t workspace_bytes;
    lt_status state;
    float waves;
    int reserved[4];
} lt_heuristic;

enum {
    LT_R_32F = 0, LT_R_64F = 1, LT_R_16F = 2, LT_R_16BF = 14,                           /* cudaDataType_t */
    LT_COMPUTE_32F = 68, LT_COMPUTE_64F = 70, LT_COMPUTE_32F_FAST_TF32 = 77,            /* cublasComputeType_t */
    LT_DESC_TRANSA = 3, LT_DESC_TRANSB = 4, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS_POINTER = 8,
    /* cublasLtMatmulDescAttributes_t */
    LT_DESC_AUX_POINTER = 11, LT_DESC_AUX_LD = 12, LT_DESC_BIAS_TYPE = 26,
    LT_EPILOGUE_DEFAULT = 1, LT_EPILOGUE_RELU = 2, LT_EPILOGUE_BIAS = 4, LT_EPILOGUE_GELU = 32, LT_EPILOGUE_AUX = 128,
    /* cublasLtMatrixLayoutAttribute_t */
    LT_LAYOUT_BATCHES = 5, LT_LAYOUT_STEP = 6,
    LT_PREFER_WORKSPACE = 1, LT_PREFER_ALIGNMENT_A = 5, LT_NOT_SUPPORTED = 15
};

#define LT_FUNCTIONS(X) \
    X(create, cublasLtCreate, (lt_handle *handle)) \
    X(destroy, cublasLtDestroy, (lt_handle handle)) \
    X(desc_new, cublasLtMatmulDescCreate, (lt_desc *desc, int compute, int scale)) \
    X(desc_free, cublasLtMatmulDescDestroy, (lt_desc desc)) \
    X(desc_set, cublasLtMatmulDescSetAttribute, (lt_desc desc, int what, const void *value, size_t bytes)) \
    X(layout_new, cublasLtMatrixLayoutCreate, \
      (lt_layout *layout, int type, uint64_t rows, uint64_t columns, int64_t ld)) \
    X(layout_free, cublasLtMatrixLayoutDestroy, (lt_layout layout)) \
    X(layout_set, cublasLtMatrixLayoutSetAttribute, (lt_layout layout, int what, const void *value, size_t bytes)) \
    X(preference_new, cublasLtMatmulPreferenceCreate, (lt_preference *preference)) \
    X(preference_free, cublasLtMatmulPreferenceDestroy, (lt_preference preference)) \
    X(preference_set, cublasLtMatmulPreferenceSetAttribute, \
      (lt_preference p, int what, const void *value, size_t bytes)) \
    X(heuristic, cublasLtMatmulAlgoGetHeuristic, \
      (lt_handle handle, lt_desc desc, lt_layout a, lt_layout b, lt_layout c, lt_layout d, lt_preference preference, \
       int wanted, lt_heuristic *found, int *n_found)) \
    X(matmul, cublasLtMatmul, (lt_handle handle, lt_desc desc, const void *alpha, const void *a, lt_layout a_layout, \
                               const void *b, lt_layout b_layout, const void *beta, const void *c, lt_layout c_layout, \
                               void *d, lt_layout d_layout, const lt_algorithm *algorithm, void *workspace, \
                               size_t workspace_bytes, void *stream))

#define LT_DECLARE(name, symbol, parameters) lt_status (*name) parameters;
static struct { LT_FUNCTIONS(LT_DECLARE) } lt;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* guards loading, and the handles */
static bool loaded;
static lt_handle handles[PL_MAX_GPUS];

/* What a plan keeps between calls; guarded by its stream's lock. */
enum { N_CHOICES = 4 };
typedef struct {
    lt_desc desc;
    lt_layout a, b, c;
    struct { uint32_t alignment; lt_algorithm algorithm; size_t workspace_bytes; } choices[N_CHOICES];
    int n_choices;
} plk_blas_state;

void *plk_where_find(const plk_where *place, void *const *bufs, char *scratch)
{
    if (place->kind < 0)
        return NULL;
    return (place->kind == PL_ARGUMENT_SCRATCH ? scratch : (char *)bufs[place->index]) + place->offset_bytes;
}

int plk_steps_run(const void *params, void *const *bufs, const double *scalars)
{
    const plk_steps *p = params;
    if (p->scratch_bytes && !pl_gpu_scratch((size_t)p->scratch_bytes))    /* less aligned pointers use this one */
        return PL_ENOMEM;
    int status = PL_OK;
    for (int i = 0; i < p->n && status == PL_OK; i++)
        status = p->steps[i].run(p->steps[i].params, bufs, scalars);
    return status;
}

int plk_library_load(const char *path, int n, const char *const *names, void **functions)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    bool found = library != NULL;
    for (int i = 0; i < n && found; i++)
        found = (functions[i] = dlsym(library, names[i])) != NULL;
    return found;
}

int plk_blas_load(const char *path)
{
#define LT_NAME(name, symbol, parameters) #symbol,
    static const char *const names[] = {LT_FUNCTIONS(LT_NAME)};
    pthread_mutex_lock(&lock);
    loaded = loaded || plk_library_load(path, (int)(sizeof names / sizeof *names), names, (void **)&lt);
    bool found = loaded;
    pthread_mutex_unlock(&lock);
    return found;
}

static int fail(lt_status status, const char *what)
{
    char message[160];
    snprintf(message, sizeof message, "gpu: cuBLASLt cannot %s (cublasStatus_t %d)", what, status);
    return pl_fail(PL_FAILED, message);
}

static lt_handle handle_get(void)
{
    int device = pl_gpu_device();
    if (device < 0 || device >= PL_MAX_GPUS)
        return NULL;
    pthread_mutex_lock(&lock);
    if (!handles[device] && lt.create(&handles[device]))
        handles[device] = NULL;
    lt_handle found = handles[device];
    pthread_mutex_unlock(&lock);
    return found;
}

uintptr_t plk_blas_new(void)
{
    return (uintptr_t)calloc(1, sizeof(plk_blas_state));
}

void plk_blas_free(uintptr_t handle)
{
    plk_blas_state *s = (plk_blas_state *)handle;
    if (!s)
        return;
    if (s->desc)
        lt.desc_free(s->desc);
    lt_layout layouts[] = {s->a, s->b, s->c};
    for (int i = 0; i < 3; i++)
        if (layouts[i])
            lt.layout_free(layouts[i]);
    free(s);
}

static int type_of(int dtype)
{
    return dtype == PLK_F64 ? LT_R_64F : dtype == PLK_F16 ? LT_R_16F : dtype == PLK_BF16 ? LT_R_16BF : LT_R_32F;
}

static lt_status layout_make(lt_layout *layout, int type, int64_t rows, int64_t columns, int64_t ld, int64_t n_batch,
                             int64_t step)
{
    int32_t count = (int32_t)n_batch;
    lt_status status = lt.layout_new(layout, type, (uint64_t)rows, (uint64_t)columns, ld);
    if (!status && n_batch > 1) {
        status = lt.layout_set(*layout, LT_LAYOUT_BATCHES, &count, sizeof count);
        if (!status)
            status = lt.layout_set(*layout, LT_LAYOUT_STEP, &step, sizeof step);
    }
    return status;
}

static lt_status state_make(const plk_blas *p, plk_blas_state *s)
{
    int type = type_of(p->dtype), wide = p->dtype == PLK_F64;
    int compute = wide ? LT_COMPUTE_64F : p->dtype == PLK_F32 && p->tf32 ? LT_COMPUTE_32F_FAST_TF32 : LT_COMPUTE_32F;
    int32_t trans_a = p->transpose_b != 0, trans_b = p->transpose_a != 0;
    int32_t epilogue = p->act == PLK_BLAS_RELU ? LT_EPILOGUE_RELU : p->act == PLK_BLAS_GELU ? LT_EPILOGUE_GELU : 0;
    int64_t ld = p->y_row;
    if (p->aux.kind >= 0)
        epilogue |= LT_EPILOGUE_AUX;
    if (p->bias.kind >= 0)
        epilogue |= LT_EPILOGUE_BIAS;
    if (!epilogue)
        epilogue = LT_EPILOGUE_DEFAULT;
    lt_status status = lt.desc_new(&s->desc, compute, wide ? LT_R_64F : LT_R_32F);
#define SET(what, value) if (!status) status = lt.desc_set(s->desc, what, &value, sizeof value);
    SET(LT_DESC_TRANSA, trans_a)
    SET(LT_DESC_TRANSB, trans_b)
    SET(LT_DESC_EPILOGUE, epilogue)
    if (p->aux.kind >= 0)
        SET(LT_DESC_AUX_LD, ld)
#undef SET
    if (!status)
        status =
            layout_make(&s->a, type, trans_a ? p->k : p->n, trans_a ? p->n : p->k, p->b_row, p->n_batch, p->b_step);
    if (!status)
        status =
            layout_make(&s->b, type, trans_b ? p->m : p->k, trans_b ? p->k : p->m, p->a_row, p->n_batch, p->a_step);
    if (!status)
        status = layout_make(&s->c, type, p->n, p->m, p->y_row, p->n_batch, p->y_step);
    return status;
}

/* The algorithm for pointers of this alignment; -1: none, with a message. */
static int choose(plk_blas_state *s, lt_handle handle, uint32_t alignment)
{
    for (int i = 0; i < s->n_choices; i++)
        if (s->choices[i].alignment == alignment)
            return i;
    lt_preference preference = NULL;
    uint64_t workspace = PLK_BLAS_WORKSPACE_BYTES;
    lt_heuristic found = {0};
    int n_found = 0, at = s->n_choices < N_CHOICES ? s->n_choices : N_CHOICES - 1;
    lt_status status = lt.preference_new(&preference);
    if (!status)
        status = lt.preference_set(preference, LT_PREFER_WORKSPACE, &workspace, sizeof workspace);
    for (int i = 0; i < 4 && !status; i++)
        status = lt.preference_set(preference, LT_PREFER_ALIGNMENT_A + i, &alignment, sizeof alignment);
    if (!status)
        status = lt.heuristic(handle, s->desc, s->a, s->b, s->c, s->c, preference, 1, &found, &n_found);
    if (preference)
        lt.preference_free(preference);
    if (!status && (n_found < 1 || found.state))
        status = n_found < 1 ? LT_NOT_SUPPORTED : found.state;
    if (status) {
        fail(status, "multiply matrices of these types and sizes");
        return -1;
    }
    s->choices[at].alignment = alignment;
    s->choices[at].algorithm = found.algorithm;
    s->choices[at].workspace_bytes = found.workspace_bytes;
    s->n_choices = at + 1;
    return at;
}

int plk_blas_run(const void *params, void *const *bufs, const double *scalars)
{
    (void)scalars;
    const plk_blas *p = params;
    plk_blas_state *s = (plk_blas_state *)p->state;
    lt_handle handle = handle_get();
    char *scratch = pl_gpu_scratch((size_t)p->workspace_at + PLK_BLAS_WORKSPACE_BYTES);
    if (!scratch)
        return PL_ENOMEM;
    if (!handle)
        return pl_fail(PL_FAILED, "gpu: cuBLASLt cannot be initialized");
    if (!s->desc) {
        lt_status status = state_make(p, s);
        if (status)
            return fail(status, "describe a matrix product");
    }
    void *a = plk_where_find(&p->a, bufs, scratch), *b = plk_where_find(&p->b, bufs, scratch);
    void *y = plk_where_find(&p->y, bufs, scratch), *c = plk_where_find(&p->c, bufs, scratch);
    void *bias = plk_where_find(&p->bias, bufs, scratch), *aux = plk_where_find(&p->aux, bufs, scratch);
    uintptr_t bits = (uintptr_t)a | (uintptr_t)b | (uintptr_t)y | (uintptr_t)c | 256;
    lt_status status = 0;                     /* the pointers first: some epilogues depend on them */
    if (bias)
        status = lt.desc_set(s->desc, LT_DESC_BIAS_POINTER, &bias, sizeof bias);
    if (aux && !status)
        status = lt.desc_set(s->desc, LT_DESC_AUX_POINTER, &aux, sizeof aux);
    if (status)
        return fail(status, "describe a matrix product");
    int i = choose(s, handle, (uint32_t)(bits & -bits));
    if (i < 0)
        return PL_FAILED;
    float alpha = (float)p->alpha, beta = c ? 1.0f : 0.0f;
    double wide_beta = beta;
    bool wide = p->dtype == PLK_F64;
    status = lt.matmul(handle, s->desc, wide ? (const void *)&p->alpha : &alpha, b, s->a, a, s->b,
                       wide ? (const void *)&wide_beta : &beta, c ? c : y, s->c, y, s->c, &s->choices[i].algorithm,
                       scratch + p->workspace_at, s->choices[i].workspace_bytes, pl_gpu_stream());
    return status ? fail(status, "multiply matrices") : PL_OK;
}
