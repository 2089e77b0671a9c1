"""What test_nccl.py runs on two ranks, each with a GPU of its own."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import numpy as np
import plait as mx
from plait import dist, engine, nd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "dist"))


def check_collectives() -> None:
    import collectives

    collectives.DTYPES = ["float32", "float16", "int64", "uint8"]
    digest = collectives.main()
    assert dist.init()._cliques, "nothing ran on GPUs"
    if dist.rank() == 0:
        print(dist.size(), digest, flush=True)


def check_order() -> None:
    """Arrays get ready in opposite orders. Their collectives have keys and were compared in the
    first step, so nothing but their order in each process keeps the ranks together."""
    world = dist.init()
    numbers = [world.new_id() for _ in range(4)]
    for step in range(3):
        arrays = [
            nd.full((50 + i,), i + world.rank, ctx=mx.gpu(world.rank)) for i in range(len(numbers))
        ]
        nd.waitall()
        begin = threading.Event()
        engine.push(begin.wait, writes=[], lane="io")
        for x in arrays[:: 1 if world.rank else -1]:
            # long enough for what waits for x to be enqueued, were it alone
            engine.push(lambda: threading.Event().wait(0.02), writes=[x], lane="io")
        sums = [dist.all_reduce(x, key=k, name=f"x{k}") for x, k in zip(arrays, numbers)]
        begin.set()
        for i, got in enumerate(sums):
            np.testing.assert_array_equal(got.asnumpy(), np.full(50 + i, 2 * i + 1), f"{step} {i}")
    if world.rank == 0:
        print("in order", flush=True)


def check_training() -> None:
    import training

    training.main(sys.argv[2])
    assert dist.init()._cliques, "nothing ran on GPUs"


def check_sharded() -> None:
    """Training with sharded states beside the same without."""
    import sharded

    for optimizer in ("adam", "lamb"):
        weights = []
        for shard in (None, "states"):
            net = sharded.network()
            trainer = sharded.trainer_of(net, optimizer, shard)
            sharded.train(net, trainer, sharded.batches(4))
            weights.append(sharded.weights(net))
        for a, b in zip(*weights):
            np.testing.assert_array_equal(a, b)
    assert dist.init()._cliques, "nothing ran on GPUs"
    if dist.rank() == 0:
        print("same bits", flush=True)


if __name__ == "__main__":
    dist.init()
    with mx.gpu(dist.local_rank()):
        globals()[f"check_{sys.argv[1]}"]()
    dist.barrier()
