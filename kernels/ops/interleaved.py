"""Products of attention on projections whose heads lie interleaved: queries, keys and values of a
head side by side.

A packed array is (length, batch, heads * parts * size); seen as (batch * heads, length, size) each
part is a strided view, and every operator here is one stacked product of two such views.
"""

from __future__ import annotations

from typing import Any

from ...engine.error import ShapeError
from ..compose import vjp
from ..record import Array, Param, Type, operator, sample
from ..shapes import must_be, same_dtype
from ..traits import (
    Decomposition,
    Heads,
)

_HEADS = (Param("heads", "int"),)


def part(F: Any, x: Array, heads: int, parts: int, at: int) -> Array:
    """Part `at` of packed x (length, batch, heads * parts * size) as (batch * heads, length,
    size)."""
    length, batch, width = x.shape
    size = width // (heads * parts)
    return F._strided(
        x,
        at=at * size,
        sizes=(batch * heads, length, size),
        steps=(parts * size, batch * width, 1),
    )


def together(F: Any, y: Array, heads: int) -> Array:
    """(batch * heads, length, size) -> (length, batch, heads * size)."""
    n, length, size = y.shape
    return F.reshape_to(F.transpose(y, axes=(1, 0, 2)), shape=(length, n // heads, heads * size))


def _xp_part(xp, x, heads, parts, at):
    length, batch, width = x.shape
    x = x.reshape(length, batch * heads, parts, width // (heads * parts))
    return xp.swapaxes(x[:, :, at], 0, 1)


def _size(op, name, t, heads, parts):
    """Elements of one head of one part. Raises ShapeError."""
    if heads < 1 or len(t.shape) != 3 or t.shape[2] % (heads * parts) or not t.shape[2]:
        raise ShapeError(
            op,
            f"{name} must be (length, batch, heads * {parts} * size), got {t.shape} and"
            f" heads={heads}",
        )
    return t.shape[2] // (heads * parts)


def _register(name, inputs, infer, ref, compose, samples, doc):
    def grad(F, dys, xs, ys, heads):
        return vjp(F, lambda F, *xs: compose(F, *xs, heads), xs, dys)

    operator(
        name,
        inputs=inputs,
        traits=(
            Decomposition(lambda F, *xs, heads: [compose(F, *xs, heads)]),
            Heads(),
        ),
        params=_HEADS,
        infer=infer,
        ref=ref,
        grad=grad,
        samples=tuple(sample(*shapes, heads=2) for shapes in samples),
        doc=doc,
    )


def _scores(F, q, k):
    return F.batch_dot(F._mul_scalar(q, scalar=q.shape[-1] ** -0.5), k, transpose_b=True)


def _xp_scores(xp, q, k):
    return (q * q.shape[-1] ** -0.5) @ xp.swapaxes(k, 1, 2)


def _xp_together(xp, y, heads):
    n, length, size = y.shape
    return xp.swapaxes(y, 0, 1).reshape(length, n // heads, heads * size)


# One array of queries, keys and values

_SELF_QK = "_contrib_interleaved_matmul_selfatt_qk"


def _self_qk_infer(ins, heads):
    _size(_SELF_QK, "queries_keys_values", ins[0], heads, 3)
    length, batch, _ = ins[0].shape
    return [Type((batch * heads, length, length), ins[0].dtype)]


_register(
    _SELF_QK,
    ("queries_keys_values",),
    _self_qk_infer,
    lambda xp, x, *, heads: _xp_scores(
        xp, _xp_part(xp, x, heads, 3, 0), _xp_part(xp, x, heads, 3, 1)
    ),
    lambda F, x, heads: _scores(F, part(F, x, heads, 3, 0), part(F, x, heads, 3, 1)),
    (((3, 2, 24),), ((1, 1, 6),)),
    "Scores of self-attention, queries . keys^T / sqrt(size): (length, batch, heads * 3 * size) ->"
    " (batch * heads, length, length).",
)

_SELF_VALUES = "_contrib_interleaved_matmul_selfatt_valatt"


def _values_infer(op, name, parts):
    def infer(ins, heads):
        size = _size(op, name, ins[0], heads, parts)
        length, batch, _ = ins[0].shape
        dtype = same_dtype(op, ins, (name, "attention"))
        rows = ins[1].shape[1] if parts == 2 and len(ins[1].shape) == 3 else length
        must_be(op, "attention", ins[1], (batch * heads, rows, length))
        return [Type((rows, batch, heads * size), dtype)]

    return infer


def _values_ref(parts):
    def ref(xp, x, attention, *, heads):
        return _xp_together(xp, attention @ _xp_part(xp, x, heads, parts, parts - 1), heads)

    return ref


def _values_compose(parts):
    def compose(F, x, attention, heads):
        return together(F, F.batch_dot(attention, part(F, x, heads, parts, parts - 1)), heads)

    return compose


_register(
    _SELF_VALUES,
    ("queries_keys_values", "attention"),
    _values_infer(_SELF_VALUES, "queries_keys_values", 3),
    _values_ref(3),
    _values_compose(3),
    (((3, 2, 24), (4, 3, 3)),),
    "Result of self-attention, attention . values: attention (batch * heads, length, length) and"
    " (length, batch, heads * 3 * size) -> (length, batch, heads * size).",
)


# Queries apart from keys and values

_PAIR_QK = "_contrib_interleaved_matmul_encdec_qk"


def _pair_qk_infer(ins, heads):
    size = _size(_PAIR_QK, "queries", ins[0], heads, 1)
    dtype = same_dtype(_PAIR_QK, ins, ("queries", "keys_values"))
    length, batch, _ = ins[0].shape
    keys = ins[1].shape[0] if ins[1].shape else 0
    must_be(_PAIR_QK, "keys_values", ins[1], (keys, batch, heads * 2 * size))
    return [Type((batch * heads, length, keys), dtype)]


_register(
    _PAIR_QK,
    ("queries", "keys_values"),
    _pair_qk_infer,
    lambda xp, q, kv, *, heads: _xp_scores(
        xp, _xp_part(xp, q, heads, 1, 0), _xp_part(xp, kv, heads, 2, 0)
    ),
    lambda F, q, kv, heads: _scores(F, part(F, q, heads, 1, 0), part(F, kv, heads, 2, 0)),
    (((3, 2, 8), (5, 2, 16)),),
    "Scores of attention, queries . keys^T / sqrt(size): (rows, batch, heads * size) and (length,"
    " batch, heads * 2 * size) -> (batch * heads, rows, length).",
)

_PAIR_VALUES = "_contrib_interleaved_matmul_encdec_valatt"
_register(
    _PAIR_VALUES,
    ("keys_values", "attention"),
    _values_infer(_PAIR_VALUES, "keys_values", 2),
    _values_ref(2),
    _values_compose(2),
    (((5, 2, 16), (4, 3, 5)),),
    "Result of attention, attention . values: attention (batch * heads, rows, length) and (length,"
    " batch, heads * 2 * size) -> (rows, batch, heads * size).",
)
