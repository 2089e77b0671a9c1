"""Kernels that move, find and sort elements give NumPy's results on every instruction set."""

import isa
import numpy as np
import plait as mx
import pytest
from plait.engine import lib

DTYPES = ("float32", "float64", "float16", "int32", "int64", "int8", "uint8", "bool")
DRAW = np.random.default_rng(5)


@pytest.fixture(params=isa.available(), autouse=True)
def instruction_set(request):
    before = lib.plk_isa_get()
    lib.plk_isa_set(getattr(lib, isa.ISAS[request.param]))
    yield
    mx.nd.waitall()
    lib.plk_isa_set(before)


def draw(shape, dtype):
    if dtype == "bool":
        return DRAW.random(shape) > 0.5
    return (DRAW.normal(size=shape) * 50).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transposes(dtype):
    sizes = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 130, 300)
    for m in sizes:
        for n in sizes:
            a = draw((m, n), dtype)
            made = mx.np.array(a, dtype=dtype).T.asnumpy()
            np.testing.assert_array_equal(made, a.T)
    a = draw((3, 40, 2, 37), dtype)
    x = mx.np.array(a, dtype=dtype)
    for axes in [(0, 3, 2, 1), (3, 2, 1, 0), (0, 2, 3, 1), (1, 0, 3, 2), (2, 3, 0, 1)]:
        np.testing.assert_array_equal(x.transpose(axes).asnumpy(), a.transpose(axes))
    part = x[1:, 3:38, :, 2:35].transpose(0, 3, 2, 1)
    np.testing.assert_array_equal(part.asnumpy(), a[1:, 3:38, :, 2:35].transpose(0, 3, 2, 1))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_large_transposes(dtype):
    a = draw((1024, 1500), dtype)
    x = mx.np.array(a, dtype=dtype)
    np.testing.assert_array_equal(x.T.asnumpy(), a.T)
    np.testing.assert_array_equal(x[:, :1024].T.asnumpy(), a[:, :1024].T)
