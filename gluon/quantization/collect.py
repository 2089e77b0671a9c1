"""What calibration collects of a float network: ranges, or histograms, of its values by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine.error import InvalidValue
from ...ndarray import NDArray

Histogram = tuple[np.ndarray, np.ndarray, float, float, float]  # counts, edges, min, max, threshold
N_BINS = 8001


class CalibrationCollector:
    """Sees the values of a float network while it runs on calibration data.

    A subclass overrides `collect`, and may override `post_collect`, which gives the ranges. Objects
    of other classes serve too if they have `collect` and `min_max_dict`.

    include_layer: names of the values to see, None: all; quantize_graph sets it.
    """

    def __init__(self, include_layer: Collection[str] | None = None, logger: Any = None):
        self.include_layer = include_layer
        self.logger = logger
        self.min_max_dict: dict[str, tuple[float, float]] = {}

    def collect(self, name: str, arr: NDArray) -> None:
        """Called with each value and its name. Values outside include_layer may be ignored."""
        raise NotImplementedError

    def post_collect(self) -> dict[str, tuple[float, float]]:
        """The ranges, by name."""
        return self.min_max_dict

    def _sees(self, name: str | bytes) -> str | None:
        """The name of a value that counts; None for others."""
        text = name.decode() if isinstance(name, bytes) else name
        return text if self.include_layer is None or text in self.include_layer else None


def _extremes(name: str, values: np.ndarray) -> tuple[float, float]:
    if values.size == 0:
        raise InvalidValue(f"calibration: {name} has no elements\n  fix: give batches of data")
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise InvalidValue(
            f"calibration: {name} must be finite, got values from {low} to {high}\n  fix: look for"
            " NaN and infinities in calib_data and in the parameters"
        )
    return low, high


class _LayerOutputMinMaxCollector(CalibrationCollector):
    """The least and the largest number of each value: calib_mode='naive'."""

    def __init__(
        self,
        quantized_dtype: str = "int8",
        include_layer: Collection[str] | None = None,
        logger: Any = None,
    ):
        super().__init__(include_layer, logger)
        self.quantized_dtype = quantized_dtype

    def collect(self, name: str, arr: NDArray) -> None:
        seen = self._sees(name)
        if seen is None:
            return
        low, high = _extremes(seen, arr.asnumpy())
        if seen in self.min_max_dict:
            before = self.min_max_dict[seen]
            low, high = min(before[0], low), max(before[1], high)
        self.min_max_dict[seen] = (low, high)
        if self.logger:
            self.logger.debug("%s: from %f to %f", seen, low, high)


class _LayerHistogramCollector(CalibrationCollector):
    """A symmetric histogram of each value: calib_mode='entropy'."""

    def __init__(
        self,
        num_bins: int = N_BINS,
        include_layer: Collection[str] | None = None,
        logger: Any = None,
        quantized_dtype: str = "int8",
    ):
        super().__init__(include_layer, logger)
        self.num_bins, self.quantized_dtype = num_bins, quantized_dtype
        self.hist_dict: dict[str, Histogram] = {}

    def collect(self, name: str, arr: NDArray) -> None:
        seen = self._sees(name)
        if seen is None:
            return
        values = arr.asnumpy()
        low, high = _extremes(seen, values)
        top = max(abs(low), abs(high))
        if seen in self.hist_dict:
            self.hist_dict[seen] = combine_histogram(self.hist_dict[seen], values, low, high, top)
        else:
            hist, edges = np.histogram(values, bins=self.num_bins, range=(-top, top))
            self.hist_dict[seen] = (hist, edges, low, high, top)
        if self.logger:
            self.logger.debug("%s: histogram of shape %s", seen, values.shape)

    def post_collect(self) -> dict[str, tuple[float, float]]:
        return get_optimal_thresholds(dict(self.hist_dict), self.quantized_dtype)


def combine_histogram(
    old_hist: Histogram, arr: Any, new_min: float, new_max: float, new_th: float
) -> Histogram:
    """A histogram with more numbers counted: of the same bins, or of more where the numbers go
    beyond it.

    old_hist: (counts, edges, min, max, threshold). arr: the numbers, of this range and largest
        magnitude.
    """
    hist, edges, low, high, top = old_hist
    low, high = min(low, new_min), max(high, new_max)
    values = arr.asnumpy() if isinstance(arr, NDArray) else np.asarray(arr)
    if new_th <= top:
        return (
            hist + np.histogram(values, bins=len(hist), range=(-top, top))[0],
            edges,
            low,
            high,
            top,
        )
    step = 2 * top / len(hist)
    if step == 0:  # only zeros until now
        counts, edges = np.histogram(values, bins=len(hist), range=(-new_th, new_th))
        counts[len(hist) // 2] += hist.sum()
        return counts, edges, low, high, new_th
    more = int((new_th - top) // step + 1)  # bins on either side
    top = more * step + top
    counts, edges = np.histogram(values, bins=2 * more + len(hist), range=(-top, top))
    counts[more : len(counts) - more] += hist
    return counts, edges, low, high, top


def get_optimal_threshold(
    hist_data: Histogram, quantized_dtype: str, num_quantized_bins: int = 255
) -> tuple[float, float, float, float]:
    """(min, max, threshold, divergence) of a histogram: the threshold within which the dtype's
    levels represent it best. Twice as many levels where it has no negative number and may be
    uint8."""
    hist, edges, low, high, _ = hist_data
    if len(hist) % 2 == 0:
        raise InvalidValue(f"a histogram must have an odd number of bins, got {len(hist)}")
    if low >= 0 and quantized_dtype in ("auto", "uint8"):
        num_quantized_bins = 2 * num_quantized_bins + 1
    counts, borders = (nd.array(np.asarray(v, "float32")) for v in (hist, edges))
    top, divergence = nd.contrib.calibrate_entropy(
        counts, borders, num_quantized_bins=num_quantized_bins
    )
    return low, high, top.asscalar(), divergence.asscalar()


def get_optimal_thresholds(
    hist_dict: dict[str, Histogram],
    quantized_dtype: str,
    num_quantized_bins: int = 255,
    logger: Any = None,
) -> dict[str, tuple[float, float]]:
    """The ranges of values by their histograms. Empties hist_dict, to free their memory."""
    found = {}
    for name in list(hist_dict):
        low, high, top, divergence = get_optimal_threshold(
            hist_dict.pop(name), quantized_dtype, num_quantized_bins
        )
        positive = low >= 0 and quantized_dtype in ("auto", "uint8")
        found[name] = (0.0 if positive else -top, top)
        if logger:
            logger.debug(
                "%s: from %f to %f, at most %f (divergence %f)", name, low, high, top, divergence
            )
    return found
