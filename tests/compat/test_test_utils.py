"""mx.test_utils: what it accepts, and above all what it must refuse."""

import os

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd, sym
from plait import test_utils as tu


def test_equal_arrays_pass_and_different_ones_fail():
    a = nd.array([1.0, 2.0])
    tu.assert_almost_equal(a, np.array([1.0, 2.0], np.float32))
    assert tu.same(a, a.copy()) and tu.almost_equal(a, a + 1e-6)
    assert not tu.same(a, a + 1) and not tu.almost_equal(a, a + 0.1)
    with pytest.raises(
        AssertionError, match=r"1 of 2 elements differ.*\n  \(1,\): mine 2  other 3"
    ):
        tu.assert_almost_equal(a, nd.array([1.0, 3.0]), names=("mine", "other"))


def test_a_star_import_leaves_the_names_that_scripts_use():
    """`from mxnet.test_utils import *` comes after `from mxnet import nd` in most test-suites."""
    names = {name: value for name, value in vars(tu).items() if not name.startswith("_")}
    ours = {
        "nd": nd,
        "sym": sym,
        "gluon": gluon,
        "autograd": mx.autograd,
        "np": np,
        "mx": mx,
        "init": mx.init,
    }
    assert {k: names[k] for k in ours.keys() & names.keys() if names[k] is not ours[k]} == {}
    assert names["nd"].NDArray is nd.NDArray


def test_nan_is_equal_only_when_asked():
    a = np.array([np.nan, 1.0])
    tu.assert_almost_equal(a, a, equal_nan=True)
    with pytest.raises(AssertionError):
        tu.assert_almost_equal(a, a)
    tu.assert_almost_equal_ignore_nan(a, np.array([5.0, 1.0]))


def test_tolerances_follow_the_looser_dtype():
    half, single = np.array([1.0], np.float16), np.array([1.005], np.float32)
    tu.assert_almost_equal(half, single)
    with pytest.raises(AssertionError):
        tu.assert_almost_equal(half, single, rtol=1e-4, atol=1e-4)
    with pytest.raises(AssertionError):
        tu.assert_almost_equal(np.array([1]), np.array([2]))


def test_same_array_tells_views_from_copies():
    a = nd.array([[1, 2], [3, 4]])
    assert tu.same_array(a, a.reshape((4,)).reshape((2, 2)))
    assert not tu.same_array(a, a.copy())
    assert a.asnumpy().tolist() == [[1, 2], [3, 4]]


def test_random_arrays():
    assert len(tu.rand_shape_nd(4, 3)) == 4 and max(tu.rand_shape_nd(50, 3)) <= 3
    assert min(tu.rand_shape_nd(50, 3)) >= 1
    x = tu.rand_ndarray((3, 4), dtype="float64")
    assert x.shape == (3, 4) and x.dtype == np.float64 and abs(x).max().asscalar() <= 1
    assert tu.rand_ndarray((3, 4), "csr").stype == "csr"
    assert tu.default_context() == mx.cpu() and tu.default_dtype() is np.float32


def test_assert_exception():
    tu.assert_exception(nd.dot, mx.MXNetError, nd.ones((2, 3)), nd.ones((2, 3)))
    with pytest.raises(AssertionError, match="did not raise MXNetError"):
        tu.assert_exception(nd.relu, mx.MXNetError, nd.ones((2,)))


def test_symbolic_checks():
    x, y = sym.var("x"), sym.var("y")
    a, b = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    tu.check_symbolic_forward(x * y, [a, b], [a * b])
    tu.check_symbolic_backward(x * y, {"x": a, "y": b}, [np.ones((1, 2))], {"x": b, "y": a})
    tu.check_symbolic_backward(x * y, [a, b], [np.ones((1, 2))], [b, a], grad_req="add")
    with pytest.raises(AssertionError, match="FORWARD_"):
        tu.check_symbolic_forward(x * y, [a, b], [a + b])
    with pytest.raises(AssertionError, match="BACKWARD_x"):
        tu.check_symbolic_backward(x * y, [a, b], [np.ones((1, 2))], [a, a])
    with pytest.raises(ValueError, match="do not match"):
        tu.check_symbolic_forward(x * y, {"x": a, "z": b}, [a])
    np.testing.assert_allclose(tu.simple_forward(x + y, x=a, y=b), a + b)


def test_numeric_gradients():
    x = sym.var("x")
    data = np.random.default_rng(0).normal(size=(3, 4))
    tu.check_numeric_gradient(sym.tanh(x) * x, [data])
    wrong = sym.BlockGrad(x) * x  # its gradient is x, the number says 2 x
    with pytest.raises(AssertionError, match="NUMERICAL_x"):
        tu.check_numeric_gradient(wrong, [data])


def test_consistency_of_devices():
    net = sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")
    places = [
        {"ctx": mx.cpu(i), "data": (2, 5), "type_dict": {"data": t}}
        for i, t in ((0, np.float64), (1, np.float32))
    ]
    tu.check_consistency(net, places)


def test_hybridized_blocks_are_compared():
    class Same(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.relu(x) * 2

    class Different(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x * 2 if F is nd else x * 3

    x = nd.array([[1.0, -1.0]])
    tu.check_gluon_hybridize_consistency(Same, [x])
    with pytest.raises(AssertionError):
        tu.check_gluon_hybridize_consistency(Different, [x])


def test_environment_is_put_back():
    before = os.environ.get("PLAIT_TEST_VARIABLE")
    with tu.environment("PLAIT_TEST_VARIABLE", "1"):
        assert os.environ["PLAIT_TEST_VARIABLE"] == "1"
    assert os.environ.get("PLAIT_TEST_VARIABLE") == before
