"""Layers of recorded operations, the critical path, and the picture of a step."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.engine import profiler
from plait.engine.critical_path import critical_path
from plait.engine.profile_events import Span, with_layers
from plait.gluon import nn


class Net(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(4, 3, activation="relu"), nn.Dense(6))
            self.out = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return self.out(F.tanh(self.body(x)))


class Outer(gluon.Block):
    """Not hybridized itself: its child becomes the graph."""

    def __init__(self):
        super().__init__()
        self.inner = Net()

    def forward(self, x):
        return self.inner(x)


LAYERS = {"body.0 (Conv2D)", "body.0.act (Activation)", "body.1 (Dense)", "out (Dense)", "Net"}


def run(net, hybridize, steps=1):
    net.initialize()
    if hybridize:
        net.hybridize()
    x = nd.random.normal(shape=(2, 1, 8, 8))

    def step():
        with autograd.record():
            y = (net(x) ** 2).sum()
        y.backward()

    for _ in range(steps):
        step()
    mx.wait_compiled()
    nd.waitall()
    with profiler.recording() as spans:
        step()
        nd.waitall()
    return with_layers(spans)


def layers_of(spans, backward):
    programs = {s.seq for s in spans if s.name == "backward"}
    return {
        part
        for s in spans
        if (s.seq in programs) == backward and s.category in ("operator", "instruction")
        for part in s.args.get("layer", "").split(", ")
    } - {""}


@pytest.mark.parametrize("hybridize, steps", [(False, 1), (True, 1), (True, 40)])
def test_operations_have_their_layers_forward_and_backward(hybridize, steps):
    spans = run(Net(), hybridize, steps)
    assert LAYERS <= layers_of(spans, False) | {"Net"} and "Net" in layers_of(spans, False)
    assert {"body.0 (Conv2D)", "body.1 (Dense)", "out (Dense)"} <= layers_of(spans, True)


def test_a_graph_inside_has_the_path_from_the_network():
    spans = run(Outer(), True)
    found = layers_of(spans, False)
    assert {"inner.body.0 (Conv2D)", "inner.out (Dense)"} <= found


def test_networks_of_one_structure_keep_their_names():
    def twin(kind):
        class Made(gluon.Block):
            def __init__(self):
                super().__init__()
                setattr(self, kind, nn.Dense(3))

            def forward(self, x):
                return getattr(self, kind)(x)

        return Made()

    for kind in ("first", "second", "first"):  # they share a gradient program
        assert f"{kind} (Dense)" in layers_of(run(twin(kind), False), True)


def op(seq, thread, start, end, cause=0, pushed=0, pusher=""):
    return Span(f"op{seq}", "operator", start, end, thread, {}, False, seq, cause, pushed, pusher)


def longest(spans):
    """The longest chain of edges push, dependency and lane order, tried one by one."""

    def length(s):
        before = [o for o in spans if o is not s and o.end <= s.start]
        tied = [o for o in before if o.seq == s.cause or o.thread == s.thread]
        return (s.end - s.start) + max(map(length, tied), default=0)

    return max(map(length, spans))


def test_the_critical_path_is_the_longest_chain():
    spans = [
        op(1, "a", 0, 10),
        op(2, "a", 10, 40),
        op(3, "b", 10, 25, cause=1),
        op(4, "b", 40, 90, cause=2),
        op(5, "a", 40, 70, cause=3),
        op(6, "a", 90, 95, cause=4),
    ]
    path = critical_path(spans)
    assert [p.span.seq for p in path] == [1, 2, 4, 6]
    assert sum(p.end - p.start for p in path) == longest(spans) == 95
    assert all(a.end == b.start for a, b in pairwise(path))


def test_the_critical_path_goes_through_waits_and_python():
    wait = Span("asnumpy", "wait", 12, 32, "main", {}, False, 1)
    spans = [
        op(1, "cpu", 10, 30, pushed=5, pusher="main"),
        wait,
        op(2, "cpu", 55, 60, pushed=50, pusher="main"),
    ]
    found = [(p.thread, p.start, p.end, p.span and p.span.seq) for p in critical_path(spans)]
    assert found == [
        ("cpu", 5, 10, None),  # pushed, and woken up
        ("cpu", 10, 30, 1),
        ("main", 30, 32, None),  # the wait ends
        ("main", 32, 50, None),  # Python
        ("cpu", 50, 55, None),
        ("cpu", 55, 60, 2),
    ]
    assert critical_path([]) == []


def test_a_step_as_a_picture(tmp_path):
    net, loss = Net(), gluon.loss.SoftmaxCrossEntropyLoss()
    net.initialize()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    x, y = nd.random.normal(shape=(32, 1, 28, 28)), nd.array([0, 1] * 16)
    made = net.timeline(x, loss=loss, labels=y, trainer=trainer, path=tmp_path / "step.svg")
    assert (tmp_path / "step.svg").read_text() == made.svg == made._repr_svg_()
    assert "critical path" in str(made) and 0 < made.seconds < 60
    assert [name for name, _ in made.phases] == ["forward", "backward", "update"]
    path = made.critical_path
    assert path[0].start == made.start and path[-1].end == made.end
    assert all(a.end == b.start for a, b in pairwise(path))
    root = ET.fromstring(made.svg)
    tag = lambda e: e.tag.rpartition("}")[2]
    texts = " ".join(t.text or "" for t in root.iter() if tag(t) == "text")
    # the thread that waits may run what the lane's own would have to wake up for
    for word in ("forward", "backward", "update", "critical path", "MainThread"):
        assert word in texts
    assert re.search(r"\d (ms|µs)", texts)
    boxes = [g for g in root.iter() if tag(g) == "g"]
    titles = " ".join(g[0].text for g in boxes)
    assert "layer body.0 (Conv2D)" in titles and "shapes (32, 1, 28, 28)" in titles
    assert "queued for" in titles and "marker-end" in made.svg
    for g in boxes:
        left, width = float(g[1].get("x")), float(g[1].get("width"))
        assert left >= 0 and left + width <= 1201
        for text in g:
            if tag(text) == "text":
                assert len(text.text) * 5 <= width


def test_timeline_leaves_the_profile_of_the_user_alone():
    net = nn.Dense(2)
    net.initialize()
    profiler.dumps(reset=True)
    made = net.timeline(nd.ones((1, 3)))
    assert any(s.name == "FullyConnected" for s in made.spans)
    assert "FullyConnected" not in profiler.dumps()
    with pytest.raises(ValueError, match="labels are given without loss"):
        net.timeline(nd.ones((1, 3)), labels=nd.ones((1, 2)))
    with pytest.raises(ValueError, match="warmup must be >= 0"):
        net.timeline(nd.ones((1, 3)), warmup=-1)
