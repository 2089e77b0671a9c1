"""Calls of operators on gpu(0) with a plan of their own, and their comparison with NumPy."""

import numpy as np
from plait import gpu, nd
from plait.kernels.cuda.backend import CUDA
from plait.kernels.plan import make_plan, scalars_of
from plait.kernels.record import REGISTRY
from plait.ndarray.launch import launch

TOLERANCE = {"float32": 3e-5, "float64": 1e-12, "float16": 5e-3, "bfloat16": 3e-2}


def drawn(rng, *shape):
    return rng.standard_normal(shape)


def on_gpu(x, dtype="float32"):
    return nd.array(x, ctx=gpu(0), dtype="float64").astype(dtype)


def back(x):
    return x.astype("float64").asnumpy()


def call(name, *arrays, train=None, **attrs):
    """All outputs of an operator, hidden ones too, by the kernel that the table has now."""
    op = REGISTRY[name]
    full = op.parse(attrs) | ({"train": bool(train)} if op.train_aware else {})
    op.plans.clear()
    plan = make_plan(op, full, [a._spec for a in arrays], gpu(0))
    types = [[x.type for x in specs] for specs in (plan.in_specs, plan.out_specs)]
    assert CUDA.choose(op, *types, full) is not None  # not the reference
    outs = launch(plan, list(arrays), scalars_of(op, full))
    op.plans.clear()
    return outs if len(outs) > 1 else outs[0]


def reference(name, *arrays, train=None, **attrs):
    """The same by NumPy, of the values that the arrays hold."""
    op = REGISTRY[name]
    full = op.parse(attrs) | ({"train": bool(train)} if op.train_aware else {})
    whole = ("int32", "int64")
    given = [a.asnumpy() if a._spec.dtype in whole else back(a) for a in arrays]
    return op.ref(np, *given, **full)


def close(got, want, dtype="float32"):
    assert got.shape == want.shape
    error = np.abs(back(got) - want).max(initial=0) / max(1.0, np.abs(want).max(initial=0))
    assert error <= TOLERANCE[dtype], error
