"""Entries of pooling."""

from __future__ import annotations

from math import prod

from ..ops.pool import windows
from ..spec import ITEM_BYTES
from .launch import Buffer, Fill, Int32, Int64, Launch, Struct, launches
from .layout import TYPES
from .matmul_plan import FLOATS, NOWHERE, grid_of
from .table import native

KINDS = {"max": "POOL_MAX", "avg": "POOL_AVG", "sum": "POOL_SUM", "lp": "POOL_LP"}
LARGE = 64  # elements of a window that a warp reads together
GEOMETRY = ("kernel", "pool_type", "global_pool", "pooling_convention", "stride", "pad", "layout")


def _pool(attrs, shape, power=0) -> tuple | None:
    """(windows, the struct Pool, elements of data, of outputs); None: no kernel."""
    w = windows(shape, **{k: attrs[k] for k in GEOMETRY})
    planes, inner = (shape[0], shape[-1]) if w.channels_last else (shape[0] * shape[1], 1)
    if 0 in w.size or max(planes, inner, prod(w.size), prod(w.out)) >= 1 << 31:
        return None
    fill = 3 - len(w.size)
    box = {"size": 1, "kernel": 1, "stride": 1, "pad": 0, "out": 1}
    full = {k: (default,) * fill + tuple(getattr(w, k)) for k, default in box.items()}
    struct = Struct(
        *map(Int32, (planes, inner)),
        *([Int32(i) for i in full[k]] for k in ("size", "kernel", "stride", "pad", "out")),
        Int32(attrs["count_include_pad"] is not False),
        Int32(power or 0),
    )
    return w, struct, planes * inner * prod(w.size), planes * inner * prod(w.out)


def _lanes(w) -> int:
    return 32 if prod(w.kernel) >= LARGE and not w.channels_last else 1


def _same(types) -> bool:
    return types[0].dtype in FLOATS and all(t.dtype == types[0].dtype for t in types)


def _forward(attrs, shape, dtype, kind, arrays, power=0):
    found = _pool(attrs, shape, power)
    if found is None:
        return None
    w, struct, _, n = found
    lanes = _lanes(w)
    name = f"pool<{TYPES[dtype]}, {kind}, {lanes}>"
    grid = grid_of(n * lanes)
    return launches(Launch("pool.cu", name, grid, (256,), [*arrays, struct]))


@native("Pooling")
def pool_entry(op, ins, outs, attrs):
    if not _same((*ins, *outs)):
        return None
    arrays = [Buffer(0), NOWHERE, Buffer(1)]
    kind, power = KINDS[attrs["pool_type"]], attrs["p_value"]
    return _forward(attrs, ins[0].shape, ins[0].dtype, kind, arrays, power)


@native("_pool_pick")
def pool_pick_entry(op, ins, outs, attrs):
    if not _same((*ins, *outs)):
        return None
    arrays = [*map(Buffer, range(3))]
    attrs = {**attrs, "pool_type": "max"}
    return _forward(attrs, ins[0].shape, ins[0].dtype, "POOL_MAX", arrays)


@native("_pool_grad")
def pool_grad_entry(op, ins, outs, attrs):
    found = _pool(attrs, attrs["data_shape"])
    if not _same((*ins, *outs)) or found is None:
        return None
    w, struct, n_in, n_out = found
    dtype, at = TYPES[ins[0].dtype], len(ins)
    apart = all(k <= s or o == 1 for k, s, o in zip(w.kernel, w.stride, w.out))
    if attrs["pool_type"] == "max" and apart:
        lanes, arrays = _lanes(w), [*map(Buffer, range(3))]
        name = f"pool_scatter<{dtype}, {lanes}>"
        grid = grid_of(n_out * lanes)
        return launches(
            Fill(Buffer(2), n_in * ITEM_BYTES[ins[0].dtype]),
            Launch("pool.cu", name, grid, (256,), [*arrays, struct]),
        )
    name = f"pool_gather<{dtype}, {KINDS[attrs['pool_type']]}>"
    arrays = [Buffer(0), Buffer(1) if at > 1 else NOWHERE, Buffer(at), struct]
    return launches(Launch("pool.cu", name, grid_of(n_in), (256,), arrays))


def _adaptive(function, data, result, types):
    (n, c, h, w), (out_h, out_w) = data, result[2:]
    n_threads = n * c * (h * w if function == "adaptive_backward" else out_h * out_w)
    sizes = [Int64(n * c), *map(Int32, (h, w, out_h, out_w))]
    name = f"{function}<{TYPES[types[0].dtype]}>"
    arguments = [Buffer(0), Buffer(1), *sizes]
    return launches(Launch("pool.cu", name, grid_of(n_threads), (256,), arguments))


@native("_contrib_AdaptiveAvgPooling2D")
def adaptive_entry(op, ins, outs, attrs):
    if not _same((*ins, *outs)):
        return None
    return _adaptive("adaptive", ins[0].shape, outs[0].shape, ins)


@native("_adaptive_avg_pool_grad")
def adaptive_grad_entry(op, ins, outs, attrs):
    if not _same((*ins, *outs)):
        return None
    return _adaptive("adaptive_backward", outs[0].shape, ins[0].shape, ins)
