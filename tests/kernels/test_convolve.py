"""Our convolution and pooling kernels against their references, on shapes for each branch."""

import numpy as np
import plait as mx
import pytest
from plait.engine import lib
from plait.kernels.cpu.backend import CPU
from plait.kernels.record import lookup
from plait.kernels.reference import run_reference
from plait.ndarray.invoke import invoke

# batch, channels, space, filters, kernel, stride, dilate, pad
WINOGRAD = [
    (2, 16, (12, 12), 16, (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 19, (14, 9), 37, (3, 3), (1, 1), (1, 1), (0, 2)),  # part vectors, part tiles
    (9, 64, (7, 7), 200, (3, 3), (1, 1), (1, 1), (1, 1)),  # several parts of filters
    (3, 96, (36, 40), 40, (3, 3), (1, 1), (1, 1), (1, 1)),  # several chunks
    (4, 600, (8, 8), 20, (3, 3), (1, 1), (1, 1), (1, 1)),  # depth in pieces
]
TILES = [
    (3, 1, (28, 28), 20, (5, 5), (1, 1), (1, 1), (0, 0)),
    (2, 20, (12, 12), 50, (5, 5), (1, 1), (1, 1), (0, 0)),
    (2, 3, (31, 30), 64, (7, 7), (2, 2), (1, 1), (3, 3)),
    (2, 40, (9, 13), 24, (3, 3), (2, 1), (1, 2), (1, 2)),
    (5, 7, (6, 5), 3, (2, 3), (3, 2), (1, 1), (0, 1)),
    (2, 9, (40,), 5, (4,), (3,), (2,), (2,)),
    (2, 35, (60, 61), 70, (3, 3), (2, 2), (1, 1), (1, 1)),  # several chunks, depth in pieces
    (1, 4, (5, 5), 2, (5, 5), (1, 1), (1, 1), (2, 2)),
]
KINDS = ("Convolution", "_conv_grad_data", "_conv_grad_weight")


def call(kind, case, rng):
    """(operator, attributes, arrays) of one of the three products of a convolution."""
    n, channels, space, filters, kernel, stride, dilate, pad = case
    out = [
        (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, d, p in zip(space, kernel, stride, dilate, pad)
    ]
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    x, w, dy = draw(n, channels, *space), draw(filters, channels, *kernel), draw(n, filters, *out)
    attrs = {"kernel": kernel, "stride": stride, "dilate": dilate, "pad": pad}
    arrays, own = {
        "Convolution": ((x, w, draw(filters)), {"num_filter": filters}),
        "_conv_grad_data": ((dy, w), {"data_shape": x.shape}),
        "_conv_grad_weight": ((dy, x), {"weight_shape": w.shape}),
    }[kind]
    return lookup(kind), attrs | own, arrays


def run(op, attrs, arrays):
    result = invoke(op, [mx.nd.array(a) for a in arrays], attrs)
    return (result[0] if isinstance(result, list) else result).asnumpy()


def kernel_of(op, attrs, arrays):
    types = [mx.nd.array(a)._spec.type for a in arrays]
    full = op.parse(attrs)
    return CPU.choose(op, types, op.infer(types, **full), full).function


@pytest.fixture(
    params=range(lib.plk_isa_best() + 1), ids=("baseline", "avx2", "avx512").__getitem__
)
def instruction_set(request):
    lib.plk_isa_set(request.param)
    yield
    lib.plk_isa_set(lib.plk_isa_best())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", WINOGRAD + TILES)
def test_convolution(case, kind, instruction_set):
    op, attrs, arrays = call(kind, case, np.random.default_rng(7))
    op.plans.clear()
    want = "plk_winograd_nchw_run" if case in WINOGRAD else "plk_conv_run"
    assert kernel_of(op, attrs, arrays) == want
    got = run(op, attrs, arrays)
    op.plans.clear()
    wide = [a.astype(np.float64) for a in arrays]
    exact = run_reference(op, op.parse(attrs), wide)[0]
    assert np.abs(got - exact).max() <= 3e-5 * exact.std()


def definition(x, w, stride, dilate, pad, groups):
    """y by the definition, in float64; w (filters, channels / groups, ...)."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    nd, (n, channels), filters = w.ndim - 2, x.shape[:2], w.shape[0]
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pad)))
    sizes = [s - d * (k - 1) for s, d, k in zip(x.shape[2:], dilate, w.shape[2:])]
    out = [-(-s // t) for s, t in zip(sizes, stride)]
    y = np.zeros((n, groups, filters // groups, *out))
    w = w.reshape(groups, filters // groups, channels // groups, *w.shape[2:])
    x = x.reshape(n, groups, channels // groups, *x.shape[2:])
    for tap in np.ndindex(*w.shape[3:]):
        here = tuple(slice(t * d, t * d + s, q) for t, d, s, q in zip(tap, dilate, sizes, stride))
        y += np.einsum("ngc...,gfc->ngf...", x[(..., *here)], w[(..., *tap)], optimize=nd > 0)
    return y.reshape(n, filters, *out)


def drawn(seed):
    """A random convolution: odd channels and filters, groups, 1 to 3 dimensions."""
    rng = np.random.default_rng(seed)
    nd = int(rng.choice([1, 2, 2, 2, 3]))
    draw = lambda low, high: tuple(int(v) for v in rng.integers(low, high + 1, nd))
    kernel, dilate = draw(1, 4), draw(1, 2)
    stride, pad = draw(1, 3), draw(0, 2)
    space = tuple(
        (k - 1) * d + 1 + int(rng.integers(0, 20 if nd < 3 else 5)) for k, d in zip(kernel, dilate)
    )
    groups = int(rng.choice([1, 1, 2, 3, 5, 16, 24]))
    inputs = int(rng.choice([1, 2, 3, 8, 13, 24] if groups < 10 else [1, 2, 4]))
    filters = int(rng.choice([1, 2, 3, 8, 13, 40] if groups < 10 else [1, 2, 4]))
    shape = (int(rng.integers(1, 4)), groups * inputs, *space)
    return shape, (groups * filters, inputs, *kernel), stride, dilate, pad, groups, rng


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("last", [False, True])
def test_random_convolutions(seed, last, instruction_set):
    """The three products against the definition and its derivatives along random directions."""
    x_shape, w_shape, stride, dilate, pad, groups, rng = drawn(seed)
    nd, draw = len(stride), lambda shape: rng.standard_normal(shape).astype(np.float32)
    x, w, bias = draw(x_shape), draw(w_shape), draw(w_shape[0])
    want = definition(x, w, stride, dilate, pad, groups)
    dy = draw(want.shape)
    attrs = {"kernel": w_shape[2:], "stride": stride, "dilate": dilate, "pad": pad}
    attrs |= {"num_group": groups, "layout": {1: "NCW", 2: "NCHW", 3: "NCDHW"}[nd]}
    move, back = (lambda a: a), (lambda a: a)
    if last:
        attrs["layout"] = attrs["layout"].replace("C", "") + "C"
        move = lambda a: np.ascontiguousarray(np.moveaxis(a, 1, -1))
        back = lambda a: np.moveaxis(a, -1, 1)

    def ran(kind, arrays, **own):
        op = lookup(kind)
        op.plans.clear()
        assert "plk_conv" in kernel_of(op, attrs | own, arrays) or not last
        found = back(run(op, attrs | own, arrays))
        op.plans.clear()
        return found

    y = ran("Convolution", (move(x), move(w), bias), num_filter=w_shape[0])
    bound = 1e-5 * np.sqrt(np.prod(w_shape[1:])) + 1e-5
    assert np.abs(y - (want + bias.reshape(-1, *[1] * nd))).max() <= bound
    # the products are bilinear: <dy, conv(a, b)> = <gradient, a or b> for every a, b
    dx = ran("_conv_grad_data", (move(dy), move(w)), data_shape=move(x).shape)
    dw = ran("_conv_grad_weight", (move(dy), move(x)), weight_shape=move(w).shape)
    for direction in range(3):
        a, b = draw(x_shape), draw(w_shape)
        through = (dy * definition(a, w, stride, dilate, pad, groups)).sum()
        scale = np.sqrt((dx.astype(np.float64) ** 2).sum()) + 1
        assert abs((dx.astype(np.float64) * a).sum() - through) <= 1e-5 * scale * np.sqrt(a.size)
        through = (dy * definition(x, b, stride, dilate, pad, groups)).sum()
        scale = np.sqrt((dw.astype(np.float64) ** 2).sum()) + 1
        assert abs((dw.astype(np.float64) * b).sum() - through) <= 1e-5 * scale * np.sqrt(b.size)


def test_nan_stays_in_its_tile():
    """What a product does not read does not spoil it: rows and channels are padded with zeros."""
    x = np.zeros((1, 16, 12, 12), np.float32)
    x[0, 0, 0, 0] = np.nan
    op, attrs, (_, w, bias) = call("Convolution", WINOGRAD[0], np.random.default_rng(1))
    y = run(op, attrs, (x, w, bias))
    assert np.isnan(y[0, :, 0, 0]).all()
    assert not np.isnan(y[0, :, 4:]).any()


@pytest.mark.parametrize("seed", range(40))
def test_pooling(seed, instruction_set):
    rng = np.random.default_rng(seed)
    nd = int(rng.choice([1, 2, 2, 3]))
    size = [int(v) for v in rng.integers(3, 60 if nd < 3 else 9, nd)]
    kernel = tuple(int(rng.integers(1, min(5, s) + 1)) for s in size)
    last, kind = bool(rng.integers(2)), str(rng.choice(["max", "avg", "sum"]))
    n, c = int(rng.integers(1, 4)), int(rng.integers(1, 37))
    shape = (n, *size, c) if last else (n, c, *size)
    attrs = {
        "kernel": kernel,
        "stride": tuple(int(v) for v in rng.integers(1, 4, nd)),
        "pad": tuple(int(rng.integers(0, k)) for k in kernel),
        "pool_type": kind,
        "layout": {1: "NCW", 2: "NCHW", 3: "NCDHW"}[nd].replace("C", "" if last else "C")
        + ("C" if last else ""),
        "count_include_pad": bool(rng.integers(2)),
        "pooling_convention": str(rng.choice(["valid", "full"])),
    }
    x = rng.integers(-3, 4, shape).astype(np.float32)  # many equal maxima
    x.flat[rng.integers(0, x.size, 3)] = np.nan
    pooling, gradient = lookup("Pooling"), lookup("_pool_grad")
    full = pooling.parse(attrs)
    want = run_reference(pooling, full, [x])[0]
    np.testing.assert_allclose(run(pooling, attrs, [x]), want, rtol=1e-5, atol=1e-5)
    given = {k: v for k, v in full.items() if k in gradient.param_index} | {"data_shape": shape}
    dy = rng.standard_normal(want.shape).astype(np.float32)
    arrays = [dy, x] if kind == "max" else [dy]
    want = run_reference(gradient, gradient.parse(given), arrays)[0]
    np.testing.assert_allclose(run(gradient, given, arrays), want, rtol=1e-5, atol=1e-5)
