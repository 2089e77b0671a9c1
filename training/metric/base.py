"""What all metrics share: their registry, the base class, lists of metrics and functions as
metrics."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ...engine import svg
from ...engine.error import (
    InvalidType,
    InvalidValue,
    MissingMethod,
    compose,
    did_you_mean,
)
from ...engine.registry import get_alias_func, get_create_func, get_register_func, table
from ...ndarray import functions
from ...ndarray.ndarray import NDArray
from ...ndarray.saved_state import Stateful

# batches whose sums have not been fetched; a longer queue is fetched, oldest first
MAX_PENDING = 64


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from its name, a function (label, pred) -> value, a list of these, what
    `get_config` gave (a dict or its JSON text), or a metric (returned as it is).

    Raises: MXNetError (also a ValueError) for an unknown name, TypeError for anything else.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(m, *args, **kwargs) for m in metric])
    if isinstance(metric, dict) or (isinstance(metric, str) and metric[:1] in ("[", "{")):
        return _from_config(metric, *args, **kwargs)
    if isinstance(metric, str):
        if metric.lower() not in REGISTRY:
            rule = f"metric {metric!r} is unknown, expected one of {', '.join(sorted(REGISTRY))}"
            raise UnknownMetric(compose(rule, fix=did_you_mean(metric, REGISTRY)))
        return REGISTRY[metric.lower()](*args, **kwargs)
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    raise InvalidType(
        f"metric must be a name, a function, a list or an EvalMetric, got {type(metric).__name__}"
    )


class UnknownMetric(InvalidValue):
    """No metric has this name."""


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> Any:
    """Raises ValueError unless there are as many labels as predictions (of one shape, if `shape`).

    wrap: make lists of single arrays. Returns (labels, preds).
    """
    a, b = (labels.shape, preds.shape) if shape else (_length(labels), _length(preds))
    if a != b:
        raise InvalidValue(f"Shape of labels {a} does not match shape of predictions {b}")
    if wrap:
        labels = [labels] if isinstance(labels, (NDArray, numpy.ndarray)) else labels
        preds = [preds] if isinstance(preds, (NDArray, numpy.ndarray)) else preds
    return labels, preds


def _length(x: Any) -> int:
    """The number of arrays in a list, or of rows of an array; a 0-d array is one."""
    return 1 if getattr(x, "shape", None) == () else len(x)


class EvalMetric(Stateful):
    """Base of all metrics: a sum over instances divided by their number.

    Two statistics are kept: the local one, which `reset_local` clears, and the global one, which
    only `reset` clears. A subclass defines `update(labels, preds)`; there it adds to `sum_metric`
    and `num_inst` (then the metric has local statistics only), or calls `add(sum, count)`, where
    either may be an NDArray that is not computed yet.

    Args:
        name: shown in reports.
        output_names, label_names: the entries of the dicts that update_dict takes; None takes all.
    """

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
        **kwargs: Any,
    ):
        self.name = str(name)
        self.output_names, self.label_names = output_names, label_names
        self._has_global_stats = kwargs.pop("has_global_stats", False)
        self._kwargs = kwargs
        EvalMetric.reset(self)  # a subclass may have a reset of its own that only sets sum_metric
        self.reset()

    def __str__(self):
        return f"EvalMetric: {dict(self.get_name_value())}"

    def _repr_html_(self) -> str:
        """Jupyter's view: the values so far."""
        return svg.table(["metric", "value"], [[n, f"{v:.6g}"] for n, v in self.get_name_value()])

    def get_config(self) -> dict:
        """The arguments that `create` makes this metric from."""
        return self._kwargs | {
            "metric": type(self).__name__,
            "name": self.name,
            "output_names": self.output_names,
            "label_names": self.label_names,
        }

    not_state = ("name", "output_names", "label_names", "_kwargs", "_has_global_stats")

    def state_dict(self) -> dict:
        """The statistics so far. Waits for the batches that are not counted yet."""
        self._fetch()
        return super().state_dict()

    # ---- statistics ------------------------------------------------------------------------------

    def reset(self) -> None:
        """Clears everything."""
        self._pending: list = []
        self._local, self._global = [0.0, 0], [0.0, 0]

    def reset_local(self) -> None:
        """Clears the local statistics."""
        self._pending = [(total, count, False) for total, count, _ in self._pending]
        self._local = [0.0, 0]

    def add(self, total: Any, count: Any) -> None:
        """Adds to both statistics; an NDArray is fetched when the result is read, or
        after a while."""
        self._pending.append((total, count, True))
        if len(self._pending) > MAX_PENDING:
            self._fetch(MAX_PENDING // 2)

    def _fetch(self, n: int | None = None) -> None:
        ready, self._pending = self._pending[:n], self._pending[n:] if n is not None else []
        for total, count, local in ready:
            total, count = _number(total), _number(count)
            for statistic in (self._local, self._global) if local else (self._global,):
                statistic[0] += total
                statistic[1] += count

    def statistics(self) -> Any:
        """What it has counted, as plain data that ranks exchange. A subclass that counts in other
        attributes than sum_metric and num_inst extends both this and `combine`."""
        self._fetch()
        return [*self._local, *self._global]

    def combine(self, ranks: Sequence[Any]) -> None:
        """Replaces what it has counted by what several ranks have: their `statistics`."""
        total = [sum(numbers) for numbers in zip(*ranks)]
        self._local, self._global = total[:2], total[2:]

    def _value(self, statistic: str, place: int):
        if self._pending:
            self._fetch()
        return getattr(self, statistic)[place]

    def _assign(self, statistic: str, place: int, value) -> None:
        if self._pending:
            self._fetch()
        getattr(self, statistic)[place] = value

    sum_metric = property(
        lambda self: self._value("_local", 0), lambda self, v: self._assign("_local", 0, v)
    )
    num_inst = property(
        lambda self: self._value("_local", 1), lambda self, v: self._assign("_local", 1, v)
    )
    global_sum_metric = property(
        lambda self: self._value("_global", 0), lambda self, v: self._assign("_global", 0, v)
    )
    global_num_inst = property(
        lambda self: self._value("_global", 1), lambda self, v: self._assign("_global", 1, v)
    )

    def result(self, total: float, count: float) -> float:
        """The metric of a statistic with count > 0."""
        return total / count

    def get(self) -> tuple:
        """(name, value) of the local statistics; NaN before the first update."""
        n = self.num_inst
        return self.name, float(self.result(self.sum_metric, n)) if n else math.nan

    def get_global(self) -> tuple:
        """(name, value) since the last `reset`."""
        if not self._has_global_stats:
            return self.get()
        n = self.global_num_inst
        return self.name, float(self.result(self.global_sum_metric, n)) if n else math.nan

    def get_name_value(self) -> list[tuple]:
        """[(name, value), ...]"""
        return _pairs(self.get())

    def get_global_name_value(self) -> list[tuple]:
        """[(name, value), ...] since the last `reset`."""
        return _pairs(self.get_global()) if self._has_global_stats else self.get_name_value()

    # ---- input -----------------------------------------------------------------------------------

    def update(self, labels: Any, preds: Any) -> None:
        """Takes one batch: lists of arrays, or single arrays."""
        raise InvalidType(f"{type(self).__name__} must define update(labels, preds)")

    def update_dict(self, label: dict, pred: dict) -> None:
        """Takes one batch from dicts, picking label_names and output_names."""
        preds = (
            list(pred.values())
            if self.output_names is None
            else [pred[name] for name in self.output_names if name in pred]
        )
        labels = (
            list(label.values())
            if self.label_names is None
            else [label[name] for name in self.label_names if name in label]
        )
        self.update(labels, preds)


def _number(value) -> float:
    return float(value.asnumpy().sum()) if isinstance(value, NDArray) else value


def _pairs(got) -> list[tuple]:
    names, values = got
    return list(zip(names, values)) if isinstance(names, list) else [(names, values)]


def as_array(x: Any) -> NDArray:
    return x if isinstance(x, NDArray) else functions.array(x, dtype=numpy.asarray(x).dtype)


def flat(x: NDArray, dtype: str = "float32") -> NDArray:
    x = x.reshape((-1,))
    return x if x._spec.dtype == dtype else x.astype(dtype)


def pairs(labels: Any, preds: Any) -> list[Any]:
    """Pairs of NDArrays after check_label_shapes, each on the device of the prediction."""
    labels, preds = check_label_shapes(labels, preds, True)
    pairs = [(as_array(a), as_array(b)) for a, b in zip(labels, preds, strict=True)]
    return [(a.as_in_context(b.context), b) for a, b in pairs]


register = get_register_func(EvalMetric, "metric")
alias = get_alias_func(EvalMetric, "metric")
_from_config = get_create_func(EvalMetric, "metric")
REGISTRY = table(EvalMetric)


@register
@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics as one; names and values are lists."""

    def __init__(
        self,
        metrics: Any = None,
        name: str = "composite",
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        self.metrics = [create(m) for m in metrics or []]
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def add(self, metric: Any, *_: Any) -> None:
        """Appends a metric (anything `create` takes)."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric at an index. Raises ValueError."""
        if not 0 <= index < len(self.metrics):
            raise InvalidValue(f"Metric index {index} is out of range 0 and {len(self.metrics)}")
        return self.metrics[index]

    def update_dict(self, labels: Any, preds: Any) -> None:
        if self.label_names is not None:
            labels = OrderedDict((k, v) for k, v in labels.items() if k in self.label_names)
        if self.output_names is not None:
            preds = OrderedDict((k, v) for k, v in preds.items() if k in self.output_names)
        for metric in self.metrics:
            metric.update_dict(labels, preds)

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self) -> None:
        super().reset()
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        super().reset_local()
        for metric in self.metrics:
            metric.reset_local()

    def _all(self, get: str) -> tuple[list, list]:
        names, values = [], []
        for metric in self.metrics:
            for name, value in getattr(metric, get)():
                names.append(name)
                values.append(value)
        return names, values

    def get(self) -> Any:
        return self._all("get_name_value")

    def get_global(self) -> Any:
        return self._all("get_global_name_value")

    def get_config(self) -> Any:
        return super().get_config() | {"metrics": [m.get_config() for m in self.metrics]}


@register
class CustomMetric(EvalMetric):
    """A function as a metric.

    Args:
        feval: (label, pred), NumPy arrays -> value of the batch, or (sum, count).
        allow_extra_outputs: there may be more predictions than labels.
    """

    def __init__(
        self,
        feval: Callable,
        name: str | None = None,
        allow_extra_outputs: bool = False,
        output_names: Sequence[str] | str | None = None,
        label_names: Sequence[str] | str | None = None,
    ):
        if name is None:
            name = feval.__name__
            name = f"custom({name})" if "<" in name else name
        super().__init__(
            name,
            output_names,
            label_names,
            feval=feval,
            allow_extra_outputs=allow_extra_outputs,
            has_global_stats=True,
        )
        self._feval, self._allow_extra_outputs = feval, allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, True)
        for pred, label in zip(preds, labels):
            value = self._feval(as_array(label).asnumpy(), as_array(pred).asnumpy())
            total, count = value if isinstance(value, tuple) else (value, 1)
            self.add(total, count)

    def get_config(self) -> Any:
        raise MissingMethod("CustomMetric cannot be serialized")


def np(
    numpy_feval: Callable, name: str | None = None, allow_extra_outputs: bool = False
) -> CustomMetric:
    """A metric from a function of NumPy arrays (label, pred)."""

    def feval(label, pred):
        return numpy_feval(label, pred)

    feval.__name__ = numpy_feval.__name__
    return CustomMetric(feval, name, allow_extra_outputs)
