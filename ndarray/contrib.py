"""nd.contrib: operators that MXNet calls contributed; loops and branches in Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..engine import Context, current_context, hooks
from ..engine.error import InvalidType, InvalidValue, MXNetError
from ..kernels.namespaces import derive
from . import functions
from .contrib_update import (  # noqa: F401 - offered from here
    adamw_update,
    mp_adamw_update,
    multi_adamw_update,
    multi_lamb_update,
    multi_mp_adamw_update,
    multi_mp_lamb_update,
)
from .invoke import is_symbol
from .ndarray import NDArray
from .nesting import NotNested, flatten, pair, unflatten


def _symbolic(*values):
    """sym.contrib if one of the (nested) values is a Symbol: a forward is being traced."""
    stack = list(values)
    while stack:
        v = stack.pop()
        if isinstance(v, (list, tuple)):
            stack += v
        elif is_symbol(v):
            return hooks.get("loops of symbols")
    return None


def _flatten(value, what: str) -> tuple[list, Any]:
    """(arrays, form) of arrays in nested lists."""

    def refuse(x, leaves):
        raise NotNested(f"{what} must be (nested) list of NDArray, got {type(x).__name__}")

    return flatten(value, NDArray, refuse)


def foreach(body: Callable, data: Any, init_states: Any) -> tuple:
    """Calls body(slice of data, states) -> (outputs, new states) for every slice along axis 0.

    data, init_states: an NDArray or nested lists of them. Returns (outputs stacked along axis 0,
    the last states). Without slices the outputs are [] and the states are unchanged.
    """
    symbolic = _symbolic(data, init_states)
    if symbolic is not None:
        return symbolic.foreach(body, data, init_states)
    flat, form = _flatten(data, "data")
    _flatten(init_states, "init_states")
    if not flat:
        raise InvalidValue("foreach: data must hold at least one array")
    states, rows, out_form = init_states, [], ()
    for i in range(flat[0].shape[0]):
        found = body(unflatten(form, [d[i] for d in flat]), states)
        outs, states = pair(found, "foreach: body", "outputs, states")
        row, out_form = _flatten(outs, "an output of body")
        rows.append(row)
    return unflatten(out_form, [functions.stack(*column) for column in zip(*rows)]), states


def while_loop(cond: Callable, func: Callable, loop_vars: Any, max_iterations: Any = None) -> tuple:
    """Calls func(*loop_vars) -> (outputs, new loop_vars) while cond(*loop_vars) is true, at most
    max_iterations times.

    Returns (outputs stacked along axis 0, the last loop_vars). Axis 0 has max_iterations rows,
    those that were not computed are zeros; without any iteration the outputs are [].
    """
    symbolic = _symbolic(loop_vars)
    if symbolic is not None:
        return symbolic.while_loop(cond, func, loop_vars, max_iterations)
    if max_iterations is None:
        raise InvalidValue("max_iterations should be specified")
    limit = _scalar(max_iterations, int, "max_iteration")
    if len(loop_vars) == 0:
        raise InvalidValue("loop_vars should contain at least one element")
    alone = isinstance(loop_vars, NDArray)
    values = [loop_vars] if alone else loop_vars
    rows: list[list[NDArray]] = []
    out_form: Any = ()
    while len(rows) < limit and _scalar(cond(*values), bool, "Return value of cond"):
        outs, after = pair(func(*values), "while_loop: func", "outputs, loop_vars")
        after = (
            [] if after is None else list(after) if isinstance(after, (list, tuple)) else [after]
        )
        if len(after) != len(values):
            raise InvalidValue("The length of loop_vars should be consistent during the loop")
        values = after
        row, out_form = _flatten([] if outs is None else outs, "an output of func")
        rows.append(row)
        if len(row) != len(rows[0]):
            raise InvalidValue("Number of elements in step_output should be the same in each step")
    stacked = [_padded(column, limit, k) for k, column in enumerate(zip(*rows), 1)]
    return unflatten(out_form, stacked), values[0] if alone else values


def _padded(column, limit: int, k: int) -> NDArray:
    """Equal arrays stacked, with zeros up to `limit` rows."""
    shapes = [a.shape for a in column]
    if any(s != shapes[0] for s in shapes):
        raise InvalidValue(f"Shapes of {k}-th elements in step_outputs are inconsistent: {shapes}")
    made = functions.stack(*column)
    if len(column) == limit:
        return made
    shape = (limit - len(column), *shapes[0])
    rest = functions.zeros(shape, ctx=made.context, dtype=made.dtype)
    return functions.concat(made, rest, dim=0)


def cond(pred: Any, then_func: Callable, else_func: Callable) -> Any:
    """then_func() if the one number in pred is true, else else_func()."""
    symbolic = _symbolic(pred)
    if symbolic is not None:
        return symbolic.cond(pred, then_func, else_func)
    return then_func() if _scalar(pred, bool, "pred") else else_func()


def _scalar(value, kind: type, name: str):
    try:
        return kind(value.asscalar() if hasattr(value, "asscalar") else value)
    except (TypeError, ValueError) as raised:
        error: Exception = raised
        if isinstance(error, MXNetError) and not isinstance(error, (InvalidType, InvalidValue)):
            raise
        raise InvalidValue(f"Cannot convert {name} to python {kind.__name__}") from error


def isinf(data: NDArray) -> Any:
    """1 where an element is infinite, else 0."""
    return data.abs() == math.inf


def isnan(data: NDArray) -> Any:
    """1 where an element is not a number, else 0."""
    return data != data


def isfinite(data: NDArray) -> Any:
    """1 where an element is a finite number, else 0."""
    return functions.logical_not(isinf(data) + isnan(data))


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: Context | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """(classes, expected counts of true_classes, expected counts of the classes) of num_sampled
    draws from the log-uniform distribution over [0, range_max): int64, float64, float64."""
    from .random import uniform

    ctx = ctx or current_context()
    log_range = math.log(range_max + 1)
    rand = uniform(0, log_range, shape=(num_sampled,), dtype="float64", ctx=ctx)
    classes = (rand.exp() - 1).astype("int64") % range_max

    def expected(of):
        of = of.as_in_context(ctx).astype("float64")
        return ((of + 2.0) / (of + 1.0)).log() / log_range * num_sampled

    return classes, expected(true_classes), expected(classes)


if TYPE_CHECKING:
    from ._contrib_operators import *
else:
    __getattr__, __dir__ = derive(__name__, functions.function_of, "_contrib_", shown="nd.contrib")
