"""The fused RNN operator: rnn_relu, rnn_tanh, lstm, gru; layers, directions, dropout between
layers, projection.

Parameters are one vector: for each layer and direction the weights i2h (G H, inputs), h2h (G H, R)
and, with a projection, h2r (R, H); after all weights, for each layer and direction the biases i2h
and h2h (G H). H is state_size, R the size of the output state (projection_size or H), G the number
of gates: lstm input, forget, cell, output; gru reset, update, new.

While training the operator has one more, hidden output: the *reserve*, a vector of what the
backward operator needs (the dropout masks; gates, cells and outputs of every step);
`Layout.reserve_shapes` says how it is laid out. Without masks it may be a library's, which alone
can read it (kernels/cuda/recurrent_cudnn.py).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ...engine.error import OperatorError, ShapeError
from ..compose import vjp
from ..record import Param, Type, operator, sample, values
from ..shapes import must_be, same_dtype

GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
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
    def cells(self):
        """(layer, direction, number of inputs), in the order of the parameters."""
        return [
            (layer, d, self.inputs if layer == 0 else self.directions * self.out)
            for layer in range(self.layers)
            for d in range(self.directions)
        ]

    @property
    def rows(self):
        return GATES[self.mode] * self.hidden

    def parameter_shapes(self):
        """Shapes of the weights (i2h, h2h[, h2r]) of every cell, then of the biases (i2h, h2h) of
        every cell."""
        shapes = []
        for _, _, k in self.cells:
            shapes += [(self.rows, k), (self.rows, self.out)]
            shapes += [(self.out, self.hidden)] if self.projected else []
        return shapes + [(self.rows,)] * (2 * len(self.cells))

    @property
    def projected(self):
        return self.out != self.hidden

    def reserve_shapes(self, p):
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


def layout(data_shape, mode, state_size, num_layers, bidirectional, projection_size, **_):
    return Layout(
        mode,
        *data_shape,
        state_size,
        projection_size or state_size,
        num_layers,
        2 if bidirectional else 1,
    )


def _total(shapes):
    return sum(map(prod, shapes))


def _cut(flat, shapes):
    """Views of consecutive blocks of a vector."""
    out, at = [], 0
    for shape in shapes:
        out.append(flat[at : at + prod(shape)].reshape(shape))
        at += prod(shape)
    return out


def _cells_of(blocks, lay):
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


# Checks and inference


def _inputs(mode, use_sequence_length, **_):
    return (
        ("data", "parameters", "state")
        + (("state_cell",) if mode == "lstm" else ())
        + (("sequence_length",) if use_sequence_length else ())
    )


def _types(x, lay, mode, use_sequence_length, p, train):
    """Types of the inputs after data, and of all outputs."""
    n_states = lay.layers * lay.directions
    state = Type((n_states, lay.batch, lay.out), x.dtype)
    cell = [Type((n_states, lay.batch, lay.hidden), x.dtype)] if mode == "lstm" else []
    ins = [Type((_total(lay.parameter_shapes()),), x.dtype), state, *cell]
    outs = [
        Type((lay.steps, lay.batch, lay.directions * lay.out), x.dtype),
        state,
        *cell,
        Type((_total(lay.reserve_shapes(p)) if train else 0,), x.dtype),
    ]
    return ins + [Type((lay.batch,), "int32")] * use_sequence_length, outs


MAX_LAYERS = 1 << 12  # a plan lists every cell


def _check(ins, mode, state_size, num_layers, p, projection_size, **_):
    x = ins[0]
    if len(x.shape) != 3:
        raise ShapeError("RNN", f"data must be (time, batch, features), got {x.shape}")
    for name, value, low in (
        ("state_size", state_size, 1),
        ("num_layers", num_layers, 1),
        ("projection_size", projection_size or 1, 1),
    ):
        if value < low:
            raise OperatorError("RNN", f"{name} must be at least {low}, got {value}")
    if num_layers > MAX_LAYERS:
        raise OperatorError("RNN", f"num_layers must be at most {MAX_LAYERS}, got {num_layers}")
    if projection_size and mode != "lstm":
        raise OperatorError("RNN", f"projection_size is only for mode='lstm', got mode={mode!r}")
    if projection_size and projection_size >= state_size:
        raise OperatorError(
            "RNN",
            f"projection_size must be smaller than state_size, got {projection_size} and "
            f"{state_size}",
        )
    if not 0 <= p < 1:
        raise OperatorError("RNN", f"p must be in [0, 1), got {p}")


def _infer(ins, mode, use_sequence_length, state_outputs, p, train, **attrs):
    _check(ins, mode=mode, p=p, **attrs)
    x = ins[0]
    lay = layout(x.shape, mode, **attrs)
    want, outs = _types(x, lay, mode, use_sequence_length, p, train)
    names = _inputs(mode, use_sequence_length)[1:]
    for t, w, name in zip(ins[1:], want, names):
        if t.shape != w.shape:
            note = (
                " for data "
                + str(x.shape)
                + (
                    f": every cell has {lay.rows} rows of weights and 2 x {lay.rows} biases"
                    if name == "parameters"
                    else ""
                )
            )
            raise ShapeError("RNN", f"{name} must have shape {w.shape}, got {t.shape}{note}")
    same_dtype(
        "RNN",
        [x, *(t for t, name in zip(ins[1:], names) if name != "sequence_length")],
        ("data", *names),
    )
    return outs if state_outputs else [outs[0], outs[-1]]


def _fill(ins, mode, use_sequence_length, p, **attrs):
    if ins[0] is None:
        return list(ins)
    _check(ins, mode=mode, p=p, **attrs)
    want, _ = _types(
        ins[0], layout(ins[0].shape, mode, **attrs), mode, use_sequence_length, p, False
    )
    return [ins[0], *(t or w for t, w in zip(ins[1:], want))]


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
            if proj is not None:
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


def _back_cell(xp, mode, x, cell, h0, c0, dy, dh, dc, blocks, reverse, running, clip):
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


def _forward(xp, x, params, state, cell, lay, running, clip, p, masks):
    """masks: given ones, or a function of a shape that draws one. Returns y, hy, cy, reserve
    blocks."""
    cells = _cells_of(_cut(params, lay.parameter_shapes()), lay)
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


def _split_inputs(ins, mode, use_sequence_length):
    """(data, parameters, state, cell or None, sequence_length or None)."""
    rest = list(ins[3:])
    cell = rest.pop(0) if mode == "lstm" else None
    return (*ins[:3], cell, rest.pop(0) if use_sequence_length else None)


def _running(xp, x, length):
    return None if length is None else xp.arange(x.shape[0])[:, None] < length.astype("int64")


def _clip_of(lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan, **_):
    return lstm_state_clip_min, lstm_state_clip_max, lstm_state_clip_nan


def _ref(xp, *ins, mode, p, state_outputs, use_sequence_length, rng, train, **attrs):
    x, params, state, cell, length = _split_inputs(ins, mode, use_sequence_length)
    lay = layout(x.shape, mode, **attrs)
    p = p if train else 0.0

    def draw(shape):
        return (rng.random(shape, dtype="float32") >= p).astype(x.dtype) / (1 - p)

    y, hy, cy, blocks = _forward(
        xp, x, params, state, cell, lay, _running(xp, x, length), _clip_of(**attrs), p, draw
    )
    reserve = xp.concatenate([b.reshape(-1) for b in blocks]) if train else xp.zeros((0,), x.dtype)
    states = ([hy] if cy is None else [hy, cy]) if state_outputs else []
    return (y, *states, reserve)


def _n_visible(mode, state_outputs, **_):
    return 1 if not state_outputs else 3 if mode == "lstm" else 2


_PARAMS = (
    Param("state_size", "int"),
    Param("num_layers", "int", limits=(0, MAX_LAYERS)),
    Param("bidirectional", "bool", False),
    Param("mode", tuple(GATES)),
    Param("p", "float", 0.0),
    Param("state_outputs", "bool", False),
    Param("projection_size", "int?", None),
    Param("lstm_state_clip_min", "float?", None),
    Param("lstm_state_clip_max", "float?", None),
    Param("lstm_state_clip_nan", "bool", False),
    Param("use_sequence_length", "bool", False),
)


def _grad(F, dys, xs, ys, mode, state_outputs, p, use_sequence_length, train, **attrs):
    n_states = _n_visible(mode, True) - 1
    dstates = (
        dys[1 : 1 + n_states]
        if state_outputs
        else [F._zeros(shape=x.shape, dtype=x.dtype) for x in xs[2 : 2 + n_states]]
    )
    gs = F._rnn_grad(
        dys[0],
        *dstates,
        *xs,
        ys[-1],
        mode=mode,
        p=p if train else 0.0,
        use_sequence_length=use_sequence_length,
        **attrs,
    )
    return [*gs, None] if use_sequence_length else gs


def _samples():
    made = []
    for mode, extra in (
        ("lstm", {}),
        ("gru", {}),
        ("rnn_tanh", {}),
        ("rnn_relu", {}),
        ("lstm", {"num_layers": 2, "bidirectional": True, "state_outputs": True}),
        ("gru", {"num_layers": 2, "bidirectional": True, "state_outputs": True}),
        ("rnn_tanh", {"num_layers": 2, "state_outputs": True}),
        ("lstm", {"projection_size": 2, "num_layers": 2, "state_outputs": True}),
        ("lstm", {"lstm_state_clip_min": -0.2, "lstm_state_clip_max": 0.2, "state_outputs": True}),
        ("lstm", {"num_layers": 2, "bidirectional": True, "use_sequence_length": True}),
        ("gru", {"bidirectional": True, "use_sequence_length": True, "state_outputs": True}),
        ("rnn_relu", {"num_layers": 2, "p": 0.5}),
    ):
        attrs = {
            "mode": mode,
            "state_size": 3,
            "num_layers": 1,
            "bidirectional": False,
            "projection_size": None,
        } | extra
        lay = layout((3, 2, 4), **attrs)
        n = lay.layers * lay.directions
        ins = [(3, 2, 4), (_total(lay.parameter_shapes()),), (n, 2, lay.out)]
        ins += [(n, 2, 3)] if mode == "lstm" else []
        ins += [values([2, 3], "int32")] if extra.get("use_sequence_length") else []
        made.append(sample(*ins, **attrs))
    return tuple(made)


operator(
    "RNN",
    aliases=("_npx_rnn",),
    inputs=("data", "parameters", "state", "state_cell", "sequence_length"),
    input_names=_inputs,
    params=_PARAMS,
    n_outputs=lambda **attrs: _n_visible(**attrs) + 1,
    n_visible=_n_visible,
    output_names=("output", "state_output", "statecell_output"),
    train_aware=True,
    random=lambda p, num_layers, train, **_: p > 0 and num_layers > 1 and train,
    infer=_infer,
    fill=_fill,
    ref=_ref,
    grad=_grad,
    samples=_samples(),
    doc=(
        "Recurrent layers over data (time, batch, features); state (layers * directions, batch,"
        " state_size or projection_size), state_cell (layers * directions, batch, state_size) for"
        " lstm. Output (time, batch, directions * state); state_outputs adds the last states. p is"
        " the dropout between layers while training. With sequence_length (batch,), outputs after"
        " the end are 0 and states stop there. The packing of `parameters` is described in"
        " kernels/ops/recurrent.py. Sources: Hochreiter and Schmidhuber 1997, Cho et al. 2014."
    ),
)


# The backward operator


def _grad_inputs(mode, use_sequence_length, **_):
    cell = mode == "lstm"
    return (
        ("dy", "dstate")
        + (("dstate_cell",) if cell else ())
        + _inputs(mode, use_sequence_length)
        + ("reserve",)
    )


def _split_grad_inputs(ins, mode, use_sequence_length):
    """(dy, dstate, dcell or None), (data, parameters, state, cell, length), reserve."""
    n = 3 if mode == "lstm" else 2
    heads = (*ins[:n], None)[:3]
    return heads, _split_inputs(ins[n:-1], mode, use_sequence_length), ins[-1]


def _grad_infer(ins, mode, use_sequence_length, p, **attrs):
    heads, (x, params, state, cell, length), reserve = _split_grad_inputs(
        ins, mode, use_sequence_length
    )
    forward = [t for t in (x, params, state, cell, length) if t is not None]
    outs = _infer(forward, mode, use_sequence_length, True, p, True, **attrs)
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
    running, clip = _running(xp, x, length), _clip_of(**attrs)
    if reserve.size:
        blocks = _cut(reserve, lay.reserve_shapes(p))
    else:
        blocks = _forward(xp, x, params, state, cell, lay, running, clip, 0.0, None)[3]
    n_masks = lay.layers - 1 if p > 0 else 0
    masks, blocks = blocks[:n_masks], blocks[n_masks:-1]
    per_cell = len(blocks) // len(lay.cells)
    cells = _cells_of(_cut(params, lay.parameter_shapes()), lay)
    grads, dh0, dc0 = [None] * len(cells), [None] * len(cells), [None] * len(cells)
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
            part, grads[i], dh0[i], dc0[i] = _back_cell(
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

    def run(F, x, params, state, *rest):
        rest = list(rest)
        cell = rest.pop(0) if lay.mode == "lstm" else None
        running = rest.pop(0) if has_length else None
        masks = rest
        blocks, at = [], 0
        for shape in lay.parameter_shapes():
            blocks.append(F.reshape_to(part(F, params, 0, at, at + prod(shape)), shape=shape))
            at += prod(shape)
        cells = _cells_of(blocks, lay)
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
    forward = _composed(lay, _clip_of(**attrs), n_masks > 0, length is not None)
    n = len(leaves)

    def backward(T, *given):
        return vjp(T, forward, list(given[len(heads) :]), list(given[: len(heads)]))[:n]

    gs = vjp(F, backward, [*heads, *leaves, *constants], dys)
    return gs[: len(heads) + n] + [None] * (len(xs) - len(heads) - n)


_GRAD_PARAMS = tuple(q for q in _PARAMS if q.name != "state_outputs")
_NO_STATE_OUTPUTS = [
    (s.inputs, {k: v for k, v in s.attrs.items() if k != "state_outputs"}) for s in _samples()
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


# _rnn_param_concat


def _concat_infer(ins, num_args, dim):
    if not ins:
        raise OperatorError("_rnn_param_concat", "needs at least one array")
    nd = len(ins[0].shape)
    axis = dim % nd if -nd <= dim < nd else -1
    first = ins[0].shape
    if axis < 0 or any(
        len(t.shape) != nd
        or t.shape[:axis] != first[:axis]
        or t.shape[axis + 1 :] != first[axis + 1 :]
        for t in ins
    ):
        raise ShapeError(
            "_rnn_param_concat",
            f"arrays must have equal shapes but for axis dim={dim}, got "
            f"{', '.join(str(t.shape) for t in ins)}",
        )
    size = sum(t.shape[axis] for t in ins)
    return [
        Type(
            (*first[:axis], size, *first[axis + 1 :]),
            same_dtype("_rnn_param_concat", ins, [f"arg{i}" for i in range(len(ins))]),
        )
    ]


def _concat_grad(F, dys, xs, ys, num_args, dim):
    gs, at = [], 0
    for x in xs:
        gs.append(F.slice_axis(dys[0], axis=dim, begin=at, end=at + x.shape[dim]))
        at += x.shape[dim]
    return gs


operator(
    "_rnn_param_concat",
    aliases=("_npi_rnn_param_concat",),
    inputs=("*data",),
    variadic_key="num_args",
    params=(Param("num_args", "int"), Param("dim", "int", 1)),
    infer=_concat_infer,
    ref=lambda xp, *xs, num_args, dim: xp.concatenate(xs, axis=dim),
    grad=_concat_grad,
    samples=(sample((3,), (5,), num_args=2, dim=0), sample((2, 3), (2, 1), (2, 2), num_args=3)),
    doc="Joins arrays along axis dim: the pieces of an RNN's parameter vector.",
)
