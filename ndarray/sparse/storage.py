"""Calls with sparse arrays: the table of operators' sparse kernels, the fallback to dense arrays,
and recording of such calls."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ...engine import Context
from ...engine.error import OperatorError
from ...engine.location import PACKAGE
from ...engine.recent import Recent
from ...kernels.plan import infer, make_plan, scalars_of
from ...kernels.record import MAX_KEPT, Operator, lookup, mutated_inputs
from ...kernels.spec import spec
from .. import autograd, functions
from ..invoke import device_of
from ..launch import copy_into, launch
from ..ndarray import NDArray, Scope, state
from ..tape import TapeNode, entries_of, next_seq, shadow

DENSE = "default"
# Gradients use broadcasting operators even if the shapes are known to be equal; for these the
# kernels of the others take more storage types
EQUAL_SHAPES = {f"broadcast_{n}": f"elemwise_{n}" for n in ("add", "sub", "mul")}


class StorageFallback(UserWarning):
    """An operator has no kernel for sparse arrays: they are made dense for it."""


class _State(threading.local):
    """Does this thread compute gradients?"""

    gradient = False


_state = _State()


class Kernel(NamedTuple):
    """An operator's kernel for sparse inputs.

    rule: (storage types of the inputs, attributes) -> that of the output, or None: fallback.
    run: (attributes, *inputs) -> the output; it writes mutated inputs itself. grad: like a
    record's, used instead for calls with sparse inputs, with `wanted`: the inputs whose gradients
    are needed.
    """

    rule: Callable
    run: Callable
    grad: Callable | None = None


# By operator name, as every table of kernels (kernels/native.py): records know of no arrays
TABLE: dict[str, Kernel] = {}


def kernel(*names: str, rule: Callable) -> Callable:
    """Registers a Kernel for operators, given by name."""

    def add(run):
        for name in names:
            TABLE[name] = Kernel(rule, run)
        return run

    return add


def gradient_of(*names: str) -> Callable:
    """Registers the gradient of calls with sparse inputs: (F, dys, xs, ys, wanted, **attrs)."""

    def add(grad):
        for name in names:
            TABLE[name] = TABLE[name]._replace(grad=grad)
        return grad

    return add


def output_stype(op: Operator, stypes: Sequence[str], attrs: dict) -> str:
    """The storage type of an operator's output(s) for those of its inputs."""
    found = TABLE.get(op.name)
    made = found.rule(tuple(stypes), attrs) if found else None
    return made or attrs.get("forward_stype") or DENSE


# ---- calls ---------------------------------------------------------------------------------------


def call(
    op: Operator,
    inputs: Sequence[NDArray],
    attrs: dict,
    out: Any = None,
    ctx: Context | None = None,
) -> Any:
    """`invoke` if some inputs are sparse."""
    if _state.gradient and op.name in EQUAL_SHAPES and inputs[0].shape == inputs[1].shape:
        op = lookup(EQUAL_SHAPES[op.name])
    attrs = op.counted(attrs, len(inputs))
    full = op.parse(attrs)
    if op.train_aware:
        full["train"] = state.training
    device_of(op, inputs, None)
    types = infer(op, full, [a._spec.type for a in inputs])  # raises shape errors
    stypes = tuple(a._spec.stype for a in inputs)
    found = TABLE.get(op.name)
    with autograd.pause(train_mode=state.training):
        if found is None or found.rule(stypes, full) is None:
            results = _fallback(op, inputs, full)
        else:
            result = found.run(full, *inputs)
            results = list(result) if isinstance(result, (list, tuple)) else [result]
    if state.recording:
        _record(op, full, inputs, results, types)
    results = results[: op.visible(full)]
    if out is None:
        return results[0] if len(results) == 1 else results
    targets = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) != len(results):
        raise OperatorError(op.name, f"out must have {len(results)} arrays, got {len(targets)}")
    for target, result in zip(targets, results):
        if target is not result:
            copy_into(result, target)
    return out


def _fallback(op: Operator, inputs: Sequence[NDArray], attrs: dict) -> list[NDArray]:
    stype = attrs.get("forward_stype") or DENSE
    _warn(op.name, [a._spec.stype for a in inputs], stype)
    dense = [a.tostype(DENSE) if a._spec.stype != DENSE else a for a in inputs]
    plan = make_plan(op, attrs, [a._spec for a in dense], dense[0]._spec.device)
    results = launch(plan, dense, scalars_of(op, attrs))
    for i in mutated_inputs(op, attrs, len(inputs)):
        if dense[i] is not inputs[i]:
            copy_into(dense[i], inputs[i])
    return [results[0].tostype(stype), *results[1:]]


_warned: set[str] = set()
warns = True  # MXNET_STORAGE_FALLBACK_LOG_VERBOSE in compatibility mode


def _warn(name: str, stypes: list[str], out: str) -> None:
    if _state.gradient or name in _warned:
        return
    _warned.add(name)
    if warns:
        warnings.warn(
            f"storage fallback: {name} has no kernel for storage types {', '.join(stypes)}; its"
            f" inputs are made dense and the result is {out} (reported once)",
            StorageFallback,
            stacklevel=_to_user(),
        )


def _to_user() -> int:
    """The number of frames from `_warn` to the user's line."""
    frame, n = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith(PACKAGE + "."):
        frame, n = frame.f_back, n + 1
    return n


# ---- the tape ------------------------------------------------------------------------------------


class _Call:
    """Takes the place of a Plan in tape nodes; shared by equal calls."""

    python = True
    saved = unread = ()
    made = Recent(MAX_KEPT)

    def __init__(self, op: Any, attrs: Any, out_specs: Any):
        self.op, self.attrs, self.out_specs = op, attrs, out_specs

    def eager_grads(self, node: Any, dys: Any, create_graph: bool) -> Any:
        """Gradients by the operator's own `grad`, whose calls dispatch on storage types."""
        xs = [autograd.with_entry(a, e) for a, e in zip(node.inputs, node.entries)]
        ys = [autograd.with_entry(y, (node, i)) for i, y in node.saved.items()]
        found = TABLE.get(self.op.name)
        device = self.out_specs[0].device
        outer, _state.gradient = _state.gradient, True
        try:
            return self._grads(found, dys, xs, ys, device, node)
        finally:
            _state.gradient = outer

    def _grads(self, found, dys, xs, ys, device, node):
        op = self.op
        with device, Scope(None, bool(self.attrs.get("train", state.training))):
            rule = op.grad
            if found and found.grad:
                rule = partial(found.grad, wanted=[e is not None for e in node.entries])
            if rule is None:
                return [None] * len(xs)
            return op.differentiate(functions, dys, xs, ys, self.attrs, rule)


def _record(op: Operator, attrs: dict, inputs, results, types) -> None:
    entries = entries_of(inputs)
    if entries is None:
        return
    device = inputs[0]._spec.device
    out_specs = tuple(
        r._spec if i < len(results) else spec(tuple(t.shape), t.dtype, device)
        for i, (r, t) in enumerate(zip(results, types))
    )
    key = (op.name, *attrs.values(), "|", *out_specs, "|", *(a._spec for a in inputs))
    found = _Call.made[key]
    if found is None:
        found = _Call.made[key] = _Call(op, attrs, out_specs)
    node = TapeNode()
    node.plan, node.inputs, node.entries, node.scalars = found, tuple(inputs), entries, ()
    node.seq, node.saved = next_seq(), {i: shadow(r) for i, r in enumerate(results)}
    for i, r in enumerate(results):
        r._tape = (node, i)
