"""Operators on padded sequences: SequenceMask, SequenceLast, SequenceReverse."""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..record import Param, Type, operator, sample, values


def _inputs(use_sequence_length, **_):
    return ("data", "sequence_length") if use_sequence_length else ("data",)


def _check(op, ins, use_sequence_length, axis, axes=(0, 1)):
    x = ins[0]
    if axis not in axes:
        raise OperatorError(
            op, f"axis (the time axis) must be {' or '.join(map(str, axes))}, got {axis}"
        )
    if len(x.shape) < 2:
        raise ShapeError(
            op, f"data must have at least 2 dimensions (time and batch), got {x.shape}"
        )
    if use_sequence_length and ins[1].shape != (x.shape[1 - axis],):
        raise ShapeError(
            op,
            f"sequence_length must have shape (batch,) = ({x.shape[1 - axis]},), got data {x.shape}"
            f" and sequence_length {ins[1].shape}",
            fix=f"is the time axis {1 - axis}?",
        )
    return x


def _fill(ins, use_sequence_length, axis, **_):
    if use_sequence_length and ins[0] is not None and ins[1] is None:
        return [ins[0], Type((ins[0].shape[1 - axis],), ins[0].dtype)]
    return list(ins)


def _none_for_length(g, xs):
    return [g] + [None] * (len(xs) - 1)


def _mask_ref(xp, x, length=None, *, use_sequence_length, value, axis):
    if not use_sequence_length:
        return x
    steps, length = xp.arange(x.shape[axis]), xp.trunc(length)
    inside = steps[:, None] < length if axis == 0 else steps < length[:, None]
    return xp.where(
        inside.reshape(*inside.shape, *[1] * (x.ndim - 2)), x, xp.asarray(value).astype(x.dtype)
    )


def _mask_grad(F, dys, xs, ys, use_sequence_length, value, axis):
    if not use_sequence_length:
        return [dys[0]]
    return [F.SequenceMask(dys[0], xs[1], use_sequence_length=True, axis=axis), None]


_USE = Param("use_sequence_length", "bool", False)
_LENGTHS = values([1, 3], "float32")

operator(
    "SequenceMask",
    aliases=("_npx_sequence_mask",),
    inputs=("data", "sequence_length"),
    input_names=_inputs,
    params=(_USE, Param("value", "float", 0.0), Param("axis", "int", 0)),
    fill=_fill,
    infer=lambda ins, use_sequence_length, value, axis: [
        _check("SequenceMask", ins, use_sequence_length, axis)
    ],
    ref=_mask_ref,
    grad=_mask_grad,
    samples=(
        sample((3, 2)),
        sample((3, 2, 2), _LENGTHS, use_sequence_length=True),
        sample((2, 3), values([1, 2], "int32"), use_sequence_length=True, axis=1, value=-1.0),
    ),
    doc=(
        "Puts `value` after the end of each sequence. data (time, batch, ...) or, with axis=1,"
        " (batch, time, ...); sequence_length (batch,)."
    ),
)


def _last_infer(ins, use_sequence_length, axis):
    x = _check("SequenceLast", ins, use_sequence_length, axis)
    if x.shape[axis] == 0:
        raise ShapeError("SequenceLast", f"data must have at least one step, got {x.shape}")
    return [Type((x.shape[1 - axis], *x.shape[2:]), x.dtype)]


def _last_ref(xp, x, length=None, *, use_sequence_length, axis):
    x = x if axis == 0 else xp.swapaxes(x, 0, 1)
    if not use_sequence_length:
        return x[-1]
    return x[xp.maximum(length.astype("int64") - 1, 0), xp.arange(x.shape[1])]


def _last_grad(F, dys, xs, ys, use_sequence_length, axis):
    """dy at each sequence's last step: dy times a 0/1 array over (time, batch)."""
    x = xs[0]
    n_steps, n = x.shape[axis], x.shape[1 - axis]
    if use_sequence_length:
        index = F.broadcast_maximum(xs[1] - 1.0, F._zeros(shape=(1,), dtype=xs[1].dtype))
    else:
        index = F._full(shape=(n,), value=n_steps - 1, dtype="float32")
    at = F.one_hot(index, depth=n_steps, dtype=x.dtype)
    at = F.transpose(at, axes=(1, 0)) if axis == 0 else at
    dy = F.expand_dims(dys[0], axis=axis)
    return _none_for_length(
        F.broadcast_mul(dy, F.reshape_to(at, shape=(*at.shape, *[1] * (len(x.shape) - 2)))), xs
    )


operator(
    "SequenceLast",
    inputs=("data", "sequence_length"),
    input_names=_inputs,
    params=(_USE, Param("axis", "int", 0)),
    fill=_fill,
    infer=_last_infer,
    ref=_last_ref,
    grad=_last_grad,
    samples=(
        sample((3, 2)),
        sample((3, 2, 2), _LENGTHS, use_sequence_length=True),
        sample((2, 3, 4), axis=1),
        sample((2, 3), values([1, 2], "int32"), use_sequence_length=True, axis=1),
    ),
    doc="The last element of each sequence: (time, batch, ...) -> (batch, ...).",
)


def _reverse_ref(xp, x, length=None, *, use_sequence_length, axis):
    if not use_sequence_length:
        return x[::-1]
    steps = xp.arange(x.shape[0])[:, None]
    length = xp.minimum(length.astype("int64"), x.shape[0])
    return x[xp.where(steps < length, length - 1 - steps, steps), xp.arange(x.shape[1])]


operator(
    "SequenceReverse",
    inputs=("data", "sequence_length"),
    input_names=_inputs,
    params=(_USE, Param("axis", "int", 0)),
    fill=_fill,
    infer=lambda ins, use_sequence_length, axis: [
        _check("SequenceReverse", ins, use_sequence_length, axis, (0,))
    ],
    ref=_reverse_ref,
    grad=lambda F, dys, xs, ys, **attrs: _none_for_length(
        F.SequenceReverse(dys[0], *xs[1:], **attrs), xs
    ),
    samples=(
        sample((3, 2)),
        sample((3, 2, 2), _LENGTHS, use_sequence_length=True),
        sample((4, 2), values([2, 4], "int32"), use_sequence_length=True),
    ),
    doc=(
        "Reverses the elements of each sequence of data (time, batch, ...) and leaves the padding"
        " where it is."
    ),
)
