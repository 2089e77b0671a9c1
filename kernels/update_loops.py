"""Loops of optimizer updates, made from their references.

The reference of an update runs here once on symbols instead of arrays; what it does to them is the
loop (statements.py). Arithmetic between numbers alone is done in double before the loop, as Python
does it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .record import Operator, Type
from .statements import MADE, Loop, Name, Statement
from .traits import WeightUpdate


class Rule(NamedTuple):
    """The step of one weight: reference(xp, weight, grad, *states, **numbers) -> new weight, or
    (new weight, *new states)."""

    reference: Callable
    states: int
    numbers: Sequence[str]  # what the loop's scalars are


class _Symbol:
    """What stands for an array (an element of it, in C) or for a number (in double)."""

    def __init__(self, trace: _Trace, text: str, is_array: bool):
        self.trace, self.text, self.is_array = trace, text, is_array

    def __neg__(self):
        return self.trace.made(f"-{self.trace.read(self, not self.is_array)}", self)

    def __bool__(self):
        raise TypeError("an update's reference decides by where, not by if")


def _operator(sign: str) -> tuple[Callable, Callable]:
    def forward(a, b):
        return a.trace.binary(sign, a, b)

    def backward(b, a):
        return b.trace.binary(sign, a, b)

    return forward, backward


for _name, _sign in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("pow", "**")):
    _forward, _backward = _operator(_sign)
    setattr(_Symbol, f"__{_name}__", _forward)
    setattr(_Symbol, f"__r{_name}__", _backward)
for _name, _sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
    setattr(_Symbol, f"__{_name}__", _operator(_sign)[0])


class _Trace:
    """Records statements; in a reference it stands for NumPy."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.statements: list[Statement] = []
        self.hoisted: dict[str, str] = {}  # text in double -> name in the loop

    def literal(self, value: float) -> str:
        return f"{float(value)!r}f" if self.dtype == "float32" else repr(float(value))

    def read(self, x: Any, wide: bool = False) -> str:
        """How x is written: wide: among numbers, in double; else among elements."""
        if not isinstance(x, _Symbol):
            return repr(float(x)) if wide else self.literal(x)
        if wide or x.is_array:
            return x.text
        return self.hoisted.setdefault(x.text, f"n{len(self.hoisted)}")

    def made(self, text: str, *of: Any) -> _Symbol:
        """A new value; of arrays, a statement."""
        if not any(isinstance(x, _Symbol) and x.is_array for x in of):
            return _Symbol(self, f"({text})", False)
        name = f"t{len(self.statements)}"
        reads = tuple(dict.fromkeys(self.read(x) for x in of if isinstance(x, _Symbol)))
        self.statements.append(Statement(name, self.dtype, text, reads, 4 if "(" in text else 1))
        return _Symbol(self, name, True)

    def binary(self, sign: str, a: Any, b: Any) -> _Symbol:
        wide = not any(isinstance(x, _Symbol) and x.is_array for x in (a, b))
        left, right = self.read(a, wide), self.read(b, wide)
        return self.made(
            f"pow({left}, {right})" if sign == "**" else f"{left} {sign} {right}", a, b
        )

    def where(self, condition: Any, yes: Any, no: Any) -> _Symbol:
        wide = not any(isinstance(x, _Symbol) and x.is_array for x in (condition, yes, no))
        text = " ".join(
            (self.read(condition, wide), "?", self.read(yes, wide), ":", self.read(no, wide))
        )
        return self.made(text, condition, yes, no)

    def clip(self, x: Any, low: Any, high: Any) -> _Symbol:
        x = self.where(x > high, high, x)
        return self.where(x < low, low, x)

    def sign(self, x: Any) -> _Symbol:
        return self.where(x > 0, 1, self.where(x < 0, -1, x))

    def abs(self, x: Any) -> _Symbol:
        return self._call("fabs", x)

    def sqrt(self, x: Any) -> _Symbol:
        return self._call("sqrt", x)

    def _call(self, function: str, x) -> _Symbol:
        suffix = "f32" if self.dtype == "float32" else "f64"
        return self.made(f"plk_{function}_{suffix}({self.read(x)})", x)


RULES: dict[str, Rule] = {}  # by the name of the operator that updates one weight


def rule(name: str, reference: Callable, states: int, numbers: Sequence[str]) -> None:
    """Registers the loop `update:name`."""
    RULES[name] = made = Rule(reference, states, numbers)
    MADE[loop_name(name)] = lambda function, dtype: _loop(made, function, dtype)


def loop_name(name: str) -> str:
    return f"update:{name}"


def loop_of(name: str, function: str, dtype: str) -> Loop:
    """The loop of a rule."""
    return _loop(RULES[name], function, dtype)


# parameters with a number for each weight -> the rule's name for it
LISTS = {"lrs": "lr", "learning_rates": "lr", "wds": "wd", "etas": "eta", "step_count": "t"}


class Update(NamedTuple):
    """A call that updates n weights. Each has `size` inputs: weight, gradient, states and, where it
    is wide, the weight in float32; `after`: the inputs behind those of all weights."""

    rule: str
    n: int
    states: int
    wide: bool
    preloaded: bool  # learning rates and weight decays are arrays in `after`
    after: Sequence[Type]
    numbers: dict[str, range]  # name -> which of the dynamic parameters, in order

    @property
    def size(self) -> int:
        return 2 + self.states + self.wide


def update_of(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict, name: str | None = None
) -> Update:
    """What an operator does by its rule, or by the rule of that name."""
    trait = op.trait(WeightUpdate)
    assert trait is not None
    name = name or trait.rule
    n, states, wide = len(outs), RULES[name].states, trait.wide
    after = ins[n * (2 + states + wide) :]
    return Update(name, n, states, wide, trait.preloaded, after, scalars_of(op, attrs))


def scalars_of(op: Operator, attrs: dict) -> dict[str, range]:
    """Which of the dynamic parameters, in order, are those of a name."""
    found, at = {}, 0
    for p in op.params:
        if p.dynamic:
            n = len(attrs[p.name]) if p.name in LISTS else 1
            found[LISTS.get(p.name, p.name)] = range(at, at + n)
            at += n
    return found


def _loop(rule: Rule, function: str, dtype: str) -> Loop:
    """bufs: weight, grad, states, new weight, new states (which may be the states)."""
    trace = _Trace(dtype)
    arrays = [f"v{i}" for i in range(2 + rule.states)]
    made = rule.reference(
        trace,
        *(_Symbol(trace, a, True) for a in arrays),
        **{n: _Symbol(trace, f"scalars[{i}]", False) for i, n in enumerate(rule.numbers)},
    )
    results = [v.text for v in (made if isinstance(made, tuple) else (made,))]
    hoisted = [Statement(n, dtype, text) for text, n in trace.hoisted.items()]
    return Loop(function, [Name(a, dtype) for a in arrays], hoisted, trace.statements, results)
