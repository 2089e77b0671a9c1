"""HybridBlock.freeze: weights once, results bit for bit those of the compiled network."""

import weakref

import numpy as np
import pytest
from plait import MXNetError, autograd, cpu, gluon, nd
from plait.gluon import nn
from plait.graph.tiers import wait_compiled


def network(ctx=None, seed=0):
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(32, 3, padding=1, in_channels=3),
        nn.BatchNorm(in_channels=32),
        nn.Activation("relu"),
        nn.Conv2D(32, 3, padding=1, use_bias=False, in_channels=32),
        nn.BatchNorm(in_channels=32),
        nn.Conv2D(32, 1, in_channels=32),
        nn.GlobalAvgPool2D(),
        nn.Dense(5, in_units=32),
    )
    net.initialize(ctx=ctx)
    rng = np.random.default_rng(seed)
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.uniform(0.1, 0.5, p.shape)))
    return net


def picture(n=1, size=16):
    return nd.array(np.random.default_rng(n).normal(size=(n, 3, size, size)))


def compiled(net, x):
    net.hybridize()
    net(x), net(x)
    wait_compiled()
    return net(x).asnumpy()


def values(net):
    return [p for p in net.collect_params().values() if p._data is not None]


@pytest.mark.parametrize("hybrid", [False, True])
def test_results_are_those_of_the_compiled_network(hybrid):
    shapes = [picture(), picture(3, 20), picture(2, 9)]
    want = [compiled(network(), x) for x in shapes]
    net = network()
    net.hybridize(hybrid)
    net.freeze()
    for _ in range(2):
        for x, y in zip(shapes, want):
            np.testing.assert_array_equal(net(x).asnumpy(), y)


def test_parameters_are_freed_and_shapes_share_what_is_prepared():
    net = network()
    compiled(net, picture())
    arrays = [weakref.ref(p.data()) for p in net.collect_params().values()]
    n_bytes = sum(a().size * 4 for a in arrays)
    net.freeze()
    net(picture())
    kept = [r() for r in arrays if r() is not None]
    assert len(kept) == len(values(net)) < 6  # weight and bias of Dense, biases of convolutions
    prepared = net._frozen.prepared.bytes()
    assert prepared + sum(a.size * 4 for a in kept) < 1.3 * n_bytes  # channels filled up
    net(picture(4, 12))
    assert net._frozen.prepared.bytes() == prepared


def test_what_a_frozen_network_refuses(tmp_path):
    net = network()
    net.freeze()
    net(picture())
    for read in (
        lambda: net[0].weight.data(),
        lambda: net.save_parameters(str(tmp_path / "net.params")),
        lambda: net[0](picture()),
    ):
        with pytest.raises(MXNetError, match=r"freeze\(\) kept only what .* read"):
            read()
    for mode in (autograd.record, autograd.train_mode):
        with mode(), pytest.raises(MXNetError, match="is frozen and only predicts"):
            net(picture())
    net.hybridize()
    assert net(picture()).shape == (1, 5)


def test_loading_parameters_ends_it(tmp_path):
    net, file = network(), str(tmp_path / "net.params")
    net.save_parameters(file)
    want = net(picture()).asnumpy()
    net.freeze()
    net(picture())
    net.load_parameters(file)
    np.testing.assert_array_equal(net(picture()).asnumpy(), want)
    net.freeze()  # and a new value of one that was not freed
    net(picture())
    net[7].bias.set_data(nd.zeros(5))
    with pytest.raises(MXNetError, match="has no value"):
        net(picture())


def test_several_contexts():
    devices = [cpu(0), cpu(1)]
    net = network(devices)
    net.freeze()
    for device in (*devices, *devices):
        got = net(picture().as_in_context(device))
        assert got.context == device
        np.testing.assert_array_equal(got.asnumpy(), compiled(network(), picture()))


def test_a_shared_weight_that_is_read_as_it_is_stays():
    net = nn.HybridSequential()
    dense = nn.Dense(6, in_units=6)
    net.add(dense, nn.Dense(6, in_units=6, params=dense.params), nn.Dense(6, in_units=6))
    net.initialize()
    x = nd.random.normal(shape=(2, 6))
    want = compiled(net, x)
    net.freeze()
    np.testing.assert_array_equal(net(x).asnumpy(), want)
    assert len(values(net)) == 4  # products read row-major weights


def test_an_exported_network(tmp_path):
    net = network()
    want = compiled(net, picture())
    net.export(str(tmp_path / "net"))
    files = str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")
    again = gluon.SymbolBlock.imports(*files)
    again.freeze()
    np.testing.assert_array_equal(again(picture()).asnumpy(), want)
    assert len(values(again)) < 6


def test_a_network_whose_shapes_depend_on_values():
    class Masked(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.contrib.boolean_mask(x, x > 0)

    net = Masked()
    net.freeze()
    with pytest.raises(MXNetError, match="shapes that depend on values"):
        net(nd.array([1.0, -1.0, 2.0]))
