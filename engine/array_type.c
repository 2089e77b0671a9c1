/* plait.engine._array: the Python type under NDArray, and the calls that make arrays.
 *
 * A handle must be freed when its Python object dies. A __del__ method would cost more than a small kernel, so the
 * object is a C type: handle, spec and tape entry, nothing else. invoke() and run() turn arrays into handles, make one
 * call into the core without the GIL, and wrap the new handles. They check that every array has the spec (shape, dtype,
 * device, layout) for which the plan or program was compiled. The core is in the cffi module, so its functions are
 * passed as addresses (bind).
 *
 * Every array has a live handle, except a sparse one, which consists of other arrays: handle_of raises for it.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "core/array.h"
#include "core/error.h"

#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    uintptr_t handle;      /* owned; 0: sparse */
    PyObject *spec, *tape; /* owned; NULL only after array_clear */
    PyObject *weakrefs;
} Array;

static struct {
    uintptr_t (*array_new)(size_t bytes);
    void (*array_free)(uintptr_t array);
    int (*invoke)(uintptr_t plan, const uintptr_t *in, uintptr_t *out, const double *scalars, int32_t location);
    int (*program_run)(uintptr_t program, const uintptr_t *in, uintptr_t *out, const double *dynamic, int32_t location);
    const char *(*error_message)(void);
    int (*array_shares)(uintptr_t a, uintptr_t b);
    void *(*array_data)(uintptr_t array);
    uint64_t (*arrays_versions)(const uintptr_t *arrays, int n, pl_version *versions);
} core;

static PyObject *out_of_memory, *invalid_value, *invalid_type, *engine_error;
static PyObject *fits;           /* fits(spec, wanted, role, i): raises unless an array of that spec will do */
static PyObject *kept;           /* number -> object that the core refers to: see release */
static PyObject *empty_spec;     /* of an array that was made without values */
static PyTypeObject *array_type; /* the base */
static PyTypeObject *made_type;  /* the class of new arrays: NDArray */
static PyTypeObject *np_type;    /* that of mx.np, a subclass; NULL until it exists */

static PyObject *failed(int status)
{
    if (status == PL_AGAIN)                         /* Ctrl-C: the exception is set */
        return NULL;
    PyErr_SetString(status == PL_ENOMEM ? out_of_memory : status == PL_EINVAL ? invalid_value : engine_error,
                    core.error_message());
    return NULL;
}

/* ---- objects that the core refers to ---------------------------------------------------------------------- */

/* A pl_free_fn: removes the object that `kept` has under a number. It may run on any thread, with or without the GIL,
 * and while an exception is set. It is in C because a callback of cffi cannot run with an exception set, nor while the
 * interpreter shuts down (then it does nothing). */
static void release(void *number)
{
    if (!Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *key = PyLong_FromVoidPtr(number);
    if (!key || PyDict_DelItem(kept, key) < 0)
        PyErr_Clear();                           /* out of memory for the key: the object is leaked */
    Py_XDECREF(key);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
}

/* The head of DLPack's DLManagedTensor. context: the number of the object in `kept` that owns the memory. */
typedef struct { char tensor[48]; void *context; void (*deleter)(void *tensor); } lent_tensor;

static void lent_delete(void *tensor) { release(((lent_tensor *)tensor)->context); }

/* The destructor of a capsule; one that was consumed has another name. */
static void lent_capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        lent_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

/* ---- the type --------------------------------------------------------------------------------------------- */

static int array_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Array *)self)->spec);
    Py_VISIT(((Array *)self)->tape);
    return 0;
}

static int array_clear(PyObject *self)
{
    Py_CLEAR(((Array *)self)->spec);
    Py_CLEAR(((Array *)self)->tape);
    return 0;
}

static void array_dealloc(PyObject *self)
{
    Array *a = (Array *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (a->weakrefs)
        PyObject_ClearWeakRefs(self);
    array_clear(self);
    if (a->handle)                               /* may call release */
        core.array_free(a->handle);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int handle_of(PyObject *object, uintptr_t *handle)
{
    if (Py_TYPE(object) != made_type && !PyObject_TypeCheck(object, array_type)) {
        PyErr_SetString(PyExc_TypeError, "every input must be an NDArray");
        return -1;
    }
    *handle = ((Array *)object)->handle;
    if (!*handle) {                              /* sparse */
        PyErr_SetString(invalid_type, "a dense NDArray is needed here, got a sparse one\n  fix: x.tostype('default')");
        return -1;
    }
    return 0;
}

/* T_OBJECT_EX, although never missing: the interpreter has a fast path for it. */
static PyMemberDef array_members[] = {
    {"_spec", T_OBJECT_EX, offsetof(Array, spec), READONLY, "shape, dtype and device"},
    {"_tape", T_OBJECT_EX, offsetof(Array, tape), 0, "autograd's record of the call that made it"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Array, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyObject *array_handle(PyObject *self, void *unused)
{
    uintptr_t handle;
    return handle_of(self, &handle) < 0 ? NULL : PyLong_FromUnsignedLongLong(handle);
}

static PyGetSetDef array_getset[] = {{"_handle", array_handle, NULL, "the core's array", NULL}, {0}};

/* An array of `type` that owns `handle`. handle: given, also on failure. */
static PyObject *array_make_of(PyTypeObject *type, uintptr_t handle, PyObject *spec)
{
    Array *a = (Array *)PyType_GenericAlloc(type, 0);
    if (!a) {
        if (handle)
            core.array_free(handle);
        return NULL;
    }
    a->handle = handle;
    a->spec = Py_NewRef(spec);
    a->tape = Py_NewRef(Py_None);
    return (PyObject *)a;
}

static PyObject *array_make(uintptr_t handle, PyObject *spec) { return array_make_of(made_type, handle, spec); }

/* cls.__new__(cls), which pickle and subclasses call: an array without elements. */
static PyObject *array_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (!empty_spec) {
        PyErr_SetString(PyExc_TypeError, "Array: call set_class first");
        return NULL;
    }
    uintptr_t handle = core.array_new(0);
    return handle ? array_make_of(type, handle, empty_spec) : failed(PL_ENOMEM);
}

static PyType_Slot array_slots[] = {{Py_tp_dealloc, array_dealloc}, {Py_tp_traverse, array_traverse},
                                    {Py_tp_clear, array_clear},     {Py_tp_members, array_members},
                                    {Py_tp_getset, array_getset},   {Py_tp_new, array_new},
                                    {Py_tp_doc, "A handle of the core with its spec and tape entry."}, {0, NULL}};

static PyType_Spec array_spec = {"plait.engine._array.Array", sizeof(Array), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, array_slots};

/* ---- calls ------------------------------------------------------------------------------------------------ */

/* Scratch for a call's handles and scalars: on the stack, or from the heap if there are many. */
typedef struct { uintptr_t few[32]; double few_scalars[16]; void *many; uintptr_t *in, *out; double *scalars; } scratch;

static int scratch_open(scratch *r, Py_ssize_t n_in, Py_ssize_t n_out, Py_ssize_t n_scalars)
{
    r->many = NULL;
    r->in = r->few;
    r->scalars = r->few_scalars;
    if (n_in + n_out > 32 || n_scalars > 16) {
        r->many = PyMem_Malloc((size_t)(n_in + n_out + n_scalars) * 8);
        if (!r->many) {
            PyErr_NoMemory();
            return -1;
        }
        r->in = r->many;
        r->scalars = (double *)(r->in + n_in + n_out);
    }
    r->out = r->in + n_in;
    return 0;
}

/* The spec of an array is not the wanted one: 0 if `fits` accepts it, else an exception. */
static int misfit(PyObject *object, PyObject *wanted, const char *role, Py_ssize_t i)
{
    PyObject *given = ((Array *)object)->spec;
    PyObject *done = PyObject_CallFunction(fits, "OOsn", given ? given : Py_None, wanted, role, i);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* The class of what a call of these arrays makes: that of mx.np if one of them has it. */
static PyTypeObject *made_with(PyTypeObject *made, PyObject *array)
{
    return Py_TYPE(array) == np_type ? np_type : made;
}

/* specs: of the arrays, or NULL; specs are interned. role: "input" or "output". made: see made_with. */
static int handles_of(PyObject *sequence, Py_ssize_t n, PyObject *specs, const char *role, uintptr_t *handles,
                      PyTypeObject **made)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_Check(sequence) ? PyList_GetItem(sequence, i) : PyTuple_GetItem(sequence, i);
        if (!item || handle_of(item, &handles[i]) < 0)
            return -1;
        *made = made_with(*made, item);
        if (specs && ((Array *)item)->spec != PyTuple_GetItem(specs, i) &&
            misfit(item, PyTuple_GetItem(specs, i), role, i) < 0)
            return -1;
    }
    return 0;
}

static Py_ssize_t length(PyObject *sequence)
{
    return PyList_Check(sequence) ? PyList_Size(sequence) : PyTuple_Size(sequence);
}

/* Wraps the outputs: those given are returned as they are, the others become new arrays. */
static PyObject *outputs_list(PyTypeObject *type, PyObject *given, Py_ssize_t n_given, const uintptr_t *out,
                              PyObject *specs)
{
    Py_ssize_t n_out = PyTuple_Size(specs);
    PyObject *list = PyList_New(n_out);
    for (Py_ssize_t i = 0; list && i < n_out; i++) {
        PyObject *item;
        if (i < n_given)
            item = Py_XNewRef(PyList_Check(given) ? PyList_GetItem(given, i) : PyTuple_GetItem(given, i));
        else
            item = array_make_of(type, out[i], PyTuple_GetItem(specs, i));
        if (!item || PyList_SetItem(list, i, item) < 0) {
            for (Py_ssize_t j = i + 1; j < n_out; j++)
                if (j >= n_given)
                    core.array_free(out[j]);
            Py_CLEAR(list);
        }
    }
    return list;
}

static int address_of(PyObject *number, uintptr_t *address)
{
    *address = (uintptr_t)PyLong_AsUnsignedLongLong(number);
    return *address == (uintptr_t)-1 && PyErr_Occurred() ? -1 : 0;
}

typedef int (*core_call)(uintptr_t target, const uintptr_t *in, uintptr_t *out, const double *scalars,
                         int32_t location);

/* Shared by invoke and run. */
static PyObject *call(core_call run, PyObject *const *args)
{
    uintptr_t target;
    PyObject *in_specs = args[1], *specs = args[2], *inputs = args[3], *given = args[4], *scalars = args[5];
    int32_t location = (int32_t)PyLong_AsLong(args[6]);
    Py_ssize_t n_in = length(inputs), n_given = length(given), n_out = PyTuple_Size(specs);
    Py_ssize_t n_scalars = length(scalars), n_wanted = PyTuple_Size(in_specs);
    PyObject *result = NULL;
    PyTypeObject *made = made_type, *unused = NULL;
    scratch r;
    if (address_of(args[0], &target) < 0 || n_in < 0 || n_given < 0 || n_out < 0 || n_scalars < 0 || n_wanted < 0)
        return NULL;
    if (n_in != n_wanted || n_given > n_out) {
        PyErr_Format(invalid_type, "the call takes %zd arrays and gives %zd, got %zd and %zd", n_wanted, n_out, n_in,
                     n_given);
        return NULL;
    }
    if (scratch_open(&r, n_in, n_out, n_scalars) < 0)
        return NULL;
    if (handles_of(inputs, n_in, in_specs, "input", r.in, &made) < 0 ||
        handles_of(given, n_given, specs, "output", r.out, &unused) < 0)
        goto end;
    for (Py_ssize_t i = n_given; i < n_out; i++)
        r.out[i] = 0;
    for (Py_ssize_t i = 0; i < n_scalars; i++) {
        PyObject *number = PyList_Check(scalars) ? PyList_GetItem(scalars, i) : PyTuple_GetItem(scalars, i);
        r.scalars[i] = PyFloat_AsDouble(number);
        if (r.scalars[i] == -1.0 && PyErr_Occurred())
            goto end;
    }
    int status;
    do {                                            /* PL_AGAIN: the engine's queue is still full */
        Py_BEGIN_ALLOW_THREADS
        status = run(target, r.in, r.out, r.scalars, location);
        Py_END_ALLOW_THREADS
    } while (status == PL_AGAIN && PyErr_CheckSignals() == 0);
    result = status ? failed(status) : outputs_list(made, given, n_given, r.out, specs);
end:
    PyMem_Free(r.many);
    return result;
}

static PyObject *py_invoke(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n == 7)
        return call(core.invoke, args);
    PyErr_SetString(PyExc_TypeError, "invoke(plan, in_specs, out_specs, inputs, outputs, scalars, location)");
    return NULL;
}

static PyObject *py_run(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n == 7)
        return call(core.program_run, args);
    PyErr_SetString(PyExc_TypeError, "run(program, in_specs, out_specs, inputs, outputs, scalars, location)");
    return NULL;
}

/* invoke1(plan, out_spec, a, b or scalar): the fast path for one output. The plan was found by the arrays' specs. */
static PyObject *py_invoke1(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    uintptr_t plan, in[2], out = 0;
    PyTypeObject *made;
    double scalar = 0;
    int status;
    if (n != 4) {
        PyErr_SetString(PyExc_TypeError, "invoke1(plan, out_spec, array, array or scalar)");
        return NULL;
    }
    if (address_of(args[0], &plan) < 0 || handle_of(args[2], &in[0]) < 0)
        return NULL;
    made = made_with(made_type, args[2]);
    if (Py_TYPE(args[3]) == made_type || PyObject_TypeCheck(args[3], array_type)) {
        if (handle_of(args[3], &in[1]) < 0)
            return NULL;
        made = made_with(made, args[3]);
    } else if (PySequence_Check(args[3])) {      /* PyFloat_AsDouble would accept a NumPy array of one element */
        PyErr_SetString(PyExc_TypeError, "not a number");
        return NULL;
    } else {
        scalar = PyFloat_AsDouble(args[3]);
        if (scalar == -1.0 && PyErr_Occurred())
            return NULL;
    }
    do {
        Py_BEGIN_ALLOW_THREADS
        status = core.invoke(plan, in, &out, &scalar, -1);
        Py_END_ALLOW_THREADS
    } while (status == PL_AGAIN && PyErr_CheckSignals() == 0);
    return status ? failed(status) : array_make_of(made, out, args[1]);
}

/* shared(inputs, outputs): [(input, output, same address)] for every pair that shares a var. */
static PyObject *py_shared(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    PyObject *found = NULL;
    PyTypeObject *unused = NULL;
    scratch r;
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "shared(inputs, outputs)");
        return NULL;
    }
    Py_ssize_t n_in = length(args[0]), n_out = length(args[1]);
    if (n_in < 0 || n_out < 0 || scratch_open(&r, n_in, n_out, 0) < 0)
        return NULL;
    if (handles_of(args[0], n_in, NULL, NULL, r.in, &unused) < 0 ||
        handles_of(args[1], n_out, NULL, NULL, r.out, &unused) < 0 ||
        !(found = PyList_New(0)))
        goto end;
    for (Py_ssize_t j = 0; j < n_out; j++)
        for (Py_ssize_t i = 0; i < n_in; i++) {
            if (!core.array_shares(r.in[i], r.out[j]))
                continue;
            PyObject *pair = Py_BuildValue("(nnO)", i, j, core.array_data(r.in[i]) == core.array_data(r.out[j])
                                                              ? Py_True : Py_False);
            if (!pair || PyList_Append(found, pair) < 0)
                Py_CLEAR(found);
            Py_XDECREF(pair);
            if (!found)
                goto end;
        }
end:
    PyMem_Free(r.many);
    return found;
}

/* versions(arrays): (bytes that stay equal while the contents of these arrays do, pl_watched_writes before). */
static PyObject *py_versions(PyObject *self, PyObject *arrays)
{
    PyObject *found = NULL, *result = NULL;
    PyTypeObject *unused = NULL;
    scratch r;
    Py_ssize_t n = length(arrays);
    if (n < 0 || scratch_open(&r, n, 0, 0) < 0)
        return NULL;
    if (handles_of(arrays, n, NULL, NULL, r.in, &unused) == 0 &&
        (found = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(pl_version)))) {
        uint64_t written = core.arrays_versions(r.in, (int)n, (pl_version *)PyBytes_AsString(found));
        result = Py_BuildValue("NK", found, (unsigned long long)written);
    }
    PyMem_Free(r.many);
    return result;
}

static PyObject *py_make(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    uintptr_t handle;
    if (n != 2) {
        PyErr_SetString(PyExc_TypeError, "make(handle, spec)");
        return NULL;
    }
    if (address_of(args[0], &handle) < 0)
        return NULL;
    return handle ? array_make(handle, args[1]) : failed(PL_ENOMEM);
}

static PyObject *py_make_of(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    uintptr_t handle;
    if (n != 3 || !PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], array_type)) {
        PyErr_SetString(PyExc_TypeError, "make_of(class, handle, spec)");
        return NULL;
    }
    return address_of(args[1], &handle) < 0 ? NULL : array_make_of((PyTypeObject *)args[0], handle, args[2]);
}

static PyObject *py_exchange(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2 || !PyObject_TypeCheck(args[0], array_type) || !PyObject_TypeCheck(args[1], array_type)) {
        PyErr_SetString(PyExc_TypeError, "exchange(array, array)");
        return NULL;
    }
    Array *a = (Array *)args[0], *b = (Array *)args[1];
    uintptr_t handle = a->handle;
    PyObject *spec = a->spec;
    a->handle = b->handle;
    a->spec = b->spec;
    b->handle = handle;
    b->spec = spec;
    Py_RETURN_NONE;
}

static PyObject *py_bind(PyObject *self, PyObject *args)
{
    unsigned long long new, array_free, invoke, program_run, error_message, array_shares, array_data, arrays_versions;
    PyObject *objects, *memory, *value, *type, *other;
    if (!PyArg_ParseTuple(args, "KKKKKKKKO!OOOO", &new, &array_free, &invoke, &program_run, &error_message,
                          &array_shares, &array_data, &arrays_versions, &PyDict_Type, &objects, &memory, &value, &type,
                          &other))
        return NULL;
    kept = Py_NewRef(objects);
    out_of_memory = Py_NewRef(memory);
    invalid_value = Py_NewRef(value);
    invalid_type = Py_NewRef(type);
    engine_error = Py_NewRef(other);
    core.array_new = (uintptr_t (*)(size_t))(uintptr_t)new;
    core.array_free = (void (*)(uintptr_t))(uintptr_t)array_free;
    core.invoke = (core_call)(uintptr_t)invoke;
    core.program_run = (core_call)(uintptr_t)program_run;
    core.error_message = (const char *(*)(void))(uintptr_t)error_message;
    core.array_shares = (int (*)(uintptr_t, uintptr_t))(uintptr_t)array_shares;
    core.array_data = (void *(*)(uintptr_t))(uintptr_t)array_data;
    core.arrays_versions = (uint64_t (*)(const uintptr_t *, int, pl_version *))(uintptr_t)arrays_versions;
    Py_RETURN_NONE;
}

static PyObject *py_set_class(PyObject *self, PyObject *args)
{
    PyObject *type, *spec, *check;
    if (!PyArg_ParseTuple(args, "O!OO", &PyType_Type, &type, &spec, &check))
        return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, array_type)) {
        PyErr_SetString(PyExc_TypeError, "set_class: needs a subclass of Array");
        return NULL;
    }
    Py_INCREF(type);
    Py_XDECREF((PyObject *)made_type);
    made_type = (PyTypeObject *)type;
    empty_spec = Py_NewRef(spec);
    fits = Py_NewRef(check);
    Py_RETURN_NONE;
}

static PyObject *py_set_np_class(PyObject *self, PyObject *type)
{
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, made_type)) {
        PyErr_SetString(PyExc_TypeError, "set_np_class: needs a subclass of the class of new arrays");
        return NULL;
    }
    Py_XDECREF((PyObject *)np_type);
    np_type = (PyTypeObject *)Py_NewRef(type);
    Py_RETURN_NONE;
}

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyObject *py_lend(PyObject *self, PyObject *address)
{
    uintptr_t tensor;
    if (address_of(address, &tensor) < 0)
        return NULL;
    ((lent_tensor *)tensor)->deleter = lent_delete;
    return PyCapsule_New((void *)tensor, "dltensor", lent_capsule_free);
}

static PyMethodDef functions[] = {
    {"bind", py_bind, METH_VARARGS, "bind(array_new, array_free, invoke, program_run, error_message, array_shares, "
     "array_data, arrays_versions, kept, OutOfMemory, InvalidValue, InvalidType, MXNetError): addresses in the "
     "core, the objects that it refers to by number, and the exceptions of failed calls"},
    {"set_class", py_set_class, METH_VARARGS,
     "set_class(type, empty_spec, fits): the class of new arrays; the spec of an array "
     "without values; fits(spec, wanted, role, i) raises unless an array of that spec will do"},
    {"set_np_class", py_set_np_class, METH_O,
     "set_np_class(type): the class of arrays that are made from at least one array of this class"},
    {"make", FAST(py_make), "make(handle, spec) -> array that owns the handle; raises OutOfMemory for 0"},
    {"make_of", FAST(py_make_of), "make_of(class, handle, spec) -> as make, of a subclass; handle 0: a sparse array"},
    {"exchange", FAST(py_exchange), "exchange(a, b): each gets the other's handle and spec"},
    {"lend", (PyCFunction)py_lend, METH_O,
     "lend(address) -> capsule of a DLManagedTensor, whose manager_ctx is a number "
     "of `kept`; its deleter drops that"},
    {"invoke", FAST(py_invoke),
     "invoke(plan, in_specs, out_specs, inputs, outputs, scalars, location) -> list of all outputs"},
    {"invoke1", FAST(py_invoke1), "invoke1(plan, out_spec, array, array or scalar) -> array"},
    {"shared", FAST(py_shared),
     "shared(inputs, outputs) -> [(input, output, same address)] of the pairs that share memory"},
    {"versions", (PyCFunction)py_versions, METH_O,
     "versions(arrays) -> (bytes that stay equal while the contents of these arrays do, a number: while "
     "pl_watched_writes() is that, they did; 0: never); the arrays must stay alive"},
    {"run", FAST(py_run),
     "run(program, in_specs, out_specs, inputs, outputs, scalars, location) -> list of all outputs"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_array", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__array(void)
{
    PyObject *m = PyModule_Create(&module);
    if (!m)
        return NULL;
    array_type = (PyTypeObject *)PyType_FromSpec(&array_spec);
    if (!array_type || PyModule_AddObjectRef(m, "Array", (PyObject *)array_type) < 0)
        return NULL;
    made_type = (PyTypeObject *)Py_NewRef((PyObject *)array_type);
    PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)release);
    if (!address || PyModule_AddObjectRef(m, "RELEASE", address) < 0)
        return NULL;
    Py_DECREF(address);
    return m;
}
