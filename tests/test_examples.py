"""The three examples, short, each as a user starts it: a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "docs" / "examples"


def run(name, *arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_digits_learn(tmp_path):
    options = "--epochs 4 --batch-size 32 --no-report".split()
    text = run("train_digits.py", *options, cwd=tmp_path)
    assert float(re.search(r"best validation accuracy: ([\d.]+)%", text)[1]) > 90
    history = json.loads((tmp_path / "out/convnet-digits-history.json").read_text())
    assert [h["epoch"] for h in history] == [1, 2, 3, 4] and history[3]["loss"] < history[0]["loss"]


def test_eager_and_hybridized_learn_the_same(tmp_path):
    history = {}
    for mode in ("--hybridize", "--no-hybridize"):
        run(
            "train_digits.py",
            "--model",
            "mlp",
            "--epochs",
            2,
            mode,
            "--no-report",
            "--out",
            mode[2:],
            cwd=tmp_path,
        )
        history[mode] = json.loads((tmp_path / mode[2:] / "mlp-digits-history.json").read_text())
    for a, b in zip(*history.values()):
        assert abs(a["loss"] - b["loss"]) < 1e-3 * a["loss"]


def test_language_model_learns(tmp_path):
    text = run(
        "train_language_model.py",
        "--epochs",
        2,
        "--characters",
        20000,
        "--hidden",
        64,
        "--lr",
        0.01,
        cwd=tmp_path,
    )
    first, second = map(float, re.findall(r"perplexity ([\d.]+)", text))
    assert second < 0.9 * first and second < 25
    assert "'The " in text or '"The ' in text


def test_transformer_learns(tmp_path):
    text = run(
        "train_transformer.py",
        "--steps",
        150,
        "--length",
        6,
        "--vocabulary",
        10,
        "--units",
        32,
        "--lr",
        0.005,
        cwd=tmp_path,
    )
    right = [float(r) for r in re.findall(r"right ([\d.]+)%", text)]
    assert right[-1] > 70  # by chance: 10
