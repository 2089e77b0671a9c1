"""Plans: one operator on given types with everything known but the arrays, as a C struct of the
core.

A plan runs a native kernel when the table has one, else the operator's reference on NumPy (a
callback from the lane).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import prod
from typing import Any

from ..engine import Context, callback, ffi, lib
from ..engine.device import copy_lane
from ..engine.error import (
    DynamicShape,
    MXNetError,
    OperatorError,
    OutOfMemory,
    ShapeError,
    shown,
)
from ..engine.recent import Recent
from . import backend as backends
from .backend import Backend, Bound, bind_struct
from .layouts import physical_shape
from .native import Native
from .record import MAX_KEPT, Operator, Type, lookup, mutated_inputs
from .scalar import OpenScalar
from .spec import ITEM_BYTES, Spec, spec
from .traits import DeviceCopy, Eager, OwnKernel, PythonKernel, SameMemory

INLINE_US = 10.0  # below this estimate a kernel costs less than handing it to a lane
# below this one a thread that waits may run it itself: so long it does not see Ctrl-C
BRIEF_US = 50_000.0
# cost of a reference kernel: call, then throughput
FALLBACK_US, FALLBACK_BYTES_PER_US = 5.0, 2000.0
TRANSFER_US = 20.0  # of a copy between memories: its lane waits for it
MAX_BYTES = 1 << 46  # of one array: what the storage pool can name
NAN = float("nan")


class Plan:
    """What invoke, the tape and programs need to know of one operator call."""

    __slots__ = (
        "handle",
        "op",
        "attrs",
        "in_specs",
        "out_specs",
        "out_spec",
        "n_in",
        "n_out",
        "n_visible",
        "scalars",
        "can_fail",
        "cost_us",
        "brief",
        "saved",
        "unread",
        "views",
        "mutated",
        "pending",
    )
    handle: int  # pl_plan
    op: Operator
    attrs: dict[str, Any]
    in_specs: tuple[Spec, ...]
    out_specs: tuple[Spec, ...]
    out_spec: Spec | None  # of the first output
    n_in: int
    n_out: int
    n_visible: int
    scalars: tuple[float, ...]
    can_fail: bool
    cost_us: float
    brief: bool  # milliseconds, and neither Python nor loops
    saved: tuple[int, ...] | None  # what the tape keeps; None until the first recording
    unread: tuple | None
    views: bool
    mutated: tuple[int, ...]
    pending: Any  # the kernel that a compiler still works on

    def __repr__(self):
        return f"<Plan {self.op.name} {list(self.in_specs)} -> {list(self.out_specs)}>"

    def __del__(self, free=lib.pl_plan_free):
        free(self.handle)


def scalars_of(op: Operator, attrs: dict[str, Any]) -> tuple[float, ...]:
    """The dynamic parameters' values in the order in which kernels receive them; NaN for an
    OpenScalar, which the program gets when it runs."""
    values = _dynamic(op, attrs)
    return tuple([NAN if v is None or v.__class__ is OpenScalar else float(v) for v in values])


def open_scalars(op: Operator, attrs: dict[str, Any]) -> list[OpenScalar | None]:
    """In the order of scalars_of: what is known only when a program runs, else None."""
    return [v if v.__class__ is OpenScalar else None for v in _dynamic(op, attrs)]


def _dynamic(op: Operator, attrs: dict[str, Any]) -> list:
    values: list = []
    for p in op.params:
        if p.dynamic:
            value = attrs[p.name]
            values += value if isinstance(value, (tuple, list)) else (value,)
    return values


def make_plan(
    op: Operator,
    attrs: dict[str, Any],
    in_specs: Sequence[Spec],
    device: Context,
    outs: Sequence[Type] | None = None,
    known: Recent | None = None,
) -> Plan:
    """The plan for complete parsed attributes (with `train` for train-aware operators).

    outs: the output types of a typed node; inferred when not given. known: where plans made earlier
    are; default: with those of the operator's eager calls. Raises what `infer` raises.
    """
    if op.has_dynamic:
        static = tuple(
            [
                attrs[p.name]
                if not p.dynamic
                else type(attrs[p.name]) is tuple and len(attrs[p.name])
                for p in op.params
            ]
        )
    else:
        static = tuple([attrs[p] for p in op.param_index])
    key = (static, attrs.get("train"), device, *in_specs)
    if outs is not None and any([t.layout for t in outs]):
        key += tuple(outs)
    if known is None:
        known = op.plans
    else:
        key = (op, *key)
    plan = known[key]
    if plan is None or plan.pending is not None and plan.pending.ready():
        plan = known[key] = _build(op, attrs, in_specs, device, outs)
    return plan


def copy_plan(s: Spec, device: Context) -> Plan:
    """The plan of a copy, on a device, of an array of this spec."""
    attrs = {"ctx": str(device), "source": str(s.device)}
    return make_plan(lookup("_to_device"), attrs, [s], device)


# The plans of programs made last: a graph's layers are alike, and so are its tiers. Programs hold
# on to what they need of them, so a graph that is compiled for many shapes keeps nothing here.
of_programs = Recent(512)


def make_plans(calls: Sequence[tuple[Any, Any, Any, Any, Any]], wait: bool) -> list[Plan]:
    """Plans of a program's calls, of each the arguments of make_plan. wait: for the compiler of a
    GPU's kernels, which works on all of them at once; else those plans are `pending`."""
    plans = [make_plan(*call, of_programs) for call in calls]
    waiting = [p.pending for p in plans if p.pending is not None]
    if not wait or not waiting:
        return plans
    for pending in waiting:
        pending.wait()
    return [make_plan(*call, of_programs) for call in calls]


def infer(op: Operator, attrs: dict[str, Any], ins: Sequence[Type]) -> tuple[Type, ...]:
    """Output types, after checking the number of inputs; found once for equal calls. attrs: in the
    record's order, as `op.parse` gives them. Raises OperatorError."""
    key = (*attrs.values(), "|", *ins)
    try:
        found = op.inferred[key]
    except TypeError:  # an attribute that is a list
        return _infer(op, attrs, ins)
    if found is None:
        found = _infer(op, attrs, ins)
        op.inferred[key] = found
    return found


def _infer(op: Operator, attrs: dict[str, Any], ins: Sequence[Type]) -> tuple[Type, ...]:
    names = op.check_inputs(attrs, len(ins))
    try:
        outs = tuple(op.infer(list(ins), **attrs))
    except ShapeError as error:
        if not op.has(Eager):
            raise
        raise DynamicShape(error.operator, error.rule, error.fix) from None
    except MXNetError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise OperatorError(
            op.name,
            f"its inputs and attributes do not fit together, got {_given(ins, names, attrs)} "
            f"({type(error).__name__}: {error})",
        ) from error
    except MemoryError:
        raise _no_memory(op, ins, names, attrs) from None
    for t in outs:
        if any(n is None or n < 0 for n in t.shape):
            raise ShapeError(
                op.name,
                f"the size of every axis must be at least 0, got the shape {tuple(t.shape)} for "
                f"{_given(ins, names, attrs)}",
            )
        # of an array without elements, NumPy multiplies the other axes
        n_elements = prod(n for n in physical_shape(t.shape, t.layout) if n)
        if n_elements * ITEM_BYTES[t.dtype] > MAX_BYTES:
            raise OutOfMemory(
                f"{op.name}: no machine has the memory for shape {tuple(t.shape)} and dtype"
                f" {t.dtype}"
            )
    if op.has(SameMemory) and _bytes_of(outs[0]) != _bytes_of(ins[0]):
        raise ShapeError(
            op.name,
            f"its output is its input's memory, of {_bytes_of(ins[0])} bytes, not of "
            f"{_bytes_of(outs[0])}: got {_given(ins, names, attrs)}",
        )
    return outs


def _bytes_of(t: Type) -> int:
    return prod(physical_shape(t.shape, t.layout)) * ITEM_BYTES[t.dtype]


def _no_memory(op: Operator, ins, names, attrs) -> OutOfMemory:
    return OutOfMemory(f"{op.name}: out of memory for {_given(ins, names, attrs)}")


def _given(ins: Sequence[Type], names: Sequence[str], attrs: dict[str, Any]) -> str:
    return (
        ", ".join(
            [
                *(f"{n} {t.dtype} {t.shape}" for n, t in zip(names, ins)),
                *(f"{k}={shown(v)}" for k, v in attrs.items()),
            ]
        )
        or "no inputs"
    )


_address = cache(partial(ffi.addressof, lib))  # of a kernel, by name


@cache
def _sizeof(pointer: Any) -> int:
    """The bytes of what a C type points to."""
    return ffi.sizeof(pointer.item)


def _build(
    op: Operator,
    attrs: dict[str, Any],
    in_specs: Sequence[Spec],
    device,
    outs,
    way: str = "",
    comm: bool = False,
) -> Plan:
    ins = [s.type for s in in_specs]
    outs = infer(op, attrs, ins) if outs is None else outs
    plan = Plan.__new__(Plan)
    plan.handle = 0
    plan.op, plan.attrs, plan.in_specs = op, op.shared(dict(attrs)), tuple(in_specs)
    plan.out_specs = tuple(spec(tuple(t.shape), t.dtype, device, t.layout) for t in outs)
    plan.out_spec = plan.out_specs[0] if plan.out_specs else None
    plan.n_in, plan.n_out, plan.n_visible = len(ins), len(outs), op.visible(attrs)
    plan.scalars = scalars_of(op, attrs)
    plan.saved = plan.unread = None  # what the tape keeps: found at the first recording
    plan.views = op.has(SameMemory)
    mutates = bytearray(max(1, len(ins)))
    plan.mutated = mutated_inputs(op, attrs, len(ins))
    for i in plan.mutated:
        mutates[i] = 1
    backend = backends.of(device)
    lane, number = device.comm_lane if comm else (device.lane, device.device_id)
    across = None
    if op.has(DeviceCopy):
        across = copy_lane(in_specs[0].device, device)
    if across is None:
        bound = _native(op, ins, outs, attrs, device, backend)
    else:
        lane, number = across
        bound = bind_struct(op, _transfer(in_specs[0].nbytes, way), device)
    found, params = bound.native, bound.params
    plan.pending = bound.pending
    if found is not None:
        plan.cost_us = found.cost_us
        kernel = _address(found.function)
        owner = found.owner if bound.owner is None else (found.owner, bound.owner)
        flags = lib.PL_PLAN_PYTHON if found.python else 0
        plan.can_fail = found.can_fail
    else:
        owner = (plan.op, plan.attrs, plan.in_specs, plan.out_specs, plan.mutated, plan.pending)
        kernel, flags = _address(backend.reference), lib.PL_PLAN_PYTHON
        nbytes = sum(s.nbytes for s in plan.in_specs + plan.out_specs)
        plan.cost_us = FALLBACK_US + nbytes / FALLBACK_BYTES_PER_US
        # the user's code, and what waits for a compiler: never on the thread of the caller
        if op.has(PythonKernel) or plan.pending is not None:
            plan.cost_us += INLINE_US
        plan.can_fail = True
    plan.brief = plan.cost_us < BRIEF_US and not flags and not op.has(OwnKernel)
    kept = callback.keep(owner) if owner is not None else 0
    if found is None:
        params = ffi.new("uintptr_t *", kept)
    flags |= (
        place_flag(device)
        | (lib.PL_PLAN_INLINE if plan.cost_us < INLINE_US else 0)
        | (lib.PL_PLAN_BRIEF if plan.brief else 0)
        | (lib.PL_PLAN_RANDOM if op.is_random(attrs) else 0)
    )
    nbytes = _sizeof(ffi.typeof(params)) if params is not None else 0
    plan.handle = lib.pl_plan_new(
        kernel,
        params if params is not None else ffi.NULL,
        nbytes,
        plan.n_in,
        plan.n_out,
        [s.nbytes for s in plan.out_specs],
        ffi.from_buffer("uint8_t *", mutates) if any(mutates) else ffi.NULL,
        len(plan.scalars),
        flags,
        lane,
        number,
        op.name.encode(),
        b"%b -> %b" % (_labels(plan.in_specs), _labels(plan.out_specs)),
    )
    if not plan.handle:
        callback.drop(kept)
        raise OutOfMemory(ffi.string(lib.pl_error_message()).decode())
    if kept:
        lib.pl_plan_own(plan.handle, callback.RELEASE, callback.pointer_to(kept))
    return plan


def _labels(specs: Sequence[Spec]) -> bytes:
    return b", ".join([s.label for s in specs])


_comm = Recent(MAX_KEPT)


def comm_plan(
    op: Operator, attrs: dict[str, Any], in_specs: Sequence[Spec], device: Context
) -> Plan:
    """As make_plan, of a call that runs on the lane for communication. The inputs may be of other
    devices that share the device's memory."""
    key = (op, tuple(attrs.values()), device, *in_specs)
    plan = _comm[key]
    if plan is None:
        plan = _comm[key] = _build(op, attrs, in_specs, device, None, comm=True)
    return plan


_transfers = Recent(MAX_KEPT)


def transfer_plan(source: Spec, target: Spec, way: str) -> Plan:
    """The plan of a copy to another memory that the caller enqueues itself.

    way: "waits", until the copy is there; "staged", from page-locked memory that nobody else uses,
    without waiting.
    """
    plan = _transfers[source, target, way]
    if plan is None:
        plan = _build(lookup("_copy"), {}, [source], target.device, None, way)
        _transfers[source, target, way] = plan
    return plan


def _transfer(nbytes: int, way: str) -> Native:
    """The kernel of a copy between memories; see pl_kernel_transfer."""
    params = ("pl_transfer", {"bytes": nbytes, "staged": way == "staged"})
    return Native("pl_kernel_transfer", params, 1.0 if way else TRANSFER_US, can_fail=True)


_PLACES = {
    lib.PL_MEMORY_HOST: lib.PL_PLAN_TO_HOST,
    lib.PL_MEMORY_PINNED: lib.PL_PLAN_TO_PINNED,
}


def place_flag(device: Context) -> int:
    """The flag that says where new arrays of a device lie; 0: in the memory of the lane's GPU."""
    return _PLACES.get(device.memory, 0)


def _native(op: Operator, ins, outs, attrs, device, backend: Backend) -> Bound:
    """The native kernel; nothing where the table has none."""
    try:
        if op.has(OwnKernel):
            with device:  # for which the record's kernel lowers its bodies
                found = backend.kernels.choose(op, ins, outs, attrs)
        else:
            found = backend.kernels.choose(op, ins, outs, attrs)
        return Bound() if found is None else backend.bind(op, found, device)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, MXNetError):
            raise
        raise OperatorError(
            op.name,
            "its sizes and attributes do not fit its kernel, got "
            f"{_given(ins, op.names_in(attrs, len(ins)), attrs)} ({error})",
        ) from error
    except MemoryError as error:
        if isinstance(error, MXNetError):
            raise
        raise _no_memory(op, ins, op.names_in(attrs, len(ins)), attrs) from None
