"""plait compile: a trained network as C, which a C compiler builds and no Python runs."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...compat import onnx
from ...engine import lib
from ...engine.error import MXNetError
from ...gluon.symbol_block import SymbolBlock
from ...kernels.record import Type, dtype_name
from ...ndarray import serialization
from ...symbol import symbol as sym
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
) -> Network:
    """Writes a network in prediction as C to a folder.

    Args:
        block: a HybridBlock with parameters. folder: made if need be.
        inputs: name -> Type(shape, dtype), in the order of the block's arguments.
        target: "native", "baseline" (any x86-64), "avx2", "avx512", "aarch64".
        name: of the network; the C functions are name_init, name_run, name_free.
        optional: inputs that must turn out not to be read, such as labels; they are left out.
    Raises: CompileError, naming the layer that C cannot compute; ValueError.
    """
    name = identifier(name)
    if name == "plait":
        raise ValueError("compile: the name 'plait' is plait's own; fix: --name net")
    with _processor(target) as isa:
        network = lower(block, name, inputs, optional, isa)
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
    lib.plk_isa_without(lib.PLK_HAS_BF16 | lib.PLK_HAS_VNNI)  # not every machine has these
    try:
        yield target
    finally:
        lib.plk_isa_without(0)
        lib.plk_isa_limit(lib.PLK_ISA_COUNT - 1)


def load(
    symbol: str, params: str | None, shapes: dict[str, tuple[int, ...]], dtypes: dict[str, str]
) -> tuple[Any, dict[str, Type], list[str]]:
    """(a block, the types of its inputs, the inputs that are left out) of files.

    symbol: X-symbol.json, or an ONNX file. params: X-0000.params; None for ONNX. shapes: of inputs;
    dtypes: of those that are not float32. Raises MXNetError, OSError.
    """
    types = {n: Type(s, dtype_name(dtypes.get(n, "float32"))) for n, s in shapes.items()}
    if symbol.endswith(".onnx"):
        block = onnx.load(symbol)
        declared = [i.name for i in block.inputs]
        if set(declared) != types.keys():
            raise CompileError(
                f"compile: {symbol} has the inputs {', '.join(declared)}, got --shape for"
                f" {', '.join(types)}"
            )
        return block, {n: types[n] for n in declared}, []
    if params is None:
        raise ValueError(f"compile: {symbol} needs its file of parameters, X-0000.params")
    graph = sym.load(symbol)
    variables = graph.list_inputs()
    if wrong := [n for n in types if n not in variables]:
        raise CompileError(
            f"compile: {symbol} has no variable {wrong[0]!r}, those are {', '.join(variables)}"
        )
    saved = {str(name).partition(":")[2] or name for name in serialization.load(params)}
    unknown = [n for n in variables if n not in types and n not in saved]
    if unknown:  # labels of losses, which prediction does not read
        found, _, _ = graph.infer_shape_partial(**shapes)
        known = dict(zip(graph.list_arguments(), found))
        missing = [n for n in unknown if not known.get(n) or 0 in known[n]]
        if missing:
            raise CompileError(
                f"compile: {', '.join(missing)}: neither a parameter in {params} nor an input\n"
                f"  fix: --shape {missing[0]}=SIZE,SIZE,..."
            )
        types |= {n: Type(tuple(known[n]), "float32") for n in unknown}
    return SymbolBlock.imports(symbol, list(types), params, ignore_extra=True), types, unknown


def _pairs(items: Sequence[str], option: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in items]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise ValueError(f"compile: {option} must be NAME=VALUE, got {name + equals + value!r}")
    return {name: value for name, _, value in pairs}


def main(argv: list[str] | None = None) -> int:
    """Compiles the network of files to a folder of C. Returns the exit status."""
    p = argparse.ArgumentParser(prog="python -m plait compile", description=__doc__)
    p.add_argument("symbol", help="net-symbol.json, or net.onnx")
    p.add_argument("params", nargs="?", help="net-0000.params; not for net.onnx")
    p.add_argument("-o", "--out", default="build", metavar="FOLDER", help="default: build")
    p.add_argument(
        "--shape",
        action="append",
        required=True,
        default=[],
        metavar="NAME=SIZES",
        help="shape of an input, such as data=1,3,224,224; once for each input, in their order",
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
    block, types, optional = load(args.symbol, args.params, shapes, dtypes)
    made = compile_block(
        block, args.out, types, target=args.target, name=args.name, optional=optional
    )
    n_kernels = len({s.function for s in made.steps})
    print(
        f"{args.out}: {len(made.steps)} calls of {n_kernels} kernels, {len(made.weights):,} bytes"
        f" of weights, {made.arena_bytes:,} of memory\nmake -C {args.out}"
    )
    return 0


__all__ = ["CompileError", "MXNetError", "compile_block", "load", "main"]
