"""Binding: executors from a Symbol and arrays, or from shapes alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import Context, current_context
from ..engine.error import DTypeError, InvalidType, InvalidValue, MXNetError, ShapeError
from ..graph.effects import variables_of
from ..graph.graph import Node
from ..graph.placement import grouped
from ..kernels.record import Type
from ..ndarray.creation import zeros
from ..ndarray.ndarray import NDArray
from ..ndarray.sparse.graphs import infer_storage
from .executor import Executor
from .storage import declared, gradient_stypes

REQUESTS = ("null", "write", "add")


def requests_of(grad_req: Any, names: Sequence[str]) -> list[str]:
    """grad_req as one string for each argument: from a string, a list, or a dict (absent: null)."""
    if isinstance(grad_req, str):
        reqs = [grad_req] * len(names)
    elif isinstance(grad_req, dict):
        reqs = [grad_req.get(n, "null") for n in names]
    else:
        reqs = list(grad_req)
    if len(reqs) != len(names) or any(r not in REQUESTS for r in reqs):
        raise InvalidValue(
            f"grad_req must be write, add or null for each of the {len(names)} arguments, got"
            f" {grad_req!r}"
        )
    return reqs


def arrays_in_order(
    given: Any, names: Sequence[str], what: str, partial: bool = False
) -> list[NDArray | None]:
    """Arrays given as a list or dict, in the order of names. Raises ValueError, TypeError."""
    if isinstance(given, dict):
        missing = [n for n in names if n not in given]
        if missing and not partial:
            raise InvalidValue(f"key `{missing[0]}` is missing in `{what}`")
        found = [given.get(n) for n in names]
    else:
        found = list(given or ())
        if len(found) != len(names):
            raise InvalidValue(
                f"Length of {what} does not match the number of arguments: {len(found)} for "
                f"{len(names)} ({', '.join(names)})"
            )
    for n, a in zip(names, found):
        if a is not None and not isinstance(a, NDArray):
            raise InvalidType(
                f"{what}: only accept a list of NDArrays or a dict of str to NDArray, "
                f"got {type(a).__name__} for {n}"
            )
    return found


def bind(
    symbol: Any,
    ctx: Context | None,
    args: Any,
    args_grad: Any = None,
    grad_req: str | Sequence[str] | dict[str, str] = "write",
    aux_states: Any = None,
    group2ctx: dict[str, Context] | None = None,
    recompute: bool | float | None = None,
) -> Executor:
    """An executor on given arrays; see Symbol.bind."""
    ctx = ctx or current_context()
    arguments, auxiliary = variables_of(symbol._outputs)
    names, aux_names = [n.name for n in arguments], [n.name for n in auxiliary]
    arrays = _complete(arrays_in_order(args, names, "args"), "args: every argument")
    grads = (
        None if args_grad is None else arrays_in_order(args_grad, names, "args_grad", partial=True)
    )
    aux = _complete(
        arrays_in_order(aux_states or {}, aux_names, "aux_states"),
        "aux_states: every auxiliary state",
    )
    for n, a, g in zip(names, arrays, grads or ()):
        if g is None:
            continue
        if g.shape != a.shape:
            raise ShapeError(
                "bind", f"the gradient of {n} must have its shape {a.shape}, got {g.shape}"
            )
        if g._spec.dtype != a._spec.dtype:
            raise DTypeError(
                "bind",
                f"the gradient of {n} must have its dtype {a._spec.dtype}, got {g._spec.dtype}",
            )
    requests = requests_of(grad_req, names)
    return Executor(symbol, ctx, arrays, grads, requests, aux, group2ctx, recompute)


def _complete(arrays: list[NDArray | None], which: str) -> list[NDArray]:
    """The arrays, none of them missing. Raises TypeError."""
    found = [a for a in arrays if a is not None]
    if len(found) < len(arrays):
        raise InvalidType(f"{which} must have an NDArray, got None")
    return found


def simple_bind(
    symbol: Any,
    ctx: Context | None,
    grad_req: Any,
    type_dict: Any,
    shapes: Any,
    group2ctx: dict[str, Context] | None = None,
    shared_exec: Any = None,
    stype_dict: Any = None,
    recompute: bool | float | None = None,
) -> Executor:
    """An executor on new arrays of inferred shapes; see Symbol.simple_bind."""
    ctx = ctx or current_context()
    arguments, auxiliary = variables_of(symbol._outputs)
    given = "\n".join(f"{k}: {v}" for k, v in shapes.items())
    try:
        types = symbol._infer_types(shapes, type_dict or {})
        unknown = [n for n in arguments + auxiliary if types[n] is None]
        if unknown:
            raise MXNetError(
                "the shapes of these arguments cannot be inferred: "
                + ", ".join(n.name for n in unknown)
                + "\n  fix: give them as keywords"
            )
    except MXNetError as error:
        raise _bind_error(error, given) from None
    names = [n.name for n in arguments]
    double = next((n for n in names if names.count(n) > 1), None)
    if double:
        raise _bind_error(MXNetError(f"two variables are called {double!r}"), given)
    requests = requests_of(grad_req, names)
    _, placement = grouped(symbol._outputs, ctx, group2ctx)
    stypes = {n: declared(n, stype_dict or {}) for n in arguments + auxiliary}
    stored = infer_storage(symbol._outputs, stypes)
    of_grads = gradient_stypes(symbol._outputs, stored, arguments)

    def shared(of: str, name: str, t, device: Context, stype: str) -> NDArray | None:
        """shared_exec's array of a name, if it has the type and is on the device."""
        found = getattr(shared_exec, of).get(name) if shared_exec is not None else None
        if found is None or found.stype != stype:
            return None
        like = found._spec
        same = (like.shape, like.dtype, like.device) == (t.shape, t.dtype, device)
        return found if same else None

    def new(node: Node, of: str) -> NDArray:
        t: Type = types[node]
        stype = stypes.get(node, "default")
        device = placement.of(node) if placement else ctx
        found = shared(of, node.name, t, device, stype)
        return zeros(t.shape, device, t.dtype, stype=stype) if found is None else found

    def gradient(array: NDArray, name: str, stype: str) -> NDArray:
        """The gradients of shared arguments are shared too: grad_req "add" sums over executors."""
        if shared_exec is not None and shared_exec.arg_dict.get(name) is array:
            found = shared("grad_dict", name, array._spec, array.context, stype)
            if found is not None:
                return found
        return zeros(array.shape, array.context, array._spec.dtype, stype=stype)

    args = [new(n, "arg_dict") for n in arguments]
    grads = [
        None if r == "null" else gradient(a, n, s)
        for a, n, r, s in zip(args, names, requests, of_grads)
    ]
    aux = [new(n, "aux_dict") for n in auxiliary]
    return Executor(symbol, ctx, args, grads, requests, aux, group2ctx, recompute, list(shapes))


def _bind_error(error: MXNetError, given: str) -> MXNetError:
    return MXNetError(f"simple_bind error. Arguments:\n{given}\n{error}")
