"""Executor: bind, simple_bind, forward, backward, gradient requests, reshape, monitor, errors."""

import numpy as np
import plait as mx
import pytest

sym = mx.sym


@pytest.fixture(autouse=True)
def names():
    with mx.name.NameManager():
        yield


def net():
    return sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")


def product():
    a, b = mx.nd.array([1, 2, 3]), mx.nd.array([4, 5, 6])
    return sym.var("a") * sym.var("b"), a, b


@pytest.mark.parametrize("as_list", [True, False])
def test_bind_and_gradients(as_list):
    s, a, b = product()
    grads = [mx.nd.zeros(3), mx.nd.zeros(3)]
    ex = s.bind(
        mx.cpu(),
        [a, b] if as_list else {"b": b, "a": a},
        grads if as_list else {"a": grads[0], "b": grads[1]},
    )
    out = ex.forward(is_train=True)[0]
    ex.backward(mx.nd.array([1, 10, 100]))
    np.testing.assert_array_equal(out.asnumpy(), [4, 10, 18])
    np.testing.assert_array_equal(grads[0].asnumpy(), [4, 50, 600])
    np.testing.assert_array_equal(ex.grad_dict["b"].asnumpy(), [1, 20, 300])


def test_gradient_requests():
    s, a, b = product()
    grads = {"a": mx.nd.ones(3), "b": mx.nd.ones(3)}
    ex = s.bind(mx.cpu(), {"a": a, "b": b}, grads, {"a": "add", "b": "null"})
    for _ in range(2):
        ex.forward(is_train=True)
        ex.backward(mx.nd.ones(3))
    np.testing.assert_array_equal(grads["a"].asnumpy(), [9, 11, 13])
    np.testing.assert_array_equal(grads["b"].asnumpy(), [1, 1, 1])
    partial = s.bind(mx.cpu(), {"a": a, "b": b}, {"b": mx.nd.zeros(3)})
    assert partial.grad_dict["a"] is None
    assert s.simple_bind(mx.cpu(), grad_req=["write", "null"], a=(3,)).grad_dict["b"] is None
    without = s.bind(mx.cpu(), [a, b])
    assert without.grad_arrays is None
    with pytest.raises(TypeError, match="bound without gradients"):
        _ = without.grad_dict
    with pytest.raises(ValueError, match="grad_req must be write, add or null"):
        s.simple_bind(mx.cpu(), grad_req="often", a=(3,))


def test_an_argument_that_no_output_depends_on_gets_zeros():
    s = sym.BlockGrad(sym.var("a")) + sym.var("b")
    ex = s.bind(mx.cpu(), [mx.nd.ones(2)] * 2, [mx.nd.ones(2), mx.nd.zeros(2)])
    ex.forward(is_train=True)
    ex.backward(mx.nd.ones(2))
    assert ex.grad_dict["a"].asnumpy().tolist() == [0, 0] and ex.grad_dict[
        "b"
    ].asnumpy().tolist() == [1, 1]


def test_backward_after_a_prediction():
    s, a, b = product()
    ex = s.bind(mx.cpu(), [a, b], [mx.nd.zeros(3), mx.nd.zeros(3)])
    ex.forward()
    ex.backward(mx.nd.ones(3))
    np.testing.assert_array_equal(ex.grad_dict["a"].asnumpy(), b.asnumpy())


def test_outputs_share_memory_and_forward_sees_new_values():
    ex = net().simple_bind(mx.cpu(), data=(2, 4))
    first = ex.forward()[0]
    ex.arg_dict["fc_bias"][:] = 2
    again = ex.forward(data=np.ones((2, 4)))[0]
    assert first is not again and first.asnumpy().tolist() == [[2] * 3] * 2
    assert ex.arg_dict["data"].asnumpy().sum() == 8 and list(ex.output_dict) == ["fc_output"]


def test_moving_statistics_change_in_training_only():
    s = sym.BatchNorm(sym.var("x"), momentum=0.5, name="bn")
    ex = s.simple_bind(mx.cpu(), grad_req="null", x=(4, 2))
    x = np.arange(8.0).reshape(4, 2)
    ex.forward(x=x)
    assert ex.aux_dict["bn_moving_mean"].asnumpy().tolist() == [0, 0]
    ex.forward(is_train=True)
    np.testing.assert_allclose(ex.aux_dict["bn_moving_mean"].asnumpy(), x.mean(0) / 2)


def test_dropout_backward_uses_the_mask_of_forward():
    s = sym.Dropout(sym.var("x"), p=0.5)
    ex = s.simple_bind(mx.cpu(), x=(1000,))
    y = ex.forward(is_train=True, x=np.ones(1000))[0].asnumpy().copy()
    ex.backward(mx.nd.ones(1000))
    assert set(y) == {0, 2}
    np.testing.assert_array_equal(ex.grad_dict["x"].asnumpy(), y)
    assert ex.forward()[0].asnumpy().sum() == 1000


def test_loss_outputs_need_no_head_gradient():
    s = sym.SoftmaxOutput(net(), name="softmax")
    ex = s.simple_bind(mx.cpu(), data=(2, 4))
    ex.forward(is_train=True)
    ex.backward()
    np.testing.assert_allclose(ex.grad_dict["fc_bias"].asnumpy(), [-4 / 3, 2 / 3, 2 / 3], rtol=1e-5)
    plain = net().simple_bind(mx.cpu(), data=(2, 4))
    plain.forward(is_train=True)
    with pytest.raises(mx.MXNetError, match="head_gradient is required"):
        plain.backward()
    with pytest.raises(mx.MXNetError, match=r"its output's shape \(2, 3\), got \(3,\)"):
        plain.backward(mx.nd.ones(3))


def bound(s, dtype="float32", req="write"):
    """An executor of a symbol of x, with 7 in the gradient, after a forward."""
    x = mx.nd.array([1.0, -2.0, 3.0, -4.0], dtype=dtype)
    ex = s.bind(mx.cpu(), {"x": x}, args_grad={"x": mx.nd.full((4,), 7, dtype=dtype)}, grad_req=req)
    ex.forward(is_train=True)
    return ex


X = sym.var("x")


@pytest.mark.parametrize(
    ("s", "heads", "expected"),
    [
        (lambda: sym.BlockGrad(X * 2), None, 0),
        (lambda: X > 0, None, 0),
        (lambda: sym.argmax(X, axis=0), None, 0),
        (lambda: sym.sum(sym.BlockGrad(X) + 1), None, 0),
        (lambda: sym.shape_array(X), None, 0),
        (lambda: sym.MakeLoss(sym.sum(X)), None, 1),
        (lambda: sym.Group([sym.make_loss(X * 2), sym.BlockGrad(X), X > 0]), None, 2),
        (lambda: sym.Group([X * 3, sym.BlockGrad(X)]), 1, 3),
        (lambda: X * 2, 2, 2),
        (lambda: sym.cast(X, dtype="int32") * 3, 1, 3),
    ],
)
def test_head_gradients_are_needed_where_the_gradient_reads_them(s, heads, expected):
    """The gradients are MXNet's: heads of BlockGrad are not read, those beyond are ignored."""
    with mx.name.NameManager():
        ex = bound(s())
    ex.backward([mx.nd.ones((4,))] * heads if heads else None)
    assert ex.grad_dict["x"].asnumpy().tolist() == [expected] * 4


@pytest.mark.parametrize("heads", [None, [], [mx.nd.ones((4,))]])
def test_head_gradients_that_are_read_must_be_given(heads):
    ex = bound(sym.Group([X * 2, sym.BlockGrad(X) * X]))
    with pytest.raises(mx.MXNetError, match="head_gradient is required"):
        ex.backward(heads)
    assert ex.grad_dict["x"].asnumpy().tolist() == [7] * 4
    ex.backward([mx.nd.ones((4,))] * 2)
    assert ex.grad_dict["x"].asnumpy().tolist() == [3, 0, 5, -2]


def test_head_gradients_are_not_needed_without_gradients():
    bound(X * 2, req="null").backward()
    m = mx.mod.Module(sym.Dropout(sym.var("data"), 0.5), label_names=None)
    m.bind(data_shapes=[("data", (2, 2))])
    m.init_params()
    m.init_optimizer()
    m.forward_backward(mx.io.DataBatch([mx.nd.ones((2, 2))]))
    m.update()


def test_backward_before_forward_runs_it():
    x = mx.nd.array([1.0, 2.0])
    ex = sym.square(X).bind(mx.cpu(), [x], [mx.nd.zeros((2,))])
    ex.backward(mx.nd.ones((2,)))
    assert ex.grad_dict["x"].asnumpy().tolist() == [2, 4]


@pytest.mark.parametrize("head", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_head_gradients_are_converted(dtype, head):
    ex = bound(X * 2, dtype)
    ex.backward([mx.nd.ones((4,), dtype=head)])
    assert ex.grad_dict["x"].asnumpy().tolist() == [2] * 4


@pytest.mark.parametrize("req", ["write", "add"])
def test_a_gradient_has_the_dtype_of_its_argument(req):
    given = {"x": mx.nd.ones((1000,))}
    for dtype in ("float16", "float64", "int32"):
        wrong = {"x": mx.nd.zeros((1000,), dtype=dtype)}
        with pytest.raises(TypeError, match=f"its dtype float32, got {dtype}"):
            (X * 2).bind(mx.cpu(), given, args_grad=wrong, grad_req=req)


def test_reshape_shares_memory():
    ex = net().simple_bind(mx.cpu(), data=(4, 5))
    ex.arg_dict["fc_weight"][:] = 1
    small = ex.reshape(data=(2, 5))
    assert small.forward(data=np.ones((2, 5)))[0].asnumpy().tolist() == [[5] * 3] * 2
    assert ex.arg_dict["data"].asnumpy()[:2].sum() == 10
    small.arg_dict["fc_bias"][:] = 1
    assert ex.arg_dict["fc_bias"].asnumpy().tolist() == [1] * 3
    with pytest.raises(mx.MXNetError, match="larger than original"):
        ex.reshape(data=(8, 5))
    assert ex.reshape(allow_up_sizing=True, data=(8, 5)).outputs[0].shape == (8, 3)
    with pytest.raises(mx.MXNetError, match="unspecified array arg:fc_weight"):
        ex.reshape(data=(4, 2))
    assert ex.reshape(partial_shaping=True, data=(4, 2)).arg_dict["fc_weight"].shape == (3, 2)


def test_copy_params_from():
    ex = net().simple_bind(mx.cpu(), data=(4, 5))
    ex.copy_params_from({"fc_bias": mx.nd.array([1, 2, 3])})
    assert ex.arg_dict["fc_bias"].asnumpy().tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match='Find name "nope" that is not in the arguments'):
        ex.copy_params_from({"nope": mx.nd.ones(3)})
    ex.copy_params_from({"nope": mx.nd.ones(3)}, allow_extra_params=True)
    with pytest.raises(ValueError, match=r"fc_bias must have shape \(3,\)"):
        ex.copy_params_from({"fc_bias": mx.nd.ones(2)})


def test_monitor_sees_every_output():
    ex = sym.relu(net(), name="r").simple_bind(mx.cpu(), data=(2, 4))
    seen = []
    ex.set_monitor_callback(lambda name, array: seen.append((name, array.shape)), monitor_all=True)
    ex.forward(is_train=True)
    assert seen == [
        ("data", (2, 4)),
        ("fc_weight", (3, 4)),
        ("fc_bias", (3,)),
        ("fc_output", (2, 3)),
        ("r_data", (2, 3)),
        ("r_output", (2, 3)),
    ]
    ex.set_monitor_callback(None)
    ex.forward()
    assert len(seen) == 6


def test_monitor_sees_outputs_whose_names_depend_on_attributes():
    data = np.array([[3.0, 1.0, 2.0]], np.float32)
    ex = sym.topk(sym.var("data"), k=2, ret_typ="both", name="top").bind(
        mx.cpu(), {"data": mx.nd.array(data)}
    )
    seen = {}
    ex.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy().tolist()}))
    ex.forward()
    at = np.argsort(-data, axis=1)[:, :2]
    values = np.take_along_axis(data, at, 1)
    assert seen == {"top_output0": values.tolist(), "top_output1": at.tolist()}


def test_wrong_arguments():
    s, a, b = product()
    norm = sym.BatchNorm(sym.var("x"), name="n")
    with pytest.raises(TypeError, match="every auxiliary state must have an NDArray, got None"):
        norm.bind(mx.cpu(), [mx.nd.ones(2)] * 3, aux_states=[None, mx.nd.ones(2)])
    with pytest.raises(TypeError, match="every argument must have an NDArray, got None"):
        s.bind(mx.cpu(), [a, None])
    with pytest.raises(ValueError, match="key `b` is missing in `args`"):
        s.bind(mx.cpu(), {"a": a})
    with pytest.raises(ValueError, match="does not match the number of arguments"):
        s.bind(mx.cpu(), [a])
    with pytest.raises(TypeError, match="only accept a list of NDArrays"):
        s.bind(mx.cpu(), [a, 3])
    with pytest.raises(mx.MXNetError, match="gradient of b must have its shape"):
        s.bind(mx.cpu(), [a, b], {"b": mx.nd.ones(2)})
    with pytest.raises(
        mx.MXNetError, match='elemwise_mul: shapes must be equal or broadcast[^$]*node "_mul0"'
    ):
        s.bind(mx.cpu(), [a, mx.nd.ones(2)])
    with pytest.raises(
        mx.MXNetError, match="simple_bind error[^$]*cannot be inferred: data, fc_weight, fc_bias"
    ):
        net().simple_bind(mx.cpu())
    with pytest.raises(
        mx.MXNetError, match='simple_bind error[^$]*weight must have shape[^$]*node "fc"'
    ):
        net().simple_bind(mx.cpu(), data=(2, 3), fc_weight=(9, 9))
    with pytest.raises(mx.MXNetError, match="two variables are called 'x'"):
        (sym.var("x") + sym.var("x")).simple_bind(mx.cpu(), x=(2,))
    ex = s.bind(mx.cpu(), [a, b])
    with pytest.raises(TypeError, match="unknown argument nope"):
        ex.forward(nope=a)
    with pytest.raises(ValueError, match=r"need: \(3,\), received: \(2,\)"):
        ex.forward(a=mx.nd.ones(2))


def test_eval_and_debug_str():
    s, a, b = product()
    assert s.eval(a=a, b=b)[0].asnumpy().tolist() == [4, 10, 18]
    ex = net().simple_bind(mx.cpu(), data=(2, 4))
    ex.forward(is_train=True)
    assert "F.FullyConnected(data, fc_weight, fc_bias, num_hidden=3)" in ex.debug_str()
    assert "MB allocated" in ex.debug_str()
