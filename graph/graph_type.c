/* plait.graph._graph: the base types of Node and Value (see graph.py). In C because passes spend most of their time
 * making nodes, looking up values in dicts and walking the graph (graph_walk.c). Objects are borrowed unless a comment
 * says otherwise. */
#include "graph_type.h"
#include <structmember.h>

enum { FIELDS = 7 };

PyTypeObject *node_type, *value_type; /* the bases, then the classes of graph.py: see py_classes */

static PyObject *as_tuple(PyObject *given)
{
    return PyTuple_CheckExact(given) ? Py_NewRef(given) : PySequence_Tuple(given);
}

/* ---- Node ------------------------------------------------------------------------------------------------- */

PyObject *node_make(PyTypeObject *type, PyObject *op, PyObject *attrs, PyObject *inputs, PyObject *name,
                           PyObject *types, PyObject *extra, PyObject *source)
{
    Node *node = inputs ? (Node *)PyType_GenericAlloc(type, 0) : NULL;
    if (!node) {
        Py_XDECREF(inputs);
        return NULL;
    }
    node->op = Py_NewRef(op);
    node->attrs = Py_NewRef(attrs);
    node->inputs = inputs;
    node->name = Py_NewRef(name);
    node->types = Py_NewRef(types);
    node->extra = Py_NewRef(extra);
    node->source = Py_NewRef(source);
    return (PyObject *)node;
}

static PyObject *node_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"op", "attrs", "inputs", "name", "types", "extra", "source", NULL};
    PyObject *op, *attrs, *inputs, *name = NULL, *types = Py_None, *extra = Py_None, *source = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OOO|OOOO", names, &op, &attrs, &inputs, &name, &types, &extra,
                                     &source))
        return NULL;
    name = name ? Py_NewRef(name) : PyUnicode_FromStringAndSize("", 0);
    types = types == Py_None ? Py_NewRef(types) : as_tuple(types);
    PyObject *made = name && types ? node_make(type, op, attrs, as_tuple(inputs), name, types, extra, source) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(types);
    return made;
}

static int node_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < FIELDS; i++)
        Py_VISIT((&((Node *)self)->op)[i]);
    return 0;
}

static int node_clear(PyObject *self)
{
    for (int i = 0; i < FIELDS; i++)
        Py_CLEAR((&((Node *)self)->op)[i]);
    return 0;
}

static void node_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((Node *)self)->weak)
        PyObject_ClearWeakRefs(self);
    node_clear(self); /* a long chain of inputs is safe: deallocation of tuples bounds the depth */
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *types_of(const Node *node)
{
    if (PyTuple_Check(node->types))
        return node->types;
    PyErr_Format(PyExc_TypeError, "the node '%U' is not typed", node->name);
    return NULL;
}

static PyObject *node_types(PyObject *self, void *unused)
{
    return Py_XNewRef(types_of((Node *)self));
}

static int node_set_types(PyObject *self, PyObject *types, void *unused)
{
    Node *node = (Node *)self;
    PyObject *before = node->types;
    if (!types || !(types = as_tuple(types))) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "the types of a node cannot be deleted");
        return -1;
    }
    node->types = types;
    Py_DECREF(before);
    return 0;
}

static PyObject *node_is_typed(PyObject *self, void *unused)
{
    return PyBool_FromLong(PyTuple_Check(((Node *)self)->types));
}

static PyObject *node_operation(PyObject *self, void *unused)
{
    Node *node = (Node *)self;
    if (node->op != Py_None)
        return Py_NewRef(node->op);
    PyErr_Format(PyExc_TypeError, "'%U' is a variable: it has no operator", node->name);
    return NULL;
}

static PyGetSetDef node_getset[] = {
    {"types", node_types, node_set_types, "the Type of each output; TypeError where the node is not typed", NULL},
    {"is_typed", node_is_typed, NULL, "are the types of its outputs known?", NULL},
    {"operation", node_operation, NULL, "its Operator; TypeError for a variable", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef node_members[] = {
    {"op", T_OBJECT, offsetof(Node, op), READONLY, "its Operator; None for a variable"},
    {"attrs", T_OBJECT, offsetof(Node, attrs), 0, "its attributes, complete"},
    {"inputs", T_OBJECT, offsetof(Node, inputs), READONLY, "a tuple of Values"},
    {"name", T_OBJECT, offsetof(Node, name), 0, "its name, or nothing"},
    {"known_types", T_OBJECT, offsetof(Node, types), READONLY, "the Type of each output, or None"},
    {"extra", T_OBJECT, offsetof(Node, extra), 0, "attributes of the user, or None"},
    {"source", T_OBJECT, offsetof(Node, source), 0, "file:line that made it, or None"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Node, weak), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot node_slots[] = {{Py_tp_new, node_new},
                                   {Py_tp_dealloc, node_dealloc},
                                   {Py_tp_traverse, node_traverse},
                                   {Py_tp_clear, node_clear},
                                   {Py_tp_members, node_members},
                                   {Py_tp_getset, node_getset},
                                   {Py_tp_doc, "Node(op, attrs, inputs, name='', types=None, extra=None, source=None)"},
                                   {0, NULL}};

static PyType_Spec node_spec = {"plait.graph._graph.Node", sizeof(Node), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, node_slots};

/* ---- Value ------------------------------------------------------------------------------------------------ */

PyObject *value_make(PyTypeObject *type, PyObject *node, Py_ssize_t index)
{
    Value *value = (Value *)PyType_GenericAlloc(type, 0);
    if (value) {
        value->node = Py_NewRef(node);
        value->index = index;
    }
    return (PyObject *)value;
}

static PyObject *value_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    Py_ssize_t n = PyTuple_Size(args), index = 0;
    if (n < 1 || n > 2 || keywords || !PyObject_TypeCheck(PyTuple_GetItem(args, 0), node_type)) {
        PyErr_SetString(PyExc_TypeError, "needs (node, index=0)");
        return NULL;
    }
    if (n == 2 && (index = PyLong_AsSsize_t(PyTuple_GetItem(args, 1))) == -1 && PyErr_Occurred())
        return NULL;
    return value_make(type, PyTuple_GetItem(args, 0), index);
}

static int value_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Value *)self)->node);
    return 0;
}

static int value_clear(PyObject *self)
{
    Py_CLEAR(((Value *)self)->node);
    return 0;
}

static void value_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    value_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

size_t hash_of(const void *node, Py_ssize_t index)
{
    size_t address = (size_t)node;
    return (address >> 4 | address << (8 * sizeof address - 4)) + 31 * (size_t)index;
}

static Py_hash_t value_hash(PyObject *self)
{
    Py_hash_t hash = (Py_hash_t)hash_of(((Value *)self)->node, ((Value *)self)->index);
    return hash == -1 ? -2 : hash;
}

static int same(const Value *a, const Value *b)
{
    return a->node == b->node && a->index == b->index;
}

static PyObject *value_compare(PyObject *self, PyObject *other, int how)
{
    if ((how != Py_EQ && how != Py_NE) || !PyObject_TypeCheck(other, value_type))
        return Py_NewRef(Py_NotImplemented);
    return PyBool_FromLong(same((Value *)self, (Value *)other) == (how == Py_EQ));
}

PyObject *type_of(const Value *value)
{
    PyObject *types = types_of((Node *)value->node);
    return types ? PyTuple_GetItem(types, value->index) : NULL;
}

static PyObject *value_of_type(PyObject *self, void *part)
{
    PyObject *type = type_of((Value *)self);
    return Py_XNewRef(type && part ? PyTuple_GetItem(type, (Py_ssize_t)(intptr_t)part - 1) : type);
}

static PyMemberDef value_members[] = {
    {"node", T_OBJECT, offsetof(Value, node), READONLY, "the node"},
    {"index", T_PYSSIZET, offsetof(Value, index), READONLY, "which of its outputs"},
    {NULL, 0, 0, 0, NULL}};

/* a Type is the tuple (shape, dtype, layout) */
static PyGetSetDef value_getset[] = {{"type", value_of_type, NULL, "its Type", NULL},
                                     {"shape", value_of_type, NULL, "its shape", (void *)1},
                                     {"dtype", value_of_type, NULL, "its dtype", (void *)2},
                                     {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot value_slots[] = {{Py_tp_new, value_new},
                                    {Py_tp_dealloc, value_dealloc},
                                    {Py_tp_traverse, value_traverse},
                                    {Py_tp_clear, value_clear},
                                    {Py_tp_hash, value_hash},
                                    {Py_tp_richcompare, value_compare},
                                    {Py_tp_members, value_members},
                                    {Py_tp_getset, value_getset},
                                    {Py_tp_doc, "One output of a node: Value(node, index=0)."},
                                    {0, NULL}};

static PyType_Spec value_spec = {"plait.graph._graph.Value", sizeof(Value), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, value_slots};

PyTypeObject *node_class, *value_class; /* of graph.py: the classes of new objects */

static PyObject *py_classes(PyObject *self, PyObject *args)
{
    PyTypeObject *node, *value;
    if (!PyArg_ParseTuple(args, "O!O!", &PyType_Type, &node, &PyType_Type, &value))
        return NULL;
    node_class = (PyTypeObject *)Py_NewRef((PyObject *)node);
    value_class = (PyTypeObject *)Py_NewRef((PyObject *)value);
    return Py_NewRef(Py_None);
}

Node *node_at(PyObject *value)
{
    if (PyObject_TypeCheck(value, value_type))
        return (Node *)((Value *)value)->node;
    PyErr_SetString(PyExc_TypeError, "a graph's outputs and a node's inputs must be Values");
    return NULL;
}

PyObject *values_of(PyObject *node)
{
    PyObject *types = ((Node *)node)->types, *made;
    Py_ssize_t n = PyTuple_Check(types) ? PyTuple_Size(types) : -1;
    if (n < 0) {
        PyObject *count = PyObject_GetAttrString(node, "n_outputs");
        n = count ? PyLong_AsSsize_t(count) : -1;
        Py_XDECREF(count);
        if (n < 0)
            return NULL;
    }
    if (!(made = PyList_New(n)))
        return NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = value_make(value_class, node, i);
        if (!value) {
            Py_DECREF(made);
            return NULL;
        }
        PyList_SetItem(made, i, value);
    }
    return made;
}

static PyObject *py_values_of(PyObject *self, PyObject *node)
{
    if (PyObject_TypeCheck(node, node_type))
        return values_of(node);
    PyErr_SetString(PyExc_TypeError, "values_of: needs a node");
    return NULL;
}

PyObject *with_inputs(PyObject *self, PyObject *inputs)
{
    Node *node = (Node *)self;
    Py_ssize_t n = PyTuple_Size(inputs), i = 0;
    if (n == PyTuple_Size(node->inputs))
        while (i < n && node_at(PyTuple_GetItem(inputs, i)) &&
               same((Value *)PyTuple_GetItem(inputs, i), (Value *)PyTuple_GetItem(node->inputs, i)))
            i++;
    if (i == n && n == PyTuple_Size(node->inputs)) {
        Py_DECREF(inputs);
        return Py_NewRef(self);
    }
    if (PyErr_Occurred()) {
        Py_DECREF(inputs);
        return NULL;
    }
    return node_make(node_class, node->op, node->attrs, inputs, node->name, node->types, node->extra, node->source);
}

static PyObject *py_with_inputs(PyObject *self, PyObject *args)
{
    PyObject *node, *inputs;
    if (!PyArg_ParseTuple(args, "O!O", node_type, &node, &inputs) || !(inputs = as_tuple(inputs)))
        return NULL;
    return with_inputs(node, inputs);
}

static PyMethodDef functions[] = {
    {"classes", py_classes, METH_VARARGS, "classes(Node, Value): the subclasses that these functions make"},
    {"values_of", py_values_of, METH_O, "values_of(node) -> every output of a node, hidden ones too"},
    {"with_inputs", py_with_inputs, METH_VARARGS,
     "with_inputs(node, values) -> the node with other inputs of the same types; itself if they are its own"},
    {"walk", py_walk, METH_VARARGS,
     "walk(outputs, given=(), instead={}) -> nodes below a list of Values, inputs first, depth first; not beyond the "
     "given values. instead: {node: tuple of its inputs in another order}"},
    {"rewrite", py_rewrite, METH_VARARGS,
     "rewrite(outputs, order, replace, start, asked, values={}): see graph.rewrite"},
    {"merge", py_merge, METH_VARARGS,
     "merge(outputs, order, kinds, names, pinned) -> outputs of the graph in which nodes with equal names and inputs "
     "are one. kinds: of each node; names: of each kind a number, or None: such nodes and the pinned ones stay"},
    {"depending", py_depending, METH_VARARGS,
     "depending(order, nodes) -> the nodes and all that depend on one of them, a set; order: inputs first"},
    {"instantiate", py_instantiate, METH_VARARGS,
     "instantiate(steps, values, source) -> values, with the outputs of a node made for each step (op, attrs, types, "
     "places of its inputs among the values) appended"},
    {"kinds", py_kinds, METH_O,
     "kinds(nodes) -> (for each typed node the number of its kind, the first node of each kind): nodes with the same "
     "operator and the same objects as attributes and types are of one kind"},
    {"assign_buffers", py_assign_buffers, METH_VARARGS, "assign_buffers(...): see program.py"},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_graph", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__graph(void)
{
    PyObject *m = PyModule_Create(&module);
    if (!m)
        return NULL;
    node_type = (PyTypeObject *)PyType_FromSpec(&node_spec);
    value_type = (PyTypeObject *)PyType_FromSpec(&value_spec);
    if (!node_type || !value_type || PyModule_AddObjectRef(m, "Node", (PyObject *)node_type) < 0 ||
        PyModule_AddObjectRef(m, "Value", (PyObject *)value_type) < 0)
        return NULL;
    return m;
}
