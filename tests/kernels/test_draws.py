"""Random numbers of loops made from references (cpu/draws.c): their distributions beside NumPy's,
and streams that depend on seed, call and place alone."""

import numpy as np
import plait as mx
import pytest
from native_calls import on_lane, random_call
from plait import nd

N = 20_000
RNG = np.random.default_rng(1)


def negative_binomial(k, p):
    return RNG.poisson(RNG.gamma(k, (1 - p) / p, N))


# operator, attributes, what NumPy draws
DISTRIBUTIONS = [
    *(("gamma", {"alpha": a, "beta": 2.0}, RNG.gamma(a, 2.0, N)) for a in (0.2, 1.0, 2.5, 300.0)),
    *(("poisson", {"lam": m}, RNG.poisson(m, N)) for m in (0.1, 3.0, 9.99, 10.0, 40.0, 1e5)),
    ("negative_binomial", {"k": 3, "p": 0.3}, negative_binomial(3, 0.3)),
    ("generalized_negative_binomial", {"mu": 3.0, "alpha": 0.5}, negative_binomial(2, 1 / 2.5)),
    ("generalized_negative_binomial", {"mu": 3.0, "alpha": 0.0}, RNG.poisson(3.0, N)),
]


def gap(x, y):
    """The largest distance of two empirical distribution functions (Kolmogorov, Smirnov)."""
    at = np.concatenate([x, y])
    below = [np.searchsorted(np.sort(v), at, side="right") / len(v) for v in (x, y)]
    return np.abs(below[0] - below[1]).max()


@pytest.mark.parametrize("name, attrs, wanted", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions_are_numpys(name, attrs, wanted, dtype):
    (x,) = random_call(f"_random_{name}", shape=(N,), dtype=dtype, **attrs)
    x = x.astype(np.float64)
    if dtype == "float32":
        wanted = wanted.astype(np.float32).astype(np.float64)
    assert gap(x, wanted) < 1.95 * (2 / N) ** 0.5  # exceeded once in 1000 times by chance
    assert abs(x.mean() - wanted.mean()) < 5 * wanted.std() * (2 / N) ** 0.5
    if name != "gamma":
        np.testing.assert_array_equal(x, np.floor(x))


def test_parameters_that_are_arrays():
    low = np.array([0.5, 20.0], np.float32)
    (x,) = random_call("_sample_poisson", arrays=[low], shape=(N,))
    assert gap(x[0], RNG.poisson(0.5, N)) < 0.02 > gap(x[1], RNG.poisson(20, N))
    scale = np.array([1.0, 3.0], np.float32)
    (z,) = random_call("_sample_normal", arrays=[low, scale], shape=(N,))
    assert gap(z[1], RNG.normal(20, 3, N)) < 0.02
    (e,) = random_call("_sample_exponential", arrays=[low], shape=(N,))
    assert gap(e[0], RNG.exponential(2, N)) < 0.02
    (u,) = random_call("_sample_uniform", arrays=[low, low + scale], shape=(N,))
    assert gap(u[1], RNG.uniform(20, 23, N)) < 0.02 and u[1].min() >= 20
    (g,) = random_call("_standard_gamma", arrays=[np.full(N, 0.7, np.float32)])
    assert gap(g, RNG.gamma(0.7, 1, N)) < 0.02


def test_what_has_no_numbers():
    nothing = np.array([0.0, -1.0, np.nan], np.float32)
    for name in ("_sample_poisson", "_standard_gamma"):
        assert random_call(name, arrays=[nothing])[0].tolist() == [0, 0, 0]


def test_classes():
    p = np.array([[0.2, 0.0, 0.8], [3, 3, 6]], np.float32)  # the sum need not be 1
    found, logs = random_call("_sample_multinomial", arrays=[p], shape=(N,), get_prob=True)
    for row, probabilities in zip(found, ([0.2, 0, 0.8], [0.25, 0.25, 0.5])):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / N, probabilities, atol=0.015)
    rows = np.arange(2)[:, None]
    np.testing.assert_allclose(logs, np.log(p[rows, found]), rtol=1e-6)


def test_rrelu_draws_a_slope_for_each_element():
    x = -np.ones(N, np.float32)
    y, mask = random_call(
        "LeakyReLU", arrays=[x], act_type="rrelu", lower_bound=0.1, upper_bound=0.3
    )
    np.testing.assert_array_equal(y, -mask)
    assert gap(mask, RNG.uniform(0.1, 0.3, N)) < 0.02


def test_numbers_depend_on_seed_call_and_place_alone():
    draw = lambda counter, seed, n: random_call("_random_gamma", counter, seed, shape=(n,))[0]
    np.testing.assert_array_equal(draw(3.0, 5.0, 300), draw(3.0, 5.0, 7000)[:300])
    assert not np.array_equal(draw(3.0, 5.0, 300), draw(4.0, 5.0, 300))
    assert not np.array_equal(draw(3.0, 5.0, 300), draw(3.0, 6.0, 300))
    means = np.full(100_000, 12.0, np.float32)
    (alone,) = random_call("_sample_poisson", 0.0, 5.0, arrays=[means])
    mx.random.seed(5)
    (shared,) = on_lane("_sample_poisson", [means], ["float32"], {})
    np.testing.assert_array_equal(alone, shared)


def test_two_draws_of_one_call_are_independent():
    (x,) = random_call("_random_negative_binomial", k=1, p=0.5, shape=(N,))
    assert gap(x, RNG.geometric(0.5, N) - 1) < 0.02


def test_a_seed_repeats_programs():
    def numbers():
        mx.random.seed(7)
        return [
            nd.random.gamma(2.0, 1.0, (50,)).asnumpy(),
            nd.random.poisson(4.0, (50,)).asnumpy(),
            nd.shuffle(nd.arange(50)).asnumpy(),
            nd.random.multinomial(nd.array([0.3, 0.7]), shape=(50,)).asnumpy(),
        ]

    for a, b in zip(numbers(), numbers()):
        np.testing.assert_array_equal(a, b)


def test_shuffle_is_a_permutation_of_rows():
    x = np.arange(3 * 400, dtype=np.float32).reshape(400, 3)
    (y,) = random_call("_shuffle", arrays=[x])
    assert sorted(map(tuple, y)) == sorted(map(tuple, x)) and not np.array_equal(x, y)
    places = [
        random_call("_shuffle", float(k), arrays=[np.arange(5, dtype=np.float32)])[0]
        for k in range(2000)
    ]
    counts = np.stack([(np.stack(places) == v).sum(axis=0) for v in range(5)])
    assert np.abs(counts / 2000 - 0.2).max() < 0.04  # each element in each place


def test_unique_zipfian():
    found, tries = random_call("_sample_unique_zipfian", range_max=50, shape=(400, 10))
    assert found.min() >= 0 and found.max() < 50 and (tries >= 10).all()
    assert all(len(set(row)) == 10 for row in found.tolist())
    first = found[:, 0]
    wanted = np.log((np.arange(3) + 2) / (np.arange(3) + 1)) / np.log(51)
    np.testing.assert_allclose(np.bincount(first, minlength=3)[:3] / 400, wanted, atol=0.08)
    whole, _ = random_call("_sample_unique_zipfian", range_max=3, shape=(5, 3))
    assert all(sorted(row) == [0, 1, 2] for row in whole.tolist())


def test_images_change_by_a_drawn_factor():
    x = RNG.uniform(0, 255, (6, 5, 3)).astype(np.float32)
    for name in ("brightness", "contrast", "saturation"):
        y = random_call(f"_image_random_{name}", arrays=[x], min_factor=0.5, max_factor=1.5)[0]
        others = {"brightness": 0.0}
        grey = (x * [0.299, 0.587, 0.114]).sum(axis=-1, keepdims=True)
        other = others.get(name, grey.mean() if name == "contrast" else grey)
        factor = (y - other)[0, 0, 0] / (x - other)[0, 0, 0]
        assert 0.5 <= factor < 1.5
        np.testing.assert_allclose(y, x * factor + (1 - factor) * other, rtol=1e-4, atol=1e-3)
