"""The array API namespace against NumPy, which follows the standard too; the suite of the standard
itself runs by `make array-api`."""

import child
import numpy as onp
import pytest
from plait import autograd, np
from plait.engine.error import MXNetError
from plait.ndarray.numpy import array_api as xp

NAMES = """
e inf nan newaxis pi bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64
__array_api_version__ __array_namespace_info__ arange asarray empty empty_like eye from_dlpack full
full_like linspace meshgrid ones ones_like tril triu zeros zeros_like astype broadcast_arrays
broadcast_to can_cast finfo iinfo isdtype result_type abs acos acosh add asin asinh atan atan2 atanh
bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip
conj copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag
isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not
logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real
reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc take
take_along_axis matmul matrix_transpose tensordot vecdot concat expand_dims flip moveaxis
permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin count_nonzero nonzero
searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort
cumulative_prod cumulative_sum max mean min prod std sum var all any diff linalg
""".split()
LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()
DTYPES = [n for n in NAMES if n[:3] in ("int", "uin", "flo")][:-2] + ["float32", "float64"]
DTYPES = [n for n in dict.fromkeys(DTYPES) if n[-1].isdigit()]


def test_names():
    assert not [n for n in NAMES if not hasattr(xp, n)]
    assert not [n for n in LINALG if not hasattr(xp.linalg, n)]
    assert set(NAMES) == set(xp.__all__)


def test_arrays_name_their_namespace():
    x = np.array([1.0])
    assert x.__array_namespace__() is xp is x.__array_namespace__(api_version="2024.12")
    with pytest.raises(ValueError, match="api_version"):
        x.__array_namespace__(api_version="1999.12")
    assert x.to_device(x.device) is x and type(xp.asarray(x)) is np.ndarray
    info = xp.__array_namespace_info__()
    assert x.device in info.devices() and set(info.dtypes(kind="bool")) == {"bool"}
    assert info.default_dtypes()["integral"] == xp.asarray(1).dtype == xp.int64


DEFAULTS = {
    "float32": [1.5, [1.0], [1, 2.5]],
    "int64": [1, [1, 2]],
    "bool": [True, [True]],
    "int16": [onp.ones(2, "int16"), onp.int16(1)],
}


@pytest.mark.parametrize("dtype", DEFAULTS)
def test_dtypes_of_numbers_are_the_standards_and_np_keeps_mxnets(dtype):
    for value in DEFAULTS[dtype]:
        assert xp.asarray(value).dtype == getattr(xp, dtype)
    assert np.array([1, 2]).dtype == xp.float32


@pytest.mark.parametrize("two", DTYPES)
@pytest.mark.parametrize("one", DTYPES)
def test_promotion_is_numpys_within_a_kind_and_an_error_between_kinds(one, two):
    a, b = (onp.ones(2, d) * 3 for d in (one, two))
    a, b = a.astype(one), b.astype(two)
    x, y = xp.asarray(a), xp.asarray(b)
    mixed = ("float" in one) != ("float" in two)
    if mixed or {"uint64"} < {one, two} and ("uint" in one) != ("uint" in two):
        with pytest.raises(TypeError, match="no common dtype"):
            xp.add(x, y)
        return
    want = onp.add(a, b)
    for got in (xp.add(x, y), x + y, xp.where(x > 0, x + y, y)):
        assert got.dtype == want.dtype and (got.asnumpy() == want).all()
    assert xp.result_type(x, getattr(xp, two)) == want.dtype
    assert xp.concat([x, y]).dtype == want.dtype


X = onp.array([[1, 5, 2], [7, 0, 3]])
CALLS = {
    "sum": lambda m, x: m.sum(x, axis=1),
    "prod": lambda m, x: m.prod(x),
    "max": lambda m, x: m.max(x, axis=0, keepdims=True),
    "argmax": lambda m, x: m.argmax(x, axis=1),
    "count_nonzero": lambda m, x: m.count_nonzero(x, axis=1),
    "cumulative_sum": lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda m, x: m.cumulative_prod(x, axis=0),
    "sort": lambda m, x: m.sort(x, axis=1),
    "argsort": lambda m, x: m.argsort(x, axis=1),
    "floor_divide": lambda m, x: m.floor_divide(x, x + 1),
    "remainder": lambda m, x: m.remainder(x, x + 1),
    "pow": lambda m, x: m.pow(x, 2),
    "round": lambda m, x: m.round(x),
    "clip": lambda m, x: m.clip(x, 1, 5),
    "isnan": lambda m, x: m.isnan(x),
    "diff": lambda m, x: m.diff(x, axis=1),
    "tile": lambda m, x: m.tile(x, (2, 1, 2)),
    "repeat": lambda m, x: m.repeat(x, 2, axis=0),
    "permute": lambda m, x: m.permute_dims(x, (1, 0)),
    "take": lambda m, x: m.take(x, m.asarray([1, 0]), axis=1),
    "along": lambda m, x: m.take_along_axis(x, m.argsort(x, axis=1), axis=1),
    "where": lambda m, x: m.where(x > 2, x, 0),
    "unstack": lambda m, x: m.unstack(x, axis=1)[1],
    "unique": lambda m, x: m.unique_all(x).inverse_indices,
    "tril": lambda m, x: m.tril(x, k=-1),
    "matmul": lambda m, x: m.matmul(x, m.matrix_transpose(x)),
    "vecdot": lambda m, x: m.vecdot(x, x),
    "tensordot": lambda m, x: m.tensordot(x, x, axes=((0, 1), (0, 1))),
    "meshgrid": lambda m, x: m.meshgrid(x[0, :], x[:, 0])[0],
    "nonzero": lambda m, x: m.nonzero(x)[1],
    "trace": lambda m, x: m.linalg.trace(x),
    "outer": lambda m, x: m.linalg.outer(x[0, :], x[1, :]),
    "searchsorted": lambda m, x: m.searchsorted(m.sort(x[0, :]), x[1, :]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_functions_give_what_numpy_gives(name, dtype):
    x = X.astype(dtype)
    want = CALLS[name](onp, x)
    got = CALLS[name](xp, xp.asarray(x))
    assert type(got) is np.ndarray and got.dtype == want.dtype and got.shape == want.shape
    onp.testing.assert_allclose(got.asnumpy(), want, rtol=1e-6)


FLOATS = {
    "mean": lambda m, x: m.mean(x, axis=1),
    "var": lambda m, x: m.var(x, axis=0, correction=1),
    "std": lambda m, x: m.std(x),
    "acos": lambda m, x: m.acos(x / 10),
    "divide": lambda m, x: m.divide(x, 3.0),
    "logaddexp": lambda m, x: m.logaddexp(x, x),
    "norm": lambda m, x: m.linalg.vector_norm(x, axis=1, ord=3),
    "nuclear": lambda m, x: m.linalg.matrix_norm(x, ord="nuc"),
    "svdvals": lambda m, x: m.linalg.svdvals(x),
    "pinv": lambda m, x: m.linalg.pinv(x),
    "rank": lambda m, x: m.linalg.matrix_rank(x),
    "qr": lambda m, x: m.linalg.qr(x).R,
    "solve": lambda m, x: m.linalg.solve(m.matmul(x, m.permute_dims(x, (1, 0))), x[:, 0]),
    "slogdet": lambda m, x: m.linalg.slogdet(m.matmul(x, m.permute_dims(x, (1, 0)))).logabsdet,
    "cholesky": lambda m, x: m.linalg.cholesky(m.matmul(x, m.permute_dims(x, (1, 0))), upper=True),
    "cross": lambda m, x: m.linalg.cross(x[:1, :], x[1:, :]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", FLOATS)
def test_functions_of_floats(name, dtype):
    x = X.astype(dtype)
    want = onp.asarray(FLOATS[name](onp, x))
    got = FLOATS[name](xp, xp.asarray(x))
    assert got.dtype == want.dtype and got.shape == want.shape
    onp.testing.assert_allclose(onp.abs(got.asnumpy()), onp.abs(want), rtol=2e-5, atol=1e-5)


def test_whole_numbers_are_exact():
    n = 2**62 + 1
    assert xp.full((2,), n).tolist() == [n, n] and xp.asarray(2**64 - 1, dtype=xp.uint64).item()
    x = xp.asarray([n])
    assert xp.add(x, 1).item() == n + 1 and xp.sum(x).item() == n
    assert xp.equal(x, n).item() and not xp.equal(x, n + 1).item()
    assert (x == n).item() and not (x == n + 1).item() and (x - (n - 5)).item() == 5
    assert ((n + 7) - x).item() == 7 and np.subtract(x, n - 5).item() == 5
    x -= n - 5
    assert x.item() == 5


@pytest.mark.parametrize(
    "call, rule",
    [
        (lambda: xp.asarray(1j), "no complex"),
        (lambda: xp.add(xp.asarray(1), 1.5), "cannot stand beside int64"),
        (lambda: xp.sin(xp.asarray(1)), "takes real floating dtypes, got int64"),
        (lambda: xp.add(1, 2), "at least one operand must be an array"),
        (lambda: xp.take(xp.ones((2, 2)), xp.asarray([0])), "axis must be given"),
        (lambda: xp.squeeze(xp.ones((2, 1)), 0), "must have size 1"),
        (lambda: xp.asarray([1], copy=False), "copy=False"),
        (lambda: xp.isdtype(xp.int8, "floats"), "kind must be one of"),
        (lambda: xp.linalg.outer(xp.ones((2, 2)), xp.ones(2)), "needs two vectors"),
    ],
)
def test_errors(call, rule):
    with pytest.raises(MXNetError, match=rule):
        call()


def test_gradients_go_through():
    x = xp.asarray([1.0, 2.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = xp.sum(xp.square(x) + xp.clip(x, 0.0, 2.5) * xp.where(x > 1.5, x, 0.0))
    y.backward()
    onp.testing.assert_allclose(x.grad.asnumpy(), [2.0, 4 + 4, 6 + 2.5])


SKLEARN = """
import numpy as onp, sklearn
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.externals import array_api_compat
from plait import np
from plait.ndarray.numpy import array_api as xp
rng = onp.random.default_rng(0)
values, labels = rng.normal(size=(60, 4)), onp.arange(60) % 3
values[:, 0] += 3 * labels
x, y = np.array(values), np.array(labels)
assert array_api_compat.array_namespace(x) is xp and array_api_compat.is_array_api_obj(x)
want = PCA(n_components=2, svd_solver="full").fit_transform(values)
classes = LinearDiscriminantAnalysis().fit(values, labels).predict(values)
with sklearn.config_context(array_api_dispatch=True):
    found = PCA(n_components=2, svd_solver="full").fit_transform(x)
    assert type(found) is np.ndarray
    onp.testing.assert_allclose(found.asnumpy(), want, atol=1e-8)
    got = LinearDiscriminantAnalysis().fit(x, y).predict(x)
    assert type(got) is np.ndarray and (got.asnumpy() == classes).all()
"""


def test_scikit_learn_runs_on_plait():
    pytest.importorskip("sklearn")
    child.run(SKLEARN, SCIPY_ARRAY_API="1")
