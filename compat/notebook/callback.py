"""Callbacks for Module.fit in a notebook: metrics as pandas tables, live curves by Bokeh.

pandas and bokeh are optional; a missing one is reported when needed.
"""

from __future__ import annotations

import datetime
import importlib
import time
from collections import defaultdict
from typing import Any

from ...engine.error import MissingMethod, MXNetError


def _need(package: str):
    try:
        return importlib.import_module(package)
    except ImportError:
        name = package.split(".")[0]
        raise MXNetError(
            f"notebook.callback: {name} is needed\n  fix: pip install {name}"
        ) from None


def _metrics(param) -> dict:
    """Names and values of a batch's metric, which is then reset."""
    if param.eval_metric is None:
        return {}
    values = dict(param.eval_metric.get_name_value())
    param.eval_metric.reset()
    return values


class PandasLogger:
    """Keeps metrics in three tables: train (every `frequent` batches), eval and epoch.

    Args:
        batch_size: samples in a batch, for the speed.
        frequent: batches between rows of the training table.
    """

    def __init__(self, batch_size: int, frequent: int = 50):
        self._pandas = _need("pandas")
        self.batch_size, self.frequent = batch_size, frequent
        self._rows: dict[str, list[dict]] = {"train": [], "eval": [], "epoch": []}
        self.start_time = self.last_epoch_time = datetime.datetime.now()
        self.last_time = time.time()

    @property
    def train_df(self) -> Any:
        """Table of training batches."""
        return self._pandas.DataFrame(self._rows["train"])

    @property
    def eval_df(self) -> Any:
        """Table of evaluations."""
        return self._pandas.DataFrame(self._rows["eval"])

    @property
    def epoch_df(self) -> Any:
        """Table of epochs' times."""
        return self._pandas.DataFrame(self._rows["epoch"])

    @property
    def all_dataframes(self) -> dict[str, Any]:
        """The three tables by name."""
        return {name: self._pandas.DataFrame(rows) for name, rows in self._rows.items()}

    def elapsed(self) -> datetime.timedelta:
        """Time since the start."""
        return datetime.datetime.now() - self.start_time

    def append_metrics(self, metrics: Any, df_name: Any) -> None:
        """Adds a row {column: value} to a table."""
        self._rows[df_name].append(metrics)

    def train_cb(self, param: Any) -> None:
        """Callback after a batch."""
        if param.nbatch % self.frequent == 0:
            self._process_batch(param, "train")

    def eval_cb(self, param: Any) -> None:
        """Callback after an evaluation."""
        self._process_batch(param, "eval")

    def _process_batch(self, param, df_name):
        now, row = time.time(), _metrics(param)
        speed = self.frequent / max(now - self.last_time, 1e-9)
        row |= {
            "batches_per_sec": speed,
            "records_per_sec": speed * self.batch_size,
            "elapsed": self.elapsed(),
            "minibatch_count": param.nbatch,
            "epoch": param.epoch,
        }
        self.append_metrics(row, df_name)
        self.last_time = now

    def epoch_cb(self, *args: Any) -> None:
        """Callback after an epoch."""
        now = datetime.datetime.now()
        row = {"elapsed": self.elapsed(), "epoch_time": now - self.last_epoch_time}
        self.append_metrics(row, "epoch")
        self.last_epoch_time = now

    def callback_args(self) -> dict:
        """Keyword arguments for fit that install all callbacks."""
        return {
            "batch_end_callback": self.train_cb,
            "eval_end_callback": self.eval_cb,
            "epoch_end_callback": self.epoch_cb,
        }


class LiveBokehChart:
    """Base of charts that are updated during training.

    Args:
        pandas_logger: stores the values; by default a new PandasLogger.
        metric_name: the metric to draw.
        display_freq: seconds between renderings.
    """

    def __init__(
        self,
        pandas_logger: Any,
        metric_name: Any,
        display_freq: int = 10,
        batch_size: int | None = None,
        frequent: int = 50,
    ):
        self._io = _need("bokeh.io")
        self.pandas_logger = pandas_logger or PandasLogger(batch_size or 1, frequent)
        self.display_freq, self.metric_name = display_freq, metric_name
        self.last_update = time.time()
        self._io.output_notebook()
        self.handle = self.setup_chart()

    def setup_chart(self) -> Any:
        """Creates the chart and returns its handle; for subclasses."""
        raise MissingMethod(f"{type(self).__name__} must define setup_chart()")

    def update_chart_data(self) -> Any:
        """Adds new values to the chart; for subclasses."""
        raise MissingMethod(f"{type(self).__name__} must define update_chart_data()")

    def interval_elapsed(self) -> bool:
        """Is it time to render again?"""
        return time.time() - self.last_update > self.display_freq

    def _push_render(self):
        self._io.push_notebook(handle=self.handle)
        self.last_update = time.time()

    def batch_cb(self, param: Any) -> None:
        """Callback after a batch."""
        self.pandas_logger.train_cb(param)
        if self.interval_elapsed():
            self.update_chart_data()
            self._push_render()

    def eval_cb(self, param: Any) -> None:
        """Callback after an evaluation: renders."""
        self.pandas_logger.eval_cb(param)
        self.update_chart_data()
        self._push_render()

    def callback_args(self) -> dict:
        """Keyword arguments for fit that install all callbacks."""
        return {"batch_end_callback": self.batch_cb, "eval_end_callback": self.eval_cb}


class LiveTimeSeries(LiveBokehChart):
    """A number over the time since the start; update_chart_data(value) adds a point."""

    def __init__(self, **fig_params: Any):
        self._figure = _need("bokeh.plotting").figure(
            x_axis_type="datetime", x_axis_label="Elapsed time", **fig_params
        )
        super().__init__(None, None)

    def setup_chart(self) -> Any:
        self.start_time = datetime.datetime.now()
        self._line = self._figure.line([], [])
        return _need("bokeh.plotting").show(self._figure, notebook_handle=True)

    def elapsed(self) -> datetime.timedelta:
        """Time since the start."""
        return datetime.datetime.now() - self.start_time

    def update_chart_data(self, value: Any = None) -> None:
        if value is not None:
            self._line.data_source.stream({"x": [self.elapsed()], "y": [value]})
            self._push_render()


class LiveLearningCurve(LiveBokehChart):
    """A metric on training and evaluation data over the time."""

    def __init__(self, metric_name: Any, display_freq: int = 10, frequent: int = 50):
        super().__init__(None, metric_name, display_freq, 1, frequent)

    def setup_chart(self) -> Any:
        figure = _need("bokeh.plotting").figure(
            x_axis_type="datetime", x_axis_label="Training time", y_axis_label=self.metric_name
        )
        self._lines = {
            "train": figure.line([], [], line_dash="dotted", legend_label="train"),
            "eval": figure.line([], [], line_color="green", legend_label="validation"),
        }
        figure.legend.location = "bottom_right"
        return _need("bokeh.plotting").show(figure, notebook_handle=True)

    def update_chart_data(self) -> None:
        tables = self.pandas_logger.all_dataframes
        for name, line in self._lines.items():
            if len(tables[name]):
                line.data_source.data = {
                    "x": tables[name]["elapsed"],
                    "y": tables[name][self.metric_name],
                }


def args_wrapper(*args: Any) -> dict:
    """Keyword arguments for fit that install the callbacks of several of these objects."""
    joined = defaultdict(list)
    for logger in args:
        for key, callback in logger.callback_args().items():
            joined[key].append(callback)
    return dict(joined)
