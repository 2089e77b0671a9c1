"""The profiler: what is recorded, valid JSON after every dump, the table, the user's own marks."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import child
import pytest
from plait import engine
from plait.engine import MXNetError, Var, ffi, lib, profile_events, profiler
from plait.engine.profile_events import Span
from plait.engine.profile_trace import Trace, file_of_rank, text


@pytest.fixture
def trace(tmp_path):
    """A fresh profile into a file; gives a function that dumps and reads it."""
    profiler.dumps(reset=True)
    profiler.set_config(filename=tmp_path / "trace.json", profile_all=True)
    profiler.start()

    def read(finished=False):
        profiler.dump(finished)
        return json.loads((tmp_path / "trace.json").read_text())["traceEvents"]

    yield read
    profiler.stop()
    profiler.dumps(reset=True)


def push(name, n=1):
    x = Var()
    for _ in range(n):
        engine.push(lambda: None, writes=[x], lane="io", name=name)
    engine.wait_for_var(x)
    engine.waitall()


def named(events, name):
    return [e for e in events if e["name"] == name and e["ph"] == "X"]


def test_an_event_for_each_operation_with_its_lane_and_queue_wait(trace):
    push("alpha", 3)
    events = trace()
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = named(events, "alpha")
    assert len(found) == 3
    for e in found:
        assert threads[e["tid"]] == "io(0)" and e["cat"] == "operator"
        assert e["dur"] >= 0 and e["args"]["queued_us"] >= 0


def test_every_dump_is_complete(trace):
    push("alpha")
    assert len(named(trace(), "alpha")) == 1
    push("beta")
    events = trace(finished=True)
    assert len(named(events, "alpha")) == len(named(events, "beta")) == 1
    push("gamma")  # recording is over
    assert not named(trace(), "gamma")


def test_pause_and_resume(trace):
    profiler.pause()
    push("alpha")
    profiler.resume()
    push("beta")
    events = trace()
    assert not named(events, "alpha") and named(events, "beta")
    profiler.stop()
    profiler.resume()  # does not start what was stopped
    push("gamma")
    assert not named(trace(), "gamma")


def test_more_events_than_a_buffer_holds(trace):
    push("many", 20000)
    assert len(named(trace(), "many")) == 20000


def test_programs_record_their_instructions_inside(trace):
    noop = ffi.callback("pl_kernel", lambda *_: 0)
    out_bytes = [4096]
    plan = lib.pl_plan_new(
        noop, ffi.NULL, 0, 0, 1, out_bytes, ffi.NULL, 0, 0, 0, 0, b"inner", b"(8,128)"
    )
    program = lib.pl_program_new(
        0,
        ffi.NULL,
        1,
        out_bytes,
        2,
        [plan] * 2,
        [(lib.PL_SLOT_OUTPUT, 0, 0)] * 2,
        ffi.NULL,
        64,
        0,
        0,
        0,
        b"outer",
    )
    out = ffi.new("uintptr_t[1]")
    assert lib.pl_program_run(program, ffi.NULL, out, ffi.NULL, -1) == 0
    engine.wait(out[0])
    engine.waitall()
    events = trace()
    (outer,), inner = named(events, "outer"), named(events, "inner")
    assert len(inner) == 2
    for e in inner:
        assert (
            outer["ts"] <= e["ts"]
            and e["ts"] + e["dur"] <= outer["ts"] + outer["dur"]
            and e["tid"] == outer["tid"]
        )
        assert e["cat"] == "instruction" and e["args"]["shapes"] == "(8,128)"
    assert max(e["args"].get("bytes", 0) for e in events if e["ph"] == "C") >= 4096
    lib.pl_array_free(out[0])
    lib.pl_program_free(program)
    lib.pl_plan_free(plan)


def test_statistics_as_table_and_json(trace):
    push("alpha", 4)
    push("beta")
    table = profiler.dumps(sort_by="count")
    rows = [line.split() for line in table.splitlines()]
    counts = {row[0]: row[1] for row in rows if len(row) == 6}
    assert counts["alpha"] == "4" and counts["beta"] == "1"
    assert table.index("alpha") < table.index("beta")
    ascending = profiler.dumps(sort_by="count", ascending=True)
    assert ascending.index("alpha") > ascending.index("beta")
    found = json.loads(profiler.dumps(format="json", reset=True))
    assert sorted(found) == ["Memory", "Time", "Unit"]  # as MXNet's
    assert found["Unit"] == {"Memory": "kB", "Time": "ms"}
    assert list(found["Memory"]) == ["Device Storage"]
    stats = found["Time"]["operator"]["alpha"]
    assert stats["Count"] == 4 and stats["Min"] <= stats["Avg"] <= stats["Max"] <= stats["Total"]
    assert "alpha" not in profiler.dumps()


def test_own_marks(trace):
    domain = profiler.Domain("mine")
    counter = domain.new_counter("items", 3)
    counter += 4
    counter -= 2
    assert counter.value == 5 and str(domain.new_frame("step")) == "step"
    with domain.new_task("work"), profiler.Event("free"):
        domain.new_marker("here").mark("thread")
    events = trace()
    assert named(events, "work")[0]["cat"] == "mine" and named(events, "free")
    assert [e["args"]["value"] for e in events if e["name"] == "items"] == [3, 7, 5]
    assert [e["s"] for e in events if e["name"] == "here"] == ["t"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: profiler.set_config(file="x"), "no setting is named 'file'"),
        (lambda: profiler.set_config(profile_all="yes"), "profile_all must be True or False"),
        (lambda: profiler.set_state("go"), "must be 'run' or 'stop', got 'go'"),
        (lambda: profiler.dumps(format="xml"), "format must be 'table' or 'json'"),
        (lambda: profiler.dumps(sort_by="name"), "sort_by must be one of total"),
        (lambda: profiler.Task(profiler.Domain("d"), "t").stop(), "stops without a start"),
        (
            lambda: profiler.Marker(profiler.Domain("d"), "m").mark("wide"),
            "scope must be one of global",
        ),
    ],
)
def test_wrong_arguments(call, text):
    with pytest.raises(MXNetError, match=text):
        call()


def test_operators_and_instructions_show_their_shapes(trace):
    import plait as mx
    from plait import nd

    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(3, in_units=4))
    net.initialize()
    net.hybridize()
    x = nd.ones((2, 4))
    (net(x).astype("int8") + nd.ones((2, 3), dtype="int8")).wait_to_read()
    shapes = {e["name"]: e["args"].get("shapes") for e in trace() if e["ph"] == "X"}
    assert shapes["FullyConnected"] == "(2, 4), (3, 4), (3,) -> (2, 3)"
    assert shapes["Cast"] == "(2, 3) -> int8 (2, 3)"
    assert shapes["broadcast_add"] == "int8 (2, 3), int8 (2, 3) -> int8 (2, 3)"


def check_trace(events):
    """The rules of the Chrome format that Perfetto needs: every event of a named track, no negative
    times, spans of a track nested, both ends of each arrow inside a span."""
    names = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {e["pid"] for e in events} == {e["pid"] for e in events if e["name"] == "process_name"}
    assert len({(pid, tid or pid) for pid, tid in names}) == len(names)  # Perfetto takes 0 for pid
    spans, arrows = {}, {}
    for e in events:
        if e["ph"] == "M":
            continue
        assert e["ts"] >= 0 and isinstance(e["name"], str)
        if e["ph"] == "C":
            assert all(isinstance(v, (int, float)) for v in e["args"].values())
            continue
        assert (e["pid"], e["tid"]) in names
        if e["ph"] == "X":
            assert e["dur"] >= 0
            spans.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] in "sf":
            both = arrows.setdefault((e["cat"], e["id"]), {})
            assert e["ph"] not in both
            both[e["ph"]] = e
        else:
            assert e["ph"] == "i"
    slack = 1e-3  # of times in us as floats
    for track in spans.values():
        open_ends = []
        for start, end in sorted(track, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start + slack:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + slack
            open_ends.append(end)
    for both in arrows.values():
        assert set(both) == {"s", "f"} and both["s"]["ts"] <= both["f"]["ts"] + slack
        for e in both.values():
            inside = spans[e["pid"], e["tid"]]
            assert any(a - slack <= e["ts"] <= b + slack for a, b in inside), e
    return arrows


def tracks(events):
    return {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_arrows_lead_from_the_push_and_from_what_an_operation_waited_for(trace):
    a, b, gate = Var(), Var(), threading.Event()
    engine.push(gate.wait, writes=[a], lane="io", name="first")
    engine.push(lambda: None, reads=[a], writes=[b], lane="comm", name="second")
    gate.set()
    engine.wait_for_var(b)
    events = trace()
    arrows, where = check_trace(events), tracks(events)
    first, second = named(events, "first")[0], named(events, "second")[0]
    assert where[first["tid"]] == "io(0)" and where[second["tid"]] == "comm(0)"
    assert "communication" in second["cat"]
    ends = {
        (kind, where[both["s"]["tid"]], where[both["f"]["tid"]])
        for (kind, _), both in arrows.items()
    }
    assert {("push", "MainThread", "io(0)"), ("push", "MainThread", "comm(0)")} <= ends
    assert ("then", "io(0)", "comm(0)") in ends
    assert named(events, "push first") and second["args"]["queued_us"] > 0


def test_waits_tell_what_waited_where_and_for_which_operation(trace):
    x, gate = Var(), threading.Event()
    engine.push(gate.wait, writes=[x], lane="io", name="slow")
    timer = threading.Timer(0.25, gate.set)  # longer than a wait that looks for Ctrl-C
    timer.start()
    engine.wait_for_var(x)
    timer.join()
    events = trace()
    (wait,) = [e for e in events if e["ph"] == "X" and e["cat"] == "wait"]
    assert wait["name"] == "wait_for_var" and wait["dur"] > 1e5
    file, line = wait["args"]["line"].rsplit(":", 1)
    assert (
        file == __file__ and "wait_for_var(x)" in Path(file).read_text().split("\n")[int(line) - 1]
    )
    where = tracks(events)
    ended = [b for (kind, _), b in check_trace(events).items() if kind == "ends"]
    assert [(where[b["s"]["tid"]], where[b["f"]["tid"]]) for b in ended] == [
        ("io(0)", "MainThread")
    ]


def test_a_look_is_no_wait(trace):
    x, gate = Var(), threading.Event()
    engine.push(gate.wait, writes=[x], lane="io", name="slow")
    assert lib.pl_wait_read(x._handle, engine.LOOK) == lib.PL_AGAIN
    assert lib.pl_wait_write(x._handle, engine.LOOK) == lib.PL_AGAIN
    assert lib.pl_wait_all(engine.LOOK) == lib.PL_AGAIN
    gate.set()
    while lib.pl_wait_read(x._handle, engine.LOOK) == lib.PL_AGAIN:
        pass
    engine.wait_for_var(x)
    assert lib.pl_wait_all(engine.LOOK) == lib.PL_OK
    assert not [e for e in trace() if e.get("cat") == "wait"]


def test_a_wait_that_does_not_block_looks_for_no_line(trace, monkeypatch):
    x = Var()
    engine.push(lambda: None, writes=[x], lane="io")
    engine.waitall()
    monkeypatch.setattr(engine, "name_waits", pytest.fail)
    engine.wait_for_var(x)
    engine.waitall()


def test_a_full_queue_is_a_wait(trace):
    x, gate = Var(), threading.Event()
    lib.pl_engine_set_limits(8, 0)
    try:
        for _ in range(8):
            engine.push(gate.wait, writes=[x], lane="io", name="slow")
        timer = threading.Timer(0.05, gate.set)
        timer.start()
        engine.push(lambda: None, writes=[x], lane="io", name="late")
        timer.join()
        engine.waitall()
    finally:
        lib.pl_engine_set_limits(4096, 0)
    events = trace()
    check_trace(events)
    assert named(events, "full queue")


def test_threads_have_their_names(trace):
    def work():
        push("theirs")

    thread = threading.Thread(target=work, name="a loader")
    thread.start()
    thread.join()
    push("mine")
    events = trace()
    check_trace(events)
    names = set(tracks(events).values())
    assert "MainThread" in names and any(n == "a loader" or n.startswith("thread ") for n in names)


def test_traces_of_ranks_merge_with_aligned_clocks(tmp_path):
    def file(rank, boot, unix_ns, at):
        trace = Trace(rank, 2)
        op = Span(
            "op", "operator", at + 10, at + 20, "cpu(0)", {}, seq=1, pushed=at, pusher="MainThread"
        )
        trace.spans([op])
        whole = json.loads(text(trace.events, rank, 2))
        whole["otherData"].update(boot=boot, monotonic_ns=0, unix_ns=unix_ns)
        path = tmp_path / f"{rank}-{boot}.json"
        path.write_text(json.dumps(whole))
        return path

    def starts(*paths):
        profiler.merge(paths, tmp_path / "all.json")
        events = json.loads((tmp_path / "all.json").read_text())["traceEvents"]
        assert len(check_trace(events)) == 2  # the arrow of each rank
        return [e["ts"] for e in events if e["ph"] == "X" and e["name"] == "op"]

    a, b = file(0, "here", 1000, 5000), file(1, "here", 2000, 5000)
    assert starts(a, b) == [5.01, 5.01]  # one machine, one clock: its time of day may be set
    c = file(1, "there", 1000 + 7_000_000, 5000)
    assert starts(a, c) == [5.01, 7005.01]
    with pytest.raises(ValueError, match="is not JSON"):
        (tmp_path / "bad.json").write_text("{")
        profiler.merge([tmp_path / "bad.json"], tmp_path / "all.json")
    with pytest.raises(ValueError, match=r"not a trace of profiler\.dump"):
        (tmp_path / "bad.json").write_text("[]")
        profiler.merge([tmp_path / "bad.json"], tmp_path / "all.json")
    with pytest.raises(OSError, match="cannot read"):
        profiler.merge([tmp_path / "none.json"], tmp_path / "all.json")


def test_a_program_that_waits_in_the_middle_is_pushed_once():
    """It runs in parts; the second is of the same push, and was not queued for it."""

    def part(start, cause, **more):
        args = {"layer": "Net", "queued_us": start / 1000}
        return Span("net", "operator", start, start + 9, "cpu(0)", args, seq=3, cause=cause,
                    pushed=5, pusher="MainThread", **more)  # fmt: skip

    other = Span("copy", "operator", 40, 50, "io(0)", {}, seq=2)
    first, second = profile_events._parts([part(20, 0), other, part(60, 2)])[::2]
    assert first == part(20, 0) and second.goes_on and second.args == {"layer": "Net"}
    made = Trace(1, 2)
    made.spans([first, other, second])
    arrows = check_trace(made.events)
    assert sorted(kind for kind, _ in arrows) == ["push", "then"]
    assert [e["name"] for e in made.events if e["ph"] == "X" and e["cat"] == "push"] == ["push net"]
    assert [e["tid"] for e in made.events if e["name"] == "push net"] == [1]  # the process's


def test_each_rank_writes_a_file_of_its_own():
    assert file_of_rank("a/trace.json", 0, 1) == "a/trace.json"
    assert file_of_rank("a/trace.json", 2, 4) == "a/trace-2.json"


def test_a_line_for_each_operation():
    script = """
import plait as mx
from plait import nd
from plait.gluon import nn
net = nn.HybridSequential()
net.add(nn.Dense(3, activation="relu"))
net.initialize()
net.hybridize()
net(nd.ones((2, 5))).wait_to_read()
(nd.ones((2, 3)) * 2).wait_to_read()
class Loop(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.contrib.foreach(lambda row, s: (F.tanh(row), s), x, F.zeros((1,)))[0]
loop = Loop()
loop.hybridize()
loop(nd.ones((2, 3))).wait_to_read()
"""
    _, printed = child.run(script, PLAIT_LOG="ops")
    assert re.search(r"plait ops: \S+ +_mul_scalar \(2, 3\) -> \(2, 3\)  \d+\.\d us\n", printed), (
        printed
    )
    assert re.search(r"   FullyConnected .*-> \(2, 3\) \[0 \(Dense\)\]  \d+\.\d us\n", printed), (
        printed
    )
    (loop,) = re.findall(r"\S( +)_foreach .* us\n", printed)
    bodies = re.findall(r"\S( +)tanh .* us\n", printed)
    assert bodies == [loop + "  "] * 2, printed  # the body is indented below its loop


def test_events_without_room_are_counted(monkeypatch):
    lost = iter([7, 0])
    monkeypatch.setattr(profile_events, "lib", _WithLost(lost))
    with pytest.warns(RuntimeWarning, match="7 events were lost"):
        profile_events.take()
    profile_events.take()  # the warning is given once


class _WithLost:
    """The core, which has lost events."""

    def __init__(self, lost):
        self.pl_profiler_lost = lost.__next__

    def __getattr__(self, name):
        return getattr(lib, name)


def test_an_operation_that_crashes_is_the_last_line():
    script = """
import ctypes
from plait import engine, nd
nd.ones((2,)).wait_to_read()
engine.push(lambda: ctypes.string_at(0), name="crash")
engine.waitall()
"""
    code = f"import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PLAIT_LOG": "ops"}, capture_output=True
    )
    assert done.returncode < 0
    assert re.match(rb"plait ops: cpu\(0\) +crash$", done.stderr.split(b"\n")[-1])
