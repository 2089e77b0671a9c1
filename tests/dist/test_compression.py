"""Compressed gradients between ranks: their sums, and the bytes that travel."""

import json

import launched
import pytest

BYTES = """
import plait as mx
from plait import dist, nd
from plait.engine import ffi, lib
def sent():
    stats = ffi.new("pl_comm_stats *")
    lib.pl_comm_get_stats(stats)
    return stats.sent_bytes
kv = mx.kv.create("dist_sync")
kv.init("w", nd.zeros((1 << 16,)))
for params in (None, {"type": "2bit"}, {"type": "fp16"}):
    if params:
        kv.set_gradient_compression(params)
    before, x = sent(), nd.ones((1 << 16,))
    kv.pushpull("w", x)
    x.wait_to_read()
    if dist.rank() == 0:
        print(sent() - before)
"""


@pytest.mark.parametrize("n", [1, *launched.RANKS])
def test_sums_of_compressed_gradients_are_those_of_numpy(n):
    words = [
        json.dumps(params) for params in ({"type": "2bit", "threshold": 0.7}, {"type": "fp16"})
    ]
    assert launched.succeed(n, ["compression.py", *words]).count("equal") == 2 * n


def test_two_bits_send_a_sixteenth_of_the_bytes_and_fp16_a_half():
    plain, two_bits, half = map(int, launched.succeed(2, BYTES).split())
    assert plain >= 4 << 16
    assert two_bits < plain / 15 and half < plain / 1.9
