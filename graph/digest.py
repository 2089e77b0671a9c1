"""A name for a graph that is the same in every process: a hash of its structure, without names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .graph import Value, topological

PLAIN = (type(None), bool, int, float, str)


def digest(outputs: Sequence[Value], inputs: Sequence[Value], *more: Any) -> str:
    """Of a typed graph and its variables in their order. more: plain data that counts too."""
    numbers = {v.node: f"input {i}" for i, v in enumerate(inputs)}
    lines = []
    for node in topological(outputs):
        if node.op is None:
            lines.append(f"{numbers.get(node, 'constant')} {node.types}")
        else:
            args = [(numbers[x.node], x.index) for x in node.inputs]
            lines.append(f"{node.op.name} {text(node.attrs)} {args} {node.types}")
        numbers.setdefault(node, str(len(lines)))
    ends = [(numbers[v.node], v.index) for v in outputs]
    return hashed(*lines, ends, *more)


class Expression(NamedTuple):
    """A value as a function of variables: the variables and constants below it, in order, and a
    digest that counts the names of the former and what the latter hold. exact: no other value has
    this digest; False where a node has attributes of which a digest counts the class only."""

    key: str
    used: list[Value]
    fixed: list[Value]
    exact: bool


def expression(
    value: Value, variables: Mapping[Value, Any], constants: Mapping[Value, Any]
) -> Expression:
    """variables: their names, as plain data; constants: their arrays."""
    order = topological([value])
    inside = {n for n in order if n.op is None}
    exact = all(is_plain(n.attrs) for n in order)
    used = [v for v in variables if v.node in inside]
    fixed = [v for v in constants if v.node in inside]
    names = [variables[v] for v in used]
    contents = [hashed(constants[v].asnumpy().tobytes().hex()) for v in fixed]
    return Expression(digest([value], [*used, *fixed], names, contents), used, fixed, exact)


def hashed(*parts: Any) -> str:
    """A hash of texts and plain data."""
    import hashlib  # here: it loads OpenSSL, for checkpoints only

    return hashlib.sha256("\n".join(text(p) for p in parts).encode()).hexdigest()[:32]


def is_plain(value: Any) -> bool:
    """Does `text` give all of it?"""
    if isinstance(value, dict):
        return all(map(is_plain, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_plain, value))
    return isinstance(value, PLAIN)


def text(value: Any) -> str:
    """Plain data as text; of other objects the name of the class."""
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k}: {text(v)}' for k, v in sorted(value.items()))}}}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(text, value))})"
    return type(value).__name__
