"""autograd.Function: gradients in Python, of every order, and its rules; get_symbol."""

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.ndarray import autograd


def variable(values, req="write"):
    x = nd.array(values)
    x.attach_grad(req)
    return x


class Sigmoid(autograd.Function):
    def forward(self, x):
        y = 1 / (1 + nd.exp(-x))
        self.save_for_backward(y)
        return y

    def backward(self, dy):
        (y,) = self.saved_tensors
        return dy * y * (1 - y)


def test_function_has_its_own_gradient_of_every_order():
    x, z = variable([0.5, 1.5]), variable([0.5, 1.5])
    with autograd.record():
        a, b = Sigmoid()(x * 2), nd.sigmoid(z * 2)
        da, db = (
            autograd.grad(a, x, create_graph=True)[0],
            autograd.grad(b, z, create_graph=True)[0],
        )
    np.testing.assert_allclose(da.asnumpy(), db.asnumpy(), rtol=1e-5)
    da.backward()
    db.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), z.grad.asnumpy(), rtol=1e-4)


def test_function_with_many_arrays():
    class Both(autograd.Function):
        def forward(self, x, y):
            self.save_for_backward(x, y)
            assert not autograd.is_recording() and autograd.is_training()
            return x * y, x + y

        def backward(self, d_product, d_sum):
            _, y = self.saved_tensors
            return d_product * y + d_sum, None

    x, y = variable([2.0]), variable([3.0])
    with autograd.record():
        product, total = Both()(x, y)
        z = product * 10 + total
    z.backward()
    assert float(x.grad) == 31 and float(y.grad) == 0


def test_function_rules():
    x = variable([1.0])
    f = Sigmoid()
    assert f(nd.array([0.0])).asnumpy() == 0.5  # not recorded: a plain call
    with pytest.raises(AssertionError, match="only be called once"):
        f(x)

    def make(result, out=lambda x: x * 2):
        class Odd(autograd.Function):
            def forward(self, x):
                return out(x)

            def backward(self, dy):
                return result(dy)

        return Odd()

    for result, rule in (
        (lambda d: (d, d), "for each of the 1 inputs"),
        (lambda d: 5, "must return NDArrays"),
        (lambda d: nd.ones((2,)), "must have its shape"),
    ):
        with autograd.record():
            y = make(result)(x)
        with pytest.raises(mx.MXNetError, match=rule):
            y.backward()
    with (
        autograd.record(),
        pytest.raises(mx.MXNetError, match="every output of forward must be an NDArray"),
    ):
        make(lambda d: d, lambda x: x.asnumpy())(x)
    with autograd.record(), pytest.raises(mx.MXNetError, match="must define forward"):
        autograd.Function()(x)
    with autograd.record():
        y = make(lambda d: d * 3, lambda x: x)(x)  # forward may give its input back
    y.backward()
    assert float(x.grad) == 3


def test_errors_in_function_backward_reach_the_user():
    class Broken(autograd.Function):
        def forward(self, x):
            return x

        def backward(self, dy):
            raise KeyError("mine")

    x = variable([1.0])
    with autograd.record():
        y = Broken()(x)
    with pytest.raises(KeyError, match="mine"):
        y.backward()
    assert not x.grad.asnumpy().any()


# ---- get_symbol ----------------------------------------------------------------------------------


def test_get_symbol():
    x, w = variable([1.0, 2.0]), variable([3.0, 4.0])
    with autograd.record():
        y = nd.exp(x * w) + x
    symbol = autograd.get_symbol(y)
    assert symbol.list_arguments() == ["var0", "var1"]
    (again,) = symbol.bind(mx.cpu(), {"var0": x.detach(), "var1": w.detach()}).forward()
    np.testing.assert_allclose(again.asnumpy(), y.asnumpy(), rtol=1e-6)
    assert autograd.get_symbol(x).list_arguments() == ["var0"]
    with pytest.raises(mx.MXNetError, match="not in a computational graph"):
        autograd.get_symbol(nd.ones((2,)))
    with autograd.record():
        y = Sigmoid()(x)
    with pytest.raises(mx.MXNetError, match="has no Symbol"):
        autograd.get_symbol(y)
