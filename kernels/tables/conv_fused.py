"""The fused convolution, and conversions of memory layouts. On CPUs float32, with blocked channels
where these are fastest; on GPUs all float dtypes, row-major."""

from __future__ import annotations

from math import prod
from typing import Any

from ...engine import lib, settings
from .. import cuda
from ..cpu.convolve import MAX_IMAGE
from ..cpu.layout import FLOPS_PER_US, cost
from ..layouts import pieces, strides
from ..native import Native, Wanted
from ..ops import conv_fused
from ..ops.conv import Geometry
from ..record import Attrs, Operator, Type, Types
from ..shapes import contiguous
from ..spec import ITEM_BYTES
from ..strided_copies import StridedCopy
from . import conv, on_cpu, on_cuda
from .copy import copy_native
from .fused import loop_of


def block() -> int:
    """Channels of one block: as many float32 as a vector register holds."""
    return {lib.PLK_AVX512: 16, lib.PLK_AVX2: 8}.get(lib.plk_isa_best(), 4)


def blocked(ndim: int) -> str:
    """The layout of data with blocked channels, such as "aBcd8b"."""
    return f"aB{'cdefg'[: ndim - 2]}{block()}b"


def _conv_weights(g: Geometry) -> str:
    """The layout of a convolution's weights on such data; with groups they are an axis in front."""
    b = block()
    if g.groups == 1:
        return f"AB{'cd'[: len(g.kernel)]}{b}b{b}a"
    return f"aBC{'de'[: len(g.kernel)]}{b}c{b}b"


def _bias(filters: int) -> str:
    """The layout of the bias: filled up to whole blocks."""
    return f"A{block()}a" if filters % block() else ""


def _whole(n: int) -> int:
    """n channels, filled up to whole blocks."""
    return n + -n % block()


def conv_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    """Blocked channels where kernels for them are the fastest ones, else row-major arrays."""
    found = _suited(ins, outs, attrs)
    if found is None:
        return None
    _, x, w = found
    y = blocked(len(ins[0].shape))
    return Wanted((x, w, _bias(outs[0].shape[1]), y)[: len(ins)], (y,))


def _suited(ins, outs, attrs):
    """(the entry of the best kernel for blocked channels, the layouts that it needs for data and
    weights), or None."""
    g = conv.geometry("_conv", attrs)
    if conv.FORCE_PLAIN or g.channels_last or len(g.kernel) > 2:
        return None
    if any(t.dtype != "float32" or 0 in t.shape for t in (*ins, *outs)):
        return None
    data = blocked(len(ins[0].shape))
    if suits_winograd(ins, outs, attrs):
        return _winograd, data, _conv_weights(g)
    if _suits_direct(ins, outs, attrs):
        if _few_channels(ins[0], g):
            return _direct, "", f"Ab{'cd'[: len(g.kernel)]}{block()}a"
        return _direct, data, _conv_weights(g)
    if g.groups == ins[0].shape[1] == outs[0].shape[1]:
        return _depth, data, f"Abc{'de'[: len(g.kernel)]}{block()}a"
    return None


@on_cpu("_conv", layouts=True)
def fused_conv_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not any(t.layout for t in (*ins, *outs)):
        call = conv.Call(conv.geometry("_conv", attrs), ins[0].shape, outs[0].shape)
        return conv.native_of(
            lib.PLK_CONV_FORWARD,
            call,
            (*ins, *outs),
            bias=True,
            add=attrs["add"],
            w_last=False,
            **act_fields(attrs),
        )
    found = _suited(ins, outs, attrs)
    if found is None:
        return None
    entry, x, w = found
    y = blocked(len(ins[0].shape))
    wanted = (x, w, _bias(outs[0].shape[1]), y)[: len(ins)]
    if tuple(t.layout for t in ins) != wanted or outs[0].layout != y:
        return None
    return entry(conv.geometry("_conv", attrs), ins, outs, attrs)


MOST_COPIED_BYTES = 2 << 20  # the rows of windows that are copied


def _suits_direct(ins, outs, attrs) -> bool:
    """Does conv_blocked.c compute this `_conv`?"""
    g = conv.geometry("_conv", attrs)
    x, y = ins[0], outs[0]
    if g.groups > 1 and (x.shape[1] // g.groups % block() or y.shape[1] // g.groups % block()):
        return False
    if _whole(x.shape[1]) * prod(x.shape[2:]) > MAX_IMAGE:
        return False
    # the rows of a window are copied, and the padding is multiplied too
    width = (y.shape[-1] - 1) * g.stride[-1] + g.reach[-1]
    rows = g.reach[0] if len(g.kernel) == 2 else 1
    copied = x.shape[1] * rows * width * ITEM_BYTES["float32"]
    return copied <= MOST_COPIED_BYTES or not any(g.pad) and {*g.kernel, *g.stride} == {1}


def _few_channels(x: Type, g: Geometry) -> bool:
    """Is a row-major image read as it is?"""
    return not x.layout and g.groups == 1 and x.shape[1] < block()


def _direct(g, ins, outs, attrs):
    x, y = ins[0], outs[0]
    fields = {
        **_blocked_fields(g, x, y, attrs),
        "x_lanes": block() if x.layout else 1,
        "rectify": rectify(attrs),
    }
    return Native("plk_conv_blocked_run", ("plk_conv_blocked", fields), _us(g, ins, outs))


def rectify(attrs: Attrs) -> int:
    """The activation, if the kernel can apply it before it stores a tile."""
    if attrs["act"] == "clip":
        return lib.PLK_CLIP
    found = conv_fused.activation(attrs["act"], attrs["act_attrs"])
    named = found and (attrs["act"], found[1].get("act_type"))
    return lib.PLK_RELU if named in (("relu", None), ("Activation", "relu")) else 0


def _depth(g, ins, outs, attrs):
    fields = _blocked_fields(g, ins[0], outs[0], attrs)
    fields |= {"channels": fields["filters"], "rectify": rectify(attrs)}
    return Native("plk_conv_depth_run", ("plk_conv_blocked", fields), _us(g, ins, outs))


def _us(g, ins, outs) -> float:
    """Estimated microseconds on one core."""
    products = prod(outs[0].shape) * ins[0].shape[1] // g.groups * prod(g.kernel)
    return cost(*ins, *outs) + 2 * products / FLOPS_PER_US


def _blocked_fields(g, x, y, attrs):
    """The parameters of our own kernels for blocked channels; one dimension is a row of two."""
    one = (1,) * (2 - len(g.kernel))
    return {
        "lanes": block(),
        "n": x.shape[0],
        "channels": x.shape[1],
        "filters": _whole(y.shape[1]),
        "groups": g.groups,
        "size": (*one, *x.shape[2:]),
        "out": (*one, *y.shape[2:]),
        **{k: (*one, *getattr(g, k)) for k in ("kernel", "stride", "dilate")},
        "pad": (*(0,) * len(one), *g.pad),
        "add": attrs["add"],
        **act_fields(attrs),
    }


def act_fields(attrs: Attrs) -> dict[str, Any]:
    found = conv_fused.activation(attrs["act"], attrs["act_attrs"])
    if not found:
        return {}
    made = loop_of(*found)
    assert made is not None  # activations are generated loops too
    loop, scalars = made
    return {"act": {"loop": loop, "scalars": scalars}}


# ---- Winograd ------------------------------------------------------------------------------------

# in multiply-adds: transforms of the weights of one channel and filter, and of one tile and channel
# or filter. Both run as fast as vectors are wide, as products do, so they hold for each machine.
WEIGHT, TILE = 255, 170


def winograd_work(ins: Types, outs: Types) -> tuple[float, float]:
    """Multiply-adds of a `_conv` with 3 x 3 windows: (Winograd's algorithm, direct)."""
    channels = ins[0].shape[1]
    n, filters, *out = outs[0].shape
    tiles = n * prod(-(-size // 4) for size in out)
    pairs = channels * filters
    transforms = WEIGHT * pairs + TILE * tiles * (channels + filters)
    return 36 * tiles * pairs + transforms, 9 * n * prod(out) * pairs


def suits_winograd(ins: Types, outs: Types, attrs: Attrs) -> bool:
    """Is Winograd the fastest algorithm for a `_conv`?"""
    g = conv.geometry("_conv", attrs)
    channels, filters = ins[0].shape[1], outs[0].shape[1]
    unit = g._replace(pad=()) == Geometry((3, 3), (1, 1), (1, 1), (), 1, False)
    if not unit or settings.get("PLAIT_TIER") == 0 or channels % block() or filters % block():
        return False
    winograd, direct = winograd_work(ins, outs)
    return winograd < direct


def _winograd(g, ins, outs, attrs):
    x, y = ins[0], outs[0]
    us = cost(*ins, *outs) + 2 * prod(y.shape) * x.shape[1] * 3 / FLOPS_PER_US
    fields = _blocked_fields(g, x, y, attrs)
    return Native("plk_winograd_blocked_run", ("plk_conv_blocked", fields), us)


@on_cpu("_reorder", layouts=True)
def reorder_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if steps := strides(x.shape, x.layout, y.layout):
        return copy_native("plk_copy_run", StridedCopy(*steps), y, (x, y))
    if x.dtype != "float32" or x.layout and y.layout:
        return None
    found, at = pieces(x.shape, x.layout or y.layout), contiguous(x.shape)
    fields = {
        "back": bool(x.layout),
        "ndim": len(found),
        "axis": [p.axis for p in found],
        "shape": [p.size for p in found],
        "unit": [p.unit for p in found],
        "limit": [x.shape[p.axis] for p in found],
        "step": [p.unit * at[p.axis] for p in found],
    }
    return Native("plk_block_run", ("plk_block", fields), cost(x, y) + 1)


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
