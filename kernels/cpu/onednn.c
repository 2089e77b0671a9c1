/* oneDNN, found with dlopen: reorders, and running the primitives that other files build. */
#include "onednn.h"
#include "engine/core/scratch.h"
#include "onednn_api.h"
#include "parts.h"
#include "pointwise.h"
#ifdef PLK_ONEDNN
#include <dlfcn.h>
#include <omp.h>
#include <stdlib.h>

enum { ALIGN = 64, SERIAL_ELEMENTS = 1 << 15 };

plk_dnn_functions plk_dnn_api;
dnnl_engine_t plk_dnn_engine;
static __thread dnnl_stream_t stream;
#define dnn plk_dnn_api

/* The memory objects of a run. */
typedef struct {
    dnnl_memory_t given[PLK_DNN_MAX_ARGS], inside[PLK_DNN_MAX_ARGS], scratch;
} memories;

int plk_dnn_load(const char *path)
{
    void *library = plk_dnn_engine ? NULL : dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return plk_dnn_engine != NULL;
#define FIND(name) if (!(*(void **)&dnn.name = dlsym(library, #name))) return 0;
    PLK_DNN_FUNCTIONS(FIND)
    if (dnn.dnnl_version()->major != DNNL_VERSION_MAJOR ||
        dnn.dnnl_engine_create(&plk_dnn_engine, dnnl_cpu, 0) != dnnl_success)
        plk_dnn_engine = NULL;
    return plk_dnn_engine != NULL;
}

int plk_dnn_version(void)
{
    if (!plk_dnn_engine)
        return 0;
    const dnnl_version_t *v = dnn.dnnl_version();
    return v->major * 10000 + v->minor * 100 + v->patch;
}

dnnl_memory_desc_t plk_dnn_desc(int ndim, const int64_t *dims, const char *layout)
{
    dnnl_memory_desc_t md = NULL;
    dnnl_dims_t strides;
    int64_t step = 1;
    for (int tag = dnnl_a; *layout && tag < dnnl_format_tag_last; tag++)
        if (strcmp(dnn.dnnl_fmt_tag2str((dnnl_format_tag_t)tag), layout) == 0)
            return dnn.dnnl_memory_desc_create_with_tag(&md, ndim, dims, dnnl_f32, (dnnl_format_tag_t)tag) ==
                   dnnl_success ? md : NULL;
    if (*layout)
        return NULL;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims[i];
    }
    return dnn.dnnl_memory_desc_create_with_strides(&md, ndim, dims, dnnl_f32, strides) == dnnl_success ? md : NULL;
}

int plk_dnn_tag(const_dnnl_memory_desc_t md, int after, char *text)
{
    int ndim = 0;
    dnnl_dims_t *dims = NULL;
    if (dnn.dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &ndim) != dnnl_success ||
        dnn.dnnl_memory_desc_query(md, dnnl_query_dims, &dims) != dnnl_success)
        return 0;
    for (int tag = after + 1 > dnnl_a ? after + 1 : dnnl_a; tag < dnnl_format_tag_last; tag++) {
        dnnl_memory_desc_t other = NULL;
        if (dnn.dnnl_memory_desc_create_with_tag(&other, ndim, *dims, dnnl_f32, (dnnl_format_tag_t)tag) != dnnl_success)
            continue;
        int same = dnn.dnnl_memory_desc_equal(md, other);
        dnn.dnnl_memory_desc_destroy(other);
        const char *name = dnn.dnnl_fmt_tag2str((dnnl_format_tag_t)tag);
        if (same && strlen(name) < PLK_LAYOUT_CHARS) {
            strcpy(text, name);
            return tag;
        }
    }
    return 0;
}

static int make_reorder(dnnl_primitive_t *primitive, const_dnnl_memory_desc_t from, const_dnnl_memory_desc_t to)
{
    dnnl_primitive_desc_t pd = NULL;
    if (dnn.dnnl_reorder_primitive_desc_create(&pd, from, plk_dnn_engine, to, plk_dnn_engine, NULL) != dnnl_success)
        return 0;
    dnnl_status_t status = dnn.dnnl_primitive_create(primitive, pd);
    dnn.dnnl_primitive_desc_destroy(pd);
    return status == dnnl_success;
}

int plk_dnn_add_arg(plk_dnn_object *o, dnnl_primitive_desc_t pd, int id, int is_output, int buf,
                    dnnl_memory_desc_t given)
{
    plk_dnn_arg *a = &o->args[o->n_args++];
    const_dnnl_memory_desc_t chosen = dnn.dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, id);
    *a = (plk_dnn_arg){id, is_output, buf, given, NULL, NULL, 0};
    if (!given || !chosen || dnn.dnnl_memory_desc_clone(&a->chosen, chosen) != dnnl_success)
        return 0;
    if (dnn.dnnl_memory_desc_equal(a->given, a->chosen))
        return 1;
    a->bytes = (dnn.dnnl_memory_desc_get_size(a->chosen) + ALIGN - 1) / ALIGN * ALIGN;
    return is_output ? make_reorder(&a->reorder, a->chosen, a->given) : make_reorder(&a->reorder, a->given, a->chosen);
}

int plk_dnn_finish(plk_dnn_object *o, dnnl_primitive_desc_t pd)
{
    const_dnnl_memory_desc_t scratch = dnn.dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    o->scratch_bytes = scratch ? dnn.dnnl_memory_desc_get_size(scratch) : 0;
    if (o->scratch_bytes && dnn.dnnl_memory_desc_clone(&o->scratch, scratch) != dnnl_success)
        return 0;
    return dnn.dnnl_primitive_create(&o->primitive, pd) == dnnl_success;
}

static void free_memories(memories *m)
{
    for (int i = 0; i < PLK_DNN_MAX_ARGS; i++) {
        if (m->given[i])
            dnn.dnnl_memory_destroy(m->given[i]);
        if (m->inside[i])
            dnn.dnnl_memory_destroy(m->inside[i]);
    }
    if (m->scratch)
        dnn.dnnl_memory_destroy(m->scratch);
    free(m);
}

void plk_dnn_free(void *primitive)
{
    plk_dnn_object *o = primitive;
    for (int i = 0; i < o->n_args; i++) {
        if (o->args[i].given)
            dnn.dnnl_memory_desc_destroy(o->args[i].given);
        if (o->args[i].chosen)
            dnn.dnnl_memory_desc_destroy(o->args[i].chosen);
        if (o->args[i].reorder)
            dnn.dnnl_primitive_destroy(o->args[i].reorder);
    }
    if (o->scratch)
        dnn.dnnl_memory_desc_destroy(o->scratch);
    if (o->primitive)
        dnn.dnnl_primitive_destroy(o->primitive);
    if (o->spare)
        free_memories(o->spare);
    free(o);
}

int plk_dnn_threads(void *primitive) { return ((plk_dnn_object *)primitive)->n_threads; }

/* Memory objects for one run; their addresses are set later. */
static memories *new_memories(const plk_dnn_object *o)
{
    memories *m = calloc(1, sizeof *m);
    int ok = m != NULL;
    for (int i = 0; ok && i < o->n_args; i++) {
        const plk_dnn_arg *a = &o->args[i];
        ok = dnn.dnnl_memory_create(&m->given[i], a->given, plk_dnn_engine, DNNL_MEMORY_NONE) == dnnl_success;
        if (ok && a->reorder)
            ok = dnn.dnnl_memory_create(&m->inside[i], a->chosen, plk_dnn_engine, DNNL_MEMORY_NONE) == dnnl_success;
    }
    if (ok && o->scratch)
        ok = dnn.dnnl_memory_create(&m->scratch, o->scratch, plk_dnn_engine, DNNL_MEMORY_NONE) == dnnl_success;
    if (m && !ok) {
        free_memories(m);
        m = NULL;
    }
    return m;
}

static int reorder(const plk_dnn_arg *a, dnnl_memory_t from, dnnl_memory_t to)
{
    dnnl_exec_arg_t ends[2] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnn.dnnl_primitive_execute(a->reorder, stream, 2, ends) == dnnl_success;
}

static int execute(const plk_dnn_object *o, memories *m, void *const *bufs)
{
    size_t total = o->scratch_bytes + ALIGN;
    dnnl_exec_arg_t args[PLK_DNN_MAX_ARGS + 1];
    int n = 0,
        ok = stream || dnn.dnnl_stream_create(&stream, plk_dnn_engine, dnnl_stream_default_flags) == dnnl_success;
    for (int i = 0; i < o->n_args; i++)
        total += o->args[i].bytes;
    char *scratch = pl_scratch(total);
    ok = ok && scratch;
    for (int i = 0; ok && i < o->n_args; i++) {
        const plk_dnn_arg *a = &o->args[i];
        ok = dnn.dnnl_memory_set_data_handle(m->given[i], bufs[a->buf]) == dnnl_success;
        if (ok && a->reorder) {
            ok = dnn.dnnl_memory_set_data_handle(m->inside[i], scratch) == dnnl_success;
            scratch += a->bytes;
            ok = ok && (a->is_output || reorder(a, m->given[i], m->inside[i]));
        }
        args[n++] = (dnnl_exec_arg_t){a->id, a->reorder ? m->inside[i] : m->given[i]};
    }
    if (ok && m->scratch) {
        ok = dnn.dnnl_memory_set_data_handle(m->scratch, scratch) == dnnl_success;
        args[n++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, m->scratch};
    }
    ok = ok && dnn.dnnl_primitive_execute(o->primitive, stream, n, args) == dnnl_success;
    for (int i = 0; ok && i < o->n_args; i++)
        if (o->args[i].reorder && o->args[i].is_output)
            ok = reorder(&o->args[i], m->inside[i], m->given[i]);
    return ok;
}

typedef struct { const plk_dnn *p; float *y; } activation;

static void activate_part(void *arg, int64_t begin, int64_t end)
{
    const activation *a = arg;
    plk_apply(&a->p->act, end - begin, a->y + begin);
}

/* y = act(y) */
static void activate(const plk_dnn *p, float *y, int n_threads)
{
    plk_run_shares(p->n > SERIAL_ELEMENTS ? n_threads : 1, p->n, ALIGN / 4, activate_part, &(activation){p, y});
}

/* bufs: as the primitive's kind says: from, to | x, w, bias if any, addend if any, y | dy, w, dx | dy, x, dw */
PLK_KERNEL(plk_dnn_run)
{
    const plk_dnn *p = params;
    plk_dnn_object *o = p->primitive;
    (void)scalars;
    if (p->addend && bufs[p->addend] != bufs[p->y])
        memcpy(bufs[p->y], bufs[p->addend], sizeof(float) * (size_t)p->n);
    memories *m = __atomic_exchange_n(&o->spare, NULL, __ATOMIC_ACQ_REL);
    if (!m && !(m = new_memories(o)))
        return pl_fail(PL_ENOMEM, "out of memory for a oneDNN primitive");
    int usual = pl_thread_pool_suspend(o->n_threads), ok = execute(o, m, bufs);
    if (ok && p->act.loop)
        activate(p, bufs[p->y], o->n_threads);
    pl_thread_pool_resume(o->n_threads, usual);
    m = __atomic_exchange_n(&o->spare, m, __ATOMIC_ACQ_REL);
    if (m)
        free_memories(m);
    return ok ? PL_OK : pl_fail(PL_FAILED, "oneDNN could not run a primitive");
}

void *plk_dnn_reorder(int ndim, const int64_t *dims, const char *from, const char *to)
{
    plk_dnn_object *o = plk_dnn_engine ? calloc(1, sizeof *o) : NULL;
    int64_t elements = 1;
    if (!o)
        return NULL;
    for (int i = 0; i < ndim; i++)
        elements *= dims[i];
    int usual = omp_get_max_threads();
    o->n_threads = elements < SERIAL_ELEMENTS ? 1 : usual;
    o->args[0] = (plk_dnn_arg){DNNL_ARG_FROM, 0, 0, plk_dnn_desc(ndim, dims, from), NULL, NULL, 0};
    o->args[1] = (plk_dnn_arg){DNNL_ARG_TO, 1, 1, plk_dnn_desc(ndim, dims, to), NULL, NULL, 0};
    o->n_args = 2;
    omp_set_num_threads(o->n_threads);
    int ok = o->args[0].given && o->args[1].given && make_reorder(&o->primitive, o->args[0].given, o->args[1].given);
    omp_set_num_threads(usual);
    if (ok)
        return o;
    plk_dnn_free(o);
    return NULL;
}
#else    /* built without oneDNN's headers */
int plk_dnn_load(const char *path) { (void)path; return 0; }
int plk_dnn_version(void) { return 0; }
void plk_dnn_free(void *primitive) { (void)primitive; }
int plk_dnn_threads(void *primitive) { (void)primitive; return 1; }
void *plk_dnn_reorder(int ndim, const int64_t *dims, const char *from, const char *to)
{
    (void)ndim, (void)dims, (void)from, (void)to;
    return NULL;
}
PLK_KERNEL(plk_dnn_run)
{
    (void)params, (void)bufs, (void)scalars;
    return pl_fail(PL_FAILED, "plait was built without oneDNN");
}
#endif
