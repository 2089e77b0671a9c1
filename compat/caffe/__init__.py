"""Networks of Caffe as Symbols and parameters: convert_model, convert_symbol, convert_mean."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine import files
from ...ndarray import NDArray
from ...symbol import Symbol
from ...training.callback import save_checkpoint
from . import detection, layers  # noqa: F401  (they register layers)
from .network import Network, array_of, chunks, entries
from .schema import CaffeError, messages, read_binary, read_text

__all__ = ["CaffeError", "convert_mean", "convert_model", "convert_symbol"]


def convert_symbol(prototxt_fname: str | PathLike[str]) -> tuple[Symbol, list[tuple[int, ...]]]:
    """(Symbol, shapes of its inputs) of a prototxt alone. See convert_model."""
    made = _network(prototxt_fname, None, False)
    return made.convert(), list(made.inputs.values())


def convert_model(
    prototxt_fname: str | PathLike[str],
    caffemodel_fname: str | PathLike[str],
    output_prefix: str | PathLike[str] | None = None,
    rgb: bool = False,
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray], list[tuple[int, ...]]]:
    """(Symbol, arg_params, aux_params, shapes of the inputs) of a network as it predicts.

    output_prefix: also writes prefix-symbol.json and prefix-0000.params, which
        gluon.SymbolBlock.imports and mx.mod.Module load.
    rgb: the network takes images whose channels are in the order RGB. Caffe's networks take BGR,
        and so does the result by default; MXNet's converter always swapped.

    Both versions of layers (V1, V2) are read. Arguments are named as layers: conv1_weight. Raises
    CaffeError (also a ValueError) for damaged files and for layers that are not known, with their
    names; FileNotFoundError.
    """
    made = _network(prototxt_fname, caffemodel_fname, rgb)
    symbol = made.convert()
    used = set(symbol.list_arguments())
    args = {k: nd.array(v) for k, v in made.params.items() if k in used}
    aux = {k: nd.array(v) for k, v in made.aux.items()}
    if output_prefix is not None:
        save_checkpoint(str(output_prefix), 0, symbol, args, aux)
    return symbol, args, aux, list(made.inputs.values())


def convert_mean(
    binaryproto_fname: str | PathLike[str], output: str | None = None, rgb: bool = False
) -> NDArray:
    """A mean image (channels, height, width) of a binaryproto file. output: also writes it there,
    under the name mean_image. rgb: its channels in reverse."""
    from google.protobuf.message import DecodeError

    what, blob = repr(str(binaryproto_fname)), messages()["BlobProto"]()
    try:
        blob.ParseFromString(files.read(binaryproto_fname, "caffe"))
    except DecodeError as error:
        raise CaffeError(f"caffe: {what} is no binaryproto: {error}") from None
    mean = array_of(blob, what)
    mean = mean.reshape(mean.shape[-3:])
    found = nd.array(np.ascontiguousarray(mean[::-1]) if rgb else mean)
    if output is not None:
        nd.save(output, {"mean_image": found})
    return found


def _network(prototxt: Any, caffemodel: Any, rgb: bool) -> Network:
    what = repr(str(prototxt))
    try:
        text = files.read(prototxt, "caffe").decode()
    except UnicodeDecodeError:
        raise CaffeError(f"caffe: {what} is no text: is it the caffemodel?") from None
    net = read_text(text, what)
    weights = []
    if caffemodel is not None:
        name = repr(str(caffemodel))
        weights = entries(read_binary(files.read(caffemodel, "caffe"), name), name)
        if not weights:
            raise CaffeError(f"caffe: {name} has no layers")
    made = Network(entries(net, what), weights, rgb)
    shapes = [tuple(s.dim) for s in net.input_shape] or list(map(tuple, chunks(net.input_dim, 4)))
    shapes += [()] * (len(net.input) - len(shapes))
    for name, shape in zip(net.input, shapes):
        made.add_input(name, shape)
    return made
