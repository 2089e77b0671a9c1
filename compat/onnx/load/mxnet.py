"""MXNet's functions: import_model, import_to_gluon, get_model_metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from ....engine import Context
from ....engine.error import DynamicShape, compose
from ....gluon.trace import Tracer
from ....kernels.record import Type
from ....ndarray import autograd
from ..types import CODES, OnnxError
from .block import OnnxBlock, load
from .file import read
from .graph import Declared, declared


def import_model(
    model_file: str | PathLike[str], shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """(symbol, arg_params, aux_params) of an ONNX file. Inputs and parameters have their names in
    the file.

    shapes: of inputs that have unknown dimensions in the file; an unknown first one is 1 otherwise.
        A Symbol is made for these shapes: sizes that the file computes are numbers in it.
    Raises OnnxError: as `load`; for shapes that depend on values, which only `load` can run.
    """
    from ....symbol import Group, symbol

    net = load(model_file)
    if not net.inputs:
        raise OnnxError(f"onnx: {model_file} has no inputs\n  fix: mx.onnx.load(file)")
    data = []
    with Tracer(False) as tracer, autograd.predict_mode():
        for i in net.inputs:
            data.append(symbol.var(i.name))
            shape = _shape(i, (shapes or {}).get(i.name))
            data[-1]._outputs[0].node.types = (Type(shape, i.dtype or "float32"),)
        try:
            found = net._run(*data)
        except DynamicShape as error:
            rule = f"onnx: {model_file} is no Symbol: {error}"
            raise OnnxError(compose(rule, fix="mx.onnx.load(file)")) from None
    found = found if isinstance(found, list) else [found]
    whole = Group([s.as_nd_ndarray() for s in found])
    auxiliary, used = set(whole.list_auxiliary_states()), set(whole.list_inputs())
    params = {p.name: p.data() for p in tracer.params if p.name in used}
    return (
        whole,
        {n: x for n, x in params.items() if n not in auxiliary},
        {n: x for n, x in params.items() if n in auxiliary},
    )


def _shape(i: Declared, given: Sequence[int] | None) -> tuple[int, ...]:
    if given is not None:
        return tuple(given)
    if i.shape is None:
        raise OnnxError(
            f"onnx: the shape of {i.name!r} is unknown\n  fix: shapes={{{i.name!r}: ...}}"
        )
    known = [n if isinstance(n, int) else None for n in i.shape]
    known[:1] = [1 if n is None else n for n in known[:1]]
    made = tuple(n for n in known if n is not None)
    if len(made) < len(known):
        fix = f"import_model(file, shapes={{{i.name!r}: ...}}), or mx.onnx.load(file)"
        raise OnnxError(compose(f"onnx: {i.name!r} has unknown dimensions: {i.shape}", fix=fix))
    return made


def import_to_gluon(
    model_file: str | PathLike[str], ctx: Context | Sequence[Context] | None = None
) -> OnnxBlock:
    """An ONNX file as a SymbolBlock on a device; `load` under MXNet's name."""
    return load(model_file, ctx)


def get_model_metadata(model_file: str | PathLike[str]) -> dict[str, list[tuple]]:
    """{"input_tensor_data": [(name, shape, ONNX's number of the dtype)], "output_tensor_data":
    [(name, shape)]}; 0 stands for an unknown dimension."""
    graph = read(model_file).graph
    constants = {t.name for t in graph.initializer}
    inputs = [declared(i) for i in graph.input if i.name not in constants]

    def sizes(i: Declared) -> tuple[int, ...]:
        return tuple(n if isinstance(n, int) else 0 for n in i.shape or ())

    return {
        "input_tensor_data": [(i.name, sizes(i), CODES.get(i.dtype or "", 0)) for i in inputs],
        "output_tensor_data": [(o.name, sizes(o)) for o in map(declared, graph.output)],
    }
