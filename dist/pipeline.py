"""Pipelines: each rank of a group runs one stage of a network, on micro-batches, and sends what it
made to the next rank. Sends and receives are engine operations, so no call waits for a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine.error import InvalidValue, ShapeError
from ..kernels.params import DTYPES
from ..ndarray import NDArray
from ..ndarray.autograd import pause, record
from ..ndarray.creation import array, empty, zeros
from ..ndarray.functions import concat
from .collectives import broadcast, receive, send
from .group import Group
from .world import init

FORWARD, BACKWARD = "forward", "backward"
MAX_AXES = 30


def order(kind: str, n_stages: int, stage: int, n: int) -> list[tuple[str, int]]:
    """What a stage does with n micro-batches, in which order: (FORWARD or BACKWARD, number).

    "gpipe": all forward, then all backward (Huang et al. 2019, arXiv:1811.06965). "1f1b": backward
    as soon as there is a gradient, so a stage keeps at most as many micro-batches as there are
    stages from it to the end (Narayanan et al. 2019, doi:10.1145/3341301.3359646).
    """
    if kind not in ("gpipe", "1f1b"):
        raise InvalidValue(f"pipeline: schedule must be gpipe or 1f1b, got {kind!r}")
    ahead = n if kind == "gpipe" else min(n, n_stages - stage - 1)
    made = [(FORWARD, i) for i in range(ahead)]
    for i in range(n - ahead):
        made += [(FORWARD, ahead + i), (BACKWARD, i)]
    return made + [(BACKWARD, i) for i in range(n - ahead, n)]


class _Kind(NamedTuple):
    """Shape and dtype of what one stage sends to the next."""

    shape: tuple[int, ...]
    dtype: str

    def empty(self) -> NDArray:
        return empty(self.shape, dtype=self.dtype)


class Pipeline:
    """One stage of a network in each rank of a group. See `pipeline`.

    stage: this rank's. is_first, is_last: of the stages. most_kept: the largest number of
    micro-batches whose forward results were kept at a time.
    """

    def __init__(
        self,
        stages: Sequence[Any],
        loss: Callable[[Any, Any], Any],
        micro_batches: int,
        schedule: str,
        group: Group,
    ):
        if len(stages) != group.size:
            raise InvalidValue(
                f"pipeline: there must be a stage for each rank of the group, got {len(stages)}"
                f" stages for {group.size} ranks"
            )
        if micro_batches < 1:
            raise InvalidValue(f"pipeline: micro_batches must be at least 1, got {micro_batches}")
        self.stage, self.loss, self.n, self._group = stages[group.rank], loss, micro_batches, group
        self.is_first, self.is_last = group.rank == 0, group.rank == group.size - 1
        self._order = order(schedule, group.size, group.rank, micro_batches)
        self.most_kept = 0
        self._kinds: dict[_Kind, list[_Kind]] = {}
        self._parameters = list(self.stage.collect_params().values())
        for p in self._parameters:
            if p.grad_req == "write":  # over micro-batches
                p.grad_req = "add"

    def step(self, x: NDArray, y: NDArray) -> NDArray | None:
        """Forward and backward of one batch: afterwards the parameters of this rank's stage have
        the gradients of the sum of all micro-batches' losses, and an update may follow.

        x: the batch, of which other ranks than the first use the shape only. y: the labels, which
        the last rank uses. Returns the losses on the last rank, else None.
        """
        if not x.shape or x.shape[0] % self.n:
            rule = f"axis 0 must be divisible by the {self.n} micro-batches, got shape {x.shape}"
            raise ShapeError("pipeline", rule)
        size = x.shape[0] // self.n
        kinds = self._between(_Kind((size, *x.shape[1:]), x._spec.dtype))
        for p in self._parameters:
            p.zero_grad()
        here, ranks = self._group.rank, self._group.ranks
        before, after = ranks[here - 1], ranks[(here + 1) % len(ranks)]
        kept: dict[int, tuple[NDArray, NDArray]] = {}
        losses: list[NDArray] = []
        for what, i in self._order:
            part = slice(i * size, (i + 1) * size)
            if what == FORWARD:
                if self.is_first:
                    given = x[part]
                else:
                    given = receive(kinds[here - 1].empty(), before, name=f"forward {i}")
                    given.attach_grad()
                with record():
                    made = self.stage(given)
                    if self.is_last:
                        made = self.loss(made, y[part])
                if self.is_last:
                    losses.append(made.detach())
                else:
                    send(made.detach(), after, name=f"forward {i}")
                kept[i] = (given, made)
                self.most_kept = max(self.most_kept, len(kept))
                continue
            given, made = kept.pop(i)
            if self.is_last:
                made.backward()
            else:
                made.backward(receive(kinds[here].empty(), after, name=f"backward {i}"))
            if not self.is_first:
                send(given.grad, before, name=f"backward {i}")
        return concat(*[a.reshape((-1,)) for a in losses], dim=0) if losses else None

    def _between(self, first: _Kind) -> list[_Kind]:
        """What each stage sends for a micro-batch: found once, by running the stages on zeros one
        after the other, which completes their parameters."""
        found = self._kinds.get(first)
        if found is None:
            found, given = [], first
            for stage in range(self._group.size - 1):
                header = zeros((2 + MAX_AXES,), dtype="int64")
                if stage == self._group.rank:
                    with pause():
                        made = self.stage(zeros(given.shape, dtype=given.dtype))
                    text = [len(made.shape), DTYPES.index(made._spec.dtype), *made.shape]
                    header[: len(text)] = array(np.array(text), dtype="int64")
                broadcast(header, stage, group=self._group, name="shapes of a pipeline")
                n_axes, dtype, *shape = (int(n) for n in header.asnumpy())
                given = _Kind(tuple(shape[:n_axes]), DTYPES[dtype])
                found.append(given)
            self._kinds[first] = found
        return found


def pipeline(
    stages: Sequence[Any],
    loss: Callable[[Any, Any], Any],
    micro_batches: int = 8,
    schedule: str = "1f1b",
    group: Group | None = None,
) -> Pipeline:
    """A network of stages, one for each rank of a group. In a training loop `pipe.step(x, y)` runs
    forward and backward of all stages; then a Trainer of `pipe.stage`'s parameters updates them.

    Args:
        stages: blocks with one input and one output, all of them on all ranks; each rank uses its
            own. Their gradients add up: grad_req "add".
        loss: of the last stage's output and the labels, a loss for each sample.
        micro_batches: into how many parts a batch is split, along axis 0.
        schedule: "1f1b" or "gpipe", see `order`.
        group: default: all ranks; mesh.group("pipe").
    """
    return Pipeline(stages, loss, micro_batches, schedule, group or init())
