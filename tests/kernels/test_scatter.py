"""Rows of a table at given places: the kernels against NumPy, wide and narrow rows, equal places,
every number of threads."""

import os
import subprocess
import sys

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import make_plan
from plait.kernels.record import lookup
from plait.ndarray.launch import launch

RNG = np.random.RandomState(0)


def call(name, arrays, **attrs):
    op = lookup(name)
    plan = make_plan(op, op.parse(attrs), [a._spec for a in arrays], mx.cpu(0))
    types = [[s.type for s in specs] for specs in (plan.in_specs, plan.out_specs)]
    half = name == "_backward_gather_nd" and arrays[0].dtype == np.float16  # added on NumPy
    assert half or CPU.choose(op, *types, plan.attrs), "no kernel"
    return launch(plan, arrays, ())[0].asnumpy()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
@pytest.mark.parametrize(
    "shape, depth", [((40, 7), 1), ((40, 300), 1), ((9, 11, 3), 2), ((6, 5), 2)]
)
def test_gather_and_scatter(shape, depth, dtype):
    places = np.stack([RNG.randint(-n, n, 50) for n in shape[:depth]]).astype("int32")
    table = RNG.randint(0, 9, shape).astype(dtype)
    rows = RNG.randint(0, 9, (50, *shape[depth:])).astype(dtype)
    index = nd.array(places, dtype="int32")
    x, y = nd.array(table, dtype=dtype), nd.array(rows, dtype=dtype)
    np.testing.assert_array_equal(call("gather_nd", [x, index]), table[tuple(places)])
    want = np.zeros_like(table)
    for k in range(50):
        want[tuple(places[:, k])] = rows[k]
    np.testing.assert_array_equal(call("scatter_nd", [y, index], shape=shape), want)
    want = table.copy()
    for k in range(50):
        want[tuple(places[:, k])] = rows[k]
    np.testing.assert_array_equal(call("_scatter_set_nd", [x, y, index], shape=shape), want)
    want = np.zeros_like(table)
    np.add.at(want, tuple(places), rows)
    np.testing.assert_array_equal(call("_backward_gather_nd", [y, index], shape=shape), want)


def test_the_table_that_is_set_may_be_the_result():
    x = nd.zeros((5, 80))
    nd.elemwise_add(x, nd.zeros_like(x), out=x)
    x[nd.array([1, 3], dtype="int32")] = nd.ones((2, 80))
    assert x.asnumpy().sum(axis=1).tolist() == [0, 80, 0, 80, 0]


def test_an_index_outside_is_refused():
    for name, arrays, attrs in (
        ("gather_nd", [nd.ones((3, 4)), nd.array([[3]])], {}),
        ("scatter_nd", [nd.ones((1, 4)), nd.array([[-4]])], {"shape": (3, 4)}),
    ):
        with pytest.raises(mx.MXNetError, match=rf"{name}: indices must be in \[-3, 3\)"):
            call(name, arrays, **attrs)
    with pytest.raises(mx.MXNetError, match="test_scatter"):
        nd.gather_nd(nd.ones((3, 4)), nd.array([[5]])).asnumpy()


@pytest.mark.parametrize("inner", [3, 70, 200])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradient_of_take(inner, axis):
    shape = (30, inner) if axis == 0 else (2, 30, inner)
    index = RNG.randint(-2, 33, 25)
    dy = RNG.normal(size=(*shape[:axis], 25, inner)).astype("float32")
    want = np.zeros(shape, "float32")
    for k, i in enumerate(np.clip(index, 0, 29)):
        want[(slice(None),) * axis + (i,)] += dy[(slice(None),) * axis + (k,)]
    got = call("_take_grad", [nd.array(dy), nd.array(index)], axis=axis, mode="clip", shape=shape)
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_threads_change_nothing():
    program = """
import numpy as np, plait as mx, hashlib
from plait import autograd, nd
rng = np.random.RandomState(0)
h = hashlib.sha256()
for inner in (40, 200):
    w, i = nd.zeros((3000, inner)), nd.array(rng.zipf(1.2, 4000) % 3000)
    w.attach_grad()
    with autograd.record():
        y = nd.Embedding(i, w, input_dim=3000, output_dim=inner)
    y.backward(nd.array(rng.normal(size=(4000, inner))))
    h.update(w.grad.asnumpy().tobytes())
print(h.hexdigest())
"""
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "OMP_NUM_THREADS": str(n)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in (1, 2)
    }
    assert len(found) == 1
