"""Convolution with what follows it as one operator: only the passes of tier 1 make it.

y = activation(Convolution(data, weight) + bias + addend), where the activation is any operator of
one input whose kernel is a loop over elements.
"""

from __future__ import annotations

import ast

from ...engine.error import OperatorError
from ..pointwise import pointwise
from ..record import COUNT, REGISTRY, Attrs, Operator, Param, Shape, Type, operator, sample
from ..shapes import must_be
from .conv import _LAYOUT, TAPS, Geometry, conv_forward, geometry, plus_bias


def parts(g: Geometry, weight_shape: Shape) -> Shape:
    """The weight's shape with the groups as an axis of their own: (groups, filters / groups,
    channels / groups, *kernel); without groups (filters, channels, *kernel)."""
    if g.groups == 1:
        return tuple(weight_shape)
    filters, per_group = weight_shape[:2]
    return (g.groups, filters // g.groups, per_group, *g.kernel)


def activation(act: str, act_attrs: str) -> tuple[Operator, Attrs] | None:
    """(record, complete attributes) of the operator that attributes name, or None."""
    if not act:
        return None
    try:
        op, attrs = REGISTRY[act], dict(ast.literal_eval(act_attrs))
    except (KeyError, ValueError, TypeError, SyntaxError, RecursionError) as error:
        raise OperatorError(
            "_conv", f"act={act!r}, act_attrs={act_attrs!r} name no operator and its attributes"
        ) from error
    return op, attrs | op.parse({k: v for k, v in attrs.items() if k in op.param_index})


def activated(op: Operator, attrs: Attrs) -> dict | None:
    """The attributes that name an operator of one input as activation; None where a text does not
    hold its own: NaN, infinities."""
    text = repr(_plain(tuple(attrs.items())))
    try:
        ast.literal_eval(text)
    except ValueError:
        return None
    return {"act": op.name, "act_attrs": text}


def _plain(value):
    """Named tuples as tuples, all the way down."""
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _infer(ins, num_filter, add, act, act_attrs, **taps):
    x, w, bias = ins[:3]
    g = geometry("_conv", **taps)
    n, channels, space = g.split(x.shape)
    plain = (num_filter, channels // g.groups, *g.kernel)
    must_be("_conv", "weight", w, w.shape if w.shape == parts(g, plain) else plain)
    must_be("_conv", "bias", bias, (num_filter,))
    out = g.join(n, num_filter, g.conv_out(space))
    if add:
        must_be("_conv", "addend", ins[3], out)
    return [Type(out, x.dtype)]


def _ref(xp, x, w, bias, addend=None, *, num_filter, add, act, act_attrs, **taps):
    g = geometry("_conv", **taps)
    w = w.reshape(num_filter, x.shape[-1 if g.channels_last else 1] // g.groups, *g.kernel)
    y = conv_forward(xp, g, x, xp.moveaxis(w, 1, -1) if g.channels_last else w)
    y = plus_bias(g, y, bias)
    y = y if addend is None else y + addend
    found = activation(act, act_attrs)
    if not found:
        return y
    done = found[0].ref(xp, y, **found[1])
    return (done[0] if isinstance(done, tuple) else done).reshape(y.shape)


operator(
    "_conv",
    inputs=("data", "weight", "bias", "addend"),
    input_names=lambda add, **_: ("data", "weight", "bias", "addend")[: 4 if add else 3],
    params=(
        *TAPS,
        Param("num_filter", "int"),
        Param("num_group", "int", 1, limits=COUNT),
        _LAYOUT,
        Param("add", "bool", False),
        Param("act", "str", ""),
        Param("act_attrs", "str", "()"),
    ),
    infer=_infer,
    ref=_ref,
    inplace=((3, 0),),
    samples=(
        sample((2, 3, 7), (4, 3, 3), (4,), kernel=(3,), num_filter=4),
        sample(
            (1, 4, 5, 5),
            (4, 4, 3, 3),
            (4,),
            (1, 4, 5, 5),
            kernel=(3, 3),
            pad=(1, 1),
            num_filter=4,
            add=True,
            act="relu",
        ),
        sample(
            (1, 4, 5, 5),
            (2, 2, 2, 3, 3),
            (4,),
            kernel=(3, 3),
            num_filter=4,
            num_group=2,
            act="clip",
            act_attrs="(('a_min', 0.0), ('a_max', 0.5))",
        ),
        sample(
            (2, 6, 5, 3),
            (4, 3, 3, 2),
            (4,),
            (2, 2, 6, 4),
            kernel=(3, 2),
            num_filter=4,
            layout="NHWC",
            stride=(2, 1),
            pad=(0, 1),
            add=True,
            act="Activation",
            act_attrs="(('act_type', 'tanh'),)",
        ),
    ),
    doc=(
        "activation(Convolution(data, weight) + bias + addend). weight is (num_filter, C /"
        " num_group, *kernel) for every layout, or has the groups as an axis of their own in front."
        " act names an operator of one input, act_attrs holds its attributes."
    ),
)

pointwise(
    "_affine",
    "a * b + c",
    inputs=("data", "scale", "shift"),
    ref=lambda xp, x, scale, shift: x * scale + shift,
    doc="data * scale + shift; batch normalisation in inference where no convolution takes it up.",
)
