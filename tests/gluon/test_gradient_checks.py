"""Checks of gradients in test_utils, as libraries' own suites use them; behaviour is MXNet's."""

import numpy as np
import plait as mx
import pytest
from plait import nd, sym
from plait import test_utils as tu

X = sym.var("x")
POINT = [np.array([0.1, 0.2, 0.3])]


def test_checks_return_arrays():
    outputs = tu.check_symbolic_forward(X * 2, [np.ones(2)], [2 * np.ones(2)])
    assert [type(o) for o in outputs] == [nd.NDArray]
    grads = tu.check_symbolic_backward(X * 2, [np.ones(2)], [np.ones(2)], [2 * np.ones(2)])
    assert type(grads["x"]) is nd.NDArray


def test_heads_are_cast():
    tu.check_symbolic_backward(
        X * 2, [np.ones(2)], [nd.ones((2,))], [2 * np.ones(2)], dtype=np.float16
    )


def test_gradient_check_tolerates_float32_noise():
    """A float32 sum of all outputs is too coarse for the change that one element makes."""
    rng = np.random.RandomState(0)
    location = {"x": rng.randn(200, 2) + 30, "f_weight": rng.rand(4, 2), "f_bias": rng.randn(4)}
    dense = sym.FullyConnected(X, num_hidden=4, name="f")
    np.random.seed(0)
    tu.check_numeric_gradient(dense, location, rtol=1e-2, atol=5e-2, grad_nodes=["x"])


def test_wrong_gradients_are_found():
    wrong = sym.BlockGrad(X) + X / 2
    for dtype in (np.float32, np.float64):
        with pytest.raises(AssertionError, match="NUMERICAL_x"):
            tu.check_numeric_gradient(wrong, POINT, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_default_steps_and_tolerances(dtype):
    tu.check_numeric_gradient(sym.exp(X), POINT, dtype=dtype)


def test_requests():
    for request in ("write", "add", "null"):
        tu.check_numeric_gradient(sym.square(X), POINT, grad_nodes={"x": request})
    for wrong in ({"x": "nope"}, 3):
        with pytest.raises(ValueError, match="check_numeric_gradient: "):
            tu.check_numeric_gradient(sym.square(X), POINT, grad_nodes=wrong)


def test_set_default_context_moves_what_names_no_device():
    before = mx.current_context()
    try:
        tu.set_default_context(mx.cpu(5))
        assert nd.ones((1,)).context == mx.cpu(5) == mx.Context.default_ctx == tu.default_context()
        with mx.cpu(2):
            assert nd.ones((1,)).context == mx.cpu(2) == tu.default_context()
        assert nd.ones((1,)).context == mx.cpu(5)
    finally:
        tu.set_default_context(before)
