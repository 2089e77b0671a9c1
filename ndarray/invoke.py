"""invoke: the life of one eager call. Look up the plan, make one call into the core, note it on the
tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..engine import Context, cpu, current_context, is_naive, location, wait
from ..engine._array import invoke as call
from ..engine._array import invoke1, shared
from ..engine.device import named
from ..engine.error import DeviceError, InvalidType, MXNetError, OperatorError
from ..engine.recent import Recent
from ..kernels import precision
from ..kernels.ops.strided import reach
from ..kernels.plan import Plan, copy_plan, make_plan, scalars_of
from ..kernels.record import Operator, lookup
from ..kernels.spec import STYPES, Spec
from ..kernels.traits import Eager, Part
from .ndarray import NDArray, check_nd, state
from .tape import record, spent

MAX_KEYS = 8192  # plans that a function keeps by its arguments
NUMBERS = (float, int)
# what dense calls need of the package `sparse`, which fills it: "call" (an operator whose result is
# sparse), "array", "empty", "zeros"
SPARSE: dict[str, Callable] = {}


def invoke(op: Operator, inputs: Sequence[NDArray], attrs: dict, out=None, ctx=None) -> Any:
    """Applies an operator. attrs: as a caller gives them. Returns an NDArray, or a list for several
    visible outputs.

    out: array(s) to write the visible outputs into. ctx: device of operators without inputs.
    Raises OperatorError and its kin at once when shapes, dtypes or attributes are wrong.
    """
    for a in inputs:
        if a.__class__ is not NDArray:
            # a Symbol: a forward that calls nd functions is being traced
            if hasattr(a, "_compose_operator"):
                return a._compose_operator(op, inputs, attrs)
            if hasattr(a, "_call_operator"):  # a sparse array
                return a._call_operator(op, inputs, attrs, out)
    if op.variadic_key:
        attrs = op.counted(attrs, len(inputs))
    full = op.parse(attrs)
    if precision.used:
        inputs = in_precision(op, full, inputs)
        if op.name in precision.LOSSES:
            full["grad_scale"] *= precision.loss_scale()
    eager = op.trait(Eager)
    if eager is not None:
        op.check_inputs(full, len(inputs))
        _device_of(op, inputs, ctx, out)
        return eager.call(_call, inputs, out, **full)
    if makes_sparse(full):
        return SPARSE["call"](op, inputs, attrs, out)
    if op.train_aware:
        full["train"] = state.training
    device = _device_of(op, inputs, ctx or full.get("ctx"), out)
    part = op.trait(Part)
    if part is not None and len(inputs) == 1:
        return read_part(inputs[0], part.of(inputs[0]._spec.shape, **full), out)
    plan = make_plan(op, full, [a._spec for a in inputs], device)
    return run(plan, inputs, scalars_of(op, full), out)


_STRIDED, _STRIDED_SET = lookup("_strided"), lookup("_strided_set")
_reads = Recent(MAX_KEYS)
_writes = Recent(MAX_KEYS)


def part_plan(s: Spec, sizes, steps) -> Plan:
    """The plan that reads a part of an array of this spec, wherever it begins."""
    plan = _reads[s, sizes, steps]
    if plan is None:
        view = _STRIDED.parse(
            {"at": -min(0, reach(sizes, steps)[0]), "sizes": sizes, "steps": steps}
        )
        plan = make_plan(_STRIDED, view, [s], s.device)
        _reads[s, sizes, steps] = plan
    return plan


def _view(sizes, steps) -> dict:
    """Attributes of a part, where it may begin."""
    return {"at": -float(reach(sizes, steps)[0]), "sizes": sizes, "steps": steps}


def read_part(x: NDArray, part: tuple, out=None) -> NDArray:
    """The elements (sizes, steps, at) of an array's memory, as an array of its own."""
    sizes, steps, at = part
    return run(part_plan(x._spec, sizes, steps), (x,), (at,), out)


def write_part(x: NDArray, part: tuple, value: NDArray) -> None:
    """Writes an array, or its one element, into the elements (sizes, steps, at) of x's memory."""
    (sizes, steps, at), s = part, x._spec
    key = (s, value._spec, sizes, steps)
    plan = _writes[key]
    if plan is None:
        plan = make_plan(_STRIDED_SET, _view(sizes, steps), [s, value._spec], s.device)
        _writes[key] = plan
    run(plan, (x, value), (at,), x)


_AMP_CAST = lookup("amp_cast")


def in_precision(op: Operator, attrs: dict, inputs: Sequence[NDArray]) -> Sequence[NDArray]:
    """The inputs in the dtypes that the policy in force wants. attrs: complete."""
    policy = precision.active()
    if policy is None or not all([isinstance(a, NDArray) for a in inputs]):
        return inputs
    dtypes = policy.casts(op, attrs, [a._spec.dtype for a in inputs])
    if dtypes is None:
        return inputs
    return [
        a if d is None else invoke(_AMP_CAST, [a], {"dtype": d}) for a, d in zip(inputs, dtypes)
    ]


def _call(name: str, *inputs: NDArray, out=None, **attrs):
    return invoke(lookup(name), inputs, attrs, out)


def makes_sparse(attrs: dict) -> bool:
    """Do these attributes ask for a result that is not dense?"""
    return attrs.get("stype") in STYPES[1:] or attrs.get("forward_stype") in STYPES[1:]


def _device_of(op: Operator, inputs: Sequence[NDArray], ctx=None, out=None):
    """Where a call runs: with its inputs; without any where `out` is, else on ctx (a Context or its
    text), else on the current device."""
    if not inputs:
        first = out[0] if isinstance(out, (list, tuple)) and out else out
        if isinstance(first, NDArray):
            return first._spec.device
        device = current_context() if ctx is None or ctx == "" else ctx
        if isinstance(device, str):
            device = named(device)
        if not isinstance(device, Context):
            raise InvalidType(
                f"{op.name}: ctx must be a Context, got {ctx!r}\n"
                "  fix: ctx=mx.cpu() or mx.gpu(0); a shape of several axes is one tuple, (2, 3)"
            )
        device.check()
        return device
    for a in inputs:
        if op.variadic and isinstance(a, (list, tuple)):
            raise InvalidType(
                f"{op.name}: every input must be an NDArray, got {type(a).__name__}\n  fix:"
                f" nd.{op.name}(*arrays)"
            )
        check_nd(a, f"{op.name}: every input")
    device = inputs[0]._spec.device
    for a in inputs:
        if a._spec.device is not device and a._spec.device != device:
            if device.same_memory(a._spec.device):
                device = cpu(device.device_id)
                continue
            raise DeviceError(
                f"{op.name}: all inputs must be on one device, got {device} and {a._spec.device}"
                f"\n  fix: x.as_in_context({device})"
            )
    return device


def run(plan: Plan, inputs: Sequence[NDArray], scalars: Sequence[float] = (), out=None) -> Any:
    """Runs a plan on arrays: one call into the core; then the tape. Returns the visible output(s),
    or `out`."""
    if out is None:
        made = launch(plan, inputs, scalars, ())
        return made[0] if plan.n_visible == 1 else made[: plan.n_visible]
    targets = _targets(plan, out)
    if any([t._spec.stype != "default" for t in targets]):
        results = run(plan, inputs, scalars)
        for r, t in zip(results if isinstance(results, list) else [results], targets):
            copy_into(r, t)
        return out
    if _overlap(plan, inputs, targets):
        results = run(plan, inputs, scalars)
        for r, t in zip(results if isinstance(results, list) else [results], targets):
            run(make_plan(_COPY, {}, [r._spec], r._spec.device), [r], (), t)
    else:
        launch(plan, inputs, scalars, targets)
    return out


def launch(plan: Plan, inputs, scalars, targets) -> list[NDArray]:
    """One call into the core, noted on the tape. Returns every output."""
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


def run_all(plan: Plan, inputs: Sequence[NDArray], scalars: Sequence[float] = ()) -> list[NDArray]:
    """Like run, with the hidden outputs too."""
    return launch(plan, inputs, scalars, ())


_COPY = lookup("_copy")


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


def binary_method(both: str, right: str) -> Callable:
    """The method for `array <op> array` and `array <op> number`: the shortest way through a
    plan."""
    op, scalar_op = lookup(both), lookup(right)
    pairs, singles = Recent(MAX_KEYS), Recent(MAX_KEYS)

    def method(self, other):
        if isinstance(other, NDArray):
            plan = pairs[self._spec, other._spec]
            if plan is None or precision.used:
                return first(self, other)
            out = invoke1(plan.handle, plan.out_spec, self, other)
            if state.recording:
                record(plan, (self, other), (), (out,))
            return out
        plan = singles[self._spec]
        try:
            if plan is None or precision.used:
                return first_scalar(self, other)
            out = invoke1(plan.handle, plan.out_spec, self, other)
        except TypeError as error:
            if isinstance(error, MXNetError):
                raise
            return not_a_number(self, other, op)
        if state.recording:
            record(plan, (self,), (other,), (out,))
        return out

    def first(self, other):
        if hasattr(other, "_call_operator"):
            return other._call_operator(op, (self, other), {})
        if hasattr(self, "_call_operator"):
            return self._call_operator(op, (self, other), {})
        if precision.used:
            return invoke(op, (self, other), {})
        device = _device_of(op, (self, other), None)
        plan = make_plan(op, op.parse({}), (self._spec, other._spec), device)
        if not plan.can_fail:
            pairs[self._spec, other._spec] = plan
        return run(plan, (self, other))

    def first_scalar(self, other):
        value = as_number(other)
        if hasattr(self, "_call_operator"):
            return self._call_operator(scalar_op, (self,), {"scalar": value})
        if precision.used:
            return invoke(scalar_op, (self,), {"scalar": value})
        plan = make_plan(
            scalar_op, scalar_op.parse({"scalar": value}), (self._spec,), self._spec.device
        )
        if not plan.can_fail:
            singles[self._spec] = plan
        return run(plan, (self,), (value,))

    return method


def scalar_method(left: str) -> Callable:
    """The reflected method: number <op> array."""
    op = lookup(left)
    plans = Recent(MAX_KEYS)

    def method(self, other):
        plan = plans[self._spec]
        if plan is not None and other.__class__ in NUMBERS and not precision.used:
            out = invoke1(plan.handle, plan.out_spec, self, other)
            if state.recording:
                record(plan, (self,), (other,), (out,))
            return out
        try:
            value = as_number(other)
        except TypeError as error:
            if isinstance(error, MXNetError):
                raise
            return not_a_number(self, other, op)
        if self.__class__ is not NDArray or precision.used:
            return invoke(op, (self,), {"scalar": value})
        plan = make_plan(op, op.parse({"scalar": value}), (self._spec,), self._spec.device)
        if not plan.can_fail:
            plans[self._spec] = plan
        return run(plan, (self,), (value,))

    return method


def as_number(value) -> float:
    """A scalar operand. Raises TypeError, also for NumPy arrays of one element and numbers in
    strings."""
    if isinstance(value, (str, bytes, np.ndarray)):
        raise TypeError("not a number")
    return float(value)


def not_a_number(self, other, op) -> Any:
    """NotImplemented, or TypeError where Python's own answer would mislead: NumPy arrays, and x ==
    [1, 2]."""
    compares = "equal" in op.name and other is not None
    if compares or hasattr(other, "__array__") or isinstance(other, (list, tuple)):
        raise InvalidType(
            f"{op.name}: cannot mix NDArray and {type(other).__name__}\n  fix: convert it with"
            " nd.array(x)"
        )
    return NotImplemented


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
            source = invoke(lookup("Cast"), (source,), {"dtype": target._spec.dtype})
        run(copy_plan(source._spec, device), [source], (), target)
    elif source._spec.dtype == target._spec.dtype:
        run(make_plan(_COPY, _COPY.parse({}), [source._spec], device), [source], (), target)
    else:
        cast = lookup("Cast")
        attrs = cast.parse({"dtype": target._spec.dtype})
        run(make_plan(cast, attrs, [source._spec], device), [source], (), target)
