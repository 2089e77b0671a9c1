"""Backends: what plans, passes and programs ask of a device, one object for each kind.

`of(device)` finds it. The defaults are those of a device in the host's memory without kernels: each
operator runs by its NumPy reference and nothing is fused. The modules kernels/NAME/backend.py fill
one each and are imported when their first device is asked for; docs/design/backend.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ..engine import Context, ffi
from . import reference
from .native import Native, Table
from .record import Operator


class Fusion(NamedTuple):
    """How groups of pointwise operators become one kernel.

    row_dtypes: of fused row reductions. reductions: operators that a group may end in. can_compile:
    (device) -> whether there is a compiler. prepare: (groups, with the dtypes of their inputs;
    device) -> for each whether it has a kernel now; compiles those that have none.
    """

    row_dtypes: Collection[str]
    reductions: Collection[str]
    can_compile: Callable[[Context], bool]
    prepare: Callable[[Sequence[tuple[Any, Sequence[str]]], Context], list[bool]]


class Branches(NamedTuple):
    """Which steps of a program pay when they run at once.

    small_bytes: of the arrays of one kernel; one on more gets nothing from company. gain_us: of
    estimated time that a section must save. at_once: branches; None: as many as the pool has
    threads.
    """

    small_bytes: int
    gain_us: float
    at_once: int | None = None


class Bound(NamedTuple):
    """A kernel as a plan holds it. native: None where the reference runs. params: the C struct.
    owner: what it points into. pending: the kernel that a compiler still works on; the reference's
    function waits for it."""

    native: Native | None = None
    params: Any = None
    owner: Any = None
    pending: Any = None


def bind_struct(op: Operator, found: Native, device: Context) -> Bound:
    """A kernel whose parameters are a C struct and its fields, or nothing."""
    if found.params is None:
        return Bound(found)
    struct, fields = found.params
    return Bound(found, ffi.new(struct + " *", fields))


def never(*_: Any, **__: Any) -> bool:
    """Takes nothing."""
    return False


class Backend:
    """What one kind of device can run, and what pays there.

    Args:
        name: as device types name it (`DeviceType.backend`).
        kernels: the table of its kernels, and the memory layouts that they want.
        reference: the C function that runs a plan without a kernel, in Python.
        bind: (op, Native, device) -> Bound: makes a table's answer ready for a plan; may compile.
        read: (address, Spec) -> the values there as a NumPy array, inside a kernel.
        write: (address, Spec, values) puts values there, inside a kernel.
        compiles: the language of the source text that it compiles while programs run, or "".
        fusion: how pointwise operators become one kernel; None: they do not.
        fused_dtypes: of fused matrix products, convolutions and attention.
        ends_matmul: (dtype, act, keep, residual, slope) -> whether it is cheaper that a matrix
            product ends so than that other kernels follow. act: the activation; keep: what it is
            applied to is an output too; residual: an array is added; slope: the activation of which
            the result is multiplied by the slope.
        ends_conv: (op, attrs) -> whether a fused convolution can end in this operator.
        decomposes: in compiled programs, operators without a kernel become their decomposition
            where all of that has kernels.
        joins_in_place: arrays that are concatenated are made where the result wants them.
        branches: which steps may run at once; None: no two.
    """

    def __init__(
        self,
        name: str,
        *,
        kernels: Table | None = None,
        reference: str = reference.KERNEL,
        bind: Callable[[Operator, Native, Context], Bound] = bind_struct,
        read: Callable = reference.read,
        write: Callable = reference.write,
        compiles: str = "",
        fusion: Fusion | None = None,
        fused_dtypes: Collection[str] = (),
        ends_matmul: Callable[..., bool] = never,
        ends_conv: Callable[[Operator, dict[str, Any]], bool] = never,
        decomposes: bool = True,
        joins_in_place: bool = True,
        branches: Branches | None = None,
    ):
        self.name = name
        self.kernels = kernels if kernels is not None else Table()
        self.reference = reference
        self.bind, self.read, self.write = bind, read, write
        self.compiles = compiles
        self.fusion, self.fused_dtypes = fusion, fused_dtypes
        self.ends_matmul, self.ends_conv = ends_matmul, ends_conv
        self.decomposes, self.joins_in_place = decomposes, joins_in_place
        self.branches = branches

    def __repr__(self) -> str:
        return f"<Backend {self.name}>"


_backends: dict[str, Backend] = {}


def register(backend: Backend) -> Backend:
    """Makes a backend the one of its name."""
    _backends[backend.name] = backend
    return backend


def of(device: Context) -> Backend:
    """The backend of a device; imports it at the first use."""
    name = device.kind.backend
    if name not in _backends:
        importlib.import_module(f"{__package__}.{name}.backend")
    return _backends[name]
