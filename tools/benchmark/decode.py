"""`plait bench --decode`: tokens a second of a decoder with a cache of keys and values.

There is one sequence. Each framework has a process; they generate in turns. The table has the
median over the rounds of each round's median, and of each round's minimum, in tokens a second; then
the prompt in milliseconds. A ratio is plait's tokens a second / the peer's, and the peer's time for
the prompt / plait's, medians over the rounds: above 1 plait is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PROMPT, NEW, VOCABULARIES = 64, 128, {512: 8192, 768: 32000}
ROW = "{:24}{:>10}{:>10}{:>9}{:>10}{:>9}{:>9}{:>9}"
HEAD = ("decoder", "tokens/s", "fastest", "ratio", "fastest", "MB", "prompt", "ratio")


class Turn(NamedTuple):
    """One generation: seconds of the prompt, median and minimum seconds of a token."""

    prompt: float
    median: float
    least: float


class Peer:
    """A process that generates when it is asked."""

    def __init__(self, name: str, python: str, script: str, mode: str, sizes: list[int], n: int):
        self.name = name
        env = dict(os.environ, OMP_NUM_THREADS=str(n), MKL_NUM_THREADS=str(n))
        command = [python, "-W", "ignore", str(HERE / script), mode, *map(str, sizes)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def turn(self) -> Turn:
        """Raises RuntimeError where the process ends."""
        assert self.process.stdin and self.process.stdout
        print(file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        while line and not line.startswith("["):
            line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self.process.wait()}")
        prompt, seconds, _ = json.loads(line)
        return Turn(prompt, statistics.median(seconds), min(seconds))

    def peak_mb(self) -> float:
        """Of memory so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1000

    def end(self) -> None:
        self.process.communicate()


def rows(layers: int, units: int, args: argparse.Namespace) -> list[str]:
    """The lines of one decoder."""
    sizes = [args.vocabulary or VOCABULARIES.get(units, 8192), units, units // 64, layers]
    sizes += [args.prompt, args.new]
    plait, ort = "decode_with_plait.py", "decode_with_onnxruntime.py"
    wanted = [("plait", sys.executable, plait, "float32")]
    if args.torch:
        wanted.append(("torch", args.torch, "decode_with_torch.py", "eager"))
        if not args.no_compile:
            wanted.append(("torch.compile", args.torch, "decode_with_torch.py", "compile"))
    if args.onnxruntime:
        wanted.append(("ONNX Runtime", args.onnxruntime, ort, "float32"))
    wanted.append(("plait int8", sys.executable, plait, "int8"))
    if args.onnxruntime:
        wanted.append(("ONNX Runtime int8", args.onnxruntime, ort, "int8"))
    peers = [Peer(*given, sizes, args.threads) for given in wanted]
    for peer in peers:
        for _ in range(2):  # compiles
            peer.turn()
    rounds = [[peer.turn() for peer in peers] for _ in range(args.rounds)]
    made = [f"{layers} x {units}, vocabulary {sizes[0]}"]
    names = [peer.name for peer in peers]
    median = lambda values: statistics.median(list(values))
    for i, peer in enumerate(peers):
        ours = names.index("plait int8" if "int8" in peer.name else "plait")
        cells = [
            f"{1 / median(r[i].median for r in rounds):.1f}",
            f"{1 / median(r[i].least for r in rounds):.1f}",
            f"{median(r[i].median / r[ours].median for r in rounds):.2f}",
            f"{median(r[i].least / r[ours].least for r in rounds):.2f}",
            f"{peer.peak_mb():.0f}",
            f"{1e3 * median(r[i].prompt for r in rounds):.1f}",
            f"{median(r[i].prompt / r[ours].prompt for r in rounds):.2f}",
        ]
        made.append(ROW.format("  " + peer.name, *cells))
        peer.end()
    return made


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --decode [--torch PYTHON] [--onnxruntime PYTHON]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --decode",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("decoders", nargs="*", metavar="LAYERSxUNITS", default=["6x512", "12x768"])
    for peer in ("torch", "onnxruntime"):
        parser.add_argument(f"--{peer}", metavar="PYTHON", help=f"interpreter that has {peer}")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prompt", type=int, default=PROMPT, help="tokens")
    parser.add_argument("--new", type=int, default=NEW, help="tokens")
    parser.add_argument("--vocabulary", type=int, help="default: 8192, or 32000 with 768 units")
    args = parser.parse_args(argv)
    print(ROW.format(*HEAD), flush=True)
    for decoder in args.decoders:
        layers, units = map(int, decoder.split("x"))
        print("\n".join(rows(layers, units, args)), flush=True)
    return 0
