"""Attention found in graphs gives what its operators give: results, gradients, masks, NaN."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.engine import cpu
from plait.graph.graph import Builder, topological, variable
from plait.graph.passes.attention import attention as attention_pass
from plait.graph.passes.gradient import gradient
from plait.graph.passes.views import regrouped, view_of
from plait.graph.program import lower
from plait.kernels import backend
from plait.kernels.record import Type

F = Builder()


def attention(outputs):
    return attention_pass(outputs, backend.of(cpu()))


def names(program):
    return [op.name for op in program.ops]


def v(name, shape, dtype="float32"):
    return variable(name, Type(shape, dtype))


def draw(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def heads(x, n):
    x = F.transpose(F.Reshape(x, shape=(0, 0, n, -1)), axes=(0, 2, 1, 3))
    return F.Reshape(x, shape=(-3, 0, 0))


def joined(o, n):
    o = F.transpose(F.Reshape(o, shape=(-4, -1, n, 0, 0)), axes=(0, 2, 1, 3))
    return F.Reshape(o, shape=(0, 0, -3))


def packed(x, n_heads, mask=lambda s: s, soft=lambda s: F.softmax(s)):
    """Self-attention out of one projection (batch, seq, 3 * dim)."""
    q, k, values = (heads(t, n_heads) for t in F.SliceChannel(x, num_outputs=3, axis=-1))
    dim = q.shape[-1]
    p = soft(mask(F.batch_dot(q, k, transpose_b=True) / dim**0.5))
    return joined(F.batch_dot(p, values), n_heads)


def both(y, inputs, arrays):
    """Results and gradients of sum(y * dy), unfused and with attention, and the latter's names."""
    found = []
    dy = v("dy", y.shape)
    wrt = [x for x in inputs if x.dtype == "float32"]
    for out in (y, attention([y])[0]):
        outs = [out, *(g for g in gradient([out], [dy], wrt))]
        program = lower(outs, [*inputs, dy], cpu(0))
        given = [*map(nd.array, arrays), nd.array(draw(y.shape, 9))]
        given = [a.astype(x.dtype) for a, x in zip(given, [*inputs, dy])]
        mx.random.seed(7)
        found.append(([o.asnumpy() for o in program.run(given)], names(program)))
    (plain, _), (fused, operators) = found
    return plain, fused, operators


def same(plain, fused, scale=1.0):
    for a, b in zip(plain, fused, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=3e-6 * max(1, np.nanmax(np.abs(a))))


@pytest.mark.parametrize(
    "batch, seq, n_heads, dim",
    [(2, 5, 3, 4), (1, 1, 1, 7), (1, 127, 2, 13), (3, 200, 1, 64), (2, 7, 1, 256)],
)
def test_packed_projection(batch, seq, n_heads, dim):
    x = v("x", (batch, seq, 3 * n_heads * dim))
    plain, fused, operators = both(packed(x, n_heads), [x], [draw(x.shape)])
    same(plain, fused)
    assert operators.count("_attention") == operators.count("_attention_grad") == 1
    assert not {"transpose", "SliceChannel", "batch_dot", "softmax", "Concat"} & set(operators)


def test_other_lengths_and_values_apart():
    q, k, values = v("q", (4, 9, 8)), v("k", (4, 300, 8)), v("v", (4, 300, 5))
    y = F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.3), values)
    arrays = [draw(t.shape, i) for i, t in enumerate((q, k, values))]
    plain, fused, operators = both(y, [q, k, values], arrays)
    same(plain, fused)
    assert operators == ["_attention", "_attention_grad"]


def test_additive_masks():
    x = v("x", (2, 6, 3 * 8))
    for shape in ((4, 6, 6), (1, 6, 6), (4, 1, 6), (6,), (4, 6, 1)):
        mask = v("mask", shape)
        y = packed(x, 2, lambda s: F.broadcast_add(s, mask))  # noqa: B023
        plain, fused, operators = both(y, [x, mask], [draw(x.shape), draw(shape, 3)])
        same(plain, fused)
        assert "_attention" in operators
    causal = np.triu(np.full((1, 6, 6), -np.inf, "float32"), 1)
    mask = v("mask", causal.shape)
    y = packed(x, 2, lambda s: F.broadcast_add(s, mask))
    plain, fused, _ = both(y, [x], [draw(x.shape)]) if False else run_masked(y, x, mask, causal)
    same(plain, fused)


def run_masked(y, x, mask, values):
    dy = v("dy", y.shape)
    results = []
    for out in (y, attention([y])[0]):
        program = lower([out, gradient([out], [dy], [x])[0]], [x, mask, dy], cpu(0))
        given = [nd.array(a) for a in (draw(x.shape), values, draw(y.shape, 9))]
        results.append([o.asnumpy() for o in program.run(given)])
    assert "_attention" in names(program)
    return *results, None


def test_rows_without_a_key():
    """All keys masked by -inf: NaN in that row, as softmax has it; by a length of 0: zeros."""
    x, mask = v("x", (1, 4, 3 * 4)), v("mask", (1, 4, 4))
    values = np.zeros((1, 4, 4), "float32")
    values[0, 2] = -np.inf
    y = packed(x, 1, lambda s: F.broadcast_add(s, mask))
    plain, fused, _ = run_masked(y, x, mask, values)
    np.testing.assert_array_equal(np.isnan(plain[0]), np.isnan(fused[0]))
    assert np.isnan(fused[0][0, 2]).all() and not np.isnan(fused[0][0, 1]).any()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_lengths(dtype):
    x, length = v("x", (3, 5, 3 * 4)), v("length", (3, 5), dtype)
    soft = lambda s: F.softmax(s, length, use_length=True)
    lengths = np.array([[5] * 5, [0, 1, 2, 3, 4], [9, 0, 3, 3, 3]])
    plain, fused, operators = both(packed(x, 1, soft=soft), [x, length], [draw(x.shape), lengths])
    same(plain, fused)
    assert "_attention" in operators and (fused[0][1, 0] == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_a_number_spreads_as_unfused(bad):
    x = v("x", (1, 5, 3 * 4))
    for place in ((0, 2, 1), (0, 2, 5), (0, 2, 9)):  # in q, k, v
        values = draw(x.shape)
        values[place] = bad
        plain, fused, _ = both(packed(x, 1), [x], [values])
        np.testing.assert_array_equal(np.isnan(plain[0]), np.isnan(fused[0]))


def kept(build, *shapes, dtype="float32"):
    inputs = [v(f"x{i}", s, dtype) for i, s in enumerate(shapes)]
    outputs = build(*inputs)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    return attention(outputs) == outputs


def product(q, k, values, soft=F.softmax, **kw):
    return F.batch_dot(soft(F.batch_dot(q, k, transpose_b=True), **kw), values)


def test_what_is_left_alone():
    three = [(2, 3, 4)] * 3
    square = [(2, 3, 3)] * 3
    assert not kept(product, *three)
    assert kept(product, *three, dtype="float64")
    assert kept(lambda q, k, x: product(q, k, x, axis=1), *square)
    assert kept(lambda q, k, x: product(q, k, x, temperature=2.0), *three)
    assert kept(
        lambda q, k, x: [p := F.softmax(F.batch_dot(q, k, transpose_b=True)), F.batch_dot(p, x)],
        *three,
    )
    assert kept(product, (2, 3, 300), (2, 3, 300), (2, 3, 4))  # longer than a panel
    train = Builder(train=True)
    drop = lambda s: train.Dropout(F.softmax(s), p=0.5, axes=(1,))
    assert kept(lambda q, k, x: product(q, k, x, soft=drop), *three)
    idle = lambda s: F.Dropout(F.softmax(s), p=0.5)
    assert not kept(lambda q, k, x: product(q, k, x, soft=idle), *three)


def test_the_same_array_for_keys_and_values():
    x = v("x", (2, 6, 8))
    plain, fused, operators = both(product(x, x, x), [x], [draw(x.shape)])
    same(plain, fused)
    assert "_attention" in operators


def test_views():
    x = v("x", (2, 6, 24))
    part = F.SliceChannel(x, num_outputs=3, axis=-1)[1]
    found = view_of(F.transpose(F.reshape_to(part, shape=(2, 6, 2, 4)), axes=(0, 2, 1, 3)))
    assert found.base == x and found.at == 8
    assert found.axes == (((2, 144),), ((2, 4),), ((6, 24),), ((4, 1),))
    five = F.Reshape(x, shape=(0, 0, 3, 2, 4))
    found = view_of(F.split(five, num_outputs=3, axis=2, squeeze_axis=True)[2])
    assert found.at == 16 and found.axes == (((2, 144),), ((6, 24),), ((2, 4),), ((4, 1),))
    turned = view_of(F.reshape_to(F.transpose(x), shape=(24 * 12,)))
    assert turned.axes == (((24, 1), (6, 24), (2, 144)),)
    assert regrouped([(6, 10), (4, 1)], (4, 6)) is None


class Block(gluon.HybridBlock):
    """Pre-norm attention with a mask, as GPT has it."""

    def __init__(self, dim, n_heads):
        super().__init__()
        self.dim, self.n_heads = dim, n_heads
        self.norm, self.qkv = gluon.nn.LayerNorm(), gluon.nn.Dense(3 * dim, flatten=False)
        self.out = gluon.nn.Dense(dim, flatten=False)

    def hybrid_forward(self, F, x, mask):
        qkv = F.reshape(self.qkv(self.norm(x)), (0, 0, 3, self.n_heads, -1))
        qkv = F.transpose(qkv, (2, 0, 3, 1, 4))
        q, k, v = F.split(qkv, 3, axis=0, squeeze_axis=True)
        s = F.batch_dot(q, k, transpose_b=True) * (self.dim // self.n_heads) ** -0.5
        p = F.softmax(F.broadcast_add(s, mask))
        o = F.reshape(F.transpose(F.batch_dot(p, v), (0, 2, 1, 3)), (0, 0, -3))
        return x + self.out(o)


def test_compiled_block_equals_tier_0():
    net = Block(24, 3)
    net.initialize(mx.init.Normal(0.3))
    x = nd.array(draw((2, 10, 24)))
    mask = nd.array(np.triu(np.full((1, 1, 10, 10), -1e9, "float32"), 1))
    x.attach_grad()

    def step():
        with autograd.record():
            y = net(x, mask)
        y.backward()
        grads = [p.grad().asnumpy() for p in net.collect_params().values()]
        return [net(x, mask).asnumpy(), y.asnumpy(), x.grad.asnumpy(), *grads]

    eager = step()
    net.hybridize()
    for _ in range(4):
        step()
    mx.wait_compiled()
    same(eager, step())
    graphs = [trace.graph for trace in net._traces.values()]
    ops = [e.serving.program.ops for g in graphs for e in g.entries.values()]
    assert all("_attention" in [op.name for op in of] for of in ops)


# ---- dropout of the probabilities ----------------------------------------------------------------

TRAIN = Builder(train=True)


@pytest.mark.parametrize("seq, p", [(5, 0.5), (33, 0.1), (65, 0.25), (200, 0.4), (7, 1.0)])
def test_dropout_of_probabilities(seq, p):
    """The same numbers as Dropout's, for results and gradients; other than without it."""
    x, mask = v("x", (2, seq, 3 * 2 * 5)), v("mask", (4, seq, seq))
    soft = lambda s: TRAIN.Dropout(F.softmax(s), p=p)
    y = packed(x, 2, lambda s: F.broadcast_add(s, mask), soft)
    plain, fused, operators = both(y, [x, mask], [draw(x.shape), draw(mask.shape, 3)])
    same(plain, fused)
    assert operators[:2] == ["_attention_dropout", "_attention_grad"]
    left, _, _ = both(packed(x, 2, lambda s: F.broadcast_add(s, mask)), [x, mask], [
        draw(x.shape), draw(mask.shape, 3),
    ])  # fmt: skip
    assert np.abs(left[0] - fused[0]).max() > 0.01


def test_dropout_with_lengths_and_selections():
    x, length = v("x", (3, 5, 3 * 4)), v("length", (3, 5), "int32")
    soft = lambda s: TRAIN.Dropout(F.softmax(s, length, use_length=True), p=0.3)
    lengths = np.array([[5] * 5, [0, 1, 2, 3, 4], [9, 0, 3, 3, 3]])
    plain, fused, operators = both(packed(x, 1, soft=soft), [x, length], [draw(x.shape), lengths])
    same(plain, fused)
    assert "_attention_dropout" in operators
    chosen = np.array([[1, 1, 0, 0, 1], [0, 0, 0, 0, 0], [0, 1, 0, 1, 0]])
    condition = v("condition", (3, 1, 5), "int32")
    spread = F.broadcast_to(condition, shape=(3, 5, 5))
    far = F._full(shape=(3, 5, 5), value=-1e18, dtype="float32")
    y = packed(
        x, 1, lambda s: F.where(spread, s, far), lambda s: TRAIN.Dropout(F.softmax(s), p=0.3)
    )
    plain, fused, operators = both(y, [x, condition], [draw(x.shape), chosen[:, None]])
    same(plain, fused)
    assert "_attention_dropout" in operators


class Dropped(Block):
    def hybrid_forward(self, F, x, mask):
        x = F.Dropout(x, p=0.2)
        q, k, v = F.split(self.qkv(self.norm(x)), 3, axis=-1)
        p = F.softmax(F.broadcast_add(F.batch_dot(q, k, transpose_b=True), mask))
        return F.Dropout(self.out(F.batch_dot(F.Dropout(p, p=0.3), v)), p=0.1)


@pytest.mark.parametrize("again", [False, True])
def test_dropout_of_a_compiled_block_equals_tier_0(again):
    """Also where the graph is walked again for gradients of gradients."""
    net = Dropped(12, 1)
    net.initialize(mx.init.Normal(0.3))
    x, mask = nd.array(draw((2, 40, 12))), nd.zeros((1, 40, 40))
    x.attach_grad()

    def step():
        mx.random.seed(11)
        with autograd.record():
            y = net(x, mask)
            if again:
                y = autograd.grad(y, [x], create_graph=True)[0] * y
        y.backward()
        return [y.asnumpy(), x.grad.asnumpy()]

    net.hybridize()
    step()
    first = step()
    for _ in range(4):
        step()
    mx.wait_compiled()
    same(first, step())
    graphs = [trace.graph for trace in net._traces.values()]
    ops = [e.serving.program.ops for g in graphs for e in g.entries.values()]
    assert any("_attention_dropout" in [op.name for op in of] for of in ops)


# ---- keys that a mask leaves no part -------------------------------------------------------------


@pytest.mark.parametrize("far", [-np.inf, -1e9])
@pytest.mark.parametrize("kind", ["causal", "lengths", "row"])
def test_masked_keys_are_left_out(kind, far):
    """Behind the last key of a block of queries; the result and the gradients of all keys stay."""
    n = 220
    x, mask = v("x", (1, n, 3 * 9)), v("mask", (1, n, n))
    values = np.zeros((1, n, n), "float32")
    if kind == "causal":
        values[0][np.triu_indices(n, 1)] = far
    else:
        values[0, : n // 2, 50:] = far
        values[0, n // 2 :, (50 if kind == "row" else 117) :] = far
        if kind == "row":
            values[0, 100] = -np.inf  # all its keys: NaN in all gradients
    plain, fused, _ = run_masked(packed(x, 1, lambda s: F.broadcast_add(s, mask)), x, mask, values)
    same(plain, fused)


def test_what_is_not_a_number_counts_though_it_is_masked():
    x, mask = v("x", (1, 40, 3 * 4)), v("mask", (1, 40, 40))
    values = np.triu(np.full((1, 40, 40), -np.inf, "float32"), 1)
    for part in range(3):  # of q, k and v
        given = draw(x.shape)
        given[0, 35, 4 * part] = np.nan
        results = []
        for out in (y := packed(x, 1, lambda s: F.broadcast_add(s, mask)), attention([y])[0]):
            program = lower([out], [x, mask], cpu(0))
            results.append(program.run([nd.array(given), nd.array(values)])[0].asnumpy())
        np.testing.assert_array_equal(*map(np.isnan, results))


def test_second_order():
    x = nd.array(draw((1, 4, 3 * 6), 5))
    other = nd.array(draw((1, 4, 3 * 6), 6))
    variables = [v("x", x.shape)]
    plain = [packed(variables[0], 2)]
    found = []
    for outputs in (plain, attention(plain)):
        dy = v("dy", plain[0].shape)
        g = gradient(outputs, [dy], variables)[0]
        du = v("du", x.shape)
        second = gradient([g], [du], [*variables, dy])
        given = [x, nd.array(draw(dy.shape, 2)), other]
        program = lower(second, [*variables, dy, du], cpu(0))
        found.append([o.asnumpy() for o in program.run(given)])
    same(*found)


# ---- selections as masks, interleaved projections ------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 6, 6), (4, 1, 6), (1, 6, 6)])
@pytest.mark.parametrize("value", [-1e18, -2.0, -np.inf])
def test_selections(shape, value):
    """F.where(mask, scores, -1e18): what is left out has that score, and passes no gradient."""
    x, mask = v("x", (2, 6, 3 * 8)), v("mask", shape, "int32")

    def chosen(s):
        other = F.ones_like(s) * value if value < -9 else F._full(shape=s.shape, value=value)
        return F.where(F.broadcast_to(mask, shape=s.shape), s, other)

    keep = np.random.RandomState(0).rand(*shape) > 0.4
    keep[0, -1] = np.isinf(value)  # a row without a key where that is no NaN
    y = packed(x, 2, chosen)
    plain, fused, operators = both(y, [x, mask], [draw(x.shape), keep])
    same(plain, fused)
    assert operators.count("_attention") == operators.count("_attention_grad") == 1
    assert not {"where", "softmax", "batch_dot"} & set(operators)


@pytest.mark.parametrize("masked", ["", "length", "add"])
@pytest.mark.parametrize("own", [True, False])
def test_interleaved_projections(own, masked):
    """Of gluon-nlp: (length, batch, heads * parts * size), read and written where they lie."""
    batch, n_heads, size, n = 2, 3, 4, 7
    if own:
        inputs = [v("qkv", (n, batch, n_heads * 3 * size))]
        s = F._contrib_interleaved_matmul_selfatt_qk(*inputs, heads=n_heads)
    else:
        inputs = [v("q", (5, batch, n_heads * size)), v("kv", (n, batch, n_heads * 2 * size))]
        s = F._contrib_interleaved_matmul_encdec_qk(*inputs, heads=n_heads)
    arrays = [draw(x.shape, i) for i, x in enumerate(inputs)]
    if masked == "length":
        inputs.append(v("length", s.shape[:2], "int32"))
        arrays.append(np.random.RandomState(1).randint(1, n + 1, s.shape[:2]))
        p = F.softmax(s, inputs[-1], axis=-1, use_length=True)
    elif masked:
        inputs.append(v("mask", s.shape))
        arrays.append(draw(s.shape, 5))
        p = F.softmax(s + inputs[-1])
    else:
        p = F.softmax(s)
    if own:
        y = F._contrib_interleaved_matmul_selfatt_valatt(inputs[0], p, heads=n_heads)
    else:
        y = F._contrib_interleaved_matmul_encdec_valatt(inputs[1], p, heads=n_heads)
    plain, fused, operators = both(y, inputs, arrays)
    same(plain, fused)
    assert operators.count("_attention") == operators.count("_attention_grad") == 1
    assert "transpose" not in operators or masked == "add"


def test_interleaved_scores_that_others_read_stay():
    x = v("qkv", (5, 2, 24))
    s = F._contrib_interleaved_matmul_selfatt_qk(x, heads=2)
    y = F._contrib_interleaved_matmul_selfatt_valatt(x, p := F.softmax(s), heads=2)
    ops = [n.op.name for n in topological(attention([y, p])) if n.op]
    assert "_attention" not in ops and "_contrib_interleaved_matmul_selfatt_qk" in ops


@pytest.mark.parametrize("kind", ["add", "where"])
@pytest.mark.parametrize("far", [-1e4, -1e9, -1e10, -3e38])
def test_a_row_whose_keys_are_all_far_below(kind, far):
    """Against NumPy in float64, with the scores rounded to float32 as both graphs round them."""
    n, dim = 9, 4
    x, mask = v("x", (1, n, 3 * dim)), v("mask", (1, n, n))
    values = np.triu(np.full((1, n, n), far), 1).astype("float32")
    values[0, [2, 5]] = far  # rows without a key
    values[0, 5, 3] = far * 1.25 if kind == "add" and far > -1e38 else far
    if kind == "add":
        y = packed(x, 1, lambda s: F.broadcast_add(s, mask))
    else:
        values = (values == 0).astype("float32")
        y = packed(x, 1, lambda s: F.where(mask, s, F._full(shape=s.shape, value=far)))
    plain, fused, _ = run_masked(y, x, mask, values)

    q, k, w = (a[0].astype("float64") for a in np.split(draw(x.shape), 3, axis=-1))
    dy = draw((1, n, dim), 9)[0].astype("float64")
    s = (q @ k.T / 2).astype("float32")
    s = s + values[0] if kind == "add" else np.where(values[0], s, np.float32(far))
    s = s.astype("float64")
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = dy @ w.T
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / 2
    if kind == "where":
        ds *= values[0]
    want = [(p @ w)[None], np.concatenate([ds @ k, ds.T @ q, p.T @ dy], axis=-1)[None]]
    tolerance = 2e-6 + abs(far if far == -1e4 else 0) * 1e-7  # of the scores' own rounding
    for found in (plain, fused):
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=100 * tolerance, atol=10 * tolerance)
