"""A small portion of `make fuzz` (docs/design/fuzzing.md), and the fuzzer itself: what it must
find."""

import os
import subprocess
import sys

import pytest
from fuzz import reduce, worker

CASES = {"operators": 250, "graphs": 60, "files": 120, "nets": 4, "processes": 3}


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
    done = fuzz("--only", "broken", "--cases", "20")
    assert done.returncode == 1, done.stderr
    assert "broken: 20 (" in done.stdout
    scripts = done.stdout.split("---- smallest script\n")[1:]
    assert {s.split("\n----")[0] for s in scripts} == {
        "one = 1\nassert one == 2, f'one is {one}'",
        "one = 1\n[][one]",
        "import os; os.abort()",
    }
