"""The nd namespace: a function for every operator record, made when first used, and the creation
functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..engine.error import InvalidType, MXNetError
from ..kernels import ops, precision  # noqa: F401  (ops fills the registry)
from ..kernels.namespaces import derive
from ..kernels.record import REGISTRY, REQUIRED, Operator
from ..kernels.signature import dynamic_names, make_function, static_names
from ..kernels.traits import Front, Part
from . import creation
from .creation import *  # noqa: F403
from .custom import Custom  # noqa: F401
from .fronts import Steps
from .invoke import invoke
from .launch import Plans, run
from .ndarray import NDArray, state
from .parts import read_part

NAN = float("nan")
__all__ = [*creation.__all__, "Custom"]  # what nd offers beside the operators


def operator_function(
    op: Operator,
    name: str,
    convert: Callable[[Any], Any] | None = None,
    order: Sequence[str] = (),
    where: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The eager function of an operator: looks up its plan by the attributes as given and the
    inputs' specs; calls without one go by `invoke`. convert: makes an array of an input that is
    none. order: see make_function. where: (inputs, condition, attributes, out) -> the result of a
    call with the argument `where`, which the operator has not."""
    static_keys, dynamic_keys = static_names(op), dynamic_names(op)
    lists = any(p.dynamic and str(p.kind).startswith("floats") for p in op.params)
    train_aware, variadic = op.train_aware, op.variadic
    found = op.trait(Part)
    part = None if found is None else found.of
    plans, is_front = Plans(), op.has(Front)

    def call(inputs, static, dynamic, out, name, kwargs):
        while inputs and inputs[-1] is None and not variadic:
            inputs = inputs[:-1]
        if kwargs and where is not None and "where" in kwargs:
            condition = kwargs.pop("where")
            if condition is not True:
                return where(inputs, condition, attributes(inputs, static, dynamic, kwargs), out)
        plan = key = None
        if inputs and not kwargs:
            try:
                if part is not None and inputs[0].__class__ is NDArray and not precision.used:
                    return read_part(inputs[0], *part(inputs[0]._spec.shape, *static), out=out)
                lengths = (
                    tuple([len(d) if d.__class__ in (tuple, list) else 0 for d in dynamic])
                    if lists
                    else ()
                )
                key = (
                    static,
                    state.training if train_aware else lengths,
                    *[a._spec for a in inputs],
                )
                plan = plans[(precision.number(), key) if precision.used else key]
            # a list among the attributes, an input that is no array, a value that `parse` refuses
            except (TypeError, AttributeError, ValueError) as error:
                if isinstance(error, MXNetError):
                    raise
                key = None
        if out is not None and is_front and plan.__class__ is not Steps:
            # an `out` of another dtype gets the result converted
            plan = plan if plan and getattr(out, "_spec", None) is plan.out_spec else None
        if plan.__class__ is Steps:
            return plan.call(inputs, numbers(dynamic, lists), out)
        if plan is not None:
            if not dynamic:
                return run(plan, inputs, (), out)
            try:
                return run(plan, inputs, numbers(dynamic, lists), out)
            except TypeError as error:  # one is no number: perhaps a text that is
                if isinstance(error, MXNetError):
                    raise
        ctx = kwargs.pop("ctx", None) if "ctx" not in op.param_index else None
        for alias, index in ((n, i) for i, n in enumerate(op.inputs) if n in kwargs):
            inputs = (*inputs[:index], kwargs.pop(alias), *inputs[index + 1 :])
        if not variadic:
            inputs = [a for a in inputs if a is not None]
        if convert is not None:
            inputs = [convert(a) for a in inputs]
        if kwargs and is_front and not op.params:
            raise InvalidType(f"{op.name}: has no parameter {next(iter(kwargs))!r}")
        attrs = attributes(inputs, static, dynamic, kwargs)
        return invoke(op, inputs, attrs, out, ctx, plans if key is not None else None, key)

    def attributes(inputs, static, dynamic, kwargs):
        attrs = dict(zip(static_keys, static)) | dict(zip(dynamic_keys, dynamic)) | kwargs
        attrs = op.counted(attrs, len(inputs))
        return {k: list_to_tuple(v) for k, v in attrs.items() if v is not REQUIRED}

    return make_function(op, name, call, __name__, order)


def apply(op: Operator, inputs: Any, attrs: Any) -> Any:
    """An operator that has no name here: what a record's `grad` calls of a record of its own."""
    return invoke(op, inputs, attrs)


def numbers(dynamic: Sequence[Any], lists: bool) -> list[float]:
    """Dynamic parameters as kernels get them: NaN for None, lists flattened."""
    if not lists:
        return [NAN if d is None else d for d in dynamic]
    flat: list[float] = []
    for d in dynamic:
        if d.__class__ in (tuple, list):
            flat.extend(d)
        else:
            flat.append(NAN if d is None else d)
    return flat


def list_to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def function_of(full: str, name: str) -> Callable[..., Any]:
    """The function of an operator, one under all its names; name: ignored."""
    return getattr(sys.modules[__name__], full)


if TYPE_CHECKING:
    from ._operators import *
else:
    make = lambda full, name: operator_function(REGISTRY[full], name)
    __getattr__, __dir__ = derive(__name__, make, "", shown="nd")
