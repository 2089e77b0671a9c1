"""Native kernels that draw random numbers: distributions, known answers, and streams that do not
depend on batches and threads."""

import numpy as np
import plait as mx
import pytest
from native_calls import normal, on_lane, random_call
from plait.engine import lib
from plait.kernels.record import lookup
from plait.ndarray.invoke import invoke


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers(dtype):
    (x,) = random_call("_random_uniform", shape=(200, 101), low=-1.0, high=3.0, dtype=dtype)
    assert x.min() >= -1 and x.max() < 3 and abs(x.mean() - 1) < 0.05
    (z,) = random_call("_random_normal", shape=(200, 101), loc=2.0, scale=3.0, dtype=dtype)
    assert (
        abs(z.mean() - 2) < 0.1
        and abs(z.std() - 3) < 0.1
        and abs(((z - 2) ** 4).mean() / 81 - 3) < 0.3
    )
    (short,) = random_call("_random_uniform", shape=(50,), low=-1.0, high=3.0, dtype=dtype)
    np.testing.assert_array_equal(short, x.reshape(-1)[:50])
    assert not np.array_equal(
        short, random_call("_random_uniform", 4.0, shape=(50,), low=-1.0, high=3.0, dtype=dtype)[0]
    )


@pytest.mark.parametrize(
    "low, high, dtype", [(-3, 7, "int32"), (0, 100_000, "int32"), (-(2**62), 2**62, "int64")]
)
def test_whole_numbers(low, high, dtype):
    (x,) = random_call("_random_randint", shape=(20_000,), low=low, high=high, dtype=dtype)
    x = (x.astype(np.float64) - low) / (high - low)
    assert (
        x.min() >= 0 and x.max() < 1 and abs(x.mean() - 0.5) < 0.06 and abs(x.std() - 0.289) < 0.01
    )
    if high - low == 10:
        assert np.array_equal(np.unique(x), np.arange(10) / 10)


def test_exponential():
    for dtype in ("float32", "float64"):
        (x,) = random_call("_random_exponential", shape=(20_000,), lam=2.0, dtype=dtype)
        assert x.min() >= 0 and abs(x.mean() - 0.5) < 0.02 and abs(x.std() - 0.5) < 0.03


def test_philox_known_answer():
    """The first words of key 0, counter 0 in the paper's known-answer file (Salmon et al. 2011)."""
    (x,) = random_call("_random_uniform", 0.0, 0.0, shape=(4,), dtype="float32")
    words = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], np.uint32)
    np.testing.assert_array_equal(x, (words >> 8).astype(np.float32) * np.float32(2.0**-24))


def test_random_numbers_are_those_of_every_machine():
    found = []
    for isa in range(lib.plk_isa_best() + 1):
        lib.plk_isa_set(isa)
        call = {"shape": (301,), "low": -1.0, "high": 3.0, "dtype": "float32"}
        found.append(random_call("_random_uniform", 7.0, 2.0**33 + 5, **call)[0])
    lib.plk_isa_set(lib.plk_isa_best())
    for x in found:
        np.testing.assert_array_equal(x, found[0])


@pytest.mark.parametrize("axes", [(), (1,)])
def test_dropout(axes):
    x = normal(40, 30) + 5
    y, mask = random_call("Dropout", arrays=[x], p=0.3, axes=axes, mode="always")
    np.testing.assert_array_equal(y, x * mask)
    assert (
        set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.7)}
        and 0.4 < (mask > 0).mean() < 0.95
    )


def test_random_numbers_do_not_depend_on_the_batch():
    """Element i is a function of seed, call and i: any part of a stream can be computed alone, so
    by any thread."""
    (whole,) = random_call("_random_uniform", 1.0, 9.0, shape=(300000,), dtype="float32")
    parts = [
        random_call("_random_uniform", 1.0, 9.0, shape=(n,), dtype="float32")[0][-64:]
        for n in (64, 128, 192)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole[:192])


def test_random_numbers_on_the_lane():
    """With as many threads as there are, a seed gives the numbers of one thread."""
    lib.pl_seed(11)
    attrs = {"shape": (300, 1001), "low": 0.0, "high": 1.0, "dtype": "float32"}
    (lane,) = on_lane("_random_uniform", [], [], attrs)
    serial = [random_call("_random_uniform", float(call), 11.0, **attrs)[0] for call in range(3)]
    assert any(np.array_equal(lane, s) for s in serial)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.9, 0.999])
def test_gamma_slopes_of_any_size(p):
    """Of shapes up to 10^9, whose series would take as many terms; and of what has none."""
    special = pytest.importorskip("scipy.special")
    a = np.array([0.3, 2.0, 50.0, 1e3, 9e5, 1.1e6, 1e7, 1e9])
    h = np.where(a < 1e3, 1e-4, 1e-3) * a
    z = special.gammaincinv(a, p)
    want = (special.gammaincinv(a + h, p) - special.gammaincinv(a - h, p)) / (2 * h)
    arrays = [mx.nd.array(v, dtype="float64") for v in (a, z)]
    np.testing.assert_allclose(
        invoke(lookup("_gamma_slope"), arrays, {}).asnumpy(), want, rtol=2e-5
    )
    odd = mx.nd.array([np.inf, 1, np.nan, 1, 5]), mx.nd.array([np.inf, np.inf, 1, 0, 65504])
    assert invoke(lookup("_gamma_slope"), odd, {}).asnumpy()[3] == 0
