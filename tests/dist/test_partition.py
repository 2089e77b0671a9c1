"""Networks cut into stages: the cuts against a search through all of them, training against one
process and NumPy."""

import itertools
import random

import launched
import numpy as np
import plait as mx
import pytest
import staged
from plait import autograd, dist, gluon, nd
from plait.dist import measure
from plait.dist.cut import Costs, cut, in_order, lives
from plait.gluon import nn
from plait.graph.graph import Builder, variable
from plait.kernels.record import Type


def random_graph(seed: int):
    """(outputs, data, weights) of a graph of 9 operators."""
    draw, F = random.Random(seed), Builder()
    new = lambda name: variable(name, Type((2, draw.randint(1, 9)), "float32"))
    data, weights = new("data"), [new(f"w{i}") for i in range(4)]
    values = [data]
    for _ in range(8):
        a, b = draw.choice(values[-3:]), draw.choice([*values, *weights])
        values.append(F.dot(F.sum(a, axis=1, keepdims=True), F.sum(b, axis=0, keepdims=True)))
    return values[-1:], data, weights


def slowest(order, stages, lived, seconds, transfer) -> tuple[float, float]:
    """(the slowest stage, all messages) of a choice, by its definition."""
    found = []
    for s in range(max(stages) + 1):
        messages = 0.0
        for v, life in lived.items():
            home, readers = stages[life.made], {stages[k] for k in life.readers}
            received = home < s and s in readers
            sent = home == s and max(readers) > s
            messages += (received + sent) * transfer(v)
        found.append(
            (sum(seconds[n] for n, k in zip(order, stages) if k == s) + messages, messages)
        )
    return max(t for t, _ in found), sum(m for _, m in found)


@pytest.mark.parametrize("seed", range(12))
def test_the_cuts_are_the_best_of_all(seed):
    outputs, data, weights = random_graph(seed)
    order = in_order(outputs, weights)
    place = {n: k for k, n in enumerate(order)}
    assert all(place[v.node] < k for k, n in enumerate(order) for v in n.inputs if v.node in place)
    draw = random.Random(seed)
    seconds = {n: draw.random() for n in order}
    transfer = lambda v: 0.02 * v.shape[1]
    lived = lives(order, outputs, [data], ())
    parts = 2 + seed % 3
    chosen = cut(order, lived, weights, parts, Costs(seconds, transfer))
    assert sorted(chosen.stages) == chosen.stages and set(chosen.stages) == set(range(parts))
    best = min(
        slowest(
            order,
            [sum(c <= k for c in cuts) for k in range(len(order))],
            lived,
            seconds,
            transfer,
        )
        for cuts in itertools.combinations(range(1, len(order)), parts - 1)
    )
    assert chosen.slowest == pytest.approx(best[0])
    found = slowest(order, chosen.stages, lived, seconds, transfer)
    assert (chosen.slowest, chosen.messages) == pytest.approx(found)


def test_a_long_graph_is_cut_where_little_crosses():
    x = mx.sym.var("data")
    for i in range(400):  # 3 operators each; only the third's result is small
        x = mx.sym.tanh(mx.sym.tile(x, reps=(1, 50)))
        x = mx.sym.slice_axis(x, axis=1, begin=0, end=2)
    found = dist.partition(x, 4, {"data": (2, 2)}, costs={"tanh": 1.0}, link=(0.0, 1e3))
    assert all(abs(s.seconds - 100) < 3 for s in found.stages)
    assert [s.sent_bytes for s in found.stages] == [16, 16, 16, 0]


def test_steps_of_an_unrolled_layer_are_neighbours():
    """So that a stage has whole layers, and no weight is in two, although the graph is walked step
    by step: a state is read before an input."""
    s = mx.sym
    weights = {name: s.var(name) for name in ("low_state", "low_input", "high_state", "high_input")}
    dense = lambda x, name: s.FullyConnected(x, weights[name], no_bias=True, num_hidden=4)
    x, low, high = s.var("data"), s.zeros((2, 4)), s.zeros((2, 4))
    for t in range(5):
        word = s.slice_axis(x, axis=1, begin=4 * t, end=4 * t + 4)
        low = s.tanh(dense(low, "low_state") + dense(word, "low_input"))
        high = s.tanh(dense(high, "high_state") + dense(low, "high_input"))
    costs = {"FullyConnected": 1.0}
    found = dist.partition(high, 2, {"data": (2, 20)}, costs=costs, link=(0.0, 1e4))
    assert sorted(found.stages[0].parameters) == ["low_input", "low_state"]
    assert sorted(found.stages[1].parameters) == ["high_input", "high_state"]


@pytest.mark.parametrize("kind", staged.NETS)
@pytest.mark.parametrize("parts, schedule", [(2, "gpipe"), (3, "1f1b")])
def test_devices_of_one_process_give_the_weights_of_one_device(kind, parts, schedule):
    devices = [mx.cpu(i) for i in range(parts)]
    losses, net, found, pipe = staged.trained(kind, parts, schedule, devices)
    wanted, whole = staged.alone(kind)
    staged.near(losses, wanted)
    for name, value in staged.weights(net).items():
        staged.near(value, whole[name], name)
    for stage, device in zip(found.stages, devices):
        assert all(p.list_ctx() == [device] for p in stage.parameters.values())
    assert pipe.most_kept == (parts if schedule == "1f1b" else staged.MICRO)


def test_a_placed_network_is_called_like_the_network():
    net, whole = staged.made("skips"), staged.made("skips")
    placed = dist.partition(net, 3, costs={"Convolution": 1.0}, link=staged.LINK)
    placed = placed.on([mx.cpu(2), mx.cpu(0), mx.cpu(1)])
    x = nd.array(np.random.default_rng(1).standard_normal((4, 2, 6, 6)))
    assert placed(x).context == mx.cpu(1)
    staged.near(placed(x).asnumpy(), whole(x).asnumpy())
    staged.near(placed(x[:3]).asnumpy(), whole(x[:3]).asnumpy())  # another shape: the same cuts
    for net in (placed, whole):
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
    for name, p in placed.collect_params().items():
        if p.grad_req != "null":
            staged.near(p.grad().asnumpy(), whole.collect_params()[name].grad().asnumpy(), name)


def test_parameters_may_be_frozen_and_trained_in_between():
    """What travels depends on it."""
    net, x, y = staged.made("frozen"), nd.ones((4, 2, 6, 6)), nd.zeros(4)
    found = dist.partition(net, 2, costs={"Convolution": 1.0}, link=staged.LINK)
    crossing = lambda: [c.differentiable for c in found.graphs([x])[0].sends]
    net.collect_params().setattr("grad_req", "null")
    assert crossing() and not any(crossing())
    net.collect_params(".*conv.*").setattr("grad_req", "write")
    assert all(crossing())
    pipe = dist.pipeline(found, staged.loss, 2, devices=[mx.cpu(0), mx.cpu(1)])
    pipe.step(x, y)
    assert net.first.weight.grad().asnumpy().any()


class Two(gluon.HybridBlock):
    """Two inputs and two outputs."""

    def __init__(self):
        super().__init__(prefix="two_")
        self.a, self.b = nn.Dense(3, in_units=2, prefix="a_"), nn.Dense(3, in_units=3, prefix="b_")

    def hybrid_forward(self, F, x, y):
        first = self.a(x)
        return {"one": first}["one"], [self.b(first) * y]


def test_several_inputs_and_outputs():
    net = Two()
    net.initialize(mx.init.Constant(0.5))
    x, scale, y = nd.ones((4, 2)), nd.arange(4).reshape((4, 1)), nd.zeros((4, 3))
    found = dist.partition(net, 2, costs={"FullyConnected": 1.0}, link=staged.LINK)
    difference = lambda outputs, y: ((outputs[0] + outputs[1][0] - y) ** 2).sum(axis=1)
    pipe = dist.pipeline(found, difference, 2, devices=[mx.cpu(0), mx.cpu(1)])
    got = pipe.step((x, scale), y)
    # a(x) is 1, b of that 1.5
    np.testing.assert_allclose(got.asnumpy(), 3 * (1 + 1.5 * np.arange(4)) ** 2, rtol=1e-6)


def test_memory_moves_the_cut():
    net = nn.HybridSequential()
    net.add(*[nn.Dense(n, in_units=m, use_bias=False) for m, n in [(2, 100), (100, 2), (2, 2)]])
    x = nd.ones((1, 2))
    costs = {"FullyConnected": 1.0}
    free = dist.partition(net, 2, x, costs=costs, link=(0.0, 1e3))
    assert [s.weight_bytes for s in free.stages] == [1600, 16]  # little crosses
    tight = dist.partition(net, 2, x, costs=costs, link=(0.0, 1e3), memory=2500)
    assert [s.weight_bytes for s in tight.stages] == [800, 816]
    with pytest.raises(ValueError, match=r"keep each within memory=2.0 kB\n  fix: memory=2400,"):
        dist.partition(net, 2, x, costs=costs, link=(0.0, 1e3), memory=2000)


def test_without_costs_operators_and_messages_are_measured(monkeypatch):
    """Equal operators once, without what it takes to call one; here by a clock that counts."""
    net = nn.HybridSequential()
    net.add(*[nn.Dense(n, prefix=f"d{i}_") for i, n in enumerate([512, 512, 512, 2])])
    x = nd.ones((4, 2))
    real = dist.partition(net, 2, x)
    assert sum(s.seconds for s in real.stages) >= 0 and all(n > 0 for n in real.link)
    asked = []

    def size_of(node, types, device):
        asked.append(node)
        return 1.0 + sum(np.prod(t.shape) for t in types)

    monkeypatch.setattr(measure, "_time", size_of)
    found = dist.partition(net, 2, x, link=staged.LINK)
    assert len(asked) == 1 + 3  # d1 and d2 are alike
    assert [s.operators for s in found.stages] == [["d0_fwd", "d1_fwd"], ["d2_fwd", "d3_fwd"]]
    d0, d1 = (4 * m + n * m + n - 1 for m, n in ((2, 512), (512, 512)))
    assert found.stages[0].seconds == d0 + d1


def test_a_partition_prints_and_draws_what_it_chose(tmp_path):
    found = dist.partition(staged.made("skips"), 3, costs={"Convolution": 1.0}, link=staged.LINK)
    assert str(found) == "<Partition of skips into 3 stages>, which the first batch decides"
    found.choose([nd.ones((3, 2, 6, 6))])
    lines = str(found).splitlines()
    assert lines[0].split() == ["stage", *"ms weights results receives sends operators".split()]
    times = [line.split()[1] for line in lines[1:]]
    assert times.count("2000.00") == 2 and times.count("1000.00") == 1
    places = {"one": 0, "two": 1, "three": 2}
    grouped = dist.partition(staged.grouped(), groups=places, data=staged.SHAPES)
    picture = grouped.draw(tmp_path / "stages.svg")
    assert (tmp_path / "stages.svg").read_bytes().lstrip().startswith(b"<?xml")
    assert picture.source.count("subgraph cluster_") == 3
    assert picture.source.count("#d32f2f") == 3  # edges one-two, two-three, one-three


# ---- mistakes ------------------------------------------------------------------------------------


def test_mistakes_are_told():
    net, x = staged.made("skips"), nd.ones((3, 2, 6, 6))
    quick = {"costs": {}, "link": staged.LINK}
    with pytest.raises(ValueError, match="exactly one of parts and groups"):
        dist.partition(net)
    with pytest.raises(ValueError, match="parts must be an integer of at least 1, got 0"):
        dist.partition(net, 0)
    with pytest.raises(ValueError, match="100 stages need 99 cuts, but the graph has 17 places"):
        dist.partition(net, 100, x, **quick)
    with pytest.raises(TypeError, match="must be a HybridBlock or a Symbol, got Sequential"):
        dist.partition(nn.Sequential(), 2)
    with pytest.raises(TypeError, match="data of a Symbol must be a dictionary"):
        dist.partition(staged.grouped(), 2)
    found = dist.partition(net, 2, **quick)
    with pytest.raises(mx.MXNetError, match="no stages yet\n  fix: give data=x"):
        found.stages[0]
    with pytest.raises(ValueError, match="2 stages need as many devices, got 1"):
        found.on([mx.cpu()])
    with pytest.raises(ValueError, match="a stage for each rank of the group, got 2 stages for 1"):
        dist.pipeline(found, staged.loss)
    with pytest.raises(ValueError, match="devices need a Partition"):
        dist.pipeline([net], staged.loss, devices=[mx.cpu()])

    with pytest.raises(
        ValueError, match="no operator of the graph is called 'Convolutoin'\n  fix: did"
    ):
        dist.partition(net, 2, x, costs={"Convolutoin": 1.0})


def test_groups_that_lead_back_are_refused():
    groups, shapes = {"one": 0, "two": 2, "three": 1}, {"data": staged.SHAPES}
    with pytest.raises(ValueError, match="is made in stage 2, but stage 1 reads it"):
        dist.partition(staged.grouped(), groups=groups, **shapes)
    with pytest.raises(ValueError, match="stage 1 has no operators"):
        dist.partition(staged.grouped(), groups={"one": 0, "two": 2, "three": 2}, **shapes)
    with pytest.raises(ValueError, match="is of ctx_group 'three', which has no stage"):
        dist.partition(staged.grouped(), groups={"one": 0, "two": 1}, **shapes)
    with pytest.raises(ValueError, match="groups must be numbers of stages, got"):
        dist.partition(staged.grouped(), groups={"one": 0, "two": -1}, **shapes)


def test_what_is_written_stays_in_one_stage():
    """The running means of a BatchNorm that is used twice."""
    names = ("gamma", "beta", "moving_mean", "moving_var")
    states = [mx.sym.var(f"bn_{n}") for n in names]
    x = mx.sym.var("data")
    for group in ("one", "two"):
        with mx.AttrScope(ctx_group=group):
            x = mx.sym.tanh(mx.sym.BatchNorm(mx.sym.tanh(x), *states))
    data = {"data": (3, 4)}
    with pytest.raises(ValueError, match="bn_moving_mean is written, so it must be in one stage"):
        dist.partition(x, groups={"one": 0, "two": 1}, data=data)
    found = dist.partition(x, 2, data, costs={"tanh": 1.0}, link=staged.LINK)
    assert any(sum("batchnorm" in n for n in s.operators) == 2 for s in found.stages)


class Deeper(gluon.HybridBlock):
    """More operators for longer inputs."""

    def hybrid_forward(self, F, x):
        for _ in range(x.shape[1]):
            x = F.tanh(x)
        return x


def test_a_graph_of_other_operators_is_refused():
    placed = dist.partition(Deeper(), 2, costs={}, link=staged.LINK).on([mx.cpu(0), mx.cpu(1)])
    placed(nd.ones((2, 3)))
    with pytest.raises(ValueError, match=r"other operators for inputs of shapes \(2, 4\)"):
        placed(nd.ones((2, 4)))


# ---- ranks ---------------------------------------------------------------------------------------

CASES = {
    2: ["ranks,skips,1f1b", "groups,gpipe", "own", "measured"],
    3: ["ranks,frozen,1f1b", "ranks,words,gpipe", "groups,1f1b"],
    4: ["ranks,steps,1f1b", "both"],
}


@pytest.mark.parametrize("n", CASES)
def test_ranks_give_the_weights_of_one_process(n):
    printed = launched.succeed(n, ["staged.py", *CASES[n]])
    assert printed.count("done") == len(CASES[n]), printed
