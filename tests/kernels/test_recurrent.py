"""The native RNN against the reference and against itself: every mode, both dtypes, odd sizes, and
any sharing of the work."""

import itertools
import os
import subprocess
import sys

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd
from plait.kernels.cpu.backend import CPU
from plait.kernels.ops.recurrent_cells import layout
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Type
from plait.kernels.reference import run_reference

TOLERANCE = {"float32": 3e-5, "float64": 1e-12}
# steps, batch, inputs, hidden: less than a panel, more than one, deeper than a block, one row
SIZES = [(4, 3, 5, 6), (3, 29, 18, 37), (2, 7, 300, 65), (40, 1, 16, 16), (1, 1, 1, 1)]


def case(mode, sizes, dtype, layers=1, bidirectional=False, lengths=None, **more):
    """Arrays and attributes of one call."""
    steps, batch, inputs, hidden = sizes
    rng = np.random.default_rng(sum(sizes) + layers)
    attrs = {"mode": mode, "state_size": hidden, "num_layers": layers, **more}
    attrs["bidirectional"] = bidirectional
    lay = layout(sizes[:3], **({"projection_size": None} | attrs))
    n = len(lay.cells)
    draw = lambda *shape: rng.normal(size=shape).astype(dtype)
    weights = draw(sum(int(np.prod(s)) for s in lay.parameter_shapes())) * 0.3
    arrays = [draw(steps, batch, inputs), weights, draw(n, batch, lay.out)]
    arrays += [draw(n, batch, hidden)] if mode == "lstm" else []
    if lengths is not None:
        arrays.append(np.resize(np.array(lengths), batch))
        attrs["use_sequence_length"] = True
    return arrays, attrs | {"state_outputs": True}


def natively(name, arrays, attrs):
    """Whether the table has a kernel for this call."""
    op = REGISTRY[name]
    ins = [Type(a.shape, a.dtype.name) for a in arrays]
    return CPU.choose(op, ins, infer(op, attrs, ins), attrs) is not None


def both_ways(arrays, attrs):
    """Results and gradients of nd.RNN, and what the references give."""
    op, grad = REGISTRY["RNN"], REGISTRY["_rnn_grad"]
    full = op.parse(attrs) | {"train": True}
    assert natively("RNN", arrays, full) and natively("RNN", arrays, full | {"train": False})
    want = run_reference(op, full, arrays, np.random.default_rng(0))
    heads = [np.random.default_rng(3).normal(size=w.shape).astype(w.dtype) for w in want[:-1]]
    back = grad.parse({p.name: full[p.name] for p in grad.params})
    assert natively("_rnn_grad", [*heads, *arrays, want[-1]], back)
    wanted = run_reference(grad, back, [*heads, *arrays, want[-1]])
    given = [nd.array(a, dtype=a.dtype) for a in arrays]
    inputs = given[: 3 + (attrs["mode"] == "lstm")]
    for a in inputs:
        a.attach_grad()
    with autograd.record():
        got = nd.RNN(*given, **attrs)
    autograd.backward(got, [nd.array(h, dtype=h.dtype) for h in heads])
    quiet = nd.RNN(*given, **attrs)
    return [*got, *quiet, *(a.grad for a in inputs)], [*want[:-1], *want[:-1], *wanted]


def assert_same(got, want, dtype):
    for g, w in zip(got, want, strict=True):
        scale = max(1.0, float(np.abs(w).max()))
        np.testing.assert_allclose(g.asnumpy() / scale, w / scale, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
def test_rnn_equals_the_reference(mode, sizes, dtype):
    for layers, bidirectional in ((1, False), (3, True)):
        assert_same(*both_ways(*case(mode, sizes, dtype, layers, bidirectional)), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
def test_rnn_with_lengths_equals_the_reference(mode, dtype):
    sizes = (5, 9, 7, 20)
    for counts in (
        np.int32([5, 3, 0, 1, 9]),
        np.float32([2.9, 5]),
        np.array([4, 1]),
        np.float64([0, 0.5, 2]),
    ):
        arrays, attrs = case(mode, sizes, dtype, 2, True, counts)
        assert_same(*both_ways(arrays, attrs), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("projection, lengths", list(itertools.product((2, 19), (None, [3, 1]))))
def test_rnn_with_projection_equals_the_reference(projection, lengths, dtype):
    for layers, bidirectional in ((1, False), (2, True)):
        given = case(
            "lstm",
            (4, 26, 9, 35),
            dtype,
            layers,
            bidirectional,
            lengths,
            projection_size=projection,
        )
        assert_same(*both_ways(*given), dtype)


@pytest.mark.parametrize("low, high", [(-0.2, 0.3), (None, 0.1), (-0.1, None)])
@pytest.mark.parametrize("nan", [False, True])
def test_rnn_clips_cells_as_the_reference(low, high, nan):
    arrays, attrs = case(
        "lstm",
        (3, 2, 4, 20),
        "float32",
        lstm_state_clip_min=low,
        lstm_state_clip_max=high,
        lstm_state_clip_nan=nan,
    )
    assert_same(*both_ways(arrays, attrs), "float32")
    arrays[0][1, 0] = np.nan
    want = run_reference(REGISTRY["RNN"], REGISTRY["RNN"].parse(attrs) | {"train": False}, arrays)
    got = nd.RNN(*[nd.array(a) for a in arrays], **attrs)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g.asnumpy(), w, atol=1e-5)


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_nan_and_infinity_travel_as_in_the_reference(mode):
    arrays, attrs = case(mode, (3, 3, 4, 18), "float32")
    arrays[0][0, 0, 0], arrays[0][1, 1, 1], arrays[0][0, 2, 2] = np.nan, np.inf, -np.inf
    full = REGISTRY["RNN"].parse(attrs) | {"train": False}
    want = run_reference(REGISTRY["RNN"], full, arrays)
    for g, w in zip(nd.RNN(*[nd.array(a) for a in arrays], **attrs), want):
        np.testing.assert_allclose(g.asnumpy(), w, atol=1e-5)


THREADS = """
import hashlib, sys, numpy as np, plait as mx
from plait import autograd, nd
sha = hashlib.sha256()
rng = np.random.RandomState(0)
for mode, hidden, batch, more in (
    ("LSTM", 300, 20, {"num_layers": 2}),
    ("GRU", 300, 7, {"bidirectional": True}),
    ("RNN", 48, 512, {}),
    ("LSTM", 200, 40, {"projection_size": 150}),
):
    net = getattr(mx.gluon.rnn, mode)(hidden, input_size=64, **more)
    net.initialize()
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.uniform(-0.1, 0.1, p.shape)))
    x = nd.array(rng.randn(6, batch, 64))
    x.attach_grad()
    with autograd.record():
        y = net(x)
    y.backward()
    for a in (y, net(x), x.grad, *(p.grad() for p in net.collect_params().values())):
        sha.update(a.asnumpy().tobytes())
print(sha.hexdigest())
"""


def test_any_number_of_threads_gives_the_same_bits():
    found = [
        subprocess.run(
            [sys.executable, "-c", THREADS],
            env=os.environ | {"OMP_NUM_THREADS": str(n)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in (1, 2, 3)
    ]
    assert len(found[0].strip()) == 64 and len(set(found)) == 1


@pytest.mark.parametrize("more", [{}, {"num_layers": 2, "bidirectional": True, "dropout": 0.0}])
@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_hybridized_layers_give_what_eager_ones_give(layer, more):
    net = getattr(mx.gluon.rnn, layer)(17, input_size=5, **more)
    net.initialize(mx.init.Uniform(0.3))
    x = nd.array(np.random.default_rng(0).normal(size=(7, 3, 5)))
    results = []
    for _ in range(2):
        x.attach_grad()
        with autograd.record():
            y, states = net(x, net.begin_state(3))
            loss = (y * y).sum() + sum((s * s).sum() for s in states)
        loss.backward()
        grads = [p.grad().asnumpy() for p in net.collect_params().values()]
        results.append([y.asnumpy(), x.grad.asnumpy(), *grads])
        net.hybridize()
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
