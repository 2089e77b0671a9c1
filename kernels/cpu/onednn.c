/* Convolutions and matrix products by oneDNN, found with dlopen.
 *
 * A primitive is made once, for a plan. Its arrays are plain outside; where oneDNN chose a blocked layout, a reorder
 * runs before or after. Everything that a run changes (memory objects, scratch) belongs to the run, so that threads
 * may share a primitive. The number of threads is fixed when the primitive is made: oneDNN plans its work for it.
 */
#include "onednn.h"
#include "generated/kernels.h"
#if __has_include("oneapi/dnnl/dnnl.h")
#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>
#include "oneapi/dnnl/dnnl.h"

enum { MAX_ARGS = 4, MAX_NDIM = 6, ALIGN = 64, SERIAL_MULTIPLIES = 1 << 20 };

#define FUNCTIONS(F) \
    F(dnnl_sgemm) F(dnnl_version) F(dnnl_engine_create) F(dnnl_stream_create) F(dnnl_memory_create) \
    F(dnnl_memory_destroy) F(dnnl_memory_desc_create_with_strides) F(dnnl_memory_desc_create_with_tag) \
    F(dnnl_memory_desc_destroy) F(dnnl_memory_desc_equal) F(dnnl_memory_desc_get_size) F(dnnl_memory_desc_clone) \
    F(dnnl_primitive_attr_create) F(dnnl_primitive_attr_destroy) F(dnnl_primitive_attr_set_scratchpad_mode) \
    F(dnnl_primitive_create) F(dnnl_primitive_execute) F(dnnl_primitive_destroy) F(dnnl_primitive_desc_destroy) \
    F(dnnl_primitive_desc_query_md) F(dnnl_reorder_primitive_desc_create) \
    F(dnnl_convolution_forward_primitive_desc_create) F(dnnl_convolution_backward_data_primitive_desc_create) \
    F(dnnl_convolution_backward_weights_primitive_desc_create)
#define POINTER(name) __typeof__(&name) name;
static struct { FUNCTIONS(POINTER) } dnn;
static int loaded;
static dnnl_engine_t engine;
static __thread dnnl_stream_t stream;

typedef struct {
    int id, is_output, buf;                  /* DNNL_ARG_*; which of the kernel's bufs */
    dnnl_memory_desc_t plain, chosen;
    dnnl_primitive_t reorder;                /* NULL: the plain layout serves */
    size_t bytes;
} argument;

typedef struct {
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t scratch;
    size_t scratch_bytes;
    int n_args, n_threads;
    argument args[MAX_ARGS];
} object;

int plk_dnn_load(const char *path)
{
    void *library = loaded ? NULL : dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return loaded;
#define FIND(name) if (!(*(void **)&dnn.name = dlsym(library, #name))) return 0;
    FUNCTIONS(FIND)
    if (dnn.dnnl_version()->major != DNNL_VERSION_MAJOR || dnn.dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success)
        return 0;
    return loaded = 1;
}

int plk_dnn_version(void)
{
    if (!loaded)
        return 0;
    const dnnl_version_t *v = dnn.dnnl_version();
    return v->major * 10000 + v->minor * 100 + v->patch;
}

int plk_dnn_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads)
{
    if (!loaded)
        return PL_EINVAL;
    int usual = omp_get_max_threads();
    if (usual != n_threads)
        omp_set_num_threads(n_threads);
    dnnl_status_t status = dnn.dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    if (usual != n_threads)
        omp_set_num_threads(usual);
    return status == dnnl_success ? PL_OK : PL_FAILED;
}

/* A plain array with the given logical sizes; last: logical axis 1 (after the groups) lies last in memory. */
static dnnl_memory_desc_t plain_desc(int nd, int groups_first, int last, int64_t groups, int64_t a, int64_t b,
                                     const int64_t *space)
{
    dnnl_dims_t dims, strides;
    dnnl_memory_desc_t md = NULL;
    int at = 0, order[MAX_NDIM], n_order = 0;
    if (groups_first)
        dims[at++] = groups;
    dims[at++] = a;
    dims[at++] = b;
    for (int i = 0; i < nd; i++)
        dims[at++] = space[i];
    int channel = groups_first + 1;
    for (int i = 0; i < at; i++)
        if (!last || i != channel)
            order[n_order++] = i;
    if (last)
        order[n_order++] = channel;
    int64_t step = 1;
    for (int i = at - 1; i >= 0; i--) {
        strides[order[i]] = step;
        step *= dims[order[i]];
    }
    if (dnn.dnnl_memory_desc_create_with_strides(&md, at, dims, dnnl_f32, strides) != dnnl_success)
        return NULL;
    return md;
}

static dnnl_memory_desc_t any_desc(int nd, int groups_first, int64_t groups, int64_t a, int64_t b, const int64_t *space)
{
    dnnl_dims_t dims;
    dnnl_memory_desc_t md = NULL;
    int at = 0;
    if (groups_first)
        dims[at++] = groups;
    dims[at++] = a;
    dims[at++] = b;
    for (int i = 0; i < nd; i++)
        dims[at++] = space[i];
    if (dnn.dnnl_memory_desc_create_with_tag(&md, at, dims, dnnl_f32, dnnl_format_tag_any) != dnnl_success)
        return NULL;
    return md;
}

static dnnl_memory_desc_t copy_desc(const_dnnl_memory_desc_t md)
{
    dnnl_memory_desc_t copy = NULL;
    return md && dnn.dnnl_memory_desc_clone(&copy, md) == dnnl_success ? copy : NULL;
}

/* Sets up one argument; 0: failed. plain: given. */
static int add_argument(object *o, dnnl_primitive_desc_t pd, int id, dnnl_query_t what, int is_output, int buf,
                        dnnl_memory_desc_t plain)
{
    argument *a = &o->args[o->n_args++];
    *a = (argument){id, is_output, buf, plain, copy_desc(dnn.dnnl_primitive_desc_query_md(pd, what, 0)), NULL, 0};
    if (!a->plain || !a->chosen)
        return 0;
    if (dnn.dnnl_memory_desc_equal(a->plain, a->chosen))
        return 1;
    a->bytes = (dnn.dnnl_memory_desc_get_size(a->chosen) + ALIGN - 1) / ALIGN * ALIGN;
    dnnl_primitive_desc_t reorder = NULL;
    if (dnn.dnnl_reorder_primitive_desc_create(&reorder, is_output ? a->chosen : a->plain, engine,
                                               is_output ? a->plain : a->chosen, engine, NULL) != dnnl_success)
        return 0;
    dnnl_status_t status = dnn.dnnl_primitive_create(&a->reorder, reorder);
    dnn.dnnl_primitive_desc_destroy(reorder);
    return status == dnnl_success;
}

static void destroy(object *o)
{
    for (int i = 0; i < o->n_args; i++) {
        if (o->args[i].plain)
            dnn.dnnl_memory_desc_destroy(o->args[i].plain);
        if (o->args[i].chosen)
            dnn.dnnl_memory_desc_destroy(o->args[i].chosen);
        if (o->args[i].reorder)
            dnn.dnnl_primitive_destroy(o->args[i].reorder);
    }
    if (o->scratch)
        dnn.dnnl_memory_desc_destroy(o->scratch);
    if (o->primitive)
        dnn.dnnl_primitive_destroy(o->primitive);
    free(o);
}

static object *build(const plk_conv *c, object *o)
{
    int g = c->groups > 1, nd = c->nd;
    int64_t filters = c->filters / c->groups, inputs = c->channels / c->groups;
    dnnl_dims_t strides, dilates, pad_left, pad_right, sizes = {c->filters}, one = {1};
    for (int i = 0; i < nd; i++) {
        strides[i] = c->stride[i];
        dilates[i] = c->dilate[i] - 1;
        pad_left[i] = c->pad[i];
        pad_right[i] = (c->out[i] - 1) * c->stride[i] + (c->kernel[i] - 1) * c->dilate[i] + 1 - c->space[i] - c->pad[i];
    }
    dnnl_memory_desc_t x = any_desc(nd, 0, 0, c->n, c->channels, c->space), y = any_desc(nd, 0, 0, c->n, c->filters, c->out);
    dnnl_memory_desc_t w = g ? any_desc(nd, 1, c->groups, filters, inputs, c->kernel)
                             : any_desc(nd, 0, 0, c->filters, c->channels, c->kernel);
    dnnl_memory_desc_t b = NULL;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    int ok = x && y && w && dnn.dnnl_primitive_attr_create(&attr) == dnnl_success &&
             dnn.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (ok && c->bias && c->kind == PLK_CONV_FORWARD)
        ok = dnn.dnnl_memory_desc_create_with_strides(&b, 1, sizes, dnnl_f32, one) == dnnl_success;
    ok = ok && dnn.dnnl_convolution_forward_primitive_desc_create(
                   &forward, engine, c->kind == PLK_CONV_FORWARD ? dnnl_forward_inference : dnnl_forward_training,
                   dnnl_convolution_direct, x, w, b, y, strides, dilates, pad_left, pad_right, attr) == dnnl_success;
    if (ok && c->kind == PLK_CONV_DATA)
        ok = dnn.dnnl_convolution_backward_data_primitive_desc_create(
                 &pd, engine, dnnl_convolution_direct, x, w, y, strides, dilates, pad_left, pad_right, forward, attr) ==
             dnnl_success;
    if (ok && c->kind == PLK_CONV_WEIGHT)
        ok = dnn.dnnl_convolution_backward_weights_primitive_desc_create(
                 &pd, engine, dnnl_convolution_direct, x, w, NULL, y, strides, dilates, pad_left, pad_right, forward,
                 attr) == dnnl_success;
    dnnl_primitive_desc_t used = pd ? pd : forward;
    if (ok) {
        dnnl_memory_desc_t px = plain_desc(nd, 0, c->channels_last, 0, c->n, c->channels, c->space);
        dnnl_memory_desc_t py = plain_desc(nd, 0, c->channels_last, 0, c->n, c->filters, c->out);
        dnnl_memory_desc_t pw = g ? plain_desc(nd, 1, c->channels_last, c->groups, filters, inputs, c->kernel)
                                  : plain_desc(nd, 0, c->channels_last, 0, c->filters, c->channels, c->kernel);
        if (c->kind == PLK_CONV_FORWARD) {
            ok = add_argument(o, used, DNNL_ARG_SRC, dnnl_query_src_md, 0, 0, px) &
                 add_argument(o, used, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1, pw) &
                 add_argument(o, used, DNNL_ARG_DST, dnnl_query_dst_md, 1, c->bias ? 3 : 2, py);
            if (ok && c->bias) {
                o->args[o->n_args++] = (argument){DNNL_ARG_BIAS, 0, 2, b, copy_desc(b), NULL, 0};
                b = NULL;
            }
        } else if (c->kind == PLK_CONV_DATA) {
            ok = add_argument(o, used, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0, py) &
                 add_argument(o, used, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, 0, 1, pw) &
                 add_argument(o, used, DNNL_ARG_DIFF_SRC, dnnl_query_diff_src_md, 1, 2, px);
        } else {
            ok = add_argument(o, used, DNNL_ARG_DIFF_DST, dnnl_query_diff_dst_md, 0, 0, py) &
                 add_argument(o, used, DNNL_ARG_SRC, dnnl_query_src_md, 0, 1, px) &
                 add_argument(o, used, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, 1, 2, pw);
        }
        o->scratch = copy_desc(dnn.dnnl_primitive_desc_query_md(used, dnnl_query_scratchpad_md, 0));
        o->scratch_bytes = o->scratch ? dnn.dnnl_memory_desc_get_size(o->scratch) : 0;
        ok = ok && dnn.dnnl_primitive_create(&o->primitive, used) == dnnl_success;
    }
    if (pd)
        dnn.dnnl_primitive_desc_destroy(pd);
    if (forward)
        dnn.dnnl_primitive_desc_destroy(forward);
    if (attr)
        dnn.dnnl_primitive_attr_destroy(attr);
    dnnl_memory_desc_t own[] = {x, y, w, b};
    for (int i = 0; i < 4; i++)
        if (own[i])
            dnn.dnnl_memory_desc_destroy(own[i]);
    return ok ? o : NULL;
}

void *plk_dnn_conv(const plk_conv *c)
{
    object *o = loaded ? calloc(1, sizeof *o) : NULL;
    if (!o)
        return NULL;
    int64_t multiplies = c->n * c->filters * (c->channels / c->groups);
    for (int i = 0; i < c->nd; i++)
        multiplies *= c->out[i] * c->kernel[i];
    int usual = omp_get_max_threads();
    o->n_threads = multiplies < SERIAL_MULTIPLIES ? 1 : usual;
    omp_set_num_threads(o->n_threads);
    object *built = build(c, o);
    omp_set_num_threads(usual);
    if (!built)
        destroy(o);
    return built;
}

void plk_dnn_free(void *primitive) { destroy(primitive); }
int plk_dnn_threads(void *primitive) { return ((object *)primitive)->n_threads; }

static int execute(const object *o, void *const *bufs)
{
    size_t total = o->scratch_bytes + ALIGN;
    dnnl_memory_t outside[MAX_ARGS] = {0}, inside[MAX_ARGS] = {0}, scratch = NULL;
    dnnl_exec_arg_t args[MAX_ARGS + 1];
    int n = 0, ok = stream || dnn.dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) == dnnl_success;
    for (int i = 0; i < o->n_args; i++)
        total += o->args[i].bytes;
    char *room = pl_scratch(total);
    ok = ok && room;
    for (int i = 0; ok && i < o->n_args; i++) {
        const argument *a = &o->args[i];
        ok = dnn.dnnl_memory_create(&outside[i], a->plain, engine, bufs[a->buf]) == dnnl_success;
        if (ok && a->reorder) {
            ok = dnn.dnnl_memory_create(&inside[i], a->chosen, engine, room) == dnnl_success;
            room += a->bytes;
            if (ok && !a->is_output) {
                dnnl_exec_arg_t ends[2] = {{DNNL_ARG_FROM, outside[i]}, {DNNL_ARG_TO, inside[i]}};
                ok = dnn.dnnl_primitive_execute(a->reorder, stream, 2, ends) == dnnl_success;
            }
        }
        args[n++] = (dnnl_exec_arg_t){a->id, inside[i] ? inside[i] : outside[i]};
    }
    if (ok && o->scratch_bytes) {
        ok = dnn.dnnl_memory_create(&scratch, o->scratch, engine, room) == dnnl_success;
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, scratch};
    }
    ok = ok && dnn.dnnl_primitive_execute(o->primitive, stream, n, args) == dnnl_success;
    for (int i = 0; i < o->n_args; i++) {
        const argument *a = &o->args[i];
        if (ok && a->reorder && a->is_output) {
            dnnl_exec_arg_t ends[2] = {{DNNL_ARG_FROM, inside[i]}, {DNNL_ARG_TO, outside[i]}};
            ok = dnn.dnnl_primitive_execute(a->reorder, stream, 2, ends) == dnnl_success;
        }
        if (outside[i])
            dnn.dnnl_memory_destroy(outside[i]);
        if (inside[i])
            dnn.dnnl_memory_destroy(inside[i]);
    }
    if (scratch)
        dnn.dnnl_memory_destroy(scratch);
    return ok ? PL_OK : pl_fail(PL_FAILED, "oneDNN could not run a convolution");
}

/* bufs: as the primitive's kind says: x, w, bias if any, y | dy, w, dx | dy, x, dw */
PLK_KERNEL(plk_dnn_run)
{
    const object *o = ((const plk_dnn *)params)->primitive;
    int usual = omp_get_max_threads();
    (void)scalars;
    if (usual != o->n_threads)
        omp_set_num_threads(o->n_threads);
    int status = execute(o, bufs);
    if (usual != o->n_threads)
        omp_set_num_threads(usual);
    return status;
}
#else    /* built without oneDNN's headers */
int plk_dnn_load(const char *path) { (void)path; return 0; }
int plk_dnn_version(void) { return 0; }
void *plk_dnn_conv(const plk_conv *c) { (void)c; return NULL; }
void plk_dnn_free(void *primitive) { (void)primitive; }
int plk_dnn_threads(void *primitive) { (void)primitive; return 1; }
int plk_dnn_sgemm(int ta, int tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                  const float *b, int64_t ldb, float beta, float *c, int64_t ldc, int n_threads)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta;
    (void)c, (void)ldc, (void)n_threads;
    return PL_EINVAL;
}
PLK_KERNEL(plk_dnn_run)
{
    (void)params, (void)bufs, (void)scalars;
    return pl_fail(PL_FAILED, "plait was built without oneDNN");
}
#endif
