"""Blocks as stages of a pipeline: each has one input and one output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..engine import Context
from ..kernels.params import DTYPES
from ..ndarray import NDArray
from ..ndarray.autograd import pause
from ..ndarray.creation import array, zeros
from .collectives import broadcast
from .group import Group
from .stage import Crossing

MAX_AXES = 30


class Blocks:
    """Blocks with one input and one output, each a stage."""

    def __init__(self, stages: Sequence[Any], group: Group):
        self.stages, self._group = list(stages), group
        self._known: dict[Any, list[Block]] = {}

    def graphs(self, data: Sequence[NDArray]) -> list[Block]:
        """What each stage sends is found by running the stages on zeros one after the other, which
        completes their parameters."""
        first = data[0]._spec.type
        if first not in self._known:
            sent: list[Crossing] = []
            shape, dtype = first.shape, first.dtype
            for stage in range(self._group.size - 1):
                header = zeros((2 + MAX_AXES,), dtype="int64")
                if stage == self._group.rank:
                    with pause():
                        made = self.stages[stage](zeros(shape, dtype=dtype))
                    text = [len(made.shape), DTYPES.index(made._spec.dtype), *made.shape]
                    header[: len(text)] = array(np.array(text), dtype="int64")
                broadcast(header, stage, group=self._group, name="shapes of a pipeline")
                n_axes, number, *sizes = (int(n) for n in header.asnumpy())
                shape, dtype = tuple(sizes[:n_axes]), DTYPES[number]
                sent.append(
                    Crossing(stage, f"stage{stage}", stage, (stage + 1,), shape, dtype, True)
                )
            self._known[first] = [
                Block(block, sent[max(0, i - 1) : i], sent[i : i + 1])
                for i, block in enumerate(self.stages)
            ]
        return self._known[first]

    def result(self, data: Sequence[NDArray], outputs: Sequence[NDArray]) -> Any:
        return outputs[0]

    def parameters(self, stage: int) -> dict[str, Any]:
        return dict(self.stages[stage].collect_params().items())


class Block(NamedTuple):
    """A block that stands where a StageGraph stands."""

    block: Any
    reads: list[Crossing]
    sends: list[Crossing]

    def __call__(
        self, data: Sequence[NDArray], received: Sequence[NDArray], device: Context
    ) -> tuple[list[NDArray], list[NDArray]]:
        made = self.block(received[0] if received else data[0])
        return ([made], []) if self.sends else ([], [made])
