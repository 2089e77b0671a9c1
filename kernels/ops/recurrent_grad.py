"""The gradient of RNN as an operator, `_rnn_grad`, and its own gradient."""

from __future__ import annotations

from math import prod
from typing import Any

from ..compose import vjp
from ..record import operator, sample
from ..shapes import must_be
from .recurrent import (
    PARAMS,
    clip_of,
    infer_rnn,
    input_names_of,
    rnn_samples,
    running_steps,
    split_inputs,
)
from .recurrent_cells import back_cell, blocks_of, cells_of, forward_all, layout


def _grad_inputs(mode, use_sequence_length, **_):
    cell = mode == "lstm"
    return (
        ("dy", "dstate")
        + (("dstate_cell",) if cell else ())
        + input_names_of(mode, use_sequence_length)
        + ("reserve",)
    )


def _split_grad_inputs(ins, mode, use_sequence_length):
    """(dy, dstate, dcell or None), (data, parameters, state, cell, length), reserve."""
    n = 3 if mode == "lstm" else 2
    heads = (*ins[:n], None)[:3]
    return heads, split_inputs(ins[n:-1], mode, use_sequence_length), ins[-1]


def _grad_infer(ins, mode, use_sequence_length, p, **attrs):
    heads, (x, params, state, cell, length), reserve = _split_grad_inputs(
        ins, mode, use_sequence_length
    )
    forward = [t for t in (x, params, state, cell, length) if t is not None]
    outs = infer_rnn(forward, mode, use_sequence_length, True, p, True, **attrs)
    for t, want, name in zip(heads, outs, ("dy", "dstate", "dstate_cell")):
        if t is not None:
            must_be("_rnn_grad", name, t, want.shape)
    if 0 not in reserve.shape:
        must_be("_rnn_grad", "reserve", reserve, outs[-1].shape)
    return [x, params, state] + ([cell] if cell else [])


def _grad_ref(xp, *ins, mode, p, use_sequence_length, **attrs):
    (dy, dh, dc), (x, params, state, cell, length), reserve = _split_grad_inputs(
        ins, mode, use_sequence_length
    )
    lay = layout(x.shape, mode, **attrs)
    running, clip = running_steps(xp, x, length), clip_of(**attrs)
    if reserve.size:
        blocks = blocks_of(reserve, lay.reserve_shapes(p))
    else:
        blocks = forward_all(xp, x, params, state, cell, lay, running, clip, 0.0, ())[3]
    n_masks = lay.layers - 1 if p > 0 else 0
    masks, blocks = blocks[:n_masks], blocks[n_masks:-1]
    per_cell = len(blocks) // len(lay.cells)
    cells = cells_of(blocks_of(params, lay.parameter_shapes()), lay)
    grads: list[Any] = [None] * len(cells)
    dh0, dc0 = grads.copy(), grads.copy()
    for layer in reversed(range(lay.layers)):
        first = layer * lay.directions
        if layer:
            below = [
                blocks[(first - lay.directions + d) * per_cell + per_cell - 1]
                for d in range(lay.directions)
            ]
            inputs = xp.concatenate(below, axis=2)
            inputs = inputs * masks[layer - 1] if masks else inputs
        else:
            inputs = x
        dx = 0
        for d in range(lay.directions):
            i = first + d
            part, grads[i], dh0[i], dc0[i] = back_cell(
                xp,
                mode,
                inputs,
                cells[i],
                state[i],
                None if cell is None else cell[i],
                dy[:, :, d * lay.out : (d + 1) * lay.out],
                dh[i],
                None if dc is None else dc[i],
                blocks[i * per_cell : (i + 1) * per_cell],
                d == 1,
                running,
                clip,
            )
            dx = dx + part
        dy = dx * masks[layer - 1] if layer and masks else dx
    weights = [a for g in grads for a in g[:3] if a is not None]
    biases = [a for g in grads for a in g[3:]]
    dparams = xp.concatenate([a.reshape(-1) for a in weights + biases])
    return (dy, dparams, xp.stack(dh0)) + (() if cell is None else (xp.stack(dc0),))


def _composed(lay, clip, masked, has_length):
    """The RNN in simple operators: (F, x, params, state[, cell][, running][, *masks]) -> y, hy[,
    cy]."""

    def part(F, a, axis, begin, end):
        return F.slice_axis(a, axis=axis, begin=begin, end=end)

    def run(F, x, params, state, *more):
        rest = iter(more)
        cell = next(rest) if lay.mode == "lstm" else None
        running = next(rest) if has_length else None
        masks = list(rest)
        blocks, at = [], 0
        for shape in lay.parameter_shapes():
            blocks.append(F.reshape_to(part(F, params, 0, at, at + prod(shape)), shape=shape))
            at += prod(shape)
        cells = cells_of(blocks, lay)
        row = lambda a, i: F.reshape_to(part(F, a, 0, i, i + 1), shape=tuple(a.shape[1:]))
        steps = [row(x, t) for t in range(lay.steps)]
        hs, cs = [], []
        for layer in range(lay.layers):
            if layer and masked:
                steps = [s * row(masks[layer - 1], t) for t, s in enumerate(steps)]
            sides = []
            for d in range(lay.directions):
                i = layer * lay.directions + d
                outs = [None] * lay.steps
                h, c = row(state, i), None if cell is None else row(cell, i)
                for t in reversed(range(lay.steps)) if d else range(lay.steps):
                    on = (
                        None
                        if running is None
                        else F.reshape_to(row(running, t), shape=(lay.batch, 1))
                    )
                    outs[t], h, c = _composed_step(F, lay, steps[t], cells[i], h, c, on, clip)
                sides.append(outs)
                hs.append(h)
                cs.append(c)
            steps = (
                sides[0] if len(sides) == 1 else [F.concat(*pair, dim=1) for pair in zip(*sides)]
            )
        results = [F.stack(*steps, axis=0), F.stack(*hs, axis=0)]
        return results if cell is None else [*results, F.stack(*cs, axis=0)]

    return run


def _composed_step(F, lay, x, cell, h, c, on, clip):
    w, u, proj, b, bu = cell
    size = lay.hidden
    bias = lambda v: F.reshape_to(v, shape=(1, lay.rows))
    zx = F.broadcast_add(F.dot(x, w, transpose_b=True), bias(b))
    zh = F.broadcast_add(F.dot(h, u, transpose_b=True), bias(bu))
    cut = lambda a, k, n=1: F.slice_axis(a, axis=1, begin=k * size, end=(k + n) * size)
    new_c = c
    if lay.mode == "lstm":
        z = zx + zh
        i, f, o = (F.sigmoid(cut(z, k)) for k in (0, 1, 3))
        new_c = f * c + i * F.tanh(cut(z, 2))
        if clip[0] is not None or clip[1] is not None:
            new_c = F.clip(
                new_c,
                a_min=-1e30 if clip[0] is None else clip[0],
                a_max=1e30 if clip[1] is None else clip[1],
            )
        new_h = o * F.tanh(new_c)
        new_h = new_h if proj is None else F.dot(new_h, proj, transpose_b=True)
    elif lay.mode == "gru":
        rz = F.sigmoid(cut(zx, 0, 2) + cut(zh, 0, 2))
        update = cut(rz, 1)
        new_h = (1.0 - update) * F.tanh(cut(zx, 2) + cut(rz, 0) * cut(zh, 2)) + update * h
    else:
        new_h = F.tanh(zx + zh) if lay.mode == "rnn_tanh" else F.relu(zx + zh)
    if on is None:
        return new_h, new_h, new_c
    off = 1.0 - on
    mix = lambda new, old: F.broadcast_mul(new, on) + F.broadcast_mul(old, off)
    return F.broadcast_mul(new_h, on), mix(new_h, h), None if c is None else mix(new_c, c)


def _grad_grad(F, dys, xs, ys, mode, p, use_sequence_length, **attrs):
    heads, (x, params, state, cell, length), reserve = _split_grad_inputs(
        xs, mode, use_sequence_length
    )
    heads = [h for h in heads if h is not None]
    lay = layout(x.shape, mode, **attrs)
    constants, at = [], 0
    if length is not None:
        ones = F._ones(shape=(lay.steps, lay.batch), dtype=x.dtype)
        constants.append(F.SequenceMask(ones, length, use_sequence_length=True))
    n_masks = lay.layers - 1 if p > 0 else 0
    for shape in lay.reserve_shapes(p)[:n_masks]:
        constants.append(
            F.reshape_to(F.slice_axis(reserve, axis=0, begin=at, end=at + prod(shape)), shape=shape)
        )
        at += prod(shape)
    leaves = [x, params, state] + ([] if cell is None else [cell])
    forward = _composed(lay, clip_of(**attrs), n_masks > 0, length is not None)
    n = len(leaves)

    def backward(T, *given):
        return vjp(T, forward, list(given[len(heads) :]), list(given[: len(heads)]))[:n]

    gs = vjp(F, backward, [*heads, *leaves, *constants], dys)
    return gs[: len(heads) + n] + [None] * (len(xs) - len(heads) - n)


_GRAD_PARAMS = tuple(q for q in PARAMS if q.name != "state_outputs")
_NO_STATE_OUTPUTS = [
    (s.inputs, {k: v for k, v in s.attrs.items() if k != "state_outputs"}) for s in rnn_samples()
]


def _grad_samples():
    """The forward samples in evaluation mode (an empty reserve), with head gradients."""
    for ins, attrs in _NO_STATE_OUTPUTS:
        lay = layout((3, 2, 4), **attrs)
        n_states = 2 if attrs["mode"] == "lstm" else 1
        yield sample(
            (3, 2, lay.directions * lay.out),
            *ins[2 : 2 + n_states],
            *ins,
            (0,),
            **(attrs | {"p": 0.0}),
        )


operator(
    "_rnn_grad",
    inputs=(
        "dy",
        "dstate",
        "dstate_cell",
        "data",
        "parameters",
        "state",
        "state_cell",
        "sequence_length",
        "reserve",
    ),
    input_names=_grad_inputs,
    params=_GRAD_PARAMS,
    n_outputs=lambda mode, **_: 4 if mode == "lstm" else 3,
    output_names=("ddata", "dparameters", "dstate", "dstate_cell"),
    infer=_grad_infer,
    ref=_grad_ref,
    grad=_grad_grad,
    samples=tuple(_grad_samples()),
    doc=(
        "Backpropagation through time for RNN. An empty reserve means that the forward values are"
        " computed again. Its own gradient counts the reserve as a function of the other inputs,"
        " with the dropout masks fixed."
    ),
)
