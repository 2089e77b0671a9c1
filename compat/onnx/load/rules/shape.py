"""Operators that move elements, and those that compute with shapes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...types import DTYPES
from ..run import MAX_ELEMENTS, MAX_KNOWN, Call, dtype_of, rule


def axis_of(c: Call, axis: int, n: int) -> int:
    if not -n <= axis < max(n, 1):
        raise c.fail(f"axis must be -{n} to {n - 1}, got {axis}")
    return axis % n if n else 0


def checked(c: Call, shape: Any) -> tuple[int, ...]:
    """A shape computed by a graph. Raises OnnxError where no array can have it."""
    found = tuple(int(n) for n in np.asarray(shape).reshape(-1))
    if any(n < 0 for n in found) or prod(found) > MAX_ELEMENTS:
        raise c.fail(f"no array can have the shape {found}")
    return found


@rule("Shape", raw=True)
def shape(c: Call, x: Any) -> Any:
    return np.array(x.shape[slice(c("start", 0), c("end"))], np.int64)


@rule("Size", raw=True)
def size(c: Call, x: Any) -> Any:
    return np.array(prod(x.shape), np.int64)


@rule("Reshape", static=(1,))
def reshape(c: Call, x: Any, to: Any) -> Any:
    target = [int(n) for n in to.reshape(-1)]
    if not c("allowzero", 0):
        if any(n == 0 and i >= len(x.shape) for i, n in enumerate(target)):
            raise c.fail(f"has no dimension to copy: {tuple(x.shape)} to {target}")
        target = [x.shape[i] if n == 0 else n for i, n in enumerate(target)]
    size, rest = prod(x.shape), prod(n for n in target if n != -1)
    if target.count(-1) > 1 or any(n < -1 for n in target):
        raise c.fail(f"the shape {target} must have one -1 at most, and no other negative")
    if -1 in target:
        if rest == 0 or size % rest:
            raise c.fail(f"{tuple(x.shape)} cannot become {target}")
        target[target.index(-1)] = size // rest
    if prod(target) != size:
        raise c.fail(f"{tuple(x.shape)} cannot become {target}")
    return reshaped(c, x, target)


def reshaped(c: Call, x: Any, target: Any) -> Any:
    """x in a shape, written so that the graph serves other batch sizes, too."""
    target = list(target)
    if tuple(target) == tuple(x.shape):
        return x
    if target and x.shape and target[0] == x.shape[0] and prod(target):
        target[0] = -1
    return c.np.reshape(x, tuple(target))


@rule("Flatten")
def flatten(c: Call, x: Any) -> Any:
    axis = c("axis", 1)
    axis += len(x.shape) if axis < 0 else 0
    return reshaped(c, x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def _axes(c: Call, axes: Any, n: int) -> list[int]:
    return [axis_of(c, int(a), n) for a in np.asarray(axes).reshape(-1)]


@rule("Squeeze", static=(1,))
def squeeze(c: Call, x: Any, axes: Any = None) -> Any:
    n = len(x.shape)
    drop = [i for i in range(n) if x.shape[i] == 1] if axes is None else _axes(c, axes, n)
    if any(x.shape[i] != 1 for i in drop):
        raise c.fail(f"axes {drop} of {tuple(x.shape)} must have size 1")
    return c.np.squeeze(x, axis=tuple(drop)) if drop else x


@rule("Unsqueeze", static=(1,))
def unsqueeze(c: Call, x: Any, axes: Any) -> Any:
    n = len(x.shape) + np.asarray(axes).size
    for axis in sorted(_axes(c, axes, n)):
        x = c.np.expand_dims(x, axis)
    return x


@rule("Transpose")
def transpose(c: Call, x: Any) -> Any:
    n = len(x.shape)
    perm = c("perm", list(range(n))[::-1])
    return x if list(perm) == list(range(n)) else c.np.transpose(x, tuple(perm))


@rule("Concat")
def concat(c: Call, *xs: Any) -> Any:
    axis = axis_of(c, c("axis", 1), len(xs[0].shape))
    some = [x for x in xs if prod(x.shape)]  # parts without elements add none
    if not some:
        out = list(xs[0].shape)
        out[axis] = sum(x.shape[axis] for x in xs)
        return c.np.zeros(tuple(out), dtype=dtype_of(xs[0]))
    return some[0] if len(some) == 1 else c.np.concatenate(some, axis=axis)


@rule("Split", static=(1,))
def split(c: Call, x: Any, sizes: Any = None) -> Any:
    axis = axis_of(c, c("axis", 0), len(x.shape))
    n = x.shape[axis]
    if sizes is None:
        parts = c("num_outputs", c.n_outputs)
        each = -(-n // parts)
        sizes = [max(0, min(each, n - i * each)) for i in range(parts)]
    elif int(sum(sizes)) != n:
        raise c.fail(f"the sizes {list(sizes)} must add up to {n}")
    ends = np.cumsum([0, *sizes])
    return tuple(sliced(c, x, axis, int(a), int(b)) for a, b in zip(ends, ends[1:]))


def sliced(c: Call, x: Any, axis: int, start: int, stop: int) -> Any:
    """Part of an axis."""
    if start == 0 and stop == x.shape[axis]:
        return x
    if start >= stop:
        return c.np.zeros(x.shape[:axis] + (0,) + x.shape[axis + 1 :], dtype=dtype_of(x))
    return c.nn.slice_axis(x, axis=axis, begin=start, end=stop)


@rule("Slice", static=(1, 2, 3, 4))
def slice_(c: Call, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    n = len(x.shape)
    axes = list(range(len(starts))) if axes is None else _axes(c, axes, n)
    steps = [1] * len(starts) if steps is None else [int(s) for s in steps]
    if 0 in steps:
        raise c.fail("a step must not be 0")
    for axis, start, end, step in zip(axes, starts, ends, steps):
        begin, stop, step = slice(int(start), int(end), step).indices(x.shape[axis])
        if step == 1:
            x = sliced(c, x, axis, begin, max(begin, stop))
            continue
        count = len(range(begin, stop, step))
        if count == 0:
            x = sliced(c, x, axis, 0, 0)
            continue
        if step < 0:  # forwards, of the reversed axis
            x = c.np.flip(x, axis)
            size = x.shape[axis]
            begin, step = size - 1 - begin, -step
        key = [slice(None)] * n
        key[axis] = slice(begin, begin + (count - 1) * step + 1, step)
        x = x[tuple(key)]
    return x


@rule("Expand", static=(1,))
def expand(c: Call, x: Any, to: Any) -> Any:
    target = np.broadcast_shapes(tuple(x.shape), checked(c, to))
    checked(c, target)
    return x if target == tuple(x.shape) else c.np.broadcast_to(x, target)


@rule("Tile", static=(1,))
def tile(c: Call, x: Any, repeats: Any) -> Any:
    times = tuple(int(n) for n in repeats)
    checked(c, [n * t for n, t in zip(x.shape, times)])
    return c.np.tile(x, times)


@rule("ConstantOfShape", static=(0,), folds=False)
def constant_of_shape(c: Call, to: Any) -> Any:
    value = np.asarray(c("value", np.zeros(1, np.float32))).reshape(-1)
    target = checked(c, to)
    if prod(target) <= MAX_KNOWN:
        return np.full(target, value[0], value.dtype)
    return c.np.full(target, value[0].item(), dtype=dtype_of(value))


@rule("Range", static=(0, 1, 2), folds=False)
def range_(c: Call, start: Any, limit: Any, delta: Any) -> Any:
    a, b, step = start.item(), limit.item(), delta.item()
    if step == 0:
        raise c.fail("delta must not be 0")
    n = max(0, int(np.ceil((b - a) / step)))
    checked(c, [n])
    return (np.arange(n) * step + a).astype(start.dtype)


@rule("EyeLike", raw=True)
def eye_like(c: Call, x: Any) -> Any:
    dtype = DTYPES[c("dtype")] if c("dtype") else dtype_of(x)
    rows, columns = x.shape
    return np.eye(rows, columns, c("k", 0), dtype=dtype)


@rule("DepthToSpace")
def depth_to_space(c: Call, x: Any) -> Any:
    n, depth, h, w = x.shape
    b = c("blocksize")
    if c("mode", "DCR") == "DCR":
        x = c.np.transpose(c.np.reshape(x, (n, b, b, depth // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = c.np.transpose(c.np.reshape(x, (n, depth // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return c.np.reshape(x, (n, depth // (b * b), h * b, w * b))


@rule("SpaceToDepth")
def space_to_depth(c: Call, x: Any) -> Any:
    n, depth, h, w = x.shape
    b = c("blocksize")
    x = c.np.transpose(c.np.reshape(x, (n, depth, h // b, b, w // b, b)), (0, 3, 5, 1, 2, 4))
    return c.np.reshape(x, (n, depth * b * b, h // b, w // b))


PAD_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}


@rule("Pad", static=(1, 2, 3))
def pad(c: Call, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    n, mode = len(x.shape), c("mode", "constant")
    at = list(range(n)) if axes is None else _axes(c, axes, n)
    widths = [(0, 0)] * n
    for i, axis in enumerate(at):
        widths[axis] = (int(pads[i]), int(pads[i + len(at)]))
    checked(c, [max(0, d) + abs(a) + abs(b) for d, (a, b) in zip(x.shape, widths)])
    for axis, (before, after) in enumerate(widths):  # negative: cut
        if before < 0 or after < 0:
            x = sliced(c, x, axis, max(0, -before), x.shape[axis] - max(0, -after))
    widths = [(max(0, a), max(0, b)) for a, b in widths]
    if mode not in PAD_MODES:
        raise c.fail(f"mode must be one of {', '.join(PAD_MODES)}, got {mode!r}")
    return padded(c, x, widths, mode, 0 if value is None else value.item())


def padded(c: Call, x: Any, widths: Any, mode: str = "constant", value: float = 0) -> Any:
    """x with more elements at the ends of its axes."""
    if not any(a or b for a, b in widths):
        return x
    if mode == "constant":
        if dtype_of(x) == "bool":
            value = bool(value)
        return c.np.pad(x, widths, "constant", constant_values=value)
    for axis, (before, after) in enumerate(widths):  # by places, so that any width works
        if before or after:
            n = x.shape[axis]
            if n == 0:
                raise c.fail(f"axis {axis} has no elements to pad with")
            places = np.pad(np.arange(n), (before, after), mode)  # type: ignore[call-overload]
            x = c.np.take(x, c.array(places.astype(np.int64)), axis=axis)
    return x


@rule("Trilu", static=(1,))
def trilu(c: Call, x: Any, k: Any = None) -> Any:
    rows, columns = x.shape[-2:]
    keep = np.ones((rows, columns), bool)
    k = 0 if k is None else int(k.item())
    keep = np.triu(keep, k) if c("upper", 1) else np.tril(keep, k)
    if 0 in x.shape:
        return x
    return c.np.where(c.array(keep), x, c.np.zeros_like(x))


@rule("CenterCropPad", static=(1,))
def center_crop_pad(c: Call, x: Any, to: Any) -> Any:
    axes = _axes(c, c("axes", range(len(x.shape))), len(x.shape))
    widths = [(0, 0)] * len(x.shape)
    for axis, n in zip(axes, checked(c, to)):
        extra = n - x.shape[axis]
        if extra < 0:
            start = -extra // 2
            x = sliced(c, x, axis, start, start + n)
        else:
            widths[axis] = (extra // 2, extra - extra // 2)
    return padded(c, x, widths)
