"""Columns of images (im2col, col2im) and convolutions that read at learnt places.

A deformable convolution is a product of its weight and `_deformable_columns`; its gradients are
products and `_deformable_columns_grad`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import COUNT, REACH, Array, Param, Type, operator, sample, uniform
from ..shapes import float_dtype, must_be
from ..traits import Decomposition
from .conv import columns, geometry
from .resize import images
from .sampling import corners, first_order, gather, scatter, slopes

_TAPS = (
    Param("kernel", "shape", limits=REACH),
    Param("stride", "shape", (), limits=REACH),
    Param("dilate", "shape", (), limits=REACH),
    Param("pad", "shape", (), limits=REACH),
)


def _geometry(op, kernel, stride, dilate, pad, num_group=1, **_):
    return geometry(op, kernel, stride, dilate, pad, num_group, None)


def _out(op, g, shape):
    """The spatial shape of a convolution's output. Raises ShapeError."""
    if len(shape) != len(g.kernel) + 2:
        raise ShapeError(
            op, f"data must have {len(g.kernel) + 2} dimensions for kernel {g.kernel}, got {shape}"
        )
    out = g.conv_out(shape[2:])
    if min(out) < 1:
        raise ShapeError(
            op, f"kernel {g.kernel} with dilate {g.dilate} must fit the padded data, got {shape}"
        )
    return out


# ---- im2col, col2im ------------------------------------------------------------------------------


def _im2col_infer(ins, **taps):
    x = ins[0]
    g = _geometry("im2col", **taps)
    out = _out("im2col", g, x.shape)
    return [Type((x.shape[0], x.shape[1] * prod(g.kernel), prod(out)), x.dtype)]


def _im2col_body(F, x, **taps):
    g = _geometry("im2col", **taps)
    out, (n, c, *_) = _out("im2col", g, x.shape), x.shape
    if 0 in (*x.shape, *out):
        return None
    if any(g.pad):
        widths = (0, 0, 0, 0, *(p for one in g.pad for p in (one, one)))
        x = F.Pad(x, mode="constant", pad_width=widths)
    steps = [prod(x.shape[i + 1 :]) for i in range(len(x.shape))]
    space = steps[2:]
    y = F._strided(
        x,
        at=0,
        sizes=(n, c, *g.kernel, *out),
        steps=(
            *steps[:2],
            *(s * d for s, d in zip(space, g.dilate)),
            *(s * d for s, d in zip(space, g.stride)),
        ),
    )
    return [F.reshape_to(y, shape=(n, c * prod(g.kernel), prod(out)))]


def _im2col_ref(xp, x, **taps):
    return columns(xp, _geometry("im2col", **taps), x)[:, 0]


operator(
    "im2col",
    params=_TAPS,
    infer=_im2col_infer,
    ref=_im2col_ref,
    traits=(Decomposition(_im2col_body),),
    grad=lambda F, dys, xs, ys, **taps: [F.col2im(dys[0], output_size=xs[0].shape[2:], **taps)],
    samples=(
        sample((2, 3, 5, 6), kernel=(3, 2)),
        sample((1, 2, 5, 6), kernel=(3, 3), stride=(2, 1), pad=(1, 2), dilate=(1, 2)),
        sample((2, 2, 7), kernel=(3,), pad=(1,)),
    ),
    doc=(
        "The windows that a convolution of data (N, C, *space) reads, as columns: (N, C"
        " prod(kernel), number of windows)."
    ),
)


def _col2im_infer(ins, output_size, **taps):
    op, x = "col2im", ins[0]
    g = _geometry(op, **taps)
    taps_of_one = prod(g.kernel)
    if len(x.shape) != 3 or x.shape[1] % taps_of_one or len(output_size) != len(g.kernel):
        raise ShapeError(
            op,
            f"data must be (N, C {taps_of_one}, windows) and output_size have {len(g.kernel)}"
            f" entries for kernel {g.kernel}, got data {x.shape} and output_size {output_size}",
        )
    shape = (x.shape[0], x.shape[1] // taps_of_one, *output_size)
    if prod(_out(op, g, shape)) != x.shape[2]:
        raise ShapeError(
            op,
            f"data must have {prod(_out(op, g, shape))} windows for output_size {output_size}, got"
            f" {x.shape}",
        )
    return [Type(shape, x.dtype)]


def reading_windows(
    xp: Any, n: int, kernel: int, out: int, stride: int, pad: int, dilate: int
) -> tuple[Array, Array]:
    """(kernel, n) each: the window of an axis whose tap k reads place i, and whether there is
    one."""
    window, rest = xp.divmod(xp.arange(n) + pad - xp.arange(kernel)[:, None] * dilate, stride)
    there = (rest == 0) & (window >= 0) & (window < out)
    return xp.clip(window, 0, max(out - 1, 0)), there


def _col2im_ref(xp, x, *, output_size, **taps):
    g = _geometry("col2im", **taps)
    shape, nd = (x.shape[0], x.shape[1] // prod(g.kernel), *output_size), len(g.kernel)
    out = _out("col2im", g, shape)
    if 0 in out:
        return xp.zeros(shape, x.dtype)
    x = x.reshape(*shape[:2], *g.kernel, *out)
    at, windows, there = [], [], xp.ones((), bool)
    for d, of in enumerate(zip(output_size, g.kernel, out, g.stride, g.pad, g.dilate)):
        window, ok = reading_windows(xp, *of)
        own = [1] * (2 * nd)
        own[d], own[nd + d] = window.shape
        there = there & ok.reshape(own)
        windows.append(window.reshape(own))
        at.append(xp.arange(own[d]).reshape([*own[:nd], *[1] * nd]))
    found = xp.where(there, x[(slice(None), slice(None), *at, *windows)], 0)
    return found.sum(axis=tuple(range(2, 2 + nd)), dtype=x.dtype)


operator(
    "col2im",
    params=(Param("output_size", "shape"), *_TAPS),
    infer=_col2im_infer,
    ref=_col2im_ref,
    grad=lambda F, dys, xs, ys, output_size, **taps: [F.im2col(dys[0], **taps)],
    samples=(
        sample((2, 18, 16), output_size=(6, 5), kernel=(3, 2)),
        sample((1, 18, 16), output_size=(7, 7), kernel=(3, 3), stride=(2, 2), pad=(1, 1)),
    ),
    doc="Adds columns (see im2col) up at the places they were read from: (N, C, *output_size).",
)


# ---- columns at learnt places --------------------------------------------------------------------


def _check_places(op, ins, num_deformable_group, modulated, **taps):
    """The shape of the columns. Raises ShapeError, OperatorError."""
    data, offset = ins[:2]
    shape = images(op, "data", data)
    g = _geometry(op, **taps)
    out = _out(op, g, shape)
    n_places = num_deformable_group * prod(g.kernel)
    if num_deformable_group < 1 or shape[1] % num_deformable_group:
        raise OperatorError(
            op,
            f"num_deformable_group must divide the channels of data {shape}, got"
            f" {num_deformable_group}",
        )
    must_be(op, "offset", offset, (shape[0], 2 * n_places, *out))
    if modulated:
        must_be(op, "mask", ins[2], (shape[0], n_places, *out))
    if 0 in shape[1:]:
        raise ShapeError(op, f"data must not be empty, got {shape}")
    return (shape[0], shape[1] * prod(g.kernel), prod(out))


def _places(xp, g, data, offset, groups, modulated):
    """(batch, corners) of every tap of every group: planes are (N groups, C / groups, H, W), places
    (N groups, taps, windows) flattened."""
    n, _, height, width = data.shape
    out = offset.shape[2:]
    moved = offset.reshape(n * groups, prod(g.kernel), 2, *out)
    lines = []
    for axis in (0, 1):
        tap = xp.arange(g.kernel[axis]) * g.dilate[axis]
        tap = xp.repeat(tap, g.kernel[1]) if axis == 0 else xp.tile(tap, g.kernel[0])
        start = xp.arange(out[axis]) * g.stride[axis] - g.pad[axis]
        start = start[:, None] if axis == 0 else start
        lines.append((tap[:, None, None] + start).astype(data.dtype) + moved[:, :, axis])
    y, x = (a.reshape(-1) for a in lines)
    if modulated:
        inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    else:
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
    batch = xp.repeat(xp.arange(n * groups), prod(g.kernel) * prod(out))
    return batch, corners(xp, y, x, height, width, inside, clamp=not modulated)


def _planes(data, groups):
    n, c, h, w = data.shape
    return data.reshape(n * groups, c // groups, h, w)


def _to_columns(xp, points, shape, g, groups):
    """(N groups taps windows, C / groups) as (N, C taps, windows)."""
    n, rows, windows = shape
    taps = prod(g.kernel)
    each = points.reshape(n, groups, taps, windows, rows // taps // groups)
    return each.transpose(0, 1, 4, 2, 3).reshape(shape)


def _from_columns(xp, cols, g, groups):
    n, rows, windows = cols.shape
    taps = prod(g.kernel)
    each = cols.reshape(n, groups, rows // taps // groups, taps, windows)
    return each.transpose(0, 1, 3, 4, 2).reshape(-1, rows // taps // groups)


def _columns_ref(xp, data, offset, mask=None, *, num_deformable_group, modulated, **taps):
    g = _geometry("_deformable_columns", **taps)
    batch, c = _places(xp, g, data, offset, num_deformable_group, modulated)
    points = gather(xp, _planes(data, num_deformable_group), batch, c)
    if modulated:
        points = points * mask.reshape(-1, 1)
    shape = (data.shape[0], data.shape[1] * prod(g.kernel), prod(offset.shape[2:]))
    return _to_columns(xp, points, shape, g, num_deformable_group)


_PLACES = (Param("num_deformable_group", "int", 1, limits=COUNT), Param("modulated", "bool", False))


def _place_inputs(modulated, **_):
    return ("data", "offset", "mask") if modulated else ("data", "offset")


operator(
    "_deformable_columns",
    inputs=("data", "offset", "mask"),
    input_names=_place_inputs,
    params=(*_TAPS, *_PLACES),
    infer=lambda ins, **attrs: [
        Type(
            _check_places("_deformable_columns", ins, **attrs),
            float_dtype("_deformable_columns", ins, ("data", "offset", "mask")),
        )
    ],
    ref=_columns_ref,
    grad=lambda F, dys, xs, ys, **attrs: list(F._deformable_columns_grad(dys[0], *xs, **attrs)),
    samples=(
        sample((2, 4, 4, 5), (2, 16, 3, 4), kernel=(2, 2), num_deformable_group=2),
        sample(
            (1, 2, 4, 5),
            (1, 12, 2, 3),
            uniform((1, 6, 2, 3), 0, 1),
            kernel=(3, 2),
            stride=(2, 2),
            pad=(1, 1),
            modulated=True,
        ),
    ),
    doc=(
        "im2col that reads at places moved by offset (N, 2 groups taps, H', W'), y before x, by"
        " interpolation; modulated: and times mask (N, groups taps, H', W'). The plain one counts"
        " places in [0, size), clamped at the last pixel; the modulated one interpolates with zeros"
        " outside, as in MXNet."
    ),
)


def _columns_back_infer(ins, **attrs):
    dy = ins[0]
    must_be(
        "_deformable_columns_grad",
        "dy",
        dy,
        _check_places("_deformable_columns_grad", ins[1:], **attrs),
    )
    return ins[1:]


def _columns_back_ref(xp, dy, data, offset, mask=None, *, num_deformable_group, modulated, **taps):
    g = _geometry("_deformable_columns_grad", **taps)
    groups = num_deformable_group
    batch, c = _places(xp, g, data, offset, groups, modulated)
    planes, points = _planes(data, groups), _from_columns(xp, dy, g, groups)
    through = points * mask.reshape(-1, 1) if modulated else points
    ddata = scatter(xp, through, planes.shape, batch, c).reshape(data.shape)
    doffset = xp.stack(slopes(xp, through, planes, batch, c), axis=1)
    doffset = doffset.reshape(-1, prod(offset.shape[2:]), 2).swapaxes(1, 2).reshape(offset.shape)
    if not modulated:
        return ddata, doffset
    return ddata, doffset, (points * gather(xp, planes, batch, c)).sum(axis=1).reshape(mask.shape)


operator(
    "_deformable_columns_grad",
    inputs=("dy", "data", "offset", "mask"),
    input_names=lambda **attrs: ("dy", *_place_inputs(**attrs)),
    params=(*_TAPS, *_PLACES),
    n_outputs=lambda modulated, **_: 3 if modulated else 2,
    output_names=("ddata", "doffset", "dmask"),
    infer=_columns_back_infer,
    ref=_columns_back_ref,
    grad=first_order("DeformableConvolution"),
    samples=(
        sample((2, 16, 12), (2, 4, 4, 5), (2, 16, 3, 4), kernel=(2, 2), num_deformable_group=2),
        sample(
            (1, 12, 6),
            (1, 2, 4, 5),
            (1, 12, 2, 3),
            uniform((1, 6, 2, 3), 0, 1),
            kernel=(3, 2),
            stride=(2, 2),
            pad=(1, 1),
            modulated=True,
        ),
    ),
    doc="Gradients of _deformable_columns with respect to data, offset and mask.",
)


# ---- the convolutions ----------------------------------------------------------------------------


def _weight_shape(channels, kernel, num_filter, num_group, **_):
    return (num_filter, channels // num_group, *kernel)


def _conv_record(name, modulated, extra_params, doc, samples):
    """Registers one of the two; they differ in the mask and the rule at the border."""
    places = ("data", "offset", "mask") if modulated else ("data", "offset")

    def inputs(no_bias, **_):
        return (*places, "weight") if no_bias else (*places, "weight", "bias")

    def taps_of(attrs):
        return {k: attrs[k] for k in ("kernel", "stride", "dilate", "pad", "num_deformable_group")}

    def infer(ins, num_filter, num_group, no_bias, layout, **attrs):
        names = inputs(no_bias)
        if len(attrs["kernel"]) != 2:
            raise OperatorError(name, f"kernel must have 2 entries, got {attrs['kernel']}")
        if layout not in (None, "NCHW"):
            raise OperatorError(name, f"layout must be NCHW, got {layout}")
        n, channels, *_ = images(name, "data", ins[0])
        if num_group < 1 or channels % num_group or num_filter % num_group or num_filter < 1:
            raise OperatorError(
                name,
                f"num_group must divide the channels of data {ins[0].shape} and num_filter ="
                f" {num_filter}, got {num_group}",
            )
        _check_places(name, ins, modulated=modulated, **taps_of(attrs))
        weight = _weight_shape(channels, attrs["kernel"], num_filter, num_group)
        must_be(name, "weight", ins[len(places)], weight)
        if not no_bias:
            must_be(name, "bias", ins[-1], (num_filter,))
        g = _geometry(name, **{k: attrs[k] for k in ("kernel", "stride", "dilate", "pad")})
        dtype = float_dtype(name, ins, names)
        return [Type((n, num_filter, *_out(name, g, ins[0].shape)), dtype)]

    def fill(ins, num_filter, num_group, no_bias, kernel, stride, dilate, pad, **attrs):
        ins = list(ins)
        data = ins[0]
        if data is None:
            return ins
        n, channels, *_ = images(name, "data", data)
        g = _geometry(name, kernel, stride, dilate, pad)
        out = _out(name, g, data.shape)
        n_places = attrs["num_deformable_group"] * prod(g.kernel)
        shapes = [data.shape, (n, 2 * n_places, *out)]
        shapes += [(n, n_places, *out)] if modulated else []
        shapes += [_weight_shape(channels, kernel, num_filter, max(num_group, 1)), (num_filter,)]
        return [t or Type(s, data.dtype) for t, s in zip(ins, shapes)]

    def ref(xp, *arrays, num_filter, num_group, no_bias, **attrs):
        data, offset = arrays[:2]
        cols = _columns_ref(xp, *arrays[: len(places)], modulated=modulated, **taps_of(attrs))
        n, rows, windows = cols.shape
        weight = arrays[len(places)].reshape(num_group, num_filter // num_group, -1)
        y = weight @ cols.reshape(n, num_group, rows // num_group, windows)
        y = y.reshape(n, num_filter, *offset.shape[2:])
        return y if no_bias else y + arrays[-1].reshape(-1, 1, 1)

    def grad(F, dys, xs, ys, num_filter, num_group, no_bias, **attrs):
        dy, weight = dys[0], xs[len(places)]
        taps = {**taps_of(attrs), "modulated": modulated}
        cols = F._deformable_columns(*xs[: len(places)], **taps)
        n, rows, windows = cols.shape

        def by_group(a, depth):  # (N, G depth, windows) -> (G, depth, N windows)
            a = F.reshape_to(a, shape=(n, num_group, depth, windows))
            a = F.transpose(a, axes=(1, 2, 0, 3))
            return F.reshape_to(a, shape=(num_group, depth, n * windows))

        each = rows // num_group
        dy_groups = by_group(dy, num_filter // num_group)
        w = F.reshape_to(weight, shape=(num_group, num_filter // num_group, each))
        dw = F.batch_dot(dy_groups, by_group(cols, each), transpose_b=True)
        dcols = F.reshape_to(
            F.batch_dot(w, dy_groups, transpose_a=True), shape=(num_group, each, n, windows)
        )
        dcols = F.reshape_to(F.transpose(dcols, axes=(2, 0, 1, 3)), shape=cols.shape)
        grads = list(F._deformable_columns_grad(dcols, *xs[: len(places)], **taps))
        grads.append(F.reshape_to(dw, shape=weight.shape))
        return grads if no_bias else [*grads, F.sum(dy, axis=(0, 2, 3))]

    operator(
        name,
        inputs=(*places, "weight", "bias"),
        input_names=inputs,
        params=(
            *_TAPS,
            Param("num_filter", "int"),
            Param("num_group", "int", 1, limits=COUNT),
            Param("num_deformable_group", "int", 1, limits=COUNT),
            Param("workspace", "int", 1024),
            Param("no_bias", "bool", False),
            *extra_params,
            Param("layout", ("None", "NCDHW", "NCHW", "NCW"), None),
        ),
        infer=infer,
        fill=fill,
        ref=ref,
        grad=grad,
        samples=samples,
        doc=doc,
    )


_conv_record(
    "_contrib_DeformableConvolution",
    False,
    (),
    "Convolution of data (N, C, H, W) whose windows' elements are read at places moved by offset"
    " (N, 2 num_deformable_group taps, H', W'), y before x in pixels, by interpolation. weight and"
    " bias as in Convolution. Source: Dai et al. 2017, arXiv:1703.06211.",
    (
        sample((2, 2, 4, 5), (2, 8, 3, 4), (3, 2, 2, 2), (3,), kernel=(2, 2), num_filter=3),
        sample(
            (1, 4, 4, 5),
            (1, 24, 4, 3),
            (2, 2, 3, 2),
            kernel=(3, 2),
            stride=(1, 2),
            pad=(1, 1),
            num_filter=2,
            num_group=2,
            num_deformable_group=2,
            no_bias=True,
        ),
    ),
)
_conv_record(
    "_contrib_ModulatedDeformableConvolution",
    True,
    (Param("im2col_step", "int", 64),),
    "DeformableConvolution with a factor, mask (N, num_deformable_group taps, H', W'), for every"
    " element that is read. Source: Zhu et al. 2018, arXiv:1811.11168.",
    (
        sample(
            (2, 2, 4, 5),
            (2, 8, 3, 4),
            uniform((2, 4, 3, 4), 0, 1),
            (3, 2, 2, 2),
            (3,),
            kernel=(2, 2),
            num_filter=3,
        ),
        sample(
            (1, 4, 4, 5),
            (1, 16, 3, 4),
            uniform((1, 8, 3, 4), 0, 1),
            (2, 2, 2, 2),
            kernel=(2, 2),
            num_filter=2,
            num_group=2,
            num_deformable_group=2,
            no_bias=True,
        ),
    ),
)
