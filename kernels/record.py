"""The operator record: everything plait knows about one operator, in one place.

`nd.f`, `sym.f`, methods, docs, stubs, JSON form, plans, gradients and tests are all derived from
it.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from ..engine.error import (
    InvalidType,
    MXNetError,
    OperatorError,
    ShapeError,
    compose,
    did_you_mean,
    shown,
)
from ..engine.recent import Recent
from .scalar import UnknownScalar, as_float

T = TypeVar("T")
MAX_KEPT = 4096  # what a record remembers for calls: of so many uses, the last
MAX_COMPILED = 256  # and of what only compilation asks for: layers of a graph are alike


class _Required:
    """Stands in signatures where a default would."""

    def __repr__(self):
        return "<required>"


REQUIRED: Any = _Required()  # the default of a parameter that must be given

DTYPES = (
    "float32",
    "float64",
    "float16",
    "uint8",
    "int32",
    "int8",
    "int64",
    "bool",
    "int16",
    "uint16",
    "uint32",
    "uint64",
    "bfloat16",
)  # index = MXNet's type flag
HALVES = ("float16", "bfloat16")  # stored in 16 bits, computed in float32
NATIVE_FLOATS = ("float32", "float64")  # in which C computes
FLOATS = (*NATIVE_FLOATS, *HALVES)
NATIVE_INTS = ("int32", "int64", "int8", "uint8")
NATIVE = (*NATIVE_FLOATS, *NATIVE_INTS)  # dtypes of generated C loops
NUMERIC = (*FLOATS, *NATIVE_INTS)  # and of CUDA kernels


class Type(NamedTuple):
    """Shape and dtype name of one array: what inference works on.

    layout: "" is row-major; only the layout pass makes others (layouts.py).
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    layout: str = ""


class Param(NamedTuple):
    """One attribute of an operator. `kind` is a key of PARSERS or a tuple of allowed strings."""

    name: str
    kind: str | tuple
    default: Any = REQUIRED
    # a number that may change from call to call: handed to the kernel, not part of the plan
    dynamic: bool = False
    doc: str = ""
    # the least and the most of a number, or of each in a shape; None: what LIMITS says
    limits: tuple[float, float] | None = None


INT32 = (-(1 << 31), (1 << 31) - 1)
ANY = (-(1 << 63), (1 << 63) - 1)  # a seed, a label, a position: nothing has its size
# What has a parameter's size: arrays, whose bytes `infer` bounds; or work beyond them, and objects.
# These have limits of their own, so that a file of 300 bytes does not keep a machine busy.
LIMITS = {"int": INT32, "shape": ANY}
LARGE = (-(1 << 46), 1 << 46)  # sizes of an axis, and places on it: `infer` bounds the bytes
COUNT = (0, 1 << 16)  # of inputs, outputs, sections: each is an object
WEIGHTS = (0, 1 << 12)  # that one call updates: each is several inputs
FRACTION = (0, 1)  # of one: what a region covers of a map decides how many samples are taken of it
REACH = (0, 1 << 20)  # of a window, in elements: what kernels go through for one output


class Sample(NamedTuple):
    """One test case of a record. An input is a shape (normal floats) or a draw: see `uniform`,
    `definite`, `ints`, `values`."""

    inputs: tuple
    attrs: dict


def sample(*inputs, **attrs) -> Sample:
    return Sample(inputs, attrs)


def uniform(shape, low, high):
    """A draw of floats in [low, high) for a sample's input."""
    return ("uniform", tuple(shape), low, high)


def definite(shape):
    """A draw of symmetric positive definite matrices for a sample's input; only symmetric changes
    of it are differentiated."""
    return ("definite", tuple(shape))


def ints(shape, low, high):
    """A draw of whole numbers in [low, high) for a sample's input (never differentiated)."""
    return ("ints", tuple(shape), low, high)


def values(data, dtype="float32"):
    """Given values for a sample's input (never differentiated)."""
    return ("values", data, dtype)


def _literal(value):
    return ast.literal_eval(value) if isinstance(value, str) else value


def _whole(value) -> int:
    """An int that kernels can hold. Raises OverflowError."""
    number = value.__index__()
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError
    return number


def several(value, n: int = 1):
    """Numbers to go through, where one number stands for n of it."""
    is_number = not hasattr(value, "__iter__") or getattr(value, "ndim", None) == 0
    return (value,) * n if is_number else value


def _parse_shape(value):
    value = _literal(value)
    if value is None:
        raise TypeError
    return tuple(v if v is None else _whole(v) for v in several(value))


def _parse_int(value):
    value = _literal(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _whole(value)


def _parse_bool(value):
    if isinstance(value, str):
        return {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}[
            value
        ]
    return bool(value)


def dtype_name(value) -> str:
    """The name in DTYPES of a dtype given as a name, a NumPy dtype or type, MXNet's type flag, or
    an array that has it; None is float32."""
    if isinstance(value, str) and value in DTYPES:
        return value
    if value is None:
        return "float32"
    if isinstance(value, (int, str)) and str(value).isdigit() and int(value) < len(DTYPES):
        return DTYPES[int(value)]
    import numpy as np

    if hasattr(value, "dtype") and not isinstance(value, type):
        value = value.dtype
    try:
        dtype = np.dtype(value)
        name = dtype.names[0] if dtype.names else dtype.name
    except (TypeError, ValueError, SyntaxError):
        name = ""
    if name not in DTYPES:
        rule = f"dtype: {value!r} is not supported, expected one of {', '.join(DTYPES)}"
        raise InvalidType(compose(rule, fix=did_you_mean(str(value), DTYPES)))
    return name


def _parse_context(value) -> str:
    """The text of a device: of a Context, or as files hold it ("gpu(1)"); "": the current one."""
    text = "" if value is None or str(value) == "None" else str(value)
    if text:
        from ..engine.device import named  # here: the build reads records before there is a core

        named(text)
    return text


def _optional(parse):
    def parse_optional(value):
        is_none = value is None or (isinstance(value, str) and value == "None")
        return None if is_none else parse(value)

    return parse_optional


PARSERS: dict[str, Callable] = {
    "int": _parse_int,
    "float": as_float,
    "bool": _parse_bool,
    "shape": _parse_shape,
    "str": str,
    "context": _parse_context,
    "dtype": dtype_name,
    "floats": lambda v: tuple(as_float(x) for x in several(_literal(v))),
}
# what a wrong value is told, where the name of the kind does not say it
KIND_TEXT = {"shape": "an int or a tuple of ints", "floats": "a float or a tuple of floats"}
PARSERS |= {kind + "?": _optional(parse) for kind, parse in PARSERS.items()}


def _kept() -> Recent:
    return Recent(MAX_KEPT)


# The functions of a record: their first arguments as `Operator` says, then attributes as keywords,
# which no type can list
Infer = Callable[..., "Sequence[Type]"]
Fill = Callable[..., "Sequence[Type | None]"]
Ref = Callable[..., Any]  # array or tuple
Grad = Callable[..., "Sequence[Any]"]
Body = Callable[..., "Sequence[Any] | None"]
Names = Callable[..., tuple[str, ...]]


def _lookup() -> Recent:
    return Recent(MAX_COMPILED)


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class Operator:
    """One operator. Its functions are called with the attributes as keywords.

    infer: (list[Type], **attrs) -> list[Type]: all outputs, hidden ones too. Raises OperatorError.
    fill:  (list[Type | None], **attrs) -> list[Type | None]: completes unknown inputs (parameters)
           from known ones.
    ref:   (xp, *arrays, **attrs) -> array or tuple: the oracle and the fallback kernel, against the
           array API. Arrays of 16-bit floats arrive as float32; results are cast to the inferred
           dtypes. After the outputs come the new values of `mutates` inputs. `rng` is added for
           random operators (a numpy Generator, None where the call draws nothing) and `train` for
           `train_aware` ones.
    grad:  (F, dys, xs, ys, **attrs) -> list of input gradients, None where there is none. Written
           in operators; every array has .shape and .dtype. Without `grad` gradients are zero.
    body:  (F, *inputs, **attrs) -> list of all outputs, or None: the same in other operators, which
           run where these have kernels and it has none. Inputs of 16 bits arrive as float32.
    traits: what few operators have, of kinds in traits.py; see `trait` and `has`.
    """

    name: str
    infer: Infer
    ref: Ref
    inputs: tuple[str, ...] = ("data",)  # ("*data",): any number
    params: tuple[Param, ...] = ()
    grad: Grad | None = None
    fill: Fill | None = None
    body: Body | None = None
    traits: Sequence[Any] = ()
    aliases: tuple[str, ...] = ()
    # (**attrs) -> names of the inputs in use, where attributes decide
    input_names: Names | None = None
    n_outputs: int | Callable[..., int] = 1  # or (**attrs) -> int
    n_visible: int | Callable[..., int] | None = None  # outputs the user sees; default: all
    output_names: tuple[str, ...] | Names = ()  # or (**attrs) -> names
    # the parameter that counts variadic inputs ("num_args")
    variadic_key: str | None = None
    # inputs written in place: names, or (n_inputs, **attrs) -> indices
    mutates: tuple[str, ...] | Callable[..., Sequence[int]] = ()
    # draws random numbers; or (**attrs) -> bool, where attributes decide
    random: bool | Callable[..., bool] = False
    # `train` is part of the plan and handed to infer/ref/grad
    train_aware: bool = False
    inplace: tuple[tuple[int, int], ...] = ()  # (input, output) pairs that may share memory
    view: bool = False  # output 0 is input 0's bytes under another shape
    # all arrays have one shape: an unknown one is that of those that are known
    elementwise: bool = False
    pointwise: Any = None  # the Expression, for pointwise operators
    samples: tuple[Sample, ...] = ()
    doc: str = ""
    plans: Recent = dataclasses.field(default_factory=_kept, repr=False)
    inferred: Recent = dataclasses.field(default_factory=_lookup, repr=False)  # see plan.infer
    completed: Recent = dataclasses.field(default_factory=_lookup, repr=False)  # partial.complete
    attributes: Recent = dataclasses.field(default_factory=_lookup, repr=False)  # see shared
    no_attrs: dict = dataclasses.field(default_factory=dict, repr=False)
    gradients: Recent = dataclasses.field(default_factory=_lookup, repr=False)  # passes/gradient
    # found from the fields above
    kinds: dict[type, Any] = dataclasses.field(init=False, repr=False)
    param_index: dict = dataclasses.field(init=False, repr=False)
    variadic: bool = dataclasses.field(init=False, repr=False)
    has_dynamic: bool = dataclasses.field(init=False, repr=False)
    float_params: tuple[str, ...] = dataclasses.field(init=False, repr=False)

    def __post_init__(self):
        self.params = tuple([self._limited(p) for p in self.params])
        if self.elementwise and self.fill is None:
            self.fill = same_fill
        self.kinds = {type(t): t for t in self.traits}
        self.param_index = {p.name: i for i, p in enumerate(self.params)}
        self.variadic = self.inputs[:1] != () and self.inputs[0].startswith("*")
        self.has_dynamic = any(p.dynamic for p in self.params)
        self.float_params = tuple(p.name for p in self.params if str(p.kind).startswith("float"))

    def __repr__(self):
        return f"<Operator {self.name}>"

    def trait(self, kind: type[T]) -> T | None:
        """The trait of this kind, if the operator has one."""
        return self.kinds.get(kind)

    def has(self, kind: type) -> bool:
        """Has the operator a trait of this kind?"""
        return kind in self.kinds

    def _limited(self, p: Param) -> Param:
        limits = COUNT if p.name == self.variadic_key else LIMITS.get(str(p.kind).rstrip("?"))
        return p._replace(limits=p.limits or limits)

    def parse(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Attributes given by a caller or a JSON file -> a complete dict in the record's order.
        An operator without parameters ignores them, as in MXNet: gluoncv calls zeros_like(x,
        dtype="float32"). Raises MXNetError."""
        if not self.params:
            return {}
        for key in attrs:
            if key not in self.param_index:
                raise OperatorError(
                    self.name,
                    f"has no parameter {key!r}, its parameters are "
                    f"{', '.join(self.param_index) or 'none'}",
                    fix=did_you_mean(key, self.param_index),
                )
        full = {}
        for p in self.params:
            value = attrs.get(p.name, p.default)
            if value is REQUIRED:
                raise OperatorError(self.name, f"parameter {p.name!r} is required")
            full[p.name] = value if value is p.default else self._parse_one(p, value)
        return full

    def attribute_key(self, attrs: dict[str, Any]) -> Collection:
        """What tells complete attributes apart: their values, in the record's order."""
        for name in self.float_params:
            value = attrs[name]
            if value == 0 or type(value) is tuple:
                return (repr(attrs),)  # tells 0.0 from -0.0, which compare equal
        return attrs.values()

    def shared(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """The one dict that nodes with these complete attributes share, so that what is known of
        one is found for all. Nobody writes into it."""
        if not attrs:
            return self.no_attrs
        key = tuple(self.attribute_key(attrs))
        try:
            found = self.attributes[key]
        except TypeError:  # an attribute that is a list
            return attrs
        if found is None:
            found = self.attributes[key] = attrs
        return found

    def _parse_one(self, p: Param, value):
        if type(value) is float and p.kind == "float" and p.limits is None:
            return value
        if isinstance(p.kind, tuple):
            if p.name == "dtype" and value is not None and not isinstance(value, str):
                value = dtype_name(value)
            value = "None" if value is None else str(value)
            if value not in p.kind:
                raise OperatorError(
                    self.name,
                    f"{p.name} must be one of {', '.join(p.kind)}, got {shown(value)}",
                    fix=did_you_mean(value, p.kind),
                )
            return None if value == "None" else value
        try:
            found = PARSERS[p.kind](value)
        except (MXNetError, UnknownScalar):
            raise
        except Exception:
            kind = KIND_TEXT.get(p.kind.rstrip("?"), p.kind.rstrip("?"))
            kind += " or None" * p.kind.endswith("?")
            raise OperatorError(self.name, f"{p.name} must be {kind}, got {shown(value)}") from None
        if p.limits is not None and found is not None:
            low, high = p.limits
            for n in found if found.__class__ is tuple else (found,):
                if n is not None and not low <= n <= high:
                    raise OperatorError(
                        self.name,
                        f"{p.name} must be between {low} and {high}, got {shown(value)}",
                    )
        return found

    def check_inputs(self, attrs: dict[str, Any], n_given: int) -> tuple[str, ...]:
        """The names of a call's inputs. Raises OperatorError where their number is another."""
        names = self.names_in(attrs, n_given)
        if n_given != len(names):
            raise OperatorError(
                self.name, f"needs {len(names)} inputs ({', '.join(names)}), got {n_given}"
            )
        return names

    def differentiate(
        self,
        F,
        dys: Sequence,
        xs: Sequence,
        ys: Sequence,
        attrs: dict,
        rule: Callable | None = None,
    ) -> list:
        """The gradients of the inputs, as the field `grad` or another rule gives them,
        all of their input's shape and dtype. The one place that calls such a rule. Raises
        OperatorError where that fails, as for shapes that it did not think of."""
        rule = rule or self.grad
        assert rule is not None
        try:
            found = list(rule(F, dys, xs, ys, **attrs))
        except (MXNetError, UnknownScalar):
            raise
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            given = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in xs)
            raise OperatorError(
                self.name, f"has no gradient for {given} ({type(error).__name__}: {error})"
            ) from error
        for i, (g, x) in enumerate(zip(found, xs)):
            if g is None:
                continue
            if tuple(g.shape) != tuple(x.shape):
                raise ShapeError(
                    self.name, f"its gradient must have its input's shape {x.shape}, got {g.shape}"
                )
            # rules are written for floats: of integers, a gradient may come out as another dtype
            if g.dtype != x.dtype and dtype_name(g.dtype) != dtype_name(x.dtype):
                found[i] = F.cast(g, dtype=dtype_name(x.dtype))
        return found

    def counted(self, attrs: dict[str, Any], n_inputs: int) -> dict[str, Any]:
        """attrs with the number of inputs, for an operator that takes any number. Raises
        OperatorError where the caller gave another."""
        key = self.variadic_key
        if not key:
            return attrs
        if key not in attrs:
            return {**attrs, key: n_inputs}
        full = self.parse(attrs)
        # the count may leave out inputs that have names: UpSampling's weight
        if n_inputs not in (full[key], len(self.names_in(full))):
            raise OperatorError(self.name, f"{key} is {full[key]}, but {n_inputs} inputs are given")
        return attrs

    def names_in(self, attrs: dict[str, Any], n_given: int | None = None) -> tuple[str, ...]:
        """Names of the inputs this call uses."""
        if self.variadic and (self.variadic_key or not self.input_names):
            n = n_given if n_given is not None else attrs[str(self.variadic_key)]
            if self.input_names:
                return tuple(self.input_names(**{**attrs, str(self.variadic_key): n}))
            return tuple(f"arg{i}" for i in range(n))
        return tuple(self.input_names(**attrs)) if self.input_names else self.inputs

    def is_random(self, attrs: dict[str, Any]) -> bool:
        """Does a call with these attributes (complete, with `train` for train-aware operators) draw
        random numbers?"""
        return bool(self.random(**attrs)) if callable(self.random) else self.random

    def outputs(self, attrs: dict[str, Any]) -> int:
        if not callable(self.n_outputs):
            return self.n_outputs
        n = self.n_outputs(**attrs)
        if n < 1:
            raise OperatorError(self.name, f"must have at least one output, got {n}")
        return n

    def visible(self, attrs: dict[str, Any]) -> int:
        if self.n_visible is None:
            return self.outputs(attrs)
        return self.n_visible(**attrs) if callable(self.n_visible) else self.n_visible


REGISTRY: dict[str, Operator] = {}  # every name and alias -> its record


def operator(name: str, **fields) -> Operator:
    """Registers one operator. See Operator for the fields."""
    op = Operator(name=name, **fields)
    for key in (name, *op.aliases):
        if key in REGISTRY:
            raise ValueError(f"operator name {key!r} is taken by {REGISTRY[key]!r}")
        REGISTRY[key] = op
    return op


def lookup(name: str) -> Operator:
    """The record of an operator. Raises MXNetError with the nearest names."""
    try:
        return REGISTRY[name]
    except KeyError:
        rule = f"operator {name!r} is unknown"
        raise MXNetError(compose(rule, fix=did_you_mean(name, REGISTRY, 3))) from None


def mutated_inputs(op: Operator, attrs: dict[str, Any], n_inputs: int) -> tuple[int, ...]:
    """Indices of the inputs that the operator writes in place."""
    if callable(op.mutates):
        return tuple(op.mutates(n_inputs, **attrs))
    if not op.mutates:
        return ()
    names = op.names_in(attrs, n_inputs)
    return tuple(names.index(n) for n in op.mutates if n in names)


def same_type(ins: Sequence[Type], **_) -> list[Type]:
    """Inference of operators whose output is like their first input."""
    return [ins[0]]


def same_fill(ins: Sequence[Type | None], **_) -> list[Type | None]:
    """Unknown inputs are like the first known one."""
    known = next((t for t in ins if t is not None), None)
    return [known if t is None else t for t in ins]
