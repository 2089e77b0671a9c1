"""Functions of mx.np on arrays around the borders of their kernels' blocks: what is expected is
NumPy's."""

import numpy as np
import plait as mx
import pytest
from plait import autograd
from plait.kernels import backend
from plait.kernels.record import Type, lookup
from plait.ndarray.invoke import invoke

INTS = ("int32", "int64", "int8", "uint8")
NATIVE = ("float32", "float64", *INTS)


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same, whichever ran before."""
    global DRAW
    DRAW = np.random.default_rng(5)


def drawn(shape, dtype):
    x = DRAW.normal(size=shape) * 4
    return (
        (x > 0) if dtype == "bool" else abs(x).astype(dtype) if dtype[0] == "u" else x.astype(dtype)
    )


def ours(x):
    return mx.np.array(x, dtype=x.dtype)


def same(made, want):
    """Equal values, shapes and dtypes; NaN where it is NaN."""
    assert made.dtype == want.dtype
    np.testing.assert_array_equal(made.asnumpy(), want)


def is_native(name, x, **attrs):
    """Has the operator a kernel in C for such an array?"""
    op, given = lookup(name), Type(x.shape, str(x.dtype))
    attrs = op.parse(attrs)
    found = backend.of(mx.cpu()).kernels.choose(op, [given], op.infer([given], **attrs), attrs)
    return found is not None and not found.python


# ---- any and all ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["bool", "float16", *NATIVE])
@pytest.mark.parametrize("n", [1, 15, 17, 64, 65, 128, 129, 2049, 32769])
def test_one_element_decides_wherever_it_stands(dtype, n):
    for at in sorted({0, n // 2, max(n - 2, 0), n - 1}):
        for one, other in ((0, 1), (1, 0)):
            x = np.full(n, one, dtype)
            x[at] = other
            for name in ("any", "all"):
                assert is_native(f"_{name}", x)
                same(getattr(mx.np, name)(ours(x)), np.asarray(getattr(np, name)(x)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_minus_zero_is_false_and_nan_is_true(dtype):
    for x in ([-0.0, -0.0], [np.nan, np.nan], [-0.0, np.nan], [5e-8, -np.inf]):
        for n in (1, 400):
            a = np.tile(np.array(x, dtype), n)
            same(mx.np.any(ours(a)), np.asarray(np.any(a)))
            same(mx.np.all(ours(a)), np.asarray(np.all(a)))


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int8", "int64"])
@pytest.mark.parametrize("shape", [(3, 5), (9, 1000), (1000, 9), (7, 70000), (2, 3, 4), (0, 3)])
def test_any_and_all_over_axes(dtype, shape):
    for share in (0.0, 0.02, 0.98, 1.0):
        x = (DRAW.random(shape) < share).astype(dtype)
        axes = [None, *range(len(shape)), -1, (0, 1), ()]
        for axis in axes if share in (0.02, 0.98) else axes[:2]:
            for keepdims in (False, True):
                for name in ("any", "all"):
                    want = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
                    same(getattr(mx.np, name)(ours(x), axis=axis, keepdims=keepdims), want)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200, 5000])
def test_the_first_bool(n):
    for at in {0, n // 2, n - 1}:
        x = np.zeros((2, n), bool)
        x[1, at] = True
        for a in (x, ~x):
            same(mx.np.argmax(ours(a), axis=1), np.argmax(a, axis=1))
            same(mx.np.argmin(ours(a), axis=1), np.argmin(a, axis=1))
            same(mx.np.argmax(ours(a)), np.asarray(np.argmax(a)))


@pytest.mark.parametrize("n", [511, 2047, 2048, 2049, 4097, 10000])
def test_the_first_extreme_around_pieces(n):
    for at in (0, n // 2, 2047, 2048, n - 1):
        x = DRAW.random(n).astype("float32")
        x[min(at, n - 1)] = 2
        x[-1] = 2
        same(mx.np.argmax(ours(x)), np.asarray(np.argmax(x)))
        x[min(at, n - 1)] = np.nan
        same(mx.np.argmax(ours(x)), np.asarray(np.argmax(x)))
        same(mx.np.argmin(ours(x)), np.asarray(np.argmin(x)))


# ---- differences ---------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["bool", *NATIVE])
@pytest.mark.parametrize("shape", [(1,), (2,), (100,), (3, 1), (1, 3), (5, 66), (4, 3, 2), (0, 2)])
def test_differences(dtype, shape):
    x = drawn(shape, dtype)
    for axis in range(len(shape)):
        assert not np.diff(x, axis=axis).size or is_native("_diff", x, axis=axis)
        for n in (1, 2, 3):
            same(mx.np.diff(ours(x), n=n, axis=axis), np.diff(x, n=n, axis=axis))


def test_differences_of_whole_numbers_wrap():
    for dtype in INTS:
        info = np.iinfo(dtype)
        x = np.array([info.max, info.min, info.max] * 20, dtype)
        same(mx.np.diff(ours(x)), np.diff(x))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("shape", [(3,), (4,), (130,), (3, 5), (5, 3), (3, 4, 5)])
def test_slopes_are_numpys_bit_for_bit(dtype, edge_order, shape):
    x = drawn(shape, dtype)
    x.flat[1] = np.inf
    for axis in range(len(shape)):
        assert is_native("_slopes", x, axis=axis, edge_order=edge_order)
        for step in (1.0, 0.3):
            with np.errstate(invalid="ignore"):
                want = np.gradient(x, step, axis=axis, edge_order=edge_order)
            same(mx.np.gradient(ours(x), step, axis=axis, edge_order=edge_order), want)


def test_slopes_of_few_elements():
    same(mx.np.gradient(mx.np.array([1.0, 4.0])), np.array([3.0, 3.0], "float32"))
    with pytest.raises(ValueError, match="must have 3 elements, got 2"):
        mx.np.gradient(mx.np.array([1.0, 4.0]), edge_order=2)


LINEAR = [("diff", n, {}, axis) for n in (2, 5) for axis in (0, 1)] + [
    ("gradient", n, {"edge_order": edge}, axis)
    for edge in (1, 2)
    for n in (edge + 1, 4, 6)
    for axis in (0, 1)
]


@pytest.mark.parametrize("name, n, how, axis", LINEAR)
def test_gradients_of_linear_functions(name, n, how, axis):
    """d sum(w f(x)) / dx is the transpose of f's matrix times w; of sum(w f(x) ** 2) it is linear
    in x, and so is differentiated once more."""
    shape = (n, 3) if axis == 0 else (3, n)
    of = lambda xp, x: getattr(xp, name)(x, **({"n": 1} if name == "diff" else how), axis=axis)
    units = np.eye(n * 3).reshape(n * 3, *shape)
    matrix = np.stack([of(np, unit).reshape(-1) for unit in units], axis=1)
    a = drawn(shape, "float64")
    w = drawn(of(np, a).shape, "float64")
    v = drawn(shape, "float64")
    x = ours(a)
    x.attach_grad()
    with autograd.record():
        y = of(mx.np, x)
        (dx,) = autograd.grad((y * y * ours(w)).sum(), [x], create_graph=True)
        again = (dx * ours(v)).sum()
    again.backward()
    weighted = 2 * w.reshape(-1)
    np.testing.assert_allclose(
        dx.asnumpy().reshape(-1), matrix.T @ (weighted * (matrix @ a.reshape(-1))), atol=1e-12
    )
    np.testing.assert_allclose(
        x.grad.asnumpy().reshape(-1),
        matrix.T @ (weighted * (matrix @ v.reshape(-1))),
        atol=1e-12,
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numbers_instead_of_nan(dtype):
    x = drawn(1030, dtype)
    x[[0, 500, 1029]], x[[1, 600]], x[[2, 1023]] = np.nan, np.inf, -np.inf
    with np.errstate(over="ignore"):
        same(mx.np.nan_to_num(ours(x)), np.nan_to_num(x))
        for how in ({"nan": 2.5}, {"posinf": 7.0}, {"neginf": -8.0, "nan": -0.0}):
            same(mx.np.nan_to_num(ours(x), **how), np.nan_to_num(x, **how))
    y = ours(x)
    y.attach_grad()
    with autograd.record():
        mx.np.nan_to_num(y).sum().backward()
    np.testing.assert_array_equal(y.grad.asnumpy(), np.isfinite(x).astype(dtype))


# ---- sorts and ranks -----------------------------------------------------------------------------
def lines(n, dtype):
    """Vectors that quicksort may find hard."""
    x = drawn(n, dtype)
    yield x
    yield np.sort(x)
    yield np.sort(x)[::-1]
    yield np.full(n, x[0])
    yield np.where(DRAW.random(n) < 0.9, x[0], x)  # one value most of the time
    yield np.concatenate([np.sort(x[: n // 2]), np.sort(x[n // 2 :])[::-1]])
    if dtype[0] == "f":
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45], dtype)
        yield np.where(DRAW.random(n) < 0.3, special[DRAW.integers(0, 6, n)], x)
        yield (2.0 ** DRAW.uniform(-120, 120, n)).astype(dtype)
    else:
        info = np.iinfo(dtype)
        yield DRAW.integers(info.min, info.max, n, dtype, endpoint=True)
        yield np.where(DRAW.random(n) < 0.5, info.max, info.min).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("n", [65, 255, 256, 257, 1000, 2048, 2100, 40000])
def test_sorts_of_long_lines(n, dtype):
    for a in lines(n, dtype):
        x = ours(np.ascontiguousarray(a))
        want = np.sort(a)
        made = mx.np.sort(x).asnumpy()
        np.testing.assert_array_equal(made, want)
        if dtype[0] == "f":  # of both zeros -0 is first
            zeros = made[made == 0]
            assert (np.diff(np.signbit(zeros).astype(int)) <= 0).all()
        down = mx.nd.sort(x.as_nd_ndarray(), is_ascend=False).asnumpy()
        numbers = want[want == want]
        np.testing.assert_array_equal(down, np.concatenate([numbers[::-1], want[len(numbers) :]]))
        ranks = sorted({0, n // 3, n // 2, n - 1})
        found = invoke(lookup("_ranked"), [x], {"ranks": tuple(ranks)}).asnumpy()
        np.testing.assert_array_equal(found, want[ranks])


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("shape", [(3, 300), (300, 3), (2, 300, 2), (3000, 2), (20, 100)])
def test_sorts_and_ranks_of_several_lines(shape, dtype):
    a = drawn(shape, dtype)
    x = ours(a)
    for axis in range(len(shape)):
        want = np.sort(a, axis=axis)
        same(mx.np.sort(x, axis=axis), want)
        if shape[axis] > 2:
            top = mx.nd.topk(x.as_nd_ndarray(), axis=axis, k=shape[axis] - 1, ret_typ="value")
            down = np.flip(want, axis)
            np.testing.assert_array_equal(
                top.asnumpy(), np.take(down, range(shape[axis] - 1), axis)
            )
        found = invoke(lookup("_ranked"), [x], {"ranks": (0, 1), "axis": axis})
        same(found, np.take(want, [0, 1], axis))


METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "weibull", "median_unbiased")


@pytest.mark.parametrize("n", [1, 2, 5, 64, 65, 66, 1001, 20000])
def test_quantiles_of_vectors(n):
    for dtype in ("float32", "float64"):
        for a in lines(max(n, 2), dtype):
            a = np.ascontiguousarray(a[:n])
            if np.isinf(a).any():
                continue
            same(mx.np.median(ours(a)), np.asarray(np.median(a)))
            for q in (0.0, 0.13, 0.5, 1.0):
                for method in METHODS:
                    made = mx.np.quantile(ours(a), q, interpolation=method).asnumpy()
                    want = np.quantile(a, q, method=method)
                    near = [np.quantile(a, q, method=m) for m in ("lower", "higher")]
                    rounding = 1e-6 * np.abs([*near, want]).max() + np.finfo(dtype).tiny
                    np.testing.assert_allclose(made, want, rtol=0, atol=rounding)


def test_quantiles_of_axes():
    a = drawn((7, 130, 3), "float32")
    a[0, 5, 1] = np.nan
    for axis in (0, 1, 2, (0, 1), None):
        for keepdims in (False, True):
            want = np.asarray(np.median(a, axis=axis, keepdims=keepdims))
            same(mx.np.median(ours(a), axis=axis, keepdims=keepdims), want)
    assert float(mx.np.median(mx.np.array([1.0, np.inf, np.inf]))) == np.inf


@pytest.mark.parametrize("n", [5, 300])
def test_gradients_of_ranks(n):
    a = DRAW.permutation(n).astype("float64")
    x = ours(a)
    x.attach_grad()
    with autograd.record():
        y = mx.np.quantile(x, 0.3)
        (dx,) = autograd.grad(y * y, [x], create_graph=True)
        again = (dx * dx).sum()
    again.backward()
    place = 0.3 * (n - 1)
    share = np.zeros(n)  # of each element in y
    share[a == np.floor(place)] = 1 - place % 1
    share[a == np.ceil(place)] += place % 1
    value = share @ a
    np.testing.assert_allclose(y.asnumpy(), value)
    np.testing.assert_allclose(dx.asnumpy(), 2 * value * share, atol=1e-12)
    np.testing.assert_allclose(x.grad.asnumpy(), 8 * value * (share @ share) * share, atol=1e-9)


# ---- strided copies ------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5, -2])
def test_columns_with_a_step(dtype, step):
    for columns in (1, 2, 7, 33, 130):
        a = drawn((3, columns), dtype)
        for first in (0, 1):
            same(ours(a)[:, first::step], np.ascontiguousarray(a[:, first::step]))


# ---- names ---------------------------------------------------------------------------------------
def test_generators_of_random_numbers_are_missing_with_advice():
    for module in (mx.np.random, mx.npx.random, mx.sym.np.random):
        for name in ("default_rng", "Generator", "RandomState", "SeedSequence", "PCG64"):
            with pytest.raises(AttributeError, match=r"(?s)no generator objects.*np\.random\.seed"):
                getattr(module, name)
            assert not hasattr(module, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = mx.np.random.nonsense
