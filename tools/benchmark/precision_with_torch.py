"""The rows of `plait bench --precision` with torch: 16-bit floats, and products of int8."""

from __future__ import annotations

import os
from typing import Any

import torch
from precision_rows import Product, main

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.set_grad_enabled(False)


def make(row: Any, dtype: str) -> Any:
    of = lambda *shape: torch.randint(-3, 4, shape).to(getattr(torch, dtype))
    if isinstance(row, Product):
        x, w = of(row.m, row.k), of(row.n, row.k)
        if dtype == "int8":
            return (lambda: torch._int_mm(x, w.T)) if row.m > 16 else None
        return lambda: torch.nn.functional.linear(x, w)
    if dtype == "int8":
        return None
    x = of(1, row.channels, row.size, row.size)
    w = of(row.filters, row.channels, row.kernel, row.kernel)
    return lambda: torch.conv2d(x, w, stride=row.stride, padding=row.kernel // 2)


main(make, lambda: None)
