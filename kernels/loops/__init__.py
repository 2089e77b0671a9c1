"""How an operator's call is an expression: the one place that says so, for the table of kernels and
for fusion.

A record made by `pointwise` is one. Others are for some of their attributes, as Activation's
act_type: their trait LoopForm chooses, by one of the functions below, and their loops are in LOOPS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..activations import ACTIVATIONS
from ..pointwise import VARIABLES, Expression
from ..record import FLOATS, Operator, Type
from ..shapes import condition_shape, prelu_shape
from ..traits import Constant, LoopForm

LEAKY = ACTIVATIONS["leaky"]
PLAIN = {n: ACTIVATIONS[n] for n in ("relu", "sigmoid", "softrelu", "softsign", "tanh")}
LOOPS = {
    **{f"Activation:{name}": Expression(a.text, 1, (), "float") for name, a in PLAIN.items()},
    "LeakyReLU:leaky": Expression(LEAKY.renamed(LEAKY.text, low="slope"), 1, ("slope",), "float"),
    "LeakyReLU:prelu": Expression("a > 0 ? a : b * a", 2, (), "float"),
    "LeakyReLU:elu": Expression("x > 0 ? x : slope * expm1(x)", 1, ("slope",), "float"),
    "LeakyReLU:selu": Expression(
        "1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x))", 1, (), "float"
    ),
    "LeakyReLU:gelu": Expression(ACTIVATIONS["gelu"].text, 1, (), "float"),
    "where": Expression("a != 0 ? b : c", 3, (), "all"),
    "where:condition": Expression("a != 0 ? b : c", 3, (), "all", bools=(0,)),
    "add_n:2": Expression("a + b", 2, (), "all"),
    "add_n:3": Expression("a + b + c", 3, (), "all"),
    "add_n:4": Expression("a + b + c + d", 4, (), "all"),
    "scale": Expression("x * factor", 1, ("factor",), "float"),
}
IN_BOOLS = ":bool"  # ends the name of a loop whose truth values are bools
NATIVE_INTEGERS = ("uint8", "int8", "int32", "int64", "bool")


class Form(NamedTuple):
    """A call as an expression of its inputs, element by element."""

    name: str  # of the generated loop, where there is one
    expression: Expression
    constants: tuple[float, ...] | None = None  # its scalars; None: the dynamic parameters
    shapes: tuple[tuple[int, ...], ...] | None = None  # that broadcast; None: the inputs' own


def form(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict, mixed: bool = False
) -> Form | None:
    """The form of a call, or None where it has none. The expression is computed in the output's
    dtype, which all inputs have; mixed: also where they do not (casts, conditions of any dtype)."""
    own = op.trait(LoopForm)
    if own is not None:
        found = own.find(op, ins, outs[0], attrs)
    else:
        found = Form(op.name, op.pointwise) if op.pointwise else None
    if found is None:
        return None
    dtype = outs[0].dtype
    if dtype not in (*FLOATS, *NATIVE_INTEGERS) or not found.expression.serves(dtype):
        return None
    free = own.mixed if own is not None and mixed else ()
    if any(t.dtype != dtype and i not in free for i, t in enumerate(ins)):
        return None
    if any(t.dtype not in (*FLOATS, *NATIVE_INTEGERS) for t in ins):
        return None
    return found


def _says(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict, text: str) -> bool:
    found = form(op, ins, outs, attrs) if len(outs) == 1 else None
    return found is not None and found.expression.text == text


def adds(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> bool:
    """Is a call the sum of two arrays of one type?"""
    return len(ins) == 2 and ins[0] == ins[1] and _says(op, ins, outs, attrs, "a + b")


def multiplies(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> bool:
    """Is a call the product of two arrays of one type, element by element?"""
    return len(ins) == 2 and ins[0] == ins[1] and _says(op, ins, outs, attrs, "a * b")


def is_positive(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> bool:
    """Is a call 1 where its input is greater than 0, else 0?"""
    return len(ins) == 1 and _says(op, ins, outs, attrs, "x > scalar") and attrs["scalar"] == 0


def rectifies(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> bool:
    """Is a call relu?"""
    return len(ins) == 1 and _says(op, ins, outs, attrs, ACTIVATIONS["relu"].text)


def activation_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form:
    name = f"Activation:{attrs['act_type']}"
    return Form(name, LOOPS[name])


def leaky_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form | None:
    name = f"LeakyReLU:{attrs['act_type']}"
    e = LOOPS.get(name)
    if e is None:
        return None
    shapes = None
    if e.n_inputs == 2:
        x, gamma = (t.shape for t in ins)
        shapes = (x, prelu_shape(x, gamma))
    return Form(name, e, (attrs["slope"],) if e.scalars else None, shapes)


def where_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form:
    condition, x, y = (t.shape for t in ins)
    name = "where" if ins[0].dtype == out.dtype else "where:condition"
    return Form(name, LOOPS[name], None, (condition_shape(condition, x), x, y))


def add_n_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form | None:
    n = len(ins)
    if n > len(VARIABLES):
        return None
    name = f"add_n:{n}"
    text = " + ".join(VARIABLES[:n]) if n > 1 else "x"
    return Form(name, LOOPS.get(name) or Expression(text, n, (), "all"))


def scale_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form:
    n = ins[0].shape[-1]
    return Form("scale", LOOPS["scale"], (n**-0.5 if n else 1.0,))


def same_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form:
    return Form("_copy", Expression("x", 1, (), "all"))


def constant_form(op: Operator, ins: Sequence[Type], out: Type, attrs: dict[str, Any]) -> Form:
    constant = op.trait(Constant)
    assert constant is not None
    number = constant.value
    text, scalars = ("value", ("value",)) if number is None else (f"{number:g}", ())
    return Form("", Expression(text, 0, scalars, "all"))
