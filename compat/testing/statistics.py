"""Tests of random numbers: means, variances and frequencies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine.error import InvalidValue, MXNetError


def mean_check(generator: Any, mu: Any, sigma: Any, nsamples: int = 1000000) -> bool:
    """Is the mean of generator(nsamples) within three standard errors of mu?"""
    mean = np.mean(np.asarray(generator(nsamples)))
    return bool(abs(mean - mu) < 3 * sigma / math.sqrt(nsamples))


def var_check(generator: Any, sigma: Any, nsamples: int = 1000000) -> bool:
    """Is the variance of generator(nsamples), normal numbers, within three standard errors of
    sigma**2?"""
    variance = np.var(np.asarray(generator(nsamples)), ddof=1)
    return bool(abs(variance - sigma**2) < 3 * math.sqrt(2 * sigma**4 / (nsamples - 1)))


def gen_buckets_probs_with_ppf(ppf: Any, nbuckets: Any) -> Any:
    """(buckets of equal probability, their probabilities) of a distribution.

    ppf: inverse of the distribution function.
    """
    if nbuckets < 1:
        raise InvalidValue(f"gen_buckets_probs_with_ppf: nbuckets must be > 0, got {nbuckets}")
    edges = [ppf(i / nbuckets) for i in range(nbuckets + 1)]
    return list(zip(edges, edges[1:])), [1 / nbuckets] * nbuckets


def chi_square_check(generator: Any, buckets: Any, probs: Any, nsamples: int = 1000000) -> Any:
    """Pearson's chi-square test of generator(nsamples).

    Args:
        buckets: list of values, or of (low, high) in rising order that do not overlap.
        probs: the probability of each.
    Returns: (p-value, observed frequencies, expected frequencies).
    Raises: ValueError for buckets that do not fit, MXNetError without SciPy.
    """
    try:
        from scipy.stats import chi2
    except ImportError:
        raise MXNetError("chi_square_check: SciPy is needed\n  fix: pip install scipy") from None
    if len(buckets) != len(probs):
        raise InvalidValue(
            f"chi_square_check: {len(buckets)} buckets and {len(probs)} probabilities"
        )
    samples = np.asarray(generator(nsamples)).reshape(-1)
    if isinstance(buckets[0], (list, tuple)):
        edges = np.asarray(buckets, np.float64).reshape(-1)
        if np.any(np.diff(edges) < 0):
            raise InvalidValue(f"chi_square_check: buckets must rise and not overlap: {buckets}")
        place = np.searchsorted(edges, samples, side="right")
        observed = np.bincount(place[place % 2 == 1] // 2, minlength=len(buckets))
    else:
        observed = np.array([(samples == b).sum() for b in buckets])
    expected = nsamples * np.asarray(probs, np.float64)
    distance = float(np.sum((observed - expected) ** 2 / expected))
    return float(chi2.sf(distance, len(buckets) - 1)), observed, expected


def verify_generator(
    generator: Any,
    buckets: Any,
    probs: Any,
    nsamples: int = 1000000,
    nrepeat: int = 5,
    success_rate: float = 0.2,
    alpha: float = 0.05,
) -> Any:
    """Repeats chi_square_check. Returns the p-values.

    Raises AssertionError when fewer than nrepeat * success_rate of them are above alpha.
    """
    runs = [chi_square_check(generator, buckets, probs, nsamples) for _ in range(nrepeat)]
    p_values = [p for p, _, _ in runs]
    if sum(p > alpha for p in p_values) < nrepeat * success_rate:
        raise AssertionError(
            f"the numbers do not follow the distribution: p-values {p_values}, frequencies"
            f" {[list(o) for _, o, _ in runs]}, expected {list(runs[0][2])}; buckets {buckets}"
        )
    return p_values
