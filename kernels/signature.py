"""Functions with real signatures from operator records: `nd.f` and `sym.f` are made here, from one
template."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence

from .record import REQUIRED, Operator

TEMPLATE = """def {name}({signature}):
    return _call({inputs}, {static}, {dynamic}, out, name, kwargs)
"""


def make_function(
    op: Operator, name: str, call: Callable, module: str, order: Sequence[str] = ()
) -> Callable:
    """A function `name` with the record's inputs and parameters as its signature.

    call: (inputs, static values, dynamic values, out, name, kwargs) -> result; values stand in the
        record's order.
    order: the arguments that come first; default that of the record, then `out`.
    """
    used = {"out", "name", "kwargs"}
    inputs = [] if op.variadic else [_safe(i, used) for i in op.inputs]
    params = [(p, _safe(p.name, used)) for p in op.params if p.name != op.variadic_key]
    signature = (
        [f"*{_safe(op.inputs[0][1:], used)}"] if op.variadic else [f"{i}=None" for i in inputs]
    )
    defaults = {f"_default_{a}": p.default for p, a in params}
    arguments = [
        [f"{a}=_default_{a}" for p, a in params if p.keyword is late] for late in (False, True)
    ]
    signature += [*arguments[0], "out=None", "name=None"]
    signature += [*(["*"] if arguments[1] and not op.variadic else []), *arguments[1], "**kwargs"]
    if order:
        names = [text.partition("=")[0] for text in signature]
        first = [*order, *[n for n in names if n not in order]]
        signature = [signature[names.index(n)] for n in first]
    static = [a for p, a in params if not p.dynamic]
    dynamic = [a for p, a in params if p.dynamic]
    source = TEMPLATE.format(
        name=name,
        signature=", ".join(signature),
        inputs=_tuple(inputs) if not op.variadic else op.inputs[0][1:],
        static=_tuple(static),
        dynamic=_tuple(dynamic),
    )
    scope = dict(defaults, _call=call, __name__=__name__)  # the package, for locations of calls
    exec(compile(source, f"<plait operator {name}>", "exec"), scope)
    function = scope[name]
    function.__doc__ = document(op)
    function.__module__ = module
    function.__qualname__ = name
    return function


def static_names(op: Operator) -> tuple[str, ...]:
    return tuple(p.name for p in op.params if not p.dynamic and p.name != op.variadic_key)


def dynamic_names(op: Operator) -> tuple[str, ...]:
    return tuple(p.name for p in op.params if p.dynamic)


def _safe(name: str, used: set[str]) -> str:
    name = name + "_" if keyword.iskeyword(name) else name
    while name in used:
        name += "_"
    used.add(name)
    return name


def _tuple(names) -> str:
    return "(" + "".join(n + ", " for n in names) + ")"


def document(op: Operator) -> str:
    """The docstring of an operator: what it computes, its inputs and parameters."""
    lines = [op.doc or op.name, "", "Args:"]
    lines += (
        [
            f"    {i}: array" + (" (written in place)" if i in (op.mutates or ()) else "")
            for i in op.inputs
        ]
        if not callable(op.mutates)
        else [f"    {i}: array" for i in op.inputs]
    )
    for p in op.params:
        kind = " | ".join(map(repr, p.kind)) if isinstance(p.kind, tuple) else p.kind
        default = "required" if p.default is REQUIRED else f"default {p.default!r}"
        lines.append(f"    {p.name}: {kind}, {default}" + (f". {p.doc}" if p.doc else ""))
    return "\n".join(lines)
