"""`python -m plait caffe convert net.prototxt net.caffemodel -o prefix`."""

from __future__ import annotations

import argparse

from ..compat import caffe


def main(argv: list[str] | None = None) -> int:
    """Converts a network and prints its inputs and outputs."""
    parser = argparse.ArgumentParser(prog="python -m plait caffe", description=__doc__)
    words = parser.add_subparsers(dest="word", required=True)
    convert = words.add_parser("convert", help="write prefix-symbol.json and prefix-0000.params")
    convert.add_argument("prototxt", help="the network as text (deploy.prototxt)")
    convert.add_argument("caffemodel", help="its weights")
    convert.add_argument("-o", "--output", required=True, metavar="PREFIX")
    convert.add_argument(
        "--rgb", action="store_true", help="take images in the order RGB; Caffe's networks take BGR"
    )
    args = parser.parse_args(argv)
    symbol, _, _, shapes = caffe.convert_model(
        args.prototxt, args.caffemodel, args.output, args.rgb
    )
    print(f"inputs: {', '.join(map(str, shapes))}; outputs: {', '.join(symbol.list_outputs())}")
    print(f"wrote {args.output}-symbol.json and {args.output}-0000.params")
    return 0
