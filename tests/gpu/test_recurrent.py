"""RNN on gpu(0) by our own kernels against NumPy, both ways: weights in registers and in the cache,
several blocks."""

import numpy as np
import plait as mx
import pytest
from calls import TOLERANCE, back, call, close, on_gpu, reference
from plait import autograd, cpu, gpu, nd
from plait.kernels.cuda import matmul_plan, recurrent_plan
from plait.kernels.ops.recurrent_cells import layout, total

MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    monkeypatch.setattr(recurrent_plan, "LIBRARY", False)


def arrays_of(rng, shape, attrs, dtype, lengths=None):
    lay = layout(shape, **attrs)
    n = lay.layers * lay.directions
    shapes = [shape, (total(lay.parameter_shapes()),), (n, shape[1], lay.out)]
    shapes += [(n, shape[1], lay.hidden)] if attrs["mode"] == "lstm" else []
    arrays = [on_gpu(0.4 * rng.standard_normal(s), dtype) for s in shapes]
    if lengths is not None:
        arrays.append(nd.array(lengths, ctx=gpu(0), dtype="int32"))
    return arrays


def both_ways(shape, dtype="float32", lengths=None, **given):
    rng = np.random.default_rng(0)
    sizes = dict(num_layers=1, bidirectional=False, projection_size=None) | {
        k: v for k, v in given.items() if k in ("mode", "state_size", "num_layers", "bidirectional")
    }
    more = {k: v for k, v in given.items() if k not in sizes}
    more["use_sequence_length"] = lengths is not None
    arrays = arrays_of(rng, shape, sizes, dtype, lengths)
    outs = call("RNN", *arrays, **sizes, **more, state_outputs=True, train=True)
    extra = {"rng": None}
    want = reference_of(arrays, sizes | more | {"state_outputs": True}, extra)
    for got, w in zip(outs, want, strict=True):
        close(got, w, dtype)
    heads = [on_gpu(rng.standard_normal(o.shape), dtype) for o in outs[:-1]]
    inputs = [*heads, *arrays, outs[-1]]
    got = call("_rnn_grad", *inputs, **sizes, **more)
    for g, w in zip(got, reference("_rnn_grad", *inputs, **sizes, **more), strict=True):
        close(g, w, dtype)


def reference_of(arrays, attrs, extra):
    op = mx.kernels.record.REGISTRY["RNN"]
    given = [a.asnumpy() if a._spec.dtype == "int32" else back(a) for a in arrays]
    return op.ref(np, *given, **op.parse(attrs), train=True, **extra)


@pytest.mark.parametrize("library", (True, False))
@pytest.mark.parametrize("mode", MODES)
def test_both_ways(mode, library, monkeypatch):
    monkeypatch.setattr(matmul_plan, "FORCE_OWN", not library)
    both_ways((4, 3, 5), mode=mode, state_size=10)


@pytest.mark.parametrize("mode", MODES)
def test_weights_in_the_cache(mode, monkeypatch):
    """As layers have them that are too large for registers."""
    monkeypatch.setattr(recurrent_plan, "MOST_HELD", 0)
    both_ways((3, 2, 3), mode=mode, state_size=37)


@pytest.mark.parametrize("mode", ("lstm", "gru"))
def test_layers_directions_and_lengths(mode):
    both_ways(
        (4, 3, 5), mode=mode, state_size=9, num_layers=2, bidirectional=True, lengths=[4, 1, 3]
    )


def test_many_sequences():
    both_ways((2, 37, 4), mode="lstm", state_size=6)


@pytest.mark.parametrize("mode", ("lstm", "rnn_relu"))
def test_bfloat16(mode):
    both_ways((3, 2, 4), "bfloat16", mode=mode, state_size=8, num_layers=2)


def test_clipped_cells():
    clip = dict(lstm_state_clip_min=-0.1, lstm_state_clip_max=0.2)
    both_ways((3, 2, 4), mode="lstm", state_size=5, **clip)


def test_dropout_between_layers_is_that_of_the_cpu():
    got = []
    for device in (gpu(0), cpu()):
        mx.random.seed(3)
        layer = mx.gluon.rnn.GRU(6, num_layers=3, dropout=0.4, input_size=4)
        layer.initialize(mx.init.One(), ctx=device)
        mx.random.seed(5)
        x = nd.ones((3, 2, 4), ctx=device)
        x.attach_grad()
        with autograd.record():
            y = layer(x)
        y.backward()
        got.append((y.asnumpy(), x.grad.asnumpy()))
    for a, b in zip(*got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=TOLERANCE["float32"])
