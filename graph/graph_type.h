/* Shared by the files of plait.graph._graph: the fields of Node and Value. */
#ifndef PLAIT_GRAPH_TYPE_H
#define PLAIT_GRAPH_TYPE_H
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    PyObject *op, *attrs, *inputs, *name, *types, *extra, *source; /* owned; inputs: a tuple, types: a tuple or None */
    PyObject *weak;
    uint64_t seen; /* the number of the last walk that visited it */
} Node;

typedef struct {
    PyObject_HEAD
    PyObject *node; /* owned */
    Py_ssize_t index;
} Value;

extern PyTypeObject *node_type, *value_type;   /* the bases */
extern PyTypeObject *node_class, *value_class; /* the classes of graph.py, which new objects are of */

size_t hash_of(const void *node, Py_ssize_t index);
/* The node of a value: borrowed; NULL with an exception set for another object. */
Node *node_at(PyObject *value);
/* The Type of a value: borrowed; NULL with an exception set where there is none. */
PyObject *type_of(const Value *value);

/* A new node. inputs: given. types: a tuple or None. Returns NULL with an exception set, as the others. */
PyObject *node_make(PyTypeObject *type, PyObject *op, PyObject *attrs, PyObject *inputs, PyObject *name,
                    PyObject *types, PyObject *extra, PyObject *source);
PyObject *value_make(PyTypeObject *type, PyObject *node, Py_ssize_t index);
PyObject *values_of(PyObject *node);                       /* every output of a node, a new list */
/* the node with other inputs (given, a tuple), or itself: new */
PyObject *with_inputs(PyObject *node, PyObject *inputs);

/* graph_walk.c */
PyObject *py_walk(PyObject *self, PyObject *args);
PyObject *py_rewrite(PyObject *self, PyObject *args);
PyObject *py_merge(PyObject *self, PyObject *args);
PyObject *py_depending(PyObject *self, PyObject *args);
PyObject *py_instantiate(PyObject *self, PyObject *args);
/* graph_buffers.c */
PyObject *py_kinds(PyObject *self, PyObject *nodes);
PyObject *py_assign_buffers(PyObject *self, PyObject *args);
#endif
