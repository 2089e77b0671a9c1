"""Failures of queued operations are raised at the wait, with the operator and the calling line."""

import os
import signal
import sys
import threading

import pytest
from bad_input import raises, unharmed, x, y  # noqa: F401
from plait import engine, nd
from plait.engine.error import MXNetError
from plait.gluon import nn

HERE = os.path.basename(__file__)


def test_a_failing_kernel_raises_at_the_wait_with_operator_and_line_and_poisons_dependants():
    bad = nd.take(x(), nd.array([9.0]), mode="raise")
    line = f"{HERE}:{sys._getframe().f_lineno - 1}"
    after = bad * 2
    for array in (bad, after, bad):
        with raises(IndexError, r"take: indices must be in \[0, 2\)") as caught:
            array.asnumpy()
        assert (
            line in str(caught.value)
            and 'operator "take"' in str(caught.value)
            and "\n  fix: " in str(caught.value)
        )
    after[:] = 1
    assert after.asnumpy().sum() == 3


def test_a_failing_push_keeps_its_type_and_is_healed_by_a_whole_write():
    def boom():
        raise KeyError("mine")

    z = nd.zeros((3,))
    engine.push(boom, writes=[z], name="boomer")
    with raises(KeyError, 'operator "boomer"') as caught:
        (z + 1).asnumpy()
    assert HERE in str(caught.value) and isinstance(caught.value, MXNetError)
    z[:] = 2
    assert z.asnumpy().tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (dict(fn=3), "fn must be callable"),
        (dict(fn=print, writes=[3]), "writes must be arrays"),
        (dict(fn=print, lane="gpuu"), "lane must be one of"),
        (dict(fn=print, lane="gpu_compute", device=99), r"gpu\(99\): "),
    ],
    ids=str,
)
def test_push(arguments, rule):
    with raises(MXNetError, rule):
        engine.push(**arguments)


def test_naive_mode_raises_at_the_call():
    engine.set_naive(True)
    try:
        with raises(IndexError, r"take: indices must be in \[0, 2\)"):
            nd.take(x(), nd.array([9.0]), mode="raise")
        net = nn.HybridLambda(lambda F, a, i: F.take(a, i, mode="raise") * 2)
        net.hybridize()
        with raises(IndexError, "take: indices must be in"):
            net(x(), nd.array([9.0]))
    finally:
        engine.set_naive(False)
    bad = nd.take(x(), nd.array([9.0]), mode="raise")  # threaded again: raised at the wait
    with raises(ValueError, "take"):
        bad.asnumpy()


def test_ctrl_c_ends_a_long_wait():
    z, gate = nd.zeros((3,)), threading.Event()
    engine.push(gate.wait, writes=[z])
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    # a job in the background of a shell begins with the signal ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            z.asnumpy()
    finally:
        gate.set()
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_errors_in_many_threads():
    found = []

    def work():
        for call in (
            lambda: nd.dot(x(), y()),
            lambda: nd.take(x(), nd.array([9.0]), mode="raise").asnumpy(),
        ):
            try:
                call()
            except MXNetError as error:
                found.append(type(error).__name__)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == ["IndexOutOfRange"] * 8 + ["ShapeError"] * 8
