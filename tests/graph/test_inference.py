"""Shapes and dtypes inferred from a few known ones."""

import numpy as np
import plait as mx
import pytest
from plait.graph.inference import Inference

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


def test_one_step_of_a_recurrent_cell_is_bound():
    cell = mx.rnn.LSTMCell(10, prefix="l_")
    y, _ = cell(sym.var("data"), cell.begin_state())
    ex = y.simple_bind(mx.cpu(), data=(32, 4))
    assert ex.outputs[0].shape == (32, 10)
    assert ex.arg_dict["l_i2h_weight"].shape == (40, 4)
    stack = mx.rnn.SequentialRNNCell()
    for i in range(2):
        stack.add(mx.rnn.GRUCell(6, prefix=f"g{i}_"))
    y, _ = stack(sym.var("data"), stack.begin_state())
    assert y.infer_shape(data=(3, 5))[1] == [(3, 6)]


def test_bodies_of_loops_learn_from_either_side():
    def step(x, states):
        h = sym.FullyConnected(x, num_hidden=4, name="i")
        h = h + sym.FullyConnected(states[0], num_hidden=4, name="h")
        return h, [h]

    out, states = sym.contrib.foreach(step, sym.var("data"), [sym.zeros((0, 4))])
    assert sym.Group([out, *states]).infer_shape(data=(3, 2, 5))[1] == [(3, 2, 4), (2, 4)]


def test_shapes_do_not_look_at_dtypes():
    x = sym.var("x")
    s = sym.broadcast_mul(x, sym.ones((1, 2), dtype="float64"))
    assert s.infer_shape(x=(3, 2)) == ([(3, 2)], [(3, 2)], [])
    with pytest.raises(mx.MXNetError, match="dtypes must be equal"):
        s.simple_bind(mx.cpu(), type_dict={"x": "float32"}, x=(3, 2))


def test_given_shapes_override_declared_ones():
    data = sym.var("data", shape=(1, 3))
    s = sym.FullyConnected(data, num_hidden=2)
    assert s.infer_shape(data=(4, 5))[1] == [(4, 2)]
    assert s.simple_bind(mx.cpu(), data=(4, 3)).outputs[0].shape == (4, 2)
    module = mx.mod.Module(s, label_names=None)
    module.bind(for_training=False, data_shapes=[("data", (1, 3))])
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.ones((5, 3))]), is_train=False)
    assert module.get_outputs()[0].shape == (5, 2)


def test_contradictions_name_the_rule_and_the_shapes():
    x, w = sym.var("x", shape=(2, 0)), sym.var("w", shape=(3, 5))
    s = sym.FullyConnected(x, w, num_hidden=4, no_bias=True, name="fc")
    with pytest.raises(mx.MXNetError, match=r'weight must have shape[^$]*node "fc"[^$]*\(3, 5\)'):
        s.infer_shape()
    s = sym.Concat(sym.var("a"), sym.var("b"), dim=0, name="join")
    with pytest.raises(mx.MXNetError, match=r'Concat[^$]*node "join"'):
        s.infer_shape_partial(a=(0, 3), b=(0, 5))


def test_work_is_linear_in_a_chain_that_is_known_at_its_end():
    class Counting(Inference):
        asked = 0

        def _visit(self, node):
            self.asked += 1
            return super()._visit(node)

    def of(n):
        x = first = sym.var("x")
        for _ in range(n):
            x = sym.transpose(x)
        s = x + sym.var("y", shape=(2, 3))
        found = Counting(s._outputs, {}, {}, only_shapes=True)
        assert found.shape[first._outputs[0]] == (2, 3)
        return found.asked

    assert of(200) < 2.1 * of(100)


def test_dtypes_go_backward_as_in_mxnet():
    """Answers of MXNet 1.9.1."""
    i32, f64 = np.int32, np.float64
    x, y = sym.var("x"), sym.var("y")
    assert (sym.transpose(x) + y).infer_type(y="float16")[0] == [f16, f16]
    s = sym.FullyConnected(x, num_hidden=2) + y
    assert s.infer_type(y="float16")[0] == [f16] * 4
    s = sym.slice_axis(x, axis=0, begin=0, end=1) + y
    assert s.infer_type(y="int32")[0] == [i32, i32]
    s = sym.where(sym.var("c"), x, y)
    assert s.infer_type(c="int32", x="float16")[0] == [i32, f16, f16]
    assert sym.dot(x, y).infer_type(y="float64")[0] == [f64, f64]
    with pytest.raises(mx.MXNetError, match="dtypes must be equal"):
        sym.broadcast_mul(x, sym.ones((1, 2), dtype="float64")).infer_type(x="float32")
