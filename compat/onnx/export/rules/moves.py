"""Operators that move elements: indices, padding, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import FUNCTIONS, filled, gather
from ..graph import Dim, Graph, Unmapped
from ..rule import rule
from ..tensors import Tensor
from .activations import _range


def bounded(g: Graph, at: Tensor, n: int, mode: str) -> Tensor:
    """Indices of an axis of n elements: clipped, wrapped around, or as they are."""
    at = g.cast(at, "int64")
    if mode == "wrap":
        return g.Mod(at, g.tensor(n) if isinstance(n, Dim) else np.int64(max(n, 1)))
    if mode == "clip":
        last = g.tensor(n - 1) if isinstance(n, Dim) else np.int64(max(n - 1, 0))
        return g.Clip(at, np.int64(0), last)
    return at


@rule("take")
def take(g: Graph, x: Tensor, indices: Tensor, *, axis: int, mode: str) -> Tensor:
    axis %= x.ndim
    return gather(g, x, bounded(g, indices, x.shape[axis], mode), axis)


@rule("pick")
def pick(
    g: Graph, x: Tensor, index: Tensor, *, axis: int | None, keepdims: bool, mode: str
) -> Tensor:
    if axis is None:
        x, axis = g.reshape(x, (-1,)), 0
    axis %= x.ndim
    at = bounded(g, index, x.shape[axis], mode)
    wide = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    made = g.GatherElements(x, g.reshape(at, wide), axis=axis, shape=wide)
    return g.reshape(made, g.outs[0].shape)


@rule("one_hot")
def one_hot(
    g: Graph, indices: Tensor, *, depth: int, on_value: float, off_value: float, **_: Any
) -> Tensor:
    places = g.tensor(np.arange(depth))
    hit = g.Equal(
        g.unsqueeze(g.cast(indices, "int64"), [-1]), places, shape=(*indices.shape, depth),
        dtype="bool",
    )  # fmt: skip
    dtype = g.outs[0].dtype
    return g.where(
        hit, g.tensor(np.asarray(on_value, dtype)), g.tensor(np.asarray(off_value, dtype))
    )


@rule("gather_nd")
def gather_nd(g: Graph, x: Tensor, indices: Tensor) -> Tensor:
    at = g.transpose(g.cast(indices, "int64"), [*range(1, indices.ndim), 0])
    return g.GatherND(x, at, shape=g.outs[0].shape)


@rule("scatter_nd")
def scatter_nd(g: Graph, x: Tensor, indices: Tensor, *, shape: Any) -> Tensor:
    at = g.transpose(g.cast(indices, "int64"), [*range(1, indices.ndim), 0])
    return g.ScatterND(filled(g, shape, 0, x.dtype), at, x)


@rule("_backward_gather_nd")
def scatter_add(g: Graph, x: Tensor, indices: Tensor, *, shape: Any) -> Tensor:
    g.need(16, "ScatterND with reduction=add")
    at = g.transpose(g.cast(indices, "int64"), [*range(1, indices.ndim), 0])
    return g.ScatterND(filled(g, shape, 0, x.dtype), at, x, reduction="add")


@rule("Pad")
def pad(g: Graph, x: Tensor, *, mode: str, pad_width: Any, constant_value: float) -> Tensor:
    width = np.array(pad_width, np.int64).reshape(-1, 2).T.reshape(-1)
    value = g.tensor(np.asarray(constant_value, x.dtype)) if mode == "constant" else None
    return g.Pad(x, width, value, mode=mode, shape=g.outs[0].shape)


@rule("depth_to_space")
def depth_to_space(g: Graph, x: Tensor, *, block_size: int) -> Tensor:
    return g.DepthToSpace(x, blocksize=block_size, mode="DCR", shape=g.outs[0].shape)


@rule("space_to_depth")
def space_to_depth(g: Graph, x: Tensor, *, block_size: int) -> Tensor:
    return g.SpaceToDepth(x, blocksize=block_size, shape=g.outs[0].shape)


@rule("reshape_like")
def reshape_like(g: Graph, x: Tensor, like: Tensor, **_: Any) -> Tensor:
    return g.reshape(x, g.outs[0].shape) if not _varies(g) else _reshaped(g, x, like, **_)


def _varies(g: Graph) -> bool:
    return any(isinstance(n, Dim) for n in g.outs[0].shape)


def _reshaped(
    g: Graph, x: Tensor, like: Tensor, *, lhs_begin: Any, lhs_end: Any, rhs_begin: Any, rhs_end: Any
) -> Tensor:
    def span(t: Tensor, a: Any, b: Any) -> tuple[int, int]:
        return (0 if a is None else a % (t.ndim + 1)), (t.ndim if b is None else b % (t.ndim + 1))

    a, b = span(x, lhs_begin, lhs_end)
    c, d = span(like, rhs_begin, rhs_end)
    return g.reshape(x, [*x.shape[:a], *like.shape[c:d], *x.shape[b:]])


@rule("reshape_to")
def reshape_to(g: Graph, x: Tensor, *, shape: Any) -> Tensor:
    varying = [i for i, n in enumerate(g.outs[0].shape) if isinstance(n, Dim)]
    if len(varying) == 1 and -1 not in shape:  # a size that follows from the others
        return g.reshape(x, [-1 if i in varying else int(n) for i, n in enumerate(shape)])
    return g.reshape(x, g.outs[0].shape)


@rule("broadcast_like", "slice_like")
def like(g: Graph, x: Tensor, other: Tensor, **attrs: Any) -> Tensor:
    if not _varies(g):
        return g.converter.by_reference(g, x, other, **attrs)
    if "axes" in attrs:
        axes = [a % x.ndim for a in attrs["axes"] or range(min(x.ndim, other.ndim))]
        ends = [other.shape[a] for a in axes]
        shape = [other.shape[i] if i in axes else n for i, n in enumerate(x.shape)]
        return g.slice(x, [0] * len(axes), ends, axes, shape=shape)
    left, right = attrs["lhs_axes"], attrs["rhs_axes"]
    shape = list(other.shape) if left is None else list(x.shape)
    for a, b in zip(left or (), right or ()):
        shape[a] = other.shape[b]
    return g.expand(x, shape)


@rule("broadcast_to", "broadcast_axis")
def broadcast_to(g: Graph, x: Tensor, **_: Any) -> Tensor:
    out = g.outs[0].shape
    own = [1] * (len(out) - x.ndim) + list(x.shape)
    return g.expand(x, [a if isinstance(a, Dim) and a == b else b for a, b in zip(own, out)])


@rule("_zeros", "_ones", "_full", "_zeros_without_dtype")
def constant(g: Graph, *, value: float = 0.0, **_: Any) -> Tensor:
    one = g.call.operation.name == "_ones"
    return filled(g, g.outs[0].shape, 1 if one else value, g.outs[0].dtype)


@rule("zeros_like", "ones_like")
def constant_like(g: Graph, x: Tensor, **_: Any) -> Tensor:
    return filled(g, x.shape, int(g.call.operation.name == "ones_like"), g.outs[0].dtype)


@rule("shape_array")
def shape_array(g: Graph, x: Tensor) -> Tensor:
    return g.sizes(x.shape)


@rule("size_array")
def size_array(g: Graph, x: Tensor) -> Tensor:
    return g.Size(x, shape=(), dtype="int64").reshape((1,))


@rule("_contrib_arange_like")
def arange_like(
    g: Graph, x: Tensor, *, start: float, step: float, repeat: int, axis: Any, **_: Any
) -> Tensor:
    if not _varies(g) or repeat != 1 or axis is None:
        if _varies(g):
            raise Unmapped("a range over several axes of varying size")
        return g.converter.by_reference(g, x, start=start, step=step, repeat=repeat, axis=axis, **_)
    return g.cast(_range(g, x.shape[axis]), g.outs[0].dtype) * step + start


@rule("_arange", "_linspace", "_eye")
def made_now(g: Graph, **attrs: Any) -> Tensor:
    """What depends on attributes only is computed when the file is written."""
    return g.constant(np.asarray(g.call.operation.ref(np, **attrs)))


@rule("SequenceMask")
def sequence_mask(
    g: Graph, x: Tensor, length: Tensor | None = None, *, axis: int, value: float, **_: Any
) -> Tensor:
    if length is None:
        return x
    places = _range(g, x.shape[axis])
    counts = g.cast(length, "int64")
    inside = g.unsqueeze(places, [1]) < counts if axis == 0 else places < g.unsqueeze(counts, [1])
    return g.where(g.unsqueeze(inside, range(2, x.ndim)), x, value)


@rule("SequenceLast")
def sequence_last(
    g: Graph, x: Tensor, length: Tensor | None = None, *, axis: int, **_: Any
) -> Tensor:
    rows = g.transpose(x, [1, 0, *range(2, x.ndim)]) if axis == 0 else x  # (batch, time, ...)
    if length is None:
        return g.Gather(rows, np.int64(-1), axis=1, shape=(rows.shape[0], *rows.shape[2:]))
    at = g.unsqueeze(g.cast(length, "int64") - np.int64(1), [1])
    return g.GatherND(rows, at, batch_dims=1, shape=(rows.shape[0], *rows.shape[2:]))


@rule("SequenceReverse")
def sequence_reverse(
    g: Graph, x: Tensor, length: Tensor | None = None, *, axis: int = 0, **_: Any
) -> Tensor:
    if length is None:
        return FUNCTIONS["flip"](g, x, 0)
    return g.ReverseSequence(x, g.cast(length, "int64"), time_axis=0, batch_axis=1)


@rule("_rnn_param_concat")
def joined(g: Graph, *xs: Tensor, dim: int = 0, **_: Any) -> Tensor:
    return g.Concat(*xs, axis=dim, shape=g.outs[0].shape)


@rule("_split_v2", "SliceChannel")
def split(g: Graph, x: Tensor, *, axis: int, squeeze_axis: bool, **_: Any) -> list[Tensor]:
    axis %= x.ndim
    dropped = squeeze_axis
    at = [o.shape for o in g.outs]
    sizes = [1 if dropped else s[axis] for s in at]
    made = g.split(x, axis, [int(n) for n in sizes])
    return [g.squeeze(t, [axis]) for t in made] if dropped else made


@rule("_onehot_encode")
def onehot_encode(g: Graph, indices: Tensor, like: Tensor) -> Tensor:
    hit = g.unsqueeze(g.cast(indices, "int64"), [-1]) == g.tensor(np.arange(like.shape[1]))
    return g.cast(hit, like.dtype)


# ---- indices that references look at, to refuse those out of range -------------------------------


@rule("_take_along_axis")
def take_along_axis(g: Graph, x: Tensor, indices: Tensor, *, axis: int) -> Tensor:
    return FUNCTIONS["take_along_axis"](g, x, indices, axis)


@rule("_scatter_set_nd")
def scatter_set_nd(g: Graph, x: Tensor, values: Tensor, indices: Tensor, **_: Any) -> Tensor:
    at = g.transpose(g.cast(indices, "int64"), [*range(1, indices.ndim), 0])
    return g.ScatterND(x, at, g.cast(values, x.dtype))


@rule("_contrib_index_copy")
def index_copy(g: Graph, x: Tensor, index: Tensor, new: Tensor) -> Tensor:
    return g.ScatterND(x, g.unsqueeze(g.cast(index, "int64"), [1]), new)


@rule("_contrib_count_sketch")
def count_sketch(g: Graph, x: Tensor, h: Tensor, s: Tensor, *, out_dim: int, **_: Any) -> Tensor:
    """Sums of signed columns, as a product with a matrix of ones and zeros."""
    places = g.unsqueeze(g.reshape(g.cast(h, "int64"), (-1,)), [1])
    chosen = g.cast(places == g.tensor(np.arange(out_dim)), x.dtype)
    return (x * g.reshape(s, (-1,))) @ chosen


@rule("_contrib_fft")
def fft(g: Graph, x: Tensor, **_: Any) -> Tensor:
    """Real and imaginary parts side by side."""
    g.need(17, "DFT")
    n = x.shape[-1]
    made = _dft(g, g.unsqueeze(x, [-1]), 0)
    return g.reshape(made, (*x.shape[:-1], 2 * n))


@rule("_contrib_ifft")
def ifft(g: Graph, x: Tensor, **_: Any) -> Tensor:
    """The real part, not divided by the number of elements."""
    g.need(17, "DFT")
    n = x.shape[-1] // 2
    made = _dft(g, g.reshape(x, (*x.shape[:-1], n, 2)), 1)
    return made[..., 0] * float(n)


def _dft(g: Graph, x: Tensor, inverse: int) -> Tensor:
    shape = (*x.shape[:-1], 2)
    if g.opset >= 20:
        return g.DFT(x, None, np.int64(x.ndim - 2), inverse=inverse, shape=shape)
    return g.DFT(x, axis=x.ndim - 2, inverse=inverse, shape=shape)
