"""Identities that shape a gradient, and arrays like others."""

from __future__ import annotations

import math

from ...engine.error import ShapeError
from ..loops import scale_form
from ..pointwise import pointwise
from ..record import (
    Param,
    elementwise,
    operator,
    same_type,
    sample,
)
from ..traits import Constant, DeviceCopy, Identity, LoopForm, LossLayer
from .unary import unary

unary(
    "_copy",
    "x",
    lambda xp, x: x,
    lambda F, dy, x, y: dy,
    dtypes="all",
    native=True,
    aliases=("identity",),
    traits=(Identity(), DeviceCopy()),
    doc="A copy of x.",
)
unary(
    "_copyto",
    "x",
    lambda xp, x: x,
    lambda F, dy, x, y: dy,
    dtypes="all",
    native=True,
    aliases=("_npi_copyto", "_CrossDeviceCopy"),
    doc="A copy of x; with out= on another device, a transfer.",
)
unary(
    "BlockGrad",
    "x",
    lambda xp, x: x,
    dtypes="all",
    native=True,
    aliases=("_sparse_stop_gradient", "stop_gradient", "_npx_stop_gradient"),
    traits=(Identity(passes=False),),
    doc="x; no gradient passes back.",
)
unary(
    "make_loss",
    "x",
    lambda xp, x: x,
    lambda F, dy, x, y: F.ones_like(x),
    dtypes="all",
    native=True,
    aliases=("_sparse_make_loss",),
    output_names=("loss",),
    traits=(Identity(passes=False), LossLayer()),
    doc="x as a loss: its gradient is 1, whatever comes from above.",
)
unary(
    "_contrib_round_ste",
    "round(x)",
    lambda xp, x: xp.trunc(x) + xp.sign(x) * (xp.abs(x - xp.trunc(x)) >= 0.5),
    lambda F, dy, x, y: dy,
    aliases=("_sparse__contrib_round_ste",),
    doc="round, with the gradient of the identity. Source: Bengio et al. 2013, arXiv:1308.3432.",
)
unary(
    "_contrib_sign_ste",
    "(x > 0) - (x < 0)",
    lambda xp, x: (x > 0) * 1.0 - (x < 0) * 1.0,
    lambda F, dy, x, y: dy,
    aliases=("_sparse__contrib_sign_ste",),
    doc="sign, with the gradient of the identity. Source: Bengio et al. 2013, arXiv:1308.3432.",
)
pointwise(
    "_contrib_gradientmultiplier",
    "x",
    ref=lambda xp, x, scalar, is_int: x,
    dtypes="all",
    native=True,
    params=(Param("scalar", "float", 1.0, dynamic=True), Param("is_int", "bool", True)),
    grad=lambda F, dy, x, y, scalar, is_int: dy * scalar,
    doc=(
        "x; the gradient is multiplied by scalar. Source: Ganin and Lempitsky 2015,"
        " arXiv:1409.7495."
    ),
)
pointwise(
    "_contrib_quadratic",
    "(a * x + b) * x + c",
    ref=lambda xp, x, a, b, c: (a * x + b) * x + c,
    params={"a": 0.0, "b": 0.0, "c": 0.0},
    grad=lambda F, dy, x, y, a, b, c: dy * (x * (2 * a) + b),
    samples=(sample((3, 4), a=1.5, b=-2.0, c=0.5), sample((2,))),
    doc="a x^2 + b x + c.",
)
unary(
    "zeros_like",
    "0",
    lambda xp, x: xp.zeros_like(x),
    traits=(Constant(0.0),),
    dtypes="all",
    native=True,
    aliases=("_sparse_zeros_like",),
    doc="Zeros of x's shape and dtype.",
)
unary(
    "ones_like",
    "1",
    lambda xp, x: xp.ones_like(x),
    traits=(Constant(1.0),),
    dtypes="all",
    native=True,
    aliases=(),
    doc="Ones of x's shape and dtype.",
)


def _div_sqrt_infer(ins):
    if not ins[0].shape or not ins[0].shape[-1]:
        raise ShapeError(
            "_contrib_div_sqrt_dim", f"data must have a last axis with elements, got {ins[0].shape}"
        )
    return [ins[0]]


operator(
    "_contrib_div_sqrt_dim",
    traits=(LoopForm(scale_form),),
    infer=_div_sqrt_infer,
    fill=elementwise,
    ref=lambda xp, x: x / math.sqrt(x.shape[-1]),
    inplace=((0, 0),),
    grad=lambda F, dys, xs, ys: [F._contrib_div_sqrt_dim(dys[0])],
    samples=(sample((3, 4)), sample((2, 1, 5))),
    doc="x / sqrt(size of the last axis).",
)
operator(
    "_identity_with_attr_like_rhs",
    inputs=("lhs", "rhs"),
    infer=same_type,
    fill=elementwise,
    ref=lambda xp, lhs, rhs: lhs,
    grad=lambda F, dys, xs, ys: [dys[0], None],
    samples=(sample((3, 4), (3, 4)),),
    inplace=((0, 0),),
    doc="lhs; only rhs's shape and dtype are used.",
)
