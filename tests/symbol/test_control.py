"""Loops and branches: eager = symbolic = hybridized, with gradients; files. Texts are MXNet's."""

import json

import numpy as np
import plait as mx
import pytest
from plait import MXNetError, autograd, gluon, nd, sym


class Foreach(gluon.HybridBlock):
    """A cell with parameters inside the body, states as a list, and a value from outside."""

    def __init__(self, hidden=3):
        super().__init__()
        with self.name_scope():
            self.cell = gluon.rnn.LSTMCell(hidden)

    def hybrid_forward(self, F, x, h, c, scale):
        def body(x, states):
            out, states = self.cell(x * scale, states)
            return [out, out.sum(axis=1)], states

        (outs, sums), states = F.contrib.foreach(body, x, [h, c])
        return outs * 2, sums, states[0], states[1]


class WhileLoop(gluon.HybridBlock):
    def hybrid_forward(self, F, n, x, w):
        outs, (_, x) = F.contrib.while_loop(
            lambda i, x: i < n,
            lambda i, x: ([x * w, F.sin(x)], [i + 1, F.tanh(x) + w]),
            [F.zeros_like(n), x],
            max_iterations=5,
        )
        return [*outs, x]


class Cond(gluon.HybridBlock):
    def hybrid_forward(self, F, x, w):
        return F.contrib.cond(x.sum() > 0, lambda: F.exp(x) * w, lambda: [F.sin(x)][0])


class Nested(gluon.HybridBlock):
    """A loop in a loop, which reads from both bodies around it; a branch inside."""

    def hybrid_forward(self, F, x, s, w):
        def outer(row, states):
            def inner(y, t):
                z = F.contrib.cond(y.sum() > 0, lambda: F.sin(y * row.sum()) * w, lambda: y + t)
                return z, t * 0.5 + z

            outs, last = F.contrib.foreach(inner, row, states[0])
            return outs, [last + row.sum(axis=0)]

        outs, states = F.contrib.foreach(outer, x, [s])
        return outs, states[0]


class Dropped(gluon.HybridBlock):
    def hybrid_forward(self, F, x, s):
        return F.contrib.foreach(lambda x, s: (F.Dropout(x, p=0.5) + s, s + 1), x, s)


def results(block, inputs, steps=1):
    """Outputs, then gradients of inputs and parameters."""
    for _ in range(steps):
        for x in inputs:
            x.attach_grad()
        with autograd.record():
            outs = block(*inputs)
            outs = outs if isinstance(outs, (list, tuple)) else [outs]
            loss = sum((o * nd.arange(1, o.size + 1).reshape(o.shape)).sum() for o in outs)
        loss.backward()
        mx.wait_compiled()
    grads = [x.grad for x in inputs] + [p.grad() for p in block.collect_params().values()]
    return [a.asnumpy() for a in [*outs, *grads]]


def draw(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [nd.array(rng.normal(size=s)) for s in shapes]


CASES = {
    "foreach": (Foreach, draw((4, 2, 3), (2, 3), (2, 3), (1,))),
    "foreach of no slices": (Foreach, None),
    "while": (WhileLoop, [nd.array([3]), *draw((2,), (2,))]),
    "while to the end": (WhileLoop, [nd.array([9]), *draw((2,), (2,))]),
    "cond true": (Cond, [nd.array([1.0, 2.0]), nd.array([3.0, 4.0])]),
    "cond false": (Cond, [nd.array([-1.0, -2.0]), nd.array([3.0, 4.0])]),
    "nested": (Nested, draw((3, 2, 4), (4,), (4,))),
}


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c[1]])
def test_eager_equals_hybridized_at_both_tiers(name):
    make, inputs = CASES[name]
    block = make()
    block.initialize(mx.init.Uniform(0.7))
    eager = results(block, inputs)
    assert any(np.abs(a).max() > 0.1 for a in eager)
    block.hybridize()
    for steps in (1, 4):
        for a, b in zip(results(block, inputs, steps), eager, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["foreach", "while", "cond true", "nested"])
def test_exported_block_computes_and_trains_the_same(name, tmp_path):
    make, inputs = CASES[name]
    block = make()
    block.initialize(mx.init.Uniform(0.7))
    block.hybridize()
    want = results(block, inputs)
    block.export(str(tmp_path / "net"))
    text = (tmp_path / "net-symbol.json").read_text()
    assert sym.load_json(text).tojson() == text
    names = [f"data{i}" for i in range(len(inputs))]
    params = str(tmp_path / "net-0000.params") if block.collect_params() else None
    again = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), names, params)
    found = results(again, inputs)
    for a, b in zip(found[: len(want) - len(block.collect_params())], want):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


class Smooth(gluon.HybridBlock):
    def hybrid_forward(self, F, x, s, w):
        return F.contrib.foreach(lambda x, s: (s * w * x, F.sin(s * w + x)), x, s)[0]


class SmoothBranch(gluon.HybridBlock):
    def hybrid_forward(self, F, x, s, w):
        y = F.contrib.cond(x.sum() > 90, lambda: s * w, lambda: F.sin(s * w) * w)
        return y * x


@pytest.mark.parametrize("make", [Smooth, SmoothBranch])
def test_second_order_is_that_of_the_unrolled_loop(make):
    x, s, w = draw((3, 2), (2,), (2,))

    def run(hybrid):
        block = make()
        if hybrid:
            block.hybridize()
        w.attach_grad()
        with autograd.record():
            y = block(x, s, w).sum()
            g = autograd.grad(y, [w], create_graph=True)[0]
            z = (g * g).sum()
        z.backward()
        return w.grad.asnumpy()

    np.testing.assert_allclose(run(True), run(False), rtol=1e-4)


def test_foreach_of_no_slices():
    x, h, c, scale = draw((0, 2, 3), (2, 3), (2, 3), (1,))
    block = Foreach()
    block.initialize()
    block.cell(nd.ones((2, 3)), [h, c])
    block.hybridize()
    outs, sums, last, _ = block(x, h, c, scale)
    assert outs.shape == (0, 2, 3)
    assert sums.shape == (0, 2)
    assert last.asnumpy().tolist() == h.asnumpy().tolist()
    assert nd.contrib.foreach(lambda x, s: (x, s), nd.zeros((0, 2)), [h]) == ([], [h])


def test_while_without_iteration():
    n, x, w = nd.array([0]), nd.array([1.0, 2.0]), nd.array([3.0, 4.0])
    outs, (i, last) = nd.contrib.while_loop(
        lambda i, x: i < n, lambda i, x: (x, [i + 1, x]), [nd.zeros(1), x], max_iterations=5
    )
    assert outs == []
    assert last is x
    block = WhileLoop()
    block.hybridize()
    a, b, last = block(n, x, w)
    assert a.shape == b.shape == (5, 2)
    assert a.asnumpy().max() == 0
    assert last.asnumpy().tolist() == [1, 2]


def test_random_bodies_draw_anew_in_each_iteration_and_backward_sees_the_same():
    block = Dropped()
    block.hybridize()
    x, s = nd.ones((40, 50)), nd.zeros((50,))
    x.attach_grad()
    with autograd.record():
        outs, last = block(x, s)
    outs.backward()
    y = outs.asnumpy() - np.arange(40)[:, None]
    assert set(np.unique(y)) == {0, 2}
    assert len({tuple(row) for row in y}) == 40
    assert (x.grad.asnumpy() == y).all()
    assert last.asnumpy().tolist() == [40] * 50
    mx.random.seed(3)
    with autograd.train_mode():
        a = block(x, s)[0].asnumpy()
        mx.random.seed(3)
        assert (a == block(x, s)[0].asnumpy()).all()
        assert (a != block(x, s)[0].asnumpy()).any()


def test_batch_norm_in_a_body_updates_its_statistics():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.norm = gluon.nn.BatchNorm(momentum=0.5)

        def hybrid_forward(self, F, x):
            return F.contrib.foreach(lambda x, s: (self.norm(x) + s, s), x, F.zeros((1,)))[0]

    (x,) = draw((3, 4, 2))
    found = []
    for hybrid in (False, True):
        net = Net()
        net.initialize()
        if hybrid:
            net.hybridize()
        with autograd.record():
            y = net(x)
        y.backward()
        found.append((y.asnumpy(), net.norm.running_mean.data().asnumpy()))
    assert np.abs(found[0][1]).max() > 0
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@mx.operator.register("test_control_double")
class DoubleProp(mx.operator.CustomOpProp):
    def create_operator(self, ctx, shapes, dtypes):
        return Double()


class Double(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 2)


def test_python_inside_a_body():
    class Net(gluon.HybridBlock):
        def hybrid_forward(self, F, x, s):
            return F.contrib.foreach(
                lambda x, s: (F.Custom(s, op_type="test_control_double"), s * x), x, s
            )[0]

    net, inputs = Net(), draw((3, 2), (2,))
    eager = results(net, inputs)
    net.hybridize()
    for a, b in zip(results(net, inputs), eager):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_symbol_names_json_and_unknown_shapes():
    d, st, w = sym.var("d"), sym.var("st"), sym.var("w")

    def body(x, s):
        o = sym.FullyConnected(x, num_hidden=3, name="fc", no_bias=True) * w + s
        return o, o

    outs, states = sym.contrib.foreach(body, d, st)
    group = sym.Group([outs, states])
    assert group.list_arguments() == ["d", "st", "fc_weight", "w"]
    node = json.loads(group.tojson())["nodes"][4]
    assert node["attrs"] == {
        "in_data_locs": "[0]",
        "in_state_locs": "[3]",
        "num_args": "5",
        "num_out_data": "1",
        "num_outputs": "2",
        "remain_locs": "[1, 2]",
    }
    names = [(n["op"], n["name"]) for n in node["subgraphs"][0]["nodes"]]
    assert names[:4] == [
        ("null", "d-0"),
        ("null", "fc_weight"),
        ("FullyConnected", "fc"),
        ("null", "w"),
    ]
    assert names[-1][0] == "_copy"
    assert list(node["subgraphs"][0]) == ["nodes", "arg_nodes", "node_row_ptr", "heads"]
    args, outputs, _ = group.infer_shape(d=(5, 2, 4), w=(3,))
    assert args == [(5, 2, 4), (2, 3), (3, 4), (3,)]
    assert outputs == [(5, 2, 3), (2, 3)]
    exe = group.simple_bind(mx.cpu(), d=(5, 2, 4), w=(1, 3))
    assert [o.shape for o in exe.forward()] == [(5, 2, 3), (2, 3)]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x, s: sym.contrib.foreach(lambda x, s: (s, s), x, s), "have to be used"),
        (lambda x, s: sym.contrib.foreach(lambda x, s: (x, [s + x]), x, s), "different format"),
        (lambda x, s: sym.contrib.foreach(lambda x, s: x + s, x, s), "must return"),
        (lambda x, s: sym.contrib.while_loop(lambda s: s < 1, lambda s: (s, s), s), "specified"),
        (lambda x, s: sym.contrib.foreach(None, 3, s), "must be .nested. list of Symbol"),
        (
            lambda x, s: sym.contrib.while_loop(lambda s: s < 1, lambda s: (s, [s, s]), s, 2),
            "should be consistent",
        ),
        (lambda x, s: sym.contrib.cond(x, lambda: [x], lambda: [x, s]), "Number of outputs"),
    ],
)
def test_wrong_bodies(call, text):
    with pytest.raises(MXNetError, match=text):
        call(sym.var("x"), sym.var("s"))


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x: nd.contrib.while_loop(lambda x: x < 1, lambda x: (x, x), x), "specified"),
        (
            lambda x: nd.contrib.while_loop(lambda x: x, lambda x: (x, x), x, 2),
            "Return value of co",
        ),
        (lambda x: nd.contrib.cond(x, lambda: x, lambda: x), "Cannot convert pred"),
        (lambda x: nd.contrib.foreach(lambda x, s: (x, s), [3], x), "must be .nested. list of ND"),
    ],
)
def test_wrong_eager_calls(call, text):
    with pytest.raises(MXNetError, match=text):
        call(nd.array([1.0, 2.0]))


def test_states_that_change_their_shape_are_refused():
    class Grows(gluon.HybridBlock):
        def hybrid_forward(self, F, x, s):
            return F.contrib.foreach(lambda x, s: (x, F.concat(s, x, dim=0)), x, s)[0]

    block = Grows()
    block.hybridize()
    with pytest.raises(MXNetError, match="a state must keep its shape"):
        block(nd.ones((2, 3)), nd.ones((1,)))


@pytest.mark.parametrize("module", [nd, sym])
def test_contrib_tells_infinite_numbers(module):
    x = np.array([np.inf, -np.inf, np.nan, 1.0], np.float32)
    for name in ("isinf", "isnan", "isfinite"):
        f = getattr(module.contrib, name)
        y = f(nd.array(x)) if module is nd else f(sym.var("x")).eval(x=nd.array(x))[0]
        assert y.asnumpy().tolist() == getattr(np, name)(x).tolist()


def test_rand_zipfian():
    classes = nd.array([3])
    draws, expected, of_draws = nd.contrib.rand_zipfian(classes, 4, 5)
    assert draws.dtype == np.int64
    assert draws.shape == of_draws.shape == (4,)
    assert 0 <= draws.asnumpy().min() <= draws.asnumpy().max() < 5
    np.testing.assert_allclose(expected.asnumpy(), [0.49815515], rtol=1e-6)
    assert len(sym.contrib.rand_zipfian(sym.var("c"), 4, 5)) == 3


def test_loop_invariant_values_are_computed_once():
    class Constants(gluon.HybridBlock):
        def hybrid_forward(self, F, x, s):
            def body(x, s):
                weight = F.sin(F.reshape(F.arange(64 * 16), shape=(64, 16)) + 0.5)
                y = F.FullyConnected(x, weight, no_bias=True, num_hidden=64)
                y = F.Convolution(
                    F.reshape(y, shape=(-1, 1, 8, 8)),
                    F.cos(F.ones((16, 1, 3, 3)) * 2),
                    no_bias=True,
                    kernel=(3, 3),
                    num_filter=16,
                )
                return F.relu(y).mean(axis=(1, 2, 3)) + s, s + 1

            return F.contrib.foreach(body, x, s)[0]

    block, inputs = Constants(), draw((3, 8, 16), (8,))
    eager = block(*inputs).asnumpy()
    block.hybridize()
    for _ in range(4):
        np.testing.assert_allclose(block(*inputs).asnumpy(), eager, rtol=1e-5, atol=1e-5)
        mx.wait_compiled()


class IntegerStates(gluon.HybridBlock):
    """Integer states and results, which gradients pass as they pass integer casts."""

    def hybrid_forward(self, F, x, s):
        def body(d, state):
            state = state + F.cast(d * 2.0, dtype="int32")
            return F.cast(state, dtype="float32") * d, state

        outs, last = F.contrib.foreach(body, x, s)
        branch = F.contrib.cond(
            F.sum(x) > 0, lambda: F.cast(x * 2, dtype="int32"), lambda: F.cast(x, dtype="int32")
        )
        return outs, F.cast(last, dtype="float32"), F.cast(branch, dtype="float32")


@pytest.mark.parametrize(
    ("head", "of_x", "of_s"),
    [(0, [16, 18, 21], 6), (1, [2, 2, 2], 1), (2, [2, 2, 2], 0)],
)
def test_gradients_of_integer_states_are_mxnets(head, of_x, of_s):
    net = IntegerStates()
    net.hybridize()
    x, s = nd.array([1.3, 2.2, 3.7]).reshape((3, 1)), nd.array([2], dtype="int32")
    x.attach_grad()
    s.attach_grad()
    with autograd.record():
        outs = net(x, s)
    outs[head].backward()
    assert x.grad.asnumpy().ravel().tolist() == of_x
    assert s.grad.dtype == np.int32 and s.grad.asnumpy().tolist() == [of_s]
