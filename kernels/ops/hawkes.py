"""The log-likelihood of marked self-exciting point processes (Hawkes) over events in order."""

from __future__ import annotations

from ...engine.error import ShapeError
from ..compose import vjp
from ..record import Type, operator, sample, uniform, values
from ..shapes import must_be

_NAME = "_contrib_hawkesll"
_INPUTS = ("lda", "alpha", "beta", "state", "lags", "marks", "valid_length", "max_time")


def _infer(ins):
    mu, _, _, _, lags = (t.shape for t in ins[:5])
    if len(mu) != 2 or len(lags) != 2:
        raise ShapeError(_NAME, f"lda and lags need 2 dimensions, got {mu} and {lags}")
    n, k = mu
    shapes = ((n, k), (k,), (k,), (n, k), (n, lags[1]), (n, lags[1]), (n,), (n,))
    for t, name, shape in zip(ins, _INPUTS, shapes):
        must_be(_NAME, name, t, shape)
    return [Type((n,), ins[0].dtype), Type((n, k), ins[0].dtype)]


def _ref(xp, mu, alpha, beta, state, lags, marks, valid_length, max_time):
    n, k = mu.shape
    total, last, now = xp.zeros(n), xp.zeros((n, k)), xp.zeros((n, 1))
    for j in range(lags.shape[1]):
        counts = (j < valid_length)[:, None] & (marks[:, j, None] == xp.arange(k))
        now = now + lags[:, j, None]
        gap = now - last
        decay = xp.exp(-beta * gap)
        rate = mu + alpha * beta * state * decay
        gain = xp.log(rate) - mu * gap - alpha * state * (1 - decay)
        total = total + xp.where(counts, gain, 0).sum(axis=1)
        state = xp.where(counts, 1 + state * decay, state)
        last = xp.where(counts, now, last)
    gap = max_time[:, None] - last
    decay = xp.exp(-beta * gap)
    total = total - (mu * gap + alpha * state * (1 - decay)).sum(axis=1)
    return total, state * decay


def _composed(F, mu, alpha, beta, state, lags, marks, valid_length, max_time):
    n, k = mu.shape
    dtype = mu.dtype
    row = lambda a: F.reshape_to(a, shape=(1, k))
    column = lambda a: F.reshape_to(a, shape=(n, 1))
    alpha, beta = row(alpha), row(beta)
    total = F._zeros(shape=(n,), dtype=dtype)
    last, now = F._zeros(shape=(n, k), dtype=dtype), F._zeros(shape=(n, 1), dtype=dtype)
    lengths = F.cast(column(valid_length), dtype=dtype)

    def step(now, last, state):
        gap = F.broadcast_sub(now, last)
        decay = F.exp(F.broadcast_mul(beta, gap) * -1.0)
        rising = F.broadcast_mul(alpha, state * (1.0 - decay))
        return decay, mu * gap + rising

    for j in range(lags.shape[1]):
        mark = F.reshape_to(F.slice_axis(marks, axis=1, begin=j, end=j + 1), shape=(n,))
        counts = F.broadcast_mul(F.one_hot(mark, depth=k, dtype=dtype), lengths > float(j))
        now = now + F.slice_axis(lags, axis=1, begin=j, end=j + 1)
        decay, expected = step(now, last, state)
        rate = mu + F.broadcast_mul(alpha * beta, state * decay)
        total = total + F.sum(F.where(counts, F.log(rate) - expected, F.zeros_like(mu)), axis=1)
        state = F.where(counts, state * decay + 1.0, state)
        last = F.where(counts, F.broadcast_to(now, shape=(n, k)), last)
    decay, expected = step(column(max_time), last, state)
    return total - F.sum(expected, axis=1), state * decay


def _grad(F, dys, xs, ys):
    return [*vjp(F, _composed, xs, dys)[:4], None, None, None, None]


_PARAMETERS = (
    uniform((2, 3), 0.5, 1.5),
    uniform((3,), 0.1, 0.5),
    uniform((3,), 0.5, 1.5),
    uniform((2, 3), 0.1, 1),
)
operator(
    _NAME,
    inputs=_INPUTS,
    n_outputs=2,
    output_names=("output", "out_state"),
    infer=_infer,
    ref=_ref,
    grad=_grad,
    samples=(
        sample(
            *_PARAMETERS,
            values([[0.5, 1, 0.25, 0.5], [1, 0.5, 2, 0]]),
            values([[0, 1, 0, 2], [2, 1, 1, 0]], "int32"),
            values([4, 3]),
            values([5, 4]),
        ),
    ),
    doc=(
        "Log-likelihood (n,) of n processes with k marks, and the state (n, k) with which the next"
        " stretch of time begins. lda (n, k): background rates; alpha, beta (k,): how much an event"
        " excites and how fast that decays; state (n, k); lags, marks (n, events): time since the"
        " event before, and its mark; valid_length, max_time (n,). Gradients: lda, alpha, beta,"
        " state."
    ),
)
