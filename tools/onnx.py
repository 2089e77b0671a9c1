"""`python -m plait onnx WORD`: networks to ONNX files and back."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from ..compat import onnx


class Word(NamedTuple):
    """One word after `onnx`: its help, what adds its arguments, what runs it."""

    what: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: list[str] | None = None) -> int:
    """Runs one word."""
    parser = argparse.ArgumentParser(prog="python -m plait onnx", description=__doc__)
    words = parser.add_subparsers(dest="word", required=True)
    for name, word in WORDS.items():
        added = words.add_parser(name, help=word.what, description=word.what)
        word.arguments(added)
        added.set_defaults(run=word.run)
    args = parser.parse_args(argv)
    return args.run(args)


def _shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """data=batch,3,224,224 as ("data", ("batch", 3, 224, 224))."""
    name, equals, sizes = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=SIZE,SIZE,...")
    words = [s for s in sizes.split(",") if s]
    return name, tuple(int(s) if s.isdigit() else s for s in words)


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("symbol", help="net-symbol.json")
    parser.add_argument("params", help="net-0000.params")
    parser.add_argument("-o", "--output", default="model.onnx", metavar="FILE")
    parser.add_argument(
        "--shape", type=_shape, action="append", required=True, metavar="NAME=SIZES",
        help="of an input: data=batch,3,224,224; a size that is a word varies",
    )  # fmt: skip
    parser.add_argument("--dtype", default="float32", help="of all inputs")
    parser.add_argument("--opset", type=int, default=onnx.DEFAULT_OPSET)
    parser.add_argument("--verify", action="store_true", help="compare with ONNX Runtime")


def _export(args: argparse.Namespace) -> int:
    path = onnx.export_model(
        args.symbol, args.params, dict(args.shape), args.dtype, args.output,
        opset_version=args.opset, verify=args.verify,
    )  # fmt: skip
    print(f"wrote {path}" + (", which agrees with ONNX Runtime" if args.verify else ""))
    return 0


WORDS = {"export": Word("write a network as an ONNX file", _export_arguments, _export)}
