"""A small portion of `make fuzz` (docs/design/fuzzing.md), and the fuzzer itself: what it must
find."""

import os
import re
import subprocess
import sys

import isa
import pytest
from fuzz import conditions, reduce, sizes, worker

CASES = {"operators": 200, "sizes": 25, "graphs": 60, "files": 100, "nets": 4, "processes": 2}


def fuzz(*args):
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--jobs", "1", "--minutes", "5", *args],
        cwd=reduce.ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize("target", CASES)
def test_a_portion_finds_nothing(target):
    done = fuzz("--only", target, "--cases", str(CASES[target]))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: {CASES[target]} (" in done.stdout


@pytest.mark.parametrize("target", CASES)
def test_a_case_is_a_function_of_its_numbers(target):
    made = [worker.case(target, 3, i) for i in range(20)]
    assert made == [worker.case(target, 3, i) for i in range(20)]
    assert len({script for _, script in made}) > 10
    for _, script in made:
        compile(script, "<case>", "exec")


def test_conditions_come_round():
    """In three blocks of cases each instruction set and number of threads once, tier 1 twice."""
    for seed in (1, 2):
        made, at = [], 0
        for _ in range(3):
            found, end = conditions.drawn("nets", seed, at)
            assert found == conditions.drawn("nets", seed, end - 1)[0]
            made.append(found)
            at = end
        assert {c.threads for c in made} == {1, 2, 4}
        assert sorted(c.tier for c in made) == ["0", "1", "1"]
        assert {c.isa for c in made} == set(isa.available())


def test_every_record_is_seen_at_every_length():
    """Once through all records: each with all of the lengths, in float32."""
    seen = {}
    for i in range(len(sizes.OPERATORS)):
        label, script = worker.case("sizes", 5, i)
        assert "dtype='float32'" in script
        seen[label] = {int(n) for n in re.findall(r"\.at\((\d+)\)", script)}
    assert set(seen) == set(sizes.OPERATORS)
    assert all(set(sizes.WIDTHS) <= lengths for lengths in seen.values())


SAMPLE = """\
from tests.fuzz.sizes import *
op = REGISTRY[{name!r}]
right_ref, right_grad = op.ref, op.grad
{fault}
Sample({name!r}, 0, axis=op.samples[0].inputs[0][-1], dtype="float32", seed=3).{what}
"""
REF = "op.ref = lambda xp, x, **a: right_ref(xp, x, **a) * (1.01 if x.shape[-1] == 33 else 1)"
GRAD = "op.grad = lambda F, dys, xs, ys: [g * 1.01 for g in right_grad(F, dys, xs, ys)]"
NET = """\
from tests.fuzz.nets import *
from plait.graph.passes import epilogue_dense as epilogue
right = epilogue._matmul
{fault}
net = nn.HybridSequential()
net.add(nn.Dense(9, activation="tanh"))
compare(net, (2, 7), "float32", seed=3)
"""
BIAS = """\
def wrong(node, device):
    made = right(node, device)
    return {k: v for k, v in made.items() if k != "bias"} if made else made
epilogue._matmul = wrong"""


@pytest.mark.parametrize(
    "script, kind",
    [
        (SAMPLE.format(name="softmax", fault=REF, what="at(33)"), "differs"),
        (SAMPLE.format(name="softmax", fault=REF, what="at(32)"), "ok"),
        (SAMPLE.format(name="tanh", fault=GRAD, what="slope(8)"), "differs"),
        (SAMPLE.format(name="tanh", fault="", what="slope(8)"), "ok"),
        (NET.format(fault=BIAS), "differs"),
        (NET.format(fault=""), "ok"),
    ],
)
def test_a_planted_fault_is_found(script, kind):
    """Each was missed once: a wrong result at one size; a bias that initializers make zero."""
    assert reduce.outcome(script, 60)[0] == kind


def test_a_read_beside_an_array_is_a_crash():
    """Guard pages: one byte after the last of an array, and one before the first."""
    for side, at in (("AFTER", "4 * 3"), ("BEFORE", "-1")):
        found = reduce.outcome(
            "import plait as mx\n"
            "from plait.engine import lib, ffi\n"
            f"lib.pl_storage_guard(lib.PL_GUARD_{side})\n"
            "x = mx.nd.ones((3,))\n"
            "data = ffi.cast('char *', lib.pl_array_data(x._handle))\n"
            "assert data[0] == b'\\x00' and data[11] == b'\\x3f'\n"
            f"data[{at}]\n",
            30,
        )
        assert found[0] == "crash"


@pytest.mark.parametrize(
    "line, kind",
    [
        ("assert 1 == 2, 'values'", "differs"),
        ("[][1]", "error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "crash"),
        ("while True: pass", "hang"),
        ("import plait; plait.nd.dot(plait.nd.ones(2), plait.nd.ones(3))", "refused"),
        ("x = 1", "ok"),
    ],
)
def test_verdicts(line, kind):
    assert reduce.outcome(line, 20 if kind != "hang" else 1)[0] == kind


def test_findings_are_made_small_and_a_crash_does_not_end_the_run():
    done = fuzz("--only", "broken", "--cases", "5")
    assert done.returncode == 1, done.stderr
    assert "broken: 5 (" in done.stdout
    scripts = done.stdout.split("---- smallest script\n")[1:]
    assert {s.split("\n----")[0] for s in scripts} == {
        "one = 1\nassert one == 2, f'one is {one}'",
        "one = 1\n[][one]",
        "import os; os.abort()",
    }
