"""Tiers: what repeats is compiled in the background and serves from a fixed call on; nothing is
lost when that fails."""

import gc
import os
import subprocess
import sys
import threading
import weakref

import dags
import hypothesis
import numpy as np
import plait as mx
import pytest
from hypothesis import strategies as st
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.graph import passes, runner, tiers
from plait.graph.graph import Builder, topological, variable
from plait.ndarray import backward
from plait.ndarray.cached import CachedGraph

F = Builder()


class Gate:
    """`lower` as the tiers call it, which at tier 1 waits until it is opened, or fails."""

    def __init__(self, lower, fails=False):
        self.lower, self.fails = lower, fails
        self.open, self.entered = threading.Event(), threading.Event()
        self.names = []

    def __call__(self, *args, tier=0, **kwargs):
        if tier:
            self.names.append(args[3])
            self.entered.set()
            assert self.open.wait(60)
            if self.fails:
                raise ArithmeticError("no luck today")
        return self.lower(*args, tier=tier, **kwargs)


@pytest.fixture
def gate(monkeypatch):
    mx.wait_compiled()
    made = Gate(runner.lower)
    monkeypatch.setattr(runner, "lower", made)
    monkeypatch.setattr(tiers, "BEGINS_AFTER", tiers.NEVER)  # the compiler begins at once
    yield made
    made.open.set()
    tiers._compiler.error = None
    mx.wait_compiled()


def small(name="small"):
    x, w = (variable(n, F._zeros(shape=(3, 3)).type) for n in "xw")
    return CachedGraph([F.tanh(F.dot(x, w))], [x, w], name, 1)


def entry_of(graph):
    (entry,) = graph.entries.values()
    return entry


A, W = nd.array(np.arange(9).reshape(3, 3) / 10), nd.array(np.eye(3) * 2 + 0.1)
WANT = np.tanh(A.asnumpy() @ W.asnumpy())


def test_repeated_graphs_are_swapped_without_waiting(gate):
    graph = small()
    graph([A, W])
    assert not gate.entered.is_set() and entry_of(graph).serving.tier == 0
    graph([A, W])
    assert gate.entered.wait(60)
    for _ in range(20):  # while the compiler stands still
        np.testing.assert_allclose(graph([A, W])[0].asnumpy(), WANT, rtol=1e-5)
    assert entry_of(graph).serving.tier == 0
    assert not mx.wait_compiled(timeout=0)
    gate.open.set()
    assert mx.wait_compiled()
    assert entry_of(graph).serving.tier == 1 and gate.names == ["small"]
    np.testing.assert_allclose(graph([A, W])[0].asnumpy(), WANT, rtol=1e-5)


def test_rarely_called_graphs_are_not_compiled(gate, monkeypatch):
    """The compiler gets a signature after an eighth of the calls until its tier changes, or when
    somebody waits for it; the call that changes the tier is the same."""
    monkeypatch.setattr(tiers, "BEGINS_AFTER", 8)
    gate.open.set()
    graph = small()
    graph([A, W]), graph([A, W])
    entry = entry_of(graph)
    n = tiers.calls_meanwhile(*entry.work())
    assert n > 800 and entry.change_at == 2 + n and entry.due == 2 + n // 8
    while entry.hits < 1 + n // 8:
        graph([A, W])
    assert not entry.submitted
    graph([A, W])
    assert entry.submitted and entry.due == entry.change_at == 2 + n
    while entry.hits < 1 + n:
        graph([A, W])
    assert entry.serving.tier == 0 and not entry.changed
    graph([A, W])
    assert entry.serving.tier == 1 and gate.names == ["small"]
    other = small("waited for")
    other([A, W]), other([A, W])
    mx.wait_compiled()
    assert entry_of(other).serving.tier == 1


def test_a_failing_compilation_leaves_tier_0_serving(gate, monkeypatch, caplog):
    monkeypatch.setattr(passes, "checking", False)
    gate.fails = True
    gate.open.set()
    graph = small()
    for _ in range(5):
        np.testing.assert_allclose(graph([A, W])[0].asnumpy(), WANT, rtol=1e-5)
        mx.wait_compiled()
    assert entry_of(graph).serving.tier == 0 and gate.names == ["small"]
    (line,) = caplog.messages
    assert "tier 1 of small" in line and "no luck today" in line
    monkeypatch.setattr(passes, "checking", True)
    other = small()
    other([A, W]), other([A, W])
    with pytest.raises(ArithmeticError, match="no luck today"):
        mx.wait_compiled()
    assert mx.wait_compiled()


def test_a_resumed_run_stays_at_tier_0_where_the_compiler_had_failed(gate, monkeypatch):
    def made():
        x, w = (variable(n, F._zeros(shape=(3, 3)).type) for n in "xw")
        return CachedGraph([F.sin(F.dot(w, x))], [x, w], "resumed", 1)

    monkeypatch.setattr(passes, "checking", False)
    gate.fails = True
    gate.open.set()
    graph = made()
    graph([A, W]), graph([A, W])
    mx.wait_compiled()
    graph([A, W])
    structure = entry_of(graph).structure()
    (kept,) = tiers.counts()[structure]
    assert kept["hits"] == 3
    gate.fails = False
    tiers.resume({structure: [kept, kept]})  # of the graph above, and of the one below
    try:
        again = made()
        for _ in range(8):
            again([A, W])
            mx.wait_compiled()
    finally:
        tiers.resume({})
    assert entry_of(again).hits == 11 and entry_of(again).serving.tier == 0


def test_the_compiler_survives_failed_swaps(gate, monkeypatch, caplog):
    gate.open.set()
    monkeypatch.setattr(passes, "checking", False)
    monkeypatch.setenv("PLAIT_TIER", "ready")
    monkeypatch.setenv("PLAIT_LOG", "no such topic")
    for _ in range(2):
        graph = small()
        graph([A, W]), graph([A, W])
        assert mx.wait_compiled(60)
    assert "no such topic" in caplog.text


def test_dead_graphs_are_not_compiled(gate):
    first, second = small("first"), small("second")
    for graph in (first, first, second, second):
        graph([A, W])
    gone = weakref.ref(entry_of(second))
    assert gate.entered.wait(60)
    del second, graph
    gc.collect()
    assert gone() is None  # the queue holds it weakly
    gate.open.set()
    assert mx.wait_compiled() and gate.names == ["first"]


@pytest.fixture
def early(monkeypatch):
    """Tiers change at call 5, or at the fifth backward, for the sixth step."""
    monkeypatch.setattr(tiers, "calls_meanwhile", lambda n_nodes, call_us: 3)


def compiled_by_now():
    compiler = tiers._compiler
    with compiler._changed:
        assert compiler._changed.wait_for(lambda: not compiler._jobs and not compiler._busy, 60)


def test_a_signature_changes_its_tier_at_a_fixed_call(gate, early):
    gate.open.set()
    graph, tier_of = small(), []
    for _ in range(8):
        np.testing.assert_allclose(graph([A, W])[0].asnumpy(), WANT, rtol=1e-5)
        tier_of.append(entry_of(graph).serving.tier)
        compiled_by_now()
    assert tier_of == [0, 0, 0, 0, 1, 1, 1, 1]
    assert entry_of(graph).change_at == 5 and entry_of(graph).waited_s < 60


def test_calls_wait_for_a_late_compiler(gate, early, monkeypatch):
    graph, waited = small(), []
    finish = tiers._compiler.finish

    def opens(job):
        waited.append((str(job), job.hits, job.compiled))
        gate.open.set()
        return finish(job)

    monkeypatch.setattr(tiers._compiler, "finish", opens)
    for _ in range(7):
        graph([A, W])
    (entry,) = graph.entries.values()
    assert waited == [(str(entry), 5, False)]
    assert entry.serving.tier == 1 and entry.waited_s > 0


def test_early_setting_swaps_when_ready(gate, early, monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "ready")
    graph = small()
    for _ in range(9):
        graph([A, W])
    assert entry_of(graph).serving.tier == 0 and entry_of(graph).change_at == 0
    gate.open.set()
    compiled_by_now()
    assert mx.wait_compiled()
    assert entry_of(graph).serving.tier == 1 and entry_of(graph).change_at == 10


def test_the_number_of_calls_depends_on_the_graph_alone():
    few, many = tiers.calls_meanwhile(10, 1000), tiers.calls_meanwhile(100, 1000)
    assert few < many < tiers.calls_meanwhile(100, 100)
    assert tiers.calls_meanwhile(1000, 1e9) == tiers.FEWEST_CALLS


def test_the_setting_keeps_tier_0(gate, monkeypatch):
    monkeypatch.setenv("PLAIT_TIER", "0")
    graph = small()
    for _ in range(4):
        graph([A, W])
    assert mx.wait_compiled() and not gate.names and entry_of(graph).serving.tier == 0


# ---- training ------------------------------------------------------------------------------------


def step(graph, w, scale=1.0):
    with autograd.record():
        loss = (graph([A, w])[0] * scale).sum()
    loss.backward()
    return w.grad.asnumpy()


def test_forward_and_backward_are_swapped_together(gate):
    backward._programs.clear()
    graph, w = small(), W.copy()
    w.attach_grad()
    want = step(graph, w)
    step(graph, w)
    with autograd.record():  # recorded before the swap, differentiated after it
        pending = graph([A, w])[0].sum()
    assert gate.entered.wait(60)
    gate.open.set()
    assert mx.wait_compiled() and gate.names == ["small", "backward"]
    assert entry_of(graph).serving.tier == 1
    (found,) = backward._programs.values()
    assert found.serving.tier == 1 and found.hits == 0
    for scale in (1.0, 0.5):
        np.testing.assert_allclose(step(graph, w, scale), want * scale, rtol=1e-5)
    assert found.hits == 2 and len(backward._programs) == 1
    pending.backward()
    np.testing.assert_allclose(w.grad.asnumpy(), want, rtol=1e-5)


@pytest.mark.parametrize("more_calls", [0, 1])
def test_graphs_that_share_a_tape_change_after_one_backward(gate, monkeypatch, more_calls):
    """Neither the graphs nor two structures with one graph in common get tapes of both tiers."""
    monkeypatch.setattr(tiers, "calls_meanwhile", lambda n_nodes, call_us: 8)
    backward._programs.clear()
    gate.open.set()
    first, second, third, w = small("first"), small("second"), small("third"), W.copy()
    w.attach_grad()
    seen = []
    for k in range(14):
        with autograd.record():  # more calls of a graph than steps
            for _ in range(more_calls):
                first([A, w])
        for graph in (second, third):
            with autograd.record():
                y = graph([first([A, w])[0], w])[0].sum()
            y.backward()
        seen.append([entry_of(g).serving.tier for g in (first, second, third)])
        assert {found.serving.tier for found in backward._programs.values()} <= {k > 8}
        if k == 2:
            compiled_by_now()
    assert seen == [[0, 0, 0]] * 9 + [[1, 1, 1]] * 5
    assert len(backward._programs) == 2
    # the tenth backward of the second graph was before the one of the third
    assert [found.change_at for found in backward._programs.values()] == [11, 10]


def test_a_trained_block_swaps_in_the_middle_of_training():
    results = []
    for wait in (False, True):
        mx.random.seed(3)
        net = nn.HybridSequential()
        net.add(nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dense(3))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        loss_of = gluon.loss.L2Loss()
        loss_of.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
        x = nd.array(np.random.RandomState(0).rand(16, 5))
        losses = []
        for k in range(12):
            with autograd.record():
                loss = loss_of(net(x), x[:, :3]) * (1 + k)
            loss.backward()
            trainer.step(16)
            losses.append(loss.mean().asscalar())
            if wait:
                mx.wait_compiled()
        results.append(losses)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)


def test_an_executor_is_swapped(gate):
    x, w = mx.sym.Variable("x"), mx.sym.Variable("w")
    bound = mx.sym.tanh(mx.sym.dot(x, w)).bind(
        mx.cpu(), {"x": A.copy(), "w": W.copy()}, {"w": nd.zeros((3, 3))}
    )
    gate.open.set()
    wants = []
    for _ in range(4):
        bound.forward(is_train=True)
        bound.backward(nd.ones((3, 3)))
        wants.append(bound.grad_dict["w"].asnumpy())
        np.testing.assert_allclose(bound.outputs[0].asnumpy(), WANT, rtol=1e-5)
        np.testing.assert_allclose(wants[-1], wants[0], rtol=1e-5)
        mx.wait_compiled()
    assert gate.names == ["forward", "backward"]
    for k in range(3):
        (out,) = bound.forward(x=A * k)
        mx.wait_compiled()
        np.testing.assert_allclose(
            out.asnumpy(), np.tanh(k * A.asnumpy() @ W.asnumpy()), rtol=1e-5, atol=1e-6
        )
    assert gate.names == ["forward", "backward", "forward"]
    bound.arg_dict["w"][:] = 0
    assert not bound.forward()[0].asnumpy().any()


def test_a_number_that_changes_neither_compiles_nor_is_interpreted():
    backward._programs.clear()
    x = nd.array([0.5, 2.0])
    x.attach_grad()
    for k in np.arange(1, 30) / 8:
        with autograd.record():
            y = ((x * k + 1 / k) ** k * (k - 2) + k**x).sum()
        y.backward()
        v = np.array([0.5, 2.0])
        want = (k - 2) * k * (v * k + 1 / k) ** (k - 1) * k + k**v * np.log(k)
        np.testing.assert_allclose(x.grad.asnumpy(), want, rtol=2e-4, atol=1e-5)
        mx.wait_compiled()
    (found,) = backward._programs.values()
    assert found.hits == 29 and found.serving.tier == 1


# ---- all tiers agree -----------------------------------------------------------------------------


def run_recorded(call, arrays, requests):
    """(outputs, gradients) of a weighed sum of the outputs, added to 10 where that is asked."""
    inputs = [a.copy() for a in arrays]
    for a, req in zip(inputs, requests):
        a.attach_grad(req)
        if a.grad is not None:
            a.grad[:] = 10
    mx.random.seed(7)
    with autograd.record():
        outs = call(inputs)
        heads = [o for o in outs if o._tape is not None]
        weights = [nd.arange(1, o.size + 1).reshape(o.shape) / 3 for o in heads]
    if heads:
        autograd.backward(heads, weights)
    return [a.asnumpy() for a in [*outs, *(a.grad for a in inputs if a.grad is not None)]]


@hypothesis.settings(max_examples=40)
@hypothesis.given(
    dags.graphs(random=True, max_nodes=20),
    st.integers(0, 99),
    st.lists(st.sampled_from(("write", "add", "null")), min_size=3, max_size=3),
    st.sampled_from((False, True, 0.5, "mirror")),
)
def test_references_tier_0_and_tier_1_agree(graph, seed, requests, recompute):
    outputs, variables = graph
    used = set(topological(outputs))
    variables = [v for v in variables if v.node in used]
    arrays = dags.draw_arrays(variables, seed)
    want = run_recorded(lambda xs: dags.evaluate(outputs, variables, xs), arrays, requests)
    cached = CachedGraph(outputs, variables, recompute=recompute)
    for _ in range(4):
        found = run_recorded(cached, arrays, requests)
        for got, right in zip(found, want, strict=True):
            scale = np.abs(np.where(np.isfinite(right), right, 0)).max(initial=1)
            np.testing.assert_allclose(got, right, rtol=2e-4, atol=1e-4 * scale)
        assert mx.wait_compiled()
    assert all(e.serving.tier == 1 for e in cached.entries.values())


# ---- threads, processes --------------------------------------------------------------------------


def test_threads_call_while_programs_are_swapped(early):
    wrong = []
    graphs = [small(f"g{i}") for i in range(4)]

    def work(k):
        w = (W * k).copy()
        w.attach_grad()
        want, grad = np.tanh(A.asnumpy() @ w.asnumpy()), None
        for turn in range(40):
            for graph in graphs:
                if not np.allclose(graph([A, w])[0].asnumpy(), want, rtol=1e-4):
                    wrong.append(k)
                got = step(graph, w)
                grad = got if grad is None else grad
                if not np.allclose(got, grad, rtol=1e-4):
                    wrong.append(-k)
            if k == 1 and turn % 8 == 7:  # new signatures again and again
                for graph in graphs:
                    graph.entries.clear()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


SCRIPT = """
import os, threading
import plait as mx
from plait import nd
from plait.graph import runner, tiers
from plait.ndarray.cached import CachedGraph
from plait.graph.graph import Builder, variable
F = Builder()
x = variable("x", F._zeros(shape=(3,)).type)
entered, lower = threading.Event(), runner.lower
def slow(*args, tier=0, **kwargs):
    if tier:
        entered.set()
        for _ in range(200_000):
            pass
    return lower(*args, tier=tier, **kwargs)
runner.lower = slow
tiers.BEGINS_AFTER = tiers.NEVER  # the compiler begins at once
graphs = [CachedGraph([F.tanh(x)], [x]) for _ in range(40)]
for g in graphs:
    g([nd.ones((3,))]), g([nd.ones((3,))])
entered.wait()
"""


def run(tail):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + tail], env=env, capture_output=True, text=True, timeout=300
    )
    said = [line for line in done.stderr.splitlines() if "no C compiler found" not in line]
    return done.returncode, done.stdout, "\n".join(said)


def test_the_process_ends_while_programs_are_compiled():
    assert run("print('end')") == (0, "end\n", "")


def test_a_fork_while_programs_are_compiled():
    assert run("""
child = os.fork()
g = CachedGraph([F.exp(x)], [x])
g([nd.ones((3,))]), g([nd.ones((3,))])
mx.wait_compiled()
(entry,) = g.entries.values()
assert entry.serving.tier == 1
(last,) = graphs[-1].entries.values()  # in the child no queue holds it
last.change()
assert last.serving.tier == 1
if child == 0:
    os._exit(0)
print(os.waitpid(child, 0)[1])
""") == (0, "0\n", "")
