/* Arrays: views of a var's storage, and the new outputs of plans and programs. */
#include "array.h"
#include "engine.h"
#include "stream.h"

#include <stdlib.h>

/* An output of so large a part of all memory takes it when it is pushed: if it does not fit, the call fails. */
enum { AT_ONCE = 64 };

static pl_var *spare;                         /* freed vars, chained by object.next_dead */

static void var_release(pl_object *object)    /* foreign memory */
{
    pl_var *var = (pl_var *)object;
    if (var->block) {                         /* its owner does not wait for our streams */
        pl_block_wait(var->block, true, INT32_MAX);
        pl_enter();
        pl_block_free(var->block);
        pl_leave();
    }
    var->release(var->owner);
    free(var);
}

void pl_var_unref(pl_var *var)
{
    if (var->object.refs > 1) {
        var->object.refs--;
        return;
    }
    if (var->error) {
        pl_error_unref(var->error);
        var->error = NULL;
    }
    if (var->object.destroy) {
        pl_object_unref(&var->object);
        return;
    }
    if (var->block)
        pl_block_free(var->block);
    else if (var->data)
        pl_storage_free(var->data, var->bytes);
#ifdef PL_PLAIN_MALLOC
    free(var);
#else
    var->object.next_dead = (pl_object *)spare;
    spare = var;
#endif
}

static pl_var *var_make(void *data, size_t bytes)
{
    pl_var *var = spare;
    if (var)
        spare = (pl_var *)var->object.next_dead;
    else if (!(var = malloc(sizeof *var))) {
        pl_fail(PL_ENOMEM, "array: out of memory");
        return NULL;
    }
    var->object.refs = 1;                     /* field by field: cheaper than a memset */
    var->object.destroy = NULL;
    var->n_readers = var->n_sleepers = 0;
    var->writing = var->exposed = var->read_only = var->watched = false;
    atomic_store_explicit(&var->n_users, 0, memory_order_relaxed);
    var->head = NULL;
    var->writes_pushed = 0;
    atomic_store_explicit(&var->version, 0, memory_order_relaxed);
    var->claim_seq = 0;
    var->error = NULL;
    var->block = NULL;
    var->data = data;
    var->bytes = bytes;
    var->first = (pl_array){var, data};
    return var;
}

static pl_var *var_new_in(int memory, size_t bytes)
{
    pl_block *block = pl_block_new(memory, bytes);
    pl_var *var = block ? var_make(block->data, bytes) : NULL;
    if (var)
        var->block = block;
    else if (block)
        pl_block_free(block);
    return var;
}

static pl_var *var_new(int memory, size_t bytes)
{
    if (memory != PL_MEMORY_HOST)
        return var_new_in(memory, bytes);
    void *data = pl_storage_alloc(bytes);
    pl_var *var = data ? var_make(data, bytes) : NULL;
    if (data && !var)
        pl_storage_free(data, bytes);
    return var;
}

int pl_var_give(pl_var *var)
{
    if (var->data || var->block || var->object.destroy)
        return PL_OK;
    var->first.data = var->data = pl_storage_alloc(var->bytes);
    return var->data ? PL_OK : PL_ENOMEM;
}

uintptr_t pl_array_new_in(int memory, size_t bytes)
{
    pl_enter();
    pl_var *var = var_new(memory, bytes);
    pl_leave();
    return var ? (uintptr_t)&var->first : 0;
}

uintptr_t pl_array_new(size_t bytes) { return pl_array_new_in(PL_MEMORY_HOST, bytes); }

uintptr_t pl_array_wrap(void *data, size_t bytes, pl_free_fn release, void *owner)
{
    return pl_array_wrap_in(PL_MEMORY_HOST, data, bytes, release, owner);
}

uintptr_t pl_array_wrap_in(int memory, void *data, size_t bytes, pl_free_fn release, void *owner)
{
    pl_enter();
    pl_block *block = memory == PL_MEMORY_HOST ? NULL : pl_block_wrap(memory, data);
    pl_var *var = block || memory == PL_MEMORY_HOST ? var_make(data, bytes) : NULL;
    if (!var && block)
        pl_block_free(block);
    if (var) {
        var->block = block;
        var->release = release ? release : free;
        var->owner = release ? owner : NULL;  /* without a release it stays the caller's: free(NULL) */
        var->object.destroy = var_release;
        var->exposed = true;
    }
    pl_leave();
    return var ? (uintptr_t)&var->first : 0;
}

uintptr_t pl_array_view(uintptr_t base, int64_t offset_bytes)
{
    pl_array *from = (pl_array *)base, *view = malloc(sizeof *view);
    if (!view) {
        pl_fail(PL_ENOMEM, "array: out of memory");
        return 0;
    }
    pl_enter();
    int status = pl_var_give(from->var);
    *view = (pl_array){from->var, from->data + offset_bytes};
    if (status == PL_OK)
        from->var->object.refs++;
    pl_leave();
    if (status == PL_OK)
        return (uintptr_t)view;
    free(view);
    return 0;
}

int pl_array_users(uintptr_t array)
{
    pl_enter();
    int n = ((pl_array *)array)->var->object.refs;
    pl_leave();
    return n;
}

int pl_array_is_sole(uintptr_t array)
{
    pl_enter();
    pl_var *var = ((pl_array *)array)->var;
    int requests = atomic_load_explicit(&var->n_users, memory_order_relaxed);
    int sole = var->object.refs - requests == 1 && !var->object.destroy && !var->exposed && !var->read_only;
    pl_leave();
    return sole;
}

void pl_array_free(uintptr_t handle)
{
    pl_array *array = (pl_array *)handle;
    if (!array)
        return;
    pl_var *var = array->var;
    if (array != &var->first)
        free(array);
    pl_enter();
    pl_var_unref(var);
    pl_leave();
}

void *pl_array_data(uintptr_t array)
{
    pl_array *a = (pl_array *)array;
    pl_enter();
    void *data = pl_var_give(a->var) == PL_OK ? a->data : NULL;
    pl_leave();
    return data;
}

int pl_array_shares(uintptr_t a, uintptr_t b) { return ((pl_array *)a)->var == ((pl_array *)b)->var; }

uint64_t pl_array_version(uintptr_t array)
{
    return atomic_load_explicit(&((pl_array *)array)->var->version, memory_order_acquire);
}

static atomic_uint_fast64_t watched_writes = 1;       /* written under the lock */

static void count_watched(const pl_var *var)
{
    if (var->watched)
        atomic_fetch_add_explicit(&watched_writes, 1, memory_order_release);
}

void pl_var_count_write(pl_var *var)
{
    var->writes_pushed++;
    count_watched(var);
}

uint64_t pl_watched_writes(void) { return atomic_load_explicit(&watched_writes, memory_order_acquire); }

void pl_array_expose(uintptr_t array)
{
    pl_var *var = ((pl_array *)array)->var;
    pl_enter();
    var->exposed = true;
    count_watched(var);
    pl_leave();
}

void pl_array_protect(uintptr_t array)
{
    pl_enter();
    ((pl_array *)array)->var->read_only = true;
    pl_leave();
}

int pl_array_protected(uintptr_t array) { return ((pl_array *)array)->var->read_only; }

uint64_t pl_arrays_versions(const uintptr_t *arrays, int n, pl_version *versions)
{
    static uint64_t n_exposed;                /* versions given to exposed arrays; under the lock */
    pl_enter();
    uint64_t written = pl_watched_writes();
    for (int i = 0; i < n; i++) {
        const pl_array *a = (const pl_array *)arrays[i];
        a->var->watched = true;
        if (a->var->exposed)
            written = 0;
        uint64_t writes = a->var->exposed ? UINT64_MAX - n_exposed++ : a->var->writes_pushed;
        versions[i] = (pl_version){(uintptr_t)a->var, (uintptr_t)(a->data - (char *)a->var->data), writes};
    }
    pl_leave();
    return written;
}

int pl_array_poisoned(uintptr_t array)
{
    pl_enter();
    int poisoned = ((pl_array *)array)->var->error != NULL;
    pl_leave();
    return poisoned;
}

void pl_array_overwritten(uintptr_t array)
{
    pl_var *var = ((pl_array *)array)->var;
    pl_enter();
    pl_var_count_write(var);
    atomic_store_explicit(&var->version, atomic_load_explicit(&var->version, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (var->error)
        pl_error_unref(var->error);
    var->error = NULL;
    pl_leave();
}

/* ---- outputs ---------------------------------------------------------------------------------------------- */

void pl_outputs_undo(int n, uintptr_t *out, const uint8_t *fresh)
{
    for (int i = 0; i < n; i++)
        if (fresh[i]) {
            pl_var_unref(((pl_array *)out[i])->var);
            out[i] = 0;
        }
}

char *pl_input_claim(pl_op *op, uintptr_t array, uint8_t mode, int32_t *request)
{
    pl_array *a = (pl_array *)array;
    pl_op_claim(op, a->var, mode);
    *request = a->var->claim_index;
    return a->data;
}

int pl_outputs_claim(pl_op *op, int n, uintptr_t *out, const size_t *out_bytes, int memory, bool late, char **data,
                     int32_t *requests, uint8_t *fresh)
{
    late = late && memory == PL_MEMORY_HOST;
    for (int i = 0; i < n; i++) {
        pl_array *a = (pl_array *)out[i];
        fresh[i] = !a;
        if (!a) {
            bool now = !late || out_bytes[i] > pl_machine_bytes() / AT_ONCE;
            pl_var *var = now ? var_new(memory, out_bytes[i]) : var_make(NULL, out_bytes[i]);
            if (!var) {
                pl_outputs_undo(i, out, fresh);
                return PL_ENOMEM;
            }
            a = &var->first;
            out[i] = (uintptr_t)a;
            op->pending_bytes += out_bytes[i];
        }                                     /* a write to a part keeps the rest */
        data[i] = pl_input_claim(op, out[i], out_bytes[i] >= a->var->bytes ? PL_WRITE : PL_READWRITE, &requests[i]);
    }
    return PL_OK;
}

int pl_op_give(pl_op *op, int n, char **data, const int32_t *requests)
{
    int status = PL_OK;
    pl_enter();
    for (int i = 0; i < n && status == PL_OK; i++)
        if (!data[i]) {
            pl_var *var = op->requests[requests[i]].var;
            status = pl_var_give(var);
            data[i] = var->data;
        }
    pl_leave();
    op->late = status != PL_OK;
    return status;
}
