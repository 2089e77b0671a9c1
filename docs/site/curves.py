"""Runs the examples and draws what they print as docs/examples/pictures/*.svg:

python docs/site/curves.py
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
RUNS = {  # script: (arguments, what its lines say: x and y, names of the axes)
    "train_digits": ([], r"epoch\s+(\d+).*?valid\w*\s+([\d.]+)", "epoch", "validation accuracy, %"),
    "train_language_model": (
        ["--epochs", "6", "--characters", "60000", "--lr", "0.005"],
        r"epoch (\d+)  perplexity ([\d.]+)",
        "epoch",
        "perplexity",
    ),
    "train_transformer": (
        ["--steps", "800"],
        r"step (\d+) .*right ([\d.]+)%",
        "step",
        "numbers in their place, %",
    ),
}


def draw(points: list[tuple[float, float]], x: str, y: str, path: Path) -> None:
    """A curve with its axes, as a small SVG whose text is text."""
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "plait", "font.size": 9})
    figure, axes = plt.subplots(figsize=(4.6, 2.4), layout="constrained")
    axes.plot(*zip(*points), "o-", color="#3465a4", markersize=4)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def main() -> None:
    for name in sys.argv[1:] or RUNS:
        arguments, pattern, x, y = RUNS[name]
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, EXAMPLES / f"{name}.py", *arguments]
            said = subprocess.run(
                command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )
        print(said.stdout)
        points = [(float(a), float(b)) for a, b in re.findall(pattern, said.stdout)]
        draw(points, x, y, EXAMPLES / f"pictures/{name}.svg")


if __name__ == "__main__":
    main()
