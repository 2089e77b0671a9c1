"""Functions of mx.np that are a few others, np.delete and np.insert: beside NumPy, with gradients,
on Symbols."""

import json

import numpy as onp
import plait as mx
import pytest
from plait import autograd, gluon, np

A = onp.arange(12.0).reshape(3, 4)
ARRAYS = {"A": A, "V": onp.array([3.0, 0.0, 1.0, 2.0]), "P": onp.array([0.0, 3, 6.5, -3, 9.9])}
SAME = """
np.block([[A,A],[A,A]]) np.block([V,V]) np.block([[V],[V]])
np.block([[A,A*2],[V[:,None].T,V[None]]])
np.unstack(A) np.unstack(A,axis=1) np.apply_along_axis(lambda~v:v.sum(),0,A)
np.apply_along_axis(lambda~v:v*2,1,A) np.apply_along_axis(lambda~v:np.diff(v),0,A)
np.apply_over_axes(np.sum,A,[0,1]) np.apply_over_axes(np.max,A,-1) np.mask_indices(3,np.triu)
np.bartlett(7) np.bartlett(1) np.bartlett(0) np.kaiser(7,5.0) np.kaiser(1,5.0) np.polyadd(V,P)
np.polysub(P,V) np.polymul(V,P) np.polyder(V) np.polyder(V,2) np.polyint(V) np.polyint(V,2,[1.0,2])
np.poly(V) np.cumulative_sum(V) np.cumulative_sum(V[0])
np.cumulative_sum(A,axis=1,include_initial=True)
np.cumulative_prod(A,axis=0,include_initial=True) np.unwrap(P) np.unwrap(A*2) np.unwrap(P,3.5)
np.unwrap(P,axis=0,period=4) np.matvec(A,V) np.vecmat(V,A.T) np.angle(-A) np.angle(V-1,deg=True)
np.imag(A) np.iscomplex(A) np.iscomplexobj(A) np.isrealobj(A) np.trim_zeros(A) np.convolve(2.0,V)
np.delete(A,slice(None,None,2),1) np.delete(V,slice(3,0,-2)) np.delete(V,slice(0,9))
np.delete(A,[],0) np.insert(A,slice(None,None,2),[7,8],axis=1)
np.insert(A,3,V,axis=0) np.insert(V,[1,1,0],[5,6,7])
np.insert(A,[2],[[1],[2],[3]],axis=1) np.insert(V,[-1,0],9)
""".split()


def same(got, want):
    if isinstance(want, tuple):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
        return
    if isinstance(want, bool):
        assert got is want
        return
    assert got.shape == want.shape
    onp.testing.assert_allclose(got.asnumpy(), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", SAME)
def test_equals_numpy(text):
    text = text.replace("~", " ")
    want = eval(text, {"np": onp, **ARRAYS})
    same(eval(text, {"np": np, **{k: np.array(v) for k, v in ARRAYS.items()}}), want)


def test_values_are_written_in_place():
    for name, values in (("place", [7.0, 8.0]), ("putmask", [7.0, 8.0, 9.0])):
        ours, theirs = np.array(A), A.copy()
        getattr(np, name)(ours, ours > 4, values)
        getattr(onp, name)(theirs, theirs > 4, values)
        onp.testing.assert_array_equal(ours.asnumpy(), theirs)
    ours, theirs = np.array(A), A.copy()
    np.put(ours, [0, -1, 5], [1.0, 2.0])
    onp.put(theirs, [0, -1, 5], [1.0, 2.0])
    onp.testing.assert_array_equal(ours.asnumpy(), theirs)


DIFFERENTIABLE = {
    "block": lambda x: np.block([[x, x * 2], [x, x]]),
    "along an axis": lambda x: np.apply_along_axis(lambda v: np.cumsum(v) * v, 1, x),
    "polynomials": lambda x: np.polyint(np.polyder(np.polymul(x[0], x[1]))),
    "zeros": lambda x: np.poly(x[0]),
    "unwrap": lambda x: np.unwrap(x * 3, axis=1) ** 2,
    "cumulative": lambda x: np.cumulative_prod(x, axis=1, include_initial=True),
    "matvec": lambda x: np.matvec(x, x[0]),
    "delete": lambda x: np.delete(x, slice(0, 4, 3), axis=1) ** 2,
    "delete many": lambda x: np.delete(x, [0, 2], axis=1) ** 2,
    "insert": lambda x: np.insert(x, 1, x[:, 0], axis=1) ** 2,
    "insert many": lambda x: np.insert(x, [0, 2, 2], x[:, :3], axis=1) ** 2,
    "exp2": lambda x: np.exp2(x),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_the_slopes(name):
    function = DIFFERENTIABLE[name]
    point = onp.random.default_rng(2).uniform(0.5, 1.5, (3, 5))
    weights = None

    def value(at):
        return float((function(np.array(at)).asnumpy() * weights).sum())

    x = np.array(point)
    x.attach_grad()
    with autograd.record():
        y = function(x)
        weights = onp.cos(onp.arange(y.size)).reshape(y.shape)
        total = (y * np.array(weights)).sum()
    total.backward()
    along = onp.sin(onp.arange(15.0)).reshape(3, 5)
    slope = (value(point + 1e-6 * along) - value(point - 1e-6 * along)) / 2e-6
    assert float((x.grad.asnumpy() * along).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-6)


def nodes(symbol):
    made = json.loads(symbol.tojson())["nodes"]
    return [(n["op"], n.get("attrs", {})) for n in made if n["op"] != "null"]


def test_delete_and_insert_have_the_names_and_attributes_of_files():
    """As MXNet 1.9.1 writes them: np.delete(x, 1, axis=0) and so on."""
    x, v = (mx.sym.var(n).as_np_ndarray() for n in "xv")
    for made, op, attrs in (
        (np.delete(x, 1, axis=0), "_npi_delete", {"int_ind": "1"}),
        (
            np.delete(x, slice(0, 2), axis=0),
            "_npi_delete",
            {"start": "0", "stop": "2", "step": "1"},
        ),
        (np.delete(x, v, axis=0), "_npi_delete", {}),
        (np.insert(x, 1, 5.0, axis=0), "_npi_insert_scalar", {"int_ind": "1", "val": "5.0"}),
        (np.insert(x, 1, v, axis=0), "_npi_insert_scalar", {"int_ind": "1"}),
        (np.insert(x, slice(0, 2), v, axis=0), "_npi_insert_slice", {"stop": "2", "step": "1"}),
        (np.insert(x, v, 5.0, axis=0), "_npi_insert_tensor", {"val": "5.0"}),
    ):
        ((name, found),) = nodes(made)
        assert name == op
        assert {k: found[k] for k in attrs} == attrs
        assert found["axis"] == "0"
        again = mx.sym.load_json(made.tojson())
        assert nodes(again) == nodes(made)


class Changed(gluon.HybridBlock):
    def hybrid_forward(self, F, x, at):
        less = F.np.delete(x, slice(0, 3, 2), axis=1)
        more = F.np.insert(less, at, F.np.sum(x, axis=1, keepdims=True), axis=1)
        return F.np.insert(F.np.delete(more, 0, axis=0), slice(0, 2), 7.0, axis=1)


def test_hybridized_blocks_delete_and_insert():
    block, at = Changed(), onp.array([1, 0, 1])
    x = np.array(A)
    less = onp.delete(A, slice(0, 3, 2), axis=1)
    more = onp.insert(less, at, A.sum(axis=1, keepdims=True), axis=1)
    want = onp.insert(onp.delete(more, 0, axis=0), slice(0, 2), 7.0, axis=1)
    onp.testing.assert_allclose(block(x, np.array(at)).asnumpy(), want)
    block.hybridize()
    for _ in range(2):
        onp.testing.assert_allclose(block(x, np.array(at)).asnumpy(), want)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.delete(x, 4, axis=1),
        lambda x: np.delete(x, [0, -5], axis=1),
        lambda x: np.insert(x, 5, 0, axis=1),
        lambda x: np.insert(x, [0, 6], 0, axis=1),
    ],
)
def test_indices_outside_are_refused(call):
    with pytest.raises(IndexError, match=r"must be in \[-4, "):
        call(np.array(A))


def test_what_runs_in_numpy():
    """What the guide lists."""
    from plait.ndarray.numpy import fallback

    named = (
        "frexp histogram2d histogramdd packbits piecewise polydiv polyfit roots sort_complex"
        " unpackbits vectorize"
    )
    found = [n for n in dir(np) if getattr(getattr(np, n), "is_fallback", False)]
    assert set(found) - set(fallback.REPLACED) == set(named.split())


def test_numbers_beyond_a_dtype_are_compared_as_they_are():
    for dtype in ("uint8", "int8", "int32", "int64"):
        a = onp.array([0, 1, 100], dtype)
        x = np.array(a)
        for number in (-1, 200, 300, -300, 2**31, 2**40, -(2**40)):
            for compare in ("__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__"):
                want = getattr(a, compare)(number)
                onp.testing.assert_array_equal(getattr(x, compare)(number).asnumpy(), want)
        assert np.greater(-1, x).asnumpy().tolist() == [False] * 3
    assert (x == None).asnumpy().tolist() == [False] * 3  # noqa: E711 - as NumPy answers
    assert (x != None).asnumpy().all()  # noqa: E711


def test_bessel_functions_of_nan():
    x = onp.array([onp.nan, 0.0, 2.5, -onp.inf])
    same(np.i0(np.array(x)), onp.array([onp.nan, 1.0, onp.i0(2.5), onp.nan]))


def test_where_of_logaddexp2():
    x, out = np.array([1.0, 2.0]), np.zeros(2)
    np.logaddexp2(x, x, out=out, where=np.array([True, False], dtype=bool))
    assert out.asnumpy().tolist() == [2.0, 0.0]
    with pytest.raises(TypeError, match="bogus"):
        np.logaddexp2(x, x, bogus=1)
