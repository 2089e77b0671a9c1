"""Python's operators as plait operators: one table for NDArray, Symbol and graph values."""

from __future__ import annotations

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


def add_operators(cls, binary, scalar, negative, compare: bool = True):
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
