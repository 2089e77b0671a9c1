"""The order of work on streams: random programs over devices and lanes give what NumPy gives, with
streams that rest for random times, so that a missing wait shows."""

import os

os.environ.setdefault("EMULATOR_DELAY_US", "300")  # read when the first stream is made

import numpy as np
import plait as mx
import pytest
from plait import engine, nd

DEVICES = [mx.cpu(), mx.gpu(0), mx.gpu(1), mx.cpu_pinned()]


def here():
    return DEVICES[: 2 + (mx.context.num_gpus() > 1)] + DEVICES[3:]


def step(random, arrays, expected):
    """One random operation on arrays and, the same, on NumPy."""
    kind = random.integers(8)
    i, j = (int(random.integers(len(arrays))) for _ in range(2))
    x, y = arrays[i], arrays[j]
    if kind == 0:  # a new array, somewhere
        device = here()[random.integers(len(here()))]
        value = random.integers(0, 5, 6).astype("float32")
        arrays[i], expected[i] = nd.array(value, ctx=device), value.copy()
    elif kind == 1:
        arrays[i], expected[i] = x + y.as_in_context(x.context), expected[i] + expected[j]
    elif kind == 2:
        x *= 0.5
        expected[i] = expected[i] * np.float32(0.5)
    elif kind == 3:  # a copy into an array that others may still read
        x.copyto(y)
        expected[j] = expected[i].copy()
    elif kind == 4:
        x[2:4] = y.as_in_context(x.context)[:2]
        expected[i] = expected[i].copy()
        expected[i][2:4] = expected[j][:2]
    elif kind == 5:
        np.testing.assert_array_equal(x.asnumpy(), expected[i])
    elif kind == 6:  # a function on a lane of the host that looks at memory of a GPU
        seen = []
        engine.push(lambda: seen.append(x.asnumpy()), reads=[x], lane="cpu")
        value = expected[i]
        x.wait_to_write()
        np.testing.assert_array_equal(seen[0], value)
    else:  # its memory goes back to the pool while it is used
        arrays[i], expected[i] = x - 1, expected[i] - 1
        del x


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    random = np.random.default_rng(seed)
    expected = [np.zeros(6, "float32") for _ in range(6)]
    arrays = [nd.array(e, ctx=here()[k % len(here())]) for k, e in enumerate(expected)]
    for _ in range(60):
        step(random, arrays, expected)
    for x, e in zip(arrays, expected):
        np.testing.assert_array_equal(x.asnumpy(), e)


def test_a_block_that_is_given_back_waits_for_its_last_user():
    """Memory freed while a copy lane still reads it, and taken by the compute lane at once."""
    for k in range(20):
        x = nd.full((1000,), k, ctx=mx.gpu(0))
        host = x.as_in_context(mx.cpu())
        del x
        y = nd.full((1000,), -1, ctx=mx.gpu(0))
        assert (host.asnumpy() == k).all()
        assert (y.asnumpy() == -1).all()


def test_a_block_on_another_device_waits_for_its_source():
    if mx.context.num_gpus() < 2:
        pytest.skip("one GPU")
    x = nd.zeros((100,), ctx=mx.gpu(0))
    for k in range(10):
        x += 1
        y = x.as_in_context(mx.gpu(1))
        x += 1  # waits for the copy to have read it
        assert (y.asnumpy() == 2 * k + 1).all()


def test_values_are_read_when_they_are_given():
    """nd.array returns before the copy, but after it has taken the values."""
    for n in (10, 3 << 20):  # staged, and not
        values = np.ones(n, "float32")
        x = nd.array(values, ctx=mx.gpu(0))
        values[:] = 2
        assert (x.asnumpy() == 1).all()
