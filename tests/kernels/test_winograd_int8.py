"""Winograd's algorithm for bytes is exact: 3 x 3 convolutions beside NumPy's integers, with the data
and weights for which its 16 and 32 bits are fullest."""

import numpy as np
import pytest
from plait.engine import lib
from test_conv_int8 import run
from test_narrow import convolution, machine  # noqa: F401

LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}
# the signs of the rows of the two transforms that add up to most
DATA_SIGNS = [(1, 0, -1, 0, 1, 0), (0, -1, -1, 1, 1, 0), (0, 1, -1, -1, 1, 0), (0, 1, 0, -1, 0, 1)]
WEIGHT_SIGNS = [(1, 1, 1), (1, -1, 1)]


def compare(x, w, pad, out="int32"):
    """The sums of the kernel and of NumPy."""
    filters = len(w)
    attrs = {"kernel": (3, 3), "pad": pad, "num_filter": filters, "out_type": out}
    bias = np.arange(filters, dtype="int32") - 3
    want = convolution(x.astype("int64"), w.astype("int64"), bias, (1, 1), pad, (1, 1), 1)
    got = run([x, w, bias], attrs, False)
    np.testing.assert_array_equal(got, want.astype("int64"))
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
            x = np.full((1, channels, 6, 5), value, dtype)
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
