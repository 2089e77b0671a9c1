"""Recent keeps what was used last; what is made for shapes is made once for each of many shapes."""

import gc
import weakref
from collections import OrderedDict

import numpy as np
import plait as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plait import autograd, gluon, nd
from plait.engine.recent import Recent
from plait.gluon import hybrid, nn
from plait.kernels.spec import spec
from plait.kernels.traits import Subgraphs
from plait.ndarray import backward, cached

N_SHAPES = 300  # more than any cache held before it was emptied as a whole


@given(st.integers(1, 6), st.lists(st.integers(0, 20), max_size=80))
def test_the_values_used_last_are_there(size, keys):
    cache, used = Recent(size), OrderedDict()
    for key in keys:
        if key in list(used)[-size:]:
            assert cache[key] == key + 1
        elif cache[key] is None:
            cache[key] = key + 1
        used[key] = None
        used.move_to_end(key)
        assert len(cache) == len(list(cache)) <= 2 * size
        assert set(list(used)[-size:]) <= set(cache)
    assert dict(cache.items()) == {k: k + 1 for k in cache}
    assert sorted(cache.values()) == sorted(k + 1 for k in cache)


def test_as_a_dict():
    cache = Recent(1)
    cache["a"] = 1
    cache["b"] = 2
    assert cache.older == {"a": 1} and len(cache) == 2 and "a" in cache
    assert cache.get("c", 7) == 7 and cache.setdefault("c", 3) == 3 == cache.setdefault("c", 4)
    assert cache.pop("b") == 2 and "b" not in cache and cache.pop("b", 5) == 5
    cache.clear()
    assert len(cache) == 0 and cache["c"] is None


@given(st.integers(1, 4), st.integers(1, 12), st.lists(st.integers(0, 9), max_size=60))
def test_values_have_weights(size, capacity, keys):
    cache, used = Recent(size, capacity, lambda value: value), OrderedDict()
    for key in keys:
        if cache[key] is None:
            cache[key] = key
        used[key] = None
        used.move_to_end(key)
        # at least what fits is there, at most twice as much
        assert sum(cache.values()) <= 2 * max(capacity, 9) and len(cache) <= 2 * size
        last = list(used)[::-1]
        fits = next(
            (i for i in range(len(last) + 1) if sum(last[:i]) > capacity or i > size), len(last) + 1
        )
        assert set(last[: max(1, fits - 1)]) <= set(cache)


def test_large_graphs_are_fewer(monkeypatch):
    """What a net keeps for its shapes is bounded by its size, not only by their number."""
    monkeypatch.setenv("PLAIT_TIER", "0")
    monkeypatch.setattr(hybrid, "MAX_NODES", 200)
    monkeypatch.setattr(cached, "MAX_INSTRUCTIONS", 200)
    monkeypatch.setattr(backward, "_programs", Recent(4096, 200, backward.weight))
    traces = Counted(monkeypatch, hybrid, "Trace")
    plans = Counted(monkeypatch, cached, "GraphPlan")
    for flat in (False, True):
        net = nn.HybridSequential()
        for _ in range(10):  # some 30 nodes: 6 shapes, at most 12
            net.add(nn.Dense(2, flatten=False, in_units=2))
        net = Flat(net) if flat else net
        net.initialize()
        net.hybridize()
        for n in range(1, 60):
            with autograd.record():
                y = net(nd.ones((n, 2)))
            y.backward()
        del y
        gc.collect()
        n_graphs = len(net._graphs())
        assert 6 <= n_graphs <= 13 if flat else n_graphs == 1
        assert 10 <= len(plans.alive) <= 100 and len(backward._programs) <= 40
    assert traces.made == 1 + 59


class Flat(gluon.HybridBlock):
    """Its graph holds the length: one for each."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def hybrid_forward(self, F, x):
        return F.reshape(self.body(x), shape=(x.shape[0] * x.shape[1],))


class Counted:
    """Counts how often a class makes an object, and the objects that live."""

    def __init__(self, monkeypatch, module, name):
        self.made, self.alive, kind = 0, weakref.WeakSet(), getattr(module, name)
        counted = self

        class Watched(kind):
            def __init__(self, *args, **kwargs):
                counted.made += 1
                counted.alive.add(self)
                super().__init__(*args, **kwargs)

        monkeypatch.setattr(module, name, Watched)


def dense():
    net = nn.Dense(2, flatten=False)
    net.initialize()
    net.hybridize()
    return net


@pytest.mark.parametrize("flat", [False, True])
def test_a_hybridized_block_traces_each_of_many_shapes_once(monkeypatch, flat):
    traces, net = Counted(monkeypatch, hybrid, "Trace"), dense()
    if flat:
        net = Flat(net)
        net.hybridize()
    for _ in range(2):
        for n in range(1, N_SHAPES):
            assert net(nd.ones((n, 2))).shape == ((2 * n,) if flat else (n, 2))
    assert traces.made == (N_SHAPES - 1 if flat else 1)


def test_a_graph_compiles_each_of_many_shapes_once(monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")
    plans, x = Counted(monkeypatch, cached, "GraphPlan"), mx.sym.var("x")
    graph = gluon.SymbolBlock(mx.sym.relu(x), x)
    graph.hybridize()
    for _ in range(2):
        for n in range(1, N_SHAPES):
            graph(nd.ones((n,)))
    assert plans.made == N_SHAPES - 1


def test_backward_compiles_each_of_many_shapes_once(monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")
    monkeypatch.setattr(backward, "_programs", Recent(backward.MAX_PROGRAMS))
    programs = Counted(monkeypatch, backward, "Backward")
    for _ in range(2):
        for n in range(1, 600):
            x = nd.ones((n,))
            x.attach_grad()
            with autograd.record():
                y = x * x
            y.backward()
    assert programs.made == 599


def test_a_module_binds_each_of_many_shapes_once(monkeypatch):
    bound = []
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (1, 3))], for_training=False)
    module.init_params()
    reshaped = module._exec_group._reshaped
    monkeypatch.setattr(
        module._exec_group, "_reshaped", lambda *args: bound.append(1) or reshaped(*args)
    )
    for _ in range(2):
        for n in range(1, N_SHAPES):
            module.forward(mx.io.DataBatch([nd.ones((n, 3))]), is_train=False)
    assert len(bound) == N_SHAPES - 2


def test_what_is_not_used_any_more_is_freed(monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")
    monkeypatch.setattr(cached, "N_COMPILED", 8)
    monkeypatch.setattr(cached, "MAX_ASIDE", 8)
    monkeypatch.setattr(backward, "_programs", Recent(8))
    traces = Counted(monkeypatch, hybrid, "Trace")
    plans = Counted(monkeypatch, cached, "GraphPlan")
    net = dense()
    for n in range(1, 100):
        with autograd.record():
            y = net(nd.ones((n, 3)))
        y.backward()
    del y
    gc.collect()
    assert traces.made == len(traces.alive) == 1 and len(plans.alive) <= 48


def test_a_spec_is_one_object_however_many_others_were_made():
    held = spec((3, 5), "float32", mx.cpu())
    for n in range(1 << 16):
        spec((n, 7), "int8", mx.cpu())
    assert spec((3, 5), "float32", mx.cpu()) is held


@pytest.mark.parametrize("n", [5000])
def test_control_flow_keeps_its_bodies_after_many_shapes(n):
    x = mx.sym.var("x")
    out, _ = mx.sym.contrib.foreach(lambda d, s: (d + s, d + s), x, mx.sym.var("s"))
    (op,) = {v.node.op for v in out._outputs if v.node.op and v.node.op.has(Subgraphs)}
    for i in range(n):
        op.plans[i] = object()
    assert '"subgraphs"' in out.tojson()
    op.plans.clear()
    again = mx.sym.load_json(out.tojson())
    got = again.eval(x=nd.ones((3, 2)), s=nd.zeros((2,)))[0].asnumpy()
    np.testing.assert_array_equal(got, np.cumsum(np.ones((3, 2)), 0))
