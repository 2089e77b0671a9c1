"""`plait bench --gpu`: tiny sizes of every workload, a table, and the same names for torch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from plait.tools.benchmark import gpu

ALL = os.environ.get("GPU_TESTS") == "all"
FEW = ["copy", "gelu_chain", "stream_both"]
NAMES = gpu.workload_names()


def test_the_table():
    names = NAMES if ALL else FEW
    command = [sys.executable, "-m", "plait", "bench", "--gpu", "--tiny", "--rounds", "1", *names]
    done = subprocess.run([*command, "--seconds", "0.001"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.split("\n\n")
    head, *rows = first.splitlines()
    assert head.split()[:3] == ["workload", "ms", "MiB"]
    assert [row.split()[0] for row in rows] == names
    assert all(float(row.split()[1]) > 0 for row in rows)
    assert "compute capability" in last.splitlines()[0]
    assert re.search(r"gelu_chain: \d+ % of the copy rate", last)


def test_torch_has_the_same_workloads():
    text = (Path(gpu.__file__).parent / "gpu_with_torch.py").read_text()
    rows = re.findall(r'^    "(\w+)": ', text[text.index("\nWORKLOADS = {") :], re.MULTILINE)
    assert rows == NAMES


def test_figures():
    figures = gpu.Figures()
    one = lambda seconds: {"seconds": seconds, "bytes": 4e9, "peak_mib": 1}
    figures["copy", "plait"] = [one(2.0)]
    figures["a", "plait"], figures["a", "eager"] = [one(4.0), one(2.0)], [one(8.0), one(6.0)]
    columns = [gpu.table.Framework(n, "", "") for n in ("plait", "eager")]
    assert figures.ratio("a", "eager") == 2.5
    assert gpu.summary(["copy", "a"], columns, figures) == [
        "ahead of torch eager in 1 of 1 rows, median 2.50",
        "a: 67 % of the copy rate, 2 GB/s",
    ]


def test_an_unknown_workload_is_named(capsys):
    with pytest.raises(SystemExit):
        gpu.main(["no_such_row"])
    assert "no_such_row" in capsys.readouterr().err
