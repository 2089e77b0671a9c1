"""Fronts in graphs: each node of one is replaced by what it stands for, before anything else reads
a typed graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..engine.recent import Recent
from ..kernels.extent import Way, is_unknown
from ..kernels.params import parse
from ..kernels.record import Operator, Param, Type, lookup
from ..kernels.traits import Front
from ..kernels.ways import explore
from .graph import Builder, Node, Value, rewrite, topological, variable
from .operators import add_operators


def outputs_of(
    op: Operator, inputs: Sequence[Value], attrs: dict[str, Any], like: Node | None = None
) -> list[Value]:
    """What a front stands for on typed values. attrs: complete. like: the node that it replaces,
    whose line and attributes of the user the new ones get."""
    found = op.trait(Front)
    assert found is not None
    attrs = dict(attrs)
    train = bool(attrs.get("train"))
    if not op.train_aware:
        attrs.pop("train", None)
    made = found.rule(Builder(train, like), *inputs, **attrs)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def types(op: Operator, ins: Sequence[Type], attrs: dict[str, Any]) -> list[Type]:
    """The types of a front's outputs. Sizes and dtypes may be unknown, as inference has them."""
    open_dtypes = [t.dtype for t in ins if type(t.dtype) is not str]
    if open_dtypes or any([is_unknown(n) for t in ins for n in t.shape]):
        plain = [_Typed(Type(t.shape, str(t.dtype))) for t in ins]
        made = _Types().apply(op, plain, attrs)
        made = [x.type for x in (made if isinstance(made, list) else [made])]
        # of a float32 that was assumed nothing follows but another
        same = str(open_dtypes[0]) if open_dtypes else ""
        return [t._replace(dtype=open_dtypes[0]) if t.dtype == same else t for t in made]
    xs = [variable(f"x{i}", t) for i, t in enumerate(ins)]
    return [v.type for v in outputs_of(op, xs, attrs)]


class _Typed:
    """What stands for a value where only its type is looked for."""

    __slots__ = ("type",)

    def __init__(self, of: Type):
        self.type = of

    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.type.dtype)


class _Types:
    """`F` for rules on _Typed, whose sizes may be unknown: asks `infer`, and makes no nodes. asked:
    the operators and their attributes."""

    def __init__(self) -> None:
        self.asked: list[tuple[Operator, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *inputs, **attrs: self.apply(lookup(name), inputs, attrs)

    def apply(self, op: Operator, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        inputs = [x for x in inputs if x is not None]
        attrs = op.counted(attrs, len(inputs))
        full = {p.name: _attribute(op, p, attrs) for p in op.params}
        found = op.trait(Front)
        if found is not None:
            made = found.rule(self, *inputs, **full)
            return list(made) if isinstance(made, (list, tuple)) else made
        self.asked.append((op, full))
        n_visible = op.visible(full)
        if op.train_aware:
            full = {**full, "train": False}
        made = [_Typed(t) for t in op.infer([x.type for x in inputs], **full)]
        return made[0] if n_visible == 1 else made[:n_visible]


_asked = Recent(4096)


def operators_of(op: Operator, attrs: dict[str, Any]) -> list[tuple[Operator, dict[str, Any]]]:
    """The operators that a front may stand for, with their attributes, for floats of whatever
    shapes. attrs: complete."""
    key = (op, *[attrs[p.name] for p in op.params if not p.dynamic])
    found = _asked[key]
    if found is None:
        found = _asked[key] = _operators_of(op, attrs)
    return found


def _operators_of(op: Operator, attrs: dict[str, Any]) -> list[tuple[Operator, dict[str, Any]]]:
    given = {p.name: attrs[p.name] for p in op.params}
    n_inputs = len(op.names_in(given, attrs[op.variadic_key] if op.variadic_key else 1))
    for n_axes in (2, 3, 1, 4, 0):

        def rule(way: Way, n_axes: int = n_axes) -> list:
            F = _Types()
            xs = [_Typed(Type(tuple([way.size() for _ in range(n_axes)]))) for _ in range(n_inputs)]
            F.apply(op, xs, given)
            return F.asked

        made = explore(rule)
        if made is not None and made[0]:
            return [asked for way in made[0] for asked in way]
    return []


def _attribute(op: Operator, p: Param, attrs: dict[str, Any]) -> Any:
    """A parameter's value; sizes in it may be unknown."""
    value = attrs.get(p.name, p.default)
    sizes = value if isinstance(value, (tuple, list)) else [value]
    if p.name not in attrs or any([is_unknown(n) for n in sizes]):
        return value
    return parse(p, value, op.name)


def _add_operators() -> None:
    F = _Types()

    def binary(both, right):
        def method(self, other):
            if isinstance(other, _Typed):
                return getattr(F, both)(self, other)
            return getattr(F, right)(self, scalar=other)

        return method

    def scalar(left):
        return lambda self, other: getattr(F, left)(self, scalar=other)

    add_operators(_Typed, binary, scalar, lambda self: F.negative(self))


_add_operators()


def has_fronts(nodes: Sequence[Node]) -> bool:
    return any([n.op is not None and n.op.has(Front) for n in nodes])


def expanded(outputs: Sequence[Value]) -> list[Value]:
    """A typed graph without fronts."""
    order = topological(outputs)
    if not has_fronts(order):
        return list(outputs)

    def replace(node: Node, inputs: Sequence[Value]) -> list[Value] | None:
        if node.op is None or not node.op.has(Front):
            return None
        return outputs_of(node.op, inputs, node.attrs, node)

    return rewrite(outputs, replace, order=order)
