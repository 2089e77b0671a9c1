"""The profiler: what is recorded, valid JSON after every dump, the table, the user's own marks."""

import json
import re

import child
import pytest
from plait import engine
from plait.engine import MXNetError, Var, ffi, lib, profiler


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
    assert max(e["args"][e["name"]] for e in events if e["ph"] == "C") >= 4096
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
    assert [e["args"]["items"] for e in events if e["name"] == "items"] == [3, 7, 5]
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


def test_a_line_for_each_operation():
    script = """
import plait as mx
from plait import nd
x = nd.ones((2, 3))
(x * 2).wait_to_read()
"""
    _, printed = child.run(script, PLAIT_LOG="ops")
    line = r"plait ops: (\S+|thread \d+) +\d+\.\d us  _mul_scalar \(2, 3\) -> \(2, 3\)"
    assert re.search(line, printed), printed
