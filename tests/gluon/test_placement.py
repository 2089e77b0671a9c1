"""Networks whose layers live on several devices: the numbers of one device, each operation on the
lane where its arrays are."""

import random

import numpy as np
import plait as mx
import pytest
from plait import autograd, engine, gluon, nd
from plait.engine import profiler
from plait.engine.error import DeviceError
from plait.gluon import nn
from plait.graph import placement
from plait.graph.effects import mutated
from plait.graph.graph import Builder, Value, topological, typed_node, variable
from plait.graph.placement import TO_DEVICE, PlacedProgram, Placement, _Copy, _Part, _segments
from plait.kernels.record import Type
from plait.ndarray import backward
from stages import network

ONE, TWO = mx.cpu(0), mx.cpu(1)
X = np.random.RandomState(1).randn(5, 4).astype(np.float32)


def gradients(net, n_steps=1):
    for _ in range(n_steps):
        with autograd.record():
            loss = (net(nd.array(X)) ** 2).sum()
        loss.backward()
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    assert all(p.grad().context == p.data().context for p in trained)
    return [loss.asnumpy(), *[p.grad().asnumpy() for p in trained]]


def by_hand():
    """The loss and the gradients of `network`, in float64."""
    p = [v.data().asnumpy().astype(np.float64) for v in network(ONE, ONE).collect_params().values()]
    w1, b1, gamma, beta, _, _, w2, b2 = p
    x = X.astype(np.float64)
    h = np.tanh(x @ w1.T + b1)
    mean, scale = h.mean(0), 1 / np.sqrt(h.var(0) + 1e-5)
    n = (h - mean) * scale
    y = (gamma * n + beta) @ w2.T + b2
    dy = 2 * y
    da = dy @ w2
    dn = da * gamma
    dh = scale * (dn - dn.mean(0) - n * (dn * n).mean(0))
    dz = dh * (1 - h * h)
    return [
        np.sum(y * y).reshape(1),
        *(dz.T @ x, dz.sum(0), (da * n).sum(0), da.sum(0)),
        *(dy.T @ (gamma * n + beta), dy.sum(0)),
    ]


@pytest.mark.parametrize("hybridize", [False, True])
def test_gradients_are_those_of_one_device(hybridize):
    net = network(ONE, TWO, hybridize)
    for _ in range(3):
        for got, want in zip(gradients(net), by_hand(), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)
        mx.wait_compiled()


@pytest.mark.parametrize("hybridize", [False, True])
def test_grad_req_add(hybridize):
    net = network(ONE, TWO, hybridize)
    for p in net.collect_params().values():
        p.grad_req = "add" if p.grad_req == "write" else p.grad_req
    gradients(net, 2)
    mx.wait_compiled()
    for got, want in zip(gradients(net)[1:], by_hand()[1:], strict=True):
        np.testing.assert_allclose(got, 3 * want, rtol=2e-4, atol=3e-4)


def served():
    """The backward program in use."""
    (found,) = [b.serving.program for b in backward._programs.values() if b.serving is not None]
    return found


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("tier", [0, 1])
def test_backward_runs_where_forward_ran(hybridize, tier):
    backward._programs.clear()
    net = network(ONE, TWO, hybridize)
    gradients(net, 1 + 3 * tier)
    mx.wait_compiled()
    backward._programs.clear()
    gradients(net)
    program = served()
    assert isinstance(program, PlacedProgram)
    assert [p.device for p in program.parts] == [TWO, ONE]
    names = [{op.name for op in p.program.ops} for p in program.parts]
    assert any("norm" in n.lower() for n in names[0]) and not any("norm" in n for n in names[1])
    for part in program.parts:
        used = {s.device for s in (*part.program.in_specs, *part.program.out_specs)}
        assert used == {part.device}


@pytest.mark.parametrize("hybridize", [False, True])
def test_both_devices_run_operations(hybridize):
    net = network(ONE, TWO, hybridize)
    with autograd.record():
        loss = net(nd.array(np.tile(X, (4000, 1)))).sum()
    engine.waitall()
    profiler.start()
    loss.backward()
    engine.waitall()
    profiler.stop()
    trace = profiler._trace()
    profiler.dumps(reset=True)
    thread = {e["tid"]: e["args"]["name"] for e in trace if e.get("name") == "thread_name"}
    ran = [thread[e["tid"]] for e in trace if e.get("name") == "backward"]
    # the first device's program may begin, and go on when the gradient arrives; on the thread that
    # waits while the device's own sleeps
    ran = ["cpu(0)" if name == "MainThread" else name for name in ran]
    assert list(dict.fromkeys(reversed(ran))) == ["cpu(0)", "cpu(1)"]


def deep_gradients(hybridize, n_batches=4):
    """The gradients of two stages of three layers each over micro-batches, and their program."""
    stages = [nn.HybridSequential(prefix=f"stage{i}_") for i in (0, 1)]

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.low, self.high = stages

        def hybrid_forward(self, F, x):
            return self.high(self.low(x).as_in_context(TWO))

    net, values = Net(), np.random.RandomState(5)
    for stage, device in zip(stages, (ONE, TWO)):
        for _ in range(3):
            stage.add(nn.Dense(4, activation="tanh", in_units=4))
        stage.initialize(ctx=device)
        for p in stage.collect_params().values():
            p.set_data(nd.array(values.randn(*p.shape)))
    if hybridize:
        net.hybridize()
    backward._programs.clear()
    with autograd.record():
        losses = [net(nd.array(X * i)) for i in range(1, n_batches + 1)]
    autograd.backward(losses)
    return [p.grad().asnumpy() for p in net.collect_params().values()], served()


@pytest.mark.parametrize("hybridize", [False, True])
def test_values_for_the_other_device_are_computed_first(hybridize, monkeypatch):
    """Within a micro-batch the gradient that leaves the device is there before any weight's is
    begun: the stage below starts then. Only the order differs."""
    made, program = deep_gradients(hybridize)
    crossing = {s.source for s in program._steps if isinstance(s, _Copy)}
    n_crossing = 0
    for part in program.parts:
        leaves = [i for i, v in enumerate(part.made) if v in crossing]
        stays = [i for i in range(len(part.made)) if i not in leaves]
        n_crossing += len(leaves)
        for i in leaves:
            assert part.program.finals[i] < min(part.program._first_write[j] for j in stays)
    assert n_crossing == 4 and program.parts[0].device == TWO
    lowered = placement.lower_here
    monkeypatch.setattr(placement, "lower_here", lambda *a, first, **k: lowered(*a, **k))
    for a, b in zip(made, deep_gradients(hybridize)[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_of_gradients_cross_devices():
    for second in (ONE, TWO):
        for hybridize in (False, True):
            net = network(ONE, second, hybridize)
            x = nd.array(X)
            x.attach_grad()
            with autograd.record():
                y = (net(x) ** 2).sum()
                (dx,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
                assert dx.context == ONE
                z = (dx * dx).sum()
            z.backward()
            if second == ONE and not hybridize:
                want = [dx.asnumpy(), x.grad.asnumpy(), net.low.weight.grad().asnumpy()]
            got = [dx.asnumpy(), x.grad.asnumpy(), net.low.weight.grad().asnumpy()]
            assert x.grad.context == ONE
            for a, b in zip(got, want):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


def test_arrays_by_hand():
    x = nd.array([1.0, 2.0, 3.0], ctx=ONE)
    w = nd.array([4.0, 5.0, 6.0], ctx=TWO)
    for a in (x, w):
        a.attach_grad()
    target = nd.zeros((3,), ctx=TWO, dtype="float64")
    with autograd.record():
        y = (x * x).as_in_context(TWO) * w
        (y * 2).copyto(target)  # another dtype on another device
        z = target.as_in_context(ONE) * 3
    autograd.backward([y, z], [nd.ones(3, ctx=ONE), None])  # a head's gradient from elsewhere
    assert x.grad.context == ONE and w.grad.context == TWO
    np.testing.assert_allclose(x.grad.asnumpy(), 7 * 2 * np.array([1, 2, 3]) * [4, 5, 6])
    np.testing.assert_allclose(w.grad.asnumpy(), 7 * np.array([1, 4, 9]))


def test_a_constant_gradient_is_made_where_its_variable_is():
    w = nd.ones((3,), ctx=TWO)
    x = nd.ones((3,), ctx=ONE)
    for a in (x, w):
        a.attach_grad()
    backward._programs.clear()
    with autograd.record():
        losses = [(x + 1).sum(), (w + 2).sum()]
    autograd.backward(losses)
    assert w.grad.asnumpy().tolist() == x.grad.asnumpy().tolist() == [1, 1, 1]
    assert {p.device for p in served().parts} == {ONE, TWO}


class Children(gluon.HybridBlock):
    """Reads a parameter that is on both devices, on each."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.both = nn.Dense(4, in_units=4, flatten=False)

    def hybrid_forward(self, F, x):
        return self.both(F.tanh(self.both(x)).as_in_context(TWO) + F.ones((1, 4)))


def test_a_parameter_that_both_devices_read():
    results = []
    for hybridize in (False, True):
        net = Children()
        net.initialize(mx.init.Xavier(), ctx=[ONE, TWO])
        values = np.random.RandomState(3)
        for p in net.collect_params().values():
            p.set_data(nd.array(values.randn(*p.shape)))
        if hybridize:
            net.hybridize()
        with TWO:  # where eager code makes its ones
            with autograd.record():
                loss = (net(nd.array(X, ctx=ONE)) ** 2).sum()
            loss.backward()
        results.append([g.asnumpy() for p in net.collect_params().values() for g in p.list_grad()])
    for a, b in zip(*results, strict=True):
        assert abs(a).sum() > 0
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_hooks_see_operators_of_both_devices():
    net = Children()
    net.initialize(ctx=[ONE, TWO])
    net.hybridize()
    want, seen = net(nd.array(X)).asnumpy(), []
    net.register_op_hook(lambda name, op, array: seen.append((op, array.context)))
    np.testing.assert_array_equal(net(nd.array(X)).asnumpy(), want)
    dense, ones = "FullyConnected", "_ones"
    assert [d for op, d in seen if op == dense] == [ONE, TWO]
    assert [d for op, d in seen if op == ones] == [TWO]


@pytest.mark.parametrize("hybridize", [False, True])
def test_inputs_on_two_devices_need_a_copy(hybridize):
    class Sum(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return x + y

    net = Sum()
    if hybridize:
        net.hybridize()
    with pytest.raises(mx.MXNetError, match="all inputs must be on one device, got cpu") as found:
        net(nd.ones((2,), ctx=ONE), nd.ones((2,), ctx=TWO))
    assert "fix: x.as_in_context(" in str(found.value)


def test_parameter_missing_on_a_device_raises(capfd):
    net = network(ONE, TWO, hybridize=True)
    net.high.collect_params().reset_ctx(ONE)
    with pytest.raises(mx.MXNetError, match=r"not initialized on context cpu\(1\)"):
        net(nd.array(X))


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_one_trainer_over_both(optimizer):
    weights = []
    for second, hybridize in ((ONE, False), (TWO, False), (TWO, True)):
        net = network(ONE, second, hybridize)
        trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.01})
        for _ in range(4):
            with autograd.record():
                loss = (net(nd.array(X)) ** 2).sum()
            loss.backward()
            trainer.step(5)
        weights.append([p.data().asnumpy() for p in net.collect_params().values()])
    for other in weights[1:]:
        for a, b in zip(weights[0], other):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_an_exported_graph_has_no_devices(tmp_path):
    net = network(ONE, TWO, hybridize=True)
    want = net(nd.array(X)).asnumpy()
    net.export(str(tmp_path / "net"))
    assert "device" not in (tmp_path / "net-symbol.json").read_text()
    files = [str(tmp_path / f"net-{n}") for n in ("symbol.json", "0000.params")]
    again = gluon.SymbolBlock.imports(files[0], ["data"], files[1])
    np.testing.assert_allclose(again(nd.array(X)).asnumpy(), want, rtol=1e-5)


def test_recomputation_across_devices():
    net = network(ONE, TWO)
    net.hybridize(recompute=True)
    for got, want in zip(gradients(net), by_hand(), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-4)


def test_zero_grad_on_every_device():
    p = gluon.Parameter("w", shape=(2,))
    p.initialize(ctx=[ONE, TWO, mx.cpu(3)])
    for g in p.list_grad():
        g[:] = 7
    p.zero_grad()
    assert [g.asnumpy().tolist() for g in p.list_grad()] == [[0, 0]] * 3


def test_operators_without_inputs_run_on_the_given_device():
    there = nd.ones((2,), ctx=TWO)
    make = nd._internal
    for text in (TWO, "cpu(1)"):
        assert make._zeros(shape=(2,), ctx=text).context == TWO
        assert make._arange(start=0, stop=3, ctx=text).context == TWO
        assert nd.random_uniform(shape=(2,), ctx=text).context == TWO
    for made in (
        nd.zeros((2,), out=there),
        nd.ones((2,), ctx=ONE, out=there),  # MXNet: where `out` is
        nd.random.uniform(0, 1, (2,), out=there),
        make._full(shape=(2,), value=3, out=there),
    ):
        assert made is there and made.context == TWO
    assert there.asnumpy().tolist() == [3, 3]
    with TWO:
        assert make._ones(shape=(2,)).context == TWO
    with pytest.raises(mx.MXNetError, match="a device is written as"):
        make._zeros(shape=(2,), ctx="cpu(x)")


def test_pushpull_of_arrays_that_several_keys_share():
    store = mx.kv.create("device")
    devices = [mx.cpu(i) for i in range(4)]
    store.broadcast([5, 7, 9], [nd.zeros((2,))] * 3, out=[nd.empty((2,))] * 3)
    values = [[nd.ones((2,), d) * 2 for d in devices]] * 3
    store.pushpull([5, 7, 9], values)
    assert [[v.asnumpy()[0] for v in vs] for vs in values] == [[8.0] * 4] * 3  # as MXNet 1.9.1


def test_pinned_batches_are_not_copied():
    data = gluon.data.ArrayDataset(np.ones((4, 2), np.float32))
    batches = list(gluon.data.DataLoader(data, 2, pin_memory=True))
    assert [b.context for b in batches] == [mx.cpu_pinned(0)] * 2
    net = network(ONE, TWO, hybridize=True)
    assert net(nd.array(X, ctx=mx.cpu_pinned(0))).context == TWO


def test_a_reshaped_executor_shares_its_outputs():
    x = mx.sym.var("x")
    executor = (x * 2).simple_bind(mx.cpu(), x=(5, 4))
    executor.arg_arrays[0][:] = 1
    executor.forward()
    other = executor.reshape(x=(3, 4))
    other.arg_arrays[0][:] = 4
    other.forward()
    np.testing.assert_array_equal(other.outputs[0].asnumpy(), np.full((3, 4), 8))
    np.testing.assert_array_equal(executor.outputs[0].asnumpy()[:3], np.full((3, 4), 8))


# ---- what is kept for later is kept for each device ----------------------------------------------


def test_batches_that_an_optimizer_sums_stay_on_their_devices():
    optimizer = mx.optimizer.create("lbsgd", learning_rate=0.1, batch_scale=2, momentum=0.0)
    updaters = [mx.optimizer.get_updater(optimizer) for _ in range(2)]
    weights = [nd.ones((3,), ctx=c) for c in (ONE, TWO)]
    for step in range(2):
        for k, (updater, w) in enumerate(zip(updaters, weights)):
            updater(0, nd.full((3,), step + 1.0, ctx=w.context), w)
    assert (weights[0].asnumpy() < 1).all()
    np.testing.assert_array_equal(*[w.asnumpy() for w in weights])


class Where(mx.operator.CustomOp):
    def __init__(self, number):
        self.number = number

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 0 + self.number)


@mx.operator.register("made_for_a_device")
class WhereProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Where(ctx.device_id)


def test_operator_made_for_a_device_runs_there():
    run = nd.CachedOp(mx.sym.Custom(mx.sym.var("x"), op_type="made_for_a_device"))
    for device in (ONE, TWO, ONE):
        y = run(nd.zeros((2,), ctx=device))
        assert y.asnumpy().tolist() == [device.device_id] * 2


def test_a_shared_executor_of_another_device_shares_nothing():
    y = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc")
    first = y.simple_bind(ONE, data=(2, 3))
    second = y.simple_bind(TWO, data=(2, 3), shared_exec=first)
    assert {a.context for a in second.arg_arrays} == {TWO}
    third = y.simple_bind(TWO, data=(5, 3), shared_exec=second)
    third.arg_dict["fc_weight"][:] = 3
    assert second.arg_dict["fc_weight"].asnumpy().min() == 3


# ---- pipelines: micro-batches over two stages ----------------------------------------------------


@pytest.mark.parametrize("hybridize", [False, True])
def test_micro_batches_of_one_backward_have_separate_programs(hybridize):
    """So that the stages of different micro-batches may overlap, although their gradients are one
    sum."""
    backward._programs.clear()
    net, n = network(ONE, TWO, hybridize), 4
    batches = [nd.array(X + i) for i in range(n)]
    with autograd.record():
        losses = [(net(x) ** 2).sum() for x in batches]
    autograd.backward(losses)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    got = [p.grad().asnumpy() for p in trained]

    steps = served()._steps
    copies = {s.made: s for s in steps if s.__class__ is _Copy}
    parts = [s for s in steps if s.__class__ is _Part]
    assert len(copies) == n and [p.device for p in parts] == [TWO, ONE] * n
    makes = {v: i for i, p in enumerate(parts) for v in p.made}
    for i in range(0, 2 * n, 2):
        above, below = parts[i : i + 2]
        (copy,) = [copies[v] for v in below.reads if v in copies]
        assert makes[copy.source] == i and not any(v in copies for v in above.reads)
        # the last one adds up the gradients; the others read nothing of each other
        assert i == 2 * n - 2 or not any(v in makes for p in (above, below) for v in p.reads)

    want = [0] * len(got)
    for x in batches:
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        want = [w + p.grad().asnumpy().astype(np.float64) for w, p in zip(want, trained)]
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


DEVICES = [mx.cpu(i) for i in range(3)]


class Written:
    """Builds a random graph over devices, with copies and with memory written in place."""

    def __init__(self, seed, n_nodes):
        choose, F = random.Random(seed), Builder()
        self.known = {variable(f"x{i}", Type((2,), "float32")): DEVICES[i % 3] for i in range(6)}
        at = dict(self.known)
        for _ in range(n_nodes):
            a = choose.choice(list(at))
            near = [v for v in at if at[v] == at[a]]
            if choose.random() < 0.4:
                target = choose.choice([d for d in DEVICES if d != at[a]])
                attrs = {"ctx": str(target), "source": str(at[a])}
                at[Value(typed_node(TO_DEVICE, attrs, [a]))] = target
            elif choose.random() < 0.2:
                states = [v for v in self.known if at[v] == at[a]]
                at[F.sgd_mom_update(a, choose.choice(near), choose.choice(states), lr=1.0)] = at[a]
            else:
                at[F.broadcast_add(a, choose.choice(near))] = at[a]
        self.outputs = choose.sample(list(at), min(len(at), 5))


@pytest.mark.parametrize("n_nodes", [3, 12, 40])
def test_steps_of_random_graphs_are_in_order(n_nodes):
    for seed in range(60):
        graph = Written(seed, n_nodes)
        order = [n for n in topological(graph.outputs) if n.op is not None]
        place = Placement(graph.outputs, graph.known, DEVICES[0])
        steps = _segments(order, place)
        step = {n: k for k, nodes in enumerate(steps) for n in nodes}
        assert len(step) == sum(map(len, steps)) == len(order) and set(step) == set(order)
        written = {n.inputs[i] for n in order for i in mutated(n)}
        users = {}
        for n in order:
            for v in n.inputs:
                if v.node in step:
                    assert step[v.node] <= step[n]
                    assert step[v.node] < step[n] or TO_DEVICE not in (v.node.op, n.op)
                if v in written:  # memory written in place: the order of the graph
                    assert step.get(users.get(v), -1) <= step[n]
                    users[v] = n
        for nodes in steps:
            assert len({place.of(n) for n in nodes}) == 1
            assert len(nodes) == 1 or all(n.op is not TO_DEVICE for n in nodes)


class Moves(nn.HybridBlock):
    """A body that copies to a device."""

    def __init__(self, how, copy):
        super().__init__()
        self.how, self.copy = how, copy

    def hybrid_forward(self, F, x):
        there = lambda v: self.copy(v) * 2
        if self.how == "foreach":
            return F.contrib.foreach(lambda v, s: (there(v) + s, s), x, F.sum(x, axis=0))[0]
        if self.how == "while_loop":
            body = lambda i, v: (v, [i + 1, there(v)])
            (_, out) = F.contrib.while_loop(
                lambda i, v: i < 2, body, [F.zeros((1,)), x], max_iterations=3
            )[1]
            return out
        return F.contrib.cond(F.sum(x) > 0, lambda: there(x), lambda: x)


@pytest.mark.parametrize("how", ["foreach", "while_loop", "cond"])
@pytest.mark.parametrize("copy", ["as_in_context", "copyto"])
def test_bodies_of_control_flow_stay_on_their_device(how, copy):
    """A copy to another device was one on the same: of a GPU, the wrong memory."""
    x = nd.array([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(DeviceError, match=r"runs on one device, got a copy to cpu\(1\)"):
        net = Moves(how, lambda v: getattr(v, copy)(mx.cpu(1)))
        net.hybridize()
        net(x)
    plain = Moves(how, lambda v: getattr(v, copy)(mx.cpu(0)))
    want = Moves(how, lambda v: v)(x).asnumpy()
    plain.hybridize()
    x.attach_grad()
    with mx.autograd.record():
        out = plain(x)
    out.backward()
    assert out.asnumpy().tolist() == want.tolist() and np.abs(x.grad.asnumpy()).sum() > 0


def test_update_counts_are_kept_per_weight():
    """Adam's fourth step of the second stage, after one that had no gradient for the first."""
    weights = [gluon.Parameter(n, shape=(1,), init="ones") for n in ("one", "two")]
    for w, device in zip(weights, (ONE, TWO)):
        w.initialize(ctx=device)
    trainer = gluon.Trainer(weights, "adam", {"learning_rate": 0.1})
    expected, mean, var = 1.0, 0.0, 0.0
    for t, fresh in enumerate([weights, weights, weights[1:], weights], 1):
        for w in fresh:
            with autograd.record():
                loss = (w.data() * t).sum()
            loss.backward()
        trainer.step(1, ignore_stale_grad=True)
        mean, var = 0.9 * mean + 0.1 * t, 0.999 * var + 0.001 * t * t
        rate = 0.1 * (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
        expected -= rate * mean / (var**0.5 + 1e-8)
    np.testing.assert_allclose(weights[1].data().asscalar(), expected, rtol=1e-5)
