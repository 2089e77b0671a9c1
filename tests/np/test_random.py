"""mx.np.random and npx.random: distributions against NumPy's samplers, gradients against central
differences with the same numbers, one stream with mx.random."""

import math

import numpy as onp
import plait as mx
import pytest
from plait import autograd, np, npx
from plait.engine.error import MXNetError
from plait.kernels.ops.np.random import DISTRIBUTIONS, operator_of
from plait.kernels.record import lookup

N = 20_000
GIVEN = {
    "gamma": (0.7, 2.0),
    "beta": (0.4, 2.0),
    "binomial": (9, 0.3),
    "geometric": (0.3,),
    "negative_binomial": (2.5, 0.4),
    "hypergeometric": (9, 6, 5),
    "logseries": (0.6,),
    "zipf": (2.5,),
    "triangular": (-1.0, 0.5, 3.0),
    "vonmises": (0.5, 2.0),
    "noncentral_chisquare": (3.0, 2.0),
    "noncentral_f": (3.0, 20.0, 2.0),
    "f": (3.0, 9.0),
    "normal": (1.0, 3.0),
    "uniform": (-1.0, 4.0),
    "gumbel": (1.0, 2.0),
    "logistic": (1.0, 2.0),
    "laplace": (1.0, 2.0),
    "lognormal": (0.5, 0.4),
}


def parameters(name):
    n = len(DISTRIBUTIONS[name].parameters)
    return GIVEN.get(name, (2.5,) * n)


def distance(x, y):
    """The statistic of Kolmogorov and Smirnov."""
    both = onp.sort(onp.concatenate([x, y]))
    below = [onp.searchsorted(onp.sort(v), both, "right") / len(v) for v in (x, y)]
    return onp.abs(below[0] - below[1]).max()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("given", ["numbers", "arrays"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_numbers_are_those_of_the_distribution(name, given, dtype):
    found, numbers = DISTRIBUTIONS[name], parameters(name)
    if given == "arrays":
        numbers = [np.array([v], dtype="float64") for v in numbers]
    npx.random.seed(5)
    x = getattr(np.random, name)(*numbers, size=N, dtype=dtype)
    assert type(x) is np.ndarray and x.dtype == onp.dtype(dtype)
    want = found.ref(onp.random.default_rng(1), N, *parameters(name))
    # 0.1 % of equal distributions are further apart; seeds are fixed
    assert distance(x.asnumpy().astype("float64"), want) < 1.95 * math.sqrt(2 / N)


def test_stream_is_that_of_mx_random():
    npx.random.seed(3)
    one = np.random.normal(size=(2,)).asnumpy()
    mx.random.seed(3)
    onp.testing.assert_array_equal(one, mx.nd.random.normal(shape=(2,)).asnumpy())
    np.random.seed(3)
    onp.testing.assert_array_equal(one, np.random.normal(size=2).asnumpy())
    assert (np.random.normal(size=2).asnumpy() != one).all()
    state = np.random.get_state()
    again = np.random.gamma(2.0, size=3).asnumpy()
    np.random.set_state(state)
    onp.testing.assert_array_equal(again, np.random.gamma(2.0, size=3).asnumpy())


SHAPES = [
    (lambda: np.random.normal(), (), "float32"),
    (lambda: np.random.normal(np.zeros((2, 1)), np.ones(3)), (2, 3), "float32"),
    (lambda: np.random.normal(0, np.ones((0, 3)), size=(2, 0, 3)), (2, 0, 3), "float32"),
    (lambda: np.random.gamma([1.0, 2.0], size=(0, 2)), (0, 2), "float32"),
    (lambda: np.random.uniform(onp.zeros(2), 1), (2,), "float64"),
    (lambda: np.random.normal(np.ones(2, dtype="float16")), (2,), "float16"),
    (lambda: np.random.normal(np.ones(2, dtype="int32")), (2,), "float32"),
    (lambda: np.random.normal(size=2, dtype="float16"), (2,), "float16"),
    (lambda: np.random.normal(size=[2, 3], dtype=onp.float64), (2, 3), "float64"),
    (lambda: np.random.exponential(2.0, 3), (3,), "float32"),
    (lambda: np.random.exponential(0.0), (), "float32"),
    (lambda: np.random.poisson(3.0), (), "int64"),
    (lambda: np.random.poisson(np.ones(2), dtype="int32"), (2,), "int32"),
    (lambda: np.random.rand(2, 3), (2, 3), "float32"),
    (lambda: np.random.rand(), (), "float32"),
    (lambda: np.random.randn(2), (2,), "float32"),
    (lambda: np.random.randint(5), (), "int64"),
    (lambda: np.random.randint(0, 5, 2, "uint8"), (2,), "uint8"),
    (lambda: np.random.randint(np.zeros(2), np.array([[3], [4]])), (2, 2), "int64"),
    (lambda: np.random.choice(5, (2, 3)), (2, 3), "int64"),
    (lambda: np.random.choice(np.ones((4, 3)), 2), (2, 3), "float32"),
    (lambda: np.random.choice(np.array([1.0, 2.0])), (), "float32"),
    (lambda: np.random.permutation(4), (4,), "int64"),
    (lambda: np.random.permutation(np.ones((4, 3))), (4, 3), "float32"),
    (lambda: np.random.multinomial(10, [0.2, 0.8]), (2,), "int64"),
    (lambda: np.random.multinomial(10, np.array([0.2, 0.8]), size=3), (3, 2), "int64"),
    (lambda: np.random.dirichlet([1.0, 2.0, 3.0], size=(4, 2)), (4, 2, 3), "float32"),
    (lambda: np.random.multivariate_normal(np.zeros(2), np.eye(2), 3), (3, 2), "float32"),
    (lambda: npx.random.normal_n(np.zeros(3), 1.0, batch_shape=(2,)), (2, 3), "float32"),
    (lambda: npx.random.uniform_n(0.0, 1.0, (2, 3)), (2, 3), "float32"),
    (lambda: npx.random.bernoulli(prob=0.5, size=(2, 3)), (2, 3), "float32"),
    (lambda: npx.random.bernoulli(logit=np.zeros(3), dtype="bool"), (3,), "bool"),
]


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_shapes_and_dtypes(number):
    make, shape, dtype = SHAPES[number]
    x = make()
    assert (type(x), x.shape, onp.dtype(x.dtype).name) == (np.ndarray, shape, dtype)
    assert x.asnumpy().shape == shape


def test_out_takes_the_numbers():
    out = np.zeros((2, 3), dtype="float64")
    assert np.random.normal(out=out) is out and (out.asnumpy() != 0).all()
    whole = np.zeros((50,), dtype="uint8")
    assert np.random.randint(7, 9, out=whole) is whole and set(whole.tolist()) == {7, 8}


REFUSED = [
    (lambda: np.random.normal(0, -1.0), "scale must be at least 0, got -1.0"),
    (lambda: np.random.exponential(-1.0), "scale must be at least 0"),
    (lambda: np.random.gamma(-2.0), "shape must be greater than 0"),
    (lambda: np.random.gamma(0.5, -2.0), "scale must be at least 0"),
    (lambda: np.random.beta(0.0, 1.0), "a must be greater than 0"),
    (lambda: np.random.normal(float("nan")), "loc must be a number"),
    (lambda: np.random.binomial(3, 1.5), r"p must be in \[0, 1\]"),
    (lambda: np.random.randint(5, 5), "low must be smaller than high"),
    (lambda: np.random.randint(0, 300, dtype="uint8"), "must be within uint8"),
    (lambda: np.random.choice(3, 5, replace=False), "without replacement, got 5 of 3"),
    (lambda: np.random.choice(0, 1), "at least one element"),
    (lambda: np.random.choice(3, p=[0.5, 0.1, 0.1]), "must have sum 1"),
    (lambda: np.random.choice(3, p=[0.5, 0.5]), r"p must have shape \(3,\)"),
    (lambda: np.random.multinomial(10, [0.2, 0.9]), "must have sum 1"),
    (lambda: np.random.normal(np.zeros(3), size=(2,)), "size must be a shape"),
    (lambda: np.random.normal(np.zeros(3), np.ones(2)), "size must be a shape"),
    (lambda: np.random.normal(size=(-1,)), "size must be a shape"),
    (lambda: npx.random.bernoulli(), "either prob or logit"),
    (lambda: npx.random.bernoulli(prob=1.5), "prob must be in"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_bad_parameters_are_refused_at_once(number):
    call, rule = REFUSED[number]
    with pytest.raises(MXNetError, match=rule) as caught:
        call()
    assert isinstance(caught.value, ValueError)


def test_bad_elements_of_arrays():
    scale = np.array([1.0, -1.0])
    assert onp.isnan(np.random.normal(0, scale).asnumpy()).tolist() == [False, True]
    with pytest.raises(ValueError, match="lam"):
        np.random.poisson(scale).wait_to_read()


def test_choice_and_permutation():
    npx.random.seed(1)
    assert sorted(np.random.permutation(20).tolist()) == list(range(20))
    x = np.array(onp.arange(20))
    assert sorted(np.random.choice(x, 20, replace=False).tolist()) == list(range(20))
    assert np.random.choice(3, 9, p=np.array([0.0, 1.0, 0.0])).tolist() == [1] * 9
    counts = onp.bincount(np.random.choice(3, N, p=[0.2, 0.3, 0.5]).asnumpy()) / N
    onp.testing.assert_allclose(counts, [0.2, 0.3, 0.5], atol=0.012)
    assert np.random.shuffle(x) is None
    assert sorted(x.tolist()) == list(range(20)) != x.tolist()
    drawn = np.random.multinomial(10, [[0.2, 0.8], [1.0, 0.0]], size=1000).asnumpy()
    assert (drawn.sum(-1) == 10).all() and (drawn[:, 1] == [10, 0]).all()
    onp.testing.assert_allclose(drawn[:, 0].mean(0), [2, 8], atol=0.15)


def test_vectors():
    npx.random.seed(2)
    cov = onp.array([[2.0, 0.6], [0.6, 1.0]])
    x = np.random.multivariate_normal(np.array([1.0, -1.0]), cov, N).asnumpy()
    onp.testing.assert_allclose(onp.cov(x.T), cov, atol=0.06)
    onp.testing.assert_allclose(x.mean(0), [1, -1], atol=0.04)
    y = np.random.dirichlet([0.01, 0.02, 0.03], size=N).asnumpy()
    onp.testing.assert_allclose(y.sum(-1), 1, rtol=1e-5)
    onp.testing.assert_allclose(y.mean(0), [1 / 6, 1 / 3, 1 / 2], atol=0.015)
    b = npx.random.bernoulli(logit=np.array([-50.0, 0.0, 50.0]), size=(N, 3)).asnumpy().mean(0)
    onp.testing.assert_allclose(b, [0, 0.5, 1], atol=0.015)


def test_np_itself_has_no_distributions():
    assert not {"normal", "gamma", "shuffle", "random_beta"} & {*dir(np), *dir(mx.sym.np)}
    with pytest.raises(AttributeError):
        np.normal  # noqa: B018


# ---- gradients -----------------------------------------------------------------------------------

SMOOTH = (
    *("normal", "uniform", "exponential", "gumbel", "logistic", "laplace", "rayleigh", "weibull"),
    *("pareto", "power", "lognormal", "triangular"),
)


def drawn(name, values):
    npx.random.seed(7)
    return getattr(np.random, name)(*values, size=(4, 3))


@pytest.mark.parametrize("name", SMOOTH)
def test_gradient_is_that_of_the_same_numbers(name):
    values = [np.array(v * onp.array([1.0, 1.1, 0.9])) for v in parameters(name)]
    weights = np.array(onp.random.default_rng(3).normal(size=(4, 3)))
    for v in values:
        v.attach_grad()
    with autograd.record():
        y = (drawn(name, values) * weights).sum()
    y.backward()
    for i, v in enumerate(values):
        ends = []
        for step in (1e-5, -1e-5):
            moved = [np.array(x.asnumpy() + step * (j == i)) for j, x in enumerate(values)]
            ends.append((drawn(name, moved) * weights).asnumpy().sum(0))
        numeric = (ends[0] - ends[1]) / 2e-5
        onp.testing.assert_allclose(v.grad.asnumpy(), numeric, rtol=1e-5, atol=1e-7)


def test_second_order_gradient():
    a = np.array([2.0], dtype="float64")
    a.attach_grad()
    with autograd.record():
        y = drawn("weibull", [a])
        (first,) = autograd.grad(y, [a], create_graph=True)
    first.backward()
    e = -onp.log(y.asnumpy()) * 0 + onp.log(y.asnumpy()) * 2  # log of the exponential numbers
    slope = y.asnumpy() * (e**2 / 16 + 2 * e / 8)
    onp.testing.assert_allclose(a.grad.asnumpy(), [slope.sum()], rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0, 3.0, 40.0, 2000.0])
def test_gradient_of_gamma_keeps_the_quantile(alpha):
    special = pytest.importorskip("scipy.special")
    a = np.full(50, alpha, dtype="float64")
    a.attach_grad()
    npx.random.seed(4)
    with autograd.record():
        z = np.random.gamma(a)
    z.backward()
    z = z.asnumpy()
    h = alpha * 1e-4
    # the smaller of both tails: the other one is rounded
    tail, inverse = special.gammainc(alpha, z), special.gammaincinv
    upper = special.gammaincc(alpha, z)
    ends = [
        onp.where(tail < 0.5, inverse(alpha + s, tail), special.gammainccinv(alpha + s, upper))
        for s in (h, -h)
    ]
    onp.testing.assert_allclose(a.grad.asnumpy(), (ends[0] - ends[1]) / (2 * h), rtol=1e-4)


MEANS = {  # distribution -> (parameters, derivatives of the mean)
    "gamma": ((0.7, 2.0), (2.0, 0.7)),
    "beta": ((0.4, 2.0), (2 / 2.4**2, -0.4 / 2.4**2)),
    "chisquare": ((3.0,), (1.0,)),
    "f": ((3.0, 9.0), (0.0, -2 / 7**2)),
    "standard_t": ((9.0,), (0.0,)),
}


@pytest.mark.parametrize("name", MEANS)
def test_mean_of_gradients_is_the_gradient_of_the_mean(name):
    given, want = MEANS[name]
    npx.random.seed(6)
    values = [np.array(v, dtype="float64") for v in given]
    for v in values:
        v.attach_grad()
    with autograd.record():
        y = getattr(np.random, name)(*values, size=200_000).mean()
    y.backward()
    got = [float(v.grad) for v in values]
    onp.testing.assert_allclose(got, want, atol=0.02, rtol=0.02)


def test_gradient_of_vectors():
    alpha = np.array([0.5, 1.0, 2.0], dtype="float64")
    alpha.attach_grad()
    npx.random.seed(6)
    with autograd.record():
        y = np.random.dirichlet(alpha, size=100_000)[:, 0].mean()
    y.backward()
    onp.testing.assert_allclose(
        alpha.grad.asnumpy(), [3 / 12.25, -0.5 / 12.25, -0.5 / 12.25], atol=4e-3
    )
    mean, cov = np.zeros(2, dtype="float64"), np.array([[2.0, 0.6], [0.6, 1.0]], dtype="float64")
    mean.attach_grad()
    cov.attach_grad()
    with autograd.record():
        y = np.random.multivariate_normal(mean, cov, size=100_000)
        y = (y * y).sum(axis=1).mean()  # of mean trace(cov)
    y.backward()
    onp.testing.assert_allclose(cov.grad.asnumpy(), onp.eye(2), atol=0.05)
    x = np.array([3.0, 1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = np.random.permutation(x) * np.array([1.0, 10.0, 100.0])
    y.backward()
    assert sorted(x.grad.tolist()) == [1, 10, 100]


def test_no_gradient_is_an_error_not_a_zero():
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        y = np.random.wald(x, 1.0)
    y.backward()
    with pytest.raises(MXNetError, match="wald: has no gradient"):
        x.grad.wait_to_read()
    with autograd.record():
        y = np.random.poisson(x).sum() + x.sum()
    y.backward()
    assert x.grad.tolist() == [1, 1]


# ---- Symbols -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_symbols_draw_the_same_numbers_and_new_ones_each_run(name):
    numbers = parameters(name)
    sym = getattr(mx.sym.np.random, name)(*numbers, size=(5, 4))
    assert f'"{operator_of(name)}"' in sym.tojson()
    again = mx.sym.load_json(sym.tojson())
    executor = again.bind(mx.cpu(), {})
    npx.random.seed(9)
    first, second = (executor.forward()[0].asnumpy().copy() for _ in range(2))
    assert (first != second).any()
    npx.random.seed(9)
    eager = getattr(np.random, name)(*numbers, size=(5, 4))
    if lookup(operator_of(name)).samples and len(first) == 5:
        onp.testing.assert_allclose(first, eager.asnumpy(), rtol=1e-5, atol=1e-6)


def test_symbols_of_arrays():
    x = mx.sym.var("x").as_np_ndarray()
    y = mx.sym.np.random.normal(x, 2.0, size=(2, 3))
    text = y.tojson()
    assert '"loc"' not in text and '"scale": "2.0"' in text and '"_npi_normal"' in text
    npx.random.seed(2)
    got = y.bind(mx.cpu(), {"x": mx.nd.array([10.0, 20.0, 30.0])}).forward()[0].asnumpy()
    npx.random.seed(2)
    want = np.random.normal(np.array([10.0, 20.0, 30.0]), 2.0, size=(2, 3)).asnumpy()
    onp.testing.assert_allclose(got, want, rtol=1e-6)


def test_symbols_of_npx():
    npx.random.seed(4)
    y = mx.sym.npx.random.bernoulli(prob=0.5, size=(200,), dtype="bool")
    assert '"_npi_bernoulli"' in y.tojson()
    drawn = y.bind(mx.cpu(), {}).forward()[0].asnumpy()
    assert drawn.dtype == bool and 60 < drawn.sum() < 140
    z = mx.sym.npx.random.normal_n(mx.sym.var("x").as_np_ndarray(), 1.0, (5,))
    assert z.infer_shape(x=(3,))[1] == [(5, 3)]


def test_hybridized_blocks_draw_anew():
    class Noise(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + F.np.random.normal(0.0, 1.0, size=(3,))

    block = Noise()
    block.hybridize()
    x = np.zeros(3)
    one, two = block(x).asnumpy(), block(x).asnumpy()
    assert (one != two).all()
    npx.random.seed(3)
    one = block(x).asnumpy()
    npx.random.seed(3)
    onp.testing.assert_array_equal(one, block(x).asnumpy())


def test_numbers_of_a_rule_are_its_own():
    """The plan of a step is shared by calls whose numbers differ."""
    assert np.random.geometric(1.0).item() == 1
    assert np.random.geometric(1e-3, size=()).item() != np.random.binomial(0, 0.5).item()
