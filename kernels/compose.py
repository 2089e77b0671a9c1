"""Reverse differentiation of a composition of operators: how a fused backward operator gets its own
gradient.

`vjp(F, fn, xs, dys)` runs fn on a recording F and walks back through the records' gradients.
Because it only uses the F it is given (nd, a graph builder, or another recorder), it nests: that is
second and third order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .record import lookup
from .scalar import as_float


class Traced:
    """A value on a tape, with the operators that gradients are written in."""

    __slots__ = ("dtype", "shape", "tape", "value")

    def __init__(self, tape: Tape, value: Any):
        self.tape, self.value = tape, value
        self.shape, self.dtype = tuple(value.shape), value.dtype

    def _with(self, other, both, scalar):
        if isinstance(other, (int, float)):
            return getattr(self.tape, scalar)(self, scalar=as_float(other))
        return getattr(self.tape, both)(self, other)

    def __add__(self, other):
        return self._with(other, "broadcast_add", "_plus_scalar")

    def __sub__(self, other):
        return self._with(other, "broadcast_sub", "_minus_scalar")

    def __mul__(self, other):
        return self._with(other, "broadcast_mul", "_mul_scalar")

    def __truediv__(self, other):
        return self._with(other, "broadcast_div", "_div_scalar")

    def __pow__(self, other):
        return self._with(other, "broadcast_power", "_power_scalar")

    def __gt__(self, other):
        return self._with(other, "broadcast_greater", "_greater_scalar")

    def __ge__(self, other):
        return self._with(other, "broadcast_greater_equal", "_greater_equal_scalar")

    def __lt__(self, other):
        return self._with(other, "broadcast_lesser", "_lesser_scalar")

    def __le__(self, other):
        return self._with(other, "broadcast_lesser_equal", "_lesser_equal_scalar")

    def __neg__(self):
        return self.tape._mul_scalar(self, scalar=-1.0)

    def __rsub__(self, other):
        return self.tape._rminus_scalar(self, scalar=as_float(other))

    def __rtruediv__(self, other):
        return self.tape._rdiv_scalar(self, scalar=as_float(other))

    def __rpow__(self, other):
        return self.tape._rpower_scalar(self, scalar=as_float(other))

    __radd__ = __add__
    __rmul__ = __mul__


class Tape:
    """An F that records what is done to its Traced values; everything else is a constant."""

    def __init__(self, F: Any):
        self.F = F
        self.nodes: list[Any] = []

    def _own(self, value):
        return isinstance(value, Traced) and value.tape is self

    def __getattr__(self, name):
        run = getattr(self.F, name)

        def call(*xs, **attrs):
            result = run(*[x.value if self._own(x) else x for x in xs], **attrs)
            many = isinstance(result, (list, tuple))
            ys = [Traced(self, y) for y in (result if many else [result])]
            if any(self._own(x) for x in xs):
                op = lookup(name)
                if op.variadic_key:
                    attrs.setdefault(op.variadic_key, len(xs))
                self.nodes.append((op, op.parse(attrs), xs, ys))
            return ys if many else ys[0]

        return call


def vjp(F: Any, fn: Callable[..., Any], xs: Sequence[Any], dys: Sequence[Any]) -> list[Any]:
    """Gradients of sum(dy * y) over the outputs of fn(F, *xs) with respect to every x; None where
    there is none.

    fn must use operators without hidden outputs, and every array it differentiates must come in
    through xs. A None in xs is passed on; a None in dys counts as zero.
    """
    tape = Tape(F)
    leaves = [x if x is None else Traced(tape, x) for x in xs]
    outs = fn(tape, *leaves)
    outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
    grads: dict[int, object] = {}

    def give(y, g):
        if g is not None and tape._own(y):
            grads[id(y)] = F.elemwise_add(grads[id(y)], g) if id(y) in grads else g

    for y, dy in zip(outs, dys):
        give(y, dy)
    for op, attrs, ins, ys in reversed(tape.nodes):
        if op.grad is None or not any(id(y) in grads for y in ys):
            continue
        dy = [
            grads[id(y)] if id(y) in grads else F._zeros(shape=y.shape, dtype=y.dtype) for y in ys
        ]
        given = [x.value if tape._own(x) else x for x in ins]
        gs = op.differentiate(F, dy, given, [y.value for y in ys], attrs)
        for x, g in zip(ins, gs):
            give(x, g)
    return [None if x is None else grads.get(id(x)) for x in leaves]
