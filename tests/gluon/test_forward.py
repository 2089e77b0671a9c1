"""Blocks that override `forward`: Python at every call, as in MXNet 1.9.1, whose numbers these
are."""

import pytest
from plait import MXNetError, autograd, gluon, nd, sym
from plait.gluon import nn

X = nd.ones((1, 2))


class Scaled(nn.Dense):
    """A dense layer with Python around it."""

    def __init__(self):
        super().__init__(1, weight_initializer="ones")
        self.scale, self.calls = 1.0, 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.scale


class Parent(nn.HybridBlock):
    def __init__(self, child):
        super().__init__()
        with self.name_scope():
            self.child = child

    def hybrid_forward(self, F, x):
        return self.child(x)


class ByValue(nn.HybridBlock):
    """What it computes depends on numbers; it has no hybrid_forward."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(2, weight_initializer="ones")

    def forward(self, x):
        y = self.dense(x)
        return y * float(y.sum().asscalar())


def ready(net):
    net.initialize()
    net.hybridize()
    return net


def values(net, scaled):
    found = []
    for scaled.scale in (1, 2, 3):
        found.append(net(X).asscalar())
    return found


def test_overridden_forward_runs_at_every_call():
    net = ready(Scaled())
    assert values(net, net) == [2, 4, 6]
    assert net.calls == 3
    with autograd.record():
        y = net(X)  # times 3
    y.backward()
    assert net.weight.grad().asnumpy().tolist() == [[3, 3]]


def test_traced_parent_calls_overridden_forward_once():
    net = ready(Parent(Scaled()))
    assert values(net, net.child) == [2, 2, 2]
    assert net.child.calls == 1


def test_a_parent_with_python_calls_its_children_as_graphs():
    net = ready(ByValue())
    for x in (X, 2 * X):
        want = 8 * x[0, 0].asscalar() ** 2
        assert net(x).asnumpy().tolist() == [[want, want]]
    assert [row.hits for row in net.hybrid_report().rows] == [2]
    outer = nn.HybridSequential()
    outer.add(ByValue())
    outer = ready(outer)
    with pytest.raises(MXNetError, match="asscalar is not available for a Symbol"):
        outer(X)


def test_forward_can_be_overridden_on_an_instance():
    net = nn.Dense(1, weight_initializer="ones")
    scale, forward = [2], net.forward
    net.forward = lambda x: forward(x) * scale[0]
    ready(net)
    assert net(X).asscalar() == 4
    scale[0] = 5
    assert net(X).asscalar() == 10


def test_graph_inputs_are_what_forward_received(tmp_path):
    net = ready(Scaled())
    net(X)
    net.export(str(tmp_path / "net"))
    graph = sym.load(str(tmp_path / "net-symbol.json"))
    assert graph.list_outputs() == [net.name + "_fwd_output"]  # without the scale
    only = ready(ByValue())
    only(X)
    with pytest.raises(MXNetError, match="call block.hybridize.*\n.*ByValue.hybrid_forward"):
        only.export(str(tmp_path / "only"))
    with pytest.raises(NotImplementedError, match="must define hybrid_forward"):
        only.infer_shape(X)


class Doubled(nn.HybridBlock):
    """Gives super().forward a wider array: the weight has its width."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.weight = self.params.get("weight", shape=(3, 0), allow_deferred_init=True)

    def forward(self, x):
        return super().forward(nd.array(x.asnumpy().repeat(2, axis=1)))

    def hybrid_forward(self, F, x, weight):
        return F.FullyConnected(x, weight, no_bias=True, num_hidden=3)


@pytest.mark.parametrize("hybrid", [False, True])
def test_deferred_initialization_sees_what_forward_received(hybrid):
    net = Doubled()
    net.initialize()
    net.hybridize(hybrid)
    assert net(X).shape == (1, 3) and net.weight.shape == (3, 4)
    other = Doubled()
    other.initialize()
    other.infer_shape(X)
    assert other.weight.shape == (3, 2)


def test_default_arguments_do_not_change_the_structure():
    class Either(nn.HybridBlock):
        def hybrid_forward(self, F, x, y=None):
            return x if y is None else x + y

    net = ready(Either())
    for args in ((X,), (X, None), (X,)):
        assert net(*args).asnumpy().tolist() == [[1, 1]]
    with pytest.raises(ValueError, match=r"input format = \[0, 0\]"):
        net(X, X)


def test_a_symbol_block_inside():
    data = sym.var("data")
    block = gluon.SymbolBlock(data * 2, data)
    assert ready(Parent(block))(X).asnumpy().tolist() == [[2, 2]]
