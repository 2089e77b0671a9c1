"""Matrix products by cuBLASLt or by our own kernels, and calls of several kernels that share
scratch memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

from ...engine import cuda, ffi, lib, settings
from ..activations import NUMBERS
from ..cpu.layout import code
from ..native import Native
from ..record import HALVES
from ..spec import ITEM_BYTES
from .launch import (
    Argument,
    Buffer,
    Copy,
    Fill,
    Float32,
    Float64,
    Int32,
    Int64,
    Launch,
    Launches,
    Scratch,
    Struct,
)
from .layout import BLOCKS, THREADS, TYPES, ceil_div

ALIGNMENT = 256  # bytes, of every piece of scratch memory
NOWHERE = Int64(0)  # a NULL pointer
LAUNCH_US = 2.5  # to enqueue one
FORCE_OWN = False  # tests: libraries do not serve
FILLING = 132  # blocks that keep a large device busy
SMALL = HALVES


def total_type(dtype: str) -> str:
    """What products of a type are summed in, in C++."""
    return "double" if dtype == "float64" else "float"


def total(value: float, dtype: str) -> Float32 | Float64:
    return Float64(value) if dtype == "float64" else Float32(value)


class ScratchSpace:
    """Scratch memory of one call, taken piece by piece."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._workspace: int | None = None

    def take(self, nbytes: int) -> Scratch:
        at = self.nbytes
        self.nbytes += nbytes + -nbytes % ALIGNMENT
        return Scratch(at)

    def take_array(self, dtype: str, *shape: int) -> Scratch:
        return self.take(prod(shape) * ITEM_BYTES[dtype])

    def workspace(self) -> int:
        """The offset of the workspace of libraries, which their calls share."""
        if self._workspace is None:
            self._workspace = self.take(lib.PLK_BLAS_WORKSPACE_BYTES).offset_bytes
        return self._workspace


# ---- matrix products -----------------------------------------------------------------------------


class Matmul(NamedTuple):
    """A matrix product by cuBLASLt: the fields of plk_blas but its state; arrays are Buffer or
    Scratch."""

    fields: dict[str, Any]

    def on(self, device: int) -> tuple[Any, Any]:
        state = lib.plk_blas_new()
        if not state:
            raise MemoryError
        locations = {k: location(v) for k, v in self.fields.items() if k in ARRAYS}
        owner = ffi.gc(ffi.cast("void *", state), _free)
        return ffi.new("plk_blas *", {**self.fields, **locations, "state": state}), owner


def _free(state, free=lib.plk_blas_free, cast=ffi.cast) -> None:
    """At exit, too, when the names of this module are gone."""
    free(int(cast("uintptr_t", state)))


ARRAYS = ("a", "b", "c", "bias", "y", "aux")


def location(at: Buffer | Scratch | None) -> dict:
    """A plk_where; None: nowhere."""
    if at is None:
        return {"kind": -1}
    if isinstance(at, Scratch):
        return {"kind": lib.PL_ARGUMENT_SCRATCH, "offset_bytes": at.offset_bytes}
    return {"kind": lib.PL_ARGUMENT_BUFFER, "index": at.index, "offset_bytes": at.offset_bytes}


def has_blas() -> bool:
    """Is there a cuBLASLt?"""
    path = None if FORCE_OWN else cuda.find("cublasLt")
    return path is not None and bool(lib.plk_blas_load(path.encode()))


def rounds_to_tf32() -> bool:
    return bool(settings.get("PLAIT_TF32"))


def unit(dtype: str, m: int, n: int, more: int = 1) -> tuple[str, int, int]:
    """(C++ name of the unit of matmul.cuh, its tile's side, elements of k in one of its steps)
    for results (m, n), `more` of them."""
    tiles = ceil_div(m, 128) * ceil_div(n, 128) * more
    side = 128 if dtype != "float64" and min(m, n) > 64 and tiles >= FILLING else 64
    if dtype in SMALL:
        return f"Mma<{dtype}, {side}, {side}>", side, 32
    if dtype == "float32" and rounds_to_tf32():
        return f"Mma<TF32, {side}, {side}>", side, 16
    return f"Fma<{TYPES[dtype]}, {side}, {side}>", side, 16


MIN_SLICE = 256  # elements of k


def slices(tiles: int, k: int, depth: int) -> tuple[int, int]:
    """(how many slices of k, elements in one) so that `tiles` blocks become enough."""
    n = max(1, min(ceil_div(FILLING, max(tiles, 1)), k // MIN_SLICE, 64))
    each = ceil_div(ceil_div(max(k, 1), n), depth) * depth
    return ceil_div(max(k, 1), each), each


def matmul(
    dtype: str,
    m: int,
    n: int,
    k: int,
    a: Any,
    b: Any,
    y: Any,
    scratch: ScratchSpace,
    *,
    n_batch: int = 1,
    a_step: int = 0,
    b_step: int = 0,
    y_step: int | None = None,
    rows: tuple[int, int, int] | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    act: str | None = None,
    bias: Any = None,
    residual: Any = None,
    kept: Any = None,
) -> list | None:
    """Steps of y = act(alpha op(a) op(b) + bias) + residual, row-major; kept gets what act is
    applied to. Arrays are Buffer or Scratch. rows: elements from one row of a, b and y to the next,
    as they lie in memory, where that is not a row's length. None: sizes beyond what kernels count.
    """
    if max(m * k, k * n, m * n) >= 1 << 31 or n_batch >= 1 << 31:
        return None
    if not m * n * n_batch:
        return []
    a_row, b_row, y_row = rows or (m if transpose_a else k, k if transpose_b else n, n)
    y_step = m * n if y_step is None else y_step
    if has_blas() and k and n_batch < 1 << 16:
        inside = ends_inside(dtype, act, kept is not None, residual is not None)
        fields = {
            **dict(n_batch=n_batch, m=m, n=n, k=k, a_step=a_step, b_step=b_step, y_step=y_step),
            **dict(a_row=a_row, b_row=b_row, y_row=y_row),
            **dict(transpose_a=transpose_a, transpose_b=transpose_b, alpha=alpha),
            "workspace_at": scratch.workspace(),
            "dtype": code(dtype),
            "tf32": rounds_to_tf32(),
            "act": {"relu": 1, "gelu": 2}.get(act or "", 0) if inside else 0,
            **dict(a=a, b=b, bias=bias, y=y, c=residual if inside else None),
            "aux": kept if inside else None,
        }
        if inside:
            return [Matmul(fields)]
        after = _result(dtype, m, n, n, y, kept, None, residual, act, 1.0)
        name = f"follow<{TYPES[dtype]}, {total_type(dtype)}>"
        return [Matmul(fields), Launch("gemm.cu", name, grid_of(m * n), (THREADS,), [after])]
    name, side, depth = unit(dtype, m, n, n_batch)
    tiles = ceil_div(m, side) * ceil_div(n, side)
    n_slices, each = slices(tiles, k, depth) if n_batch == 1 else (1, max(k, 1))
    partial = scratch.take_array("float64", n_slices, m, n) if n_slices > 1 else NOWHERE
    finish = _result(dtype, m, n, y_row, y, kept, bias, residual, act, alpha, partial)
    sizes = Struct(
        *map(Int64, (a_step, b_step, y_step)),
        *map(Int32, (n_batch, m, n, k, n_slices, each, a_row, b_row)),
    )
    flags = ", ".join("true" if t else "false" for t in (transpose_a, transpose_b))
    steps = [
        Launch(
            "gemm.cu",
            f"gemm<{name}, {flags}, {TYPES[dtype]}>",
            (tiles, min(n_batch, 65535), n_slices),
            (THREADS,),
            [a, b, finish, sizes],
        )
    ]
    if n_slices > 1:
        name = f"slices_add<{TYPES[dtype]}, {total_type(dtype)}>"
        steps.append(Launch("gemm.cu", name, grid_of(m * n), (THREADS,), [finish, Int32(n_slices)]))
    return steps


def _result(dtype, m, n, row, y, kept, bias, residual, act, alpha, partial=NOWHERE) -> Struct:
    """A Result of gemm.cu."""
    arrays = [NOWHERE if p is None else p for p in (y, kept, bias, residual)]
    numbers = map(Int32, (NUMBERS[act], m, n, row, 0))
    return Struct(*arrays, partial, total(alpha, dtype), *numbers)


def column_sums(dtype: str, a: Argument, y: Argument, n_rows: int, n_columns: int) -> Launch:
    """The step that adds up the rows of a (n_rows, n_columns)."""
    name = f"column_sums<{TYPES[dtype]}, {total_type(dtype)}>"
    arguments = [a, y, Int32(n_rows), Int32(n_columns)]
    return Launch("gemm.cu", name, (ceil_div(n_columns, 32),), (32, 8), arguments)


def grid_of(n: int, per_block: int = THREADS) -> tuple[int]:
    """A grid for loops that stride over n."""
    return (min(ceil_div(n, per_block), 16 * BLOCKS),)


def ends_inside(dtype: str, act: str | None, kept: bool, residual: bool) -> bool:
    """Are these last steps part of the matrix product, without a launch of their own?"""
    if not has_blas():
        return True
    if act == "gelu":
        return dtype in SMALL and not residual
    return act in (None, "relu") and not kept and not (act and residual)


# ---- several kernels as one ----------------------------------------------------------------------


class Steps(NamedTuple):
    """Launches and matrix products, one after the other."""

    steps: Sequence[Launch | Fill | Copy | Matmul]
    scratch_bytes: int

    def on(self, device: int) -> tuple[Any, Any]:
        parts, owners = [], []
        for is_matmul, group in groupby(self.steps, lambda s: isinstance(s, Matmul)):
            calls: list = list(group)
            if not is_matmul:
                calls = [Launches(calls, self.scratch_bytes)]
            for one in calls:
                params, owner = one.on(device)
                run = "plk_blas_run" if is_matmul else "pl_kernel_launch"
                parts.append({"run": ffi.addressof(lib, run), "params": params})
                owners += [params, owner]
        table = ffi.new("plk_step[]", parts)
        fields = {"n": len(parts), "scratch_bytes": self.scratch_bytes, "steps": table}
        return ffi.new("plk_steps *", fields), (table, owners)


def steps(
    found: Iterable[Launch | Fill | Copy | Matmul] | None, scratch: ScratchSpace
) -> Native | None:
    """The kernel of a plan that consists of these steps; None for None."""
    if found is None:
        return None
    every = tuple(found)
    us = LAUNCH_US * max(len(every), 1)
    launched = [s for s in every if not isinstance(s, Matmul)]
    if len(launched) == len(every):
        return Native("pl_kernel_launch", Launches(launched, scratch.nbytes), us)
    return Native("plk_steps_run", Steps(every, scratch.nbytes), us)
