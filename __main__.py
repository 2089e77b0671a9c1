"""The command line: python -m plait info | draw | train | bench."""
from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys


def info() -> int:
    """Prints versions, devices and settings: what an issue report needs."""
    import numpy

    from . import __version__
    from .engine import lib, num_gpus, settings
    from .kernels.cpu import onednn
    rows = [("plait", __version__), ("python", f"{platform.python_version()} on {platform.platform()}"),
            ("numpy", numpy.__version__)]
    for package in ("cffi", "graphviz", "tqdm", "scikit-learn", "graphviz-pure", "cupy-cuda13x"):
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    rows += [("oneDNN", onednn.describe()), ("cores", f"{lib.pl_cores()} usable"), ("gpus", num_gpus()),
             *settings.table()]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return 0


def draw(args) -> int:
    """Draws a -symbol.json file."""
    from .symbol import viz
    shape = {}
    for item in args.shape:
        name, _, dims = item.partition("=")
        shape[name] = tuple(int(n) for n in dims.split(","))
    out = args.out or args.file.removesuffix(".json").removesuffix("-symbol") + ".svg"
    stem, _, kind = out.rpartition(".")
    viz.plot_network(args.file, shape=shape or None).render(stem, format=kind, cleanup=True)
    print(out)
    return 0


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="plait", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, devices, oneDNN: what an issue report needs")
    p = commands.add_parser("draw", help="draw a graph file")
    p.add_argument("file", help="X-symbol.json")
    p.add_argument("-o", "--out", help="picture to write: .svg, .png, .pdf or .dot (default: X.svg)")
    p.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,224,224",
                   help="shape of an input, to show shapes on the edges; may be repeated")
    commands.add_parser("train", help="train an image classifier", add_help=False)
    commands.add_parser("bench", help="time the workloads, beside torch when it is installed", add_help=False)
    args, rest = parser.parse_known_args(argv)
    if args.command == "train":
        from .gluon import training
        training.main(rest)
        return 0
    if args.command == "bench":
        from .gluon import benchmark
        return benchmark.main(rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return info() if args.command == "info" else draw(args)


if __name__ == "__main__":
    sys.exit(main())
