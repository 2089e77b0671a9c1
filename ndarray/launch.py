"""A plan on arrays: one call into the core, then the tape; and what is written into given arrays
(`out=`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import is_naive, location, wait
from ..engine._array import invoke as call
from ..engine._array import shared
from ..engine.error import DeviceError, OperatorError
from ..engine.recent import Recent
from ..kernels.plan import Plan, copy_plan, make_plan
from ..kernels.record import lookup
from ..kernels.spec import Spec
from .ndarray import NDArray, check_nd, make_view, state
from .tape import record, spent

_COPY, _CAST = lookup("_copy"), lookup("Cast")


class Plans(Recent):
    """The plans that one function keeps by what its calls give. A hit needs no other look at the
    call: only calls of dense arrays get here.

    sure: keeps only plans that cannot fail, for calls that do not say where they come from.
    """

    __slots__ = ("sure",)

    def __init__(self, sure: bool = False):
        super().__init__(8192)
        self.sure = sure

    def keeps(self, plan: Plan) -> bool:
        """A plan whose kernel is being compiled is asked for again."""
        return plan.pending is None and not (self.sure and plan.can_fail)

    def keep(self, key: Any, plan: Plan) -> None:
        if self.keeps(plan):
            self[key] = plan


def run(
    plan: Plan, inputs: Sequence[NDArray], scalars: Sequence[float] = (), out: Any = None
) -> Any:
    """Runs a plan on arrays: one call into the core; then the tape. Returns the visible output(s),
    or `out`."""
    if out is None:
        made = launch(plan, inputs, scalars, ())
        return made[0] if plan.n_visible == 1 else made[: plan.n_visible]
    targets = _targets(plan, out)
    if any([t._spec.stype != "default" for t in targets]) or _overlap(plan, inputs, targets):
        for result, target in zip(launch(plan, inputs, scalars), targets):
            copy_into(result, target)
    else:
        launch(plan, inputs, scalars, targets)
    return out


def launch(
    plan: Plan,
    inputs: Sequence[NDArray],
    scalars: Sequence[float] = (),
    targets: Sequence[NDArray] = (),
) -> list[NDArray]:
    """One call into the core, noted on the tape. Returns every output, hidden ones too."""
    made = call(
        plan.handle,
        plan.in_specs,
        plan.out_specs,
        inputs,
        targets,
        scalars,
        location.capture() if plan.can_fail else -1,
    )
    if plan.can_fail and is_naive():
        for a in [*made, *(inputs[i] for i in plan.mutated)]:
            wait(a._handle)
    if state.recording:
        record(plan, inputs, scalars, made)
    return made


def seen(array: NDArray, plan: Plan) -> NDArray:
    """The output of such a plan without a copy, recorded."""
    out = make_view(array, plan.out_spec)
    if state.recording:
        record(plan, (array,), (), (out,))
    return out


def _targets(plan: Plan, out) -> list[NDArray]:
    """The arrays of `out`, checked against the plan. Raises OperatorError."""
    targets = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) != plan.n_visible:
        raise OperatorError(
            plan.op.name, f"out must have {plan.n_visible} arrays, got {len(targets)}"
        )
    for target, s in zip(targets, plan.out_specs):
        check_nd(target, f"{plan.op.name}: out")
        if target._spec.shape != s.shape or target._spec.dtype != s.dtype:
            raise OperatorError(
                plan.op.name,
                f"out must have shape {s.shape} and dtype {s.dtype}, got "
                f"{target._spec.shape} and {target._spec.dtype}",
            )
        if target._spec.device != s.device and not target._spec.device.same_memory(s.device):
            raise DeviceError(
                f"{plan.op.name}: out must be on {s.device}, as the inputs, got"
                f" {target._spec.device}\n  fix: {plan.op.name}(...).copyto(out)"
            )
        if state.recording and target._tape.__class__ is tuple and not spent(target._tape):
            raise OperatorError(
                plan.op.name,
                "cannot write into an array that autograd has recorded: assigning to "
                "NDArrays that are already in a computational graph would change its gradients",
                fix="use out-of-place operations inside autograd.record()",
            )
    return targets


def _overlap(plan: Plan, inputs, targets) -> bool:
    """Does an output share memory with an input that the kernel must not overwrite?"""
    return any(
        not (
            same and (i, j) in plan.op.inplace and inputs[i]._spec.nbytes == targets[j]._spec.nbytes
        )
        for i, j, same in shared(inputs, targets)
    )


def copy_into(source: NDArray, target: NDArray) -> None:
    """Writes source into target: same shape, any device and storage type; the dtype is
    converted."""
    if source._spec.stype != "default" or target._spec.stype != "default":
        sparse = target if target._spec.stype != "default" else source
        sparse._copy_between(source, target)
        return
    device = target._spec.device
    if not source._spec.device.same_memory(device):
        if source._spec.dtype != target._spec.dtype:
            plan = _cast_plan(source._spec, target._spec.dtype, source._spec.device)
            source = run(plan, [source])
        run(copy_plan(source._spec, device), [source], (), target)
    elif source._spec.dtype == target._spec.dtype:
        run(make_plan(_COPY, {}, [source._spec], device), [source], (), target)
    else:
        run(_cast_plan(source._spec, target._spec.dtype, device), [source], (), target)


def _cast_plan(s: Spec, dtype: str, device) -> Plan:
    return make_plan(_CAST, _CAST.parse({"dtype": dtype}), [s], device)
