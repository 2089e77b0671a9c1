"""The speed table: a row of it, and that the frameworks' scripts name the same workloads."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from plait.tools import benchmark
from plait.tools.benchmark import arrays, chart, table, turns

ROOT = Path(__file__).resolve().parents[2]
PRINTED = """workload                   plait ms   MiB   torch ms   MiB   / torch     / jax first ms
eager_add_4                  0.0015    50     0.0030   227      2.00         -    0.2
gelu_4m                      2.0000   274     1.0000   421      0.50      8.00  117.0
"""


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


def test_ratios_of_medians_and_of_minima(monkeypatch, capsys):
    """Of rounds; and the chart reads the former."""
    times = {"plait": [(4, 3), (2, 1)], "torch": [(4, 4), (6, 5)], "compile": [None, None]}

    def measure(framework, *_):
        found = times[framework.name].pop(0)
        more = {"first_seconds": 0.5, "peak_mib": 60}
        return found and {"seconds": found[0], "least_seconds": found[1], **more}

    monkeypatch.setattr(table, "measure", measure)
    benchmark.main(["--torch", "python", "--rounds", "2", "gelu_4m"])
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split()[7:] == ["4.00", "-", "2.00", "-", "500.0"]
    read = chart.read(printed)
    assert (read.peers, read.rows) == (["torch", "compile"], [("gelu_4m", [2.0, None])])


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


def test_the_chart_in_the_readme_is_the_table_in_the_readme():
    table = chart.read((ROOT / "README.md").read_text())
    assert len(table.rows) > 10 and "torch" in table.peers
    assert (ROOT / "docs/speed.svg").read_text() == chart.draw(table)


def test_a_chart_of_what_bench_printed(tmp_path, capsys):
    file = tmp_path / "result.txt"
    file.write_text(PRINTED)
    benchmark.main(["--chart", str(tmp_path / "out.svg"), "--table", str(file)])
    svg = (tmp_path / "out.svg").read_text()
    root = ElementTree.fromstring(svg)
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"torch", "jax", "eager_add_4", "gelu_4m"} <= set(texts)
    # powers of two from 0.5 to 8: four equal steps of 530 pixels right of 270
    drawn = [c for c in root.iter() if c.get("class") == "c0" and c.get("cy") != "41"]
    assert [float(c.get("cx")) for c in drawn] == [535.0, 270.0]


@pytest.mark.parametrize("text", ["no table\n", "workload  plait ms  first ms\nx 1 2\n"])
def test_a_chart_of_no_table(text):
    with pytest.raises(ValueError, match="no speed table"):
        chart.read(text)


def test_a_decoder(capsys):
    benchmark.main(["--decode", "1x64", "--rounds", "1", "--prompt", "4", "--new", "5"])
    head, decoder, *rows = capsys.readouterr().out.splitlines()
    assert decoder == "1 x 64, vocabulary 8192"
    assert [row[:24].strip() for row in rows] == ["plait", "plait int8"]
    assert all(float(cell) > 0 for row in rows for cell in row[24:].split())


def test_a_network_of_the_zoo(capsys):
    short = ["--batches", "1", "--rounds", "1", "--seconds", "0.01"]
    benchmark.main(["--zoo", "mobilenet0.25", *short])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["network", "batch", "plait", "ms", "plait", "least"]
    network, batch, median, least = row.split()
    assert (network, batch) == ("mobilenet0.25", "1")
    assert 0 < float(least) <= float(median)


def test_beside_a_busy_process(capsys):
    short = ["--processes", "1", "--rounds", "1", "--seconds", "0.01"]
    benchmark.main(["--busy", "mlp_infer", *short])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["row", "plait", "x", "1"]
    assert row.startswith("mlp_infer") and all(float(cell) > 0 for cell in row.split()[1:])


def test_rows_of_arrays_beside_numpy(capsys):
    short = ["--rounds", "1", "--seconds", "0.01", "--threads", "1", "--sizes", "10,2000"]
    benchmark.main(["--np", "add", "sort", "calls", *short])
    _, threads, head, *rows = capsys.readouterr().out.splitlines()
    assert threads == "1 thread"
    assert head.split() == ["row", "elements", "plait", "us", "numpy", "us", "/", "numpy"]
    assert [row[:28].split() for row in rows[:4]] == [
        [name, size] for name in ("add", "sort") for size in ("10", "2000")
    ]
    assert all(float(cell) > 0 for row in rows[:4] for cell in row[28:].split())
    assert rows[5].startswith("call, 10 elements") and rows[6].startswith("x + y")


def test_a_row_that_fails():
    assert arrays.cells([[[1e-6, 1e-6], [None, "ValueError: no"]]], 0) == "  ValueError: no"


def test_a_worker_that_fails():
    script = turns.Script("plait", sys.executable, "zoo_with_plait.py", ("plait", "1", "32"))
    with pytest.raises(RuntimeError, match="plait failed: "):
        turns.started([script], "no_such_network", 1)


def test_a_server_under_load(capsys):
    short = ["--rounds", "1", "--seconds", "0.1", "--concurrency", "2", "--overload", "0"]
    benchmark.main(["--serve", "mlp", *short])
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["network", "clients", "server", "requests/s"]
    name, clients, server, rate, p50, p99, cpu, refused, errors = row.split()
    assert (name, clients, server, refused, errors) == ("mlp", "2", "plait", "0", "0")
    assert float(rate) > 0 and float(cpu) > 0 and 0 < float(p50) <= float(p99)
