"""The rows of `plait bench --precision`, and how the precision_with_*.py scripts time them: script
MODULE SECONDS DTYPES [ROW ...] prints {row: {dtype: [median, minimum] in seconds}} as JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Product(NamedTuple):
    """x (m, k) times weights (n, k), transposed."""

    m: int
    n: int
    k: int


class Convolution(NamedTuple):
    """Square images and kernels, padded so that the size stays where the stride is 1."""

    channels: int
    filters: int
    size: int
    kernel: int
    stride: int = 1


ROWS: dict[str, Any] = {
    "matmul 1024": Product(1024, 1024, 1024),
    "dense batch 64": Product(64, 1024, 1024),
    "dense batch 1": Product(1, 4096, 4096),
    "conv 1x1": Convolution(256, 64, 56, 1),
    "conv 3x3": Convolution(64, 64, 56, 3),
    "conv 3x3 deep": Convolution(256, 256, 14, 3),
    "conv 3x3 stride 2": Convolution(128, 128, 28, 3, 2),
}


def main(make: Callable[[Any, str], Callable[[], Any] | None], sync: Callable[[], Any]) -> None:
    """make: (row, dtype) -> a call of it, None where the framework has none."""
    seconds, dtypes, names = float(sys.argv[2]), sys.argv[3].split(","), sys.argv[4:]
    found: dict[str, dict[str, list[float]]] = {}
    for name in names or ROWS:
        calls = {d: call for d in dtypes if (call := make(ROWS[name], d)) is not None}
        times: dict[str, list[float]] = {d: [] for d in calls}
        counts = {}
        for d, call in calls.items():
            call()
            start = time.perf_counter()
            call()
            sync()
            counts[d] = max(1, round(seconds / 20 / (time.perf_counter() - start)))
        end = time.perf_counter() + seconds * len(calls)
        while time.perf_counter() < end or len(next(iter(times.values()), [0] * 3)) < 3:
            for d, call in calls.items():  # in turns: the machine drifts
                start = time.perf_counter()
                for _ in range(counts[d]):
                    call()
                sync()
                times[d].append((time.perf_counter() - start) / counts[d])
        found[name] = {d: [statistics.median(t), min(t)] for d, t in times.items()}
    print(json.dumps(found))
