"""python -m plait: every command, its help, and what it says about wrong arguments."""

import re
import subprocess
import sys
from pathlib import Path

import plait
import pytest
from plait import __main__ as cli
from plait.tools import info

FIXTURES = Path(__file__).parent / "fixtures"


def plait_command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "plait", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )


def test_info(capsys):
    assert cli.main(["info"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["plait", plait.__version__]
    assert " threads" in text and "PLAIT_ENGINE" in text and "numpy" in text


def test_info_measures_the_machine(capsys, monkeypatch):
    monkeypatch.setattr(info, "COPIED_MB", 1)
    monkeypatch.setattr(info, "PRODUCT", 16)
    monkeypatch.setattr(info, "CALLS", 10)
    assert cli.main(["info", "--bench"]) == 0
    rows = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    for name in ("memory", "products, float32", "products, int8", "calls"):
        assert re.search(r"[1-9]", rows[name]) and "at best" in rows[name]


def test_module_and_exit_status():
    run = plait_command("info")
    assert run.returncode == 0 and run.stdout.startswith("plait ") and not run.stderr


@pytest.mark.parametrize(
    "command", [[], ["launch"], ["info"], ["draw"], ["train"], ["predict"], ["bench"], ["docs"]]
)
def test_help_everywhere(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")


@pytest.mark.parametrize("suffix, head", [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_draw(tmp_path, suffix, head, capsys):
    out = tmp_path / f"net.{suffix}"
    assert cli.main(["draw", str(FIXTURES / "mobilenet0.25-symbol.json"), "-o", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert out.read_bytes().startswith(head)


def test_draw_puts_shapes_on_edges(tmp_path):
    out = tmp_path / "net.dot"
    assert (
        cli.main(
            [
                "draw",
                str(FIXTURES / "lenet-symbol.json"),
                "-o",
                str(out),
                "--shape",
                "data=2,1,28,28",
            ]
        )
        == 0
    )
    assert "2\u00d71\u00d728\u00d728" in out.read_text()


def test_draw_is_beside_the_file_by_default(tmp_path):
    (tmp_path / "net-symbol.json").write_text((FIXTURES / "lenet-symbol.json").read_text())
    assert cli.main(["draw", str(tmp_path / "net-symbol.json")]) == 0
    assert (tmp_path / "net.svg").exists()


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (["draw", "missing-symbol.json"], "missing-symbol.json"),
        (
            ["draw", str(FIXTURES / "lenet-symbol.json"), "-o", "x.tiff"],
            "--out must end in .svg, .png, .pdf, .dot, got x.tiff",
        ),
        (
            ["draw", str(FIXTURES / "lenet-symbol.json"), "--shape", "data=wide"],
            "--shape must be NAME=1,3,224,224, got 'data=wide'",
        ),
        (
            ["draw", str(FIXTURES / "lenet-symbol.json"), "--shape", "dat=1,1,28,28"],
            "'dat' is no variable",
        ),
        (["draw", str(FIXTURES / "lenet-0003.params")], "lenet-0003.params"),
    ],
)
def test_wrong_files_and_values_are_one_message(arguments, rule, capsys):
    assert cli.main(arguments) == 1
    said = capsys.readouterr()
    assert said.err.startswith("plait draw: ") and rule in said.err and not said.out


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: command"),
        (["info", "--loud"], "unrecognized arguments: --loud"),
        (["train", "--data", "cats"], "fashion-mnist, mnist) nor a folder: 'cats'"),
        (["bench", "dance"], "unknown workloads dance"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments, rule, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert rule in capsys.readouterr().err


def test_train_names_the_models_it_knows(capsys):
    assert cli.main(["train", "--data", "digits", "--model", "lennet"]) == 1
    assert "lennet" in capsys.readouterr().err


def test_bench_times_one_workload(capsys):
    assert cli.main(["bench", "eager_add_4", "--rounds", "1", "--seconds", "0.05"]) == 0
    line = capsys.readouterr().out.splitlines()[1].split()
    assert line[0] == "eager_add_4" and 0 < float(line[1]) < 100
