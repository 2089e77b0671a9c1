"""Shapes, dtypes and gradients of a Symbol's outputs, from values given by position or name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.error import InvalidType, InvalidValue, MXNetError
from ..graph.effects import variables_of
from ..graph.graph import Node, Value, topological
from ..graph.inference import DtypeInference, Inference, is_dynamic, typed_graph
from ..graph.names import output_name
from ..graph.passes.gradient import gradient
from ..kernels.partial import as_zeros, from_zeros
from ..kernels.record import Type, dtype_name, lookup
from ..kernels.spec import NUMPY_DTYPES
from ..ndarray.numpy_mode import is_np_shape
from .compose import named


def _given(outputs: Sequence[Value], args, kwargs, what: str) -> dict[Node, Any]:
    """Positional values (by argument) or keywords (by variable) as {node: value}."""
    if args and kwargs:
        raise InvalidValue(
            f"Can only specify known argument {what}s either by positional or kwargs way."
        )
    arguments, auxiliary = variables_of(outputs)
    if len(args) > len(arguments):
        raise MXNetError(f"infer_{what}: there are {len(arguments)} arguments, got {len(args)}")
    pairs = [(n, v) for n, v in zip(arguments, args) if v is not None]
    for key, value in kwargs.items():
        found = [n for n in arguments + auxiliary if n.name == key]
        if not found:
            raise MXNetError(
                f"infer_{what}: keyword argument name {key} not found, the variables are "
                f"{', '.join(n.name for n in arguments + auxiliary)}"
            )
        if value is not None:
            pairs += [(n, value) for n in found]
    return dict(pairs)


def _given_shapes(outputs: Sequence[Value], args, kwargs) -> dict[Node, tuple[int | None, ...]]:
    found: dict[Node, tuple[int | None, ...]] = {}
    for node, shape in _given(outputs, args, kwargs, "shape").items():
        shape = (shape,) if hasattr(shape, "__index__") else shape
        if not isinstance(shape, (tuple, list)) or not all(hasattr(n, "__index__") for n in shape):
            raise InvalidType(
                f"infer_shape: the shape of {node.name} must be a tuple of ints, got {shape!r}"
            )
        if is_np_shape():  # 0 is a size, -1 an unknown one
            found[node] = tuple(None if n < 0 else n.__index__() for n in shape)
        elif len(shape):
            found[node] = from_zeros(tuple(max(n.__index__(), 0) for n in shape))
    return found


def shapes(
    outputs: Sequence[Value], args: Any, kwargs: dict[str, Any]
) -> tuple[tuple[list, list, list], bool]:
    """Shapes of arguments, outputs and auxiliary states, None for an unknown one; are all
    known?"""
    found = Inference(outputs, _given_shapes(outputs, args, kwargs), {}, only_shapes=True)
    arguments, auxiliary = variables_of(outputs)
    groups = [*map(Value, arguments)], outputs, [*map(Value, auxiliary)]
    known = all(found.knows_shape(v) for group in groups for v in group)
    in_shapes, out_shapes, aux_shapes = ([found.shape[v] for v in group] for group in groups)
    return (in_shapes, out_shapes, aux_shapes), known


def as_shown(shape: Any) -> Any:
    """A partly unknown shape as callers see it: 0 is unknown, or () all of it; under `np_shape` -1,
    or None."""
    if is_np_shape():
        return shape if shape is None else tuple(-1 if n is None else n for n in shape)
    return as_zeros(shape) or ()


def dtypes(outputs: Sequence[Value], args: Any, kwargs: dict[str, Any]) -> tuple[list, list, list]:
    """Dtypes of arguments, outputs and auxiliary states, None for an unknown one."""
    given = {n: dtype_name(t) for n, t in _given(outputs, args, kwargs, "type").items()}
    found = DtypeInference(outputs, given)
    arguments, auxiliary = variables_of(outputs)

    def numpy_dtypes(values):
        names = [found.dtype[v] for v in values]
        return [
            (
                None
                if d is None
                else NUMPY_DTYPES[d].type
                if not NUMPY_DTYPES[d].names
                else NUMPY_DTYPES[d]
            )
            for d in names
        ]

    return (
        numpy_dtypes(map(Value, arguments)),
        numpy_dtypes(outputs),
        numpy_dtypes(map(Value, auxiliary)),
    )


def variable_types(outputs: Sequence[Value], shapes: dict, dtypes: dict) -> dict[Node, Type | None]:
    """The type of each variable, from shapes and dtypes by name."""
    found = Inference(
        outputs,
        _given_shapes(outputs, (), shapes),
        {n: dtype_name(t) for n, t in _given(outputs, (), dtypes, "type").items()},
    )
    for v in outputs:
        if found.type(v) is None and v.node.op is not None:
            unknown = [n.name for n in found.order if n.op is None and found.type(Value(n)) is None]
            if not unknown and not is_dynamic(outputs):
                raise MXNetError(f"the shape of output {output_name(v)} cannot be inferred")
    return {n: found.type(Value(n)) for n in found.order if n.op is None}


def gradients(outputs: Sequence[Value], wrt: Sequence[str]) -> list[Value]:
    """Gradients of the sum of the outputs with respect to variables; shapes must be declared."""
    inferred = variable_types(outputs, {}, {})
    types = {n: t for n, t in inferred.items() if t is not None}
    if unknown := [n.name for n in inferred if n not in types]:
        raise MXNetError(
            f"gradient: every variable must have a shape, {', '.join(unknown)} has none\n"
            "  fix: sym.var(name, shape=...)"
        )
    nodes = [n for n in topological(outputs) if n.op is None]
    values = typed_graph([*outputs, *map(Value, nodes)], types, True)
    values, variables = values[: len(outputs)], values[len(outputs) :]
    by_name = {v.node.name: v for v in variables}
    if missing := [n for n in wrt if n not in by_name]:
        raise InvalidValue(
            f"gradient: {missing[0]!r} is no variable, the variables are {', '.join(by_name)}"
        )
    grads = gradient(values, [None] * len(values), [by_name[n] for n in wrt])
    zero = lookup("_zeros")

    def zeros_of(name: str) -> Value:
        attrs = zero.parse({"shape": by_name[name].shape})
        return Value(Node(zero, attrs, (), f"{name}_zero"))

    return named([zeros_of(n) if g is None else g for n, g in zip(wrt, grads)])
