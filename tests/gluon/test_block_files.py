"""Parameter files of blocks between MXNet 1.9.1 and here: fixtures/symbol_block.params and all
names and numbers are MXNet's."""

from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd, sym
from plait.gluon import nn

MXNETS = str(Path(__file__).parent.parent / "fixtures" / "symbol_block.params")


class Net(nn.HybridBlock):
    """A graph with parameters of its own, and a layer."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            body = nn.HybridSequential(prefix="body_")
            with body.name_scope():
                body.add(nn.Dense(2, in_units=3), nn.BatchNorm(in_channels=2))
            data = sym.var("data")
            self.backbone = gluon.SymbolBlock(body(data), data, params=body.collect_params())
            self.out = nn.Dense(1, in_units=2)

    def hybrid_forward(self, F, x):
        return self.out(self.backbone(x))


def test_symbol_block_in_a_block(tmp_path):
    x = nd.array([[1, 2, 3]])
    first = Net()
    first.load_parameters(MXNETS)
    np.testing.assert_allclose(first(x).asnumpy(), [[1.0726006]], rtol=1e-6)
    ours = str(tmp_path / "ours.params")
    first.save_parameters(ours)
    assert sorted(nd.load(ours)) == sorted(nd.load(MXNETS))
    second = Net()  # other global names
    second.load_parameters(ours)
    np.testing.assert_array_equal(second(x).asnumpy(), first(x).asnumpy())


def test_structural_names_of_small_graphs():
    data = sym.var("data")
    assert list(gluon.SymbolBlock(data * 2, data)._collect_params_with_prefix()) == []
    one = gluon.SymbolBlock(sym.broadcast_mul(data, sym.var("w", shape=(1,))), data)
    assert list(one._collect_params_with_prefix()) == [""]


def test_save_params_writes_full_names(tmp_path):
    file = str(tmp_path / "old.params")
    net = nn.HybridSequential(prefix="")
    net.add(nn.Dense(5, prefix="fc_", in_units=2))
    net.initialize()
    x = nd.ones((1, 2))
    with pytest.warns(UserWarning, match="deprecated"):
        net.save_params(file)
    assert sorted(nd.load(file)) == ["fc_bias", "fc_weight"]
    data = sym.var("data")
    again = gluon.SymbolBlock(net(data), data)
    with pytest.warns(UserWarning, match="deprecated"):
        again.load_params(file, ctx=mx.cpu())
    np.testing.assert_array_equal(again(x).asnumpy(), net(x).asnumpy())


class Named(nn.Block):
    """Registers children under their own names, which have counters; its class ends in one."""

    def add(self, block):
        self._children[block.name + str(len(self._children))] = block

    def forward(self, x):
        for block in self._children.values():
            x = block(x)
        return x


Named2 = type("Named2", (Named,), {})


@pytest.mark.parametrize("kind", [Named, Named2])
def test_load_matches_children_by_their_order(kind, tmp_path):
    nets = [kind(), kind()]
    for net in nets:
        net.add(nn.Dense(3, in_units=2))
        net.add(nn.Dense(1, in_units=3))
    nets[0].initialize()
    nets[0].save(str(tmp_path / "m"))
    nets[1].load(str(tmp_path / "m"))
    x = nd.ones((1, 2))
    np.testing.assert_array_equal(nets[1](x).asnumpy(), nets[0](x).asnumpy())
    assert list(nets[1]._children) == list(nets[0]._children)
