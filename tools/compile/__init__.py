"""plait compile: a trained network as C, which a C compiler builds and no Python runs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...engine import lib
from ...gluon.symbol_block import SymbolBlock
from ...kernels.record import Type, dtype_name
from ...ndarray import serialization
from ...symbol import symbol as sym
from .. import model_folder
from .lower import CompileError, Network, lower
from .writer import identifier, write

LEVELS = {
    "baseline": lib.PLK_BASELINE,
    "avx2": lib.PLK_AVX2,
    "avx512": lib.PLK_AVX512,
    "aarch64": lib.PLK_BASELINE,  # whose blocks of four channels are those of NEON
}
TARGETS = ("native", *LEVELS)


def compile_block(
    block: Any,
    folder: Path | str,
    inputs: dict[str, Type],
    *,
    target: str = "native",
    name: str = "net",
    optional: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Network:
    """Writes a network in prediction as C to a folder.

    Args:
        block: a HybridBlock with parameters. folder: made if need be.
        inputs: name -> Type(shape, dtype), in the order of the block's arguments.
        target: "native", "baseline" (any x86-64), "avx2", "avx512", "aarch64".
        name: of the network; the C functions are name_init, name_run, name_free.
        optional: inputs that must turn out not to be read, such as labels; they are left out.
        outputs: their names; those of the operators, where none are given.
    Raises: CompileError, naming the layer that C cannot compute; ValueError.
    """
    name = identifier(name)
    if name == "plait":
        raise ValueError("compile: the name 'plait' is plait's own; fix: --name net")
    with _processor(target) as isa:
        network = lower(block, name, inputs, optional, outputs, isa)
        features = sum(f for f in (lib.PLK_HAS_BF16, lib.PLK_HAS_VNNI) if lib.plk_isa_has(f))
        write(network, Path(folder), isa, features)
    return network


@contextlib.contextmanager
def _processor(target: str) -> Iterator[str]:
    """Inside, kernels and layouts are those of a target. Gives the name of its instructions."""
    if target not in TARGETS:
        raise ValueError(f"compile: the target must be one of {', '.join(TARGETS)}, got {target!r}")
    best = lib.plk_isa_best()
    if target == "native":
        names = {level: isa for isa, level in LEVELS.items() if isa != "aarch64"}
        yield names[best]
        return
    if LEVELS[target] > best:
        raise CompileError(
            f"compile: weights for {target} are prepared by kernels for {target}, which this"
            " processor cannot run\n  fix: compile on a machine that has it"
        )
    lib.plk_isa_limit(LEVELS[target])
    lib.plk_isa_without(lib.PLK_HAS_ALL)  # not every machine has these
    try:
        yield target
    finally:
        lib.plk_isa_without(0)
        lib.plk_isa_limit(lib.PLK_ISA_COUNT - 1)


class Source(NamedTuple):
    """A network from files: what compile_block takes. inputs: with their types."""

    block: Any
    inputs: dict[str, Type]
    optional: Sequence[str] = ()
    outputs: Sequence[str] = ()


def load(
    source: str, params: str | None, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, str]
) -> Source:
    """The network of files.

    source: a model folder, X-symbol.json, or an ONNX file. params: X-0000.params; None for the
    others. shapes: of inputs; dtypes: of those that are not float32; both only of those of which
    the files say nothing, or something else. Raises MXNetError, OSError.
    """
    names: list[str] = []  # of the outputs
    if Path(source).is_dir():
        inputs, outputs, graph = model_folder.describe(source)
        if graph is None:
            raise CompileError(f"compile: {source}/{model_folder.DESCRIPTION} names no graph")
        source, params = map(str, graph)
        names = [o.name for o in outputs]
        shapes = {i.name: tuple(max(n, 1) for n in i.shape) for i in inputs} | shapes
        dtypes = {i.name: i.dtype for i in inputs} | dtypes
    if source.endswith(".onnx"):
        return _from_onnx(source, shapes, dtypes)
    if params is None:
        raise ValueError(f"compile: {source} needs its file of parameters, X-0000.params")
    types = {n: Type(s, dtype_name(dtypes.get(n, "float32"))) for n, s in shapes.items()}
    symbol = sym.load(source)
    variables = symbol.list_inputs()
    if wrong := [n for n in types if n not in variables]:
        raise CompileError(
            f"compile: {source} has no variable {wrong[0]!r}, those are {', '.join(variables)}"
        )
    saved = {str(name).partition(":")[2] or name for name in serialization.load(params)}
    unknown = [n for n in variables if n not in types and n not in saved]
    if unknown:  # labels of losses, which prediction does not read
        found, _, _ = symbol.infer_shape_partial(**shapes)
        known = dict(zip(symbol.list_arguments(), found))
        missing = [n for n in unknown if not known.get(n) or 0 in known[n]]
        if missing:
            raise CompileError(
                f"compile: {', '.join(missing)}: neither a parameter in {params} nor an input\n"
                f"  fix: --shape {missing[0]}=SIZE,SIZE,..."
            )
        types |= {n: Type(tuple(known[n]), "float32") for n in unknown}
    block = SymbolBlock.imports(source, list(types), params, ignore_extra=True)
    return Source(block, types, unknown, names)


def _from_onnx(source: str, shapes: dict, dtypes: dict) -> Source:
    from ...compat import onnx  # here: it is large, and most networks are none

    block = onnx.load(source)
    names = [i.name for i in block.inputs]
    if unknown := shapes.keys() - set(names):
        raise CompileError(
            f"compile: {source} has the inputs {', '.join(names)}, got --shape for"
            f" {', '.join(sorted(unknown))}"
        )
    types = {}
    for i in block.inputs:
        shape = shapes.get(i.name, i.shape)
        if shape is None or not all(isinstance(n, int) for n in shape):
            raise CompileError(
                f"compile: {source}: the sizes of input {i.name} vary: {shape}\n"
                f"  fix: --shape {i.name}=SIZE,SIZE,..."
            )
        types[i.name] = Type(tuple(shape), dtype_name(dtypes.get(i.name, i.dtype or "float32")))
    return Source(block, types, outputs=block._onnx.outputs)


def _pairs(items: Sequence[str], option: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in items]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise ValueError(f"compile: {option} must be NAME=VALUE, got {name + equals + value!r}")
    return {name: value for name, _, value in pairs}


def main(argv: list[str] | None = None) -> int:
    """Compiles the network of files to a folder of C. Returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m plait compile", description=__doc__)
    p.add_argument("source", help="a model folder of `plait train`, net-symbol.json, or net.onnx")
    p.add_argument("params", nargs="?", help="net-0000.params, for net-symbol.json")
    p.add_argument("-o", "--out", default="build", metavar="FOLDER", help="default: build")
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME=SIZES",
        help="shape of an input, such as data=1,3,224,224; once for each input, in their order;"
        " default: as the model folder (one picture) or the ONNX file says",
    )
    p.add_argument(
        "--dtype", action="append", default=[], metavar="NAME=DTYPE", help="default: float32"
    )
    p.add_argument(
        "--target",
        choices=TARGETS,
        default="native",
        help="instructions: native (default) are this machine's, baseline any x86-64's",
    )
    p.add_argument("--name", default="net", help="of the network in C (default: net)")
    args = p.parse_args(argv)
    shapes = {}
    for name, text in _pairs(args.shape, "--shape").items():
        try:
            shapes[name] = tuple(int(n) for n in text.split(",") if n)
        except ValueError:
            raise ValueError(f"compile: --shape must be NAME=1,3,224,224, got {text!r}") from None
    dtypes = _pairs(args.dtype, "--dtype")
    if unknown := dtypes.keys() - shapes.keys():
        raise ValueError(f"compile: --dtype {min(unknown)}: no --shape has this name")
    block, inputs, optional, outputs = load(args.source, args.params, shapes, dtypes)
    made = compile_block(
        block, args.out, inputs, target=args.target, name=args.name, optional=optional,
        outputs=outputs,
    )  # fmt: skip
    n_kernels = len({s.function for s in made.steps})
    print(
        f"{args.out}: {len(made.steps)} calls of {n_kernels} kernels, {len(made.weights):,} bytes"
        f" of weights, {made.arena_bytes:,} of memory\nmake -C {args.out}"
    )
    return 0


__all__ = ["CompileError", "Source", "compile_block", "load", "main"]
