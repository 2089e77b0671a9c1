"""Python's operators as plait operators: one table for NDArray, Symbol and graph values."""

from __future__ import annotations

from typing import Any

from ..engine.error import InvalidType, ShapeError

# method: (operator for two arrays, operator for array and scalar, operator for scalar and array)
BINARY = {
    "add": ("broadcast_add", "_plus_scalar", "_plus_scalar"),
    "sub": ("broadcast_sub", "_minus_scalar", "_rminus_scalar"),
    "mul": ("broadcast_mul", "_mul_scalar", "_mul_scalar"),
    "truediv": ("broadcast_div", "_div_scalar", "_rdiv_scalar"),
    "mod": ("broadcast_mod", "_mod_scalar", "_rmod_scalar"),
    "pow": ("broadcast_power", "_power_scalar", "_rpower_scalar"),
}
COMPARE = {
    "eq": ("broadcast_equal", "_equal_scalar"),
    "ne": ("broadcast_not_equal", "_not_equal_scalar"),
    "gt": ("broadcast_greater", "_greater_scalar"),
    "ge": ("broadcast_greater_equal", "_greater_equal_scalar"),
    "lt": ("broadcast_lesser", "_lesser_scalar"),
    "le": ("broadcast_lesser_equal", "_lesser_equal_scalar"),
}


def add_operators(cls: Any, binary: Any, scalar: Any, negative: Any, compare: bool = True) -> None:
    """Gives a class its operator methods.

    binary(name): the method f(self, other) for two arrays and, through scalar names, for numbers.
    """
    for method, (both, right, left) in BINARY.items():
        setattr(cls, f"__{method}__", binary(both, right))
        setattr(cls, f"__r{method}__", scalar(left))
    cls.__div__, cls.__rdiv__ = cls.__truediv__, cls.__rtruediv__
    if compare:
        for method, (both, right) in COMPARE.items():
            setattr(cls, f"__{method}__", binary(both, right))
    cls.__neg__ = negative


# ---- what is composed of other operators ---------------------------------------------------------

# Python's operator: what to write instead. Comparisons give numbers 0 and 1, so that bits of
# them (~1 == -2) are seldom what is meant
REFUSED = {
    "and": ("&", "nd.logical_and(a, b)"),
    "or": ("|", "nd.logical_or(a, b)"),
    "xor": ("^", "nd.logical_xor(a, b)"),
    "lshift": ("<<", "a * 2 ** b"),
    "rshift": (">>", "a // 2 ** b"),
}


def floor_divide(a: Any, b: Any) -> Any:
    """a // b for arrays and numbers: the largest whole number that is not above a / b."""
    return ((a - a % b) / b).round()


def matmul(F: Any, a: Any, b: Any) -> Any:
    """a @ b as in NumPy: products of matrices, batches of them broadcast. F: the operators."""
    if not a.shape or not b.shape:
        raise ShapeError("matmul", f"operands need an axis, got shapes {a.shape} and {b.shape}")
    if len(b.shape) < 3:
        return F.dot(a, b)
    vector = len(a.shape) == 1
    if vector:
        a = a.reshape((1, a.shape[0]))
    n = max(len(a.shape), len(b.shape)) - 2
    starts = [(1,) * (n + 2 - len(x.shape)) + x.shape[:-2] for x in (a, b)]
    batch = tuple(q if p == 1 else p for p, q in zip(*starts))

    a, b = (
        F.broadcast_to(x.reshape(start + x.shape[-2:]), shape=batch + x.shape[-2:])
        for x, start in zip((a, b), starts)
    )
    out = F.batch_dot(a, b)
    return out.reshape(batch + b.shape[-1:]) if vector else out


def add_composites(cls: Any, functions: Any, refused: Any) -> None:
    """Gives NDArray or Symbol the operators @, //, divmod and unary +, and errors for the others.

    functions(): the module of its operators. refused(array, other): NotImplemented, or an error,
    for what @ cannot take.
    """

    def product(a, b):
        if not isinstance(b, cls):
            return refused(a, b)
        return matmul(functions(), a, b)

    def refusing(sign, instead):
        def method(self, *other):
            raise InvalidType(f"{cls.__name__}: has no operator {sign}\n  fix: {instead}")

        return method

    methods = {
        "matmul": product,
        "rmatmul": refused,
        "floordiv": floor_divide,
        "rfloordiv": lambda self, other: floor_divide(other, self),
        "divmod": lambda self, other: (self // other, self % other),
        "rdivmod": lambda self, other: (other // self, other % self),
        "pos": lambda self: self.copy(),
        "invert": refusing("~", "nd.logical_not(a)"),
    }
    for name, (sign, instead) in REFUSED.items():
        methods[name] = methods[f"r{name}"] = refusing(sign, instead)
    for name, method in methods.items():
        setattr(cls, f"__{name}__", method)
