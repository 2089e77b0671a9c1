"""Sequences of many lengths: each is compiled once, and keeps little memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

N_LENGTHS = 300


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="Linux tells memory")
@pytest.mark.parametrize(
    "kind, mode, n_programs, max_kb",
    # a program takes about 20 KB, its typed graph included
    [("dense", "predict", 1, 18), ("dense", "train", 3, 66), ("lstm", "train", 3, 76)],
)
def test_many_lengths(kind, mode, n_programs, max_kb):
    script = str(Path(__file__).with_name("lengths.py"))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, kind, mode, str(N_LENGTHS)],
        env=env, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [int(r[8]) for r in rows] == [n_programs * N_LENGTHS, 0, 0]
    assert all(float(r[0]) < max_kb for r in rows)
    assert abs(float(rows[2][0]) - float(rows[1][0])) < 2  # the third pass adds nothing
