"""gluon.utils: splitting data over devices, clipping gradients, downloads (the module's name is
MXNet's)."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

from ..data.download import (  # noqa: F401
    DownloadError,
    _get_repo_file_url,
    _get_repo_url,
    check_sha1,
    download,
    replace_file,
)
from ..dist import Group, all_reduce
from ..engine import Context
from ..engine.error import InvalidValue
from ..ndarray import NDArray, functions
from ..ndarray.launch import copy_into
from ..ndarray.numpy_mode import in_mode, is_np_array, is_np_shape  # noqa: F401
from . import shard
from .hook import HookHandle  # noqa: F401
from .parameter import shape_is_known  # noqa: F401

__all__ = ["check_sha1", "clip_global_norm", "download", "split_and_load", "split_data"]


def split_data(
    data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """data cut into num_slice parts along batch_axis. Raises ValueError when parts would be uneven
    (even_split)."""
    if num_slice < 1:
        raise InvalidValue(
            f"split_data: num_slice must be at least 1, got {num_slice}\n  fix: give one or more"
            " contexts"
        )
    size = data.shape[batch_axis]
    if size < num_slice:
        raise InvalidValue(
            f"Too many slices for data with shape {data.shape}. Arguments are num_slice={num_slice}"
            f" and batch_axis={batch_axis}."
        )
    if even_split and size % num_slice:
        raise InvalidValue(
            f"data with shape {data.shape} cannot be evenly split into {num_slice} slices along"
            f" axis {batch_axis}. Use a batch size that's multiple of {num_slice} or set"
            " even_split=False to allow uneven partitioning of data."
        )
    step = size // num_slice
    if even_split or not size % num_slice:
        bounds = [i * step for i in range(num_slice + 1)]
    # the first parts are one longer, as in numpy.array_split
    else:
        extra = size - step * num_slice
        bounds = [i * (step + 1) if i < extra else i * step + extra for i in range(num_slice + 1)]
    if batch_axis == 0:
        return [data[a:b] for a, b in itertools.pairwise(bounds)]
    return [
        functions.slice_axis(data, axis=batch_axis, begin=a, end=b)
        for a, b in itertools.pairwise(bounds)
    ]


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """split_data, each part on its device."""
    if not isinstance(data, NDArray):
        data = in_mode(functions.array(data, ctx=ctx_list[0]))
    if len(ctx_list) == 1:
        return [data.as_in_context(ctx_list[0])]
    return [
        part.as_in_context(c)
        for part, c in zip(split_data(data, len(ctx_list), batch_axis, even_split), ctx_list)
    ]


def clip_global_norm(arrays: Any, max_norm: float, check_isfinite: bool = True) -> Any:
    """Scales arrays in place so that the norm of all of them together is at most max_norm. Returns
    the norm before. Of parameters that are split over ranks the norm of the whole counts: all ranks
    of their groups call this, with gradients in the same order.

    check_isfinite: waits for the norm, warns when it is not finite, and returns a float; else an
        NDArray.
    """
    if not arrays:
        raise InvalidValue("clip_global_norm: needs at least one array")
    ctx = arrays[0].context
    squares: dict[Group | None, list[NDArray]] = {}
    for a, part in zip(arrays, shard.parts(arrays)):
        square = functions.sum(functions.square(a.astype("float32", copy=False)))
        over = None if part is None else part.group
        squares.setdefault(over, []).append(square.reshape((1,)).as_in_context(ctx))
    sums = [
        functions.add_n(*some) if over is None else all_reduce(functions.add_n(*some), group=over)
        for over, some in squares.items()
    ]
    total = functions.add_n(*sums)
    norm = functions.sqrt(total)
    if check_isfinite:
        value = float(norm.asscalar())
        if not math.isfinite(value):
            warnings.warn(
                "nan or inf is detected. Clipping results will be undefined.",
                UserWarning,
                stacklevel=2,
            )
        factor = max_norm / (value + 1e-8)
        if factor < 1.0:
            for a in arrays:
                copy_into(a * factor, a)
        return value
    scale = functions.broadcast_minimum(max_norm / (norm + 1e-8), functions.ones((1,), ctx))
    for a in arrays:
        copy_into(
            functions.broadcast_mul(a, scale.as_in_context(a.context).astype(a.dtype, copy=False)),
            a,
        )
    return norm
