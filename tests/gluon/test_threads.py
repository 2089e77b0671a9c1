"""Threads that share scopes and blocks."""

import sys
import threading

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd
from plait.gluon import nn
from plait.kernels import precision
from plait.ndarray import numpy_mode
from plait.ndarray.ndarray import state

LAYER = nn.Dense(2)


class Twice:
    """Two threads inside one scope: the first leaves it before the second."""

    def __init__(self, scope, current):
        self.scope, self.current = scope, current
        self.turn = threading.Barrier(2, timeout=60)
        self.kept = []

    def first(self):
        before = self.current()
        with self.scope:
            self.turn.wait()
            self.turn.wait()
        self.kept.append(self.current() == before)
        self.turn.wait()

    def second(self):
        before = self.current()
        self.turn.wait()
        with self.scope:
            self.turn.wait()
            self.turn.wait()
        self.kept.append(self.current() == before)


@pytest.mark.parametrize(
    ("scope", "current"),
    [
        (LAYER.name_scope(), mx.name.current),
        (mx.name.NameManager(), mx.name.current),
        (mx.name.Prefix("p_"), mx.name.current),
        (mx.AttrScope(a="b"), mx.attribute.current),
        (autograd.record(), lambda: (state.recording, state.training)),
        (numpy_mode.np_shape(True), numpy_mode.is_np_shape),
        (precision.forced(None), lambda: precision._thread.policy),
        (mx.cpu(1), mx.current_context),
    ],
)
def test_scopes_restore_each_threads_state(scope, current):
    twice = Twice(scope, current)

    def other():
        with autograd.predict_mode(), mx.name.NameManager(), mx.AttrScope(c="d"), mx.cpu(2):
            twice.second()

    thread = threading.Thread(target=other)
    thread.start()
    twice.first()
    thread.join()
    assert twice.kept == [True, True]


def test_threads_call_a_block_during_hybridize():
    net = nn.HybridSequential()
    inner = nn.HybridSequential()
    inner.add(nn.Dense(5, activation="tanh"))
    net.add(nn.Dense(4), inner, nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    errors, start = [], threading.Barrier(4)
    x = np.random.RandomState(0).rand(17, 6).astype("float32")

    def call(first):
        try:
            start.wait(60)
            for i in range(first, first + 12):
                n = 1 + i * 5 % 17
                with autograd.record():
                    found = net(nd.array(x[:n]))
                found.backward()
                y = x[:n]
                for layer, act in ((net[0], None), (inner[0], np.tanh), (net[2], None)):
                    y = y @ layer.weight.data().asnumpy().T + layer.bias.data().asnumpy()
                    y = act(y) if act else y
                np.testing.assert_allclose(found.asnumpy(), y, rtol=1e-4, atol=1e-6)
        except Exception as error:  # to the test's thread
            errors.append(error)

    def again():
        start.wait(60)
        for _ in range(20):
            net.hybridize()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=call, args=(k,)) for k in range(3)]
        threads.append(threading.Thread(target=again))
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
