"""The engine through Python: order, errors, priorities, back-pressure, bulk scopes, threads."""

import doctest
import inspect
import subprocess
import sys
import threading

import pytest
from plait import engine
from plait.engine import MXNetError, Var, ffi, lib, profiler
from plait.engine.error import ShapeError


@pytest.fixture(autouse=True)
def nothing_left():
    """Every test ends with an idle engine and no error not yet reported."""
    yield
    engine.waitall()
    assert engine.stats()["pending"] == 0


@pytest.fixture
def gate():
    """An event that holds the `io` lane until it is set."""
    opened = threading.Event()
    engine.push(lambda: opened.wait(60), lane="io")
    yield opened
    opened.set()


def test_writes_are_alone_and_in_order_and_reads_see_them():
    x, log = Var(), []
    for i in range(200):
        engine.push(
            lambda i=i: log.append(("write", i)), writes=[x], lane=("cpu", "io", "comm")[i % 3]
        )
        engine.push(
            lambda i=i: log.append(("read", i)),
            reads=[x],
            lane=("io", "comm")[i % 2],
            priority=i % 5,
        )
    engine.wait_for_var(x, for_write=True)
    assert log == [(kind, i) for i in range(200) for kind in ("write", "read")]
    assert x.version == 200


def test_reads_of_a_var_run_together():
    x, meet = Var(), threading.Barrier(2, timeout=60)
    for lane in ("cpu", "io"):
        engine.push(meet.wait, reads=[x], lane=lane)
    engine.wait_for_var(x, for_write=True)


def test_wait_for_reading_does_not_wait_for_readers(gate):
    x = Var()
    engine.push(lambda: None, reads=[x], lane="io")
    engine.wait_for_var(x)
    assert lib.pl_wait_write(x._handle, 0) == lib.PL_AGAIN


def test_priorities_are_honoured(gate):
    log = []
    for priority in (0, -1, 3, 0, 7, 3):
        engine.push(lambda p=priority: log.append(p), lane="io", priority=priority)
    gate.set()
    engine.waitall()
    assert log == [7, 3, 3, 0, 0, -1]


def test_what_is_begun_is_finished_before_more_is_begun(gate):
    """Of the ready operations of a lane the one that was pushed first runs, not the one that
    became ready first: micro-batches come out of a stage one after the other."""
    log, chains = [], [Var() for _ in range(3)]
    for i, x in enumerate(chains):
        for layer in range(3):
            engine.push(lambda at=(i, layer): log.append(at), writes=[x], lane="io")
    engine.push(lambda: log.append("first"), lane="io", priority=1)
    engine.push(lambda: log.append("last"), lane="io", priority=-1)
    gate.set()
    engine.waitall()
    assert log == ["first", *[(i, layer) for i in range(3) for layer in range(3)], "last"]


def fails():
    return {}["no such key"]


def test_an_error_carries_type_operator_and_line_and_stays_until_overwritten():
    x, y, ran = Var(), Var(), []
    line = inspect.currentframe().f_lineno + 1
    engine.push(fails, writes=[x], name="my_operator")
    engine.push(lambda: ran.append(1), reads=[x], writes=[y])
    for var in (x, y, x, y):
        with pytest.raises(KeyError) as caught:
            engine.wait_for_var(var)
        assert isinstance(caught.value, MXNetError)
        assert (
            str(caught.value)
            == f"KeyError: 'no such key'\n  at: {__file__}:{line}, operator \"my_operator\""
        )
        assert isinstance(caught.value.__cause__, KeyError)
        assert caught.value.__cause__.__traceback__.tb_next.tb_frame.f_code is fails.__code__
    assert not ran
    engine.waitall()  # it was reported
    engine.push(lambda: ran.append(2), writes=[x])
    engine.wait_for_var(x)
    with pytest.raises(KeyError):
        engine.wait_for_var(y)
    assert ran == [2]


def test_waitall_raises_each_error_once_oldest_first():
    for text in ("first", "second"):

        def fail(text=text):
            raise ValueError(text)

        engine.push(fail, writes=[Var()], lane="io")
    for text in ("first", "second"):
        with pytest.raises(ValueError, match=f"ValueError: {text}"):
            engine.waitall()
    engine.waitall()


@pytest.mark.parametrize("kind", [OSError, SystemExit, StopIteration, MXNetError, UnicodeError])
def test_exceptions_of_every_kind_arrive(kind):
    def fail():
        raise kind("why")

    x = Var()
    engine.push(fail, writes=[x])
    with pytest.raises(MXNetError, match="why") as caught:
        engine.wait_for_var(x)
    assert isinstance(caught.value.__cause__, kind)


def test_our_own_errors_keep_their_fields_and_fix():
    def fail():
        raise ShapeError("dot", "x and w do not fit", fix="transpose w")

    x = Var()
    engine.push(fail, writes=[x], name="custom")
    with pytest.raises(ShapeError) as caught:
        engine.wait_for_var(x)
    rule, at, fix = str(caught.value).split("\n")
    assert rule == "dot: x and w do not fit" and fix == "  fix: transpose w"
    assert at.startswith("  at: ") and at.endswith('operator "custom"')
    assert caught.value.operator == "dot" and caught.value.fix == "transpose w"


def test_an_error_does_not_keep_what_its_frames_held():
    class Held:
        pass

    dead = threading.Event()

    def fail():
        held = Held()
        held.on_end = on_end = type("End", (), {"__del__": lambda self: dead.set()})()
        del on_end
        raise ValueError("with locals")

    x = Var()
    engine.push(fail, writes=[x])
    with pytest.raises(ValueError, match="with locals"):
        engine.wait_for_var(x)
    assert dead.is_set()
    before = len(engine.callback._objects)
    del x
    lib.pl_engine_stop()  # the worker may be the one that releases it
    assert len(engine.callback._objects) == before - 1  # the exception went with the poisoned var


def test_a_callback_may_push_and_wait():
    log, x = [], Var()

    def outer():
        inner = Var()
        engine.push(lambda: log.append("inner"), writes=[inner], lane="io")
        engine.wait_for_var(inner)
        engine.wait_for_var(x)  # its own: ready inside it
        log.append("outer")

    for _ in range(3):
        engine.push(outer, writes=[x], lane="io")
    engine.wait_for_var(x)
    assert log == ["inner", "outer"] * 3


def test_a_wait_that_cannot_end_is_an_error():
    x = Var()

    def stuck():
        after = Var()
        engine.push(lambda: None, reads=[x], writes=[after])
        engine.wait_for_var(after)

    engine.push(stuck, writes=[x])
    with pytest.raises(MXNetError, match="not ready before the operation itself ends"):
        engine.wait_for_var(x)

    engine.push(engine.waitall, writes=[x])
    with pytest.raises(MXNetError, match="waitall: an operation cannot wait"):
        engine.wait_for_var(x)


def test_a_thread_may_run_its_operations_itself(gate):
    busy, seen = Var(), []
    engine.push(lambda: None, writes=[busy], lane="io")

    def note():
        seen.append(threading.current_thread() is thread)

    def work():
        assert lib.pl_engine_set_inline(1) == 0
        engine.push(note, writes=[Var()])
        engine.push(note, reads=[busy])  # not free: on its lane, later
        seen.append("pushed")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True, "pushed"]
    gate.set()
    engine.waitall()
    assert seen == [True, "pushed", False]


def test_many_threads_push():
    x, total, count = Var(), [0], 300

    def add():
        total[0] += 1  # no lock: writes of x run alone

    def work(lane):
        for _ in range(count):
            engine.push(add, writes=[x], lane=lane)
        engine.wait_for_var(x)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in ("cpu", "io", "comm", "cpu")]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert total == [4 * count] and x.version == 4 * count


def test_a_producer_that_runs_ahead_waits(gate):
    lib.pl_engine_set_limits(16, 0)
    done = threading.Event()

    def produce():
        for _ in range(40):
            engine.push(lambda: None, lane="io")
        done.set()

    thread = threading.Thread(target=produce)
    try:
        thread.start()
        while engine.stats()["pending"] < 16:
            pass
        assert not done.wait(0.05) and engine.stats()["pending"] == 16
        gate.set()
        thread.join()
        assert done.is_set()
    finally:
        lib.pl_engine_set_limits(4096, 0)


def test_bulk_scopes():
    assert engine.set_bulk_size(5) == 0 and engine.set_bulk_size(0) == 5
    x, log = Var(), []
    with engine.bulk(10) as scope:
        assert scope.size == 10
        for i in range(25):
            engine.push(lambda i=i: log.append(i), writes=[x], lane="io")
        engine.wait_for_var(x)  # inside the scope: nothing stays behind
        assert log == list(range(25))
        engine.push(lambda: log.append(25), writes=[x], lane="io")
    engine.wait_for_var(x)
    assert log == list(range(26)) and engine.set_bulk_size(0) == 0
    with pytest.raises(ValueError, match="size must be >= 0, got -1"):
        engine.set_bulk_size(-1)


def test_bad_arguments_push_nothing():
    x = Var()
    for bad, kind, text in [
        (lambda: engine.push(3), TypeError, "fn must be callable, got int"),
        (
            lambda: engine.push(print, [x, 4]),
            TypeError,
            "reads must be arrays or engine.Var objects, got int",
        ),
        (lambda: engine.push(print, [], [None]), TypeError, "writes must be .*, got NoneType"),
        (
            lambda: engine.push(print, lane="gpu"),
            ValueError,
            "lane must be one of cpu, io, .*got 'gpu'",
        ),
        (lambda: engine.push(print, lane="gpu_compute"), MXNetError, r"plait\[cuda13\]"),
        (lambda: engine.push(print, device=-1), MXNetError, "no such lane"),
    ]:
        with pytest.raises(kind, match=text):
            bad()
    assert x.version == 0


def test_foreign_memory_is_released_once_and_late(gate):
    owner = bytearray(8)
    number = engine.callback.keep(owner)
    array = lib.pl_array_wrap(
        ffi.from_buffer(owner), 8, engine.callback.RELEASE, engine.callback.pointer_to(number)
    )
    handle = type("Array", (), {"_handle": array})()
    engine.push(lambda: None, reads=[handle], lane="io")
    lib.pl_array_free(array)
    assert number in engine.callback._objects
    gate.set()
    engine.waitall()
    lib.pl_engine_stop()
    assert number not in engine.callback._objects


def test_absurd_sizes_fail_cleanly():
    for size in (1 << 46, (1 << 64) - 1):
        assert lib.pl_array_new(size) == 0
        assert b"out of memory for" in ffi.string(lib.pl_error_message())


def test_push_costs_little_and_leaks_nothing():
    x = Var()
    engine.push(lambda: None, writes=[x])
    engine.wait_for_var(x)
    lib.pl_engine_stop()
    before = len(engine.callback._objects)
    for _ in range(1000):
        engine.push(int, [x], [x])
    engine.wait_for_var(x)
    lib.pl_engine_stop()
    assert len(engine.callback._objects) == before


@pytest.mark.parametrize("module", [engine, profiler], ids=lambda module: module.__name__)
def test_examples_in_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted > 3 and not result.failed


POOL = """
import random
from plait import engine, nd
def use(size):
    arrays = [nd.empty((int(size) << 18,)) for _ in range(4)]
    s = engine.stats()
    return s["used_bytes"] + s["pooled_bytes"]
sizes = [2 ** (k / 4) for k in range(28)]  # 1 to 108 MiB, each of a size class of its own
random.Random(1).shuffle(sizes)
most = max(use(size) for _ in range(5) for size in sizes)
misses = lambda: engine.stats()["allocations"] - engine.stats()["pool_hits"]
few = sorted(sizes)[:12]
[use(size) for _ in range(50) for size in few]  # until the large peak is forgotten
before = misses()
[use(size) for _ in range(50) for size in few]
s = engine.stats()
print(most, s["peak_bytes"], misses() - before, s["used_bytes"] + s["pooled_bytes"])
"""


def test_the_pool_is_bounded_and_serves_what_repeats():
    out = subprocess.run([sys.executable, "-c", POOL], capture_output=True, text=True, check=True)
    most, peak, misses, kept = map(int, out.stdout.split())
    assert most <= 2 * peak + (64 << 20)
    assert misses == 0 and kept <= most


def test_a_thread_reads_its_own_error():
    """Each has failed with a text of its own before any of them reads the last one."""
    failed, found = threading.Barrier(4), {}

    def work(k):
        status = lib.pl_fail(lib.PL_FAILED, b"failure of thread %d" % k)
        failed.wait(60)
        found[k] = status, lib.pl_error_status(), ffi.string(lib.pl_error_message())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    want = {k: (lib.PL_FAILED, lib.PL_FAILED, b"failure of thread %d" % k) for k in range(4)}
    assert found == want
