"""Long graphs: time in proportion to their length, and no stack overflows when they are made,
walked or freed."""

import gc
import threading
import time

import plait as mx
import pytest
from plait import autograd, cpu, nd
from plait.engine.gc_pause import gc_paused
from plait.gluon import nn
from plait.gluon.trace import Trace, symbols_of
from plait.graph.graph import Value, topological
from plait.graph.inference import typed_graph
from plait.graph.passes.gradient import gradient
from plait.graph.program import lower
from plait.kernels.record import Type
from plait.symbol import Symbol

DEEP = 20_000  # a recursion would need 2 MB of stack


class Chain(nn.HybridBlock):
    def __init__(self, length):
        super().__init__()
        self.length = length

    def hybrid_forward(self, F, x):
        for _ in range(self.length // 4):
            x = F.tanh(F.relu(x * 1.01 + 0.1))
        return x


def seconds_a_node(length):
    """Of trace, gradient, passes and plan, for a node of the whole; of this thread's own time."""
    start = time.thread_time()
    with gc_paused():
        trace = Trace(Chain(length), (nd.ones((4, 4)),), True)
        trace.compile("chain")
        types = {v.node: Type((4, 4)) for v in trace.graph.inputs}
        outputs = typed_graph(trace.graph.outputs, types, True)
        (x,) = [Value(n) for n in topological(outputs) if n.op is None]
        grads = gradient(outputs, [None], [x])
        program = lower([*outputs, *grads], [x], cpu(0))
    assert len(program.ops) > 2 * length
    return (time.thread_time() - start) / len(program.ops)


def test_time_is_linear():
    seconds_a_node(400)  # plans, types
    short, long = [], []
    for _ in range(6):  # quadratic, each of them would be six times as long
        short.append(seconds_a_node(1000))
        long.append(seconds_a_node(6000))
        if min(long) < 2 * min(short):
            return
    assert min(long) < 2 * min(short), (short, long)


def on_a_small_stack(work):
    """Runs work in a thread with a stack of 256 kB."""
    errors = []

    def run():
        try:
            work()
        except BaseException as error:
            errors.append(error)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert not errors


def test_a_long_symbol_is_freed():
    def work():
        s = mx.sym.Variable("a")
        for _ in range(DEEP):
            s = s + 1.0
        assert len(topological(s._outputs)) > DEEP
        del s
        gc.collect()

    on_a_small_stack(work)


@pytest.mark.parametrize("used", [False, True])
def test_a_long_tape_is_freed(used):
    x = nd.ones((2,))
    x.attach_grad()
    n = DEEP // 5 if used else DEEP

    def work():
        with autograd.record():
            y = x
            for _ in range(n):
                y = y * 1.0
        if used:
            y.backward()
        del y
        gc.collect()
        nd.waitall()

    on_a_small_stack(work)
    assert not used or (x.grad.asnumpy() == 1).all()


def test_deeply_nested_blocks_are_walked():
    top = block = nn.HybridSequential()
    for _ in range(5000):
        inner = nn.HybridSequential()
        block._children["0"] = inner
        block = inner
    block.found = mx.sym.Variable("a")
    assert {key for _, key in symbols_of(top, Symbol)} == {"found"}
    while top._children:  # taken apart from the top: CPython frees nested dicts on its stack
        top = top._children.pop("0")


def test_garbage_collector_is_paused_and_resumed():
    assert gc.isenabled()
    with gc_paused(), gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
