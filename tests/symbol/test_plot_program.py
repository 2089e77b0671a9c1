"""Drawings of compiled programs, memory plans, gradients and errors."""

import pickle
import re
import sys
import xml.etree.ElementTree as ET

import plait as mx
import pytest
from plait import nd
from plait.gluon import nn
from plait.graph.passes.memory import rounded
from plait.symbol import plot_program


def network():
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, in_channels=2), nn.Activation("tanh"), nn.Flatten(), nn.Dense(5))
        net.add(nn.HybridLambda(lambda F, x: F.sqrt(F.abs(x) + 1) * 3))
    net.initialize()
    return net


@pytest.fixture(scope="module")
def case():
    return network(), nd.ones((2, 2, 8, 8))


def test_program_has_a_box_for_each_instruction(case):
    net, x = case
    source = mx.viz.plot_program(net, x).source
    steps = int(re.search(r"(\d+) steps", source)[1])
    assert len(re.findall(r"^\s+n\d+ \[label=.*?<B>", source, re.M)) == steps
    assert "fused: 4 operators" in source and "abs, plus_scalar, sqrt, mul_scalar" in source
    assert "output 0" in source and "conv0_weight" not in source
    assert "2\u00d75" in source  # the last edge
    net.hybridize()
    net(x)
    assert sum(row.instructions for row in net.hybrid_report().rows) > 0  # and nothing is left over


def test_a_fused_activation_is_shown_by_its_name():
    net = nn.Conv2D(16, 3, in_channels=16, activation="tanh")
    net.initialize()
    source = mx.viz.plot_program(net, nd.ones((1, 16, 8, 8))).source
    assert re.search(r"kernel 3\u00d73, num_filter 16, act tanh<", source), source


def test_training_has_a_backward_program(case):
    net, x = case
    source = mx.viz.plot_program(net, x, training=True).source
    assert "backward: " in source and "kept by forward" in source and "in place" in source
    assert "<svg" in mx.viz.plot_program(net, x, training=True)._repr_mimebundle_()["image/svg+xml"]


def test_buffers_of_a_plan_do_not_overlap(case):
    net, x = case
    found, weights = plot_program._compiled(net, [x], True)
    assert {"hybridsequential0_conv0_weight"[-12:]} <= {w[-12:] for w in weights}
    places = 0
    for _, assigned in found:
        boxes = list(zip(assigned.buffers, assigned.offsets))
        for i, (a, at) in enumerate(boxes):
            assert at + rounded(a.nbytes) <= assigned.arena_bytes
            for b, other in boxes[:i]:
                apart = at + a.nbytes <= other or other + b.nbytes <= at
                assert apart or a.last < b.first or b.last < a.first
        places += len(boxes)
    picture = mx.viz.plot_memory(net, x, training=True)
    rects = list(ET.fromstring(picture.source).iter("{http://www.w3.org/2000/svg}rect"))
    assert len(rects) == places > 2
    assert "if none shared memory" in picture.source


def test_memory_of_one_step(tmp_path):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    picture = mx.viz.plot_memory(net, nd.ones((1, 3)))
    assert "no buffers" in picture._repr_svg_()
    assert picture.save(tmp_path / "plan.svg").endswith("plan.svg")
    assert (tmp_path / "plan.svg").read_text() == picture.source


def test_gradients_have_names(case):
    net, x = case
    source = mx.viz.plot_backward(net, x).source
    for name in ("conv0_weight", "conv0_bias", "dense0_weight", "dense0_bias"):
        assert f">gradient of {name}<" in source
    assert ">conv0_weight_grad<" in source and ">conv_grad_weight<" in source.replace("<B>", ">")
    assert ">output_grad<" not in source and "_grad<" in source


def test_networks_only():
    for plot in (mx.viz.plot_program, mx.viz.plot_memory, mx.viz.plot_backward):
        with pytest.raises(TypeError, match="must be a HybridBlock, got int"):
            plot(3, nd.ones((1,)))


# ---- errors --------------------------------------------------------------------------------------


class Broken(nn.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.a, self.b = nn.Dense(10, in_units=4), nn.Dense(12, in_units=4)

    def hybrid_forward(self, F, x):
        return F.tanh(F.elemwise_add(self.a(x) * 2, self.b(x)))


def red(source):
    return re.findall(r"label=<.*?<B>(\w+)</B>[^\n]*penwidth=3", source)


def test_the_failing_node_of_a_trace_is_red():
    net = Broken()
    net.initialize()
    net.hybridize()
    with pytest.raises(mx.MXNetError) as info:
        net(nd.ones((2, 4)))
    source = info.value.plot().source
    assert red(source) == ["elemwise_add"]
    assert "2\u00d710" in source and "2\u00d712" in source and "10\u00d74" in source
    text = " ".join(re.findall(r'COLOR="#b00020">(?:<B>)?([^<]*)', source))
    assert "got lhs (2, 10) and rhs (2, 12)" in text and "<B>tanh" not in source


def test_the_failing_node_of_a_symbol_is_red():
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=5, name="fc")
    bad = mx.sym.tanh(mx.sym.dot(x, mx.sym.var("w", shape=(7, 3)), name="product"))
    try:
        bad.infer_shape(data=(4, 6))
        pytest.fail("must not fit")
    except mx.MXNetError as error:
        source = mx.viz.plot_error().source  # the one that is handled
        copied = pickle.loads(pickle.dumps(error))
    assert red(source) == ["dot"]
    assert "4\u00d76" in source and "4\u00d75" in source and "7\u00d73" in source
    assert copied.failed is None and "product" in str(copied)
    with pytest.raises(ValueError, match="no error of an operator"):
        copied.plot()


def test_errors_behind_errors_and_none(monkeypatch):
    try:
        mx.sym.dot(mx.sym.var("a"), mx.sym.var("b")).infer_shape(a=(2, 3), b=(4, 5))
    except mx.MXNetError as error:
        try:
            raise KeyError("later") from error
        except KeyError as later:
            assert red(mx.viz.plot_error(later).source) == ["dot"]
    monkeypatch.delattr(sys, "last_exc", raising=False)
    monkeypatch.delattr(sys, "last_value", raising=False)
    with pytest.raises(ValueError, match="no error of an operator in a graph"):
        mx.viz.plot_error()
    with pytest.raises(ValueError, match="no error of an operator in a graph"):
        mx.viz.plot_error(ValueError("another"))
