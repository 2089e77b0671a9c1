"""Convolutions of bytes with what follows them, in each way in which machines multiply bytes,
beside NumPy's integers and float64."""

import numpy as np
import pytest
from plait.engine import ffi, lib
from plait.kernels.layouts import physical_shape, to_physical, to_plain
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Type
from plait.kernels.tables import CPU
from test_narrow import IMAGES, convolution, machine  # noqa: F401

MORE = [  # first layers, strides, odd numbers of filters, images of one pixel
    ((1, 3, 23, 21), (35, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
    ((2, 5, 9, 8), (6, 5, 3, 4), (1, 2), (2, 1), (1, 1), 1),
    ((17, 70, 1), (40, 70, 1), (1,), (0,), (1,), 1),
    ((1, 40, 15, 15), (33, 40, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 96, 6, 5), (64, 48, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    ((2, 35, 13, 18), (37, 35, 3, 3), (1, 1), (2, 0), (1, 1), 1),  # by Winograd's algorithm
    ((1, 130, 9, 10), (64, 130, 3, 3), (1, 1), (1, 1), (1, 1), 1),
]


def call(rng, case, dtype, out, add=None, relu=False):
    """(inputs, attributes, the result in float64 before it is rounded)"""
    data, weight, stride, pad, dilate, groups = case
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    x = rng.integers(low, high, size=data).astype(dtype)
    w = rng.integers(-128, 128, size=weight).astype("int8")
    f = weight[0]
    sums = convolution(
        x.astype("float64"), w.astype("float64"), np.zeros(f), stride, pad, dilate, groups
    )
    attrs = {
        "kernel": weight[2:], "stride": stride, "pad": pad, "dilate": dilate, "num_group": groups,
        "num_filter": f, "out_type": out, "add": add is not None, "relu": relu,
    }  # fmt: skip
    by_filter = lambda v: v.reshape(-1, *[1] * (len(data) - 2))
    if out == "int32":
        bias = rng.integers(-1000, 1000, size=f).astype("int32")
        return [x, w, bias], attrs, sums + by_filter(bias)
    size = 60 / (1 + np.abs(sums).max(axis=(0, *range(2, sums.ndim))))
    scale, shift = size.astype("float32"), rng.normal(size=f).astype("float32")
    y = (sums.astype("float32") * by_filter(scale) + by_filter(shift)).astype("float64")
    ins = [x, w, scale, shift]
    if add:
        more = (rng.normal(size=y.shape) * 40).astype(add)
        ins += [more, np.array([0.3], "float32")]
        y = y + more.astype("float64") * np.float32(0.3)
    return ins, attrs, np.maximum(y, 0) if relu else y


def check(got, want, out):
    if out == "float32":
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
    elif out == "int32":
        np.testing.assert_array_equal(got, want)
    else:
        limits = np.iinfo(out)
        assert got.dtype == out
        # a number close to the middle of two may become either
        assert np.abs(got - np.clip(want, limits.min, limits.max)).max() <= 0.5 + 1e-4


def run(ins, attrs, blocked):
    """The kernel's result; blocked: with the layouts that it wants."""
    op = REGISTRY["_conv_int8"]
    attrs = op.parse(attrs)
    types = [Type(a.shape, str(a.dtype)) for a in ins]
    (y,) = infer(op, attrs, types)
    if blocked:
        wanted = CPU.wanted(op, types, [y], attrs)
        types = [t._replace(layout=tag) for t, tag in zip(types, wanted.ins)]
        y = y._replace(layout=wanted.outs[0])
    native = CPU.choose(op, types, [y], attrs)
    params = ffi.new(native.params[0] + " *", native.params[1])
    made = np.zeros(physical_shape(y.shape, y.layout), y.dtype)
    given = [*(to_physical(a, t.layout) for a, t in zip(ins, types)), made]
    bufs = ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in given])
    assert getattr(lib, native.function)(params, bufs, ffi.NULL) == lib.PL_OK
    return to_plain(made, y.shape, y.layout)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "out, add, relu",
    [
        ("int32", None, False),
        ("float32", "float32", True),
        ("int8", None, False),
        ("int8", "int8", True),
        ("uint8", "uint8", False),
        ("int8", "float32", True),
        ("uint8", "int8", False),
    ],
)
def test_what_follows_a_convolution(machine, dtype, out, add, relu):  # noqa: F811
    rng = np.random.default_rng(0)
    for case in IMAGES + MORE:
        ins, attrs, want = call(rng, case, dtype, out, add, relu)
        got = run(ins, attrs, False)
        check(got, want, out)
        np.testing.assert_array_equal(run(ins, attrs, True), got)
