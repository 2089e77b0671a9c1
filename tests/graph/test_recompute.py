"""Recomputation: gradients stay, memory falls; what is computed again draws and writes nothing."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.graph import residuals as choice
from plait.graph.graph import Builder, Node, Value, topological, variable
from plait.graph.passes import recompute
from plait.graph.residuals import residuals

F = Builder(train=True)


class Unit(nn.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.conv = nn.Conv2D(8, 3, padding=1, in_channels=8)
            self.bn = nn.BatchNorm(in_channels=8)

    def hybrid_forward(self, F, x):
        return F.Dropout(F.relu(self.bn(self.conv(x))), p=0.2) + x


def deep(n):
    mx.random.seed(1)
    net = nn.HybridSequential()
    for _ in range(n):
        net.add(Unit())
    net.add(nn.Dense(3))
    net.initialize(mx.init.Xavier())
    return net


X = nd.array(np.random.RandomState(0).rand(2, 8, 16, 16))


def gradients(net, steps=4):
    found = []
    for _ in range(steps):
        mx.random.seed(5)
        with autograd.record():
            loss = (net(X) ** 2).sum()
        loss.backward()
        found.append([p.grad().asnumpy() for p in net.collect_params("^(?!.*running)").values()])
        mx.wait_compiled()
    return found


@pytest.mark.parametrize("how", [True, "blocks", "mirror", 0.5])
def test_gradients_and_statistics_stay_the_same(how):
    plain, other = deep(6), deep(6)
    plain.hybridize()
    other.hybridize(recompute=how)
    for a, b in zip(gradients(other), gradients(plain)):
        for got, want in zip(a, b):
            scale = np.abs(want).max()
            np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-4 * scale + 1e-7)
    for p, q in zip(*(net.collect_params(".*running").values() for net in (plain, other))):
        np.testing.assert_allclose(q.data().asnumpy(), p.data().asnumpy(), rtol=1e-4)


def test_a_deep_net_needs_less_memory():
    net = deep(24)
    held = {}
    for how in (False, 0.5, "blocks", True):
        net.hybridize(recompute=how)
        report = net.memory_report(X).training
        held[how] = report["residuals"] + report["arena"]
    assert held[True] < 0.45 * held[False] and held["blocks"] < 0.6 * held[False]
    assert held[True] < held[0.5] < 0.75 * held[False]


@pytest.mark.parametrize("how", [True, "blocks"])
def test_a_symbol_block_recomputes(how):
    x = mx.sym.var("data")
    y = x
    for i in range(12):
        y = mx.sym.tanh(mx.sym.FullyConnected(y, num_hidden=8, name=f"fc{i}"))
    net, kept, grads = gluon.SymbolBlock(y, x), [], []
    net.initialize(mx.init.Normal(0.3))
    data = nd.ones((16, 8))
    for asked in (False, how):
        net.hybridize(recompute=asked)
        with autograd.record():
            loss = net(data).sum()
        kept.append(sum(a.size for a in loss._tape[0].entries[0][0].saved.values()))
        loss.backward()
        grads.append([p.grad().asnumpy() for p in net.collect_params().values()])
    assert kept[1] < kept[0] / 2
    for a, b in zip(*grads):
        np.testing.assert_array_equal(a, b)


def test_recompute_accepts_documented_values():
    for wrong in ("all", -1, 1.5, [1]):
        with pytest.raises(ValueError, match="recompute must be"):
            deep(1).hybridize(recompute=wrong)
    with pytest.raises(mx.MXNetError, match="flag 'recomputed' is unknown"):
        deep(1).hybridize(recomputed=True)


# ---- choices -------------------------------------------------------------------------------------


def x_(shape, name="x"):
    return variable(name, F._zeros(shape=shape).type)


def test_free_values_are_not_stored():
    x, w = x_((4, 3)), x_((5, 3), "w")
    y = F.FullyConnected(x, w, no_bias=True, num_hidden=5)
    z = F.square(F._plus_scalar(y, scalar=1.0))  # its gradient reads y + 1
    out = F.broadcast_mul(z, y)
    plus = z.node.inputs[0]
    assert set(residuals([out], [w])) == {y, plus, z}
    assert residuals([out], [w], tier=1) == [y]
    v = x_((2, 5), "v")
    dense = F.FullyConnected(z, v, no_bias=True, num_hidden=2)
    # a product reads z: it would be written to memory again
    assert set(residuals([dense], [w, v], tier=1)) == {plus, z}
    # more than a few additions
    e = F.exp(y)
    assert set(residuals([F.broadcast_mul(e, y)], [w], tier=1)) == {y, e}


def test_an_input_that_backward_does_not_read_is_not_read_to_save_memory():
    x = x_((4, 3))
    y = F.relu(F._plus_scalar(x, scalar=1.0))
    assert residuals([y], [x], tier=1) == [y]  # x may be overwritten before backward


def test_nodes_that_are_forced_are_computed_again():
    x = x_((3,))
    node = F.tanh(x).node
    forced = Node(node.op, {}, (x,), "t", node.types, {"__force_mirroring__": "True"})
    assert residuals([F.square(F.tanh(x))], [x]) != []
    assert residuals([F.square(Value(forced))], [x]) == []


def test_mirroring_everything_spares_the_costly_operators(monkeypatch):
    x, w = x_((4, 3)), x_((5, 3), "w")
    y = F.FullyConnected(x, w, no_bias=True, num_hidden=5)
    out = F.square(F.tanh(F.sigmoid(y)))
    assert residuals([out], [w], recompute="mirror") == [y]
    monkeypatch.setattr(choice, "default", "mirror")  # as compat does
    assert residuals([out], [w]) == [y]


def test_a_chain_is_cut_where_it_costs_least():
    wide, narrow = x_((4, 100)), F.sum
    y = wide
    steps = []
    for _ in range(4):
        y = F.tanh(F.sigmoid(F.exp(F.square(y))))
        y = narrow(y, axis=1, keepdims=True)  # 4 numbers: here
        steps.append(y)
        y = F.broadcast_mul(y, wide)
    order = topological([y])
    needed = residuals([y], [wide])
    kept = recompute.to_keep(needed, recompute.segments(order, [y], needed))
    assert set(kept) <= set(steps) and len(kept) >= 2


def test_a_bound_symbol_with_mirroring_has_the_same_gradients():
    grads = []
    for force in ("False", "True"):
        with mx.AttrScope(force_mirroring=force):
            x = mx.sym.Variable("x")
            y = mx.sym.Dropout(mx.sym.tanh(x * 2), p=0.5)
        bound = (y * y).bind(mx.cpu(), {"x": nd.ones((50,))}, {"x": nd.zeros((50,))})
        for _ in range(3):
            mx.random.seed(3)
            bound.forward(is_train=True)
            bound.backward(nd.ones((50,)))
            grads.append(bound.grad_dict["x"].asnumpy())
            mx.wait_compiled()
    for g in grads[1:]:
        np.testing.assert_allclose(g, grads[0], rtol=1e-5)
    assert 0 < (grads[0] == 0).sum() < 50
