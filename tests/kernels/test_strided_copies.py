"""Operators that only move elements: what their strides say is what NumPy does."""

import itertools

import numpy as np
import pytest
from plait import nd

SHAPES = [(2, 3, 4), (1, 5, 1), (3, 1, 2), (2, 0, 3)]


def counted(shape):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return x, nd.array(x) if x.size else nd.zeros(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_other_orders_of_axes(shape):
    x, a = counted(shape)
    for axes in itertools.permutations(range(3)):
        np.testing.assert_array_equal(nd.transpose(a, axes=axes).asnumpy(), x.transpose(axes))
    for i, j in itertools.product(range(-3, 3), repeat=2):
        np.testing.assert_array_equal(nd.swapaxes(a, i, j).asnumpy(), x.swapaxes(i, j))


@pytest.mark.parametrize(
    "shape, to",
    [((1, 3, 1), (4, 3, 5)), ((1, 1, 1), (1, 1, 1)), ((2, 1), (2, 6)), ((1, 0), (3, 0))],
)
def test_broadcasts(shape, to):
    x, a = counted(shape)
    want = np.broadcast_to(x, to)
    np.testing.assert_array_equal(nd.ones(shape).broadcast_to(to).asnumpy(), np.ones(to))
    axes = [i for i, (m, n) in enumerate(zip(shape, to)) if m != n]
    got = nd.broadcast_axis(a, axis=axes, size=[to[i] for i in axes])
    np.testing.assert_array_equal(got.asnumpy(), want)
    np.testing.assert_array_equal(nd.broadcast_like(a, nd.zeros(to)).asnumpy(), want)
