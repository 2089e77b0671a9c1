"""Pointwise operators: one C-like expression is the CPU loop, the CUDA kernel and the piece of a
fused kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .record import FLOATS, REQUIRED, Operator, Param, Sample, Type, elementwise, operator, sample
from .shapes import broadcast_shapes, same_dtype, whole_dtype

# the inputs' names inside an expression; a single input is called x
VARIABLES = ("a", "b", "c", "d")
CALL_STEPS = 4
SCALAR_STEPS = {"erfinv": 880, "gamma": 400, "gammaln": 180}  # of functions that are no vectors


class Expression(NamedTuple):
    """What the generator needs. `text` may use the inputs, the dynamic parameters and C math names
    (vecmath.h)."""

    text: str
    n_inputs: int
    scalars: tuple[str, ...]
    # "float": f32 f64 natively; "whole": u8 i8 i32 i64 (bool runs as u8); "all": both
    dtypes: str
    truth: bool = False  # its values are 0 or 1: there are loops whose result is of bools
    bools: tuple[int, ...] = ()  # inputs that are of bools, whatever the others are

    def serves(self, dtype: str) -> bool:
        """Is the expression for this dtype?"""
        return self.dtypes == "all" or (self.dtypes == "float") == (dtype in FLOATS)

    @property
    def weight(self) -> int:
        """How much it costs, in additions: a math function is about CALL_STEPS of them."""
        scalar = sum(n for name, n in SCALAR_STEPS.items() if f"{name}(" in self.text)
        return 1 + CALL_STEPS * self.text.count("(") + scalar

    @property
    def variables(self) -> tuple[str, ...]:
        return ("x",) if self.n_inputs == 1 else VARIABLES[: self.n_inputs]


def pointwise(
    name: str,
    text: str,
    *,
    ref: Callable,
    grad: Callable | None = None,
    inputs: Sequence[str] = ("data",),
    params: dict[str, Any] | Sequence[Param] | None = None,
    dtypes: str = "float",
    domain: tuple[float, float] = (-3, 3),
    doc: str = "",
    out_dtype: Callable | None = None,
    native: bool = False,
    truth: bool = False,
    **fields: Any,
) -> Operator:
    """Registers a pointwise operator; its inputs broadcast against each other (a single rule for nd
    and sym).

    text: the expression, e.g. "x > 0 ? x : alpha * expm1(x)". Besides the names of math.h it may
        use `div` (integers:
          towards zero, x / 0 = 0), `mod` (the divisor's sign, x mod 0 = 0), `gammaln`, `gamma` and
          `erfinv`. With dtypes="all" a scalar is converted to the arrays' dtype before the
          expression.
    ref:  (xp, *inputs, **params) -> array.  grad: (F, dy, *inputs, y, **params) -> gradient, or a
          tuple with one for each input; a gradient has the *broadcast* shape, it is summed to the
          input's shape here.
    params: {name: default} of float parameters (dynamic: they do not enter the plan), or Params.
    domain: range of the default samples' inputs.
    dtypes: of the kernels; "whole": of the inputs, too.
    out_dtype: (dtype, **params) -> dtype of the result, where it may differ; kernels serve equal
        dtypes only.
    native: `ref` takes integers and bools as they are; else they reach it as float64 ("float") or
        bools as uint8 ("all").
    truth: its values are 0 or 1, in the operands' dtype; a cast to bool after it costs nothing.
    """
    given = tuple(
        p if isinstance(p, Param) else Param(p, "float", default, dynamic=True)
        for p, default in (
            params.items() if isinstance(params, dict) else ((p, None) for p in params or ())
        )
    )
    scalars = tuple(p.name for p in given if p.dynamic)
    expression = Expression(text, len(inputs), scalars, dtypes, truth)

    common = whole_dtype if dtypes == "whole" else same_dtype

    def infer(ins, **attrs):
        dtype = common(name, ins, inputs)
        return [
            Type(
                broadcast_shapes(name, ins, inputs),
                out_dtype(dtype, **attrs) if out_dtype else dtype,
            )
        ]

    def promoting_ref(xp, *xs, **attrs):
        return ref(xp, *(_promote(xp, x, dtypes) for x in xs), **attrs)

    def all_grads(F, dys, xs, ys, **attrs):
        assert grad is not None
        gs = grad(F, dys[0], *xs, ys[0], **attrs)
        gs = gs if isinstance(gs, (tuple, list)) else (gs,)
        return [g if g is None else sum_to(F, g, x.shape) for g, x in zip(gs, xs)]

    fields.setdefault("fill", elementwise)
    fields.setdefault("samples", default_samples(len(inputs), domain, given))
    fields.setdefault("inplace", tuple((i, 0) for i in range(len(inputs))))
    return operator(
        name,
        infer=infer,
        ref=ref if native else promoting_ref,
        grad=all_grads if grad else None,
        inputs=tuple(inputs),
        params=given,
        pointwise=expression,
        doc=doc,
        **fields,
    )


def _promote(xp, x, dtypes: str):
    if dtypes == "float":
        return x if x.dtype.kind == "f" else x.astype(xp.float64)
    return x.astype(xp.uint8) if x.dtype.kind == "b" else x


def sum_to(F: Any, g: Any, shape: Sequence[int]) -> Any:
    """Sums a gradient of broadcast shape down to an input's shape."""
    if tuple(g.shape) == tuple(shape):
        return g
    lead = len(g.shape) - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1
    )
    return (
        F.reshape_to(F.sum(g, axis=axes, keepdims=True), shape=tuple(shape))
        if axes
        else F.reshape_to(g, shape=tuple(shape))
    )


def default_samples(
    n_inputs: int, domain: tuple[float, float], params: Sequence[Param]
) -> tuple[Sample, ...]:
    from .record import uniform

    attrs = {p.name: 1.5 for p in params if p.default is REQUIRED}
    draw = lambda *shape: uniform(shape, *domain)
    if n_inputs == 1:
        return (sample(draw(3, 4), **attrs), sample(draw(2, 1, 5), **attrs))
    return (
        sample(*[draw(3, 4)] * n_inputs, **attrs),
        sample(draw(2, 3, 4), *[draw(3, 1)] * (n_inputs - 1), **attrs),
        sample(draw(1, 4), *[draw(2, 3, 1)] * (n_inputs - 1), **attrs),
    )
