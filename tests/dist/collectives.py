"""What test_ranks.py runs on several ranks: every collective, many at a time, against NumPy."""

from __future__ import annotations

import hashlib
import sys

import numpy as np
import plait as mx
from plait import dist
from plait.dist import schedules

OPERATIONS = {"sum": np.add.reduce, "max": np.maximum.reduce, "min": np.minimum.reduce}
OPERATIONS.update(mean=lambda x: np.mean(x, 0), prod=np.multiply.reduce)
DTYPES = ["float32", "float64", "float16", "int32", "int64", "uint8"]
SHAPES = [(1,), (7, 3), (0, 4), (40_000,)]
TINY_BYTES = 64
SLICED = (1000, 1300)  # of one dtype: all ranks' values on all ranks are much memory


def data(rank: int, shape, dtype: str, seed: int) -> np.ndarray:
    """What a rank has: all ranks can compute it."""
    generator = np.random.default_rng([rank, seed])
    return (generator.random(shape) * 4).astype(dtype)


def check(got: mx.nd.NDArray, wanted: np.ndarray, what: str, rtol: float = 1e-6) -> None:
    rtol = {"float16": 4e-3, "float32": rtol}.get(str(got.dtype.__name__), 1e-12)
    np.testing.assert_allclose(got.asnumpy(), wanted, rtol=rtol, atol=rtol, err_msg=what)


def tiny_slices(n: int, all_of) -> list:
    """More slices than there are tags for them, as of an array of 4 GiB."""
    size, usual = 5000 * TINY_BYTES // 4, schedules.SLICE_BYTES
    every = all_of((size,), "float32", 901)
    x = mx.nd.array(every[dist.rank()])
    schedules.SLICE_BYTES = TINY_BYTES
    try:
        summed, whole = dist.all_reduce(x), dist.all_gather(x)
        first = dist.broadcast(x.copy(), n - 1)
    finally:
        schedules.SLICE_BYTES = usual
    return [
        (summed, np.add.reduce(every.astype("float64")).astype("float32"), "tiny sum", True),
        (whole, every.reshape(-1), "tiny gather", True),
        (first, every[n - 1], "tiny broadcast", True),
    ]


def main() -> str:
    world = dist.init()
    n, me = world.size, world.rank
    digest, pending = hashlib.sha256(), []

    def all_of(shape, dtype, seed):
        return np.stack([data(r, shape, dtype, seed) for r in range(n)])

    seed = 0
    for dtype in DTYPES:
        for shape in SHAPES + [SLICED] * (dtype == "float32"):
            for op, expected in OPERATIONS.items():
                if op in ("mean", "prod") and dtype not in ("float32", "float64"):
                    continue
                seed += 1
                x = mx.nd.array(data(me, shape, dtype, seed), dtype=dtype)
                wanted = expected(all_of(shape, dtype, seed).astype("float64")).astype(dtype)
                got = dist.all_reduce(x, op, priority=seed * 7 % 5, name=f"x{seed}")
                pending.append((got, wanted, f"all_reduce {op} {dtype} {shape}", True))
                dist.all_reduce(x, op, out=x)
                pending.append((x, wanted, f"all_reduce {op} {dtype} {shape} in place", True))
            seed += 1
            every = all_of(shape, dtype, seed)
            mine = mx.nd.array(every[me], dtype=dtype)
            pending.append((dist.all_gather(mine), np.concatenate(list(every)), "all_gather", True))
            root = seed % n
            pending.append((dist.broadcast(mine.copy(), root), every[root], "broadcast", True))
            large = all_of((n * shape[0], *shape[1:]), dtype, seed)
            x = mx.nd.array(large[me], dtype=dtype)
            parts = np.add.reduce(large.astype("float64")).astype(dtype)
            part = parts[me * shape[0] : (me + 1) * shape[0]]
            pending.append((dist.reduce_scatter(x), part, "reduce_scatter", False))
            blocks = large.reshape(n, n, *shape)[:, me].reshape(large.shape[1:])
            pending.append((dist.all_to_all(x), blocks, "all_to_all", False))
            if n > 1:
                got = mx.nd.empty(shape, dtype=dtype)
                dist.send(mine, (me + 1) % n)
                dist.receive(got, (me - 1) % n)
                pending.append((got, every[(me - 1) % n], "receive", False))
    small = [(3,), (2, 5), (1000,)]
    many = dist.all_reduce([mx.nd.array(data(me, s, "float32", 900)) for s in small])
    pending += [
        (a, np.add.reduce(all_of(s, "float32", 900)), "bucket", True) for a, s in zip(many, small)
    ]
    pending += tiny_slices(n, all_of)
    inputs = [mx.nd.array(data(me, s, "float32", 900)) for s in small]
    given = [mx.nd.empty(small[0]), *inputs[1:]]  # one result apart, the others in place
    dist.all_reduce(inputs, out=given)
    pending += [(a, b.asnumpy(), "bucket out", True) for a, b in zip(given, many)]
    if n > 2:
        some = dist.new_group(range(0, n, 2))
        if some is not None:
            got = dist.all_reduce(mx.nd.array([1.0 + me]), group=some)
            pending.append(
                (got, np.array([sum(1.0 + r for r in some.ranks)], "float32"), "group", False)
            )
    for got, wanted, what, same in pending:
        check(got, wanted, what)
        if same:
            digest.update(got.asnumpy().tobytes())
    dist.barrier()
    found = dist.all_gather(mx.nd.array(np.frombuffer(digest.digest(), "uint8"), dtype="uint8"))
    rows = found.asnumpy().reshape(n, -1)
    assert (rows == rows[0]).all(), "ranks have different bits"
    return digest.hexdigest()


if __name__ == "__main__":
    found = main()
    if dist.rank() == 0:
        print(dist.size(), found, *sys.argv[1:], flush=True)
    dist.barrier()
