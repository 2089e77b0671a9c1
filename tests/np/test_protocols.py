"""Official NumPy's functions on mx.np arrays, and those of mx.np that official NumPy computes."""

import warnings

import numpy as onp
import plait as mx
import pytest
from plait import autograd, np
from plait.ndarray.numpy import fallback
from plait.ndarray.numpy.fallback import NumpyFallback

A = onp.arange(6.0).reshape(2, 3) + 1


@pytest.mark.parametrize(
    "text",
    """
onp.mean(x) onp.sum(x,axis=1) onp.concatenate([x,x]) onp.stack([x,x],axis=1) onp.where(x>2,x,0)
onp.transpose(x) onp.reshape(x,(3,2)) onp.split(x,3,axis=1) onp.take(x,[0,5]) onp.tile(x,2)
onp.add(x,1) onp.add(x,x) onp.multiply(x,A) onp.add(A,x) A+x x+A A*x x-A A/x A==x
onp.add.reduce(x) onp.multiply.reduce(x,axis=1) onp.add.accumulate(x,axis=1)
onp.multiply.outer(x,x) onp.subtract.outer(A,x) onp.float64(2)*x onp.ravel(x) onp.squeeze(x[None])
onp.broadcast_to(x,(2,2,3)) onp.flip(x,1) onp.zeros_like(x) onp.ones_like(x) onp.expand_dims(x,0)
onp.pad(x,1) onp.nonzero(x) onp.diag(x[0]) onp.shape(x) onp.ndim(x) onp.size(x)
""".split(),
)
def test_numpy_runs_plait(text):
    want = eval(text, {"onp": onp, "x": A, "A": A})
    with warnings.catch_warnings():
        warnings.simplefilter("error", NumpyFallback)
        got = eval(text, {"onp": onp, "x": np.array(A), "A": A})
    for g, w in zip(*[x if isinstance(x, (list, tuple)) else [x] for x in (got, want)]):
        assert isinstance(g, (np.ndarray, int))
        onp.testing.assert_allclose(onp.asarray(g), w, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::plait.ndarray.numpy.fallback.NumpyFallback")
@pytest.mark.parametrize(
    "text",
    """
onp.logaddexp.reduce(x) onp.minimum.accumulate(x) onp.add.reduceat(x,[0,1],axis=1) onp.fmod(x,2)
onp.frexp(x) onp.apply_along_axis(lambda~v:v[0],0,x) onp.histogram2d(x[0],x[1])[0]
onp.pad(x,1,'linear_ramp') onp.block([[x,x]])
""".split(),
)
def test_numpy_falls_back(text):
    text = text.replace("~", " ")
    want = eval(text, {"onp": onp, "x": A})
    got = eval(text, {"onp": onp, "x": np.array(A)})
    for g, w in zip(*[x if isinstance(x, tuple) else [x] for x in (got, want)]):
        assert type(g) is np.ndarray
        onp.testing.assert_allclose(g.asnumpy(), w, rtol=1e-6)


def test_gradients_flow_through_numpy_s_functions():
    x = np.array(A)
    x.attach_grad()
    with autograd.record():
        y = onp.sum(onp.multiply(onp.concatenate([x, x]), 3))
    y.backward()
    assert x.grad.tolist() == [[6] * 3] * 2


def test_out_and_at():
    x, out, ours = np.array(A), onp.zeros((2, 3)), np.zeros((2, 3), dtype="float64")
    assert onp.multiply(x, 2, out=out) is out and out.tolist() == (A * 2).tolist()
    assert onp.multiply(A, x, out=ours) is ours and ours.tolist() == (A * A).tolist()
    onp.add.at(x, [0, 0], 1)
    assert x.tolist() == [[3, 4, 5], [4, 5, 6]]


def test_a_fallback_says_so_once(monkeypatch):
    monkeypatch.setattr(fallback, "_said", set())
    x = np.array([3.0, 1.0])
    with pytest.warns(NumpyFallback, match=r"np\.histogramdd runs in NumPy"):
        counts, _ = np.histogramdd(x)
    assert type(counts) is np.ndarray
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.histogramdd(x)


@pytest.mark.filterwarnings("ignore::plait.ndarray.numpy.fallback.NumpyFallback")
def test_a_fallback_gives_no_wrong_gradients():
    x = np.ones(3)
    np.histogramdd(x)
    x.attach_grad()
    with autograd.record():
        np.histogramdd(np.ones(3))
        with pytest.raises(ValueError, match="histogramdd has no gradient") as caught:
            np.histogramdd(x * 2)
        assert isinstance(caught.value, mx.MXNetError) and "fix:" in str(caught.value)
        np.histogramdd(x.detach())
    with pytest.raises(TypeError, match="cannot be part of a Symbol"):
        np.histogramdd(mx.sym.var("x").as_np_ndarray())


def test_names():
    for name in ("mirr", "npv", "ppmt", "pv", "rate"):
        with pytest.raises(RuntimeError, match="numpy_financial"):
            getattr(np, name)([1.0], 2)
    assert {"histogram2d", "concatenate", "zeros", "pi", "float32"} <= set(dir(np))
    with pytest.raises(AttributeError, match="zerros"):
        _ = np.zerros


def test_recursion_ends():
    x = np.array(A)
    assert onp.result_type(x, x) == onp.float64 and onp.min_scalar_type(x) == onp.float64
    assert onp.can_cast(x.dtype, "float64")
