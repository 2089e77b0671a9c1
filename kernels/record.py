"""The operator record: everything plait knows about one operator, in one place.

`nd.f`, `sym.f`, methods, docs, stubs, JSON form, plans, gradients and tests are all derived from
it.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from ..engine.error import MXNetError, OperatorError, ShapeError, compose, did_you_mean
from ..engine.recent import Recent
from .params import *  # records and their readers take these from here
from .params import parse
from .scalar import UnknownScalar

T = TypeVar("T")
MAX_KEPT = 4096  # what a record remembers for calls: of so many uses, the last
MAX_COMPILED = 256  # and of what only compilation asks for: layers of a graph are alike


class Sample(NamedTuple):
    """One test case of a record. An input is a shape (normal floats) or a draw: see `uniform`,
    `definite`, `ints`, `values`."""

    inputs: tuple
    attrs: dict


def sample(*inputs: Any, **attrs: Any) -> Sample:
    return Sample(inputs, attrs)


def uniform(shape: Sequence[int], low: float, high: float) -> tuple:
    """A draw of floats in [low, high) for a sample's input."""
    return ("uniform", tuple(shape), low, high)


def definite(shape: Sequence[int]) -> tuple:
    """A draw of symmetric positive definite matrices for a sample's input; only symmetric changes
    of it are differentiated."""
    return ("definite", tuple(shape))


def ints(shape: Sequence[int], low: int, high: int) -> tuple:
    """A draw of whole numbers in [low, high) for a sample's input (never differentiated)."""
    return ("ints", tuple(shape), low, high)


def values(data: Any, dtype: str = "float32") -> tuple:
    """Given values for a sample's input (never differentiated)."""
    return ("values", data, dtype)


# The functions of a record: their first arguments as `Operator` says, then attributes as keywords,
# which no type can list
Infer = Callable[..., "Sequence[Type]"]
Fill = Callable[..., "Sequence[Type | None]"]
Ref = Callable[..., Any]  # array or tuple
Grad = Callable[..., "Sequence[Any]"]
Names = Callable[..., tuple[str, ...]]


class Remembered:
    """What is found once for an operator: from its record, and for its calls."""

    __slots__ = (
        *("kinds", "param_index", "variadic", "has_dynamic", "float_params"),
        *("plans", "inferred", "completed", "attributes", "no_attrs", "gradients"),
    )
    kinds: dict[type, Any]  # trait of each kind
    param_index: dict[str, int]
    variadic: bool
    has_dynamic: bool
    float_params: tuple[str, ...]
    plans: Recent  # plan.plan_for
    inferred: Recent  # plan.infer
    completed: Recent  # partial.complete
    attributes: Recent  # shared
    no_attrs: dict[str, Any]
    gradients: Recent  # passes/gradient

    def _remember(self, op: Operator) -> None:
        self.kinds = {type(t): t for t in op.traits}
        self.param_index = {p.name: i for i, p in enumerate(op.params)}
        self.variadic = op.inputs[:1] != () and op.inputs[0].startswith("*")
        self.has_dynamic = any(p.dynamic for p in op.params)
        self.float_params = tuple(p.name for p in op.params if str(p.kind).startswith("float"))
        self.plans, self.no_attrs = Recent(MAX_KEPT), {}
        self.inferred, self.completed = Recent(MAX_COMPILED), Recent(MAX_COMPILED)
        self.attributes, self.gradients = Recent(MAX_COMPILED), Recent(MAX_COMPILED)


@dataclasses.dataclass(eq=False, slots=True, kw_only=True)
class Operator(Remembered):
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
    traits: what few operators have, of kinds in traits.py; see `trait` and `has`.
    """

    name: str
    infer: Infer
    ref: Ref
    inputs: tuple[str, ...] = ("data",)  # ("*data",): any number
    params: tuple[Param, ...] = ()
    grad: Grad | None = None
    fill: Fill | None = None
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
    pointwise: Any = None  # the Expression, for pointwise operators
    samples: tuple[Sample, ...] = ()
    doc: str = ""

    def __post_init__(self):
        self.params = tuple([self._limited(p) for p in self.params])
        self._remember(self)

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
            full[p.name] = value if value is p.default else parse(p, value, self.name)
        return full

    def attribute_key(self, attrs: dict[str, Any]) -> Collection:
        """What distinguishes complete attributes: their values, in the record's order."""
        for name in self.float_params:
            value = attrs[name]
            if value == 0 or type(value) is tuple:  # tells 0.0 from -0.0, which are equal
                return (*attrs.values(), *[repr(attrs[p]) for p in self.float_params])
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
        F: Any,
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


def operator(name: str, **fields: Any) -> Operator:
    """Registers one operator. See Operator for the fields."""
    op = Operator(name=name, **fields)
    for key in (name, *op.aliases):
        if key in REGISTRY:
            raise ValueError(f"operator name {key!r} is taken by {REGISTRY[key]!r}")
        REGISTRY[key] = op
    return op


def lookup(name: str) -> Operator:
    """The record of an operator; those of mx.np are made when the first is asked for. Raises
    MXNetError with the nearest names."""
    if name.startswith("_np"):
        importlib.import_module(".ops.np", __package__)
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


def same_type(ins: Sequence[Type], **_: Any) -> list[Type]:
    """Inference of operators whose output is like their first input."""
    return [ins[0]]


def same_fill(ins: Sequence[Type | None], **_: Any) -> list[Type | None]:
    """Unknown inputs are like the first known one."""
    known = next((t for t in ins if t is not None), None)
    return [known if t is None else t for t in ins]


def elementwise(ins: Sequence[Type | None], **_: Any) -> list[Type | None]:
    """`fill` of operators whose arrays all have one shape, also where only a part of it is known
    (partial.complete)."""
    return same_fill(ins)
