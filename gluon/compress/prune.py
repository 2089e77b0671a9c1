"""Gradual magnitude pruning (Zhu and Gupta 2017, arXiv:1710.01878), of single weights or blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine.error import InvalidValue
from ...ndarray import NDArray
from ...ndarray.saved_state import StateError
from ..block import Block
from ..parameter import Parameter


def prunable(net: Block, exclude: Any = ()) -> list[Parameter]:
    """The weights of a network's layers, without those whose name has a part of `exclude`. Raises
    InvalidValue where there is none, or one has no values yet."""
    found = [
        p
        for name, p in net.collect_params().items()
        if name.endswith("weight") and p.grad_req != "null" and not any(e in name for e in exclude)
    ]
    if not found:
        raise InvalidValue(
            f"{type(net).__name__} has no weights to compress\n  fix: parameters whose names end"
            " with 'weight', and that exclude does not name"
        )
    for p in found:
        if p._data is None:
            raise InvalidValue(
                f"parameter {p.name!r} has no values yet\n  fix: net.initialize(), and call net"
                " once"
            )
    return found


def sparsity_of(net: Block) -> float:
    """Which part of a network's weights is 0."""
    arrays = [p.data(p.list_ctx()[0]).asnumpy() for p in prunable(net)]
    return sum(int((a == 0).sum()) for a in arrays) / sum(a.size for a in arrays)


class Pruner:
    """Sets the weights of least magnitude to 0 while a network trains, more and more of them, and
    keeps them 0.

        pruner = compress.Pruner(net, sparsity=0.8, begin=100, end=1000)
        trainer = gluon.Trainer(net.collect_params(), "adam")
        pruner.attach(trainer)                     # after each trainer.step, hybridized or not

    sparsity: the part of each weight that is 0 in the end, in [0, 1). begin, end: steps between
        which it grows, fast and then slower: s = final + (initial - final) (1 - t)^3. every: steps
        between two changes of the mask. block: (rows, columns) that are pruned together; a weight
        of a convolution counts as (filters, the rest). exclude: parts of names of parameters.

    The steps and masks are saved with the trainer's states and checkpoints, so that a resumed run
    goes on exactly. Raises InvalidValue for a sparsity or steps outside their range.
    """

    def __init__(
        self,
        net: Block,
        sparsity: float,
        begin: int = 0,
        end: int = 1000,
        every: int = 10,
        initial_sparsity: float = 0.0,
        block: tuple[int, int] = (1, 1),
        exclude: Any = (),
    ):
        if not 0 <= initial_sparsity <= sparsity < 1:
            raise InvalidValue(
                "0 <= initial_sparsity <= sparsity < 1 must hold, got"
                f" {initial_sparsity} and {sparsity}"
            )
        if not 0 <= begin <= end or every < 1:
            raise InvalidValue(
                f"0 <= begin <= end and every >= 1 must hold, got {begin}, {end} and {every}"
            )
        if len(block) != 2 or min(block) < 1:
            raise InvalidValue(f"block must be two sizes of at least 1, got {block}")
        self._params = prunable(net, exclude)
        self._initial, self._final, self._block = initial_sparsity, sparsity, tuple(block)
        self._begin, self._end, self._every = begin, end, every
        self._steps = 0
        self._masks: list[NDArray | None] = [None] * len(self._params)

    def attach(self, trainer: Any) -> None:
        """Prunes after each step of a gluon.Trainer from now on."""
        trainer.follow(self)

    def target(self, step: int) -> float:
        """The sparsity after so many steps; 0 before `begin`."""
        if step < self._begin:
            return 0.0
        t = 1.0 if self._end == self._begin else (step - self._begin) / (self._end - self._begin)
        return self._final + (self._initial - self._final) * (1 - min(t, 1.0)) ** 3

    def after_step(self) -> None:
        """What the trainer calls."""
        self._steps += 1
        step, since = self._steps, self._steps - self._begin
        if since >= 0 and step <= self._end and (since % self._every == 0 or step == self._end):
            share = self.target(step)
            for i, p in enumerate(self._params):
                values = p.data(p.list_ctx()[0]).asnumpy()
                self._masks[i] = nd.array(self._mask(values, share))
        for p, mask in zip(self._params, self._masks):
            if mask is None:
                continue
            for w in p.list_data():
                w *= mask.as_in_context(w.context).astype(w.dtype)

    def _mask(self, values: np.ndarray, share: float) -> np.ndarray:
        """1 where a weight stays: the blocks of the largest sums of squares."""
        rows, columns = self._block
        matrix = values.reshape(len(values), -1).astype("float64")
        n, k = matrix.shape
        padded = np.pad(matrix**2, ((0, -n % rows), (0, -k % columns)))
        sums = padded.reshape(-(-n // rows), rows, -(-k // columns), columns).sum(axis=(1, 3))
        n_zero = int(round(share * sums.size))
        order = np.argsort(sums, axis=None, kind="stable")  # equal ones in the order of memory
        keep = np.ones(sums.size, "float32")
        keep[order[:n_zero]] = 0
        whole = np.repeat(np.repeat(keep.reshape(sums.shape), rows, 0), columns, 1)
        return whole[:n, :k].reshape(values.shape)

    def state_dict(self) -> dict:
        masks = [None if m is None else m.asnumpy().astype("uint8") for m in self._masks]
        return {"steps": self._steps, "masks": masks}

    def load_state_dict(self, state: dict) -> None:
        masks = [
            None if m is None else nd.array(np.asarray(m), dtype="float32") for m in state["masks"]
        ]
        shapes = [p.shape for p in self._params]
        if len(masks) != len(shapes) or any(
            m is not None and m.shape != s for m, s in zip(masks, shapes)
        ):
            raise StateError(f"Pruner: the saved masks are not those of weights {shapes}")
        self._steps, self._masks = int(state["steps"]), masks
