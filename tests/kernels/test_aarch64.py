"""What is built on other machines than x86-64; `make aarch64` builds and runs it."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = HERE / "aarch64" / "sources.py"


def files(machine):
    said = subprocess.run(
        [sys.executable, SOURCES, machine], capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in said.stdout.splitlines()]
    return {line[-1] for line in lines}, {flag for line in lines for flag in line[:-1]}


def test_other_machines_compile_no_file_and_no_flag_of_x86():
    here, flags = files("x86_64")
    there, other_flags = files("aarch64")
    assert flags == other_flags and not [f for f in flags if f.startswith("-m")]
    wrappers = {f for f in here if f.endswith(("_avx2.c", "_avx512.c"))}
    assert len(wrappers) > 50 and there == here - wrappers


def test_calls_are_recorded(tmp_path):
    path = os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])
    said = subprocess.run(
        [sys.executable, HERE / "aarch64" / "record.py", tmp_path, "relu", "softmax"],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "calls of 2 kernels" in said.stdout
    calls = (tmp_path / "calls").read_bytes()
    assert calls.count(b"plk_pointwise_run") > 2 and calls.count(b"plk_softmax_run") > 2
