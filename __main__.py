"""The command line: python -m plait info | draw | im2rec | train | bench | docs."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from .engine import files
from .engine.error import MXNetError

PICTURES = ("svg", "png", "pdf", "dot")


def info() -> int:
    """Prints versions, devices and settings: what an issue report needs."""
    import numpy

    from . import __version__
    from .engine import num_gpus, settings
    from .kernels.cpu import onednn

    rows = [
        ("plait", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("numpy", numpy.__version__),
    ]
    for package in ("cffi", "graphviz", "tqdm", "scikit-learn", "graphviz-pure", "cupy-cuda13x"):
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    version = onednn.version()
    rows += [
        (
            "oneDNN",
            version or "not found: plain C kernels serve, slower. pip install onednn-cpu-gomp",
        ),
        ("cores", f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        ("gpus", str(num_gpus())),
    ]
    for name, setting in settings.SETTINGS.items():
        rows.append((name, f"{settings.get(name)}  ({setting.doc})"))
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
        try:
            shape[name] = tuple(int(n) for n in dims.split(","))
        except ValueError:
            raise ValueError(f"--shape must be NAME=1,3,224,224, got {item!r}") from None
    out = Path(args.out or args.file.removesuffix(".json").removesuffix("-symbol") + ".svg")
    kind = out.suffix[1:].lower()
    if kind not in PICTURES:
        raise ValueError(f"--out must end in .{', .'.join(PICTURES)}, got {out}")
    picture = viz.plot_network(args.file, shape=shape or None, collapse=args.collapse)
    if kind == "dot":
        files.write(out, picture.source.encode())
    else:
        files.write(out, picture.pipe(kind))
    print(out)
    return 0


def docs(folder: str) -> int:
    """Writes the reference: operators, and every module's classes and functions."""
    from .gluon import reference as modules
    from .kernels import reference as operators

    for path in [*operators.write(Path(folder)), *modules.write(Path(folder))]:
        print(path)
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m plait", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, devices, oneDNN: what an issue report needs")
    p = commands.add_parser("draw", help="draw a graph file")
    p.add_argument("file", help="X-symbol.json")
    p.add_argument(
        "-o", "--out", help=f"picture to write: .{', .'.join(PICTURES)} (default: X.svg)"
    )
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="shape of an input, to show shapes on the edges; may be repeated",
    )
    p.add_argument(
        "--collapse", action="store_true", help="draw equal blocks that follow each other once"
    )
    p = commands.add_parser("docs", help="write the reference: operators and modules")
    p.add_argument("folder", help="where operators.md goes")
    commands.add_parser("im2rec", help="make record files of images: im2rec --help", add_help=False)
    commands.add_parser("train", help="train an image classifier: train --help", add_help=False)
    commands.add_parser(
        "bench",
        help="time the workloads, beside torch when it is installed: bench --help",
        add_help=False,
    )
    return top


def main(argv: list[str] | None = None) -> int:
    """Runs one command. Returns the exit status: 0, or 1 with one message where a file or a value
    is wrong."""
    top = parser()
    args, rest = top.parse_known_args(sys.argv[1:] if argv is None else argv)
    try:
        if args.command == "train":
            from .gluon import training

            training.main(rest)
            return 0
        if args.command == "im2rec":
            from .gluon.io import im2rec

            return im2rec.main(rest)
        if args.command == "bench":
            from .gluon import benchmark

            return benchmark.main(rest)
        if rest:
            top.error(f"unrecognized arguments: {' '.join(rest)}")
        return {"info": info, "draw": lambda: draw(args), "docs": lambda: docs(args.folder)}[
            args.command
        ]()
    except (MXNetError, OSError, ValueError) as error:
        print(f"plait {args.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
