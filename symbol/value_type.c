/* plait.symbol._value: the Python type under Value, a pair (node, index) that is hashed and compared by the node's
 * identity; and the walk over a graph. Passes keep what they know of values in dicts and walk the graph each: both in
 * Python took half of their time. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *node; /* owned */
    Py_ssize_t index;
} Pair;

static PyTypeObject *pair_type;

static PyObject *pair_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_ssize_t n = PyTuple_Size(args), index = 0;
    if (n < 1 || n > 2 || keywords) {
        PyErr_SetString(PyExc_TypeError, "needs (node, index=0)");
        return NULL;
    }
    if (n == 2 && (index = PyLong_AsSsize_t(PyTuple_GetItem(args, 1))) == -1 && PyErr_Occurred())
        return NULL;
    Pair *pair = (Pair *)PyType_GenericAlloc(type, 0);
    if (pair) {
        pair->node = Py_NewRef(PyTuple_GetItem(args, 0));
        pair->index = index;
    }
    return (PyObject *)pair;
}

static int pair_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Pair *)self)->node);
    return 0;
}

static int pair_clear(PyObject *self)
{
    Py_CLEAR(((Pair *)self)->node);
    return 0;
}

static void pair_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    pair_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static Py_hash_t pair_hash(PyObject *self)
{
    size_t address = (size_t)((Pair *)self)->node;
    Py_hash_t hash = (Py_hash_t)((address >> 4 | address << (8 * sizeof address - 4)) +
                                 31 * (size_t)((Pair *)self)->index);
    return hash == -1 ? -2 : hash;
}

static PyObject *pair_compare(PyObject *self, PyObject *other, int how)
{
    if ((how != Py_EQ && how != Py_NE) || !PyObject_TypeCheck(other, pair_type))
        return Py_NewRef(Py_NotImplemented);
    Pair *a = (Pair *)self, *b = (Pair *)other;
    int equal = a->node == b->node && a->index == b->index;
    return PyBool_FromLong(equal == (how == Py_EQ));
}

static PyMemberDef pair_members[] = {
    {"node", T_OBJECT_EX, offsetof(Pair, node), READONLY, "the node"},
    {"index", T_PYSSIZET, offsetof(Pair, index), READONLY, "which of its outputs"},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot pair_slots[] = {{Py_tp_new, pair_new},
                                   {Py_tp_dealloc, pair_dealloc},
                                   {Py_tp_traverse, pair_traverse},
                                   {Py_tp_clear, pair_clear},
                                   {Py_tp_hash, pair_hash},
                                   {Py_tp_richcompare, pair_compare},
                                   {Py_tp_members, pair_members},
                                   {Py_tp_doc, "One output of a node: Pair(node, index=0)."},
                                   {0, NULL}};

static PyType_Spec pair_spec = {"plait.symbol._value.Pair", sizeof(Pair), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, pair_slots};

/* ---- the walk --------------------------------------------------------------------------------------------- */

typedef struct { PyObject *node, *inputs; Py_ssize_t next; } visit;   /* node: borrowed; inputs: owned */
typedef struct { visit *items; Py_ssize_t n, max; PyObject *seen, *given, *instead; } walk;   /* given, instead: borrowed, may be NULL */

/* Begins with a value's node, unless it was seen or the value is given. Returns -1 with an exception set. */
static int walk_enter(walk *w, PyObject *value)
{
    if (!PyObject_TypeCheck(value, pair_type)) {
        PyErr_SetString(PyExc_TypeError, "a graph's outputs and a node's inputs must be Values");
        return -1;
    }
    PyObject *node = ((Pair *)value)->node;
    int found = PySet_Contains(w->seen, node);
    if (found == 0 && w->given)
        found = PySequence_Contains(w->given, value);
    if (found != 0)
        return found < 0 ? -1 : 0;
    if (w->n == w->max) {
        Py_ssize_t max = w->max ? 2 * w->max : 64;
        visit *items = PyMem_Realloc(w->items, (size_t)max * sizeof *items);
        if (!items) {
            PyErr_NoMemory();
            return -1;
        }
        w->items = items;
        w->max = max;
    }
    PyObject *inputs = w->instead ? PyDict_GetItemWithError(w->instead, node) : NULL;
    inputs = inputs ? Py_NewRef(inputs) : PyErr_Occurred() ? NULL : PyObject_GetAttrString(node, "inputs");
    if (!inputs || !PyTuple_Check(inputs) || PySet_Add(w->seen, node) < 0) {
        Py_XDECREF(inputs);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a node's inputs must be a tuple");
        return -1;
    }
    w->items[w->n++] = (visit){node, inputs, 0};
    return 0;
}

/* No recursion: graphs may be of any depth. */
static PyObject *py_walk(PyObject *self, PyObject *args)
{
    PyObject *outputs, *order = PyList_New(0);
    walk w = {.seen = PySet_New(NULL)};
    int status = order && w.seen &&
                 PyArg_ParseTuple(args, "O!|OO!", &PyList_Type, &outputs, &w.given, &PyDict_Type, &w.instead) ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(outputs); i++) {
        status = walk_enter(&w, PyList_GetItem(outputs, i));
        while (status == 0 && w.n > 0) {
            visit *at = &w.items[w.n - 1];
            if (at->next < PyTuple_Size(at->inputs)) {
                status = walk_enter(&w, PyTuple_GetItem(at->inputs, at->next++));
            } else {
                status = PyList_Append(order, at->node);
                Py_DECREF(at->inputs);
                w.n--;
            }
        }
    }
    while (w.n > 0)
        Py_DECREF(w.items[--w.n].inputs);
    PyMem_Free(w.items);
    Py_XDECREF(w.seen);
    if (status < 0)
        Py_CLEAR(order);
    return order;
}

static PyMethodDef functions[] = {
    {"walk", py_walk, METH_VARARGS,
     "walk(outputs, given=(), instead={}) -> nodes below a list of Values, inputs first, depth first; not beyond the "
     "given values. instead: {node: tuple of its inputs in another order}"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_value", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__value(void)
{
    PyObject *m = PyModule_Create(&module);
    if (!m)
        return NULL;
    pair_type = (PyTypeObject *)PyType_FromSpec(&pair_spec);
    if (!pair_type || PyModule_AddObjectRef(m, "Pair", (PyObject *)pair_type) < 0)
        return NULL;
    return m;
}
