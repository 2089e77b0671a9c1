"""Pipelines: stages of a network run on micro-batches, each on a rank of a group or on a device of
this process. Sends, receives and copies are engine operations, so no call waits for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..engine import Context
from ..engine.error import InvalidValue, ShapeError
from ..ndarray import NDArray
from ..ndarray.autograd import backward, record
from ..ndarray.creation import concatenate
from ..ndarray.functions import add_n
from .blocks import Blocks
from .collectives import broadcast, receive, send
from .group import Group
from .partition import Partition
from .stage import run_stages
from .world import init

FORWARD, BACKWARD = "forward", "backward"


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


class _Kept(NamedTuple):
    """Of a micro-batch between its forward and its backward: what was received and sent, and
    where the last stage's backward begins."""

    received: list[NDArray]
    sent: list[NDArray]
    heads: list[NDArray]


class _Stages(Protocol):
    """What a pipeline runs: a Partition, or a list of blocks."""

    @property
    def stages(self) -> Sequence[Any]:
        """The stages, each with `collect_params`."""

    def graphs(self, data: Sequence[NDArray]) -> Sequence[Any]:
        """The stages for inputs of these shapes; see StageGraph."""

    def result(self, data: Sequence[NDArray], outputs: Sequence[NDArray]) -> Any:
        """The outputs of the last stage, as the network returns them."""

    def parameters(self, stage: int) -> dict[str, Any]:
        """Those of a stage, by name."""


class Pipeline(ABC):
    """A network whose stages run on micro-batches; see `pipeline`.

    stage: this rank's; None for devices of one process. is_first, is_last: does this process run
    the first stage, and the last? most_kept: the largest number of micro-batches whose forward
    results were kept at a time.
    """

    def __init__(
        self,
        stages: _Stages,
        n_stages: int,
        numbers: Sequence[int],
        loss: Callable[[Any, Any], Any] | None,
        micro_batches: int,
        schedule: str,
    ):
        """numbers: of the stages that run in this process."""
        if micro_batches < 1:
            raise InvalidValue(f"pipeline: micro_batches must be at least 1, got {micro_batches}")
        self.loss, self.n, self._stages, self._numbers = loss, micro_batches, stages, numbers
        self.is_first, self.is_last = 0 in numbers, n_stages - 1 in numbers
        self._order = order(schedule, n_stages, numbers[0], micro_batches)
        self.most_kept = 0

    @property
    def stage(self) -> Any:
        """The stage of this rank."""
        return None

    def collect_params(self) -> dict[str, Any]:
        """The parameters of the stages in this process, for a Trainer."""
        return {k: p for s in self._numbers for k, p in self._stages.parameters(s).items()}

    def step(self, x: Any, y: NDArray) -> Any:
        """Forward and backward of one batch: afterwards the parameters of the stages in this
        process have the gradients of the sum of all micro-batches' losses, and an update may
        follow.

        x: the batch, or a tuple of inputs, of which other ranks than the first use the shape only.
        y: the labels, which the last rank uses. Returns the losses on the last rank, or its outputs
        where there is no loss, else None.
        """
        data = [*x] if isinstance(x, (list, tuple)) else [x]
        if self.loss is None:
            data.append(y)
        for a in (*data, y):
            if not a.shape or a.shape[0] % self.n:
                rule = f"axis 0 must be divisible by the {self.n} micro-batches, got shape"
                raise ShapeError("pipeline", f"{rule} {a.shape}")
        stages = self._stages.graphs(self._part(data, 0))
        self._prepare()
        for p in self.collect_params().values():
            if p.grad_req == "write":  # over micro-batches
                p.grad_req = "add"
            p.zero_grad()
        kept: dict[int, _Kept] = {}
        results: list[list[NDArray]] = []
        for what, i in self._order:
            if what == FORWARD:
                kept[i] = self._forward(stages, self._part(data, i), y, i)
                self.most_kept = max(self.most_kept, len(kept))
                if self.is_last:
                    results.append([a.detach() for a in kept[i].heads])
            else:
                self._backward(stages, kept.pop(i), i)
        if not results:
            return None
        whole = [
            concatenate([a.reshape((-1,)) if self.loss else a for a in r]) for r in zip(*results)
        ]
        return whole[0] if len(whole) == 1 else whole

    def gather(self) -> None:
        """Gives all ranks the weights of all stages; then `net.save_parameters` writes what was
        trained. All ranks call it."""

    def _prepare(self) -> None:
        """Is called before each step."""

    @abstractmethod
    def _forward(self, stages: Sequence[Any], data: list[NDArray], y: NDArray, i: int) -> _Kept:
        """Of micro-batch i."""

    @abstractmethod
    def _backward(self, stages: Sequence[Any], kept: _Kept, i: int) -> None:
        """Of micro-batch i."""

    def _part(self, data: Sequence[NDArray], i: int) -> list[NDArray]:
        """The micro-batch number i."""
        sizes = [a.shape[0] // self.n for a in data]
        return [a[i * n : (i + 1) * n] for a, n in zip(data, sizes)]

    def _heads(self, data: list[NDArray], outputs: list[NDArray], y: NDArray, i: int) -> list:
        """Where backward begins: the loss of the outputs."""
        if self.loss is None:
            return outputs
        (labels,) = self._part([y], i)
        labels = labels.as_in_context(outputs[0].context)
        return [self.loss(self._stages.result(data, outputs), labels)]


class _OnDevices(Pipeline):
    """All stages in this process, each on its device."""

    def __init__(self, stages: Partition, devices: Sequence[Context], *more: Any):
        self._placed = stages.on(devices)
        super().__init__(stages, stages.parts, range(stages.parts), *more)

    def _prepare(self) -> None:
        self._placed.move()

    def _forward(self, stages: Sequence[Any], data: list[NDArray], y: NDArray, i: int) -> _Kept:
        with record():
            outputs = run_stages(stages, data, self._placed.devices)
            return _Kept([], [], self._heads(data, outputs, y, i))

    def _backward(self, stages: Sequence[Any], kept: _Kept, i: int) -> None:
        backward(kept.heads)


class _OnRanks(Pipeline):
    """One stage in each rank of a group."""

    def __init__(self, stages: _Stages, n_stages: int, group: Group, *more: Any):
        if n_stages != group.size:
            raise InvalidValue(
                f"pipeline: there must be a stage for each rank of the group, got {n_stages} stages"
                f" for {group.size} ranks"
            )
        self._group = group
        super().__init__(stages, n_stages, [group.rank], *more)

    @property
    def stage(self) -> Any:
        return self._stages.stages[self._group.rank]

    def _forward(self, stages: Sequence[Any], data: list[NDArray], y: NDArray, i: int) -> _Kept:
        here, ranks, device = stages[self._group.rank], self._group.ranks, data[0].context
        received = []
        for c in here.reads:
            received.append(receive(c.empty(device), ranks[c.source], name=f"{c.name} {i}"))
            if c.differentiable:
                received[-1].attach_grad()
        with record():
            sent, outputs = here(data, received, device)
            heads = self._heads(data, outputs, y, i) if self.is_last else []
        for c, a in zip(here.sends, sent):
            for target in c.targets:
                send(a.detach(), ranks[target], name=f"{c.name} {i}")
        return _Kept(received, sent, heads)

    def _backward(self, stages: Sequence[Any], kept: _Kept, i: int) -> None:
        here, ranks = stages[self._group.rank], self._group.ranks
        heads: list[NDArray] = list(kept.heads)
        gradients: list[NDArray | None] = [None] * len(heads)
        for c, a in zip(here.sends, kept.sent):
            if c.differentiable:
                name = f"gradient of {c.name} {i}"
                found = [receive(c.empty(a.context), ranks[t], name=name) for t in c.targets]
                heads.append(a)
                gradients.append(found[0] if len(found) == 1 else add_n(*found))
        if heads:
            backward(heads, gradients)
        for c, a in zip(here.reads, kept.received):
            if c.differentiable:
                send(a.grad, ranks[c.source], name=f"gradient of {c.name} {i}")

    def gather(self) -> None:
        for stage in range(self._group.size):
            for p in self._stages.parameters(stage).values():
                if p._data is None:
                    p.initialize("zeros")
                broadcast(p.list_data(), stage, group=self._group, name=p.name)


def pipeline(
    stages: Any,
    loss: Callable[[Any, Any], Any] | None = None,
    micro_batches: int = 8,
    schedule: str = "1f1b",
    group: Group | None = None,
    devices: Sequence[Context] | None = None,
) -> Pipeline:
    """Runs the stages of a network on micro-batches: `pipe.step(x, y)` in a training loop is
    forward and backward of all, `trainer.step` of a Trainer of `pipe.collect_params()` the update.

    Args:
        stages: a Partition, see `mx.dist.partition`; or blocks with one input and one output, all
            of them on all ranks. Each rank trains its own. Gradients add up: grad_req "add".
        loss: of the network's output and the labels, a loss for each sample. None: the outputs are
            those of loss operators (a Symbol's SoftmaxOutput), and the labels the last input.
        micro_batches: into how many parts a batch is cut, along axis 0.
        schedule: "1f1b" or "gpipe", see `order`.
        group: default: all ranks; mesh.group("pipe").
        devices: runs all stages of a Partition in this process, one on each device.
    Raises: InvalidValue (a ValueError) where the number of stages is not that of ranks or devices.
    """
    more = loss, micro_batches, schedule
    if devices is not None:
        if not isinstance(stages, Partition):
            raise InvalidValue("pipeline: devices need a Partition\n  fix: mx.dist.partition(net)")
        return _OnDevices(stages, devices, *more)
    group = group or init()
    if isinstance(stages, Partition):
        return _OnRanks(stages, stages.parts, group, *more)
    return _OnRanks(Blocks(stages, group), len(stages), group, *more)
