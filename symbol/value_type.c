/* plait.symbol._value: the Python type under Value, a pair (node, index) that is hashed and compared by the node's
 * identity. Passes keep what they know of values in dicts; methods in Python would take half of their time. */
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

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_value", NULL, -1, NULL, NULL, NULL, NULL, NULL};

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
