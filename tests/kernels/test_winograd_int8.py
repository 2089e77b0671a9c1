"""Winograd's algorithm for bytes is exact: 3 x 3 convolutions beside NumPy's integers, with the
data and weights for which its 16 and 32 bits are fullest."""

import numpy as np
import plait as mx
import pytest
from plait.engine import lib
from test_conv_int8 import run
from test_narrow import convolution, machine  # noqa: F401

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
# the signs of the rows of the two transforms that add up to most
DATA_SIGNS = [(1, 0, -1, 0, 1, 0), (0, -1, -1, 1, 1, 0), (0, 1, -1, -1, 1, 0), (0, 1, 0, -1, 0, 1)]
WEIGHT_SIGNS = [(1, 1, 1), (1, -1, 1)]


def sums(x, w, pad):
    none = np.zeros(len(w), "int64")
    wide = x.astype("int64"), w.astype("int64")
    return convolution(*wide, none, (1, 1), pad, (1, 1), 1).astype("int64")


def compare(x, w, pad):
    """The sums of the kernel and of NumPy; where int32 does not hold them, its limits."""
    filters = len(w)
    attrs = {"kernel": (3, 3), "pad": pad, "num_filter": filters, "out_type": "int32"}
    bias = np.arange(filters, dtype="int32") - 3
    bias[-2:] = np.iinfo("int32").max, np.iinfo("int32").min
    want = sums(x, w, pad) + bias.astype("int64")[:, None, None]
    got = run([x, w, bias], attrs, False)
    np.testing.assert_array_equal(got, want.clip(bias[-1], bias[-2]))
    np.testing.assert_array_equal(run([x, w, bias], attrs, True), got)


def signed(signs, dtype):
    """The least number where a sign is -1 and the greatest where it is 1."""
    low, high = LIMITS[dtype]
    return np.where(signs > 0, high, np.where(signs < 0, low, 0)).astype(dtype)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("weight", [-128, 127])
def test_largest_sums(machine, dtype, weight):  # noqa: F811
    """Also beyond what one part of the channels may add up to: 2**25."""
    for channels in (16, 112, 113, 129, 224, 225, 460):
        for value in LIMITS[dtype]:
            x = np.full((1, channels, 12, 9), value, dtype)  # enough that tiles pay
            compare(x, np.full((17, channels, 3, 3), weight, "int8"), (1, 1))


@pytest.mark.parametrize("dtype", LIMITS)
def test_largest_transforms(machine, dtype):  # noqa: F811
    """Tiles and windows that each row of the transforms makes as large as it can."""
    rng = np.random.default_rng(0)
    tiles = [np.outer(a, b) * s for a in DATA_SIGNS for b in DATA_SIGNS for s in (1, -1)]
    windows = [np.outer(a, b) * s for a in WEIGHT_SIGNS for b in WEIGHT_SIGNS for s in (1, -1)]
    x = signed(np.stack(tiles)[:, None] * np.ones((1, 24, 1, 1)), dtype)
    w = signed(np.stack(windows * 3)[:, None] * np.ones((1, 24, 1, 1)), "int8")
    compare(x, w, (0, 0))
    compare(x * (rng.random(x.shape) < 0.9).astype(dtype), w, (0, 0))


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("caches", [(0, 0), (128 << 10, 0)])
def test_sizes(machine, dtype, caches):  # noqa: F811
    """Borders, images that are not whole tiles, channels and filters that are not whole vectors."""
    rng = np.random.default_rng(1)
    low, high = LIMITS[dtype]
    cases = [
        ((1, 16, 3, 3), 16, (0, 0)),
        ((1, 64, 1, 2), 16, (1, 1)),
        ((3, 35, 13, 18), 37, (1, 1)),
        ((2, 131, 7, 7), 70, (1, 1)),
        ((1, 33, 6, 45), 9, (0, 2)),
        ((1, 20, 9, 4), 50, (3, 5)),
        ((5, 48, 21, 19), 40, (2, 0)),
        ((1, 250, 14, 14), 16, (1, 1)),
    ]
    lib.plk_cache_set(*caches)
    try:
        for data, filters, pad in cases:
            x = rng.integers(low, high + 1, size=data).astype(dtype)
            w = rng.integers(-128, 128, size=(filters, data[1], 3, 3)).astype("int8")
            compare(x, w, pad)
    finally:
        lib.plk_cache_set(0, 0)


def test_unsigned_weights(machine):  # noqa: F811
    """Windows of 255 make the transforms largest; few data, so that not all results are 255."""
    rng = np.random.default_rng(2)
    x = (rng.random((1, 65, 14, 13)) < 0.001).astype("uint8")
    w = rng.choice([0, 100, 255], size=(18, 65, 3, 3), p=[0.5, 0.2, 0.3]).astype("uint8")
    w[:2] = 255
    want = sums(x, w, (1, 1))
    given = (mx.nd.array(a, dtype="uint8") for a in (x, w))
    got = mx.nd.Convolution(*given, kernel=(3, 3), pad=(1, 1), num_filter=18, no_bias=True)
    np.testing.assert_array_equal(got.asnumpy(), want.clip(0, 255))
    assert (want < 255).mean() > 0.5
