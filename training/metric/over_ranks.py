"""Metrics of all ranks' data: at the end of an epoch, ranks exchange what they counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ... import dist
from .base import CompositeEvalMetric, EvalMetric


def combine(metrics: Sequence[EvalMetric], group: dist.Group | None) -> None:
    """Replaces what metrics counted on this rank by what they counted on all ranks of a group, in
    the order of ranks. group: None or a group of one changes nothing. All ranks call this."""
    if group is None or group.size == 1:
        return
    single = list(_single(metrics))
    ranks = dist.collect([m.statistics() for m in single], group=group, name="metrics") or []
    for metric, counted in zip(single, zip(*ranks)):
        metric.combine(counted)


@contextmanager
def over_ranks(metric: EvalMetric, group: dist.Group | None) -> Iterator[None]:
    """Scope: the metric has the values of all ranks; afterwards those of this rank again."""
    if group is None or group.size == 1:
        yield
        return
    mine = [(m, m.state_dict()) for m in _single([metric])]
    combine([metric], group)
    try:
        yield
    finally:
        for m, state in mine:
            m.load_state_dict(state)


def _single(metrics: Sequence[EvalMetric]) -> Iterator[EvalMetric]:
    for metric in metrics:
        if isinstance(metric, CompositeEvalMetric):
            yield from _single(metric.metrics)
        else:
            yield metric
