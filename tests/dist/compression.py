"""What test_compression.py runs on ranks: sums of compressed gradients, against NumPy."""

from __future__ import annotations

import json
import sys

import numpy as np
import plait as mx
from plait import dist, nd

SHAPES, STEPS = [(3, 5), (40, 33), (1,)], 4


def gradient(rank: int, step: int, k: int) -> np.ndarray:
    generator = np.random.default_rng([rank, step, k])
    return generator.standard_normal(SHAPES[k]).astype("float32")


def simulate(params: dict, n: int):
    """The sums of each step by the rule alone: one value after the other, of halves in float32."""
    residuals = [[np.zeros(s, "float32") for s in SHAPES] for _ in range(n)]
    for step in range(STEPS):
        sums = []
        for k in range(len(SHAPES)):
            total = np.zeros(SHAPES[k], "float32")
            for r in range(n):
                residual = residuals[r][k]
                residual += gradient(r, step, k)
                if params["type"] == "fp16":
                    sent = residual.astype("float16")
                else:
                    t = np.float32(params["threshold"])
                    sent = np.where(residual >= t, t, np.where(residual <= -t, -t, 0))
                residual -= sent.astype("float32")
                total += sent
            sums.append(total.astype(sent.dtype).astype("float32"))
        yield sums


def main(params: dict) -> None:
    kv = mx.kv.create("dist_sync")
    kv.set_gradient_compression(params)
    for k, shape in enumerate(SHAPES):
        kv.init(k, nd.zeros(shape))
    for step, expected in enumerate(simulate(params, dist.size())):
        grads = [nd.array(gradient(dist.rank(), step, k)) for k in range(len(SHAPES))]
        if step == 2:  # as two devices: they are summed before they are compressed
            keys, values = [0, 1, 2], [[g, nd.zeros_like(g)] for g in grads]
            kv.push(keys, values)
            kv.pull(keys, grads)
        else:
            kv.pushpull([0, 1, 2], grads)
        for got, wanted in zip(grads, expected):
            np.testing.assert_array_equal(got.asnumpy(), wanted)
    print("equal", flush=True)


if __name__ == "__main__":
    for params in sys.argv[1:]:
        main(json.loads(params))
