"""The float32 vector math against float64: at most 4 units in the last place, on every instruction
set; special values."""

import numpy as np
import plait.kernels.cpu.backend  # noqa: F401
import pytest
from plait.engine import ffi, lib
from plait.kernels import special

MAX_ULP = 4.0
TINY = np.float32(1e-45)
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        TINY,
        -TINY,
        1e-38,
        -1e-38,
        1e-30,
        3.4e38,
        -3.4e38,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        88.72,
        88.73,
        -87.3,
        -103.9,
        -104.1,
        1e10,
        7e4,
    ],
    np.float32,
)


def spread(*ranges):
    rng = np.random.default_rng(3)
    anything = rng.integers(0, 2**32, 8001, dtype=np.uint32).view(np.float32)
    return np.concatenate(
        [SPECIAL, *(rng.uniform(a, b, 4001).astype(np.float32) for a, b in ranges), anything]
    )


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


UNARY = {
    "exp": (np.exp, spread((-104, 89), (-1, 1))),
    "expm1": (np.expm1, spread((-30, 89), (-1, 1), (-1e-3, 1e-3))),
    "log": (np.log, spread((0, 10), (0.9, 1.1), (0, 1e-37))),
    "log1p": (np.log1p, spread((-1, 5), (-1e-3, 1e-3))),
    "log2": (np.log2, spread((0, 10), (0.9, 1.1))),
    "log10": (np.log10, spread((0, 10), (0.9, 1.1))),
    "tanh": (np.tanh, spread((-10, 10), (-0.1, 0.1))),
    "Activation:sigmoid": (sigmoid, spread((-100, 30), (-1, 1))),
    "erf": (lambda x: special.erf(np, x), spread((-5, 5), (-1, 1))),
    "sin": (np.sin, spread((-10, 10), (-1e5, 1e5), (-1e-3, 1e-3))),
    "cos": (np.cos, spread((-10, 10), (-1e5, 1e5))),
    "sqrt": (np.sqrt, spread((0, 100))),
    "_exp2": (np.exp2, spread((-151, 129), (-1, 1))),
    "cbrt": (np.cbrt, spread((-100, 100), (0, 1e-37))),
    "sinh": (np.sinh, spread((-90, 90), (-1.2, 1.2))),
    "cosh": (np.cosh, spread((-90, 90), (-1.2, 1.2))),
    "arcsinh": (np.arcsinh, spread((-5, 5), (-1e-3, 1e-3))),
    "arccosh": (np.arccosh, spread((1, 5), (1, 1.01))),
    "arctanh": (np.arctanh, spread((-1, 1), (-1e-3, 1e-3))),
    "arctan": (np.arctan, spread((-5, 5), (-1e-3, 1e-3))),
    "arcsin": (np.arcsin, spread((-1, 1), (-1e-3, 1e-3))),
    "arccos": (np.arccos, spread((-1, 1), (0.99, 1))),
    "Activation:softrelu": (lambda x: np.logaddexp(x, 0.0), spread((-100, 30), (-1, 1))),
}


DTYPES = {"float32": "F32", "int8": "I8", "uint8": "U8", "int32": "I32", "int64": "I64"}


def run(name, *arrays, scalars=(0.0,)):
    n, dtype = arrays[0].size, getattr(lib, f"PLK_{DTYPES[arrays[0].dtype.name]}")
    y = np.empty(n, arrays[0].dtype)
    fields = {
        "op": lib.plk_pointwise_find(name.encode()),
        "dtype": dtype,
        "in_dtype": [dtype] * len(arrays),
        "in_as": [dtype] * len(arrays),
        "out_dtype": [dtype],
        "out_as": [dtype],
        "n_in": len(arrays),
        "n_out": 1,
        "ndim": 1,
        "n": n,
        "work": n,
        "shape": [n],
        "strides": [[1]] * len(arrays),
        "in_n": [n] * len(arrays),
    }
    bufs = ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in (*arrays, y)])
    assert (
        lib.plk_pointwise_run(
            ffi.new("plk_pointwise *", fields), bufs, ffi.new("double[4]", list(scalars))
        )
        == lib.PL_OK
    )
    return y


def ulps(got, want):
    """Errors in units in the last place of the float32 nearest to `want`; NaN and infinities must
    agree."""
    with np.errstate(all="ignore"):
        nearest = want.astype(np.float32)
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        unit = np.spacing(
            np.abs(np.where(np.isfinite(nearest), nearest, np.float32(3.4e38)))
        ).astype(np.float64)
        error = np.abs(got.astype(np.float64) - want) / unit
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def isa(request):
    level = {"baseline": lib.PLK_BASELINE, "avx2": lib.PLK_AVX2, "avx512": lib.PLK_AVX512}[
        request.param
    ]
    if level > lib.plk_isa_best():
        pytest.skip("this machine does not run it")
    lib.plk_isa_set(level)
    yield request.param
    lib.plk_isa_set(lib.plk_isa_best())


def worst(x, error):
    at = int(np.argmax(error))
    return f"{error[at]} ulp at {x[at]!r}"


@pytest.mark.parametrize("name", UNARY)
def test_unary(isa, name):
    fn, x = UNARY[name]
    with np.errstate(all="ignore"):
        want = fn(x.astype(np.float64))
    error = ulps(run(name, x), want)
    assert error.max() <= MAX_ULP, worst(x, error)


MULTIPLES = (np.arange(1, 1 << 17) * (np.pi / 2)).astype(np.float32)  # near zeros
FAR = (2.0 ** np.arange(20, 128)).astype(np.float32)
TRIG = spread((-1e-3, 1e-3), (-10, 10), (-1e5, 1e5), (-(2**24), 2**24), (-(2**30), 2**30))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry_of_any_size(isa, name):
    """Rounded once from double, so not far from half a unit."""
    x = np.concatenate([TRIG, FAR, -FAR, MULTIPLES])
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x.astype(np.float64))
    error = ulps(run(name, x), want)
    assert error.max() <= 0.51, worst(x, error)
    zeros = run(name, np.array([0.0, -0.0], np.float32))
    assert list(np.signbit(zeros)) == ([False, True] if name != "cos" else [False, False])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry_does_not_depend_on_the_neighbours(isa, name):
    """A block of elements below 2^24 has a loop of its own."""
    x = np.random.default_rng(5).uniform(-1e6, 1e6, 2000).astype(np.float32)
    beside = x.copy()
    beside[::50] = 1e30
    alone, kept = run(name, x), np.arange(x.size) % 50 != 0
    assert (alone[kept].view(np.int32) == run(name, beside)[kept].view(np.int32)).all()


def test_power(isa):
    rng = np.random.default_rng(4)
    values = np.array(
        [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30],
        np.float32,
    )
    a, b = (g.reshape(-1) for g in np.meshgrid(values, values))
    a = np.concatenate(
        [a, rng.uniform(0, 20, 5000), rng.uniform(-4, 4, 5000), rng.uniform(0.99, 1.01, 5000)]
    )
    b = np.concatenate(
        [b, rng.uniform(-20, 20, 5000), rng.integers(-9, 9, 5000), rng.uniform(-5e3, 5e3, 5000)]
    )
    a, b = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(all="ignore"):
        want = np.power(a.astype(np.float64), b.astype(np.float64))
    error = ulps(run("_power", a, b), want)
    assert error.max() <= MAX_ULP, worst(np.stack([a, b], 1), error)


def test_angles_of_points(isa):
    y, x = (g.reshape(-1) for g in np.meshgrid(SPECIAL, SPECIAL))
    more = np.random.default_rng(6).normal(size=(2, 9000)).astype(np.float32)
    y, x = np.concatenate([y, more[0]]), np.concatenate([x, more[1]])
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    got = run("_arctan2", y, x)
    error = ulps(got, want)
    assert error.max() <= MAX_ULP, worst(np.stack([y, x], 1), error)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(want)[known])


def whole_numbers(dtype):
    """Pairs of them: all of 8 bits, else ends of the range, large ones, multiples and beside."""
    info, rng = np.iinfo(dtype), np.random.default_rng(7)
    if info.bits == 8:
        every = np.arange(info.min, info.max + 1).astype(dtype)
        return [np.ascontiguousarray(g.reshape(-1)) for g in np.meshgrid(every, every)]
    ends = [info.min, info.min + 1, info.max - 1, info.max, 0, 1, -1, 2, -2, 3, 7, -1000]
    ends += [s * (2**k + d) for k in (31, 32, 52, 53, 62) for s in (1, -1) for d in (-1, 0, 1)]
    ends = np.array([e for e in ends if info.min <= e <= info.max], dtype)
    a, b = (g.reshape(-1) for g in np.meshgrid(ends, ends))
    large, shift = (
        rng.integers(info.min, info.max, 20000, dtype),
        rng.integers(0, info.bits, 20000, dtype),
    )
    small = rng.permutation(large >> shift)
    with np.errstate(all="ignore"):
        multiple = small * rng.integers(-1000, 1000, 20000, dtype)
        a = np.concatenate([a, large >> shift, multiple, multiple - 1, multiple + 1])
    return [a, np.concatenate([b, small, small, small, small])]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_division_of_whole_numbers(isa, dtype):
    """As NumPy's, and 0 where the divisor is."""
    a, b = whole_numbers(dtype)
    with np.errstate(all="ignore"):
        for name, of in {
            "_floor_divide": np.floor_divide,
            "_remainder": np.remainder,
            "_fmod": np.fmod,
        }.items():
            want = np.where(b == 0, 0, of(a, b)).astype(dtype)
            np.testing.assert_array_equal(run(name, a, b), want, name)
            for divisor in (3, -7, 1, 0):
                if dtype != "uint8" or divisor >= 0:
                    scalar = f"{name}_scalar"
                    if lib.plk_pointwise_find(scalar.encode()) >= 0:
                        want = 0 * a if divisor == 0 else of(a, np.array(divisor, dtype))
                        np.testing.assert_array_equal(run(scalar, a, scalars=[divisor]), want)


def test_sizes_beside_the_vector_width(isa):
    for n in (0, 1, 3, 7, 8, 9, 15, 17, 31, 33, 63, 65):
        x = np.linspace(-3, 3, n).astype(np.float32)
        np.testing.assert_allclose(run("exp", x), np.exp(x), rtol=1e-6)
