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


def lines_to_sort(n, dtype):
    """A line of each kind that divides badly: in order, in reverse, of few values, of one value but
    for a few, of extremes; and drawn ones."""
    drawn = DRAW.integers(-(2**31), 2**31, n) if dtype[0] == "i" else DRAW.normal(size=n) * 1e3
    few = DRAW.integers(0, 5, n)
    one = np.where(DRAW.random(n) < 0.001, few, 7)
    lines = [drawn, np.sort(drawn), np.sort(drawn)[::-1], few, one, np.arange(n) % 300]
    found = np.stack(lines).astype(dtype)
    if dtype[0] == "f":
        drawn = found[0]
        drawn[:: max(n // 7, 1)] = np.nan
        drawn[1 :: max(n // 5, 1)] = -np.inf
        drawn[2 :: max(n // 5, 1)] = np.inf
    elif n > 1:
        found[0, :2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return found


@pytest.mark.parametrize("n", [2049, 2500, 4096, 5003, 70001])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_long_sorts(dtype, n):
    a = lines_to_sort(n, dtype)
    x = mx.np.array(a, dtype=dtype)
    want = np.sort(a, axis=1)
    np.testing.assert_array_equal(mx.np.sort(x, axis=1).asnumpy(), want)
    columns = mx.np.array(np.ascontiguousarray(a.T), dtype=dtype)
    np.testing.assert_array_equal(mx.np.sort(columns, axis=0).asnumpy(), want.T)
    if dtype[0] == "f":
        down = mx.nd.sort(x.as_nd_ndarray(), is_ascend=False).asnumpy()
        np.testing.assert_array_equal(down, -np.sort(-a, axis=1))
        some = [np.quantile(line[np.isfinite(line)], 0.3) for line in a]
        for line, q in zip(a, some):
            y = mx.np.array(line[np.isfinite(line)], dtype=dtype)
            np.testing.assert_allclose(float(mx.np.quantile(y, 0.3)), q, rtol=1e-6)
    kept = x.copy()
    x.sort(axis=1)
    np.testing.assert_array_equal(x.asnumpy(), want)
    np.testing.assert_array_equal(kept.asnumpy(), a)


@pytest.mark.parametrize("n", [1, 31, 32, 1000, 1024, 5000, 100003])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1.0, 1e18, 1e25, 1e-18, 1e-25, 0.0])
def test_norms(n, dtype, scale):
    a = (DRAW.normal(size=n) * scale).astype(dtype)
    a[0] = scale * 3
    wide = a.astype("longdouble")
    want = np.sqrt((wide * wide).sum())
    made = float(mx.np.linalg.norm(mx.np.array(a, dtype=dtype)))
    assert abs(made - float(want)) <= float(want) * (1.5e-7 if dtype == "float32" else 1e-15)
    for bad in (np.nan, np.inf):
        a[n // 2] = bad
        np.testing.assert_equal(float(mx.np.linalg.norm(mx.np.array(a, dtype=dtype))), bad)


@pytest.mark.parametrize("dtype", (*DTYPES, "bfloat16"))
@pytest.mark.parametrize("n", [0, 1, 7, 63, 4096, 5000, 300001])
def test_equal_arrays(dtype, n):
    a = draw((n,), "int8" if dtype == "bfloat16" else dtype)
    x, y = (mx.np.array(a, dtype=dtype) for _ in range(2))
    assert mx.np.array_equal(x, y)
    for at in {0, n // 2, n - 1} if n else ():
        z = y.copy()
        z[at] = 1 - z[at] if dtype == "bool" else z[at] + 1
        assert not mx.np.array_equal(x, z)
        if dtype in ("float16", "bfloat16", "float32", "float64"):
            z[at] = np.nan
            assert not mx.np.array_equal(z, z)
            assert mx.np.array_equal(z, z, equal_nan=True)
            zeros = mx.np.zeros_like(x)
            assert mx.np.array_equal(zeros, -zeros)
    assert not n or not mx.np.array_equal(x, y[1:])
    assert mx.np.array_equal(x, y.astype("float64"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["int32", "int64", "int8", "uint8"])
def test_assignments_at_indices(dtype, index):
    a, n = draw((120, 3), dtype), 90000 if index == "int32" else 50
    at = DRAW.integers(0 if index == "uint8" else -120, 120, n).astype(index)
    other = DRAW.integers(0, 3, n).astype(index)
    values = draw((n,), dtype)
    places, beside = mx.np.array(at, dtype=index), mx.np.array(other, dtype=index)
    for key, keys, value in [
        (at, places, values[:, None]),
        ((at, other), (places, beside), values),
        ((slice(None), other[:9]), (slice(None), beside[:9]), values[:9]),
    ]:
        b, x = a.copy(), mx.np.array(a, dtype=dtype)
        b[key] = value
        x[keys] = mx.np.array(value, dtype=dtype)
        np.testing.assert_array_equal(x.asnumpy(), b)
        np.testing.assert_array_equal(x[keys].asnumpy(), b[key])
    line, flat = mx.np.array(a[:, 0], dtype=dtype), a[:, 0].copy()
    line[places] = mx.np.array(values, dtype=dtype)
    flat[at] = values
    np.testing.assert_array_equal(line.asnumpy(), flat)
    with pytest.raises(mx.MXNetError, match="indices must be in"):
        line[mx.np.array([120], dtype="int32")] = 1
        line.wait_to_read()


def test_points():
    a = draw((5, 4, 3), "float32")
    x = mx.np.array(a)
    i, j = DRAW.integers(-5, 5, (2, 7)), DRAW.integers(-4, 4, (2, 7))
    k = DRAW.integers(-3, 3, (2, 7))
    for dtype in ("int32", "int64"):
        at = [mx.np.array(v.astype(dtype), dtype=dtype) for v in (i, j, k)]
        for _ in range(2):
            np.testing.assert_array_equal(x[at[0], at[1]].asnumpy(), a[i, j])
            np.testing.assert_array_equal(x[tuple(at)].asnumpy(), a[i, j, k])
            np.testing.assert_array_equal(x[at[0], at[1], 1].asnumpy(), a[i, j, 1])
            np.testing.assert_array_equal(x[at[0], at[1][:1]].asnumpy(), a[i, j[:1]])
    one = mx.np.array(2, dtype="int64")
    assert x[one, one, one].shape == () and x.as_nd_ndarray()[one, one, one].shape == (1,)
    with pytest.raises(IndexError):
        x[at[0], at[0], at[0], at[0]]
    x.attach_grad()
    with mx.autograd.record():
        (x[at[0], at[1]] * 2).sum().backward()
    want = np.zeros_like(a)
    np.add.at(want, (i, j), 2)
    np.testing.assert_array_equal(x.grad.asnumpy(), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(0,), (1,), (7,), (300,), (20000,), (3, 70, 5), (0, 4), (130, 131)]
)
def test_places_of_what_is_not_0(dtype, shape):
    a = draw(shape, dtype)
    a[a < 1] = 0
    found = mx.np.nonzero(mx.np.array(a, dtype=dtype))
    for made, want in zip(found, np.nonzero(a), strict=True):
        assert type(made) is mx.np.ndarray and made.dtype == np.int64
        np.testing.assert_array_equal(made.asnumpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
def test_unique_values(dtype):
    for n in (1, 5, 100, 3001):
        a = draw((n,), dtype)
        if dtype[0] == "f":
            a[:: max(n // 9, 1)] = np.nan
        made = mx.np.unique(mx.np.array(a, dtype=dtype), return_counts=True)
        for x, want in zip(made, np.unique(a, return_counts=True), strict=True):
            np.testing.assert_array_equal(x.asnumpy(), want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["int32", "int64", "int8", "uint8"])
def test_rows_at_indices(dtype, index):
    a = draw((90, 3), dtype)
    at = DRAW.integers(0 if index == "uint8" else -90, 90, (700, 2)).astype(index)
    x, places = mx.np.array(a, dtype=dtype), mx.np.array(at, dtype=index)
    for _ in range(2):
        np.testing.assert_array_equal(x[places].asnumpy(), a[at])
        np.testing.assert_array_equal(x[:, 1][places].asnumpy(), a[:, 1][at])
        rows = x.as_nd_ndarray()[places.as_nd_ndarray()].asnumpy()
        np.testing.assert_array_equal(rows, a[at])
    with pytest.raises(IndexError):
        x[mx.np.array([90], dtype="int64")].wait_to_read()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8"])
def test_places_of_extremes_in_lines(dtype):
    for n in (15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 255, 257, 1000, 2047, 2049, 4100):
        few, drawn = DRAW.integers(-3, 4, (5, n)), DRAW.permutation(5 * n).reshape(5, n)
        last = np.arange(n) // (n - 1) * np.ones((5, 1))
        lines = np.concatenate([few, drawn % 251 if dtype == "int8" else drawn, last]).astype(dtype)
        if dtype[0] == "f":
            lines[0, n // 2], lines[1, -1] = np.nan, np.nan
            lines[2, 1], lines[7, 3:5] = np.inf, 3e38
            lines[3, ::2] = -np.inf
        x = mx.np.array(lines, dtype=dtype)
        for name in ("argmax", "argmin", "max", "min"):
            made = getattr(mx.np, name)(x, axis=1).asnumpy()
            np.testing.assert_array_equal(made, getattr(np, name)(lines, axis=1), err_msg=str(n))


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64"])
def test_quotients_of_whole_numbers(dtype):
    """Beside multiples, where an estimate is on the wrong side first; and of extremes."""
    span = np.iinfo(dtype)
    ends = [span.min, span.min + 1, span.max, span.max - 1, 0, 1, 2, 3]
    divisors = [*ends, 7, 10, 127, *DRAW.integers(span.min, span.max, 20)]
    if span.min:
        divisors += [-1, -2, -3, -10]
    for divisor in map(int, divisors):
        near = DRAW.integers(span.min, span.max, 60) // (divisor or 1) * divisor
        a = np.concatenate([ends, near - 1, near, near + 1]).astype(object)
        a = np.array([(int(v) - span.min) % 2**span.bits + span.min for v in a], dtype)
        whole = np.array(divisor, dtype)
        for made, ref in ((lambda x, y: x // y, np.floor_divide), (lambda x, y: x % y, np.mod)):
            with np.errstate(all="ignore"):
                want = ref(a, whole)
            x = mx.np.array(a, dtype=dtype)
            np.testing.assert_array_equal(made(x, divisor).asnumpy(), want)
            other = mx.np.full(a.shape, divisor, dtype=dtype)
            np.testing.assert_array_equal(made(x, other).asnumpy(), want)


def test_long_copies_that_lie_a_few_bytes_further():
    """glibc's memcpy is slow for these: they go through a loop of ours."""
    for n in (511, 513, 1000, 40_000):
        a = DRAW.random(n + 16, "float32")
        x = mx.np.array(a)
        for shift in (1, 3, 7, 15):
            np.testing.assert_array_equal(mx.np.roll(x, shift).asnumpy(), np.roll(a, shift))
            y = mx.np.zeros(n + 16)
            y[shift:] = x[: n + 16 - shift]
            np.testing.assert_array_equal(y.asnumpy()[shift:], a[: n + 16 - shift])
            joined = mx.np.concatenate([x[:shift], x])
            np.testing.assert_array_equal(joined.asnumpy(), np.concatenate([a[:shift], a]))
