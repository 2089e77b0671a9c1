"""A decoder with a cache of keys and values: its tokens are those of the whole sequence, computed
anew in NumPy's float64 for each token."""

import numpy as np
import pytest
from plait import MXNetError, autograd, gluon, nd
from plait.engine.error import IndexOutOfRange, InvalidValue, OperatorError, ShapeError
from plait.gluon import HybridBlock, nn

VOCABULARY, UNITS, HEADS, LAYERS, LENGTH = 40, 24, 3, 2, 24


class Layer(HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.norm = nn.LayerNorm(in_channels=UNITS)
            self.qkv = nn.Dense(3 * UNITS, flatten=False, in_units=UNITS)
            self.out = nn.Dense(UNITS, flatten=False, use_bias=False, in_units=UNITS)
            self.up = nn.Dense(2 * UNITS, "relu", flatten=False, in_units=UNITS)
            self.down = nn.Dense(UNITS, flatten=False, in_units=2 * UNITS)

    def hybrid_forward(self, F, x, position, keys, values):
        q, k, v = F.split(self.qkv(self.norm(x)), num_outputs=3, axis=2)
        x = x + self.out(F.contrib.cached_attention(q, k, v, keys, values, position))
        return x + self.down(self.up(x))


class Decoder(HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.tokens = nn.Embedding(VOCABULARY, UNITS)
            self.layers = nn.HybridSequential()
            for _ in range(LAYERS):
                self.layers.add(Layer())
            self.scores = nn.Dense(VOCABULARY, flatten=False, in_units=UNITS)

    def hybrid_forward(self, F, tokens, position, states):
        x = self.tokens(tokens)
        for layer, (keys, values) in zip(self.layers, states):
            x = layer(x, position, keys, values)
        return self.scores(F.slice_axis(x, axis=1, begin=-1, end=None))


def decoder(seed=0):
    net = Decoder()
    net.initialize()
    rng = np.random.default_rng(seed)
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.normal(size=p.shape) * 0.3))
    return net


def caches(batch):
    shape = (batch, HEADS, LENGTH, UNITS // HEADS)
    return [[nd.zeros(shape), nd.zeros(shape)] for _ in range(LAYERS)]


def generate(net, prompts, new, states=None):
    """Scores of the next token, and the tokens, as the network decodes greedily."""
    states = states or caches(len(prompts))
    given, at, scores = nd.array(prompts), 0, []
    for _ in range(new):
        scores.append(net(given, nd.array([at], dtype="int32"), states))
        at += given.shape[1]
        given = nd.argmax(scores[-1], axis=2)
    return np.concatenate([s.asnumpy() for s in scores], axis=1)


def weights(net):
    prefix = len(net.prefix)
    found = {n[prefix:]: p.data().asnumpy() for n, p in net.collect_params().items()}
    return {n: v.astype(np.float64) for n, v in found.items()}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def whole(net, tokens):
    """Scores after the last of all tokens (batch, n), without a cache, in float64."""
    dense = lambda x, d: x @ p(d.weight).T + (0 if d.bias is None else p(d.bias))
    p = lambda parameter: parameter.data().asnumpy().astype(np.float64)
    x = p(net.tokens.weight)[tokens]
    n = tokens.shape[1]
    for layer in net.layers:
        mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        normed = (x - mean) / np.sqrt(var + 1e-5) * p(layer.norm.gamma) + p(layer.norm.beta)
        q, k, v = (
            y.reshape(len(x), n, HEADS, -1).swapaxes(1, 2)
            for y in np.split(dense(normed, layer.qkv), 3, -1)
        )
        s = q @ k.swapaxes(2, 3) / np.sqrt(UNITS / HEADS)
        s = np.where(np.tri(n, dtype=bool), s, -np.inf)
        y = (softmax(s) @ v).swapaxes(1, 2).reshape(len(x), n, UNITS)
        x = x + dense(y, layer.out)
        x = x + dense(np.maximum(dense(x, layer.up), 0), layer.down)
    return dense(x[:, -1:], net.scores)


def anew(net, prompts, new):
    tokens, scores = np.array(prompts), []
    for _ in range(new):
        scores.append(whole(net, tokens))
        tokens = np.concatenate([tokens, scores[-1].argmax(-1)], axis=1)
    return np.concatenate(scores, axis=1)


PROMPTS = [[1, 5, 30, 7], [39, 0, 2, 2], [11, 12, 13, 14]]


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("prompts", [PROMPTS[:1], PROMPTS])
def test_greedy_decoding_equals_the_whole_sequence(hybrid, prompts):
    net = decoder()
    net.hybridize(hybrid)
    for _ in range(3):  # a later generation runs compiled
        got = generate(net, prompts, 16)
    want = anew(net, prompts, 16)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    assert (got.argmax(-1) == want.argmax(-1)).all()


def test_a_position_needs_no_new_trace():
    net, states = decoder(), caches(1)
    net.hybridize()
    generate(net, PROMPTS[:1], 12, states)
    assert [r.hits for r in net.hybrid_report().rows] == [1, 11]  # the prompt, and tokens
    assert (states[0][0].asnumpy()[0, :, :15] != 0).all()
    assert (states[0][0].asnumpy()[0, :, 15:] == 0).all()


def test_positions_of_each_sequence_of_a_batch():
    """Prompts of different lengths decode on together."""
    rng = np.random.default_rng(3)
    lengths, dim = [2, 7, 5], 4
    past = rng.normal(size=(2, 3, 2, 9, dim)).astype(np.float32)
    q, k, v = rng.normal(size=(3, 3, 1, 2 * dim)).astype(np.float32)
    keys, values = (nd.array(x) for x in past)
    given = [nd.array(x) for x in (q, k, v)]
    y = nd.contrib.cached_attention(*given, keys, values, nd.array(lengths, dtype="int64"))
    for b, n in enumerate(lengths):
        one = [nd.array(x[b : b + 1]) for x in (q, k, v, *past)]
        alone = nd.contrib.cached_attention(*one, nd.array([n]))
        np.testing.assert_array_equal(y.asnumpy()[b], alone.asnumpy()[0])
        np.testing.assert_array_equal(keys.asnumpy()[b, :, n].ravel(), k[b, 0])


def test_no_query_reads_values_behind_it():
    x = [nd.random.normal(shape=(1, 20, 8)) for _ in range(3)]
    x[2][0, 12] = np.nan
    cache = [nd.zeros((1, 2, 30, 4)) for _ in range(2)]
    cache[1][:, :, 25] = np.inf  # not yet valid
    y = nd.contrib.cached_attention(*x, *cache, nd.array([3])).asnumpy()
    assert np.isfinite(y[0, :12]).all() and np.isnan(y[0, 12:]).all()


@pytest.mark.parametrize("position", [-1, 8, 2**40])
def test_a_position_outside_the_cache(position):
    x, cache = nd.ones((1, 3, 8)), [nd.zeros((1, 2, 10, 4)) for _ in range(2)]
    with pytest.raises(IndexOutOfRange, match=r"position must be in .* = \[0, 7\], got"):
        nd.contrib.cached_attention(
            x, x, x, *cache, nd.array([position], dtype="int64")
        ).wait_to_read()


@pytest.mark.parametrize(
    "shapes, rule",
    [
        ([(1, 1, 8)] * 3 + [(1, 2, 9, 4), (1, 2, 8, 4), (1,)], "same batch, heads and length"),
        ([(1, 1, 8)] * 3 + [(1, 2, 4), (1, 2, 4), (1,)], "must be .batch, heads, length, size."),
        ([(1, 1, 12)] * 3 + [(1, 2, 9, 4)] * 2 + [(1,)], "keys and values with the caches' heads"),
        ([(1, 1, 12)] + [(1, 1, 8)] * 2 + [(1, 2, 9, 4)] * 2 + [(1,)], "multiple of the cache's"),
        ([(1, 10, 8)] * 3 + [(1, 2, 9, 4)] * 2 + [(1,)], "10 new tokens must fit"),
        ([(3, 1, 8)] * 3 + [(3, 2, 9, 4)] * 2 + [(2,)], r"position must have shape \(1,\) or"),
    ],
)
def test_shapes_that_do_not_fit(shapes, rule):
    with pytest.raises(ShapeError, match=rule) as error:
        nd.contrib.cached_attention(*map(nd.ones, shapes))
    assert isinstance(error.value, MXNetError)


def test_training_through_a_cache_is_refused():
    x, cache = nd.ones((1, 1, 8)), [nd.zeros((1, 2, 9, 4)) for _ in range(2)]
    x.attach_grad()
    refused = pytest.raises(OperatorError, match="has no gradient: later calls write the caches")
    with autograd.record(), refused:
        nd.contrib.cached_attention(x, x, x, *cache, nd.array([0]))


# ---- weights of 8 bits ---------------------------------------------------------------------------


def test_int8_weights_are_near_and_freed():
    net = decoder()
    exact = generate(net, PROMPTS, 1)
    shapes = {n: p.shape for n, p in net.collect_params().items() if p.name.endswith("weight")}
    assert gluon.contrib.quantize_weights(net) is net
    params = net.collect_params()
    assert {n: p.shape for n, p in params.items() if p.name.endswith("weight")} == shapes
    dense = [p for n, p in params.items() if "dense" in n and n.endswith("weight")]
    assert len(dense) == 4 * LAYERS + 1
    assert all(p.data().dtype == np.int8 and p.grad_req == "null" for p in dense)
    net.hybridize()
    got = generate(net, PROMPTS, 1)
    error = np.abs(got - exact).max() / np.abs(exact).max()
    assert 0 < error < 0.05


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 9, 40])
@pytest.mark.parametrize("n, k", [(1, 1), (2, 40), (5, 7), (67, 33), (130, 64), (1403, 50)])
def test_int8_dense_equals_float64(rows, n, k):
    rng = np.random.default_rng(rows + n)
    x, scale, bias = (rng.normal(size=s).astype(np.float32) for s in ((rows, k), (n,), (n,)))
    w = rng.integers(-128, 128, (n, k)).astype(np.int8)
    given = nd.array(x), nd.array(w, dtype="int8"), nd.array(scale), nd.array(bias)
    got = nd.contrib.int8_dense(*given, num_hidden=n).asnumpy()
    want = x.astype(np.float64) @ w.T * scale + bias
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4 * np.abs(want).max())


def test_an_int8_network_is_saved_and_loaded(tmp_path):
    net = gluon.contrib.quantize_weights(decoder())
    file = str(tmp_path / "int8.params")
    net.save_parameters(file)
    again = gluon.contrib.quantize_weights(Decoder())  # without weights
    again.load_parameters(file)
    want = generate(net, PROMPTS, 5)
    np.testing.assert_array_equal(generate(again, PROMPTS, 5), want)


def test_an_int8_network_is_exported(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(8, "relu", in_units=6), nn.Dense(3, use_bias=False, in_units=8))
    net.initialize()
    gluon.contrib.quantize_weights(net).hybridize()
    x = nd.random.normal(shape=(2, 6))
    want = net(x).asnumpy()
    symbol, params = str(tmp_path / "net"), str(tmp_path / "net-0000.params")
    net.export(symbol)
    again = gluon.SymbolBlock.imports(f"{symbol}-symbol.json", ["data"], params)
    np.testing.assert_array_equal(again(x).asnumpy(), want)


def test_a_layer_that_is_shared_stays_shared():
    net, shared = nn.HybridSequential(), nn.Dense(4, in_units=4)
    net.add(shared, nn.HybridSequential(), shared)
    net.initialize()
    gluon.contrib.quantize_weights(net)
    assert net[0] is net[2] and net[0].weight.data().dtype == np.int8


def test_what_cannot_be_quantized():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2))
    net.initialize()
    with pytest.raises(InvalidValue, match="net must contain its Dense layers"):
        gluon.contrib.quantize_weights(net[0])
    net[0].weight.set_data(nd.array([[1, np.nan], [0, 0]]))
    with pytest.raises(InvalidValue, match="must be finite"):
        gluon.contrib.quantize_weights(net)
    assert type(net[0]) is nn.Dense
    net.cast("float16")
    with pytest.raises(InvalidValue, match="must be float32, got float16"):
        gluon.contrib.quantize_weights(net)
