"""Fused groups on gpu(0): a graph whose pointwise operators are one kernel computes what it
computes on the CPU, operator by operator."""

import numpy as np
import plait as mx
import pytest
from plait import cpu, gpu, nd
from plait.gluon import nn
from plait.graph.tiers import wait_compiled

RNG = np.random.default_rng(4)


class Net(nn.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *arrays):
        return self.function(F, *arrays)


def fused(function, *arrays):
    """What a hybridized block gives on gpu(0) once its program is compiled."""
    net = Net(function)
    net.hybridize()
    inputs = [nd.array(x, ctx=gpu(0), dtype=x.dtype) for x in arrays]
    for _ in range(4):
        out = net(*inputs)
        nd.waitall()
        wait_compiled(60)
    return [o.asnumpy() for o in (out if isinstance(out, (list, tuple)) else [out])]


def plain(function, *arrays):
    out = function(nd, *(nd.array(x, ctx=cpu(), dtype=x.dtype) for x in arrays))
    return [o.asnumpy() for o in (out if isinstance(out, (list, tuple)) else [out])]


def chain(F, x, b):
    return F.broadcast_add(F.tanh(x * 1.5), b) * F.sigmoid(x)


def with_sums(F, x, b):
    y = F.exp(F.broadcast_sub(x, b))
    return [F.sum(y, axis=1), F.mean(y * 2, axis=1), y]


def by_columns(F, x, b):
    y = F.relu(F.broadcast_add(x, b))
    return [F.sum(y, axis=0), F.max(y - 1, axis=0)]


def rows(F, x, b):
    return F.softmax(F.broadcast_mul(x, b) * 0.5) + x


def norms(F, x, b):
    scale = F.rsqrt(F.mean(F.square(x), axis=-1, keepdims=True) + 1e-6)
    return F.broadcast_mul(F.broadcast_mul(x, scale), b)


@pytest.mark.parametrize("shape", [(7, 33), (3, 2048)])
@pytest.mark.parametrize("function", [chain, with_sums, by_columns, rows, norms])
def test_fused_equals_plain(function, shape):
    x, b = RNG.standard_normal(shape, "float32"), RNG.standard_normal(shape[-1:], "float32")
    for got, want in zip(fused(function, x, b), plain(function, x, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function", [rows, norms])
def test_row_reductions_of_16_bits(function, dtype):
    """One kernel that computes in float32 and rounds after each operator."""
    x, b = (RNG.standard_normal(s, "float32") for s in ((5, 136), (136,)))
    low = lambda F, x, b: F.cast(function(F, F.cast(x, dtype), F.cast(b, dtype)), "float32")
    for got, want in zip(fused(low, x, b), plain(function, x, b), strict=True):
        np.testing.assert_allclose(got, want, rtol=3e-2, atol=3e-2)


def test_casts_stay_inside_a_group():
    def function(F, x):
        return F.cast(F.cast(x, "float16") * 3, "float32") + 1

    x = RNG.standard_normal((50, 40), "float32")
    np.testing.assert_allclose(fused(function, x)[0], plain(function, x)[0], rtol=4e-3, atol=4e-3)


def test_a_gradient_through_fused_groups():
    grads = []
    for device in (gpu(0), cpu()):
        net = Net(chain)
        net.hybridize()
        mx.random.seed(1)
        x = nd.array(np.linspace(-2, 2, 640, dtype="float32").reshape(20, 32), ctx=device)
        b = nd.ones((32,), ctx=device)
        x.attach_grad()
        b.attach_grad()
        for _ in range(4):
            with mx.autograd.record():
                y = net(x, b).sum()
            y.backward()
            nd.waitall()
            wait_compiled(60)
        grads.append((x.grad.asnumpy(), b.grad.asnumpy()))
    for got, want in zip(*grads):
        np.testing.assert_allclose(got, want, rtol=3e-5, atol=1e-4)
