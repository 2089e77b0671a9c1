"""Deconvolution: the transpose of a convolution, with its own way to choose the output's shape."""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..record import COUNT, Param, Shape, Type, operator, sample
from ..shapes import same_dtype
from ..traits import Decomposition
from .conv import (
    TAPS,
    TUNE,
    Geometry,
    bias_grad,
    check_bias,
    check_ndim,
    check_weight,
    conv_grad_data,
    conv_inputs,
    deconv_weight,
    fill_parameters,
    geometry,
    groups_divide,
    plus_bias,
    taps_of,
)


def _deconv_geometry(space, kernel, stride, dilate, pad, adj, target_shape, num_group, layout):
    """The convolution that this is the transpose of, and the output's spatial shape; target_shape
    overrides pad, adj."""
    op = "Deconvolution"
    g = geometry(op, kernel, stride, dilate, pad, num_group, layout)
    adj = tuple(adj or ()) or (0,) * len(g.kernel)
    full = tuple(s * (n - 1) + r for s, n, r in zip(g.stride, space, g.reach))
    if any(target_shape or ()):
        if len(target_shape) != len(full) or any(
            not 0 < t <= f for f, t in zip(full, target_shape)
        ):
            raise ShapeError(
                op,
                "target_shape must be positive and at most stride (size - 1) + kernel extent ="
                f" {full}, got {target_shape}",
            )
        extra = [f - t for f, t in zip(full, target_shape)]
        if any(e % 2 >= t for e, t in zip(extra, g.stride)):
            raise ShapeError(
                op,
                f"target_shape must differ by an even number from {full} where stride is 1, "
                f"got {target_shape}",
            )
        return g._replace(pad=tuple((e + 1) // 2 for e in extra)), tuple(target_shape)
    if len(adj) != len(full) or any(not 0 <= a < s for a, s in zip(adj, g.stride)):
        raise OperatorError(
            op,
            f"adj must be at least 0 and smaller than stride, got adj={adj} and stride={g.stride}",
        )
    out = tuple(f - 2 * p + a for f, p, a in zip(full, g.pad, adj))
    if min(out) < 1:
        raise ShapeError(
            op,
            f"the output would have no elements: spatial shape {out} from size {tuple(space)}, "
            f"kernel {g.kernel}, stride {g.stride}, pad {g.pad}",
            fix="use a smaller pad",
        )
    return g, out


def deconv_setup(
    x_shape: Shape,
    kernel: Shape,
    stride: Shape,
    dilate: Shape,
    pad: Shape,
    adj: Shape,
    target_shape: Shape,
    num_group: int,
    layout: str | None,
) -> tuple[Geometry, Shape]:
    g = geometry("Deconvolution", kernel, stride, dilate, pad, num_group, layout)
    return _deconv_geometry(
        g.split(x_shape)[2], kernel, stride, dilate, pad, adj, target_shape, num_group, layout
    )


def _deconv_infer(
    ins, kernel, stride, dilate, pad, adj, target_shape, num_filter, num_group, no_bias, layout, **_
):
    x = ins[0]
    g = geometry("Deconvolution", kernel, stride, dilate, pad, num_group, layout)
    check_ndim("Deconvolution", "data", x, g, layout)
    n, channels, space = g.split(x.shape)
    groups_divide("Deconvolution", g, channels, num_filter)
    note = (
        "(channels, *kernel, num_filter / num_group)"
        if g.channels_last
        else "(channels, num_filter / num_group, *kernel)"
    )
    check_weight("Deconvolution", ins[1], deconv_weight(g, channels, num_filter), x, note, g)
    check_bias("Deconvolution", ins, num_filter, no_bias)
    _, out = _deconv_geometry(
        space, kernel, stride, dilate, pad, adj, target_shape, num_group, layout
    )
    return [
        Type(
            g.join(n, num_filter, out), same_dtype("Deconvolution", ins, ("data", "weight", "bias"))
        )
    ]


def _deconv_ref(
    xp,
    x,
    w,
    bias=None,
    *,
    kernel,
    stride,
    dilate,
    pad,
    adj,
    target_shape,
    num_filter,
    num_group,
    no_bias,
    layout,
    **_,
):
    g, out = deconv_setup(
        x.shape, kernel, stride, dilate, pad, adj, target_shape, num_group, layout
    )
    y = conv_grad_data(xp, g, x, w, g.join(x.shape[0], num_filter, out))
    return y if no_bias else plus_bias(g, y, bias)


def _deconv_body(F, x, w, bias=None, *, no_bias, layout, kernel, **attrs):
    """Without its bias."""
    if no_bias:
        return None
    y = F.Deconvolution(x, w, no_bias=True, layout=layout, kernel=kernel, **attrs)
    last = bool(layout) and layout.endswith("C")
    shape = (-1,) if last else (-1, *[1] * len(kernel))
    shape = tuple(bias.shape[0] if n == -1 else n for n in shape)
    return [F.broadcast_add(y, F.reshape_to(bias, shape=shape))]


def _deconv_grad(
    F, dys, xs, ys, kernel, stride, dilate, pad, adj, target_shape, num_group, no_bias, layout, **_
):
    x, w, dy = xs[0], xs[1], dys[0]
    g = deconv_setup(x.shape, kernel, stride, dilate, pad, adj, target_shape, num_group, layout)[0]
    taps = taps_of(kernel, g.stride, g.dilate, g.pad, num_group, layout)
    gs = [
        F.Convolution(dy, w, num_filter=w.shape[0], no_bias=True, **taps),
        F._conv_grad_weight(x, dy, weight_shape=w.shape, **taps),
    ]
    return gs if no_bias else gs + [bias_grad(F, g, dy)]


operator(
    "Deconvolution",
    aliases=("_npx_deconvolution",),
    inputs=("data", "weight", "bias"),
    input_names=conv_inputs,
    params=(
        *TAPS,
        Param("adj", "shape", ()),
        Param("target_shape", "shape", ()),
        Param("num_filter", "int"),
        Param("num_group", "int", 1, limits=COUNT),
        Param("workspace", "int", 512),
        Param("no_bias", "bool", True),
        *TUNE,
    ),
    infer=_deconv_infer,
    fill=fill_parameters(deconv_weight),
    ref=_deconv_ref,
    grad=_deconv_grad,
    traits=(Decomposition(_deconv_body),),
    samples=(
        sample((2, 3, 4), (3, 2, 3), kernel=(3,), num_filter=2, stride=(2,), pad=(1,), adj=(1,)),
        sample(
            (2, 4, 3, 3),
            (4, 2, 3, 2),
            (4,),
            kernel=(3, 2),
            num_filter=4,
            num_group=2,
            stride=(2, 1),
            no_bias=False,
        ),
        sample((1, 2, 3, 3), (2, 2, 3, 3), kernel=(3, 3), num_filter=2, dilate=(2, 2), pad=(1, 1)),
        sample(
            (1, 2, 5, 5),
            (2, 1, 3, 3),
            kernel=(3, 3),
            num_filter=1,
            stride=(2, 2),
            target_shape=(11, 11),
        ),
        sample(
            (1, 2, 5, 5),
            (2, 1, 3, 3),
            kernel=(3, 3),
            num_filter=1,
            stride=(2, 2),
            target_shape=(10, 9),
        ),
        sample(
            (1, 3, 3, 2),
            (2, 2, 2, 3),
            (3,),
            kernel=(2, 2),
            num_filter=3,
            layout="NHWC",
            no_bias=False,
        ),
        sample((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), kernel=(2, 2, 2), num_filter=2, stride=(1, 2, 1)),
    ),
    doc=(
        "Transposed convolution (the gradient of Convolution with respect to its data). data (N, C,"
        " *space), weight (C, num_filter / num_group, *kernel); out = stride (size - 1) + dilate"
        " (kernel - 1) + 1 - 2 pad + adj. target_shape, where given, decides pad and adj."
    ),
)
