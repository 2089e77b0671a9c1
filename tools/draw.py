"""plait draw: a picture of a -symbol.json file."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..engine import files
from ..symbol import viz

PICTURES = ("svg", "png", "pdf", "dot")


def main(argv: list[str]) -> int:
    """Draws a -symbol.json file. Returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m plait draw", description=__doc__)
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
    p.add_argument("--collapse", action="store_true", help="draw consecutive equal blocks once")
    args = p.parse_args(argv)
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
