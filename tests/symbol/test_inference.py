"""Shapes and dtypes inferred from a few known ones."""

import numpy as np
import plait as mx
import pytest

sym = mx.sym
f16, f32 = np.float16, np.float32


@pytest.fixture(autouse=True)
def names():
    with mx.name.NameManager():
        yield


def net():
    return sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")


def test_parameters_follow_from_the_data():
    s = sym.BatchNorm(
        sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="c"), name="bn"
    )
    assert s.infer_shape(data=(2, 3, 8, 8)) == (
        [(2, 3, 8, 8), (4, 3, 3, 3), (4,), (4,), (4,)],
        [(2, 4, 6, 6)],
        [(4,), (4,)],
    )
    assert net().infer_shape((2, 5)) == ([(2, 5), (3, 5), (3,)], [(2, 3)], [])


def test_unknown_shapes():
    assert net().infer_shape() == (None, None, None)
    assert net().infer_shape_partial() == ([(), (), ()], [()], [])
    assert net().infer_shape_partial(data=(2, 0)) == ([(2, 0), (3, 0), (3,)], [(2, 3)], [])
    a, b = sym.var("a"), sym.var("b")
    # b may be anything that broadcasts
    assert sym.broadcast_add(a, b).infer_shape(a=(2, 3)) == (None, None, None)
    assert (a + b).infer_shape(a=(2, 3))[0] == [(2, 3), (2, 3)]


def test_shapes_go_backward_through_elementwise_operators():
    a, b = sym.var("a"), sym.var("b", shape=(2, 3))
    assert (sym.relu(a) + b).infer_shape()[0] == [(2, 3), (2, 3)]


def test_declared_shapes_count_and_partial_ones_are_completed():
    w = sym.var("w", shape=(4, 0))
    s = sym.FullyConnected(sym.var("x", shape=(2, 5)), w, num_hidden=4, no_bias=True)
    assert s.infer_shape()[0] == [(2, 5), (4, 5)]
    assert s.infer_shape(x=(3, 6))[0] == [(3, 6), (4, 6)]  # a given one comes first
    assert s.infer_shape(x=(0, 6))[0] == [(2, 5), (4, 5)]  # if it is whole, as in MXNet


def test_zeros_take_the_shape_their_user_needs():
    state = sym.zeros((1, 0, 3))
    s = sym.RNN(sym.var("data"), state=state, state_size=3, num_layers=1, mode="gru", name="rnn")
    assert s.infer_shape(data=(4, 2, 5))[1] == [(4, 2, 3)]
    ex = s.simple_bind(mx.cpu(), data=(4, 2, 5))
    assert ex.forward()[0].shape == (4, 2, 3)


def test_errors_name_the_node_the_rule_and_its_inputs():
    with pytest.raises(mx.MXNetError) as error:
        net().infer_shape(data=(2, 5), fc_weight=(4, 4))
    text = str(error.value)
    assert "weight must have shape (num_hidden, inputs) = (3, 5)" in text and 'node "fc"' in text
    assert "data float32 (2, 5), weight float32 (4, 4)" in text and __file__ in text
    with pytest.raises(
        mx.MXNetError, match="name nope not found, the variables are data, fc_weight"
    ):
        net().infer_shape(nope=(2, 5))
    with pytest.raises(TypeError):
        net().infer_shape(data="x")
    with pytest.raises(ValueError, match="either by positional or kwargs"):
        net().infer_shape((2, 3), data=(2, 3))


def test_dtypes():
    assert net().infer_type(data="float16") == ([f16] * 3, [f16], [])
    assert net().infer_type() == (None, None, None)
    assert net().infer_type_partial() == ([None] * 3, [None], [])
    s = sym.BatchNorm(sym.var("x"), name="bn")
    assert s.infer_type(x=f16) == ([f16, f32, f32], [f16], [f32, f32])
    assert sym.Cast(sym.var("x"), dtype="int32").infer_type(x=f32)[1] == [np.int32]
    assert (sym.var("a") + sym.var("b", dtype="float16")).infer_type()[0] == [f16, f16]


def test_types_of_bound_arrays():
    ex = net().simple_bind(mx.cpu(), type_dict={"data": "float16"}, data=(2, 5))
    assert {a.dtype for a in ex.arg_arrays} == {f16} and ex.outputs[0].dtype == f16
