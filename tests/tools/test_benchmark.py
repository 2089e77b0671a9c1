"""The speed table: a row of it, and that the frameworks' scripts name the same workloads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from plait.tools import benchmark
from plait.tools.benchmark import table


def test_a_row():
    command = [sys.executable, "-m", "plait", "bench", "chain_hybrid"]
    done = subprocess.run(
        [*command, "--rounds", "1", "--seconds", "0.01"], capture_output=True, text=True
    )
    head, row = done.stdout.splitlines()
    assert head.split() == ["workload", "plait", "ms", "MiB", "first", "ms"]
    name, milliseconds, mib, first = row.split()
    assert name == "chain_hybrid" and float(milliseconds) > 0 and float(mib) > 0
    assert float(first) >= 0


def test_an_unknown_workload_is_named(capsys):
    with pytest.raises(SystemExit):
        benchmark.main(["no_such_row"])
    assert "no_such_row" in capsys.readouterr().err


@pytest.mark.parametrize("script", ["with_torch.py", "with_jax.py"])
def test_peers_know_no_other_workloads(script):
    text = (Path(table.__file__).parent / script).read_text()
    rows = re.findall(r'^ +"(\w+)": ', text, re.MULTILINE)
    assert len(rows) > 5
    assert set(rows) - {"w", "b", "qkv", "join", "wide", "narrow", "embedding"} <= set(
        table.workload_names()
    )
