"""Weight clustering: all elements of a weight have one of few values, which train (Han et al. 2016,
arXiv:1510.00149)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine.error import InvalidValue
from ...ndarray import NDArray
from ...ndarray.saved_state import StateError
from ..block import Block
from .prune import prunable


def _nearest(values: np.ndarray, n: int, rounds: int, keep_zeros: bool) -> np.ndarray:
    """The number of the cluster of each value: k-means from evenly spaced centres. keep_zeros:
    cluster 0 is that of 0."""
    flat = values.ravel().astype("float64")
    centres = np.linspace(flat.min(), flat.max(), n)
    if keep_zeros:
        centres[np.abs(centres).argmin()] = 0
    zero = np.flatnonzero(centres == 0)[:1]
    for _ in range(rounds):
        borders = (centres[1:] + centres[:-1]) / 2
        at = np.searchsorted(borders, flat)
        counts, sums = np.bincount(at, minlength=n), np.bincount(at, flat, n)
        moved = np.divide(sums, counts, out=centres.copy(), where=counts > 0)
        if keep_zeros:
            moved[zero] = 0
        if np.array_equal(moved, centres):
            break
        centres = np.sort(moved)
        zero = np.flatnonzero(centres == 0)[:1]
    at = np.searchsorted((centres[1:] + centres[:-1]) / 2, flat)
    if keep_zeros:
        at[flat == 0] = zero[0]
        at = np.where(at == zero[0], 0, np.where(at == 0, zero[0], at))
    return at.astype("int32")


class Clusterer:
    """Gives each weight of a network n_clusters values, and keeps it so while it trains: after each
    step the elements of a cluster become their mean, as if they were one parameter.

        clusterer = compress.Clusterer(net, n_clusters=16)
        clusterer.attach(trainer)

    keep_zeros: one cluster stands for 0 and stays 0, as for a pruned network. exclude: parts of
    names of parameters. The clusters are saved with the trainer's states and checkpoints.
    """

    def __init__(
        self,
        net: Block,
        n_clusters: int = 16,
        keep_zeros: bool = False,
        rounds: int = 20,
        exclude: Any = (),
    ):
        if n_clusters < 2:
            raise InvalidValue(f"n_clusters must be at least 2, got {n_clusters}")
        self._params, self._n, self._keeps = prunable(net, exclude), n_clusters, keep_zeros
        self._labels: list[NDArray] = []
        for p in self._params:
            values = p.data(p.list_ctx()[0]).asnumpy()
            if not np.isfinite(values).all():
                raise InvalidValue(f"parameter {p.name!r} must be finite to be clustered")
            self._labels.append(
                nd.array(_nearest(values, n_clusters, rounds, keep_zeros), dtype="int32")
            )
        self._project()

    def attach(self, trainer: Any) -> None:
        """Keeps the clusters after each step of a gluon.Trainer from now on."""
        trainer.follow(self)

    def after_step(self) -> None:
        """What the trainer calls."""
        self._project()

    def _project(self) -> None:
        for p, labels in zip(self._params, self._labels):
            known = labels.asnumpy()
            counts = np.maximum(np.bincount(known, minlength=self._n), 1)
            for w in p.list_data():
                values = w.asnumpy()
                sums = np.bincount(known, values.ravel().astype("float64"), self._n)
                centres = (sums / counts).astype(values.dtype)
                if self._keeps:
                    centres[0] = 0
                w[:] = nd.array(centres[known].reshape(values.shape), ctx=w.context, dtype=w.dtype)

    def state_dict(self) -> dict:
        return {"labels": [label.asnumpy() for label in self._labels]}

    def load_state_dict(self, state: dict) -> None:
        labels = [nd.array(np.asarray(v), dtype="int32") for v in state["labels"]]
        sizes = [p.data(p.list_ctx()[0]).size for p in self._params]
        if [v.size for v in labels] != sizes:
            raise StateError(f"Clusterer: the saved clusters are not those of weights {sizes}")
        self._labels = labels
