"""A partitioned network on several devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import Context
from ..engine.error import InvalidValue
from ..ndarray import NDArray
from .stage import run_stages


class Placed:
    """A network whose stages are on devices; called like the network. Copies between devices and
    the stages are engine operations, so two calls overlap."""

    def __init__(self, partition: Any, devices: Sequence[Context]):
        """partition: a Partition."""
        if len(devices) != partition.parts:
            rule = f"partition: {partition.parts} stages need as many devices, got {len(devices)}"
            raise InvalidValue(rule)
        self.partition, self.devices, self._is_moved = partition, list(devices), False

    def __call__(self, *data: NDArray) -> Any:
        stages = self.partition.graphs(data)
        self.move()
        return self.partition.result(data, run_stages(stages, data, self.devices))

    def move(self) -> None:
        """Moves the parameters of each stage to its device, the first time."""
        if not self._is_moved:
            for stage, device in zip(self.partition.stages, self.devices):
                for p in stage.parameters.values():
                    if p.list_ctx() != [device]:
                        p.reset_ctx(device)
            self._is_moved = True

    def collect_params(self) -> dict[str, Any]:
        """The parameters of all stages, for a Trainer."""
        return {k: p for s in self.partition.stages for k, p in s.parameters.items()}
