"""Loops of operators that are no single expression themselves: attributes choose one, as
Activation's act_type does."""

from __future__ import annotations

from .pointwise import Expression

LOOPS = {
    "Activation:relu": Expression("x > 0 ? x : (x != x ? x : 0)", 1, (), "float"),
    "Activation:sigmoid": Expression("sigmoid(x)", 1, (), "float"),
    "Activation:softrelu": Expression("softplus(x)", 1, (), "float"),
    "Activation:softsign": Expression("x / (1 + fabs(x))", 1, (), "float"),
    "Activation:tanh": Expression("tanh(x)", 1, (), "float"),
    "LeakyReLU:leaky": Expression("x > 0 ? x : slope * x", 1, ("slope",), "float"),
    "LeakyReLU:prelu": Expression("a > 0 ? a : b * a", 2, (), "float"),
    "LeakyReLU:elu": Expression("x > 0 ? x : slope * expm1(x)", 1, ("slope",), "float"),
    "LeakyReLU:selu": Expression(
        "1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x))", 1, (), "float"
    ),
    "LeakyReLU:gelu": Expression("x * 0.5 * (1 + erf(x * 0.7071067811865476))", 1, (), "float"),
    "where": Expression("a != 0 ? b : c", 3, (), "all"),
    "add_n:2": Expression("a + b", 2, (), "all"),
    "add_n:3": Expression("a + b + c", 3, (), "all"),
    "add_n:4": Expression("a + b + c + d", 4, (), "all"),
    "scale": Expression("x * factor", 1, ("factor",), "float"),
}
