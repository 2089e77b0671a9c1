"""Pooling: float32, and maxima of bytes, on CPUs; all floats on GPUs."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ...engine import lib
from .. import cuda
from ..cpu.layout import cost
from ..native import Native
from ..ops.pool import windows
from ..record import FLOATS, Attrs, Operator, Shape, Types
from ..spec import ITEM_BYTES
from . import on_cpu, on_cuda

KINDS = {"max": lib.PLK_POOL_MAX, "avg": lib.PLK_POOL_AVG, "sum": lib.PLK_POOL_SUM}
BOX = {
    "size": 1,
    "kernel": 1,
    "stride": 1,
    "pad": 0,
    "out": 1,
}  # for axes that the data does not have
GEOMETRY = ("kernel", "pool_type", "global_pool", "pooling_convention", "stride", "pad", "layout")
BYTES = ("int8", "uint8")
LARGE = 64  # window elements that a warp reads at once


class Call(NamedTuple):
    """Pooling of `planes` arrays (*space, inner). box: the sizes named in BOX, for three axes."""

    planes: int
    inner: int
    box: dict[str, tuple[int, ...]]
    count_pad: bool
    channels_last: bool

    def n(self, of: str) -> int:
        """The number of elements of all planes: of the data ("size") or of the results ("out")."""
        return self.planes * self.inner * prod(self.box[of])


def _call(attrs, shape, planes: int | None = None, inner: int = 1) -> Call:
    """shape: of the data, in the attributes' layout; planes: if not batch x channels."""
    w = windows(shape, **{k: attrs[k] for k in GEOMETRY})
    if planes is None:
        planes, inner = (shape[0], shape[-1]) if w.channels_last else (shape[0] * shape[1], 1)
    fill = 3 - len(w.size)
    box = {k: (default,) * fill + tuple(getattr(w, k)) for k, default in BOX.items()}
    return Call(planes, inner, box, attrs["count_include_pad"] is not False, w.channels_last)


# ---- CPU -----------------------------------------------------------------------------------------


def _on_cpu(function: str, attrs, call: Call, types) -> Native | None:
    kind, dtype = KINDS.get(attrs["pool_type"]), types[0].dtype
    if kind is None or any(t.dtype != dtype for t in types) or 0 in call.box["size"]:
        return None
    if dtype in BYTES and attrs["pool_type"] == "max" and function != "plk_pool_backward":
        function = f"plk_pool_{dtype}"
    elif dtype != "float32" or call.inner == 0:
        return None
    fields = {"planes": call.planes, "inner": call.inner, "kind": kind, **call.box}
    us = cost(*types, steps=call.n("size") + call.n("out"))
    return Native(function, ("plk_pool", fields | {"count_pad": call.count_pad}), us)


def channels_last(
    attrs: Attrs, shape: Shape, images: int, channels: int, types: Types
) -> Native | None:
    """Forward pooling of `images` arrays (*space, channels); shape: of the data, in the
    attributes' layout."""
    return _on_cpu("plk_pool_last", attrs, _call(attrs, shape, images, channels), types)


@on_cpu("Pooling")
def pool_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = _call(attrs, ins[0].shape)
    function = "plk_pool_last" if call.channels_last else "plk_pool_run"
    return _on_cpu(function, attrs, call, (*ins, *outs))


@on_cpu("_pool_grad")
def pool_grad_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu("plk_pool_backward", attrs, _call(attrs, attrs["data_shape"]), (*ins, *outs))


# ---- CUDA ----------------------------------------------------------------------------------------


def _same(types) -> bool:
    return types[0].dtype in FLOATS and all(t.dtype == types[0].dtype for t in types)


def _usable(call: Call, types) -> bool:
    numbers = (call.planes, call.inner, prod(call.box["size"]), prod(call.box["out"]))
    return _same(types) and 0 not in call.box["size"] and max(numbers) < 1 << 31


def _launch(function: str, n: int, arguments):
    return cuda.Launch("pool.cu", function, cuda.grid_of(n), (cuda.THREADS,), arguments)


def _struct(call: Call, power: int | None = 0):
    """The struct Pool of pool.cu."""
    boxes = ([cuda.Int32(i) for i in sizes] for sizes in call.box.values())
    sizes = map(cuda.Int32, (call.planes, call.inner))
    return cuda.Struct(*sizes, *boxes, cuda.Int32(call.count_pad), cuda.Int32(power or 0))


def _lanes(call: Call) -> int:
    return 32 if prod(call.box["kernel"]) >= LARGE and not call.channels_last else 1


def _forward(attrs, kind: str, ins, outs, arrays, power=0):
    call = _call(attrs, ins[0].shape)
    if not _usable(call, (*ins, *outs)):
        return None
    lanes = _lanes(call)
    name = f"pool<{cuda.TYPES[ins[0].dtype]}, POOL_{kind.upper()}, {lanes}>"
    return cuda.launches(_launch(name, call.n("out") * lanes, [*arrays, _struct(call, power)]))


@on_cuda("Pooling")
def pool_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    arrays = [cuda.Buffer(0), cuda.NOWHERE, cuda.Buffer(1)]
    return _forward(attrs, attrs["pool_type"], ins, outs, arrays, attrs["p_value"])


@on_cuda("_pool_pick")
def pool_pick_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _forward({**attrs, "pool_type": "max"}, "max", ins, outs, map(cuda.Buffer, range(3)))


@on_cuda("_pool_grad")
def pool_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = _call(attrs, attrs["data_shape"])
    if not _usable(call, (*ins, *outs)):
        return None
    dtype, at, struct, box = cuda.TYPES[ins[0].dtype], len(ins), _struct(call), call.box
    apart = all(k <= s or o == 1 for k, s, o in zip(box["kernel"], box["stride"], box["out"]))
    if attrs["pool_type"] == "max" and apart:
        lanes = _lanes(call)
        arguments = [*map(cuda.Buffer, range(3)), struct]
        return cuda.launches(
            cuda.Fill(cuda.Buffer(2), call.n("size") * ITEM_BYTES[ins[0].dtype]),
            _launch(f"pool_scatter<{dtype}, {lanes}>", call.n("out") * lanes, arguments),
        )
    name = f"pool_gather<{dtype}, POOL_{attrs['pool_type'].upper()}>"
    second = cuda.Buffer(1) if at > 1 else cuda.NOWHERE
    arguments = [cuda.Buffer(0), second, cuda.Buffer(at), struct]
    return cuda.launches(_launch(name, call.n("size"), arguments))


def _adaptive(function, data, result, dtype, n_threads):
    (n, c, h, w), (out_h, out_w) = data, result[2:]
    sizes = [cuda.Int64(n * c), *map(cuda.Int32, (h, w, out_h, out_w))]
    arguments = [cuda.Buffer(0), cuda.Buffer(1), *sizes]
    return cuda.launches(_launch(f"{function}<{cuda.TYPES[dtype]}>", n_threads, arguments))


@on_cuda("_contrib_AdaptiveAvgPooling2D")
def adaptive_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, y = ins[0], outs[0]
    if not _same((x, y)):
        return None
    return _adaptive("adaptive", x.shape, y.shape, x.dtype, prod(y.shape))


@on_cuda("_adaptive_avg_pool_grad")
def adaptive_grad_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dy, dx = ins[0], outs[0]
    if not _same((dy, dx)):
        return None
    return _adaptive("adaptive_backward", dx.shape, dy.shape, dy.dtype, prod(dx.shape))
