"""Loops and branches on a GPU give what they give on the CPU, forwards and backwards."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd


def running_sum(F, x, s):
    def body(row, state):
        state = state * 0.5 + row
        return F.tanh(state), state

    outs, last = F.contrib.foreach(body, x, s)
    return F.concat(outs.reshape((-1,)), last.reshape((-1,)), dim=0)


def halved(F, x, s):
    def step(a, n):
        return a * 2, [a / 2, n + 1]

    outs, (a, n) = F.contrib.while_loop(
        lambda a, n: F.sum(a) > 1, step, [x.reshape((-1,)), s.sum() * 0], max_iterations=6
    )
    return F.concat(outs.reshape((-1,)), a, n, dim=0)


def chosen(F, x, s):
    return F.contrib.cond(
        (x.sum() > 2).reshape((1,)),
        lambda: F.broadcast_mul(F.exp(x), s.sum()),
        lambda: F.broadcast_sub(x, s.sum()),
    )


class Net(gluon.HybridBlock):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x, s):
        return self.function(F, x, s)


def results(function, ctx, scale):
    net = Net(function)
    net.hybridize()
    found = []
    for _ in range(3):
        x = nd.array(np.arange(6).reshape(3, 2) * scale, ctx=ctx)
        s = nd.array([0.5, -0.25], ctx=ctx)
        x.attach_grad()
        s.attach_grad()
        with autograd.record():
            y = net(x, s)
        y.backward()
        found += [y.asnumpy(), x.grad.asnumpy(), s.grad.asnumpy()]
        mx.wait_compiled()
    assert y.context == ctx
    return found


@pytest.mark.parametrize("scale", [0.1, 1.0])
@pytest.mark.parametrize("function", [running_sum, halved, chosen])
def test_control_flow(function, scale):
    wanted = results(function, mx.cpu(), scale)
    for a, b in zip(results(function, mx.gpu(0), scale), wanted):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
