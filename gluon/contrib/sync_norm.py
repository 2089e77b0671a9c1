"""Batch normalisation by the statistics of all ranks' batches."""

from __future__ import annotations

from typing import Any

from ...dist import Group, all_gather


def normalised(
    F: Any,
    x: Any,
    gamma: Any,
    beta: Any,
    running_mean: Any,
    running_var: Any,
    *,
    group: Group,
    wide: Any,
    eps: float,
    momentum: float,
    fix_gamma: bool,
) -> Any:
    """x, normalised for each index of axis 1 as if all ranks' batches, which may have different
    sizes, were one; the running statistics follow.

    Each rank sends how many values it has, their mean and the sum of their squared distances from
    it; these are merged as by Chan, Golub and LeVeque 1979. That is one message each in forward and
    backward, and loses no digits where the mean is large beside the deviation.

    Args:
        gamma, beta, running_mean, running_var: (channels,) of dtype wide.
    """
    view = lambda a: F.reshape(a, shape=(1, -1, 1))
    rows = F.reshape(F.cast(x, dtype=wide), shape=(0, 0, -1))  # (batch, channels, the rest)
    own_mean = F.mean(rows, axis=1, exclude=True)
    own_sum = F.sum(F.square(F.broadcast_sub(rows, view(own_mean))), axis=1, exclude=True)
    n = F.sum(F.ones_like(F.slice_axis(rows, axis=1, begin=0, end=1)))
    sent = F.stack(F.broadcast_mul(F.ones_like(own_mean), n), own_mean, own_sum, axis=0)
    every = all_gather(F.expand_dims(sent, axis=0), group=group, name="SyncBatchNorm")
    counts, means, sums = F.split(every, num_outputs=3, axis=1, squeeze_axis=True)  # (ranks, ...)
    total = F.sum(counts, axis=0)
    mean = F.sum(counts * means, axis=0) / total
    apart = F.square(F.broadcast_sub(means, F.expand_dims(mean, axis=0)))
    var = F.sum(sums + counts * apart, axis=0) / total
    mean = F._running(mean, running_mean, momentum=momentum)
    var = F._running(var, running_var, momentum=momentum)
    scale = F.rsqrt(var + eps) * (F.ones_like(gamma) if fix_gamma else gamma)
    shift = beta + F.zeros_like(mean)  # infers the shape of beta
    y = F.broadcast_mul(F.broadcast_sub(rows, view(mean)), view(scale))
    y = F.reshape_like(F.broadcast_add(y, view(shift)), x)
    return F.cast(y, dtype=x.dtype)
