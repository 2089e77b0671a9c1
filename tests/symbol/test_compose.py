"""Tracing: Symbols that know their shapes, and deferred parameters that learn theirs."""

import numpy as np
import plait as mx
import pytest
from plait.symbol.compose import check_typed
from plait.symbol.symbol import tracing

sym = mx.sym


def test_types_are_known_at_once():
    with tracing(True):
        x, w = sym.var("x", shape=(2, 3, 8, 8)), sym.var("w", shape=(4, 0, 3, 3))
        y = sym.Convolution(x, w, kernel=(3, 3), num_filter=4, no_bias=True)
        z = sym.BatchNorm(y)
        assert y.shape == (2, 4, 6, 6) and w.shape == (4, 3, 3, 3) and z.shape == y.shape
        assert (y.dtype, y.ndim, y.size, len(y)) == (np.float32, 4, 288, 2)
        assert z._outputs[0].node.attrs["train"] is True
        a, b = sym.split(y, num_outputs=2)
        assert a.shape == b.shape == (2, 2, 6, 6)
    with tracing(False):
        assert sym.Dropout(sym.var("x", shape=(2,)))._outputs[0].node.attrs["train"] is False
    assert not sym.relu(sym.var("x", shape=(2,)))._outputs[0].node.is_typed


def test_declared_dtype_counts():
    with tracing():
        x = sym.var("x", shape=(2, 3), dtype="float16")
        w = sym.var("w")
        assert (
            sym.FullyConnected(x, w, num_hidden=4, no_bias=True).dtype == np.float16
            and w.dtype == np.float16
        )


def test_addition_of_different_shapes_broadcasts():
    with tracing():
        x = sym.var("x", shape=(2, 3))
        assert (x + sym.var("b", shape=(3,)))._outputs[0].node.op.name == "broadcast_add"
        assert (x + x)._outputs[0].node.op.name == "elemwise_add"


def test_zeros_learn_their_shape():
    with tracing():
        state = sym.zeros((1, 0, 3))
        y = sym.RNN(
            sym.var("x", shape=(4, 2, 5)), state=state, state_size=3, num_layers=1, mode="gru"
        )
        assert y.shape == (4, 2, 3) and state.shape == (1, 2, 3)


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, None),
        (slice(None), 1),
        (Ellipsis, slice(None, None, 2)),
        (None, 0),
        (slice(None, None, -1), 2),
        (0, 1, 2),
        slice(None),
        Ellipsis,
    ],
)
def test_parts_are_those_of_arrays(key):
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    with tracing():
        part = sym.var("x", shape=(2, 3, 4))[key]
        want = x[key] if np.ndim(x[key]) else x[key].reshape(1)
        assert part.shape == want.shape
    np.testing.assert_array_equal(part.eval(x=mx.nd.array(x))[0].asnumpy(), want)


def test_wrong_parts():
    with tracing():
        x = sym.var("x", shape=(2, 3))
        for key, kind in (
            ((0, 0, 0), IndexError),
            (2, IndexError),
            ("y", ValueError),
            ([1, 0], TypeError),
        ):
            with pytest.raises(kind):
                x[key]


def test_errors():
    with tracing():
        x = sym.var("x", shape=(2, 3))
        with pytest.raises(
            mx.MXNetError, match=r"shapes must be equal or broadcast[^$]*lhs float32 \(2, 3\)"
        ):
            x + sym.var("y", shape=(2, 4))
        with pytest.raises(mx.MXNetError, match=r"shape of 'y' is \(0, 3\) and cannot be inferred"):
            check_typed(sym.broadcast_add(x, sym.var("y", shape=(0, 3)))._outputs)
        with pytest.raises(
            mx.MXNetError, match="'w' has a shape that contradicts the inferred one"
        ):
            sym.FullyConnected(x, sym.var("w", shape=(0, 9)), num_hidden=4, no_bias=True)
    with pytest.raises(mx.MXNetError, match="its shape is not known before it is bound"):
        _ = sym.var("v").shape


def test_nd_functions_compose_while_tracing():
    with tracing():
        x = sym.var("x", shape=(2, 3))
        y = mx.nd.sum(mx.nd.relu(x), axis=1)
        assert y.shape == (2,) and y.attr("axis") == "1"
        assert mx.nd.concat(x, x, dim=0).shape == (4, 3)
        z = x.copy().detach().as_in_context(mx.cpu())
        names = [z._outputs[0].node.op.name, z._outputs[0].node.inputs[0].node.op.name]
        assert names == ["_to_device", "BlockGrad"]
        with pytest.raises(
            TypeError,
            match="type <class 'plait.ndarray.ndarray.NDArray'> not supported[^$]*fix: make an",
        ):
            x + mx.nd.ones(3)
    assert y.eval(x=mx.nd.ones((2, 3)))[0].asnumpy().tolist() == [3, 3]


def test_hidden_keys_are_keywords_of_every_operator():
    """The numbers are those of MXNet 1.9.1."""
    data = sym.var("data")
    s = sym.FullyConnected(data, num_hidden=1, name="fc", lr_mult=2.0, wd_mult=0)
    own = {
        "num_hidden": "1",
        "__lr_mult__": "2.0",
        "lr_mult": "2.0",
        "__wd_mult__": "0",
        "wd_mult": "0",
    }
    assert s.attr_dict() == {"fc": own, "fc_weight": own, "fc_bias": own}
    assert s.attr("lr_mult") == s.attr("__lr_mult__") == "2.0"
    assert mx.sym.load_json(s.tojson()).attr_dict() == s.attr_dict()
    s = sym.FullyConnected(data, weight=sym.var("w"), num_hidden=2, name="fc", lr_mult=2)
    assert set(s.attr_dict()) == {"fc", "fc_bias"}
    with mx.AttrScope(ctx_group="scope"):  # comes before the keyword, as `attr` does
        s = sym.relu(data, name="r", ctx_group="own")
    assert s.attr("ctx_group") == "scope"
    assert sym.relu(data, lr_mult=3, attr={"lr_mult": "5"}).attr("lr_mult") == "5"
    with pytest.raises(mx.MXNetError, match="has no parameter 'foo'"):
        sym.FullyConnected(data, num_hidden=1, foo=1)


def test_keywords_reach_optimizers_and_devices():
    data = sym.var("data")
    first = sym.FullyConnected(data, num_hidden=2, name="fc1", lr_mult=0, ctx_group="a")
    net = sym.FullyConnected(first, num_hidden=2, name="fc2", ctx_group="b")
    ex = net.simple_bind(mx.cpu(0), group2ctx={"a": mx.cpu(1), "b": mx.cpu(2)}, data=(1, 2))
    assert ex.arg_dict["fc1_weight"].context == mx.cpu(1)
    assert ex.arg_dict["fc2_weight"].context == mx.cpu(2)
    module = mx.mod.Module(sym.SoftmaxOutput(net, name="softmax"))
    module.bind([("data", (4, 3))], [("softmax_label", (4,))])
    module.init_params(mx.init.One())
    module.init_optimizer(optimizer_params={"learning_rate": 1.0})
    x, label = mx.nd.arange(12).reshape((4, 3)), mx.nd.array([0, 1, 0, 0])
    module.forward_backward(mx.io.DataBatch([x], [label]))
    module.update()
    found = module.get_params()[0]
    assert (found["fc1_weight"].asnumpy() == 1).all()
    assert (found["fc2_bias"].asnumpy() != 0).all()


def test_keywords_of_an_operator_without_parameters_are_attributes():
    """As MXNet 1.9.1 answers. They were lost; a wrong name of an input made a variable."""
    data = sym.var("data")
    s = sym.relu(data, foo=1, name="r", lr_mult=3)
    assert s.attr_dict() == {"r": {"foo": "1", "__lr_mult__": "3", "lr_mult": "3"}}
    assert mx.sym.load_json(s.tojson()).attr_dict() == s.attr_dict()
    assert s.eval(data=mx.nd.array([-1, 2]))[0].asnumpy().tolist() == [0, 2]
    s = sym.broadcast_add(data, foo="q", name="b")
    assert s.attr_dict() == {"b": {"foo": "q"}, "b_rhs": {"foo": "q"}}
    with mx.AttrScope(foo="scope"):
        assert sym.exp(data, foo="a", name="e").attr_dict() == {"e": {"foo": "scope"}}
    assert sym.exp(data, foo="a", attr={"foo": "b"}).attr("foo") == "b"
    for wrong in ({"dat": data}, {"data": data, "other": data}):
        with pytest.raises(mx.MXNetError, match=f"relu: has no input '{list(wrong)[-1]}', its"):
            sym.relu(**wrong)
