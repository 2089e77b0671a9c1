"""The rows of `plait bench --np` on tensors of torch; see arrays_with_numpy.py, which it uses."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from arrays_with_numpy import assign, serve

ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda np, a: a.x + a.y,
    "add a number": lambda np, a: a.x + 1.5,
    "exp": lambda np, a: torch.exp(a.x),
    "greater": lambda np, a: a.x > a.y,
    "where": lambda np, a: torch.where(a.b, a.x, a.y),
    "int32 + float32": lambda np, a: a.i + a.x,
    "matmul": lambda np, a: a.square @ a.square,
    "sum": lambda np, a: torch.sum(a.x),
    "sum axis 0": lambda np, a: torch.sum(a.m, 0),
    "sum axis 1": lambda np, a: torch.sum(a.m, 1),
    "sum int32": lambda np, a: torch.sum(a.i),
    "sum bool": lambda np, a: torch.sum(a.b),
    "mean": lambda np, a: torch.mean(a.x),
    "std": lambda np, a: torch.std(a.x, unbiased=False),
    "max": lambda np, a: torch.max(a.x),
    "argmax": lambda np, a: torch.argmax(a.x),
    "argmax axis 1": lambda np, a: torch.argmax(a.m, 1),
    "cumsum": lambda np, a: torch.cumsum(a.x, 0),
    "sort": lambda np, a: torch.sort(a.x),
    "sort axis 1": lambda np, a: torch.sort(a.m, 1),
    "argsort": lambda np, a: torch.argsort(a.x),
    "slice": lambda np, a: a.m[:, : a.half].clone(),
    "columns": lambda np, a: a.m[:, ::2].contiguous(),
    "transpose": lambda np, a: a.m.T.contiguous(),
    "concatenate": lambda np, a: torch.cat([a.x, a.y]),
    "take": lambda np, a: torch.index_select(a.m, 0, a.rows),
    "index": lambda np, a: a.x[a.places],
    "mask": lambda np, a: a.x[a.b],
    "nonzero": lambda np, a: torch.nonzero(a.b, as_tuple=True),
    "roll": lambda np, a: torch.roll(a.x, 7),
    "pad": lambda np, a: torch.nn.functional.pad(a.m, (1, 1, 1, 1)),
    "stack": lambda np, a: torch.stack([a.x, a.y], dim=1),
    "bincount": lambda np, a: torch.bincount(a.i),
    "histogram": lambda np, a: torch.histogram(a.x, 20),
    "unique": lambda np, a: torch.unique(a.i),
    "searchsorted": lambda np, a: torch.searchsorted(a.sorted, a.x),
    "prod": lambda np, a: torch.prod(a.x),
    "norm": lambda np, a: torch.linalg.norm(a.x),
    "any": lambda np, a: torch.any(a.none),
    "median": lambda np, a: torch.median(a.x),
    "diff": lambda np, a: torch.diff(a.x),
    "gradient": lambda np, a: torch.gradient(a.x),
    "nan_to_num": lambda np, a: torch.nan_to_num(a.x),
    "i // 3": lambda np, a: a.i // 3,
    "i // i": lambda np, a: a.i // (a.i + 1),
    "sin": lambda np, a: torch.sin(a.x),
    "arctan2": lambda np, a: torch.arctan2(a.x, a.y),
    "power": lambda np, a: torch.pow(a.x, a.y),
    "assign": lambda np, a: assign(a),
}

if __name__ == "__main__":
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_grad_enabled(False)
    serve(torch.from_numpy, None, ROWS, lambda: None)
