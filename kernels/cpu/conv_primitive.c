/* Convolutions by oneDNN. Arrays have the layouts that a plk_conv names; if a layout is "", oneDNN chooses one, and a
 * reorder runs before or after. */
#include "onednn.h"
#include "onednn_api.h"
#ifdef PLK_ONEDNN
#include <omp.h>
#include <stdlib.h>

enum { MAX_NDIM = 6, SERIAL_MULTIPLIES = 1 << 20 };
#define dnn plk_dnn_api

/* The logical axes of one array: groups, if any, then two sizes and the space. */
typedef struct {
    int ndim, channel;                           /* channel: the axis that is last in memory if channels_last */
    dnnl_dims_t dims;
} axes;

static axes axes_of(int nd, int64_t groups, int64_t a, int64_t b, const int64_t *space)
{
    axes x = {0, 0, {0}};
    if (groups > 1)
        x.dims[x.ndim++] = groups;
    x.dims[x.ndim++] = a;
    x.channel = x.ndim;
    x.dims[x.ndim++] = b;
    for (int i = 0; i < nd; i++)
        x.dims[x.ndim++] = space[i];
    return x;
}

/* The caller's layout of an array. new; NULL: no such layout */
static dnnl_memory_desc_t given_desc(const axes *x, int channels_last, const char *layout)
{
    dnnl_memory_desc_t md = NULL;
    dnnl_dims_t strides;
    if (*layout || !channels_last)
        return plk_dnn_desc(x->ndim, x->dims, layout);
    int64_t step = x->dims[x->channel];
    strides[x->channel] = 1;
    for (int i = x->ndim - 1; i >= 0; i--)
        if (i != x->channel) {
            strides[i] = step;
            step *= x->dims[i];
        }
    return dnn.dnnl_memory_desc_create_with_strides(&md, x->ndim, x->dims, dnnl_f32, strides) == dnnl_success
               ? md : NULL;
}

/* The layout that the primitive is asked for: the caller's, or any. new; NULL: no such layout */
static dnnl_memory_desc_t asked_desc(const axes *x, const char *layout)
{
    dnnl_memory_desc_t md = NULL;
    if (*layout)
        return plk_dnn_desc(x->ndim, x->dims, layout);
    return dnn.dnnl_memory_desc_create_with_tag(&md, x->ndim, x->dims, dnnl_f32, dnnl_format_tag_any) == dnnl_success
               ? md : NULL;
}

typedef struct {
    axes x, w, y;
    dnnl_primitive_desc_t forward, backward;     /* backward: NULL if the kind is forward */
} described;

static void release(described *d)
{
    if (d->backward)
        dnn.dnnl_primitive_desc_destroy(d->backward);
    if (d->forward)
        dnn.dnnl_primitive_desc_destroy(d->forward);
}

static dnnl_primitive_attr_t make_attr(const plk_conv *c)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    int ok = dnn.dnnl_primitive_attr_create(&attr) == dnnl_success &&
             dnn.dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (ok && c->sum)
        ok = dnn.dnnl_post_ops_create(&post) == dnnl_success &&
             dnn.dnnl_post_ops_append_sum(post, 1, 0, dnnl_data_type_undef) == dnnl_success &&
             dnn.dnnl_primitive_attr_set_post_ops(attr, post) == dnnl_success;
    if (post)
        dnn.dnnl_post_ops_destroy(post);
    if (attr && !ok) {
        dnn.dnnl_primitive_attr_destroy(attr);
        attr = NULL;
    }
    return attr;
}

/* The primitive descriptors of a convolution; 0: oneDNN has none. d must be released in any case. */
static int describe(const plk_conv *c, described *d)
{
    int nd = c->nd, forward_only = c->kind == PLK_CONV_FORWARD;
    int64_t none[1] = {c->filters};
    dnnl_dims_t strides, dilates, left, right;
    for (int i = 0; i < nd; i++) {
        strides[i] = c->stride[i];
        dilates[i] = c->dilate[i] - 1;
        left[i] = c->pad[i];
        right[i] = (c->out[i] - 1) * c->stride[i] + (c->kernel[i] - 1) * c->dilate[i] + 1 - c->space[i] - c->pad[i];
    }
    *d = (described){axes_of(nd, 1, c->n, c->channels, c->space),
                     axes_of(nd, c->groups, c->filters / c->groups, c->channels / c->groups, c->kernel),
                     axes_of(nd, 1, c->n, c->filters, c->out), NULL, NULL};
    dnnl_memory_desc_t x = asked_desc(&d->x, c->x_layout), w = asked_desc(&d->w, c->w_layout);
    dnnl_memory_desc_t y = asked_desc(&d->y, c->y_layout),
                       b = forward_only && c->bias ? plk_dnn_desc(1, none, "") : NULL;
    dnnl_primitive_attr_t attr = make_attr(c);
    int ok = x && w && y && attr && (b || !forward_only || !c->bias);
    ok = ok && dnn.dnnl_convolution_forward_primitive_desc_create(
                   &d->forward, plk_dnn_engine, forward_only ? dnnl_forward_inference : dnnl_forward_training,
                   dnnl_convolution_direct, x, w, b, y, strides, dilates, left, right, attr) == dnnl_success;
    if (ok && c->kind == PLK_CONV_DATA)
        ok = dnn.dnnl_convolution_backward_data_primitive_desc_create(
                 &d->backward, plk_dnn_engine, dnnl_convolution_direct, x, w, y, strides, dilates, left, right,
                 d->forward, attr) == dnnl_success;
    if (ok && c->kind == PLK_CONV_WEIGHT)
        ok = dnn.dnnl_convolution_backward_weights_primitive_desc_create(
                 &d->backward, plk_dnn_engine, dnnl_convolution_direct, x, w, NULL, y, strides, dilates, left, right,
                 d->forward, attr) == dnnl_success;
    if (attr)
        dnn.dnnl_primitive_attr_destroy(attr);
    dnnl_memory_desc_t own[] = {x, w, y, b};
    for (int i = 0; i < 4; i++)
        if (own[i])
            dnn.dnnl_memory_desc_destroy(own[i]);
    return ok;
}

static int build(const plk_conv *c, plk_dnn_object *o, const described *d)
{
    dnnl_memory_desc_t x = given_desc(&d->x, c->channels_last, c->x_layout);
    dnnl_memory_desc_t w = given_desc(&d->w, c->channels_last, c->w_layout);
    dnnl_memory_desc_t y = given_desc(&d->y, c->channels_last, c->y_layout);
    int64_t filters[1] = {c->filters};
    if (c->kind == PLK_CONV_FORWARD)
        return plk_dnn_add_arg(o, d->forward, DNNL_ARG_SRC, 0, 0, x) &
               plk_dnn_add_arg(o, d->forward, DNNL_ARG_WEIGHTS, 0, 1, w) &
               plk_dnn_add_arg(o, d->forward, DNNL_ARG_DST, 1, 2 + c->bias + c->sum, y) &
               (!c->bias || plk_dnn_add_arg(o, d->forward, DNNL_ARG_BIAS, 0, 2, plk_dnn_desc(1, filters, "")));
    if (c->kind == PLK_CONV_DATA)
        return plk_dnn_add_arg(o, d->backward, DNNL_ARG_DIFF_DST, 0, 0, y) &
               plk_dnn_add_arg(o, d->backward, DNNL_ARG_WEIGHTS, 0, 1, w) &
               plk_dnn_add_arg(o, d->backward, DNNL_ARG_DIFF_SRC, 1, 2, x);
    return plk_dnn_add_arg(o, d->backward, DNNL_ARG_DIFF_DST, 0, 0, y) &
           plk_dnn_add_arg(o, d->backward, DNNL_ARG_SRC, 0, 1, x) &
           plk_dnn_add_arg(o, d->backward, DNNL_ARG_DIFF_WEIGHTS, 1, 2, w);
}

/* Sets the number of threads for a convolution; returns the usual number. */
static int set_threads(const plk_conv *c, int alone, int *n_threads)
{
    int64_t multiplies = c->n * c->filters * (c->channels / c->groups);
    int usual = omp_get_max_threads();
    for (int i = 0; i < c->nd; i++)
        multiplies *= c->out[i] * c->kernel[i];
    *n_threads = alone || multiplies < SERIAL_MULTIPLIES ? 1 : usual;
    omp_set_num_threads(*n_threads);
    return usual;
}

void *plk_dnn_conv(const plk_conv *c, int alone)
{
    plk_dnn_object *o = plk_dnn_engine ? calloc(1, sizeof *o) : NULL;
    described d;
    if (!o)
        return NULL;
    int usual = set_threads(c, alone, &o->n_threads);
    int ok = describe(c, &d) && build(c, o, &d) && plk_dnn_finish(o, d.backward ? d.backward : d.forward);
    /* a reordered y cannot be added to */
    for (int i = 0; ok && i < o->n_args; i++)
        ok = !(c->sum && o->args[i].is_output && o->args[i].reorder);
    release(&d);
    omp_set_num_threads(usual);
    if (ok)
        return o;
    plk_dnn_free(o);
    return NULL;
}

/* The name of the primitive of a convolution; "" if there is none. */
static const char *kernel_name(const plk_conv *c)
{
    described d;
    const char *name = "";
    if (describe(c, &d) &&
        dnn.dnnl_primitive_desc_query(d.backward ? d.backward : d.forward, dnnl_query_impl_info_str, 0, &name) !=
            dnnl_success)
        name = "";
    release(&d);
    return name;
}

int plk_dnn_conv_layouts(plk_conv *c, char *kernel)
{
    described d;
    int n_threads, ok = 0, tag = 0;
    const char *name = "";
    if (!plk_dnn_engine)
        return 0;
    int usual = set_threads(c, 0, &n_threads);
    if (describe(c, &d)) {
        static const int ids[][3] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
                                     {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
                                     {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};
        const_dnnl_primitive_desc_t pd = d.backward ? d.backward : d.forward;
        ok = dnn.dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
            plk_dnn_tag(dnn.dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, ids[c->kind][0]), 0,
                        c->x_layout) &&
            plk_dnn_tag(dnn.dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, ids[c->kind][2]), 0, c->y_layout);
        /* kernels of one element: several tags describe the same memory, and a primitive may support only one of
         * them */
        const_dnnl_memory_desc_t w = dnn.dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, ids[c->kind][1]);
        do
            ok = ok && (tag = plk_dnn_tag(w, tag, c->w_layout)) != 0;
        while (ok && strcmp(name, kernel_name(c)));
        strncpy(kernel, name, PLK_LAYOUT_CHARS - 1);
    }
    release(&d);
    omp_set_num_threads(usual);
    return ok;
}
#else
void *plk_dnn_conv(const plk_conv *c, int alone) { (void)c, (void)alone; return NULL; }
int plk_dnn_conv_layouts(plk_conv *c, char *kernel) { (void)c, (void)kernel; return 0; }
#endif
