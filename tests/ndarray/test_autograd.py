"""Recording, backward, grad, grad_req, higher orders, Function, get_symbol, threads."""

import gc
import threading
import weakref

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.ndarray import autograd
from plait.ndarray.backward import _programs


def variable(values, req="write"):
    x = nd.array(values)
    x.attach_grad(req)
    return x


def backward(f, *xs, **kwargs):
    with autograd.record():
        y = f(*xs)
    y.backward(**kwargs)
    return y


# ---- scopes --------------------------------------------------------------------------------------


def test_scopes_nest_and_end():
    def flags():
        return autograd.is_recording(), autograd.is_training()

    assert flags() == (False, False)
    with autograd.record():
        assert flags() == (True, True)
        with autograd.pause():
            assert flags() == (False, False)
            with autograd.train_mode():
                assert flags() == (False, True)
        with autograd.predict_mode():
            assert flags() == (True, False)
        assert flags() == (True, True)
    with autograd.record(train_mode=False):
        assert flags() == (True, False)
    with pytest.raises(KeyError), autograd.record():
        raise KeyError
    assert flags() == (False, False)
    assert autograd.set_recording(True) is False and autograd.set_training(True) is False
    assert autograd.set_recording(False) is True and autograd.set_training(False) is True


def test_scopes_belong_to_their_thread():
    seen = []
    with autograd.record():
        thread = threading.Thread(
            target=lambda: seen.append((autograd.is_recording(), autograd.is_training()))
        )
        thread.start()
        thread.join()
    assert seen == [(False, False)]


# ---- backward ------------------------------------------------------------------------------------


def test_write_add_and_null():
    x, y, z = variable([1, 2], "write"), variable([1, 2], "add"), variable([1, 2], "null")
    for _ in range(3):
        backward(lambda: x * x + y * y + z * z)
    assert (
        x.grad.asnumpy().tolist() == [2, 4]
        and y.grad.asnumpy().tolist() == [6, 12]
        and z.grad is None
    )
    y.grad[:] = 0
    backward(lambda: y * 5)
    assert y.grad.asnumpy().tolist() == [5, 5]
    with pytest.raises(mx.MXNetError, match="grad_req must be write, add or null, got 'foo'"):
        x.attach_grad("foo")


def test_grad_is_the_same_array_after_each_backward():
    x = variable([1, 2])
    g = x.grad
    for factor in (2, 3):
        backward(lambda f=factor: x * f)
        assert x.grad is g and g.asnumpy().tolist() == [factor] * 2


def test_head_gradients():
    x = variable([1, 2, 3])
    backward(lambda: x * x, out_grad=nd.array([1, 10, 100]))
    assert x.grad.asnumpy().tolist() == [2, 40, 600]
    with autograd.record():
        y, z = x * x, x + 1
    autograd.backward([y, z], [nd.array([1, 0, 0]), None])
    assert x.grad.asnumpy().tolist() == [3, 1, 1]
    with autograd.record():
        y = x * x
    with pytest.raises(mx.MXNetError, match="must have its head's shape"):
        y.backward(nd.ones((2,)))
    y.backward(x.grad)  # a head gradient that is the target
    assert x.grad.asnumpy().tolist() == [6, 4, 6]


def test_backward_twice_needs_retain_graph():
    x = variable([3])
    y = backward(lambda: x * x, retain_graph=True)
    y.backward()
    assert float(x.grad) == 6
    with pytest.raises(mx.MXNetError, match="already used by an earlier backward"):
        y.backward()


@pytest.mark.parametrize("hybrid", [False, True])
def test_freed_graph_is_a_constant_in_later_gradients(hybrid):
    """As in MXNet 1.9.1, whose recurrent scripts carry a state from step to step without using
    detach's result."""
    x, state = variable([2.0]), nd.array([1.0])
    step = mx.gluon.nn.HybridLambda(lambda F, state, x: state * x)
    step.hybridize(hybrid)
    for expected in (1.0, 2.0, 4.0):
        with autograd.record():
            state = step(state, x)
        state.backward()
        assert x.grad.asscalar() == expected
    with autograd.record():
        state[:] = 3.0
        state += 1
        y = state * x
    y.backward()
    assert x.grad.asscalar() == 4.0
    with pytest.raises(mx.MXNetError, match="Cannot differentiate"):
        y.backward()


def test_heads_that_are_variables_or_not_recorded():
    x = variable([1, 2])
    x.backward()
    assert x.grad.asnumpy().tolist() == [1, 1]
    with pytest.raises(mx.MXNetError, match="not in a computational graph"):
        nd.ones((2,)).backward()
    with autograd.record(), pytest.raises(mx.MXNetError, match="not in a computational graph"):
        (nd.ones((2,)) * 2).backward()
    with pytest.raises(mx.MXNetError, match="NDArray"):
        autograd.backward([5])


def test_detach_blocks_and_attach_grad_cuts():
    x = variable([1, 2])
    backward(lambda: (x * x).detach() * x)
    assert x.grad.asnumpy().tolist() == [1, 4]
    x.grad[:] = 0
    with autograd.record():
        y = x * x
        y.attach_grad()
        z = y * 2
    z.backward()
    assert y.grad.asnumpy().tolist() == [2, 2] and x.grad.asnumpy().tolist() == [0, 0]
    backward(lambda: nd.BlockGrad(x * 3) + x)
    assert x.grad.asnumpy().tolist() == [1, 1]


def test_unused_branches_and_shared_values():
    x = variable([2.0])
    with autograd.record():
        y = x * x
        nd.exp(y)  # never asked for
        z = y * y + y
    z.backward()
    assert float(x.grad) == 4 * 8 + 4


def test_mark_variables():
    a, g = nd.array([1, 2]), nd.zeros((2,))
    autograd.mark_variables([a], [g])
    backward(lambda: a * a)
    assert g.asnumpy().tolist() == [2, 4] and a.grad is g
    autograd.mark_variables(a, g, "add")
    backward(lambda: a * a)
    assert g.asnumpy().tolist() == [4, 8]
    with pytest.raises(mx.MXNetError, match="must have the variable's shape"):
        autograd.mark_variables(a, nd.zeros((3,)))
    with pytest.raises(mx.MXNetError, match="as many gradients"):
        autograd.mark_variables([a, a], [g])


def test_in_place_operators_refuse_recorded_arrays():
    x = variable([1, 2])
    with autograd.record():
        y = x * 2
        for array in (x, y):
            for change in ("__iadd__", "__isub__", "__imul__", "__itruediv__", "__imod__"):
                with pytest.raises(mx.MXNetError, match="already in a computational graph"):
                    getattr(array, change)(1)
        plain = nd.ones((2,))
        with pytest.raises(mx.MXNetError, match="Inplace operations"):
            plain += x
        with pytest.raises(mx.MXNetError, match="recorded"):
            nd.exp(plain, out=y)
    assert y.asnumpy().tolist() == [2, 4] and plain.asnumpy().tolist() == [1, 1]


def test_the_tape_is_freed():
    x = variable([1, 2])
    with autograd.record():
        middle = x * x
        y = middle.sum()
    alive = weakref.ref(middle)
    del middle
    y.backward()
    assert alive() is None
    del y
    gc.collect()


# ---- grad and higher orders ----------------------------------------------------------------------


def test_grad_gives_a_list_and_leaves_grad_alone():
    x, w = variable([1, 2]), variable([3, 4])
    with autograd.record():
        y = x * x * w
    dx, dw = autograd.grad(y, [x, w], retain_graph=True)
    assert (
        dx.asnumpy().tolist() == [6, 16]
        and dw.asnumpy().tolist() == [1, 4]
        and not x.grad.asnumpy().any()
    )
    (dx,) = autograd.grad(y, x, head_grads=nd.array([1, 0]))
    assert dx.asnumpy().tolist() == [6, 0]
    with pytest.raises(mx.MXNetError, match="already used"):
        autograd.grad(y, x)


def test_grad_of_independent_variables():
    x, z = variable([1, 2]), variable([1, 2])
    with autograd.record():
        y = x * x
    with pytest.raises(mx.MXNetError, match="do not depend"):
        autograd.grad(y, [z], retain_graph=True)
    with pytest.raises(mx.MXNetError, match="attach_grad"):
        autograd.grad(y, [nd.ones((2,))], retain_graph=True)
    for flat in (nd.sign, nd.topk, nd.BlockGrad):  # MXNet's gradient of these is zero, too
        with autograd.record():
            (dx,) = autograd.grad(flat(x), [x], create_graph=True)
            z = (dx * x).sum()
        assert dx.asnumpy().tolist() == [0, 0]
        z.backward()
        assert x.grad.asnumpy().tolist() == [0, 0]
    with autograd.record():
        m = x * 2
        y = m * m
    assert autograd.grad(y, [m])[0].asnumpy().tolist() == [4, 8]  # of a recorded value


def test_second_and_third_order_of_a_polynomial():
    x = variable([1.0, 2.0])
    with autograd.record():
        y = x * x * x * x
        (d1,) = autograd.grad(y, x, create_graph=True)
        (d2,) = autograd.grad(d1, x, create_graph=True)
        (d3,) = autograd.grad(d2, x, create_graph=True)
    np.testing.assert_allclose(d2.asnumpy(), [12, 48])
    np.testing.assert_allclose(d3.asnumpy(), [24, 48])
    d3.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), [24, 24])


POINTWISE = {
    "sin": nd.sin,
    "exp": nd.exp,
    "log": nd.log,
    "sigmoid": nd.sigmoid,
    "tanh": nd.tanh,
    "sqrt": nd.sqrt,
    "cbrt": nd.cbrt,
    "rsqrt": nd.rsqrt,
    "reciprocal": nd.reciprocal,
    "square": nd.square,
    "log1p": nd.log1p,
    "erf": nd.erf,
    "arctan": nd.arctan,
    "softsign": nd.softsign,
    "power": lambda x: x**3,
    "quotient": lambda x: 1 / (1 + x * x),
    "softmax": lambda x: nd.softmax(x),
    "log_softmax": lambda x: nd.log_softmax(x),
    "norm": lambda x: nd.norm(x),
    "mean": lambda x: (x * x).mean(),
    "prod": lambda x: x.prod(),
    "index": lambda x: x[1:] * x[[0, 1]] * x[0],
    "elu": lambda x: nd.LeakyReLU(-x, act_type="elu"),
    "matmul": lambda x: nd.dot(x.reshape((3, 1)), x.reshape((1, 3))),
    "concat": lambda x: nd.concat(x, x * x, dim=0) ** 2,
    "take": lambda x: nd.take(x * x, nd.array([0, 2, 2])),
    "layernorm": lambda x: nd.LayerNorm(x.reshape((1, 3)), nd.ones((3,)), nd.ones((3,))),
    "dense": lambda x: nd.tanh(
        nd.FullyConnected(x.reshape((1, 3)), x.reshape((1, 3)), num_hidden=1, no_bias=True)
    ),
    "conv": lambda x: nd.Convolution(
        x.reshape((1, 1, 3)), (x * x)[:2].reshape((1, 1, 2)), kernel=2, num_filter=1, no_bias=True
    ),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_derivatives_up_to_the_third_order(name):
    """Each order against finite differences of the order below, along a random direction, in
    float64."""
    f, rng = POINTWISE[name], np.random.default_rng(1)
    at, directions = rng.uniform(0.5, 1.5, 3), rng.normal(size=(3, 3))

    def derivatives(values):
        x = nd.array(values, dtype="float64")
        x.attach_grad()
        found = []
        with autograd.record():
            y = (
                f(x)
                if name != "layernorm"
                else nd.LayerNorm(
                    x.reshape((1, 3)),
                    nd.ones((3,), dtype="float64"),
                    nd.ones((3,), dtype="float64"),
                )
                * x
            )
            y = (y * y).sum()
            for d in directions:
                (g,) = autograd.grad(y, x, create_graph=True)
                y = (g * nd.array(d, dtype="float64")).sum()
                found.append(y)
        return [float(v) for v in found], y, x

    orders, last, at_x = derivatives(at)
    for k in (1, 2):
        step = 1e-6 * directions[k]
        above, below = derivatives(at + step)[0][k - 1], derivatives(at - step)[0][k - 1]
        np.testing.assert_allclose(orders[k], (above - below) / 2e-6, rtol=2e-4, atol=2e-5)
    last.backward()  # a compiled program over a tape of gradients
    assert np.isfinite(at_x.grad.asnumpy()).all()


def test_backward_of_a_gradient_penalty():
    x, w = nd.array([[1.0, 2.0]]), variable([[3.0, 4.0]])
    x.attach_grad()
    with autograd.record():
        y = nd.dot(x, w, transpose_b=True) ** 2
        (dx,) = autograd.grad(y, x, create_graph=True)
        loss = (dx * dx).sum()  # |2 (x.w) w|^2
    loss.backward()
    s, n = 11.0, 25.0
    np.testing.assert_allclose(
        w.grad.asnumpy()[0], 8 * s * n * np.array([1, 2]) + 8 * s * s * np.array([3, 4]), rtol=1e-5
    )


# ---- threads -------------------------------------------------------------------------------------


def test_threads_record_and_run_backward_at_once():
    failures = []

    def work(k):
        try:
            x = variable(np.full((8, 8), k))
            for i in range(20):
                with autograd.record():
                    y = (nd.tanh(x * 0.1) * x).sum() if i % 2 else (x * x * k).sum()
                y.backward()
                wanted = (
                    np.tanh(k * 0.1) + 0.1 * k * (1 - np.tanh(k * 0.1) ** 2) if i % 2 else 2 * k * k
                )
                np.testing.assert_allclose(x.grad.asnumpy(), wanted, rtol=1e-5)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_changing_scalars_do_not_recompile():
    x = nd.array([1.0, 2.0])
    x.attach_grad()
    _programs.clear()
    for step in range(40):
        with autograd.record():
            y = x * x * (0.5 + step)
        y.backward()
        np.testing.assert_allclose(x.grad.asnumpy(), [1 + 2 * step, 2 + 4 * step])
    (found,) = _programs.values()
    assert found.hits == 40 and not found.interpreted


# ---- dtypes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["eager", "hybridized"])
def test_a_head_gradient_has_the_dtype_of_its_head(way):
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.cast("float16")
    if way == "hybridized":
        net.hybridize()
    x = nd.ones((1, 3), dtype="float16")
    with autograd.record():
        y = net(x)
    with pytest.raises(TypeError, match="its head's dtype float16, got float32"):
        y.backward(nd.ones((1, 2)))
    with pytest.raises(mx.MXNetError, match="its head's dtype"):
        autograd.grad(y, net.weight.data(), nd.ones((1, 2), dtype="float64"))
    y.backward(nd.ones((1, 2), dtype="float16"))
    assert net.weight.grad().asnumpy().tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize(
    ("gradient", "error"),
    [
        (lambda: nd.zeros((3,), dtype="float16"), TypeError),
        (lambda: nd.zeros((3,), dtype="float64"), TypeError),
        (lambda: nd.zeros((2,)), ValueError),
        (lambda: np.zeros(3), TypeError),
    ],
)
def test_a_gradient_is_like_its_variable(gradient, error):
    with pytest.raises(error) as caught:
        autograd.mark_variables([nd.ones((3,))], [gradient()])
    assert isinstance(caught.value, mx.MXNetError)


# what MXNet 1.9.1 computes; the gradient of an integer array is one of its dtype
OF_INTEGERS = {
    "x * 2": (lambda x: x * 2, [2, 2, 2]),
    "x * x": (lambda x: x * x, [2, 4, 6]),
    "x + x": (lambda x: x + x, [2, 2, 2]),
    "sum": (lambda x: (x * x).sum(), [2, 4, 6]),
    "cast": (lambda x: x.astype("float32") * 1.5, [1, 1, 1]),
    "reshape": (lambda x: x.reshape((1, 3)) * 3, [3, 3, 3]),
    "part": (lambda x: x[1:] * 3, [0, 3, 3]),
    "max": (lambda x: x.max() * 2, [0, 0, 2]),
    "take": (lambda x: nd.take(x, nd.array([0, 0, 2])), [2, 0, 1]),
    "concat": (lambda x: nd.concat(x, x * 2, dim=0), [3, 3, 3]),
}


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_gradients_of_integers(name, dtype):
    f, expected = OF_INTEGERS[name]
    x = nd.array([1, 2, 3], dtype=dtype)
    x.attach_grad()
    backward(f, x)
    assert x.grad.dtype == np.dtype(dtype)
    assert x.grad.asnumpy().tolist() == expected
    with autograd.record():
        y = f(x)
    assert autograd.grad(y, x)[0].asnumpy().tolist() == expected


@pytest.mark.parametrize("through", ["int32", "int64", "int8", "bool"])
@pytest.mark.parametrize("hybridized", [False, True])
def test_gradients_go_straight_through_casts(through, hybridized):
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.cast(F.cast(x, dtype=through), dtype="float32") * 1

    net = Net()
    if hybridized:
        net.hybridize()
    x = variable([1.5, 2.5, -3.5])
    backward(net, x)
    assert x.grad.asnumpy().tolist() == [1, 1, 1]
