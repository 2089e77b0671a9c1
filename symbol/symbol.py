"""Symbols: the operators' functions and methods, Python's operators, variables and groups."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

from ..engine import Context
from ..engine.base import NotImplementedForSymbol
from ..engine.error import InvalidType, InvalidValue
from ..graph import operators
from ..graph.graph import caller_line
from ..kernels.record import REGISTRY, REQUIRED, Operator, lookup
from ..kernels.signature import dynamic_names, make_function, static_names
from ..kernels.spec import DType
from . import attribute
from .base import Symbol, UntypedError, apply, load, load_json  # noqa: F401  (offered from here)
from .compose import (  # noqa: F401  (offered from here)
    active,
    dtype_flag,
    new_variable,
    shapes_differ,
    tracing,
)

# ---- functions and methods of operators ----------------------------------------------------------


def function_of(full: str, name: str) -> Callable[..., Any]:
    """The symbolic function of an operator, under a name of its own."""
    return symbol_function(REGISTRY[full], name)


@functools.cache
def symbol_function(op: Operator, name: str) -> Callable[..., Any]:
    """The symbolic function of an operator, with its record's signature; it tracks which parameters
    were given."""
    static_keys, dynamic_keys = static_names(op), dynamic_names(op)

    def collect(inputs, static, dynamic, out, node_name, kwargs):
        if out is not None:
            raise InvalidType(
                f"{name}: takes {len(op.inputs)} Symbols ({', '.join(op.inputs)}) and has no"
                f" `out`\n  at: {caller_line()}"
            )
        return (
            list(inputs),
            {**dict(zip(static_keys, static)), **dict(zip(dynamic_keys, dynamic))},
            node_name,
            kwargs,
        )

    prototype = make_function(op, name, collect, __name__)
    order = list(inspect.signature(prototype).parameters)
    n_inputs = 0 if op.variadic else len(op.inputs)
    hint = name.lower()
    # keywords that are parameter names: such a call does not need the signature
    plain = {p.name for p in op.params if p.name in order} - set(op.inputs)

    @functools.wraps(prototype)
    def function(*args, **kwargs):
        if 0 < len(args) <= n_inputs and args[-1] is not None and plain.issuperset(kwargs):
            given = {k: v for k, v in kwargs.items() if v is not REQUIRED} if kwargs else {}
            return apply(op, hint, args, given)
        inputs, params, node_name, rest = prototype(*args, **kwargs)
        positional = (
            set()
            if op.variadic
            else {p.rstrip("_") for p in order[n_inputs : len(args)]}
            | set(order[n_inputs : len(args)])
        )
        attr = rest.pop("attr", None)
        asked = positional | set(kwargs) | {k.rstrip("_") for k in kwargs}
        given = {k: v for k, v in params.items() if k in asked and v is not REQUIRED} | rest
        if op.variadic:
            inputs = _flat(inputs)
        for i, n in enumerate(op.inputs):
            if n in given and isinstance(given[n], Symbol):
                inputs[i : i + 1] = [given.pop(n)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        return apply(op, hint, inputs, given, node_name, attr)

    return function


def _flat(inputs) -> list:
    """Flattens lists among variadic inputs."""
    flat: list = []
    for i in inputs:
        flat.extend(i) if isinstance(i, (list, tuple)) else flat.append(i)
    return flat


def _method(name: str):
    def call(self, *args, **kwargs):
        if name in ("expand_dims", "flatten", "squeeze"):
            kwargs.pop("inplace", None)  # of arrays; a Symbol has no memory
        return symbol_function(REGISTRY[name], name)(self, *args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"See sym.{name}."
    return call


# every public operator whose first input is an array is a method
for _name, _op in REGISTRY.items():
    if _name[0].islower() and _op.inputs and not _op.variadic and not hasattr(Symbol, _name):
        setattr(Symbol, _name, _method(_name))


# their operators in a traced block
TRACED = {"copy": "_copy", "detach": "BlockGrad"}


def _only_arrays(name: str):
    def method(self, *args, **kwargs):
        if self._is_array and name in TRACED:
            return apply(lookup(TRACED[name]), name, [self], {})
        if self._is_array and name in ("as_in_context", "copyto") and isinstance(args[0], Context):
            return apply(lookup("_to_device"), name, [self], {"ctx": str(args[0])})
        raise NotImplementedForSymbol(name)

    method.__name__, method.__doc__ = (
        name,
        "Only arrays have values: bind or eval the Symbol first.",
    )
    return method


for _name in (
    "wait_to_read",
    "wait_to_write",
    "asnumpy",
    "asscalar",
    "copy",
    "copyto",
    "as_in_context",
    "detach",
    "backward",
    "attach_grad",
):
    setattr(Symbol, _name, _only_arrays(_name))


# ---- Python's operators --------------------------------------------------------------------------

# method: (operator of two Symbols, of two whose known shapes differ, with a number on the right, on
# the left)
OPERATORS = {
    "add": ("_plus", "broadcast_add", "_PlusScalar", "_PlusScalar"),
    "sub": ("_minus", "broadcast_sub", "_MinusScalar", "_RMinusScalar"),
    "mul": ("_mul", "broadcast_mul", "_MulScalar", "_MulScalar"),
    "truediv": ("_div", "broadcast_div", "_DivScalar", "_RDivScalar"),
    "mod": ("_mod", "broadcast_mod", "_ModScalar", "_RModScalar"),
    "pow": ("_power", "broadcast_power", "_PowerScalar", "_rpower_scalar"),
    "eq": ("_equal", "broadcast_equal", "_equal_scalar", None),
    "ne": ("_not_equal", "broadcast_not_equal", "_not_equal_scalar", None),
    "gt": ("_greater", "broadcast_greater", "_greater_scalar", None),
    "ge": ("_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar", None),
    "lt": ("_lesser", "broadcast_lesser", "_lesser_scalar", None),
    "le": ("_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar", None),
}


def binary(
    both: str, broadcast: str | None, right: str, left: str | None, a: Any, b: Any
) -> Symbol:
    """a <op> b of Symbols and numbers; the arguments are as in OPERATORS. Raises TypeError."""
    if isinstance(a, Symbol) and isinstance(b, Symbol):
        typed = [s._outputs[0].node.is_typed for s in (a, b) if len(s._outputs) == 1]
        differ = typed == [True, True] and shapes_differ(a._outputs[0], b._outputs[0])
        name = broadcast if differ and broadcast else both
        return apply(lookup(name), name.lower(), (a, b), {})
    array, number, with_number = (a, b, right) if isinstance(a, Symbol) else (b, a, left)
    if type(number) is not float and not isinstance(number, Number):
        raise InvalidType(
            f"{both}: type {type(number)} not supported, operands must be Symbols or numbers\n "
            f" at: {caller_line()}\n  fix: make an array that a block needs its Parameter or"
            " Constant"
        )
    assert with_number is not None  # comparisons are mirrored by Python
    return apply(lookup(with_number), with_number.lower(), (array,), {"scalar": number})


def _add_operators():
    def methods(both, broadcast, right, left):
        return (
            lambda self, other: binary(both, broadcast, right, left, self, other),
            lambda self, other: binary(both, broadcast, right, left, other, self),
        )

    for name, row in OPERATORS.items():
        plain, reflected = methods(*row)
        setattr(Symbol, f"__{name}__", plain)
        if row[3] is not None:
            setattr(Symbol, f"__r{name}__", reflected)
    for name in ("div", "rdiv"):
        setattr(Symbol, f"__{name}__", getattr(Symbol, f"__{name.replace('div', 'truediv')}__"))
    setattr(Symbol, "__hash__", object.__hash__)
    operators.add_composites(Symbol, lambda: sys.modules[__package__], lambda a, b: NotImplemented)


_add_operators()


# ---- variables, groups ---------------------------------------------------------------------------


def var(
    name: str,
    attr: dict[str, str] | None = None,
    shape: Any = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: DType | None = None,
    init: Any = None,
    stype: str | None = None,
    profiler_scope: Any = None,
    **kwargs: Any,
) -> Symbol:
    """A variable: an input of the graph.

    shape: 0 is an unknown dimension. init: an Initializer or its name. kwargs: attributes `__x__`.
    Raises TypeError, ValueError for other names and for values that are not strings.
    """
    if not isinstance(name, str):
        raise InvalidType("Expect a string for variable `name`")
    attr = dict(attribute.current().get(attr))
    attribute.check_text(attr, "var")
    attr = attribute.hide(attr)
    if shape is not None:
        try:
            shape = (
                (shape.__index__(),)
                if hasattr(shape, "__index__")
                else tuple(n.__index__() for n in shape)
            )
        except (AttributeError, TypeError):
            raise InvalidType(f"var: shape must be a tuple of ints, got {shape!r}") from None
        attr["__shape__"] = str(shape)
    if lr_mult is not None:
        attr["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attr["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attr["__dtype__"] = dtype_flag(dtype)
    if init is not None:
        attr["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        attr["__storage_type__"] = str({"default": 0, "row_sparse": 1, "csr": 2}.get(stype, stype))
    for key, value in kwargs.items():
        if not attribute.is_user_key(key):
            raise InvalidValue(
                f"Attribute name={key} is not supported. Additional attributes must start and end"
                " with double underscores, e.g, __yourattr__"
            )
        attr[key] = str(value)
    return Symbol([new_variable(name, attr or None)])


Variable = var


def Group(symbols: Sequence[Symbol], create_fn: Any = None) -> Symbol:
    """One Symbol with the outputs of several. Raises TypeError."""
    symbols = list(symbols) if not isinstance(symbols, Symbol) else [symbols]
    if not symbols or any(not isinstance(s, Symbol) for s in symbols):
        raise InvalidType("Expected a list of symbols as input")
    return Symbol([v for s in symbols for v in s._outputs])
