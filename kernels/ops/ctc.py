"""Connectionist temporal loss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...engine.error import ShapeError
from ..compose import vjp
from ..record import Array, Param, Type, operator, sample, values
from .softmax import log_softmax

_NEVER = -1e30  # log of an impossible event: large, yet differences stay finite


def _ctc_inputs(use_data_lengths, use_label_lengths, **_):
    return (
        ("data", "label")
        + (("data_lengths",) if use_data_lengths else ())
        + (("label_lengths",) if use_label_lengths else ())
    )


def _ctc_infer(ins, use_data_lengths, use_label_lengths, blank_label):
    x, label = ins[0], ins[1]
    if len(x.shape) != 3 or len(label.shape) != 2 or label.shape[0] != x.shape[1]:
        raise ShapeError(
            "CTCLoss",
            "data must be (time, batch, classes) and label (batch, length), got data "
            f"{x.shape} and label {label.shape}",
            fix=(
                "transpose data: its first axis is time"
                if len(x.shape) == 3 and label.shape[:1] == x.shape[:1]
                else None
            ),
        )
    for t, name in zip(ins[2:], _ctc_inputs(use_data_lengths, use_label_lengths)[2:]):
        if t.shape != (x.shape[1],):
            raise ShapeError(
                "CTCLoss", f"{name} must have shape (batch,) = ({x.shape[1]},), got {t.shape}"
            )
    if x.shape[2] < 2:
        raise ShapeError(
            "CTCLoss", f"data must have at least 2 classes (one is blank), got {x.shape}"
        )
    return [Type((x.shape[1],), x.dtype)]


class _Lattice:
    """The extended labels (blank, l1, blank, l2, ..., blank) of a batch and which of its states
    count."""

    def __init__(
        self,
        xp: Any,
        x: Array,
        label: Array,
        lengths: Iterable[Array],
        use_data_lengths: bool,
        use_label_lengths: bool,
        blank_label: str,
    ):
        n_steps, n, classes = x.shape
        lengths = list(lengths)
        self.steps = (
            xp.minimum(lengths.pop(0).astype("int64"), n_steps)
            if use_data_lengths
            else xp.full(n, n_steps)
        )
        label = label.astype("int64")
        blank, padding = (0, 0) if blank_label == "first" else (classes - 1, -1)
        if use_label_lengths:
            count = xp.minimum(lengths.pop(0).astype("int64"), label.shape[1])
        else:
            ended = xp.cumsum(label == padding, axis=1) > 0
            count = label.shape[1] - ended.sum(axis=1)
        inside = xp.arange(label.shape[1]) < count[:, None]
        self.states = xp.full((n, 2 * label.shape[1] + 1), blank)
        self.states[:, 1::2] = xp.where(inside, xp.clip(label, 0, classes - 1), blank)
        self.n_states = 2 * count + 1
        number = xp.arange(self.states.shape[1])
        self.valid = number < self.n_states[:, None]
        before = xp.concatenate([xp.full((n, 2), blank), self.states], axis=1)[:, :-2]
        self.skip = (self.states != blank) & (self.states != before) & (number >= 2)
        self.last = self.valid & (number >= self.n_states[:, None] - 2)
        self.running = xp.arange(n_steps)[:, None] < self.steps


def _log_sum(xp, *terms):
    top = terms[0]
    for t in terms[1:]:
        top = xp.maximum(top, t)
    return top + xp.log(sum(xp.exp(t - top) for t in terms))


def _shifted(xp, a, by):
    """a moved along its last axis, with impossible events moving in."""
    gap = xp.full((*a.shape[:-1], min(abs(by), a.shape[-1])), _NEVER, dtype=a.dtype)
    return (
        xp.concatenate([gap, a[..., :-by]], axis=-1)
        if by > 0
        else xp.concatenate([a[..., -by:], gap], axis=-1)
    )


def _ctc_forward(xp, x, lattice):
    """log P(prefix ends in state s at time t), (time, batch, states); emissions; log likelihood
    (batch,)."""
    logp = log_softmax(xp, x.astype("float64"), 2)
    index = xp.broadcast_to(lattice.states[None], (x.shape[0], *lattice.states.shape))
    emit = xp.take_along_axis(logp, index, axis=2)
    alpha = xp.full(emit.shape, _NEVER, dtype=emit.dtype)
    start = (xp.arange(alpha.shape[2]) < 2) & lattice.valid
    a = xp.full(emit.shape[1:], _NEVER, dtype=emit.dtype)
    for t in range(x.shape[0]):
        if t == 0:
            new = xp.where(start, emit[0], _NEVER)
        else:
            skip = xp.where(lattice.skip, _shifted(xp, a, 2), _NEVER)
            new = xp.maximum(_log_sum(xp, a, _shifted(xp, a, 1), skip) + emit[t], _NEVER)
        a = xp.where(lattice.running[t][:, None] & lattice.valid, new, a if t else _NEVER)
        alpha[t] = a
    ends = xp.where(lattice.last, a, _NEVER)
    top = ends.max(axis=1, keepdims=True)
    return alpha, emit, logp, top[:, 0] + xp.log(xp.exp(ends - top).sum(axis=1))


def _ctc_ref(xp, x, label, *lengths, **attrs):
    if x.size == 0:
        return xp.zeros(x.shape[1])
    return -_ctc_forward(xp, x, _Lattice(xp, x, label, lengths, **attrs))[3]


def _ctc_grad_ref(xp, x, label, *lengths, **attrs):
    """softmax - P(class at t | labels), 0 after the end of an example."""
    if x.size == 0:
        return xp.zeros(x.shape)
    lattice = _Lattice(xp, x, label, lengths, **attrs)
    alpha, emit, logp, total = _ctc_forward(xp, x, lattice)
    b = None
    posterior = xp.zeros(x.shape)
    rows = xp.arange(x.shape[1])[:, None]
    skip = xp.concatenate([lattice.skip, xp.zeros((x.shape[1], 2), bool)], axis=1)[:, 2:]
    for t in reversed(range(x.shape[0])):
        ends = xp.where(lattice.last, emit[t], _NEVER)
        if b is None:
            b = ends
        else:
            far = xp.where(skip, _shifted(xp, b, -2), _NEVER)
            moved = xp.maximum(_log_sum(xp, b, _shifted(xp, b, -1), far) + emit[t], _NEVER)
            b = xp.where((lattice.steps == t + 1)[:, None], ends, moved)
        weight = xp.exp(xp.minimum(alpha[t] + b - emit[t] - total[:, None], 0))
        xp.add.at(posterior[t], (rows, lattice.states), xp.where(lattice.valid, weight, 0))
    return xp.where(lattice.running[:, :, None], xp.exp(logp) - posterior, 0)


_CTC_PARAMS = (
    Param("use_data_lengths", "bool", False),
    Param("use_label_lengths", "bool", False),
    Param("blank_label", ("first", "last"), "first"),
)


def _ctc_fill(ins, use_data_lengths, use_label_lengths, **_):
    if ins[0] is None:
        return list(ins)
    return [*ins[:2], *(t or Type((ins[0].shape[1],), "float32") for t in ins[2:])]


def _ctc_loss_grad(F, dys, xs, ys, **attrs):
    dy = F.reshape_to(dys[0], shape=(1, dys[0].shape[0], 1))
    return [F.broadcast_mul(F._ctc_grad(*xs, **attrs), dy)] + [None] * (len(xs) - 1)


_CTC_SAMPLES: tuple = (
    ((5, 2, 4), values([[1, 2], [3, 0]]), {}),
    ((6, 2, 4), values([[1, 1, 2], [3, 0, 0]]), {}),
    ((5, 2, 4), values([[0, 2], [1, -1]]), {"blank_label": "last"}),
)
_CTC_ALL = tuple(sample(x, label, **kw) for x, label, kw in _CTC_SAMPLES) + (
    sample(
        (5, 2, 4),
        values([[1, 2], [3, 2]]),
        values([5, 3]),
        values([2, 1]),
        use_data_lengths=True,
        use_label_lengths=True,
    ),
    sample(
        (4, 2, 3),
        values([[1, 0], [0, 0]]),
        values([2, 1]),
        use_label_lengths=True,
        blank_label="last",
    ),
    sample((4, 2, 3), values([[1, 2], [2, 0]]), values([4, 2]), use_data_lengths=True),
)

operator(
    "CTCLoss",
    aliases=("_contrib_CTCLoss", "_contrib_ctc_loss", "ctc_loss"),
    output_names=("output0",),
    inputs=("data", "label", "data_lengths", "label_lengths"),
    input_names=_ctc_inputs,
    params=_CTC_PARAMS,
    infer=_ctc_infer,
    fill=_ctc_fill,
    ref=_ctc_ref,
    grad=_ctc_loss_grad,
    samples=_CTC_ALL,
    doc=(
        "-log P(label | softmax(data)) for each example. data (time, batch, classes), label (batch,"
        " length). The blank class is 0 (first; labels are padded with 0) or the last one (labels"
        " are padded with -1), unless label_lengths says where labels end. Source: Graves et al."
        " 2006."
    ),
)


def _ctc_composed(F, x, states, skip, start, last, running):
    """CTCLoss in simple operators over the constants of a lattice; differentiable to any order."""
    n_steps = x.shape[0]
    logp = F.log_softmax(x, axis=-1)
    n, s = states.shape
    flat = F.reshape_to(
        F.one_hot(states, depth=x.shape[2], dtype=x.dtype), shape=(n, s, x.shape[2])
    )
    row = lambda a, t: F.reshape_to(
        F.slice_axis(a, axis=0, begin=t, end=t + 1), shape=tuple(a.shape[1:])
    )

    def shift(a, by):
        gap = F._full(shape=(n, by), value=_NEVER, dtype=x.dtype)
        return (
            F.concat(gap, F.slice_axis(a, axis=1, begin=0, end=s - by), dim=1)
            if s > by
            else F._full(shape=(n, s), value=_NEVER, dtype=x.dtype)
        )

    def log_sum(*terms):
        stacked = F.stack(*terms, axis=0)
        # the largest of each place cancels in the derivative: it only keeps exp in range
        top = F.BlockGrad(F.max(stacked, axis=0))
        moved = F.exp(F.broadcast_sub(stacked, F.expand_dims(top, axis=0)))
        return top + F.log(F.sum(moved, axis=0))

    a = None
    for t in range(n_steps):
        emit = F.reshape_to(F.batch_dot(flat, F.expand_dims(row(logp, t), axis=2)), shape=(n, s))
        if a is None:
            a = emit + start
            continue
        new = log_sum(a, shift(a, 1), shift(a, 2) + skip) + emit
        on = F.reshape_to(row(running, t), shape=(n, 1))
        a = F.broadcast_mul(new, on) + F.broadcast_mul(a, 1.0 - on)
    ends = a + last
    top = F.BlockGrad(F.max(ends, axis=1, keepdims=True))
    total = F.log(F.sum(F.exp(F.broadcast_sub(ends, top)), axis=1))
    return -(total + F.reshape_to(top, shape=(n,)))


def _ctc_grad_grad(F, dys, xs, ys, **attrs):
    states, *masks = F._ctc_lattice(*xs, **attrs)

    def gradient(T, x, *constants):
        ones = T._ones(shape=(x.shape[1],), dtype=x.dtype)
        return vjp(T, _ctc_composed, [x, *constants], [ones])[0]

    return vjp(F, gradient, [xs[0], states, *masks], dys)[:1] + [None] * (len(xs) - 1)


operator(
    "_ctc_grad",
    inputs=("data", "label", "data_lengths", "label_lengths"),
    input_names=_ctc_inputs,
    params=_CTC_PARAMS,
    infer=lambda ins, **attrs: [_ctc_infer(ins, **attrs) and ins[0]],
    fill=_ctc_fill,
    ref=_ctc_grad_ref,
    grad=_ctc_grad_grad,
    samples=_CTC_ALL,
    doc="Gradient of the sum of CTCLoss over the batch with respect to data.",
)


def _ctc_lattice_infer(ins, **attrs):
    _ctc_infer(ins, **attrs)
    (n_steps, n, _), dtype = ins[0].shape, ins[0].dtype
    state = Type((n, 2 * ins[1].shape[1] + 1), dtype)
    return [state, state, state, state, Type((n_steps, n), dtype)]


def _ctc_lattice_ref(xp, x, label, *lengths, **attrs):
    lattice = _Lattice(xp, x, label, lengths, **attrs)
    log = lambda possible: xp.where(possible, 0.0, _NEVER)
    start = (xp.arange(lattice.states.shape[1]) < 2) & lattice.valid
    return lattice.states, log(lattice.skip), log(start), log(lattice.last), lattice.running


operator(
    "_ctc_lattice",
    inputs=("data", "label", "data_lengths", "label_lengths"),
    input_names=_ctc_inputs,
    params=_CTC_PARAMS,
    n_outputs=5,
    output_names=("states", "skip", "start", "last", "running"),
    infer=_ctc_lattice_infer,
    fill=_ctc_fill,
    ref=_ctc_lattice_ref,
    samples=_CTC_ALL[:1] + _CTC_ALL[3:4],
    doc=(
        "The constants of CTCLoss: extended labels (batch, 2 length + 1) and the log weights 0 or"
        " -1e30 of skipping a blank, starting and ending in a state; 1 where (time, batch) is"
        " inside its example."
    ),
)
