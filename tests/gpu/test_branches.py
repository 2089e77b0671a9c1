"""Branches of a recorded program run beside each other, and only what may: the emulated driver runs
of the nodes that wait for nothing the last one first, so that a missing dependency is seen."""

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd
from plait.engine import lib
from plait.gluon import nn
from plait.graph import branches, program
from plait.graph.graph import Builder, variable
from plait.kernels.record import Type

F = Builder()


def towers(n: int, depth: int, top=F.add_n):
    """(outputs, inputs) of n towers; their norms and softmaxes are launches that share scratch
    memory, and kernels of their own."""
    x = variable("x", Type((100, 400)))
    tops = []
    for k in range(n):
        y = F._plus_scalar(x, scalar=float(k))
        for _ in range(depth):
            y = F.softmax(F.broadcast_div(y, F.norm(y, axis=(0, 1), keepdims=True)), axis=-1)
        tops.append(y)
    return ([top(*tops)] if top else tops), [x]


@pytest.mark.parametrize("n", (2, 4, 7))
@pytest.mark.parametrize("top", (F.add_n, None))
def test_towers_run_beside_each_other(n, top):
    outputs, given = towers(n, 3, top)
    made = program.Assignment(outputs, given, mx.gpu(0), 4, 0)
    assert max(np.bincount(made.sections)) == n
    split = program.assemble(outputs, given, mx.gpu(0), "split", 0, 4)
    plain = program.assemble(outputs, given, mx.gpu(0), "plain", 0, 1)
    x = nd.array(np.random.default_rng(0).normal(size=(100, 400)), ctx=mx.gpu(0))
    want = [a.asnumpy() for a in plain.run([x])]
    held = []
    for i in range(5):
        x += 0.0  # the same memory in each run
        got = split.run([x])
        held.append([a.asnumpy() for a in got])
        del got
    for got in held:
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_branch_waits_for_what_it_reads(emulator):
    """Replayed, with other values each time; the replays are counted."""
    outputs, given = towers(3, 2)
    split = program.assemble(outputs, given, mx.gpu(0), "split", 0, 4)
    plain = program.assemble(outputs, given, mx.gpu(0), "plain", 0, 1)
    x, rng = nd.zeros((100, 400), ctx=mx.gpu(0)), np.random.default_rng(1)
    split.run([x])[0].asnumpy(), split.run([x])[0].asnumpy()
    before = emulator.count(emulator.GRAPHS)
    for _ in range(4):
        x[:] = nd.array(rng.normal(size=(100, 400)), ctx=mx.gpu(0))
        y = split.run([x])[0].asnumpy()
        np.testing.assert_array_equal(y, plain.run([x])[0].asnumpy())
    assert emulator.count(emulator.GRAPHS) >= before + 4


class Towers(gluon.HybridBlock):
    """Towers with convolutions and dense layers, whose libraries want scratch memory."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.arms = [nn.HybridSequential() for _ in range(4)]
            for k, arm in enumerate(self.arms):
                self.register_child(arm)
                arm.add(nn.Conv2D(6, 1, in_channels=3, activation="relu"))
                arm.add(nn.Conv2D(5, 3, padding=1, in_channels=6), nn.GlobalAvgPool2D())
                arm.add(nn.Flatten(), nn.Dense(4, in_units=5))

    def hybrid_forward(self, F, x):
        return F.concat(*[arm(x) for arm in self.arms], dim=1)


def test_a_network_of_towers():
    mx.random.seed(1)
    net = Towers()
    net.initialize(mx.init.Xavier())
    x = nd.random.normal(shape=(2, 3, 9, 9))
    want = net(x).asnumpy()
    net.collect_params().reset_ctx(mx.gpu(0))
    net.hybridize(static_alloc=True, static_shape=True)
    y = x.as_in_context(mx.gpu(0))
    for _ in range(3):
        net(y).asnumpy()
    mx.wait_compiled()
    for _ in range(4):
        np.testing.assert_allclose(net(y).asnumpy(), want, rtol=2e-5, atol=2e-5)


def test_only_small_kernels_have_company():
    x = variable("x", Type((1 << 11, 1 << 11)))  # 16 MB
    tops = [F.softmax(F._plus_scalar(x, scalar=float(k)), axis=0) for k in range(4)]
    assert program.Assignment([F.add_n(*tops)], [x], mx.gpu(0), 4, 0).ends == []
    assert branches.at_once(mx.gpu(0)) == 4
    assert branches.at_once(mx.cpu()) == lib.pl_thread_pool_size()
