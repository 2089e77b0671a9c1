"""Native sorting against the reference: ties, NaN, zeros, both directions, any axis, any k."""

import numpy as np
import pytest
from plait import nd
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Type
from plait.kernels.reference import run_reference

SHAPES = [((7,), 0), ((300,), 0), ((5, 40), -1), ((40, 5), 0), ((3, 70, 4), 1), ((6, 9), None)]


def values(shape, dtype):
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-4, 5, size=shape).astype(dtype)  # many ties
    if x.dtype.kind == "f":
        x.flat[::5] = np.nan
        x.flat[::7] = -0.0
        x.flat[1::11] = np.inf
        x.flat[2::13] = -np.inf
    return x


def check(name, x, **attrs):
    op = REGISTRY[name]
    full = op.parse(attrs)
    ins = [Type(x.shape, x.dtype.name)]
    assert CPU.choose(op, ins, infer(op, full, ins), full) is not None
    want = run_reference(op, full, [x])
    got = getattr(nd, name)(nd.array(x, dtype=x.dtype), **attrs)
    for g, w in zip(got if isinstance(got, (list, tuple)) else [got], want, strict=True):
        np.testing.assert_array_equal(g.asnumpy(), w)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("ascend", [True, False])
@pytest.mark.parametrize("shape, axis", SHAPES)
def test_sorting_equals_the_reference(shape, axis, ascend, dtype):
    x = values(shape, dtype)
    check("sort", x, axis=axis, is_ascend=ascend)
    check("argsort", x, axis=axis, is_ascend=ascend, dtype="int32")
    n = x.size if axis is None else shape[axis]
    for k in (1, 3, n):
        for give in ("value", "indices", "both", "mask"):
            check("topk", x, axis=axis, k=k, ret_typ=give, is_ascend=ascend)


def test_positions_above_two_to_the_24_fit_the_dtype_asked_for():
    x = np.zeros(5, "float32")
    assert nd.argsort(nd.array(x), dtype="int64").dtype == np.int64
