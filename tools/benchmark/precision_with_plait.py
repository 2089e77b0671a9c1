"""The rows of `plait bench --precision` with plait."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
from precision_rows import Product, main

mx: Any = importlib.import_module(sys.argv[1])


def make(row: Any, dtype: str) -> Any:
    rng = np.random.default_rng(0)
    of = lambda *shape: mx.nd.array(rng.integers(-3, 4, size=shape)).astype(dtype)
    if isinstance(row, Product):
        x, w = of(row.m, row.k), of(row.n, row.k)
        return lambda: mx.nd.dot(x, w, transpose_b=True)
    x = of(1, row.channels, row.size, row.size)
    w = of(row.filters, row.channels, row.kernel, row.kernel)
    taps = {
        "kernel": (row.kernel,) * 2,
        "stride": (row.stride,) * 2,
        "pad": (row.kernel // 2,) * 2,
        "num_filter": row.filters,
        "no_bias": True,
    }
    return lambda: mx.nd.Convolution(x, w, **taps)


main(make, mx.nd.waitall)
