"""Inference of one operator from what is known of its inputs and outputs, in any direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine.error import DTypeError, DynamicShape, ShapeError
from .extent import MAX_NDIM, AnyDtype, Undecided, Way, agree, common, explore, is_unknown
from .record import Operator, Type, same_fill


class Known(NamedTuple):
    """What is known of one array. A size None is unknown; a shape None has an unknown number of
    dimensions."""

    shape: tuple[int | None, ...] | None
    dtype: str | None

    @property
    def is_whole(self) -> bool:
        return self.shape is not None and None not in self.shape


NOTHING = Known(None, None)


def merge_shapes(a, b):
    """One shape from two that may be partly unknown. Raises ValueError where they contradict each
    other."""
    if a is None or b is None or a == b:
        return b if a is None else a
    if len(a) != len(b) or any(x != y and None not in (x, y) for x, y in zip(a, b)):
        raise ValueError(f"{as_zeros(a)} and {as_zeros(b)}")
    return tuple(y if x is None else x for x, y in zip(a, b))


def as_zeros(shape):
    """A shape as MXNet writes it: unknown sizes are 0."""
    return shape if shape is None else tuple(n or 0 for n in shape)


def from_zeros(shape):
    """A shape as MXNet writes it, where 0 is an unknown size."""
    return shape if shape is None else tuple(n or None for n in shape)


def complete(
    op: Operator, attrs: dict[str, Any], ins: Sequence[Known], outs: Sequence[Known]
) -> tuple[list[Known], list[Known]]:
    """What the record's `fill` and `infer` tell beyond what is known, found once for equal calls.
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
    made = explore(lambda way: _infer(op, attrs, ins, outs, way, "float32"))
    if made is not None and not made[0] and isinstance(made[1], DTypeError):
        made = explore(lambda way: _infer(op, attrs, ins, outs, way, None))
    if made is None:
        return list(ins), list(outs)
    ways, error = made
    if not ways:
        if op.eager is not None:
            raise DynamicShape(op.name, "its shape is known only when it runs")
        raise error or ShapeError(op.name, "what is known of its shapes does not fit together")
    arrays = [*zip(*ways)]
    shapes = [common([t.shape for t in types]) for types in arrays]
    dtypes = [types[0].dtype if len({t.dtype for t in types}) == 1 else None for types in arrays]
    known = [Known(s, d) for s, d in zip(shapes, dtypes)]
    return known[: len(ins)], known[len(ins) :]


def _infer(op, attrs, ins, outs, way: Way, dtype: str | None) -> list[Known]:
    """One way through the record's rules. dtype: of inputs that have none; None: of all, and no
    rule looks at it. Raises what they raise, Contradiction, Undecided."""

    def start(known: Known) -> Type | None:
        if known.shape is None:
            return None
        shape = tuple(way.size() if n is None else n for n in known.shape)
        return Type(shape, AnyDtype(way) if dtype is None else known.dtype or dtype)

    types, wanted = [start(k) for k in ins], [start(k) for k in outs]
    given = {k: v for k, v in attrs.items() if k != "train"}

    def fill():
        if op.fill is same_fill:
            _alike(op, types, wanted)
        elif op.fill is not None and None in types and any(t is not None for t in types):
            filled = op.fill(list(types), **given)
            types[:] = [f if t is None else t for t, f in zip(types, filled)]

    fill()
    free = [i for i, t in enumerate(types) if t is None]
    if free and (len(free) > 2 or all(t is None for t in wanted)):
        raise Undecided
    known = [len(t.shape) for t in (*types, *wanted) if t is not None]
    for i in free:
        if types[i] is None:
            n = 1 + way.choose(max(MAX_NDIM, *known))
            types[i] = Type(
                tuple(way.size() for _ in range(n)),
                AnyDtype(way) if dtype is None else ins[i].dtype or dtype,
            )
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

    def end(t: Type, known: Known | None) -> Known:
        values = [way.value(n) for n in t.shape]
        shape = tuple([None if is_unknown(n) else int(n) for n in values])
        if any(n is not None and n < 0 for n in shape):
            raise ShapeError(op.name, f"the size of every axis must be at least 0, got {values}")
        of = None if dtype is None else known.dtype if known and known.dtype else t.dtype
        return Known(shape, of)

    return [*map(end, types, ins), *(end(t, None) for t in made)]


def _alike(op: Operator, types: list, wanted: Sequence[Type | None]) -> None:
    """Elementwise arrays: unknown sizes of one are those of another; unknown arrays, in place, are
    like a known one. Known sizes that differ may broadcast."""
    known = [t for t in (*types, *wanted) if t is not None]
    for t in known[1:]:
        if len(t.shape) == len(known[0].shape):
            for a, b in zip(known[0].shape, t.shape):
                if (is_unknown(a) or is_unknown(b)) and not agree(a, b):
                    raise ShapeError(
                        op.name, f"shapes must be equal, got {known[0].shape} and {t.shape}"
                    )
    for i, t in enumerate(types):
        if t is None and known:
            types[i] = known[0]
