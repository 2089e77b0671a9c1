"""Training as books teach it on mx.np: models from scratch, classes that grow method by method.

Every model is one function of a module `xp`: mx.np with recorded gradients, or official NumPy in
float64, whose gradients are central differences."""

import math

import numpy as onp
import pytest
from plait import autograd, gluon, init, np, npx
from plait.gluon import nn

RNG = onp.random.default_rng(5)


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


def add_to_class(cls):
    """A decorator that makes a function a method of a class that exists."""

    def wrapper(function):
        setattr(cls, function.__name__, function)

    return wrapper


class Learner:
    """A loss of parameters, and their training. Its methods are added below."""

    def __init__(self, loss, parameters, lr=0.5):
        self.loss, self.lr = loss, lr
        self.parameters = parameters


class Recorded(Learner):
    xp = np


class ByDifferences(Learner):
    xp = onp


@add_to_class(Recorded)
def fit(self, batches):
    params = [np.array(p, dtype=np.float32) for p in self.parameters]
    for p in params:
        p.attach_grad()
    losses = []
    for batch in batches:
        batch = [np.array(x.astype("float32") if x.dtype == onp.float64 else x) for x in batch]
        with autograd.record():
            value = self.loss(np, *batch, *params).mean()
        value.backward()
        norm = math.sqrt(sum((p.grad**2).sum() for p in params))
        for p in params:
            if norm > 1:
                p.grad[:] *= 1 / norm
            p[:] -= self.lr * p.grad
        assert f"{value:.3f}" == f"{float(value):.3f}" == f"{value.item():.3f}"
        losses.append(float(value))
    return losses


@add_to_class(ByDifferences)
def fit(self, batches):  # noqa: F811 - a method of another class
    params = [onp.array(p, onp.float64) for p in self.parameters]
    losses = []
    for batch in batches:
        value = lambda batch=batch: self.loss(onp, *batch, *params).mean()
        losses.append(float(value()))
        grads = [self.gradient(value, p) for p in params]
        norm = math.sqrt(sum((g**2).sum() for g in grads))
        for p, g in zip(params, grads):
            p -= self.lr * g * (1 / norm if norm > 1 else 1)
    return losses


@add_to_class(ByDifferences)
def gradient(self, value, p, step=1e-6):
    found = onp.zeros_like(p)
    for i in onp.ndindex(p.shape):
        before = p[i]
        p[i] = before + step
        above = value()
        p[i] = before - step
        found[i] = (above - value()) / (2 * step)
        p[i] = before
    return found


# ---- models --------------------------------------------------------------------------------------


def squared_error(xp, X, y, w, b):
    return (xp.dot(X, w) + b - y.reshape(-1)) ** 2 / 2


def cross_entropy(xp, logits, y):
    e = xp.exp(logits - logits.max(axis=1, keepdims=True))
    probability = e / e.sum(axis=1, keepdims=True)
    return -xp.log(probability[list(range(len(probability))), y])


def softmax_regression(xp, X, y, W, b):
    return cross_entropy(xp, xp.dot(X, W) + b, y)


def perceptron(xp, X, y, W1, b1, W2, b2):
    hidden = xp.maximum(xp.dot(X, W1) + b1, 0)
    return cross_entropy(xp, xp.dot(hidden, W2) + b2, y)


def recurrent(xp, X, y, W_xh, W_hh, b_h, W_hq, b_q):
    """X: (steps, batch, classes), y: (batch, steps)."""
    state = xp.zeros((X.shape[1], W_hh.shape[0]))
    outputs = []
    for x in X:
        state = xp.tanh(xp.dot(x, W_xh) + xp.dot(state, W_hh) + b_h)
        outputs.append(xp.dot(state, W_hq) + b_q)
    return cross_entropy(xp, xp.concatenate(outputs, axis=0), y.T.reshape(-1))


def drawn(*shape):
    return RNG.normal(0, 0.5, shape)


TRUE_W, TRUE_B = onp.array([2.0, -3.4]), 4.2
POINTS = [drawn(8, 2) for _ in range(6)]
IMAGES = [(drawn(8, 4), RNG.integers(0, 3, 8).astype("int32")) for _ in range(6)]
TEXTS = [RNG.integers(0, 5, (2, 4)).astype("int32") for _ in range(4)]
MODELS = {
    "linear regression": (
        squared_error,
        [drawn(2), onp.zeros(1)],
        [(x, (x @ TRUE_W + TRUE_B)[:, None]) for x in POINTS],
    ),
    "softmax regression": (softmax_regression, [drawn(4, 3), onp.zeros(3)], IMAGES),
    "perceptron": (
        perceptron,
        [drawn(4, 6), onp.zeros(6), drawn(6, 3), onp.zeros(3)],
        IMAGES,
    ),
    "recurrent network": (
        recurrent,
        [drawn(5, 4), drawn(4, 4), onp.zeros(4), drawn(4, 5), onp.zeros(5)],
        [(onp.eye(5)[t.T], (t + 1) % 5) for t in TEXTS],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_numpy(name):
    loss, parameters, batches = MODELS[name]
    got = Recorded(loss, parameters).fit(batches)
    want = ByDifferences(loss, parameters).fit(batches)
    assert got == pytest.approx(want, rel=2e-5)
    assert len(set(got)) == len(batches)  # it has moved


@pytest.mark.parametrize("hybrid", [False, True])
def test_layers_give_the_losses_of_scratch(hybrid):
    """The same network of gluon's layers, trained by a Trainer."""
    _, (W1, b1, W2, b2), batches = MODELS["perceptron"]
    net = nn.HybridSequential()
    net.add(nn.Dense(6, activation="relu"), nn.Dense(3))
    net.initialize(init.Normal(sigma=0.01))
    net(np.zeros((1, 4)))
    for layer, W, b in ((net[0], W1, b1), (net[1], W2, b2)):
        layer.weight.set_data(np.array(W.T, dtype="float32"))
        layer.bias.set_data(np.array(b, dtype="float32"))
    if hybrid:
        net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    got = []
    for X, y in batches:
        X, y = np.array(X, dtype="float32"), np.array(y)
        with autograd.record():
            value = loss(net(X), y)
        value.backward()
        gluon.utils.clip_global_norm(
            [p.grad() for p in net.collect_params().values()], len(X) * 1.0
        )
        trainer.step(X.shape[0])
        got.append(float(value.mean()))
    want = ByDifferences(perceptron, [W1, b1, W2, b2]).fit(batches)
    assert got == pytest.approx(want, rel=2e-5)
