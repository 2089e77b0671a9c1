"""Inference of one operator from what is known of its inputs and outputs, in any direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine.error import DTypeError, DynamicShape, ShapeError
from .extent import Undecided, Way, agree, is_unknown
from .record import Operator, Type, elementwise
from .traits import Eager
from .ways import MAX_NDIM, AnyDtype, common, explore

Sizes = tuple[int | None, ...] | None  # of a shape of which parts may be unknown


class Known(NamedTuple):
    """What is known of one array. A size None is unknown; a shape None has an unknown number of
    dimensions."""

    shape: Sizes
    dtype: str | None

    @property
    def is_whole(self) -> bool:
        return self.shape is not None and None not in self.shape


NOTHING = Known(None, None)


def merge_shapes(a: Sizes, b: Sizes) -> Any:
    """One shape from two that may be partly unknown. Raises ValueError where they contradict each
    other."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if len(a) != len(b) or any(x != y and None not in (x, y) for x, y in zip(a, b)):
        raise ValueError(f"{as_zeros(a)} and {as_zeros(b)}")
    return tuple(y if x is None else x for x, y in zip(a, b))


def as_zeros(shape: Any) -> Any:
    """A shape as MXNet writes it: unknown sizes are 0."""
    return shape if shape is None else tuple(n or 0 for n in shape)


def from_zeros(shape: Sequence[int] | None) -> Any:
    """A shape as MXNet writes it, where 0 is an unknown size."""
    return shape if shape is None else tuple(n or None for n in shape)


def complete(
    op: Operator, attrs: dict[str, Any], ins: Sequence[Known], outs: Sequence[Known]
) -> tuple[list[Known], list[Known]]:
    """What the record's `fill` and `infer` add to what is known, found once for equal calls.
    attrs: in the record's order. Raises OperatorError where what is known cannot be,
    DynamicShape."""
    key = (*attrs.values(), "|", *ins, "|", *outs)
    try:
        found = op.completed[key]
    except TypeError:  # an attribute that is a list
        return _complete(op, attrs, ins, outs)
    if found is None:
        found = op.completed[key] = _complete(op, attrs, ins, outs)
    return found


def _complete(op, attrs, ins, outs):
    made = explore(lambda way: _infer(op, attrs, ins, outs, way, False))
    if made is not None and not made[0] and any(isinstance(e, DTypeError) for e in made[1]):
        made = explore(lambda way: _infer(op, attrs, ins, outs, way, True))
    if made is None:
        return list(ins), list(outs)
    ways, errors = made
    if not ways:
        if op.has(Eager):
            raise DynamicShape(op.name, "its shape is known only when it runs")
        raise next(iter(errors), None) or ShapeError(
            op.name, "what is known of its shapes does not fit together"
        )
    arrays = [*zip(*ways)]
    shapes = [common([t.shape for t in types]) for types in arrays]
    dtypes = [types[0].dtype if len({t.dtype for t in types}) == 1 else None for types in arrays]
    known = [
        Known(merge_shapes(k.shape, s), k.dtype or d)
        for k, s, d in zip([*ins, *outs], shapes, dtypes)
    ]
    return known[: len(ins)], known[len(ins) :]


class _Assumed(str):
    """The dtype of an input that has none."""


FLOAT32 = _Assumed("float32")


def _infer(op, attrs, ins, outs, way: Way, any_dtype: bool) -> list[Known]:
    """One way through the record's rules. any_dtype: dtypes do not matter. Raises what the rules
    raise, Contradiction, Undecided."""

    def start(known: Known, shape) -> Type | None:
        if shape is None:
            return None
        sizes = tuple([way.size() if n is None else n for n in shape])
        return Type(sizes, AnyDtype(way) if any_dtype else known.dtype or FLOAT32)

    types, wanted = [start(k, k.shape) for k in ins], [start(k, k.shape) for k in outs]
    given = {k: v for k, v in attrs.items() if k != "train"}

    def fill():
        if op.fill is elementwise:
            filled = _alike(op, types, wanted)
        elif op.fill is not None and None in types and any(t is not None for t in types):
            filled = op.fill(list(types), **given)
        else:
            return
        for i, t in enumerate(filled):
            if types[i] is None and t is not None:
                known = None if any_dtype else ins[i].dtype
                types[i] = t if known is None else t._replace(dtype=known)

    fill()
    free = [i for i, t in enumerate(types) if t is None]
    if len(free) > (1 if all(t is None for t in wanted) else 2):
        raise Undecided
    ndims = [len(t.shape) for t in (*types, *wanted) if t is not None]
    for i in free:
        if types[i] is None:
            n = 1 + way.choose(max([MAX_NDIM, *ndims]))
            types[i] = start(ins[i], (None,) * n)
            fill()
    made = list(op.infer(list(types), **attrs))
    for i, (t, w) in enumerate(zip(made, wanted)):
        if w is not None and not (
            len(t.shape) == len(w.shape) and all(agree(a, b) for a, b in zip(t.shape, w.shape))
        ):
            raise ShapeError(
                op.name,
                f"output {i} has a shape that contradicts the inferred one: {w.shape} and"
                f" {tuple(t.shape)}",
            )

    def end(t: Type) -> Known:
        values = [way.value(n) for n in t.shape]
        shape = tuple([None if is_unknown(n) else int(n) for n in values])
        if any(n is not None and n < 0 for n in shape):
            raise ShapeError(op.name, f"the size of every axis must be at least 0, got {values}")
        return Known(shape, None if isinstance(t.dtype, (AnyDtype, _Assumed)) else t.dtype)

    return [end(t) for t in (*types, *made) if t is not None]


def _alike(op: Operator, types: list, wanted: Sequence[Type | None]) -> list:
    """The inputs of an elementwise operator: unknown sizes of one are those of another, unknown
    arrays are like a known one. Known sizes that differ may broadcast."""
    known = [t for t in (*types, *wanted) if t is not None]
    for t in known[1:]:
        if len(t.shape) == len(known[0].shape):
            for a, b in zip(known[0].shape, t.shape):
                if (is_unknown(a) or is_unknown(b)) and not agree(a, b):
                    raise ShapeError(
                        op.name, f"shapes must be equal, got {known[0].shape} and {t.shape}"
                    )
    return [known[0] if t is None and known else t for t in types]
