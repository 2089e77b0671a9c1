"""Kernels made for functions of mx.np, beside NumPy in float64: roots, remainders, counts, products
along lines, correlations, numbers among others."""

import numpy as onp
import plait as mx
import pytest
from plait import autograd, np

DRAW = onp.random.default_rng(5)
ENDS = [0, -0.0, 1, -1, 2, onp.inf, -onp.inf, onp.nan, 1e-40, 1e-45, 3e38, 0.3, 7, -7]


def floats(n):
    """Specials, and numbers of all sizes."""
    x = DRAW.normal(size=n) * 10.0 ** DRAW.integers(-30, 30, n)
    return onp.concatenate([onp.array(ENDS), x]).astype("float32")


@pytest.mark.parametrize("dtype, rtol", [("float32", 3e-7), ("float64", 4e-16)])
@pytest.mark.parametrize("y", [0.5, -0.5, -1.0, 2.0, -2.0])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_powers_by_numbers(y, dtype, rtol):
    """As C's pow, which NumPy uses for arrays of exponents: -0 ** 0.5 is 0."""
    x = floats(100).astype(dtype)
    want = onp.power(x.astype("float64"), onp.full(x.shape, y)).astype(dtype)
    made = (np.array(x) ** y).asnumpy()
    onp.testing.assert_allclose(made, want, rtol=rtol, atol=1e-44)
    zeros = want == 0
    onp.testing.assert_array_equal(onp.signbit(made[zeros]), onp.signbit(want[zeros]))


@pytest.mark.parametrize("name", ["fmod", "mod", "floor_divide"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_remainders_are_exact(name):
    x, y = floats(3000), floats(3000)[::-1].copy()
    y[y == 0] = 1
    made = getattr(np, name)(np.array(x), np.array(y)).asnumpy()
    if name != "floor_divide":
        onp.testing.assert_array_equal(made, getattr(onp, name)(x, y))
        return
    want = onp.floor_divide(x.astype("float64"), y.astype("float64")).astype("float32")
    near = abs(want) < 2.0**28  # in float32 NumPy's own are off by one there
    onp.testing.assert_array_equal(made[near], want[near])
    onp.testing.assert_allclose(made[~near], want[~near], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "int8", "uint8", "int32", "int64"])
def test_counts_of_what_is_not_0(dtype):
    for n in (1, 63, 64, 4095, 4096, 4097, 10000):
        x = (3 * (DRAW.random(n) > 0.5)).astype(dtype)
        assert int(np.count_nonzero(np.array(x))) == onp.count_nonzero(x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8"])
@pytest.mark.parametrize("shape, axis", [((1000,), 0), ((0,), 0), ((5, 300), 0), ((5, 300), 1)])
def test_sums_and_products_along_lines(dtype, shape, axis):
    whole = dtype.startswith("i")
    x = (DRAW.integers(-3, 4, shape) if whole else DRAW.random(shape) + 0.55).astype(dtype)
    for name in ("cumsum", "cumprod"):
        made = getattr(np, name)(np.array(x), axis=axis).asnumpy()
        want = getattr(onp, name)(x, axis=axis, dtype=dtype if whole else "float64").astype(dtype)
        onp.testing.assert_allclose(made, want, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_products_of_doubles_go_through_no_infinity():
    x = onp.array([1e-300, 1e200, 1e200, 1e-200, 1e-200, 1e300, 1, 2, 3])
    onp.testing.assert_allclose(np.cumprod(np.array(x)).asnumpy(), onp.cumprod(x), rtol=1e-13)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 3e-5), ("float64", 1e-12)])
@pytest.mark.parametrize(
    "n, k", [(1, 1), (5, 3), (3, 5), (1000, 5), (1025, 4), (5000, 33), (33, 5000), (2048, 1024)]
)
def test_correlations(n, k, dtype, tolerance):
    x, v = DRAW.normal(size=n).astype(dtype), DRAW.normal(size=k).astype(dtype)
    for name in ("convolve", "correlate"):
        for mode in ("full", "same", "valid"):
            want = getattr(onp, name)(x.astype("float64"), v.astype("float64"), mode)
            made = getattr(np, name)(np.array(x), np.array(v), mode).asnumpy()
            onp.testing.assert_allclose(made, want, atol=tolerance * min(n, k) ** 0.5)


def test_gradients_of_correlations_and_products():
    """The gradient of a sum of weighted results is the result's matrix times the weights."""
    x, v = DRAW.normal(size=50), DRAW.normal(size=7)
    for mode, size in (("full", 56), ("same", 50), ("valid", 44)):
        w = DRAW.normal(size=size)
        a, b = np.array(x), np.array(v)
        for p in (a, b):
            p.attach_grad()
        with autograd.record():
            y = (np.convolve(a, b, mode) * np.array(w)).sum()
        y.backward()
        unit = lambda n, i: onp.eye(n)[i]
        dx = [onp.convolve(unit(50, i), v, mode) @ w for i in range(50)]
        dv = [onp.convolve(x, unit(7, i), mode) @ w for i in range(7)]
        onp.testing.assert_allclose(a.grad.asnumpy(), dx, atol=1e-12)
        onp.testing.assert_allclose(b.grad.asnumpy(), dv, atol=1e-12)
    x[[3, 9]] = 0  # of products: without the element that the slope is of
    a, w = np.array(x), DRAW.normal(size=50)
    a.attach_grad()
    with autograd.record():
        y = (np.cumprod(a) * np.array(w)).sum()
    y.backward()
    slopes = []
    for i in range(50):
        one = onp.where(onp.arange(50) == i, 1, x)
        slopes.append((onp.cumprod(one) * w)[i:].sum())
    onp.testing.assert_allclose(a.grad.asnumpy(), slopes, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_bincount(dtype):
    for n, end in ((1, 2), (5000, 100), (5000, 127)):
        x = DRAW.integers(0, end, n).astype(dtype)
        for least in (0, 1500):
            made = np.bincount(np.array(x), minlength=least).asnumpy()
            onp.testing.assert_array_equal(made, onp.bincount(x, minlength=least))
    with pytest.raises(mx.MXNetError, match="must not be negative, got -5"):
        np.bincount(np.array([3, -5], dtype="int32"))


@pytest.mark.parametrize(
    "dtype, low, high",
    [
        *(("int8", -128, 127), ("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1)),
        *(("int64", -(2**63), 2**63 - 1), ("int32", -50, 50), ("bool", 0, 1)),
    ],
)
def test_numbers_among_others(dtype, low, high):
    """Small ranges have a table, large ones hashes."""
    for n, m in ((0, 3), (1, 1), (1000, 7), (777, 1000), (10, 100000)):
        x = DRAW.integers(low, high, n, endpoint=True).astype(dtype)
        tests = DRAW.integers(low, high, m, endpoint=True).astype(dtype)
        tests[: min(n, m) // 2] = x[: min(n, m) // 2]
        for invert in (False, True):
            made = np.isin(np.array(x), np.array(tests), invert=invert).asnumpy()
            onp.testing.assert_array_equal(made, onp.isin(x, tests, invert=invert))


@pytest.mark.parametrize(
    "dtype, low, high", [("bool", 0, 1), ("uint8", 0, 255), ("int8", -128, 127)]
)
@pytest.mark.parametrize(
    "n", [0, 1, 63, 64, 65, 64 * 255 - 1, 64 * 255, 64 * 255 + 1, 64 * 800 + 7]
)
def test_sums_of_bytes(n, dtype, low, high):
    """Summed in 16 bits, as long as these hold the largest bytes."""
    drawn = DRAW.integers(low, high, n, endpoint=True)
    for x in (drawn.astype(dtype), onp.full(n, low, dtype), onp.full(n, high, dtype)):
        made = np.array(x, dtype=dtype)
        assert made.sum(dtype="int64").item() == x.sum(dtype="int64")
        assert np.count_nonzero(made) == onp.count_nonzero(x)
