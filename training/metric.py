"""Metrics: running averages over a data set. update() queues work; get() waits for it."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import numpy

from ..engine.error import (
    InvalidType,
    InvalidValue,
    MissingMethod,
    compose,
    did_you_mean,
)
from ..engine.registry import get_alias_func, get_create_func, get_register_func, table
from ..ndarray import functions
from ..ndarray.ndarray import NDArray
from ..ndarray.saved_state import Stateful

# batches whose sums have not been fetched; a longer queue is fetched, oldest first
MAX_PENDING = 64


def create(metric, *args, **kwargs) -> EvalMetric:
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


def check_label_shapes(labels, preds, wrap: bool = False, shape: bool = False):
    """Raises ValueError unless there are as many labels as predictions (of one shape, if `shape`).

    wrap: make lists of single arrays. Returns (labels, preds).
    """
    a, b = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if a != b:
        raise InvalidValue(f"Shape of labels {a} does not match shape of predictions {b}")
    if wrap:
        labels = [labels] if isinstance(labels, (NDArray, numpy.ndarray)) else labels
        preds = [preds] if isinstance(preds, (NDArray, numpy.ndarray)) else preds
    return labels, preds


class EvalMetric(Stateful):
    """Base of all metrics: a sum over instances divided by their number.

    Two statistics run side by side: the local one, which `reset_local` clears, and the global one,
    which only `reset` clears. A subclass defines `update(labels, preds)`; there it adds to
    `sum_metric` and `num_inst` (then the metric has local statistics only), or calls `add(sum,
    count)`, where either may be an NDArray that is not computed yet.

    Args:
        name: shown in reports.
        output_names, label_names: the entries of the dicts that update_dict takes; None takes all.
    """

    def __init__(self, name, output_names=None, label_names=None, **kwargs):
        self.name = str(name)
        self.output_names, self.label_names = output_names, label_names
        self._has_global_stats = kwargs.pop("has_global_stats", False)
        self._kwargs = kwargs
        EvalMetric.reset(self)  # a subclass may have a reset of its own that only sets sum_metric
        self.reset()

    def __str__(self):
        return f"EvalMetric: {dict(self.get_name_value())}"

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

    def add(self, total, count) -> None:
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

    def update(self, labels, preds) -> None:
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


def _array(x) -> NDArray:
    return x if isinstance(x, NDArray) else functions.array(x, dtype=numpy.asarray(x).dtype)


def _flat(x: NDArray, dtype: str = "float32") -> NDArray:
    x = x.reshape((-1,))
    return x if x._spec.dtype == dtype else x.astype(dtype)


def _arrays(labels, preds):
    """Pairs of NDArrays after check_label_shapes, each on the device of the prediction."""
    labels, preds = check_label_shapes(labels, preds, True)
    pairs = [(_array(a), _array(b)) for a, b in zip(labels, preds, strict=True)]
    return [(a.as_in_context(b.context), b) for a, b in pairs]


register = get_register_func(EvalMetric, "metric")
alias = get_alias_func(EvalMetric, "metric")
_from_config = get_create_func(EvalMetric, "metric")
REGISTRY = table(EvalMetric)


@register
@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics as one; names and values are lists."""

    def __init__(self, metrics=None, name="composite", output_names=None, label_names=None):
        self.metrics = [create(m) for m in metrics or []]
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def add(self, metric, *_) -> None:
        """Appends a metric (anything `create` takes)."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """The metric at a place. Raises ValueError."""
        if not 0 <= index < len(self.metrics):
            raise InvalidValue(f"Metric index {index} is out of range 0 and {len(self.metrics)}")
        return self.metrics[index]

    def update_dict(self, labels, preds):
        if self.label_names is not None:
            labels = OrderedDict((k, v) for k, v in labels.items() if k in self.label_names)
        if self.output_names is not None:
            preds = OrderedDict((k, v) for k, v in preds.items() if k in self.output_names)
        for metric in self.metrics:
            metric.update_dict(labels, preds)

    def update(self, labels, preds):
        for metric in self.metrics:
            metric.update(labels, preds)

    def reset(self):
        super().reset()
        for metric in self.metrics:
            metric.reset()

    def reset_local(self):
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

    def get(self):
        return self._all("get_name_value")

    def get_global(self):
        return self._all("get_global_name_value")

    def get_config(self):
        return super().get_config() | {"metrics": [m.get_config() for m in self.metrics]}


# ---- classification ------------------------------------------------------------------------------


@register
@alias("acc")
class Accuracy(EvalMetric):
    """The part of predictions that are right.

    axis: where the classes stand in predictions that have one axis more than labels.
    """

    def __init__(self, axis=1, name="accuracy", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def update(self, labels, preds):
        for label, pred in _arrays(labels, preds):
            if pred.shape != label.shape:
                if not -pred.ndim <= self.axis < pred.ndim:
                    raise InvalidValue(
                        f"Accuracy: predictions must have shape {label.shape} as labels, or classes"
                        f" on axis {self.axis}, got shape {pred.shape}"
                    )
                pred = functions.argmax(pred, axis=self.axis)
            label, pred = _flat(label, "int32"), _flat(pred, "int32")
            check_label_shapes(label, pred, shape=True)
            self.add(functions.sum(_equal(label, pred)), label.size)


def _equal(a: NDArray, b: NDArray) -> NDArray:
    return functions.cast(functions.broadcast_equal(a, b), dtype="float32")


@register
@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """The part of labels that are among the top_k (> 1) most likely classes; predictions are (N,
    classes)."""

    def __init__(self, top_k=1, name="top_k_accuracy", output_names=None, label_names=None):
        if top_k <= 1:
            raise InvalidValue(
                f"TopKAccuracy: top_k must be above 1, got {top_k}\n  fix: use Accuracy for"
                " top_k = 1"
            )
        super().__init__(name, output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k
        if not self.name.endswith(f"_{top_k}"):  # get_config gives the whole name
            self.name += f"_{top_k}"

    def get_config(self):
        return super().get_config() | {"name": self.name}

    def update(self, labels, preds):
        for label, pred in _arrays(labels, preds):
            if pred.ndim > 2:
                raise InvalidValue(
                    "TopKAccuracy: predictions should be no more than 2 dims, got shape"
                    f" {pred.shape}"
                )
            label = _flat(label, "int32")
            if pred.ndim == 1:
                self.add(functions.sum(_equal(label, _flat(pred, "int32"))), pred.size)
                continue
            check_label_shapes(label, pred)
            best = functions.topk(pred, k=min(self.top_k, pred.shape[1]), axis=1, dtype="int32")
            self.add(functions.sum(_equal(best, label.reshape((-1, 1)))), pred.shape[0])


class _Confusion(EvalMetric):
    """Metrics of a confusion matrix (labels x predictions); macro: their mean over batches, micro:
    of all together."""

    def __init__(self, name, average, output_names, label_names):
        if average not in ("macro", "micro"):
            raise InvalidValue(
                f"{type(self).__name__}: average must be 'macro' or 'micro', got {average!r}"
            )
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def reset(self):
        super().reset()
        self._matrices = {"_local": numpy.zeros((2, 2)), "_global": numpy.zeros((2, 2))}

    def reset_local(self):
        super().reset_local()
        self._matrices["_local"] = numpy.zeros((2, 2))

    def update(self, labels, preds):
        batch = numpy.zeros((2, 2))  # of all arrays together: devices, outputs
        for label, pred in _arrays(labels, preds):
            matrix = self.confusion(label.asnumpy().astype(int).ravel(), pred.asnumpy())
            batch = _sum(batch, matrix)
        if self.average == "macro":
            self.add(self.score(batch), 1)
            return
        for which, total in self._matrices.items():
            total = self._matrices[which] = _sum(total, batch)
            statistic = getattr(self, which)
            n = self.weight(total, statistic[1])
            statistic[:] = self.score(total) * n, n

    def confusion(self, label: numpy.ndarray, pred: numpy.ndarray) -> numpy.ndarray:
        classes = pred.argmax(axis=1) if pred.ndim > 1 else (pred > 0.5).astype(int)
        if len(label) != len(classes):
            raise InvalidValue(
                f"Shape of labels {len(label)} does not match shape of predictions {len(classes)}"
            )
        n = 1 + max(label.max(initial=1), classes.max(initial=1))
        matrix = numpy.zeros((n, n))
        numpy.add.at(matrix, (label, classes), 1)
        return matrix

    def weight(self, matrix, batches) -> float:
        """What num_inst counts: instances."""
        return matrix.sum()


def _sum(a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    """The sum of two square matrices; the smaller one is padded with zeros."""
    n = max(len(a), len(b))
    total = numpy.zeros((n, n))
    for matrix in (a, b):
        total[: len(matrix), : len(matrix)] += matrix
    return total


class _Binary(_Confusion):
    def get_config(self):
        return super().get_config() | {"average": self.average}

    def confusion(self, label, pred):
        if label.size and (label.min() < 0 or label.max() > 1):
            raise InvalidValue(
                f"{type(self).__name__} currently only supports binary classification: labels must"
                f" be 0 or 1, got values from {label.min()} to {label.max()}"
            )
        matrix = super().confusion(label, pred)
        return numpy.stack([matrix[:2, 0], matrix[:2, 1:].sum(axis=1)], axis=1)


@register
class F1(_Binary):
    """Harmonic mean of precision and recall of class 1.

    average: "macro", the mean over updates of the value of all an update's arrays together, or
        "micro", the value of all updates together.
    """

    def __init__(self, name="f1", output_names=None, label_names=None, average="macro"):
        super().__init__(name, average, output_names, label_names)

    def score(self, matrix):
        hits = matrix[1, 1]
        return 2 * hits / (2 * hits + matrix[0, 1] + matrix[1, 0]) if hits else 0.0


@register
class MCC(_Binary):
    """Matthews correlation coefficient of two classes. average: as F1. Source: Matthews 1975."""

    def __init__(self, name="mcc", output_names=None, label_names=None, average="macro"):
        super().__init__(name, average, output_names, label_names)

    def score(self, matrix):
        margins = [m for m in (*matrix.sum(axis=0), *matrix.sum(axis=1)) if m]
        return (
            (matrix[1, 1] * matrix[0, 0] - matrix[0, 1] * matrix[1, 0])
            / math.sqrt(math.prod(margins))
            if matrix.any()
            else 0.0
        )


@register
class PCC(_Confusion):
    """Correlation of labels and predictions for any number of classes: MCC's generalisation.
    Source: Gorodkin 2004."""

    def __init__(self, name="pcc", output_names=None, label_names=None, has_global_stats=True):
        super().__init__(name, "micro", output_names, label_names)

    def score(self, matrix):
        n, rows, columns = matrix.sum(), matrix.sum(axis=1), matrix.sum(axis=0)
        both = numpy.sum(rows * (n - rows)) * numpy.sum(columns * (n - columns))
        return (
            float((n * numpy.trace(matrix) - rows @ columns) / math.sqrt(both))
            if both
            else math.nan
        )

    def weight(self, matrix, batches):
        return batches + 1


# ---- regression ----------------------------------------------------------------------------------


class _Regression(EvalMetric):
    """The mean over batches of a mean over elements."""

    def __init__(self, name, output_names=None, label_names=None):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels, preds):
        for label, pred in _arrays(labels, preds):
            label, pred = _column(label), _column(pred)
            label = (
                label if label._spec.dtype == pred._spec.dtype else label.astype(pred._spec.dtype)
            )
            self.add(self.error(label - pred), 1)


def _column(x: NDArray) -> NDArray:
    return x.reshape((-1, 1)) if x.ndim == 1 else x


@register
class MAE(_Regression):
    """Mean absolute error."""

    def __init__(self, name="mae", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names)

    def error(self, difference):
        return functions.mean(functions.abs(difference))


@register
class MSE(_Regression):
    """Mean squared error."""

    def __init__(self, name="mse", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names)

    def error(self, difference):
        return functions.mean(functions.square(difference))


@register
class RMSE(_Regression):
    """Root mean squared error: of each batch, then the mean."""

    def __init__(self, name="rmse", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names)

    def error(self, difference):
        return functions.sqrt(functions.mean(functions.square(difference)))


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Pearson's correlation of labels and predictions. average: "macro", the batches' mean, or
    "micro", of all."""

    def __init__(self, name="pearsonr", output_names=None, label_names=None, average="macro"):
        if average not in ("macro", "micro"):
            raise InvalidValue(
                f"PearsonCorrelation: average must be 'macro' or 'micro', got {average!r}"
            )
        self.average = average
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def reset(self):
        super().reset()
        self.reset_micro()

    def reset_local(self):
        super().reset_local()
        self._moments["_local"] = _Moments()

    def reset_micro(self) -> None:
        """Forgets what the micro average knows."""
        self._moments = {"_local": _Moments(), "_global": _Moments()}

    def update_variance(self, new_values, *aggregate):
        """(count, mean, sum of squared deviations) of values seen before, with new_values (N,)
        among them. Source: Welford 1962."""
        count, mean, squares = aggregate
        count += len(new_values)
        delta = new_values - mean
        mean = mean + delta.sum() / count
        return count, mean, squares + float((delta * (new_values - mean)).sum())

    def update_cov(self, label, pred) -> None:
        """Adds the products of deviations (from the means so far) of more pairs."""
        for moments in self._moments.values():
            x, y = (values - mean for values, mean in zip((label, pred), moments.mean))
            moments.second += numpy.sum(x * y) * numpy.array([[0, 1], [1, 0]])

    def update(self, labels, preds):
        for label, pred in _arrays(labels, preds):
            check_label_shapes(label, pred, shape=True)
            x, y = (
                label.asnumpy().ravel().astype(numpy.float64),
                pred.asnumpy().ravel().astype(numpy.float64),
            )
            if self.average == "macro":
                self.add(float(numpy.corrcoef(y, x)[0, 1]), 1)
                continue
            for which, moments in self._moments.items():
                moments.add(x, y)
                n = getattr(self, which)[1] + 1
                getattr(self, which)[:] = moments.correlation() * n, n


class _Moments(Stateful):
    """Count, means and central second moments of pairs, batch by batch. Source: Chan et al.
    1979."""

    def __init__(self):
        self.n, self.mean, self.second = 0, numpy.zeros(2), numpy.zeros((2, 2))

    def add(self, x, y) -> None:
        both = numpy.stack([x, y])
        n, mean = both.shape[1], both.mean(axis=1)
        centred, step, total = both - mean[:, None], mean - self.mean, self.n + n
        self.second += centred @ centred.T + numpy.outer(step, step) * self.n * n / total
        self.mean = self.mean + step * n / total
        self.n = total

    def correlation(self) -> float:
        both = math.sqrt(self.second[0, 0] * self.second[1, 1])
        return float(self.second[0, 1] / both) if both else math.nan


# ---- likelihoods and losses ----------------------------------------------------------------------


@register
@alias("ce")
class CrossEntropy(EvalMetric):
    """Mean of -log(probability of the right class); predictions are (N, classes) probabilities.
    eps: added to them."""

    def __init__(self, eps=1e-12, name="cross-entropy", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels, preds):
        for label, pred in _arrays(labels, preds):
            label = label.reshape((-1,))
            if pred.ndim != 2 or label.size != pred.shape[0]:
                raise InvalidValue(
                    f"{type(self).__name__}: predictions must be (labels, classes), got shape"
                    f" {pred.shape} for {label.size} labels"
                )
            chosen = functions.pick(pred, _flat(label), axis=1)
            self.add(functions.sum(functions.log(chosen + self.eps)) * -1.0, label.size)


@register
@alias("nll_loss")
class NegativeLogLikelihood(CrossEntropy):
    """Mean of -log(probability of the right class)."""

    def __init__(self, eps=1e-12, name="nll-loss", output_names=None, label_names=None):
        super().__init__(eps, name, output_names, label_names)


@register
class Perplexity(EvalMetric):
    """exp of the mean of -log(probability of the right class).

    ignore_label: labels that do not count, or None. axis: where the classes stand.
    """

    def __init__(
        self, ignore_label, axis=-1, name="perplexity", output_names=None, label_names=None
    ):
        super().__init__(
            name, output_names, label_names, ignore_label=ignore_label, has_global_stats=True
        )
        self.ignore_label, self.axis = ignore_label, axis

    def update(self, labels, preds):
        if len(labels) != len(preds):
            raise InvalidValue(
                f"Perplexity: needs as many labels as predictions, got {len(labels)} and"
                f" {len(preds)}"
            )
        for label, pred in _arrays(labels, preds):
            if label.size * pred.shape[-1] != pred.size:
                raise InvalidValue(
                    f"Perplexity: labels {label.shape} do not fit predictions {pred.shape}"
                )
            label = _flat(label)
            chosen = functions.pick(pred, label.reshape(pred.shape[:-1]), axis=self.axis).reshape(
                (-1,)
            )
            logs = functions.log(functions._maximum_scalar(chosen, scalar=1e-10))
            if self.ignore_label is None:
                self.add(functions.sum(logs) * -1.0, label.size)
            else:
                counts = functions.cast(label != float(self.ignore_label), dtype="float32")
                self.add(functions.sum(logs * counts) * -1.0, functions.sum(counts))

    def result(self, total, count):
        return math.exp(total / count)


@register
class Loss(EvalMetric):
    """The mean of the predictions, which are losses; labels are not looked at."""

    def __init__(self, name="loss", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, _, preds):
        for pred in [preds] if isinstance(preds, (NDArray, numpy.ndarray)) else preds:
            pred = _array(pred)
            self.add(functions.sum(pred), pred.size)


@register
class Torch(Loss):
    """Loss under another name."""

    def __init__(self, name="torch", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names)


@register
class Caffe(Loss):
    """Loss under another name."""

    def __init__(self, name="caffe", output_names=None, label_names=None):
        super().__init__(name, output_names, label_names)


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
        name=None,
        allow_extra_outputs=False,
        output_names=None,
        label_names=None,
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

    def update(self, labels, preds):
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, True)
        for pred, label in zip(preds, labels):
            value = self._feval(_array(label).asnumpy(), _array(pred).asnumpy())
            total, count = value if isinstance(value, tuple) else (value, 1)
            self.add(total, count)

    def get_config(self):
        raise MissingMethod("CustomMetric cannot be serialized")


def np(numpy_feval: Callable, name=None, allow_extra_outputs: bool = False) -> CustomMetric:
    """A metric from a function of NumPy arrays (label, pred)."""

    def feval(label, pred):
        return numpy_feval(label, pred)

    feval.__name__ = numpy_feval.__name__
    return CustomMetric(feval, name, allow_extra_outputs)
