/* Steps of a program: which of them are of one kind, and the buffer of every value (see _Assignment in program.py).
 * Values are numbered, so that their properties are in arrays. */
#include "graph_type.h"
#include "../engine/core/program.h"

/* ---- kinds ------------------------------------------------------------------------------------------------ */

/* The key of the kind of a node, as bytes: new. NULL with an exception set. */
static PyObject *kind_of(Node *node)
{
    Py_ssize_t n = PyTuple_Size(node->inputs);
    PyObject *key = PyBytes_FromStringAndSize(NULL, (n + 3) * (Py_ssize_t)sizeof(void *));
    void **parts = key ? (void **)PyBytes_AsString(key) : NULL;
    if (!key)
        return NULL;
    parts[0] = node->op;
    parts[1] = node->attrs;
    parts[2] = node->types;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(parts[3 + i] = type_of((Value *)PyTuple_GetItem(node->inputs, i)))) {
            Py_DECREF(key);
            return NULL;
        }
    return key;
}

PyObject *py_kinds(PyObject *self, PyObject *nodes)
{
    if (!PyList_Check(nodes)) {
        PyErr_SetString(PyExc_TypeError, "kinds: needs a list of nodes");
        return NULL;
    }
    Py_ssize_t n = PyList_Size(nodes);
    PyObject *numbers = PyList_New(n), *first = PyList_New(0), *known = PyDict_New();
    int status = numbers && first && known ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < n; i++) {
        PyObject *node = PyList_GetItem(nodes, i), *key = kind_of((Node *)node);
        PyObject *number = key ? PyDict_GetItemWithError(known, key) : NULL;
        if (number) {
            Py_INCREF(number);
        } else if (key && !PyErr_Occurred() && (number = PyLong_FromSsize_t(PyList_Size(first))) &&
                   (PyDict_SetItem(known, key, number) < 0 || PyList_Append(first, node) < 0)) {
            Py_CLEAR(number);
        }
        Py_XDECREF(key);
        status = number ? PyList_SetItem(numbers, i, number) : -1;
    }
    Py_XDECREF(known);
    PyObject *made = status == 0 ? PyTuple_Pack(2, numbers, first) : NULL;
    Py_XDECREF(numbers);
    Py_XDECREF(first);
    return made;
}

/* ---- numbers of values ------------------------------------------------------------------------------------ */

enum { NOWHERE = -1 };

/* last: the time of its last read, -1: never. n_last: the number of steps that read it then. given: its number among
 * the given values, or -1. place: PL_SLOT_..., or NOWHERE yet; at: the number of the input, output or buffer. whole:
 * the number of the value of which it is a part, at `offset` bytes, or -1; nbytes: of a value that has parts. written:
 * whether the first write of an output is known; parts of it are written before the whole. */
typedef struct {
    const void *node;
    Py_ssize_t index;
    int64_t last, offset, nbytes;
    int32_t n_last, given, place, at, whole, written;
} entry;

typedef struct {
    entry *values;
    int32_t *table; /* numbers of values, -1: free; a power of two of them */
    int32_t n, max;
    size_t mask;
} numbering;

static int numbering_begin(numbering *m, Py_ssize_t max)
{
    size_t size = 64;
    while (size < 2 * (size_t)max)
        size *= 2;
    if (max > INT32_MAX / 4)
        return -1;
    m->values = PyMem_Malloc((size_t)(max + 1) * sizeof *m->values);
    m->table = PyMem_Malloc(size * sizeof *m->table);
    m->mask = size - 1;
    m->max = (int32_t)max;
    if (m->table)
        memset(m->table, 0xff, size * sizeof *m->table);
    return m->values && m->table ? 0 : -1;
}

static int32_t number_of(numbering *m, const void *node, Py_ssize_t index)
{
    size_t at = hash_of(node, index) * 0x9E3779B97F4A7C15u >> 20 & m->mask;
    for (int32_t k; (k = m->table[at]) >= 0; at = (at + 1) & m->mask)
        if (m->values[k].node == node && m->values[k].index == index)
            return k;
    m->values[m->n] = (entry){.node = node, .index = index, .last = -1, .given = -1, .place = NOWHERE, .whole = -1};
    return m->table[at] = m->n++;
}

static int32_t number_of_value(numbering *m, PyObject *value)
{
    return number_of(m, ((Value *)value)->node, ((Value *)value)->index);
}

/* ---- buffers ---------------------------------------------------------------------------------------------- */

typedef struct { int64_t nbytes, first, last; } buffer;

typedef struct {
    PyObject *steps, *kinds, *times, *given, *owned, *bases, *joined, *sizes, *pairs; /* borrowed; see program.py */
    Py_ssize_t n_steps, n_slots;
    numbering m;
    int32_t *slots; /* numbers of the inputs, then the outputs, of each step */
    int64_t *time;
    buffer *buffers;
    int32_t n_buffers;
    PyObject *first_write, *inplace;
} assignment;

static Node *step_at(const assignment *l, Py_ssize_t i)
{
    return (Node *)PyList_GetItem(l->steps, i);
}

/* The number of the value that contains another one as a part; its own number if there is none. */
static int32_t whole_of(const assignment *l, int32_t value)
{
    int32_t whole = l->m.values[value].whole;
    return whole < 0 ? value : whole;
}

/* The properties of the value that another is a view of, or of the value itself. */
static entry *base_of(assignment *l, PyObject *value)
{
    PyObject *base = PyDict_GetItemWithError(l->bases, value);
    return &l->m.values[whole_of(l, number_of_value(&l->m, base ? base : value))];
}

/* Finds the values that are parts of others. */
static int assignment_join(assignment *l)
{
    PyObject *part, *found;
    for (Py_ssize_t at = 0; PyDict_Next(l->joined, &at, &part, &found);) {
        int32_t p = number_of_value(&l->m, part), w = number_of_value(&l->m, PyTuple_GetItem(found, 0));
        l->m.values[p].whole = w;
        l->m.values[p].offset = PyLong_AsLongLong(PyTuple_GetItem(found, 1));
        l->m.values[w].nbytes = PyLong_AsLongLong(PyTuple_GetItem(found, 2));
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* Numbers every value, and finds the time of its last read. */
static int assignment_number(assignment *l)
{
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; i < PyList_Size(l->given); i++) {
        entry *e = &l->m.values[number_of_value(&l->m, PyList_GetItem(l->given, i))];
        e->given = (int32_t)i;
        e->place = PL_SLOT_INPUT;
        e->at = (int32_t)i;
    }
    for (Py_ssize_t i = 0; i < l->n_steps; i++) {
        Node *node = step_at(l, i);
        Py_ssize_t n_in = PyTuple_Size(node->inputs), n_out = PyTuple_Size(node->types);
        PyObject *time = PyList_GetItem(l->times, i);
        l->time[i] = time ? PyLong_AsLongLong(time) : -1;
        for (Py_ssize_t k = 0; k < n_out; k++)
            l->m.values[whole_of(l, l->slots[at + n_in + k] = number_of(&l->m, node, k))].last = l->time[i];
        for (Py_ssize_t k = 0; k < n_in; k++) {
            PyObject *value = PyTuple_GetItem(node->inputs, k), *base = PyDict_GetItemWithError(l->bases, value);
            int32_t v = whole_of(l, l->slots[at + k] = number_of_value(&l->m, base ? base : value));
            entry *e = &l->m.values[v];
            int again = e->last == l->time[i] && e->n_last;
            for (Py_ssize_t j = 0; again && j < k; j++)
                again = whole_of(l, l->slots[at + j]) != v;
            e->n_last = e->last != l->time[i] || !e->n_last ? 1 : e->n_last + again;
            e->last = l->time[i];
        }
        at += n_in + n_out;
    }
    for (Py_ssize_t j = 0; j < PyList_Size(l->owned); j++) {
        entry *e = base_of(l, PyList_GetItem(l->owned, j));
        e->place = PL_SLOT_OUTPUT;
        e->at = (int32_t)j;
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* May output k of a step overwrite its input a, element by element? Not if another input is the same, or if one of them
 * is a part. */
static int overwritable(const assignment *l, const int32_t *ins, Py_ssize_t n_in, Py_ssize_t a)
{
    if (l->m.values[ins[a]].n_last > 1 || l->m.values[ins[a]].whole >= 0)
        return 0;
    for (Py_ssize_t j = 0; j < n_in; j++)
        if (j != a && whole_of(l, ins[j]) == ins[a])
            return 0;
    return 1;
}

/* Assigns output k of step i. pairs: (input, output) that may share memory and have one size. taken: marks inputs whose
 * buffer an output of this step already reuses. */
static int assign_output(assignment *l, Py_ssize_t i, Py_ssize_t k, const int32_t *ins, const int32_t *outs,
                         PyObject *pairs, PyObject *nbytes)
{
    entry *e = &l->m.values[whole_of(l, outs[k])];
    Py_ssize_t n_in = outs - ins;
    int32_t reuse = -1;
    int64_t now = l->time[i];
    int status = 0;
    if (e->place == PL_SLOT_OUTPUT && !e->written) {
        e->written = 1;
        PyObject *time = PyLong_FromLongLong(now);
        status = time ? PyList_SetItem(l->first_write, e->at, time) : -1;
    }
    for (Py_ssize_t p = 0; status == 0 && reuse < 0 && !e->nbytes && p < PyTuple_Size(pairs); p++) {
        PyObject *pair = PyTuple_GetItem(pairs, p);
        Py_ssize_t a = PyLong_AsSsize_t(PyTuple_GetItem(pair, 0));
        if (PyLong_AsSsize_t(PyTuple_GetItem(pair, 1)) != k || !overwritable(l, ins, n_in, a))
            continue;
        entry *x = &l->m.values[ins[a]];
        if (e->place == PL_SLOT_OUTPUT && x->given >= 0) {
            PyObject *both = Py_BuildValue("(ii)", x->given, e->at);
            status = both ? PyList_Append(l->inplace, both) : -1;
            Py_XDECREF(both);
        } else if (e->place == NOWHERE && x->place == PL_SLOT_ARENA && x->last == now) {
            reuse = x->at;
            for (Py_ssize_t j = 0; j < k; j++)
                if (l->m.values[whole_of(l, outs[j])].place == PL_SLOT_ARENA &&
                    l->m.values[whole_of(l, outs[j])].at == reuse)
                    reuse = -1;
            if (reuse < 0)
                continue;
        }
    }
    if (e->place != NOWHERE)
        return status;
    e->place = PL_SLOT_ARENA;
    e->at = reuse >= 0 ? reuse : l->n_buffers;
    if (reuse < 0)
        l->buffers[l->n_buffers++] =
            (buffer){e->nbytes ? e->nbytes : PyLong_AsLongLong(PyTuple_GetItem(nbytes, k)), now, 0};
    l->buffers[e->at].last = e->last;
    return status;
}

static int assign_outputs(assignment *l)
{
    const int32_t *at = l->slots;
    for (Py_ssize_t i = 0; i < l->n_steps; i++) {
        Node *node = step_at(l, i);
        Py_ssize_t n_in = PyTuple_Size(node->inputs), n_out = PyTuple_Size(node->types);
        Py_ssize_t kind = PyLong_AsSsize_t(PyList_GetItem(l->kinds, i));
        PyObject *pairs = PyList_GetItem(l->pairs, kind), *sizes = PyList_GetItem(l->sizes, kind);
        for (Py_ssize_t k = 0; pairs && sizes && k < n_out; k++)
            if (assign_output(l, i, k, at, at + n_in, pairs, sizes) < 0)
                return -1;
        if (PyErr_Occurred())
            return -1;
        at += n_in + n_out;
    }
    return 0;
}

/* The time of the last read of each value, or of the value that it is a view of: a new list. NULL with an exception
 * set. */
static PyObject *lasts(assignment *l, PyObject *values)
{
    PyObject *times = PyList_New(PyList_Size(values));
    for (Py_ssize_t i = 0; times && i < PyList_Size(values); i++)
        PyList_SetItem(times, i, PyLong_FromLongLong(base_of(l, PyList_GetItem(values, i))->last));
    return times;
}

/* The results: see program.py. */
static PyObject *assignment_results(assignment *l)
{
    PyObject *slots = PyBytes_FromStringAndSize(NULL, l->n_slots * (Py_ssize_t)sizeof(pl_slot));
    PyObject *buffers = PyList_New(l->n_buffers), *last_read = lasts(l, l->given), *finals = lasts(l, l->owned);
    PyObject *made = NULL;
    if (slots && buffers && last_read && finals) {
        pl_slot *to = (pl_slot *)PyBytes_AsString(slots);
        for (Py_ssize_t s = 0; s < l->n_slots; s++) {
            const entry *e = &l->m.values[whole_of(l, l->slots[s])];
            if (e->place == NOWHERE) {
                PyErr_SetString(PyExc_ValueError, "assign_buffers: a step reads a value that no earlier step makes");
                break;
            }
            to[s] = (pl_slot){e->place, e->at, l->m.values[l->slots[s]].offset};
        }
        for (int32_t b = 0; b < l->n_buffers; b++)
            PyList_SetItem(buffers, b, Py_BuildValue("(LLL)", (long long)l->buffers[b].nbytes,
                                                     (long long)l->buffers[b].first, (long long)l->buffers[b].last));
        made = PyErr_Occurred() ? NULL
                                : PyTuple_Pack(6, slots, buffers, last_read, finals, l->first_write, l->inplace);
    }
    Py_XDECREF(slots);
    Py_XDECREF(buffers);
    Py_XDECREF(last_read);
    Py_XDECREF(finals);
    return made;
}

/* Counts slots, outputs and numbers, and allocates them. */
static int assignment_begin(assignment *l)
{
    Py_ssize_t n_made = 0;
    l->n_steps = PyList_Size(l->steps);
    for (Py_ssize_t i = 0; i < l->n_steps; i++) {
        n_made += PyTuple_Size(step_at(l, i)->types);
        l->n_slots += PyTuple_Size(step_at(l, i)->inputs) + PyTuple_Size(step_at(l, i)->types);
    }
    Py_ssize_t n_outputs = PyList_Size(l->owned);
    if (PyErr_Occurred())
        return -1;
    l->slots = PyMem_Malloc((size_t)(l->n_slots + 1) * sizeof *l->slots);
    l->time = PyMem_Malloc((size_t)(l->n_steps + 1) * sizeof *l->time);
    l->buffers = PyMem_Malloc((size_t)(n_made + 1) * sizeof *l->buffers);
    l->first_write = PyList_New(n_outputs);
    l->inplace = PyList_New(0);
    if (!l->slots || !l->time || !l->buffers || !l->first_write || !l->inplace ||
        numbering_begin(&l->m, l->n_slots + PyList_Size(l->given) + n_outputs) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t j = 0; j < n_outputs; j++)
        PyList_SetItem(l->first_write, j, PyLong_FromLong(0));
    return 0;
}

PyObject *py_assign_buffers(PyObject *self, PyObject *args)
{
    assignment l = {0};
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!O!O!O!", &PyList_Type, &l.steps, &PyList_Type, &l.kinds, &PyList_Type,
                          &l.times, &PyList_Type, &l.given, &PyList_Type, &l.owned, &PyDict_Type, &l.bases,
                          &PyDict_Type, &l.joined, &PyList_Type, &l.sizes, &PyList_Type, &l.pairs))
        return NULL;
    PyObject *made = NULL;
    if (assignment_begin(&l) == 0 && assignment_join(&l) == 0 && assignment_number(&l) == 0 && assign_outputs(&l) == 0)
        made = assignment_results(&l);
    PyMem_Free(l.slots);
    PyMem_Free(l.time);
    PyMem_Free(l.buffers);
    PyMem_Free(l.m.values);
    PyMem_Free(l.m.table);
    Py_XDECREF(l.first_write);
    Py_XDECREF(l.inplace);
    return made;
}
