"""The command line: python -m plait WORD ..., where WORD names one of plait's tools."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from .engine.error import MXNetError

TOOLS = {  # word: (module of tools/, what it does)
    "caffe": ("caffe", "convert a network of Caffe: caffe convert --help"),
    "compile": ("compile", "write a network as C, which runs without Python: compile --help"),
    "launch": ("launch", "start a script on several processes: launch --help"),
    "info": ("info", "versions, devices, settings: what an issue report needs"),
    "draw": ("draw", "draw a graph file: draw --help"),
    "docs": ("reference", "write the reference: operators and modules"),
    "im2rec": ("im2rec", "make record files of images: im2rec --help"),
    "onnx": ("onnx", "networks as ONNX files and back: onnx --help"),
    "serve": ("serve", "serve models over HTTP: serve --help"),
    "train": ("train", "train an image classifier: train --help"),
    "predict": ("predict", "classify pictures with it: predict --help"),
    "bench": ("benchmark", "time the workloads, beside torch when it is installed: bench --help"),
}


def main(argv: list[str] | None = None) -> int:
    """Runs one tool. Returns the exit status: 0, 1 with one message where a file or a value is
    wrong, or 130 after Ctrl-C."""
    top = argparse.ArgumentParser(prog="python -m plait", description=__doc__)
    words = top.add_subparsers(dest="command", required=True)
    for word, (_, what) in TOOLS.items():
        words.add_parser(word, help=what, add_help=False)
    args, rest = top.parse_known_args(sys.argv[1:] if argv is None else argv)
    try:
        tool = importlib.import_module(f".tools.{TOOLS[args.command][0]}", __package__)
        return tool.main(rest)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MXNetError, OSError, ValueError) as error:
        print(f"plait {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nplait {args.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
