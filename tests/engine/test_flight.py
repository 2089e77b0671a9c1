"""Operations in flight: functions that return engine.PENDING, deadlines, cancel, abort, order;
fork, exit and Ctrl-C with work in flight."""

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
from child import run
from plait import engine, nd
from plait.engine import PENDING, MXNetError, Var, lib, profiler

HERE = os.path.basename(__file__)


def polled(n, log=None):
    """A function that is done at its call number n."""
    calls = itertools.count(1)

    def fn():
        if next(calls) < n:
            return PENDING
        if log is not None:
            log.append(n)

    return fn


def test_several_are_in_flight_in_one_lane_and_it_runs_others():
    gates, seen = [threading.Event() for _ in range(3)], [threading.Event() for _ in range(3)]
    x, other = [Var() for _ in gates], Var()
    for i, (gate, polls) in enumerate(zip(gates, seen, strict=True)):

        def fn(gate=gate, polls=polls):
            polls.set()
            return None if gate.is_set() else PENDING

        engine.push(fn, writes=[x[i]], lane="comm")
    for polls in seen:
        assert polls.wait(60)
    engine.push(lambda: None, writes=[other], lane="comm")
    engine.wait_for_var(other)
    for i in (2, 0, 1):  # they end in another order than they began
        assert x[i].version == 0
        gates[i].set()
        engine.wait_for_var(x[i])
        assert x[i].version == 1


def test_claims_are_held_until_it_is_done():
    x, log = Var(), []
    engine.push(polled(20, log), writes=[x], lane="comm")
    engine.push(lambda: log.append("after"), reads=[x])
    engine.wait_for_var(x, for_write=True)
    assert log == [20, "after"]


def test_a_deadline_raises_at_every_wait_with_operator_and_line_and_a_whole_write_heals():
    z, cancelled = nd.ones((3,)), []
    engine.push(
        lambda: PENDING,
        writes=[z],
        lane="comm",
        name="all_reduce",
        deadline=0.01,
        cancel=lambda: cancelled.append(1),
    )
    line = f"{HERE}:{sys._getframe().f_lineno - 8}"
    after = z + 1
    for array in (z, after, z):
        with pytest.raises(TimeoutError, match="all_reduce: not done .* is 0.01 s") as e:
            array.asnumpy()
        assert isinstance(e.value, engine.DeadlineExceeded) and isinstance(e.value, MXNetError)
        assert line in str(e.value) and 'operator "all_reduce"' in str(e.value)
    assert cancelled == [1]
    assert type(pickle.loads(pickle.dumps(e.value))) is type(e.value)
    z[:] = 2
    assert z.asnumpy().tolist() == [2, 2, 2]
    engine.waitall()


def test_a_deadline_counts_from_the_last_sign_of_life():
    x, start = Var(), time.monotonic()

    def fn():
        lib.pl_flight_alive(lib.pl_profiler_now())
        return None if time.monotonic() - start > 0.2 else PENDING

    engine.push(fn, writes=[x], lane="comm", deadline=0.02)
    engine.wait_for_var(x)
    assert x.version == 1


def test_what_cancel_raises_is_the_error_of_a_deadline():
    def cancel():
        raise ConnectionError("rank 3 did not answer")

    x = Var()
    engine.push(lambda: PENDING, writes=[x], lane="comm", deadline=0.001, cancel=cancel)
    with pytest.raises(ConnectionError, match="rank 3 did not answer"):
        engine.wait_for_var(x)


def test_an_error_at_a_later_call():
    calls, x = itertools.count(), Var()

    def fn():
        if next(calls) == 3:
            raise KeyError("mine")
        return PENDING

    engine.push(fn, writes=[x], lane="io")
    with pytest.raises(KeyError, match="mine"):
        engine.wait_for_var(x)
    assert next(calls) == 4


def test_abort_ends_all_in_flight_of_a_lane_with_one_error():
    x, y, elsewhere, cancelled = Var(), Var(), Var(), []
    started, end = threading.Semaphore(0), threading.Event()

    def fn():
        started.release()
        return PENDING

    for var in (x, y):
        engine.push(fn, writes=[var], lane="comm", cancel=lambda: cancelled.append(1))
    engine.push(lambda: None if end.is_set() else PENDING, writes=[elsewhere], lane="io")
    for _ in range(8):
        assert started.acquire(timeout=60)
    engine.abort(ConnectionError("rank 2 is gone"))
    for var in (x, y, x):
        with pytest.raises(ConnectionError, match="rank 2 is gone"):
            engine.wait_for_var(var)
    assert cancelled == [1, 1] and elsewhere.version == 0
    end.set()
    engine.waitall()  # the error is reported, and the other lane's operation is done
    assert elsewhere.version == 1
    engine.push(polled(3), writes=[x], lane="comm")  # what is pushed afterwards is not touched
    engine.wait_for_var(x)


@pytest.mark.parametrize("ordered", [False, True])
def test_first_calls_are_ordered_by_priority_or_by_a_common_var(ordered):
    gate, ready, log = Var(), threading.Event(), []
    engine.push(lambda: None if ready.is_set() else PENDING, writes=[gate], lane="io")
    order = Var() if ordered else None
    for i, priority in enumerate([0, 5, -1, 5]):
        calls = itertools.count()

        def fn(i=i, calls=calls):
            if next(calls) == 0:
                log.append(i)
                return PENDING

        reads = [gate] if i == 0 or not ordered else []
        engine.push(fn, reads=reads, lane="comm", priority=priority, order=order)
    ready.set()
    engine.waitall()
    assert log == ([0, 1, 2, 3] if ordered else [1, 3, 0, 2])


def test_a_polled_function_that_waits_is_not_entered_again():
    inside, calls, x, y = [], itertools.count(), Var(), Var()

    def fn():
        assert not inside
        inside.append(1)
        inner = Var()
        engine.push(polled(5), writes=[inner], lane="comm")
        engine.wait_for_var(inner)
        inside.pop()
        return PENDING if next(calls) < 3 else None

    engine.push(fn, writes=[x], lane="comm")
    engine.push(polled(50), writes=[y], lane="comm")
    engine.wait_for_var(x)
    engine.wait_for_var(y)
    assert next(calls) == 4


def test_a_polled_function_that_waits_for_itself_fails():
    x = Var()

    def fn():
        after = Var()
        engine.push(lambda: None, reads=[x], writes=[after])
        engine.wait_for_var(after)

    engine.push(fn, writes=[x], lane="comm")
    with pytest.raises(MXNetError, match="not ready before the operation itself ends"):
        engine.wait_for_var(x)


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (dict(deadline=-1), "deadline must be seconds, or 0 for none, got -1"),
        (dict(deadline=float("nan")), "deadline must be seconds"),
        (dict(deadline=float("inf")), "deadline must be seconds"),
        (dict(cancel=3), "cancel must be callable, got int"),
        (dict(order=3), "order must be arrays or engine.Var objects, got int"),
        (dict(deadline=1, lane="wire"), "lane must be one of"),
    ],
    ids=str,
)
def test_wrong_arguments(arguments, rule):
    with pytest.raises(MXNetError, match=rule):
        engine.push(lambda: None, **arguments)


def test_abort_of_no_lane():
    with pytest.raises(MXNetError, match="abort: lane must be one of"):
        engine.abort(ValueError("x"), lane="wire")


def test_spans_of_a_row_do_not_overlap_in_a_trace(tmp_path):
    profiler.dumps(reset=True)
    profiler.set_config(filename=tmp_path / "trace.json")
    profiler.start()
    end = threading.Event()
    for _ in range(3):
        engine.push(lambda: None if end.is_set() else PENDING, lane="comm", name="sum")
    x = Var()
    engine.push(lambda: None, writes=[x], lane="comm", name="plain")
    engine.wait_for_var(x)
    end.set()
    engine.waitall()
    profiler.dump()
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    table = json.loads(profiler.dumps(format="json", reset=True))["Time"]["operator"]
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    sums = [e for e in events if e["name"] == "sum" and e["ph"] == "X"]
    assert sorted(rows[e["tid"]] for e in sums) == [
        "comm(0) in flight",
        "comm(0) in flight 2",
        "comm(0) in flight 3",
    ]
    assert all(0 < e["args"]["polled_us"] <= e["dur"] and e["args"]["queued_us"] >= 0 for e in sums)
    (plain,) = [e for e in events if e["name"] == "plain" and e["ph"] == "X"]
    assert rows[plain["tid"]] == "comm(0)" and "polled_us" not in plain["args"]
    assert all(e["ts"] <= plain["ts"] and plain["ts"] <= e["ts"] + e["dur"] for e in sums)
    assert table["sum"]["Count"] == 3


# ---- processes -----------------------------------------------------------------------------------

POLLED = """
import itertools
from plait.engine import PENDING
def polled(n, log, what):
    calls = itertools.count(1)
    def fn():
        if next(calls) < n:
            return PENDING
        log.append(what)
    return fn
"""


def test_naive_mode_gives_the_same():
    code = """
x, y, log = Var(), Var(), []
engine.push(polled(5, log, "first"), writes=[x], lane="comm")
immediate = log == ["first"]
def nested():
    engine.push(polled(3, log, "inner"), writes=[y], lane="comm")
    engine.wait_for_var(y)
    log.append("outer")
engine.push(nested, reads=[x], writes=[x])
engine.wait_for_var(x)  # or late may be pushed before inner, which would overwrite its error
engine.push(lambda: PENDING, writes=[y], lane="comm", deadline=0.001, name="late")
try:
    engine.wait_for_var(y)
except TimeoutError as error:
    print("late: not done" in str(error))
engine.waitall()
print(log)
print(immediate, file=sys.stderr)
"""
    naive, naive_err = run(POLLED + code, PLAIT_ENGINE="naive")
    threaded, _ = run(POLLED + code)
    assert naive == threaded == "True\n['first', 'inner', 'outer']\n"
    assert naive_err == "True\n"


def test_a_fork_waits_for_what_ends_and_leaves_the_rest_to_the_parent():
    out, _ = run(
        POLLED
        + """
x, y, end, log = Var(), Var(), threading.Event(), []
engine.push(polled(50, log, "x"), writes=[x], lane="comm")
engine.push(lambda: None if end.is_set() else PENDING, writes=[y], lane="comm")
child = os.fork()
assert log == ["x"], log
engine.push(polled(5, log, "after"), reads=[x], writes=[x], lane="comm")
engine.wait_for_var(x)
assert log[-1] == "after"
end.set()
try:
    engine.wait_for_var(y)
except RuntimeError as error:
    assert child == 0 and "forked" in str(error)
    os._exit(7)
assert y.version == 1
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert out == "7\n"


def test_after_a_fork_what_waits_for_an_endless_operation_runs_on_any_lane():
    """Also on lanes that had nothing in flight."""
    out, _ = run(
        POLLED
        + """
x, y, z, end = Var(), Var(), Var(), threading.Event()
engine.push(lambda: None if end.is_set() else PENDING, writes=[x], lane="comm")
engine.push(lambda: None, reads=[x], writes=[y], lane="cpu")
engine.push(lambda: None, reads=[x], writes=[z], lane="io")
if os.fork() == 0:
    os._exit(0)
os.wait()
end.set()
engine.wait_for_var(y)
engine.wait_for_var(z)
print(y.version, z.version)
"""
    )
    assert out == "1 1\n"


def test_exit_waits_for_what_is_in_flight():
    out, _ = run(
        POLLED
        + """
class Log:
    def append(self, what):
        print(what, flush=True)
for i in range(3):
    engine.push(polled(20, Log(), "done"), writes=[Var()], lane="comm")
"""
    )
    assert out == "done\n" * 3


def test_exit_gives_up_what_does_not_end():
    """After five seconds, or at its deadline."""
    out, err = run(
        POLLED
        + """
engine.push(lambda: PENDING, lane="comm", name="endless", cancel=lambda: print("cancelled"))
engine.push(lambda: PENDING, lane="comm", name="late", deadline=0.01)
""",
        status=1,
    )
    assert out == "cancelled\n"
    assert 'operator "late"' in err and "its deadline is 0.01 s" in err
    assert "endless: not done" in err and "when the process ended" in err


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("mode", ["threaded", "naive"])
def test_ctrl_c_ends_a_wait_and_the_process(mode):
    script = """
from plait import engine
x = engine.Var()
print("ready", flush=True)
engine.push(lambda: engine.PENDING, writes=[x], lane="comm", deadline=600)
engine.wait_for_var(x)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PLAIT_ENGINE": mode},
    )
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
