/* The walks over graphs of plait.graph._graph: the order of nodes, rewriting, merging, and many nodes made at once.
 * No recursion: graphs may be of any depth. */
#include "graph_type.h"

/* ---- the walk --------------------------------------------------------------------------------------------- */

typedef struct { PyObject *node, *inputs; Py_ssize_t next; } visit;   /* node: borrowed; inputs: owned */
/* given, instead: borrowed, may be NULL */
typedef struct { visit *items; Py_ssize_t n, max; uint64_t number; PyObject *given, *instead; } walk;

/* Starts at a value's node, unless it was visited or the value is given. Returns -1 with an exception set. */
static int walk_enter(walk *w, PyObject *value)
{
    PyObject *node = (PyObject *)node_at(value);
    if (!node)
        return -1;
    if (((Node *)node)->seen == w->number)
        return 0;
    int found = w->given ? PySequence_Contains(w->given, value) : 0;
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
    if (!inputs)
        inputs = ((Node *)node)->inputs;
    if (PyErr_Occurred())
        return -1;
    ((Node *)node)->seen = w->number;
    w->items[w->n++] = (visit){node, Py_NewRef(inputs), 0};
    return 0;
}

static PyObject *walk_from(PyObject *outputs, PyObject *given, PyObject *instead)
{
    PyObject *order = PyList_New(0);
    static uint64_t n_walks; /* a walk holds the GIL throughout, so it can mark nodes */
    walk w = {.number = ++n_walks, .given = given, .instead = instead};
    int status = order ? 0 : -1;
    /* lookups in other containers may run Python */
    if (order && given && !PyAnySet_Check(given) && !PyDict_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "walk: given values must be a set or the keys of a dict");
        status = -1;
    }
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
    if (status < 0)
        Py_CLEAR(order);
    return order;
}

PyObject *py_walk(PyObject *self, PyObject *args)
{
    PyObject *outputs, *given = NULL, *instead = NULL;
    if (!PyArg_ParseTuple(args, "O!|OO!", &PyList_Type, &outputs, &given, &PyDict_Type, &instead))
        return NULL;
    return walk_from(outputs, given, instead);
}

/* ---- rewriting -------------------------------------------------------------------------------------------- */

/* nodes: {node: its new values}; values: {value: the new one}, which has priority, or NULL */
typedef struct { PyObject *nodes, *values; } replaced;

/* The replacement of a value: borrowed, the value itself if it was not replaced; NULL with an exception. */
static PyObject *now(const replaced *r, PyObject *value)
{
    Node *node = node_at(value);
    PyObject *made = node && r->values ? PyDict_GetItemWithError(r->values, value) : NULL;
    if (made && node_at(made))
        return made;
    made = node && !PyErr_Occurred() ? PyDict_GetItemWithError(r->nodes, (PyObject *)node) : NULL;
    if (!made)
        return PyErr_Occurred() ? NULL : value;
    Py_ssize_t i = ((Value *)value)->index;
    return PyList_Check(made) ? PyList_GetItem(made, i) : PyTuple_GetItem(made, i);
}

/* The inputs of a node after replacement: new; its own tuple if none was replaced. */
static PyObject *inputs_now(const replaced *r, PyObject *inputs)
{
    Py_ssize_t n = PyTuple_Size(inputs);
    PyObject *made = NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = PyTuple_GetItem(inputs, i), *new = now(r, value);
        if (new && new != value && !made && (made = PyTuple_New(n)))
            for (Py_ssize_t k = 0; k < i; k++)
                PyTuple_SetItem(made, k, Py_NewRef(PyTuple_GetItem(inputs, k)));
        if (!new || (new != value && !made)) {
            Py_XDECREF(made);
            return NULL;
        }
        if (made)
            PyTuple_SetItem(made, i, Py_NewRef(new));
    }
    return made ? made : Py_NewRef(inputs);
}

/* The replacement of a node: a new list or tuple of values, or None to keep it; NULL with an exception set. */
static PyObject *replacement(PyObject *node, PyObject *inputs, PyObject *replace)
{
    PyObject *made = replace == Py_None ? Py_NewRef(Py_None)
                                        : PyObject_CallFunctionObjArgs(replace, node, inputs, NULL);
    if (!made || (made != Py_None && (PyList_Check(made) || PyTuple_Check(made))))
        return made;
    if (made != Py_None) {
        Py_DECREF(made);
        PyErr_SetString(PyExc_TypeError, "rewrite: replace must return a list or tuple of Values, or None");
        return NULL;
    }
    if (inputs == ((Node *)node)->inputs)
        return made;
    PyObject *kept = with_inputs(node, Py_NewRef(inputs));
    if (kept && kept != node) {
        Py_DECREF(made);
        made = values_of(kept);
    }
    Py_XDECREF(kept);
    return kept ? made : (Py_DECREF(made), NULL);
}

/* The replacements of the outputs: a new list. */
static PyObject *outputs_now(const replaced *r, PyObject *outputs)
{
    PyObject *made = PyList_New(PyList_Size(outputs));
    for (Py_ssize_t i = 0; made && i < PyList_Size(outputs); i++) {
        PyObject *value = now(r, PyList_GetItem(outputs, i));
        if (!value)
            Py_CLEAR(made);
        else
            PyList_SetItem(made, i, Py_NewRef(value));
    }
    return made;
}

PyObject *py_rewrite(PyObject *self, PyObject *args)
{
    PyObject *outputs, *order, *replace, *start, *asked;
    replaced r = {NULL, NULL};
    if (!PyArg_ParseTuple(args, "O!O!OOO|O!", &PyList_Type, &outputs, &PyList_Type, &order, &replace, &start, &asked,
                          &PyDict_Type, &r.values))
        return NULL;
    r.nodes = start == Py_None ? PyDict_New() : PyDict_Copy(start);
    int status = r.nodes ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(order); i++) {
        PyObject *node = PyList_GetItem(order, i);
        if ((status = PyDict_Contains(r.nodes, node))) {
            status = status < 0 ? -1 : 0;
            continue;
        }
        int ask = asked == Py_None ? 1 : PySet_Contains(asked, ((Node *)node)->op);
        PyObject *inputs = ask < 0 ? NULL : inputs_now(&r, ((Node *)node)->inputs);
        PyObject *made = inputs ? replacement(node, inputs, ask ? replace : Py_None) : NULL;
        status = !made ? -1 : made == Py_None ? 0 : PyDict_SetItem(r.nodes, node, made);
        Py_XDECREF(inputs);
        Py_XDECREF(made);
    }
    PyObject *made = status == 0 ? outputs_now(&r, outputs) : NULL;
    Py_XDECREF(r.nodes);
    return made;
}

/* The key of a computation, as bytes: its name, which is a number from Python, and its inputs. Returns NULL with an
 * exception set. */
static PyObject *computation(PyObject *name, PyObject *inputs)
{
    Py_ssize_t n = PyTuple_Size(inputs);
    PyObject *key = PyBytes_FromStringAndSize(NULL, (1 + 2 * n) * (Py_ssize_t)sizeof(intptr_t));
    intptr_t *parts = key ? (intptr_t *)PyBytes_AsString(key) : NULL;
    if (!key)
        return NULL;
    parts[0] = (intptr_t)PyLong_AsSsize_t(name);
    for (Py_ssize_t i = 0; i < n; i++) {
        Value *value = (Value *)PyTuple_GetItem(inputs, i);
        parts[1 + 2 * i] = (intptr_t)value->node;
        parts[2 + 2 * i] = value->index;
    }
    return key;
}

/* As `replacement`, of a node whose computation another node may already do. */
static PyObject *merged(PyObject *node, PyObject *inputs, PyObject *name, PyObject *seen)
{
    PyObject *key = computation(name, inputs), *kept = key ? with_inputs(node, Py_NewRef(inputs)) : NULL;
    PyObject *first = kept ? PyDict_GetItemWithError(seen, key) : NULL;
    if (kept && !first && !PyErr_Occurred() && PyDict_SetItem(seen, key, kept) == 0)
        first = kept;
    PyObject *made = !first ? NULL : first == node ? Py_NewRef(Py_None) : values_of(first);
    Py_XDECREF(key);
    Py_XDECREF(kept);
    return made;
}

PyObject *py_merge(PyObject *self, PyObject *args)
{
    PyObject *outputs, *order, *kinds, *names, *pinned;
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!", &PyList_Type, &outputs, &PyList_Type, &order, &PyList_Type, &kinds,
                          &PyList_Type, &names, &PySet_Type, &pinned))
        return NULL;
    replaced r = {PyDict_New(), NULL};
    PyObject *seen = PyDict_New();
    int status = r.nodes && seen ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(order); i++) {
        PyObject *node = PyList_GetItem(order, i), *kind = PyList_GetItem(kinds, i);
        PyObject *name = kind ? PyList_GetItem(names, PyLong_AsSsize_t(kind)) : NULL;
        PyObject *inputs = name ? inputs_now(&r, ((Node *)node)->inputs) : NULL, *made = NULL;
        int stays = inputs ? name == Py_None ? 1 : PySet_Contains(pinned, node) : -1;
        if (stays >= 0)
            made = stays ? replacement(node, inputs, Py_None) : merged(node, inputs, name, seen);
        status = !made ? -1 : made == Py_None ? 0 : PyDict_SetItem(r.nodes, node, made);
        Py_XDECREF(inputs);
        Py_XDECREF(made);
    }
    PyObject *made = status == 0 ? outputs_now(&r, outputs) : NULL;
    Py_XDECREF(r.nodes);
    Py_XDECREF(seen);
    return made;
}

/* ---- dependents --------------------------------------------------------------------------------------------- */

PyObject *py_depending(PyObject *self, PyObject *args)
{
    PyObject *order, *nodes;
    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &order, &nodes))
        return NULL;
    PyObject *found = PySet_New(nodes);
    int status = found ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(order); i++) {
        PyObject *node = PyList_GetItem(order, i), *inputs = ((Node *)node)->inputs;
        int depends = 0;
        for (Py_ssize_t k = 0; depends == 0 && k < PyTuple_Size(inputs); k++)
            depends = PySet_Contains(found, ((Value *)PyTuple_GetItem(inputs, k))->node);
        status = depends < 0 || (depends && PySet_Add(found, node) < 0) ? -1 : 0;
    }
    if (status < 0)
        Py_CLEAR(found);
    return found;
}

/* ---- many nodes at once ----------------------------------------------------------------------------------- */

/* Makes a node for each (op, attrs, types, places of its inputs), all of one source, and appends their outputs to the
 * values. */
PyObject *py_instantiate(PyObject *self, PyObject *args)
{
    PyObject *steps, *values, *source, *name;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &steps, &PyList_Type, &values, &source) ||
        !(name = PyUnicode_FromStringAndSize("", 0)))
        return NULL;
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_Size(steps); i++) {
        PyObject *op, *attrs, *types, *places;
        if (!PyArg_ParseTuple(PyTuple_GetItem(steps, i), "OOO!O!", &op, &attrs, &PyTuple_Type, &types, &PyTuple_Type,
                              &places)) {
            status = -1;
            break;
        }
        PyObject *inputs = PyTuple_New(PyTuple_Size(places));
        for (Py_ssize_t k = 0; inputs && k < PyTuple_Size(places); k++) {
            PyObject *value = PyList_GetItem(values, PyLong_AsSsize_t(PyTuple_GetItem(places, k)));
            if (value)
                PyTuple_SetItem(inputs, k, Py_NewRef(value));
            else
                Py_CLEAR(inputs);
        }
        PyObject *node = node_make(node_class, op, attrs, inputs, name, types, Py_None, source);
        status = node ? 0 : -1;
        for (Py_ssize_t k = 0; status == 0 && k < PyTuple_Size(types); k++) {
            PyObject *value = value_make(value_class, node, k);
            status = value ? PyList_Append(values, value) : -1;
            Py_XDECREF(value);
        }
        Py_XDECREF(node);
    }
    Py_DECREF(name);
    return status == 0 ? Py_NewRef(values) : NULL;
}
