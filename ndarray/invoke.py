"""invoke: the life of one eager call. The door first: does something else take the call? Else the
plan, one call into the core, a note on the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..engine import Context, cpu, current_context, hooks
from ..engine.device import named
from ..engine.error import DeviceError, InvalidType
from ..kernels import precision
from ..kernels.plan import make_plan, scalars_of
from ..kernels.record import Operator, lookup
from ..kernels.scalar import given
from ..kernels.spec import STYPES
from ..kernels.traits import Collective, Eager, Front, LossLayer, Part
from .fronts import Step, Steps, call_front
from .launch import Plans, copy_into, run
from .ndarray import NDArray, check_nd, state
from .parts import read_part
from .tape import record

# what dense calls need of the package `sparse`, which fills it: "call" (an operator whose result is
# sparse), "array", "empty", "zeros"
SPARSE: dict[str, Callable] = {}
_AMP_CAST = lookup("amp_cast")


def invoke(
    op: Operator,
    inputs: Sequence[NDArray],
    attrs: dict[str, Any],
    out: Any = None,
    ctx: Context | None = None,
    plans: Plans | None = None,
    key: Any = None,
) -> Any:
    """Applies an operator. attrs: as a caller gives them. Returns an NDArray, or a list for several
    visible outputs.

    out: array(s) to write the visible outputs into. ctx: device of operators without inputs.
    plans, key: where the caller keeps the plan of a call that nothing else takes. Where precision
    policies exist the key is (the policy's number, key), and the plan may be Steps.
    Raises OperatorError and its kin at once when shapes, dtypes or attributes are wrong.
    """
    if precision.used and plans is not None:
        key = precision.number(), key
        plan = plans[key] if inputs and not op.has_dynamic else None
        if plan.__class__ is Steps:
            return plan.call(inputs, (), out)
        if plan is not None:
            return run(plan, inputs, (), out)
    leave = door(op, inputs, attrs)
    if leave is _stand_in or leave is _in_precision:
        return leave(op, inputs, attrs, out, ctx, plans, key)
    if leave is not None:
        return leave(op, inputs, attrs, out, ctx)
    return _dense(op, inputs, _complete(op, inputs, attrs), out, ctx, plans, key)


def _dense(op: Operator, inputs, attrs: dict[str, Any], out, ctx, plans=None, key=None) -> Any:
    """Plan, core, tape. attrs: complete."""
    device = device_of(op, inputs, ctx or attrs.get("ctx"), out)
    part = op.trait(Part)
    if part is not None and len(inputs) == 1:
        return read_part(inputs[0], *part.of(inputs[0]._spec.shape, **attrs), out=out)
    if op.train_aware:
        attrs["train"] = state.training
    plan = make_plan(op, attrs, [a._spec for a in inputs], device)
    if plans is not None:
        plans.keep(key, plan)
    return run(plan, inputs, scalars_of(op, attrs), out)


def _complete(op: Operator, inputs: Sequence, attrs: dict[str, Any]) -> dict[str, Any]:
    return op.parse(op.counted(attrs, len(inputs)))


# ---- the door ------------------------------------------------------------------------------------


def door(op: Operator, inputs: Sequence, attrs: dict[str, Any]) -> Callable | None:
    """What takes a call that is not one plan on dense arrays: (op, inputs, attrs, out, ctx) -> its
    result. None: nothing does."""
    for a in inputs:
        # a sparse array; a Symbol, where a forward that calls nd functions is being traced
        if a.__class__ is not NDArray and hasattr(a, "_call_operator"):
            return a._call_operator
    if op.has(Front):
        return _stand_in
    if precision.used:
        return _in_precision
    return _own_way(op, attrs)


def is_symbol(value: Any) -> bool:
    """Does a Symbol stand where an array is meant?"""
    return not isinstance(value, NDArray) and hasattr(value, "_call_operator")


def _own_way(op: Operator, attrs: dict[str, Any]) -> Callable | None:
    """What takes calls of operators that are Python code, or whose result is sparse."""
    if op.has(Eager):
        return _python
    if op.has(Collective):
        return _collective
    if attrs.get("stype") in STYPES[1:] or attrs.get("forward_stype") in STYPES[1:]:
        return SPARSE["call"]
    return None


def _stand_in(op: Operator, inputs, attrs: dict[str, Any], out, ctx, plans=None, key=None) -> Any:
    """An operator that stands for others."""
    attrs = _complete(op, inputs, attrs)
    op.check_inputs(attrs, len(inputs))
    device = device_of(op, inputs, ctx or attrs.get("ctx"), out)
    if precision.used:  # casts are made before it, as in graphs, and none inside
        before, inputs = inputs, _as_policy_wants(op, inputs, attrs)
        with precision.forced(None):
            return call_front(
                op, inputs, attrs, out, device, plans if inputs is before else None, key
            )
    return call_front(op, inputs, attrs, out, device, plans, key)


def _python(op: Operator, inputs: Sequence[NDArray], attrs: dict[str, Any], out, ctx) -> Any:
    """An operator whose eager call is Python code that calls other operators."""
    eager = op.trait(Eager)
    assert eager is not None  # see _own_way
    attrs = _complete(op, inputs, attrs)
    op.check_inputs(attrs, len(inputs))
    device_of(op, inputs, ctx, out)
    return eager.call(_call, inputs, out, **attrs)


def _collective(op: Operator, inputs: Sequence[NDArray], attrs: dict[str, Any], out, ctx) -> Any:
    """An operator that all ranks of a group compute together. It is noted on the tape as if it were
    one plan."""
    attrs = _complete(op, inputs, attrs)
    op.check_inputs(attrs, len(inputs))
    device = device_of(op, inputs, ctx, out)
    plan = make_plan(op, attrs, [a._spec for a in inputs], device)
    found = op.trait(Collective)
    assert found is not None  # see _own_way
    made = hooks.get("collective")(found.kind, inputs[0], attrs)
    if state.recording:
        record(plan, inputs, (), [made])
    if out is None:
        return made
    copy_into(made, out)
    return out


def _call(name: str, *inputs: NDArray, out=None, **attrs) -> Any:
    return invoke(lookup(name), inputs, attrs, out)


def _in_precision(op: Operator, inputs, attrs: dict[str, Any], out, ctx, plans=None, key=None):
    """A call while precision policies exist: its inputs in the dtypes of the one in force. key:
    holds the policy's number."""
    full = _complete(op, inputs, attrs)
    loss, leave = op.trait(LossLayer), _own_way(op, attrs)
    if loss is not None and loss.scaled:
        full["grad_scale"] *= precision.loss_scale()
        plans = None  # the scale changes
    if leave is not None:
        return leave(op, _as_policy_wants(op, inputs, full), attrs, out, ctx)
    casts = _casts(op, inputs, full)
    if casts is None:
        return _dense(op, inputs, full, out, ctx, plans, key)
    if op.has(Part):
        return _dense(op, _as_policy_wants(op, inputs, full), full, out, ctx)
    found = _cast_steps(op, inputs, casts, full, device_of(op, inputs, ctx, out))
    if plans is not None and all([plans.keeps(step.plan) for step in found.steps]):
        plans[key] = found
    return found.call(inputs, scalars_of(op, full), out)


def _cast_steps(op: Operator, inputs, casts, attrs: dict[str, Any], device: Context) -> Steps:
    """The casts of a call's inputs, then the call. attrs: complete."""
    n, specs, at = len(inputs), [a._spec for a in inputs], list(range(len(inputs)))
    steps: list[Step] = []
    for i, dtype in enumerate(casts):
        if dtype is not None:
            plan = make_plan(_AMP_CAST, _AMP_CAST.parse({"dtype": dtype}), [specs[i]], device)
            steps.append(Step(plan, (i,), (), n + len(steps)))
            at[i], specs[i] = steps[-1].first, plan.out_specs[0]
    if op.train_aware:
        attrs["train"] = state.training
    plan, first = make_plan(op, attrs, specs, device), n + len(steps)
    scalars = tuple([given(k) for k in range(len(plan.scalars))])
    steps.append(Step(plan, tuple(at), scalars, first))
    return Steps(tuple(steps), tuple(range(first, first + plan.n_visible)))


def call_known(
    op: Operator,
    inputs: Sequence[NDArray],
    attrs: dict[str, Any],
    plans: Plans,
    key: Any,
    scalars: Sequence[float] = (),
    out: Any = None,
) -> Any:
    """A call that a function's own look at its plans does not serve. scalars: its dynamic
    parameters."""
    if precision.used:
        plan = plans[precision.number(), key]
        if plan.__class__ is Steps:
            return plan.call(inputs, scalars, out)
        if plan is not None:
            return run(plan, inputs, scalars, out)
    return invoke(op, inputs, attrs, out, None, plans, key)


def _casts(op: Operator, inputs: Sequence, attrs: dict[str, Any]) -> list[str | None] | None:
    """The dtype to which the policy in force casts each input, None: it stays; None in place of the
    list: all stay."""
    policy = precision.active()
    if policy is None or not all([isinstance(a, NDArray) for a in inputs]):
        return None
    return policy.casts(op, attrs, [a._spec.dtype for a in inputs])


def _as_policy_wants(op: Operator, inputs: Sequence, attrs: dict[str, Any]) -> Sequence:
    """The inputs of a call in the dtypes of the policy in force. attrs: complete."""
    dtypes = _casts(op, inputs, attrs)
    if dtypes is None:
        return inputs
    return [
        a if d is None else _dense(_AMP_CAST, [a], {"dtype": d}, None, None)
        for a, d in zip(inputs, dtypes)
    ]


# ---- where it runs -------------------------------------------------------------------------------


def device_of(
    op: Operator, inputs: Sequence[Any], ctx: Context | str | None = None, out: Any = None
) -> Context:
    """Where a call runs: with its inputs; without any where `out` is, else on ctx (a Context or its
    text), else on the current device."""
    if not inputs:
        first = out[0] if isinstance(out, (list, tuple)) and out else out
        if isinstance(first, NDArray):
            return first._spec.device
        device: Any = current_context() if ctx is None or ctx == "" else ctx
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
