"""The rows of `plait bench --np` on arrays of NumPy's interface: NumPy's own, or mx.np.

A script, `FRAMEWORK 0`; FRAMEWORK is numpy or the package's name. For each line on stdin, [row,
number of elements, seconds], it prints [median, minimum] of the seconds of a call, or [null, the
error]. The row "calls" of mx.np gives [call, of np, of nd] of each call on 10 elements.
"""

from __future__ import annotations

import importlib
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

LEAST_REPEATS = 5
SQUARE = 1000  # at most so many rows of the matrices that are multiplied


class Arrays:
    """The operands of all rows, of about n elements. x, y: float32; i: int32; b: bool; none: bools
    that are all False; m: a matrix; square: matrices to multiply; rows: places in m; places: in x;
    sorted: x in order."""

    def __init__(self, n: int, make: Callable[[Any], Any]):
        draw = numpy.random.default_rng(0)
        columns = min(1000, max(2, round(math.sqrt(n))))
        rows, k = max(1, n // columns), min(SQUARE, max(2, round(math.sqrt(n))))
        x = draw.random(n, dtype=numpy.float32)
        self.x, self.y = make(x), make(draw.random(n, dtype=numpy.float32))
        self.i, self.b = make((x * 1000).astype("int32")), make(x > 0.5)
        self.none = make(x > 1)
        self.m = make(draw.random((rows, columns), dtype=numpy.float32))
        self.square = make(draw.random((k, k), dtype=numpy.float32))
        self.rows, self.places = make(draw.integers(0, rows, rows)), make(draw.integers(0, n, n))
        self.sorted = make(numpy.sort(x))
        self.half = columns // 2


def assign(a: Any) -> None:
    a.m[:, : a.half] = 1.0


ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda np, a: a.x + a.y,
    "add a number": lambda np, a: a.x + 1.5,
    "exp": lambda np, a: np.exp(a.x),
    "greater": lambda np, a: a.x > a.y,
    "where": lambda np, a: np.where(a.b, a.x, a.y),
    "int32 + float32": lambda np, a: a.i + a.x,
    "matmul": lambda np, a: np.dot(a.square, a.square),
    "sum": lambda np, a: np.sum(a.x),
    "sum axis 0": lambda np, a: np.sum(a.m, axis=0),
    "sum axis 1": lambda np, a: np.sum(a.m, axis=1),
    "sum int32": lambda np, a: np.sum(a.i),
    "sum bool": lambda np, a: np.sum(a.b),
    "mean": lambda np, a: np.mean(a.x),
    "std": lambda np, a: np.std(a.x),
    "max": lambda np, a: np.max(a.x),
    "argmax": lambda np, a: np.argmax(a.x),
    "argmax axis 1": lambda np, a: np.argmax(a.m, axis=1),
    "prod": lambda np, a: np.prod(a.x),
    "norm": lambda np, a: np.linalg.norm(a.x),
    "any": lambda np, a: np.any(a.none),
    "median": lambda np, a: np.median(a.x),
    "diff": lambda np, a: np.diff(a.x),
    "gradient": lambda np, a: np.gradient(a.x),
    "nan_to_num": lambda np, a: np.nan_to_num(a.x),
    "i // 3": lambda np, a: a.i // 3,
    "i // i": lambda np, a: a.i // (a.i + 1),
    "sin": lambda np, a: np.sin(a.x),
    "arctan2": lambda np, a: np.arctan2(a.x, a.y),
    "power": lambda np, a: np.power(a.x, a.y),
    "cumsum": lambda np, a: np.cumsum(a.x),
    "sort": lambda np, a: np.sort(a.x),
    "sort axis 1": lambda np, a: np.sort(a.m, axis=1),
    "argsort": lambda np, a: np.argsort(a.x),
    "slice": lambda np, a: a.m[:, : a.half].copy(),
    "columns": lambda np, a: np.ascontiguousarray(a.m[:, ::2]),
    "transpose": lambda np, a: a.m.T.copy(),
    "concatenate": lambda np, a: np.concatenate([a.x, a.y]),
    "take": lambda np, a: np.take(a.m, a.rows, axis=0),
    "index": lambda np, a: a.x[a.places],
    "mask": lambda np, a: a.x[a.b],
    "nonzero": lambda np, a: np.nonzero(a.b),
    "roll": lambda np, a: np.roll(a.x, 7),
    "pad": lambda np, a: np.pad(a.m, 1),
    "stack": lambda np, a: np.stack([a.x, a.y], axis=1),
    "bincount": lambda np, a: np.bincount(a.i),
    "histogram": lambda np, a: np.histogram(a.x, bins=20),
    "unique": lambda np, a: np.unique(a.i),
    "searchsorted": lambda np, a: np.searchsorted(a.sorted, a.x),
    "assign": lambda np, a: assign(a),
}


def timed(step: Callable[[], Any], n: int, sync: Callable[[], Any]) -> float:
    """Seconds of one of n calls."""
    start = time.perf_counter()
    for _ in range(n):
        step()
    sync()
    return (time.perf_counter() - start) / n


def measure(
    steps: list[Callable[[], Any]], seconds: float, sync: Callable[[], Any]
) -> list[list[float]]:
    """[median, minimum] of each step, which take turns."""
    n = 1
    for step in steps:
        timed(step, 2, sync)
    while n * sum([timed(step, n, sync) for step in steps]) < seconds / LEAST_REPEATS / 2:
        n *= 2
    found: list[list[float]] = [[] for _ in steps]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found[0]) < LEAST_REPEATS:
        for step, times in zip(steps, found):
            times.append(timed(step, n, sync))
    return [[statistics.median(times), min(times)] for times in found]


def serve(
    make: Callable[[Any], Any],
    np: Any,
    rows: dict,
    sync: Callable[[], Any],
    calls: Callable[[float], list] = lambda seconds: [],
) -> None:
    """Measures the rows that stdin names."""
    arrays: dict[int, Arrays] = {}
    print("ready", flush=True)
    for line in sys.stdin:
        name, size, seconds = json.loads(line)
        if name == "calls":
            print(json.dumps(calls(seconds)), flush=True)
            continue
        try:
            if size not in arrays:
                arrays[size] = Arrays(size, make)
            (found,) = measure([partial(rows[name], np, arrays[size])], seconds, sync)
        except Exception as error:
            print(json.dumps([None, f"{type(error).__name__}: {error}"]), flush=True)
            continue
        print(json.dumps(found), flush=True)


def calls(mx: Any, seconds: float) -> list:
    """[call, of np, of nd] of each, on 10 elements."""
    x = mx.np.array(numpy.ones(10, "float32"))
    a = x.as_nd_ndarray()
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "x + y": (lambda: x + x, lambda: a + a),
        "x + 1.0": (lambda: x + 1.0, lambda: a + 1.0),
        "x > y": (lambda: x > x, lambda: a > a),
        "exp": (lambda: mx.np.exp(x), lambda: mx.nd.exp(a)),
        "add": (lambda: mx.np.add(x, x), lambda: mx.nd.add(a, a)),
        "sum": (lambda: mx.np.sum(x), lambda: mx.nd.sum(a)),
    }

    class Block(mx.gluon.HybridBlock):
        def hybrid_forward(self, F: Any, v: Any) -> Any:
            return F.exp(v + v) if F in (mx.nd, mx.sym) else F.np.exp(v + v)

    block = Block()
    block.hybridize()
    for v in (x, a):
        block(v)
    pairs["hybridized"] = (lambda: block(x), lambda: block(a))
    return [[n, *measure(list(pair), seconds, mx.nd.waitall)] for n, pair in pairs.items()]


def main() -> None:
    if sys.argv[1] == "numpy":
        serve(lambda x: x, numpy, ROWS, lambda: None)
    else:
        mx = importlib.import_module(sys.argv[1])
        serve(lambda x: mx.np.array(x), mx.np, ROWS, mx.nd.waitall, partial(calls, mx))


if __name__ == "__main__":
    main()
