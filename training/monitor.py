"""Monitor: statistics of every operator's outputs, in some batches; and `find_nan`."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

from ..engine.error import InvalidType
from ..ndarray import NDArray, functions
from .find_nan import NanReport as NanReport
from .find_nan import find_nan as find_nan


def _rms(x: NDArray) -> NDArray:
    """The norm over the root of the size."""
    return functions.norm(x) / math.sqrt(x.size)


class Monitor:
    """Watches executors: their outputs and gradients, and their parameters.

    Args:
        interval: every how many batches.
        stat_func: from an NDArray to one, or a list of them; default: the root of the mean square.
        pattern: regular expression of the names to watch.
        sort: by name. monitor_all: inputs of operators too.

    A monitored executor runs operator by operator; between the monitored batches it runs at full
    speed.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[..., Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ):
        self.interval, self.stat_func = interval, stat_func or _rms
        self.sort, self.monitor_all = sort, monitor_all
        self.re_prog = re.compile(pattern)
        self.activated, self.step = False, 0
        self.queue: list[tuple] = []
        self.exes: list = []

    def stat_helper(self, name: str, array: NDArray) -> None:
        """Records the statistic of an array, if it is enabled."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Watches an executor."""
        self.exes.append(exe)
        self._watch(exe)

    def _watch(self, exe) -> None:
        exe.set_monitor_callback(self.stat_helper if self.activated else None, self.monitor_all)

    def tic(self) -> None:
        """Before a batch: starts monitoring if this batch is due."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
            for exe in self.exes:
                self._watch(exe)
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """After a batch: [(number of the batch from 1, name, statistics as text)]."""
        if not self.activated:
            return []
        for exe in self.exes:
            symbol = exe._symbol
            names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
            for name, array in zip(names, [*exe.arg_arrays, *exe.aux_arrays]):
                self.stat_helper(name, array)
        self.activated = False
        for exe in self.exes:
            self._watch(exe)
        queue, self.queue = self.queue, []
        if self.sort:
            queue.sort(key=lambda entry: entry[1])
        return [(step, name, _text(values)) for step, name, values in queue]

    def toc_print(self) -> None:
        """toc, to the log."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %30s %s", step, name.ljust(30), text)


def _text(values) -> str:
    values = [values] if isinstance(values, NDArray) else values
    if not isinstance(values, list) or not all(isinstance(v, NDArray) for v in values):
        raise InvalidType("Monitor: stat_func must return an NDArray or a list of them")
    return "".join(
        f"{str(v.asscalar() if v.shape in ((1,), ()) else v.asnumpy())}\t" for v in values
    )
