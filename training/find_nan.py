"""`mx.monitor.find_nan`: the first operation of a network that makes a NaN or an Inf."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..engine import hooks, layers, location
from ..ndarray import NDArray, autograd, watch
from ..ndarray.nesting import flatten
from . import nan_fixes


@dataclass
class Values:
    """What is in an array. low, high: of its finite values; None where there are none."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: float | None
    high: float | None
    n_nan: int
    n_inf: int
    size: int

    @property
    def is_finite(self) -> bool:
        return not self.n_nan and not self.n_inf

    @property
    def finite_share(self) -> float:
        return 1 - (self.n_nan + self.n_inf) / max(1, self.size)

    def __str__(self) -> str:
        text = f"{self.name}: {self.shape} {self.dtype}"
        if self.low is not None:
            text += f", from {self.low:.4g} to {self.high:.4g}"
        if not self.is_finite:
            bad = [f"{n} {what}" for n, what in ((self.n_nan, "NaN"), (self.n_inf, "Inf")) if n]
            text += f", {' and '.join(bad)} of {self.size} ({self.finite_share:.0%} finite)"
        return text


@dataclass
class NanReport:
    """Where a NaN or an Inf comes from.

    where: "data" (it was in an input or label), "parameter", "forward" or "backward" (an operation
    made it there), "compiled" (no operation made it when they ran one by one). kind: "NaN" or
    "Inf". operator, layer, line: of the operation; in backward, of the one whose gradient it is.
    inputs, output: what it read and made; of data and parameters, `output` is the array. fix: what
    helps, or "".
    """

    where: str
    kind: str
    operator: str
    layer: str | None
    line: str | None
    output: Values
    inputs: list[Values] = field(default_factory=list)
    fix: str = ""
    gradient: str = ""  # in backward: the operator that computes the gradient

    @property
    def made_here(self) -> bool:
        """Did the network make it, rather than get it with its data or parameters?"""
        return self.where in ("forward", "backward", "compiled")

    def __str__(self) -> str:
        head = {
            "data": f"{self.output.name} has {self.kind} before the network runs",
            "parameter": f"parameter {self.operator!r} has {self.kind} before the network runs",
            "compiled": f"the compiled network gives {self.kind}, its operations one by one do not",
            "forward": f"{self.operator} makes {self.kind} in forward",
            "backward": f"the gradient of {self.operator} is {self.kind}",
        }[self.where]
        lines = [f"find_nan: {head}"]
        lines += [f"  layer: {self.layer}"] if self.layer else []
        lines += [f"  at: {self.line}"] if self.line else []
        lines += [f"  computed by: {self.gradient}"] if self.gradient else []
        lines += [f"  input {v}" for v in self.inputs]
        lines.append(f"  {'output' if self.made_here else 'array'} {self.output}")
        lines += [f"  fix: {self.fix}"] if self.fix else []
        return "\n".join(lines)

    __repr__ = __str__


def find_nan(
    net: Any,
    *inputs: Any,
    loss: Any = None,
    labels: Any = None,
    backward: bool | None = None,
    train_mode: bool | None = None,
) -> NanReport | None:
    """Runs a network operator by operator and finds the first one that makes a NaN or an Inf.

    It says whether the number came in with the data or a parameter, or which operator made it, in
    forward or backward, with its layer, the line that called it and the range of its inputs. Works
    for hybridized networks too, whose operators it runs one by one. Gradients, parameters and
    running means stay as they are; random operators draw new numbers.

    Args:
        net: a Block, or any function of NDArrays.
        inputs: as for a call of net.
        loss, labels: loss(net(*inputs), *labels) is computed as well. labels: an array, or a list.
        backward: look at gradients too. Default: if a loss is given.
        train_mode: as in training, for Dropout and BatchNorm. Default: if gradients are looked at.
    Returns: a report that prints, or None where all is finite.

    >>> x = mx.nd.array([1.0, 0.0])
    >>> report = mx.monitor.find_nan(lambda x: mx.nd.log(x), x)
    >>> report.operator, report.kind, report.made_here
    ('log', 'Inf', True)
    """
    given = (
        [] if labels is None else list(labels) if isinstance(labels, (list, tuple)) else [labels]
    )
    backward = loss is not None if backward is None else backward
    found = _given(net, inputs, given)
    if found is not None:
        return found
    parameters = _parameters(net)
    if any(p._data is None for p in parameters.values()):
        with autograd.pause(train_mode=False):  # completes their shapes
            net(*inputs)
    search = _Search()
    with _kept(parameters), search.running():
        with autograd.record(train_mode=backward if train_mode is None else train_mode):
            heads = _heads(net, inputs, loss, given)
        if backward:
            search.differentiate(heads, parameters)
    if search.found is None:
        return _of_compiled(net, inputs, loss, given, parameters)
    return search.found


def values(name: str, array: NDArray) -> Values:
    """What is in an array. Waits for it."""
    a = (array if array.stype == "default" else array.tostype("default")).asnumpy()
    a = np.asarray(a, np.float32) if a.dtype.kind not in "fiub" else a
    finite = np.isfinite(a)
    good = a[finite]
    low, high = (float(good.min()), float(good.max())) if good.size else (None, None)
    n_nan = int(np.isnan(a).sum()) if a.dtype.kind == "f" else 0
    n_inf = int(a.size - finite.sum()) - n_nan
    return Values(name, tuple(array.shape), array._spec.dtype, low, high, n_nan, n_inf, a.size)


def _arrays(value: Any) -> list[NDArray]:
    return [a for a in flatten(value, NDArray, lambda *_: -1)[0] if isinstance(a, NDArray)]


def _heads(net: Any, inputs: Sequence[Any], loss: Any, labels: Sequence[Any]) -> list[NDArray]:
    out = net(*inputs)
    return _arrays(out if loss is None else loss(out, *labels))


def _parameters(net: Any) -> dict[str, Any]:
    if not hasattr(net, "_collect_params_with_prefix"):
        return {}
    return net._collect_params_with_prefix()


def _given(net: Any, inputs: Sequence[Any], labels: Sequence[Any]) -> NanReport | None:
    """A NaN that is there before the network runs."""
    for role, arrays in (("input", _arrays(list(inputs))), ("label", _arrays(list(labels)))):
        for i, a in enumerate(arrays):
            v = values(f"{role} {i}", a)
            if not v.is_finite:
                return NanReport("data", _kind(v), role, None, None, v, fix=nan_fixes.DATA)
    for name, p in _parameters(net).items():
        if p._data is None:
            continue
        v = values(name, p.list_data()[0])
        if not v.is_finite:
            fix = nan_fixes.PARAMETER
            return NanReport("parameter", _kind(v), name, None, None, v, fix=fix)
    return None


def _kind(v: Values) -> str:
    return "NaN" if v.n_nan else "Inf"


@contextmanager
def _kept(parameters: dict[str, Any]) -> Iterator[None]:
    """Running means and variances are as before afterwards."""
    kept = {
        p: [a.copy() for a in p.list_data()]
        for p in parameters.values()
        if p.grad_req == "null" and p._data is not None
    }
    try:
        yield
    finally:
        with autograd.pause():
            for p, arrays in kept.items():
                for now, before in zip(p.list_data(), arrays):
                    now[:] = before


class _Stop(BaseException):
    """The search is over. Not an Exception: code in between must not catch it."""


class _Search:
    """Looks at each operation that the thread runs, until one is found."""

    def __init__(self) -> None:
        self.found: NanReport | None = None
        self._thread = threading.get_ident()
        self._lines: dict[tuple, str | None] = {}  # of forward calls, for their gradients
        self._looks = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, blocks run operator by operator; it ends where something is found."""
        traces = hooks.get("state of traces")
        eager, traces.eager = traces.eager, True
        layers.watch(True)
        try:
            with watch.watched(self.see):
                yield
        except _Stop:
            pass
        finally:
            layers.watch(False)
            traces.eager = eager

    def differentiate(self, heads: Sequence[NDArray], parameters: dict[str, Any]) -> None:
        """The gradients of the heads, operator by operator."""
        heads = [h for h in heads if h._tape is not None]
        arrays = [a for p in parameters.values() if p._data is not None for a in p.list_data()]
        wanted = [a for a in arrays if a._tape is not None]
        if heads:
            autograd.interpret(heads, [None] * len(heads), [a._tape for a in wanted], True)

    def see(self, plan: Any, inputs: Sequence, scalars: Sequence, outputs: Sequence) -> None:
        """A call. Raises _Stop if it made a NaN or an Inf."""
        if threading.get_ident() != self._thread or self._looks:
            return
        op, of = getattr(plan, "op", None), watch.gradient_of
        if op is None:
            return
        layer = layers.current()
        if of is None:
            self._lines[layer, op.name] = location.text(location.capture())
        self._looks = True  # what it computes itself is not looked at
        try:
            self._look(plan, op, of, layer, inputs, scalars, outputs)
        finally:
            self._looks = False

    def _look(self, plan, op, of, layer, inputs, scalars, outputs) -> None:
        for i, out in enumerate(outputs[: plan.n_visible]):
            if "float" not in out._spec.dtype:
                continue
            made = values(f"{i}" if plan.n_visible > 1 else op.name, out)
            if made.is_finite:
                continue
            names = op.names_in(plan.attrs, len(inputs))
            read = [values(name, a) for name, a in zip(names, inputs)]
            meant = not inputs or not np.all(np.isfinite(list(scalars)))
            is_new = bool(made.n_nan) and not any(v.n_nan for v in read)
            is_new = is_new or bool(made.n_inf) and all(v.is_finite for v in read)
            if meant or not is_new:  # the user's own Inf, such as a mask; or it came from before
                continue
            name = op.name if of is None else getattr(getattr(of, "op", None), "name", "a function")
            self.found = NanReport(
                "forward" if of is None else "backward",
                _kind(made),
                name,
                layer,
                self._lines.get((layer, name)),
                made,
                read,
                nan_fixes.fix(name, of is not None, made, read),
                "" if of is None else op.name,
            )
            raise _Stop


def _of_compiled(net, inputs, loss, labels, parameters) -> NanReport | None:
    """The network as it runs otherwise, where its operators alone made nothing."""
    with _kept(parameters), autograd.pause():
        for i, head in enumerate(_heads(net, inputs, loss, labels)):
            v = values(f"output {i}", head)
            if not v.is_finite:
                return NanReport("compiled", _kind(v), "", None, None, v, fix=nan_fixes.COMPILED)
    return None
