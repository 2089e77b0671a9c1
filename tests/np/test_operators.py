"""Python's operators and the functions of mx.np whose arguments decide what runs, against NumPy."""

import operator

import numpy as onp
import pytest
from plait import autograd, np, sym
from plait.engine.error import DTypeError, MXNetError
from plait.ndarray.numpy import operators

A = onp.float32([[5.5, -5, 0.25], [1, 2, 3]])
B = onp.float32([[2, 3, -0.5], [1.5, -2, 4]])
I = onp.array([[5, -5, 0], [1, 2, 3]], "int32")  # noqa: E741
J = onp.array([[2, 3, 1], [4, -2, 1]], "int64")
M, N = A > 1, B > 1
TWO = ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "eq", "ne", "gt", "ge")
WHOLE = ("and_", "or_", "xor", "lshift", "rshift")


def same(got, want, exact_dtype=False):
    """Equal values and kinds of dtype; floats are ours where NumPy has wider ones."""
    for g, w in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        g, w = (onp.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x) for x in (g, w))
        assert g.shape == w.shape and g.dtype.kind == w.dtype.kind
        onp.testing.assert_allclose(g.astype(float), w.astype(float), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("x, y", [(A, B), (I, J), (A, I), (I, 2), (3, I), (A, 1.5), (2.5, A)])
@pytest.mark.parametrize("name", TWO)
def test_two_operands(name, x, y):
    f = getattr(operator, name)
    with onp.errstate(all="ignore"):
        want = f(x, y)
    same(f(*(np.array(v) if isinstance(v, onp.ndarray) else v for v in (x, y))), want)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("x, y", [(I, J % 5), (I, 2), (3, J % 4), (M, N), (M, True), (False, M)])
def test_bits(name, x, y):
    f = getattr(operator, name)
    if name.endswith("shift") and y is J % 5:
        y = y % 3
    same(f(*(np.array(v) if isinstance(v, onp.ndarray) else v for v in (x, y))), f(x, y))


@pytest.mark.parametrize("x", [A, I, M])
def test_one_operand(x):
    for f in (abs, operator.neg, operator.pos, operator.invert):
        try:
            want = f(x)
        except TypeError:
            with pytest.raises(DTypeError, match="must be of"):
                f(np.array(x))
        else:
            same(f(np.array(x)), want)
    if x is A:
        same(round(np.array(x), 1), onp.round(x, 1))


def test_divmod_and_matmul():
    same(divmod(np.array(I), 3), divmod(I, 3))
    same(divmod(7, np.array(J)), divmod(7, J))
    same(np.array(A) @ np.array(B.T), A @ B.T)
    x = np.array(onp.eye(2, dtype="float32"))
    x @= np.array(A[:, :2])
    same(x, A[:, :2])


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "ifloordiv", "imod", "ipow"])
def test_in_place_keeps_the_memory(name):
    """The seen view changes too, whatever the operand is."""
    f = getattr(operator, name)
    for x, other in ((A, B), (A, 2), (I, 3), (abs(A) + 1, abs(I) + 1)):
        mine, want = np.array(x), x.copy()
        seen = mine.reshape(-1)
        given = np.array(other) if isinstance(other, onp.ndarray) else other
        assert f(mine, given) is mine
        same(mine, f(want, other))
        same(seen, want.reshape(-1))


def test_in_place_bits_and_refusals():
    mask = np.array(M)
    mask &= np.array(N)
    mask |= True
    assert mask.dtype == onp.bool_ and mask.asnumpy().all()
    whole = np.array(I)
    with pytest.raises(DTypeError, match="float32 does not go into an array of int32"):
        whole += 1.5
    with pytest.raises(MXNetError, match="must have the result's shape"):
        np.array(A[0]).__iadd__(np.array(A))
    with pytest.raises(DTypeError, match="operands must be numbers"):
        np.array(M) - np.array(M)
    with pytest.raises(MXNetError, match="exponent must not be negative"):
        np.array(I) ** -1
    with pytest.raises(DTypeError, match="whole numbers or bools"):
        np.array(A) & 1


def test_in_place_is_one_call(monkeypatch):
    """No copy of a result: the operator writes into x."""
    x, y = np.array(A), np.array(B)
    x += y
    copies = []
    monkeypatch.setattr(operators, "copy_into", lambda *given: copies.append(given))
    x += y
    x *= 2
    np.exp(x, out=y)
    np.add(x, 1.5, out=y)
    assert not copies


def test_keywords_of_ufuncs():
    out = np.array(A)
    assert np.add(np.array(A), 1, out=out) is out
    same(out, A + 1)
    np.exp(np.array(A), out=out, where=np.array(M))
    same(out, onp.where(M, onp.exp(A), A + 1))
    wide = np.zeros(A.shape, dtype="float64")
    np.sqrt(np.array(abs(A)), out=wide)
    same(wide, onp.sqrt(abs(A)))
    assert np.add(np.array(I), 1, dtype="float64").dtype == onp.float64
    with pytest.raises(TypeError, match="no option of ufuncs"):
        np.exp(np.array(A), wrong=1)
    with pytest.raises(DTypeError, match="does not go into"):
        np.exp(np.array(A), out=np.array(I))


def test_numbers_alone_stay_numbers():
    assert np.sqrt(4) == 2.0 and isinstance(np.sqrt(4), onp.floating)
    assert np.add(1, 2) == 3 and isinstance(np.add(1, 2), onp.integer)
    x = np.array(A).astype("float16")
    assert (x / np.sqrt(2)).dtype == onp.float16


def test_bools_beside_bools_are_bools():
    assert (np.array(M) & True).dtype == onp.bool_
    assert (np.array(M) + 1).dtype == onp.int64


def test_symbols_have_the_operators():
    x = sym.var("x").as_np_ndarray()
    for made, want in (
        (~(x > 1), ~M),
        ((x // 2) % 3, (A // 2) % 3),
        (abs(-x) @ (x * 2).T, abs(-A) @ (A * 2).T),
        (round(x, 1), onp.round(A, 1)),
    ):
        (got,) = made.bind(None, {"x": np.array(A)}, grad_req="null").forward()
        onp.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5)


# ---- functions whose arguments decide ------------------------------------------------------------
V = onp.float32([3, 1, 2])
VARIABLES = {"a": A, "b": B, "i": I, "m": M, "v": V}
EXPRESSIONS = """
np.sum(a, axis=0, where=m)
np.prod(a, axis=1, where=m)
np.mean(a, where=m)
np.var(a, axis=1, where=m, ddof=0)
np.std(a, where=m, keepdims=True)
np.max(a, initial=-9.0, where=m)
np.min(a, axis=1, initial=9.0)
np.any(m, where=m)
np.all(a, axis=0)
np.average(a, axis=1, weights=v)
np.average(a, weights=b, returned=True)
np.percentile(a, [10, 20], axis=1)
np.quantile(a, 0.3, method='nearest')
np.nanquantile(a, [0.1, 0.9])
np.median(a, axis=0)
np.clip(a, None, 2)
np.clip(a, v, 4)
np.clip(i, 1, 3)
np.clip(a, v - 2, v)
np.around(a, 1)
np.nan_to_num(a)
np.diff(a, prepend=1)
np.diff(a, append=a, axis=0)
np.ediff1d(a, to_end=v)
np.ediff1d(a, to_begin=7)
np.trapezoid(a, dx=0.5)
np.trapezoid(a, v)
np.interp(v, v[1:], v[:2])
np.interp(v * 100, v * 90, v, period=360)
np.cov(a)
np.cov(a, aweights=v)
np.cov(a, fweights=i[1])
np.cov(a[0], a[1])
np.corrcoef(a[0], a[1])
np.bincount(i[1])
np.bincount(i[1], v, 6)
np.histogram(a, bins=3)
np.histogram(a, bins=4, range=(0, 4), density=True)
np.histogram(a, bins=v[[1, 2, 0]], weights=b)
np.unique(i, return_counts=True, return_inverse=True)
np.isin(i, v)
np.intersect1d(i, v, return_indices=True)
np.setxor1d(i, v)
np.union1d(i, v)
np.setdiff1d(v, i)
np.searchsorted(v, v + 0.5, sorter=np.argsort(v))
np.lexsort((a[0], a[1]))
np.allclose(a, a + 1e-9)
np.allclose(a, b)
np.array_equal(a, a)
np.array_equal(a, v)
np.array_equiv(v, v)
np.convolve(a[0], v, 'same')
np.cumprod(a, axis=1)
np.cumsum(m)
np.ptp(a, axis=1)
np.sum(m)
np.gradient(v)
np.gradient(a, 0.5, axis=1, edge_order=2)
np.gradient(v, v * v + 1)
np.sort(a, axis=None)
np.divmod(i, 3)
np.modf(a)
a.std(axis=0)
a.clip(0, 1)
a.argmax(axis=1)
a.cumsum(axis=1)
a.round(1)
a.mean(axis=1, keepdims=True)
i.sum()
"""


@pytest.mark.parametrize("text", EXPRESSIONS.strip().splitlines())
def test_expressions_give_what_numpy_gives(text):
    with onp.errstate(all="ignore"):
        want = eval(text, {"np": onp, **VARIABLES})
    mine = {name: np.array(x) for name, x in VARIABLES.items()}
    if "v[[" in text:
        mine["v"], text = np.array(V[[1, 2, 0]]), text.replace("v[[1, 2, 0]]", "v")
    same(eval(text, {"np": np, **mine}), want)


def test_sort_in_place_and_gradients_of_moments():
    x = np.array(V)
    x.sort()
    same(x, onp.sort(V))
    for f, derivative in (
        (lambda x: x.std(), lambda x: (x - x.mean()) / (3 * x.std())),
        (lambda x: np.median(x), lambda x: (x == onp.median(x)) * 1.0),
        (lambda x: np.percentile(x, 25), lambda x: onp.float32([0, 0.5, 0.5])),
    ):
        x = np.array(V)
        x.attach_grad()
        with autograd.record():
            y = f(x)
        y.backward()
        onp.testing.assert_allclose(x.grad.asnumpy(), derivative(V), rtol=1e-5)
