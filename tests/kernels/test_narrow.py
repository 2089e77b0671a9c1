"""Products of 16-bit floats and 8-bit integers, in each way in which machines multiply them, beside
NumPy's float64 and int64."""

import numpy as np
import plait as mx
import pytest
from plait.engine import lib
from plait.kernels.backend import of
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Type

SIZES = [
    (1, 1, 1),
    (1, 70, 33),
    (2, 3, 0),
    (3, 130, 17),
    (4, 16, 5),
    (13, 17, 19),
    (64, 10, 128),
    (97, 33, 300),
    (130, 213, 70),
    (100, 40, 2100),  # more than one block of depth
    (5, 2000, 300),  # more than one stripe
    (33, 2, 700),
    (1, 1, 1000),  # two vectors
    (1, 9, 133),
    (2, 21, 200),
    (3, 8, 129),
    (300, 1, 77),  # one column
    (15, 33, 1030),
]
ROUNDING = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # of one number, relative
MACHINES = [
    (isa, lacks)
    for isa in range(lib.plk_isa_best() + 1)
    for lacks in (0, lib.PLK_HAS_AMX, lib.PLK_HAS_ALL)
]


@pytest.fixture(params=[m for m in MACHINES if not m[1] or m[0] == lib.PLK_AVX512])
def machine(request):
    """As on a machine with that instruction set, and without its instructions for small numbers."""
    isa, lacks = request.param
    lib.plk_isa_set(isa)
    lib.plk_isa_without(lacks)
    yield
    lib.plk_isa_without(0)
    lib.plk_isa_set(lib.plk_isa_best())


def floats(rng, shape, dtype):
    """An array of a 16-bit dtype and its values."""
    made = mx.nd.array(rng.normal(size=shape)).astype(dtype)
    return made, wide(made)


def wide(x):
    return x.astype("float32").asnumpy().astype("float64")


def check_floats(got, a, b, dtype, more=0.0):
    want = a @ b + more
    bound = ROUNDING[dtype] * np.abs(want) + 1e-6 * (np.abs(a) @ np.abs(b)) + 1e-7
    assert str(got._spec.dtype) == dtype
    assert (np.abs(wide(got) - want) <= bound).all()


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_floats(machine, dtype, ta, tb):
    for m, n, k in SIZES:
        rng = np.random.default_rng(m + n + k)
        a, x = floats(rng, (k, m) if ta else (m, k), dtype)
        b, y = floats(rng, (n, k) if tb else (k, n), dtype)
        got = mx.nd.dot(a, b, transpose_a=ta, transpose_b=tb)
        check_floats(got, x.T if ta else x, y.T if tb else y, dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_integers_are_summed_in_32_bits(machine, dtype, ta, tb):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for m, n, k in SIZES:
        rng = np.random.default_rng(m + n + k)
        a = rng.integers(low, high + 1, size=(k, m) if ta else (m, k)).astype(dtype)
        b = rng.integers(low, high + 1, size=(n, k) if tb else (k, n)).astype(dtype)
        if k > 64:  # few enough terms that not all results are the limits
            b[rng.random(b.shape) < 0.99] = 0
        want = (a.T if ta else a).astype("int64") @ (b.T if tb else b)
        got = mx.nd.dot(mx.nd.array(a, dtype=dtype), mx.nd.array(b, dtype=dtype), ta, tb)
        np.testing.assert_array_equal(got.asnumpy(), np.clip(want, low, high).astype(dtype))


@pytest.mark.parametrize("dtype, value", [("int8", -128), ("int8", 127), ("uint8", 255)])
def test_extreme_integers_become_the_nearest_value(machine, dtype, value):
    """512 ones once gave 0, the low byte of the sum."""
    a = mx.nd.full((3, 512), value, dtype=dtype)
    high = np.iinfo(dtype).max
    assert (mx.nd.dot(a, a, transpose_b=True).asnumpy() == high).all()
    ones = mx.nd.ones((3, 512), dtype=dtype)
    assert (mx.nd.dot(ones, ones, transpose_b=True).asnumpy() == high).all()
    assert (
        (mx.nd.batch_dot(*[x.reshape((1, 3, 512)) for x in (ones, ones)], False, True) == high)
        .asnumpy()
        .all()
    )
    dense = mx.nd.FullyConnected(ones, ones, ones[:, 0], num_hidden=3)
    assert (dense.asnumpy() == high).all()


@pytest.mark.parametrize("dtype", ROUNDING)
def test_stacks_and_bias(machine, dtype):
    rng = np.random.default_rng(0)
    a, x = floats(rng, (3, 17, 40), dtype)
    b, y = floats(rng, (3, 40, 33), dtype)
    check_floats(mx.nd.batch_dot(a, b), x, y, dtype)
    check_floats(mx.nd.linalg.gemm2(a, b, alpha=0.5), 0.5 * x, y, dtype)
    w, v = floats(rng, (33, 40), dtype)
    bias, c = floats(rng, (33,), dtype)
    check_floats(mx.nd.FullyConnected(a[0], w, bias, num_hidden=33), x[0], v.T, dtype, c)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_gradients(machine, dtype):
    rng = np.random.default_rng(0)
    (x, a), (w, b), (g, dy) = (floats(rng, s, dtype) for s in ((37, 50), (21, 50), (37, 21)))
    bias = mx.nd.zeros((21,), dtype=dtype)
    for array in (x, w, bias):
        array.attach_grad()
    with mx.autograd.record():
        y = mx.nd.FullyConnected(x, w, bias, num_hidden=21)
    y.backward(g)
    check_floats(x.grad, dy, b, dtype)
    check_floats(w.grad, dy.T, a, dtype)
    check_floats(bias.grad, np.ones((1, 37)), dy, dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_not_a_number_stays_in_its_row_and_column(machine, dtype):
    """Also where the depth is no whole number of units."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(20, 31)), rng.normal(size=(31, 40))
    a[3, 4], b[5, 6], a[19, 30] = np.nan, np.inf, np.nan
    for ta in (False, True):
        got = wide(
            mx.nd.dot(
                mx.nd.array(a.T if ta else a).astype(dtype),
                mx.nd.array(b).astype(dtype),
                transpose_a=ta,
            )
        )
        with np.errstate(invalid="ignore"):
            want = a @ b
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


@pytest.mark.parametrize("dtype", [*ROUNDING, "int8"])
def test_many_threads_give_what_one_gives(dtype):
    rng = np.random.default_rng(0)
    x, w = (mx.nd.array(rng.integers(-9, 9, size=s)).astype(dtype) for s in ((500, 256), (90, 256)))
    many = mx.nd.dot(x, w, transpose_b=True).astype("float32").asnumpy()
    rows = [mx.nd.dot(x[i : i + 20], w, transpose_b=True) for i in range(0, 500, 20)]
    rows = np.concatenate([r.astype("float32").asnumpy() for r in rows])
    np.testing.assert_array_equal(many, rows)


IMAGES = [  # data, weight, stride, pad, dilate, groups
    ((2, 3, 9, 11), (9, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 8, 7, 7), (16, 8, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    ((1, 8, 7, 7), (16, 4, 3, 3), (1, 1), (1, 1), (2, 2), 2),
    ((2, 6, 5, 5), (9, 6, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    ((1, 4, 30), (8, 4, 5), (2,), (2,), (1,), 1),
    ((1, 2, 5, 6, 7), (8, 2, 3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
    ((1, 64, 14, 14), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 3, 9, 8), (8, 3, 5, 5), (1, 1), (2, 2), (1, 1), 1),  # lines of a window are whole chunks
    ((1, 5, 7, 9), (4, 5, 3, 3), (2, 1), (1, 1), (1, 1), 1),
    ((1, 31, 6, 5), (9, 31, 1, 1), (1, 1), (1, 1), (1, 1), 1),
]


def convolution(x, w, bias, stride, pad, dilate, groups):
    """In float64, tap by tap."""
    n, f = x.shape[0], w.shape[0]
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pad)])
    out = [
        (s - d * (k - 1) - 1) // t + 1
        for s, d, k, t in zip(x.shape[2:], dilate, w.shape[2:], stride)
    ]
    y = np.zeros((n, groups, f // groups, *out))
    w = w.reshape(groups, f // groups, *w.shape[1:])
    for tap in np.ndindex(*w.shape[3:]):
        at = tuple(
            slice(k * d, k * d + (o - 1) * t + 1, t) for k, d, o, t in zip(tap, dilate, out, stride)
        )
        part = x[(slice(None), slice(None), *at)].reshape(n, groups, -1, *out)
        y += np.einsum("gfc,ngc...->ngf...", w[(..., *tap)], part)
    return y.reshape(n, f, *out) + bias.reshape(-1, *[1] * len(out))


@pytest.mark.parametrize("dtype", [*ROUNDING, "int8", "uint8"])
def test_convolutions(machine, dtype):
    rng = np.random.default_rng(0)
    for data, weight, stride, pad, dilate, groups in IMAGES:
        if dtype in ROUNDING:
            (x, a), (w, b), (c, d) = (floats(rng, s, dtype) for s in (data, weight, weight[:1]))
        else:
            low = -9 if dtype == "int8" else 0
            a, b, d = (rng.integers(low, 9, size=s) for s in (data, weight, weight[:1]))
            b = b * (rng.random(b.shape) < 0.2)
            x, w, c = (mx.nd.array(v, dtype=dtype) for v in (a, b, d))
        taps = {"stride": stride, "pad": pad, "dilate": dilate, "num_group": groups}
        got = mx.nd.Convolution(x, w, c, kernel=weight[2:], num_filter=weight[0], **taps)
        assert str(got._spec.dtype) == dtype
        want = convolution(a.astype("float64"), b, d, stride, pad, dilate, groups)
        if dtype in ROUNDING:
            size = convolution(np.abs(a), np.abs(b), np.abs(d), stride, pad, dilate, groups)
            # float16 and AVX2 may use Winograd's algorithm in float32
            assert (np.abs(wide(got) - want) <= ROUNDING[dtype] * np.abs(want) + 1e-5 * size).all()
        else:
            limits = np.iinfo(dtype)
            np.testing.assert_array_equal(got.asnumpy(), np.clip(want, limits.min, limits.max))


def test_int8_convolution_saturates_as_in_mxnet():
    """What MXNet 1.9.1 gives for 512 channels of 100."""
    x, w = (
        mx.nd.full((1, 512, 1, 2), 100, dtype="int8"),
        mx.nd.full((2, 512, 1, 1), 100, dtype="int8"),
    )
    y = mx.nd.Convolution(x, w, kernel=(1, 1), num_filter=2, no_bias=True)
    assert y.dtype == np.int8 and (y.asnumpy() == 127).all()


def test_numpy_keeps_the_low_bits():
    a = np.full((3, 40), 100, "int8")
    for call in (mx.np.dot, mx.np.matmul):
        np.testing.assert_array_equal(call(mx.np.array(a), mx.np.array(a.T)).asnumpy(), a @ a.T)
    got = mx.np.tensordot(mx.np.array(a), mx.np.array(a), ([1], [1]))
    np.testing.assert_array_equal(got.asnumpy(), np.tensordot(a, a, ([1], [1])))


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize(
    "name", ["Pooling", "softmax", "LayerNorm", "Embedding", "L2Normalization"]
)
def test_no_layer_of_16_bits_takes_the_gil(dtype, name):
    cases = {
        "Pooling": ([(2, 3, 8, 8)], {"kernel": (2, 2), "pool_type": "max", "stride": (2, 2)}),
        "softmax": ([(4, 40)], {}),
        "LayerNorm": ([(4, 40), (40,), (40,)], {}),
        "Embedding": ([(4,), (10, 6)], {"input_dim": 10, "output_dim": 6}),
        "L2Normalization": ([(4, 40)], {}),
    }
    shapes, given = cases[name]
    op = REGISTRY[name]
    attrs = op.parse(given)
    ins = [Type(s, dtype) for s in shapes]
    outs = infer(op, attrs, ins)
    found = of(mx.cpu()).kernels.choose(op, ins, outs, attrs)
    assert found is not None and not found.python
