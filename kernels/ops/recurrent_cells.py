"""Sizes of an RNN, how its parameters and its reserve are laid out, and the reference of its cells:
forward and backward on arrays, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from ..record import Array, Shape

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
Clip = tuple[float | None, float | None, bool]  # the least and the most of a cell; NaN too?
SPARE = 512  # elements at the reserve's end: space for the head and the gaps of a library's own


class Layout(NamedTuple):
    """Sizes of one RNN."""

    mode: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    out: int  # R: size of the state that is put out
    layers: int
    directions: int

    @property
    def cells(self) -> list[tuple[int, int, int]]:
        """(layer, direction, number of inputs), in the order of the parameters."""
        return [
            (layer, d, self.inputs if layer == 0 else self.directions * self.out)
            for layer in range(self.layers)
            for d in range(self.directions)
        ]

    @property
    def rows(self) -> int:
        return GATES[self.mode] * self.hidden

    def parameter_shapes(self) -> list[Shape]:
        """Shapes of the weights (i2h, h2h[, h2r]) of every cell, then of the biases (i2h, h2h) of
        every cell."""
        shapes = []
        for _, _, k in self.cells:
            shapes += [(self.rows, k), (self.rows, self.out)]
            shapes += [(self.out, self.hidden)] if self.projected else []
        return shapes + [(self.rows,)] * (2 * len(self.cells))

    @property
    def projected(self) -> bool:
        return self.out != self.hidden

    def reserve_shapes(self, p: float) -> list[Shape]:
        """Shapes of the reserve's blocks: the masks, then per cell the gates, what the mode adds,
        and the outputs; last the spare elements, zeros."""
        masks = [(self.steps, self.batch, self.directions * self.out)] * (
            self.layers - 1 if p > 0 else 0
        )
        step = (self.steps, self.batch)
        per_cell = [(*step, self.rows)]
        per_cell += {
            "lstm": [(*step, self.hidden)] * (2 if self.projected else 1),
            "gru": [(*step, self.hidden)],
        }.get(self.mode, [])
        return masks + (per_cell + [(*step, self.out)]) * len(self.cells) + [(SPARE,)]


def layout(
    data_shape: Shape,
    mode: str,
    state_size: int,
    num_layers: int,
    bidirectional: bool,
    projection_size: int | None,
    **_: Any,
) -> Layout:
    steps, batch, inputs = data_shape
    out = projection_size or state_size
    directions = 2 if bidirectional else 1
    return Layout(mode, steps, batch, inputs, state_size, out, num_layers, directions)


def total(shapes: Iterable[Shape]) -> int:
    return sum(map(prod, shapes))


def blocks_of(flat: Array, shapes: Iterable[Shape]) -> list[Array]:
    """Views of consecutive blocks of a vector."""
    out, at = [], 0
    for shape in shapes:
        out.append(flat[at : at + prod(shape)].reshape(shape))
        at += prod(shape)
    return out


def cells_of(blocks: Sequence[Array], lay: Layout) -> list[tuple[Array, ...]]:
    """The blocks of parameter_shapes as one (w, u, projection or None, b, c) per cell."""
    n, k = len(lay.cells), 3 if lay.projected else 2
    return [
        (
            *blocks[i * k : i * k + 2],
            blocks[i * k + 2] if lay.projected else None,
            blocks[n * k + 2 * i],
            blocks[n * k + 2 * i + 1],
        )
        for i in range(n)
    ]


# Forward and backward on arrays


def _sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


def _clip_cell(xp, c, clip):
    low, high, nan = clip
    if low is None and high is None:
        return c
    clipped = xp.minimum(
        xp.maximum(c, -xp.inf if low is None else low), xp.inf if high is None else high
    )
    return xp.where(xp.isnan(c), high if high is not None else low, clipped) if nan else clipped


def _run_cell(xp, mode, x, cell, h, c, reverse, running, clip):
    """One layer in one direction. Returns the outputs, the last states, and the blocks for the
    reserve."""
    w, u, proj, b, bu = cell
    n_steps, n = x.shape[:2]
    hidden = u.shape[0] // GATES[mode]
    pre = x @ w.T + (b if mode == "gru" else b + bu)
    gates = xp.empty((n_steps, n, u.shape[0]), x.dtype)
    extra = xp.empty((n_steps, n, hidden), x.dtype)  # lstm: cells; gru: h2h of the new gate
    wide = xp.empty((n_steps, n, hidden), x.dtype) if proj is not None else None
    out = xp.empty((n_steps, n, h.shape[1]), x.dtype)
    for t in reversed(range(n_steps)) if reverse else range(n_steps):
        z = h @ u.T
        new_c = c
        if mode == "lstm":
            z = z + pre[t]
            i, f, o = (_sigmoid(xp, z[:, k * hidden : (k + 1) * hidden]) for k in (0, 1, 3))
            g = xp.tanh(z[:, 2 * hidden : 3 * hidden])
            new_c = _clip_cell(xp, f * c + i * g, clip)
            new_h = o * xp.tanh(new_c)
            gates[t] = xp.concatenate([i, f, g, o], axis=1)
            if wide is not None:
                wide[t] = new_h
                new_h = new_h @ proj.T
        elif mode == "gru":
            z = z + bu
            rz = _sigmoid(xp, pre[t, :, : 2 * hidden] + z[:, : 2 * hidden])
            r, update = rz[:, :hidden], rz[:, hidden:]
            extra[t] = z[:, 2 * hidden :]
            new = xp.tanh(pre[t, :, 2 * hidden :] + r * extra[t])
            new_h = (1 - update) * new + update * h
            gates[t] = xp.concatenate([rz, new], axis=1)
        else:
            z = z + pre[t]
            new_h = xp.tanh(z) if mode == "rnn_tanh" else xp.maximum(z, 0)
            gates[t] = new_h
        out[t] = new_h
        if running is not None:
            on = running[t][:, None]
            out[t] = xp.where(on, new_h, 0)
            new_h = xp.where(on, new_h, h)
            new_c = c if c is None else xp.where(on, new_c, c)
        if mode == "lstm":
            extra[t] = new_c
        h, c = new_h, new_c
    added = {"lstm": [extra] + ([wide] if wide is not None else []), "gru": [extra]}.get(mode, [])
    return out, h, c, [gates, *added, out]


def back_cell(
    xp: Any,
    mode: str,
    x: Array,
    cell: Sequence[Array],
    h0: Array,
    c0: Array,
    dy: Array,
    dh: Array,
    dc: Array,
    blocks: Sequence[Array],
    reverse: bool,
    running: Array | None,
    clip: Clip,
) -> tuple[Array, tuple[Array, ...], Array, Array]:
    """Backpropagation through time for `_run_cell`. Returns dx, cell gradients, dh0, dc0."""
    w, u, proj = cell[:3]
    gates, out = blocks[0], blocks[-1]
    n_steps = x.shape[0]
    hidden = u.shape[0] // GATES[mode]
    order = list(reversed(range(n_steps)) if reverse else range(n_steps))
    dz = xp.zeros(gates.shape, x.dtype)  # of i2h's pre-activations
    dzu = dz if mode != "gru" else xp.zeros(gates.shape, x.dtype)  # of h2h's
    before = xp.empty((n_steps, *h0.shape), x.dtype)
    dproj = None if proj is None else xp.zeros(proj.shape, x.dtype)
    h = h0
    for t in order:
        before[t] = h
        h = out[t] if running is None else xp.where(running[t][:, None], out[t], h)
    for k in reversed(range(n_steps)):
        t = order[k]
        on = None if running is None else running[t][:, None]
        step = dy[t] + dh if on is None else xp.where(on, dy[t] + dh, 0)
        pass_h = 0 if on is None else xp.where(on, 0, dh)
        if mode == "lstm":
            i, f, g, o = (gates[t][:, j * hidden : (j + 1) * hidden] for j in range(4))
            cells = blocks[1]
            c, c_before = cells[t], cells[order[k - 1]] if k else c0
            if proj is not None:
                dproj += step.T @ blocks[2][t]
                step = step @ proj
            tc = xp.tanh(c)
            dcell = step * o * (1 - tc * tc) + (dc if on is None else xp.where(on, dc, 0))
            if clip[0] is not None or clip[1] is not None:
                raw = f * c_before + i * g
                dcell = xp.where(_clip_cell(xp, raw, clip) == raw, dcell, 0)
            dz[t] = xp.concatenate(
                [
                    dcell * g * i * (1 - i),
                    dcell * c_before * f * (1 - f),
                    dcell * i * (1 - g * g),
                    step * tc * o * (1 - o),
                ],
                axis=1,
            )
            dc = dcell * f + (0 if on is None else xp.where(on, 0, dc))
            dh = dz[t] @ u
        elif mode == "gru":
            r, update, new = (gates[t][:, j * hidden : (j + 1) * hidden] for j in range(3))
            dnew = step * (1 - update) * (1 - new * new)
            dr = dnew * blocks[1][t] * r * (1 - r)
            dupdate = step * (before[t] - new) * update * (1 - update)
            dz[t] = xp.concatenate([dr, dupdate, dnew], axis=1)
            dzu[t] = xp.concatenate([dr, dupdate, dnew * r], axis=1)
            dh = dzu[t] @ u + step * update
        else:
            dz[t] = step * ((1 - gates[t] ** 2) if mode == "rnn_tanh" else (gates[t] > 0))
            dh = dz[t] @ u
        dh = dh + pass_h
    flat = dz.reshape(-1, dz.shape[2])
    flat_u = dzu.reshape(-1, dz.shape[2])
    dw, du = flat.T @ x.reshape(-1, x.shape[2]), flat_u.T @ before.reshape(-1, before.shape[2])
    return dz @ w, (dw, du, dproj, flat.sum(axis=0), flat_u.sum(axis=0)), dh, dc


def forward_all(
    xp: Any,
    x: Array,
    params: Array,
    state: Array,
    cell: Array | None,
    lay: Layout,
    running: Array | None,
    clip: Clip,
    p: float,
    masks: Sequence[Array] | Callable[[Shape], Array],
) -> tuple[Array, Array, Array | None, list[Array]]:
    """masks: given ones, or a function of a shape that draws one. Returns y, hy, cy, reserve
    blocks."""
    cells = cells_of(blocks_of(params, lay.parameter_shapes()), lay)
    hs, cs, used, blocks = [], [], [], []
    for layer in range(lay.layers):
        if layer and p > 0:
            mask = masks(x.shape) if callable(masks) else masks[layer - 1]
            used.append(mask)
            x = x * mask
        outs = []
        for d in range(lay.directions):
            i = layer * lay.directions + d
            y, h, c, kept = _run_cell(
                xp,
                lay.mode,
                x,
                cells[i],
                state[i],
                None if cell is None else cell[i],
                d == 1,
                running,
                clip,
            )
            outs.append(y)
            hs.append(h)
            cs.append(c)
            blocks += kept
        x = outs[0] if len(outs) == 1 else xp.concatenate(outs, axis=2)
    blocks.append(xp.zeros((SPARE,), x.dtype))
    return x, xp.stack(hs), None if cell is None else xp.stack(cs), used + blocks
