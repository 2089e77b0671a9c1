/* plait.engine._layer: the layer that each thread is in (layers.py). In C because every call of a block enters one,
 * while somebody wants to know.
 *
 * A layer is a tuple that begins with FIELDS. The core gets its name, for what the thread pushes.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

enum { ABOVE, POINTER, NAME, FIELDS };        /* the layer around it or None, its name in the core, its name */

static _Thread_local PyObject *own;           /* owned; NULL: none */
static void (*core_set_layer)(const char *name);
static PyObject *place_name, *find_name, *call_name;       /* attributes of a block */

static bool is_layer(PyObject *object) { return PyTuple_Check(object) && PyTuple_Size(object) >= FIELDS; }

static PyObject *no_layer(void)
{
    PyErr_SetString(PyExc_TypeError, "a Layer is needed here");
    return NULL;
}

/* layer: given, or NULL. Returns the layer before, new, or NULL. */
static PyObject *exchange(PyObject *layer)
{
    PyObject *before = own;
    own = layer;
    core_set_layer(layer ? PyLong_AsVoidPtr(PyTuple_GetItem(layer, POINTER)) : NULL);
    return before;
}

static PyObject *py_enter(PyObject *self, PyObject *layer)
{
    if (layer != Py_None && !is_layer(layer))
        return no_layer();
    PyObject *before = exchange(layer == Py_None ? NULL : Py_NewRef(layer));
    return before ? before : Py_NewRef(Py_None);
}

static PyObject *py_current(PyObject *self, PyObject *unused)
{
    return Py_NewRef(own ? PyTuple_GetItem(own, NAME) : Py_None);
}

/* The layer of a block that is called now, new. A block keeps it as `_place` until it is called from elsewhere. */
static PyObject *place_of(PyObject *block)
{
    PyObject *above = own ? own : Py_None, *place = PyObject_GetAttr(block, place_name);
    if (!place || (is_layer(place) && PyTuple_GetItem(place, ABOVE) == above))
        return place;
    Py_DECREF(place);
    place = PyObject_CallMethodObjArgs(block, find_name, above, NULL);
    if (!place || is_layer(place))
        return place;
    Py_DECREF(place);
    return no_layer();
}

static PyObject *py_call(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    if (n != 2 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "call(block, args)");
        return NULL;
    }
    PyObject *place = place_of(args[0]), *function = place ? PyObject_GetAttr(args[0], call_name) : NULL;
    if (!function) {
        Py_XDECREF(place);
        return NULL;
    }
    PyObject *before = exchange(place), *result = PyObject_Call(function, args[1], NULL);
    Py_XDECREF(exchange(before));
    Py_DECREF(function);
    return result;
}

static PyObject *py_bind(PyObject *self, PyObject *address)
{
    void *function = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    core_set_layer = (void (*)(const char *))function;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"bind", py_bind, METH_O, "bind(pl_profiler_set_layer): its address in the core"},
    {"enter", py_enter, METH_O, "enter(layer or None) -> the one before: this thread's operations are of that layer"},
    {"current", py_current, METH_NOARGS, "current() -> the name of this thread's layer, or None"},
    {"call", (PyCFunction)(void (*)(void))py_call, METH_FASTCALL,
     "call(block, args) -> block._call(*args), inside block._place; if that is not below this thread's layer, inside "
     "block._find_place(that layer)"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_layer", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__layer(void)
{
    place_name = PyUnicode_InternFromString("_place");
    find_name = PyUnicode_InternFromString("_find_place");
    call_name = PyUnicode_InternFromString("_call");
    return place_name && find_name && call_name ? PyModule_Create(&module) : NULL;
}
