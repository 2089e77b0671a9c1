"""Callbacks of training loops: speed, checkpoints, logs, a progress bar."""

from __future__ import annotations

import logging
import math
import sys
import time
from typing import Any, NamedTuple

from ..dist import is_main


class BatchEndParam(NamedTuple):
    """What a callback is called with after a batch."""

    epoch: int
    nbatch: int
    eval_metric: Any
    locals: Any


def _log(*what: Any) -> None:
    if is_main():
        logging.info(*what)


def do_checkpoint(prefix: str, period: int = 1) -> Any:
    """An epoch-end callback (epoch, symbol, arg_params, aux_params) that saves every `period`
    epochs.

    Files: prefix-symbol.json and prefix-0001.params, ... Of several ranks the first writes them.
    """
    period = max(1, int(period))

    def callback(iter_no, sym, arg, aux):
        if (iter_no + 1) % period == 0 and is_main():
            save_checkpoint(prefix, iter_no + 1, sym, arg, aux)

    return callback


def module_checkpoint(
    mod: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False
) -> Any:
    """An epoch-end callback that saves a Module every `period` epochs."""
    period = max(1, int(period))

    def callback(iter_no, sym=None, arg=None, aux=None):
        if (iter_no + 1) % period == 0 and is_main():
            mod.save_checkpoint(prefix, iter_no + 1, save_optimizer_states)

    return callback


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Any,
    arg_params: dict,
    aux_params: dict,
    remove_amp_cast: bool = True,
) -> None:
    """Writes prefix-symbol.json (if there is a symbol) and prefix-EPOCH.params.

    arg_params, aux_params: names -> NDArrays.
    """
    from .. import ndarray as nd

    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
    named = {f"arg:{k}": v for k, v in arg_params.items()} | {
        f"aux:{k}": v for k, v in aux_params.items()
    }
    nd.save(f"{prefix}-{epoch:04d}.params", named)
    _log('Saved checkpoint to "%s"', f"{prefix}-{epoch:04d}.params")


def _values(metric) -> list[tuple]:
    return metric.get_name_value() if metric is not None else []


def log_train_metric(period: int, auto_reset: bool = False) -> Any:
    """A batch-end callback that logs the metric every `period` batches."""

    def callback(param):
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in _values(param.eval_metric):
                _log("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return callback


class Speedometer:
    """A batch-end callback that logs samples per second and the metric every `frequent` batches.

    Reading the metric waits for the engine; nothing else here does.

    Args:
        batch_size: samples in a batch.
        auto_reset: the metric's local statistics start anew after each line.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True):
        self.batch_size, self.frequent, self.auto_reset = batch_size, frequent, auto_reset
        self.init, self.tic, self.last_count = False, 0.0, 0

    def __call__(self, param: Any) -> None:
        count = param.nbatch
        if self.last_count > count:
            self.init = False
        self.last_count = count
        if not self.init:
            self.init, self.tic = True, time.perf_counter()
            return
        if count % self.frequent:
            return
        seconds = time.perf_counter() - self.tic
        speed = self.frequent * self.batch_size / seconds if seconds else math.inf
        if param.eval_metric is None:
            _log("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, count, speed)
        else:
            pairs = _values(param.eval_metric)
            if self.auto_reset:
                param.eval_metric.reset_local()
            batches = f"{count - self.frequent}-{count}" if self.auto_reset else f"0-{count}"
            _log(
                "Epoch[%d] Batch [%s]\tSpeed: %.2f samples/sec%s",
                param.epoch,
                batches,
                speed,
                "".join(f"\t{name}={value:f}" for name, value in pairs),
            )
        self.tic = time.perf_counter()


class ProgressBar:
    """A batch-end callback that draws a bar of `length` characters; `total` batches are all of
    it."""

    def __init__(self, total: int, length: int = 80):
        self.total, self.bar_len = total, length

    def __call__(self, param: Any) -> None:
        part = param.nbatch / self.total
        filled = int(round(self.bar_len * part))
        if not is_main():
            return
        sys.stdout.write(
            f"[{'=' * filled}{'-' * (self.bar_len - filled)}] {math.ceil(100 * part)}%\r"
        )


class LogValidationMetricsCallback:
    """An eval-end callback that logs the metric."""

    def __call__(self, param: Any) -> None:
        for name, value in _values(param.eval_metric):
            _log("Epoch[%d] Validation-%s=%f", param.epoch, name, value)
