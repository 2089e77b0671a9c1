/* plait.ndarray._part: the part of an array's memory that a basic key selects (index_keys.py). In C because every slice
 * that is read or written asks for one.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

static PyTypeObject *part_type;

/* A part that is being written down, from its last axis to its first; and the array's axes that are not used yet. */
typedef struct {
    PyObject *shape;            /* of the array */
    Py_ssize_t axis, along;     /* axes of it that are left; elements of those behind them */
    PyObject *sizes, *steps;    /* of the part */
    Py_ssize_t left;            /* axes that these still lack */
    Py_ssize_t size, at;
    bool contiguous;
} part;

/* Takes an axis of the array, the last one that is left: *n elements, *along apart. */
static bool take_axis(part *p, Py_ssize_t *n, Py_ssize_t *along)
{
    *along = p->along;
    *n = PyLong_AsSsize_t(PyTuple_GetItem(p->shape, --p->axis));
    p->along *= *n;
    return !PyErr_Occurred();
}

static bool give_axis(part *p, Py_ssize_t n, Py_ssize_t step)
{
    PyObject *size = PyLong_FromSsize_t(n), *distance = size ? PyLong_FromSsize_t(step) : NULL;
    if (!distance) {
        Py_XDECREF(size);
        return false;
    }
    p->left--;
    PyTuple_SetItem(p->sizes, p->left, size);
    PyTuple_SetItem(p->steps, p->left, distance);
    p->contiguous = p->contiguous && (n == 1 || step == p->size);
    p->size *= n;
    return true;
}

static bool whole_axes(part *p, Py_ssize_t count)
{
    Py_ssize_t n, along;
    while (count-- > 0)
        if (!take_axis(p, &n, &along) || !give_axis(p, n, along))
            return false;
    return true;
}

static bool range_of_axis(part *p, PyObject *slice)
{
    Py_ssize_t n, along, start, stop, step;
    if (!take_axis(p, &n, &along) || PySlice_Unpack(slice, &start, &stop, &step))
        return false;
    Py_ssize_t count = PySlice_AdjustIndices(n, &start, &stop, step);
    p->at += count ? start * along : 0;
    return give_axis(p, count, count > 1 ? step * along : along);
}

/* false with no error: outside the axis */
static bool element_of_axis(part *p, PyObject *number)
{
    Py_ssize_t n, along, i;
    if (!take_axis(p, &n, &along))
        return false;
    i = PyLong_AsSsize_t(number);
    if (i == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    p->at += (i < 0 ? i + n : i) * along;
    return -n <= i && i < n;
}

/* How many axes of the array the keys name, and how many axes of the part they make; *dots: is one of them `...`?
 * false: there are keys of other kinds. */
static bool count_axes(PyObject *keys, Py_ssize_t n, Py_ssize_t *named, Py_ssize_t *made, bool *dots)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key = PyTuple_GetItem(keys, i);
        if (Py_IS_TYPE(key, &PySlice_Type))
            ++*named, ++*made;
        else if (PyLong_CheckExact(key))
            ++*named;
        else if (key == Py_None)
            ++*made;
        else if (key == Py_Ellipsis && !*dots)
            *dots = true;
        else
            return false;
    }
    return true;
}

/* Follows the keys. unnamed: axes that no key names. What ints alone select has axes of size 1 where an element has
 * them. false with no error: a key is outside its axis. */
static bool follow(part *p, PyObject *keys, Py_ssize_t n_keys, Py_ssize_t unnamed, bool dots)
{
    if (!dots && !whole_axes(p, unnamed))
        return false;
    for (Py_ssize_t i = n_keys - 1; i >= 0; i--) {
        PyObject *key = PyTuple_GetItem(keys, i);
        bool found = key == Py_None       ? give_axis(p, 1, 0)
                     : key == Py_Ellipsis ? whole_axes(p, unnamed)
                     : PyLong_CheckExact(key) ? element_of_axis(p, key)
                                              : range_of_axis(p, key);
        if (!found)
            return false;
    }
    while (p->left)
        if (!give_axis(p, 1, 0))
            return false;
    return true;
}

/* Drops the references to sizes and steps. */
static PyObject *made_part(part *p)
{
    PyObject *fields[] = {p->sizes, p->steps, PyLong_FromSsize_t(p->size ? p->at : 0), PyLong_FromSsize_t(p->size),
                          PyBool_FromLong(p->contiguous || !p->size)};
    PyObject *made = fields[2] && fields[3] ? PyStructSequence_New(part_type) : NULL;
    for (int i = 0; i < 5; i++)
        if (made)
            PyStructSequence_SetItem(made, i, fields[i]);
        else
            Py_XDECREF(fields[i]);
    return made;
}

static PyObject *py_part_of(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 3 || !PyTuple_Check(args[1]) || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "part_of(key, shape, element)");
        return NULL;
    }
    PyObject *keys = PyTuple_CheckExact(args[0]) ? Py_NewRef(args[0]) : PyTuple_Pack(1, args[0]), *found = NULL;
    if (!keys)
        return NULL;
    Py_ssize_t n_keys = PyTuple_Size(keys), n_axes = PyTuple_Size(args[1]), named = 0, n_made = 0;
    bool dots = false, known = count_axes(keys, n_keys, &named, &n_made, &dots) && named <= n_axes;
    if (known) {
        n_made += n_axes - named;
        if (!n_made && n_axes)
            n_made = PyTuple_Size(args[2]);
        part p = {.shape = args[1], .axis = n_axes, .along = 1, .left = n_made, .size = 1, .contiguous = true};
        p.sizes = PyTuple_New(n_made);
        p.steps = PyTuple_New(n_made);
        if (p.sizes && p.steps && follow(&p, keys, n_keys, n_axes - named, dots)) {
            found = made_part(&p);
        } else {
            Py_XDECREF(p.sizes);
            Py_XDECREF(p.steps);
        }
    }
    Py_DECREF(keys);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static PyMethodDef functions[] = {
    {"part_of", (PyCFunction)(void (*)(void))py_part_of, METH_FASTCALL,
     "part_of(key, shape, element) -> the Part of a key of ints, slices, None and ..., None for other keys and for "
     "invalid ones. element: the shape of one element, all 1."},
    {NULL, NULL, 0, NULL}};

static PyStructSequence_Field fields[] = {
    {"sizes", "its shape"},
    {"steps", "elements between neighbours of each axis"},
    {"at", "its first element, counted in the array's memory"},
    {"size", "its number of elements"},
    {"contiguous", "are its elements contiguous, in row-major order?"},
    {NULL, NULL}};

static PyStructSequence_Desc description = {
    "plait.ndarray._part.Part",
    "The elements that a basic key selects: offsets at + sum(i * step) in the array's memory, with shape `sizes`.",
    fields, 5};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_part", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__part(void)
{
    PyObject *made = PyModule_Create(&module);
    part_type = PyStructSequence_NewType(&description);
    if (!made || !part_type || PyModule_AddObjectRef(made, "Part", (PyObject *)part_type)) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
