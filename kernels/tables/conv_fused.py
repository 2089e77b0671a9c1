"""The fused convolution, and conversions of memory layouts. On CPUs float32, with blocked channels
where these are fastest; on GPUs all float dtypes, row-major."""

from __future__ import annotations

from math import prod

from ...engine import ffi, lib, settings
from .. import cuda
from ..cpu import onednn
from ..cpu.convolve import MAX_IMAGE
from ..cpu.layout import FLOPS_PER_US, collapse, cost
from ..layouts import physical_shape, strides
from ..native import Native, Wanted
from ..ops import conv_fused
from ..ops.conv import Geometry
from ..record import Attrs, Operator, Types
from ..spec import ITEM_BYTES
from ..strided_copies import StridedCopy
from . import CPU, conv, on_cpu, on_cuda
from .copy import copy_native
from .fused import loop_of


def block() -> int:
    """Channels of one block: as many float32 as a vector register holds."""
    return {lib.PLK_AVX512: 16, lib.PLK_AVX2: 8}.get(lib.plk_isa_best(), 4)


def blocked(ndim: int) -> str:
    """The layout of data with blocked channels, such as "aBcd8b"."""
    return f"aB{'cdefg'[: ndim - 2]}{block()}b"


def _blocked_weights() -> str:
    """The layout of the weights of a two-dimensional convolution on such data."""
    return f"ABcd{block()}b{block()}a"


def _channels_last(ndim: int) -> str:
    return f"a{'cdefg'[: ndim - 2]}b"


def _fused_fields(ins, outs, attrs):
    g = conv.geometry("_conv", attrs)
    call = conv.Call(g, ins[0].shape, outs[0].shape)
    fields = conv.fields_of(lib.PLK_CONV_FORWARD, call, True)
    fields["sum"] = attrs["add"]
    for name, t in zip(("x_layout", "w_layout", "y_layout"), (ins[0], ins[1], outs[0])):
        ndim = len(t.shape)
        axes = "abcdefg"[:ndim]
        # the call may reorder row-major weights; not data, if a residual is added in place
        plain = axes
        if name[0] != "w" and g.channels_last:
            plain = _channels_last(ndim)
        elif name[0] == "w" and not g.channels_last:
            plain = ""
        fields[name] = (t.layout or plain).encode()
    return fields


# kernels of oneDNN that are not JIT-compiled for a shape
SLOW = (b"ref", b"gemm", b"x64:gemm")


@CPU.wants("_conv")
def conv_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    """Blocked channels where oneDNN has a JIT-compiled kernel for them, else what it prefers."""
    if suits_winograd(ins, outs, attrs):
        data = blocked(4)
        return Wanted((data, _blocked_weights(), "", data)[: len(ins)], (data,))
    if _suits_direct(ins, outs, attrs):
        x, w = _direct_layouts(ins[0])
        return Wanted((x, w, "", blocked(4))[: len(ins)], (blocked(4),))
    if _suits_depth(ins, outs, attrs):
        x, w = blocked(4), f"Abcde{block()}a"
        return Wanted((x, w, "", x)[: len(ins)], (x,))
    if not _usable(ins):
        return None
    ndim = len(ins[0].shape)
    fields = _fused_fields([t._replace(layout="") for t in ins], outs, attrs)
    given, free = fields["x_layout"], b""
    whole = lambda n: n % block() == 0
    x_tag = blocked(ndim).encode() if whole(fields["channels"]) else given
    y_tag = blocked(ndim).encode() if whole(fields["filters"]) else given
    # a tag counts the axes as (batch, channels, space): here it would mean another layout
    choices = (
        [(given, given)]
        if fields["channels_last"]
        else [(x_tag, y_tag), (given, y_tag), (free, free)]
    )
    for before, after in choices:
        layouts = {"x_layout": before, "y_layout": after, "w_layout": b""}
        c = ffi.new("plk_conv *", fields | layouts)
        kernel = ffi.new("char[]", lib.PLK_LAYOUT_CHARS)
        if not lib.plk_dnn_conv_layouts(c, kernel):
            continue
        if ffi.string(kernel).startswith(SLOW):
            continue
        names = [ffi.string(t).decode() for t in (c.x_layout, c.w_layout, c.y_layout)]
        x, w, y = ("" if t == given.decode() and i != 1 else t for i, t in enumerate(names))
        return Wanted((x, w, "", y)[: len(ins)], (y,))
    return None


def _ours(types) -> bool:
    """Do our own kernels for blocked channels take these types?"""
    return not conv.FORCE_PLAIN and all(t.dtype == "float32" and 0 not in t.shape for t in types)


def _usable(types) -> bool:
    return _ours(types) and onednn.load()


@on_cpu("_conv", layouts=True)
def fused_conv_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    found = _winograd(ins, outs, attrs) or _direct(ins, outs, attrs) or _depth(ins, outs, attrs)
    if found:
        return found
    if not _usable(ins) or ins[2].layout or attrs["add"] and ins[3].layout != outs[0].layout:
        return None
    fields = _fused_fields(ins, outs, attrs)
    primitive = lib.plk_dnn_conv(ffi.new("plk_conv *", fields), False)
    after = {"y": 3, "n": prod(physical_shape(outs[0].shape, outs[0].layout))}
    if attrs["add"]:
        after |= {"addend": 3, "y": 4}
    after |= _act_fields(attrs)
    return conv.primitive_of(primitive, conv.us_of(fields, (*ins, *outs)), **after)


MOST_COPIED_BYTES = 2 << 20  # measured: from here on oneDNN is faster, because it skips the padding


def _suits_direct(ins, outs, attrs) -> bool:
    """Does conv_blocked.c compute this `_conv`, in the layouts it needs?"""
    g = conv.geometry("_conv", attrs)
    x, y = ins[0], outs[0]
    if len(g.kernel) != 2 or g.groups > 1 or g.channels_last or not _ours((*ins, *outs)):
        return False
    if y.shape[1] % block() or prod(x.shape[1:]) > MAX_IMAGE:
        return False
    # the rows of a window are copied, and the padding is multiplied too
    reach = [(k - 1) * d + 1 for k, d in zip(g.kernel, g.dilate)]
    width = (y.shape[3] - 1) * g.stride[1] + reach[1]
    copied = x.shape[1] * reach[0] * width * ITEM_BYTES["float32"]
    return copied <= MOST_COPIED_BYTES or not any(g.pad) and g.kernel == g.stride == (1, 1)


def _direct_layouts(x) -> tuple[str, str]:
    """The layouts that conv_blocked.c needs for data and weights."""
    if x.shape[1] % block():
        return "", f"Abcd{block()}a"
    return blocked(4), _blocked_weights()


def _direct(ins, outs, attrs):
    x, w, y = ins[0], ins[1], outs[0]
    data = blocked(4)
    if not _suits_direct(ins, outs, attrs) or (x.layout, w.layout) != _direct_layouts(x):
        return None
    if y.layout != data or ins[2].layout or attrs["add"] and ins[3].layout != data:
        return None
    g = conv.geometry("_conv", attrs)
    fields = {
        "lanes": block(),
        "x_lanes": block() if x.layout else 1,
        "add": attrs["add"],
        "n": x.shape[0],
        "channels": x.shape[1],
        "filters": y.shape[1],
        "size": x.shape[2:],
        "out": y.shape[2:],
        **{k: getattr(g, k) for k in ("kernel", "stride", "dilate", "pad")},
        **_act_fields(attrs),
        "rectify": _rectify(attrs),
    }
    us = cost(*ins, *outs) + 2 * prod(y.shape) * x.shape[1] * prod(g.kernel) / FLOPS_PER_US
    return Native("plk_conv_blocked_run", ("plk_conv_blocked", fields), us)


def _rectify(attrs) -> int:
    """The activation, if the kernel can apply it before it stores a tile."""
    if attrs["act"] == "clip":
        return lib.PLK_CLIP
    found = conv_fused.activation(attrs["act"], attrs["act_attrs"])
    named = found and (attrs["act"], found[1].get("act_type"))
    return lib.PLK_RELU if named in (("relu", None), ("Activation", "relu")) else 0


def _suits_depth(ins, outs, attrs) -> bool:
    """A depthwise convolution: does conv_depth.c compute it, in the layouts it needs?"""
    g = conv.geometry("_conv", attrs)
    x, y = ins[0], outs[0]
    if len(g.kernel) != 2 or g.channels_last or not _ours((*ins, *outs)):
        return False
    return g.groups == x.shape[1] == y.shape[1] and y.shape[1] % block() == 0


def _depth(ins, outs, attrs):
    x, w, y = ins[0], ins[1], outs[0]
    data, b = blocked(4), block()
    g = conv.geometry("_conv", attrs)
    if (x.layout, w.layout, y.layout) != (data, f"Abcde{b}a", data) or ins[2].layout:
        return None
    if not _suits_depth(ins, outs, attrs) or attrs["add"] and ins[3].layout != data:
        return None
    fields = _blocked_fields(g, x, y, attrs)
    fields |= {k: getattr(g, k) for k in ("kernel", "stride", "dilate", "pad")}
    us = cost(*ins, *outs) + 2 * prod(y.shape) * prod(g.kernel) / FLOPS_PER_US
    return Native("plk_conv_depth_run", ("plk_conv_depth", fields), us)


def _blocked_fields(g, x, y, attrs):
    """The parameters of our own kernels for blocked channels."""
    return {
        "lanes": block(),
        "n": x.shape[0],
        "channels": x.shape[1],
        "filters": y.shape[1],
        "height": x.shape[2],
        "width": x.shape[3],
        "out_height": y.shape[2],
        "out_width": y.shape[3],
        "add": attrs["add"],
        **_act_fields(attrs),
    }


def _act_fields(attrs):
    found = conv_fused.activation(attrs["act"], attrs["act_attrs"])
    if not found:
        return {}
    made = loop_of(*found)
    assert made is not None  # activations are generated loops too
    loop, scalars = made
    return {"act": {"loop": loop, "scalars": scalars}}


# ---- Winograd ------------------------------------------------------------------------------------

# one core, measured: products by definition and between transforms; transforms of the weights of
# one channel and filter, and of one tile and channel or filter
DIRECT_FLOPS_PER_US, MATMUL_FLOPS_PER_US = 85_000.0, 85_000.0
WEIGHT_US, TILE_US = 0.0060, 0.0040


def suits_winograd(ins: Types, outs: Types, attrs: Attrs) -> bool:
    """Is Winograd the fastest algorithm for a `_conv`?"""
    g = conv.geometry("_conv", attrs)
    n, channels, _ = g.split(ins[0].shape)
    _, filters, out = g.split(outs[0].shape)
    unit = g._replace(pad=()) == Geometry((3, 3), (1, 1), (1, 1), (), 1, False)
    if not unit or not _ours((*ins, *outs)) or settings.get("PLAIT_TIER") == 0:
        return False
    if channels % block() or filters % block():
        return False
    tiles = n * prod(-(-size // 4) for size in out)
    pairs = channels * filters
    direct = 2 * 9 * n * prod(out) * pairs / DIRECT_FLOPS_PER_US
    products = 2 * 36 * tiles * pairs / MATMUL_FLOPS_PER_US
    return products + pairs * WEIGHT_US + tiles * (channels + filters) * TILE_US < direct


def _winograd(ins, outs, attrs):
    x, w, y = ins[0], ins[1], outs[0]
    data = blocked(4)
    if (x.layout, w.layout, y.layout) != (data, _blocked_weights(), data) or ins[2].layout:
        return None
    if attrs["add"] and ins[3].layout != data or not suits_winograd(ins, outs, attrs):
        return None
    g = conv.geometry("_conv", attrs)
    us = cost(*ins, *outs) + 2 * prod(y.shape) * x.shape[1] * 3 / FLOPS_PER_US
    return Native(
        "plk_winograd_blocked_run",
        ("plk_winograd_blocked", _blocked_fields(g, x, y, attrs) | {"pad": g.pad}),
        us,
    )


@on_cpu("_reorder", layouts=True)
def reorder_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    steps = strides(x.shape, x.layout, y.layout)
    own = None if steps is None else copy_native("plk_copy_run", StridedCopy(*steps), y, (x, y))
    if own and steps and len(collapse(*steps)[0]) < 2 or not _usable(ins):
        return own
    tags = [t.layout.encode() for t in (x, y)]
    return conv.primitive_of(
        lib.plk_dnn_reorder(len(x.shape), list(x.shape), *tags), cost(x, y) + 1
    )


# ---- CUDA ----------------------------------------------------------------------------------------


@on_cuda("_conv")
def conv_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    plan, g = cuda.conv_plan, conv.geometry("_conv", attrs)
    found = plan.activation(attrs["act"], attrs["act_attrs"])
    if found is None:
        return None
    finish = (cuda.Buffer(2), cuda.Buffer(3) if attrs["add"] else None, *found)
    w, x, y = map(cuda.Buffer, (1, 0, len(ins)))
    types = (*ins, *outs)
    return plan.run("forward", g, ins[0].shape, outs[0].shape, types, w, x, y, finish, False)
