"""Places in sorted vectors, counts of values and places of what is not 0, beside NumPy's."""

import numpy as np
import pytest
from native_calls import check, complete, run_native
from plait import MXNetError, nd
from plait.kernels.record import REGISTRY, lookup
from plait.ndarray.invoke import invoke

RNG = np.random.default_rng(11)
SIZES = (1, 2, 3, 15, 16, 17, 100, 1000)


def drawn(n, dtype):
    x = RNG.normal(size=n) * 50
    if dtype.startswith("f"):
        x[::7] = np.round(x[::7])
        x[::11] = RNG.choice([np.nan, np.inf, -np.inf])
    return (abs(x) if dtype == "uint8" else x).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint8"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_places_in_sorted_vectors(dtype, side):
    lookup("_npi_add")
    for n in (0, *SIZES):
        a = np.sort(drawn(n, dtype))
        v = np.concatenate([drawn(37, dtype), a])
        (got,), _ = run_native(REGISTRY["_searchsorted"], [a, v], [dtype] * 2, {"side": side})
        np.testing.assert_array_equal(got, np.searchsorted(a, v, side=side))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize(
    "edges", [np.linspace(-60, 60, 12), [-40, -1, 0, 0, 3, 50], [5, 5], [0, np.inf], [1, 1, 2]]
)
def test_counts_between_edges(dtype, edges):
    for n in (0, 1, 255, 257, 3000):
        x, edges = drawn(n, dtype), np.asarray(edges, "float32")
        counts, found = nd.histogram(nd.array(x, dtype=dtype), bins=nd.array(edges))
        np.testing.assert_array_equal(counts.asnumpy(), np.histogram(x, bins=edges)[0])
        np.testing.assert_array_equal(found.asnumpy(), edges)


@pytest.mark.parametrize("n_bins", [1, 2, 7, 100])
def test_counts_between_even_edges(n_bins):
    x = drawn(5000, "float32")
    x[:n_bins] = np.linspace(-9, 9, n_bins + 1).astype("float32")[:n_bins]
    attrs = complete(REGISTRY["_histogram"], {"bin_cnt": n_bins, "range": (-9.0, 9.0)})
    (counts, edges), _ = run_native(REGISTRY["_histogram"], [x], ["float32"], attrs)
    want, places = np.histogram(x, n_bins, (-9.0, 9.0))
    np.testing.assert_array_equal(counts, want)
    np.testing.assert_array_equal(edges, places)


def test_edges_that_decrease_are_refused():
    with pytest.raises(MXNetError, match="bins must not decrease"):
        nd.histogram(nd.array([1.0]), bins=nd.array([2.0, 1.0]))[0].asnumpy()


def test_how_often_numbers_occur():
    x = RNG.integers(0, 9, 1000)
    check("_counts", [x], size=9)
    check("_counts", [x], size=12)
    for wrong in (-1, 9):
        with pytest.raises(IndexError, match=rf"must be in \[0, 9\), got {wrong}"):
            invoke(lookup("_counts"), [nd.array([3, wrong], dtype="int64")], {"size": 9}).asnumpy()


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize(
    "shape", [(1,), (63,), (64,), (65,), (1000,), (7, 130), (2, 3, 70), (0, 3)]
)
def test_places_of_what_is_not_0(dtype, shape):
    for share in (0, 0.1, 0.9, 1):
        x = np.where(RNG.random(shape) < share, RNG.integers(1, 99, shape), 0).astype(dtype)
        a = nd.array(x, dtype=dtype)
        count = int(invoke(lookup("_count_nonzero"), [a], {}).asscalar())
        assert count == np.count_nonzero(x)
        got = invoke(lookup("_places"), [a], {"count": count}).asnumpy()
        np.testing.assert_array_equal(got, np.stack(np.nonzero(x)))


def test_places_stay_in_their_memory_if_values_change():
    """The array is written between counting and looking."""
    x = nd.ones((5, 70))
    got = invoke(lookup("_places"), [x], {"count": 3}).asnumpy()
    np.testing.assert_array_equal(got, [[0, 0, 0], [0, 1, 2]])
    got = invoke(lookup("_places"), [nd.zeros((5,))], {"count": 3}).asnumpy()
    np.testing.assert_array_equal(got, [[0, 0, 0]])


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("n_parts", [2, 3, 5])
def test_elements_side_by_side(size, n_parts):
    for n in (1, 2, 511, 513, 2000):
        parts = [
            RNG.integers(0, 99, n).astype({1: "int8", 4: "int32"}.get(size, f"f{size}"))
        ] * n_parts
        parts = [p + k for k, p in enumerate(parts)]
        whole = np.stack(parts, axis=1)
        arrays = [nd.array(p, dtype=p.dtype) for p in parts]
        np.testing.assert_array_equal(nd.stack(*arrays, axis=1).asnumpy(), whole)
        back = nd.split(nd.array(whole, dtype=whole.dtype), n_parts, axis=1, squeeze_axis=True)
        for got, want in zip(back, parts):
            np.testing.assert_array_equal(got.asnumpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8"])
def test_the_first_of_equal_extremes(dtype):
    for n in (1, 2, 31, 32, 33, 63, 64, 65, 1000, 5000):
        x = RNG.integers(-3, 3, (3, n)).astype(dtype)
        if dtype.startswith("f") and n > 2:
            x[1, n // 2 :] = np.nan
            x[2, 1] = np.inf
        for name in ("argmax", "argmin"):
            got = getattr(nd, name)(nd.array(x, dtype=dtype), axis=1).asnumpy()
            np.testing.assert_array_equal(got, getattr(np, name)(x, axis=1))


def test_indices_outside_fail_with_their_number():
    x = nd.array(np.arange(5))
    for mode, at, low in (("raise", -1, 0), ("raise", 5, 0), ("index", -6, -5), ("index", 5, -5)):
        with pytest.raises(IndexError, match=rf"take: .* in \[{low}, 5\), got {at}"):
            nd.take(x, nd.array([0, at], dtype="int64"), mode=mode).asnumpy()
    at = RNG.integers(-5, 5, 3000)
    got = nd.take(x, nd.array(at, dtype="int64"), mode="index").asnumpy()
    np.testing.assert_array_equal(got, np.arange(5)[at])
