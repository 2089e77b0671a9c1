"""Attention as one operator, on operands that are read where they lie; the pass makes it of
batch_dot, softmax, batch_dot.

An operand is given by a source array and (source, at, batch, head, row): its number among the
sources, the element where it begins, and the steps between batches, heads and rows; the elements
of a row lie side by side. Only `_attention_grad` is a fused backward operator: its own gradient,
and that of a mask, come from the composition of plain operators.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...engine.error import ShapeError
from ..compose import vjp
from ..record import Param, Type, operator, sample, uniform, values
from .strided import check_view, places

# attention

LONGEST = 256  # elements of a key or a value that the kernels hold

PARAMS = (
    Param("sizes", "shape", doc="batches, heads, queries, keys, elements of a key, of a value"),
    Param("q", "shape"),
    Param("k", "shape"),
    Param("v", "shape"),
    Param("n_sources", "int", 1),
    Param("heads_first", "bool", False),
    Param("scale", "float", 1.0),
    Param("mask", ("None", "add", "where", "length"), None),
    Param("mask_value", "float", 0.0, doc="where: the score of a key whose mask is 0"),
    Param("mask_view", "shape", (0, 0, 0, 0, 0), doc="at, steps of batch, head, query, key"),
)


def names(n_sources, mask, **_):
    return (*(f"source{i}" for i in range(n_sources)), *(("mask",) if mask else ()))


def operands(sizes, q, k, v, **_):
    """(source, at, sizes, steps) of q, k and v."""
    batch, heads, n_q, n_k, dim, dim_v = sizes
    shapes = ((n_q, dim), (n_k, dim), (n_k, dim_v))
    return [(x[0], x[1], (batch, heads, *s), (*x[2:], 1)) for x, s in zip((q, k, v), shapes)]


def apart(views) -> bool:
    """Do views (at, sizes, steps) of one array, their elements side by side, share no element?"""
    first = []
    for at, sizes, steps in views:
        places = np.array([at])
        for n, step in zip(sizes[:-1], steps):
            places = (places[:, None] + np.arange(n) * step).reshape(-1)
        first.append(np.stack([places, places + sizes[-1]]))
    ends = np.concatenate(first, axis=1)
    begin, end = ends[:, np.argsort(ends[0], kind="stable")]
    return bool(np.all(begin[1:] >= end[:-1]))


def mask_sizes(sizes, mask, **_):
    return sizes[:3] if mask == "length" else sizes[:4]


def _y_shape(sizes, heads_first):
    batch, heads, n_q, _, _, dim_v = sizes
    return (batch, heads, n_q, dim_v) if heads_first else (batch, n_q, heads, dim_v)


def _check(op, sources, attrs):
    n, sizes = attrs["n_sources"], attrs["sizes"]
    if len(sizes) != 6 or min(sizes) < 0 or len(attrs["mask_view"]) != 5:
        raise ShapeError(op, f"sizes must be six, mask_view five numbers, got {sizes}")
    for x in (attrs[name] for name in "qkv"):
        if len(x) != 5 or not 0 <= x[0] < n <= 3:
            raise ShapeError(op, f"operands must lie in sources 0 to {n - 1}, got {x}")
    for source, at, shape, steps in operands(**attrs):
        check_view(op, "an operand", prod(sources[source].shape), at, shape, steps)
    if attrs["mask"]:
        at, *steps = attrs["mask_view"]
        shape = mask_sizes(**attrs)
        check_view(op, "the mask", prod(sources[-1].shape), at, shape, steps[: len(shape)])


def _infer(ins, **attrs):
    _check("_attention", ins, attrs)
    dtype, sizes = ins[0].dtype, attrs["sizes"]
    wide = "float64" if dtype == "float64" else "float32"  # what it is the exponent of is near 1
    return [Type(_y_shape(sizes, attrs["heads_first"]), dtype), Type(tuple(sizes[:3]), wide)]


def _take(xp, x, at, sizes, steps):
    return x.reshape(-1)[places(xp, at, sizes, steps)]


def _scores(xp, sources, attrs):
    """(scaled and masked scores, which keys count, q, k, v), each (batch, head, ...)."""
    q, k, v = (_take(xp, sources[s], at, n, steps) for s, at, n, steps in operands(**attrs))
    s = (q @ xp.swapaxes(k, -1, -2)) * attrs["scale"]
    counts = xp.ones(s.shape, bool)
    if attrs["mask"]:
        at, *steps = attrs["mask_view"]
        shape = mask_sizes(**attrs)
        mask = _take(xp, sources[-1], at, shape, steps[: len(shape)])
        if attrs["mask"] == "add":
            s = s + mask
        elif attrs["mask"] == "where":
            s = xp.where(mask != 0, s, xp.asarray(attrs["mask_value"], s.dtype))
        else:
            counts = xp.arange(s.shape[-1]) < mask[..., None]
    return s, counts, q, k, v


def _ref(xp, *sources, **attrs):
    s, counts, _, _, v = _scores(xp, sources, attrs)
    top = xp.max(xp.where(counts, s, -xp.inf), axis=-1, keepdims=True, initial=-xp.inf)
    shift = xp.where(xp.isinf(top), 0, top)
    e = xp.where(counts, xp.exp(s - shift), 0)
    total = e.sum(axis=-1, keepdims=True)
    none = (total == 0) & (attrs["mask"] == "length")
    y = xp.where(none, 0, (e / xp.where(none, 1, total)) @ v)
    lse = xp.where(none, 0, top + xp.log(total))[..., 0]
    return (y if attrs["heads_first"] else xp.swapaxes(y, 1, 2)), lse


def _composed(attrs):
    """(F, *sources, mask) -> y in plain operators."""
    batch, heads, n_q, n_k, _, dim_v = attrs["sizes"]

    def compose(F, *sources):
        q, k, v = (
            F.reshape_to(
                F._strided(sources[s], at=at, sizes=n, steps=steps),
                shape=(batch * heads, *n[2:]),
            )
            for s, at, n, steps in operands(**attrs)
        )
        s = F._mul_scalar(F.batch_dot(q, k, transpose_b=True), scalar=attrs["scale"])
        length = []
        if attrs["mask"]:
            at, *steps = attrs["mask_view"]
            n = mask_sizes(**attrs)
            mask = F._strided(sources[-1], at=at, sizes=n, steps=steps[: len(n)])
            mask = F.reshape_to(mask, shape=(batch * heads, *n[2:]))
            if attrs["mask"] == "add":
                s = F.broadcast_add(s, mask)
            elif attrs["mask"] == "where":
                other = F._full(shape=s.shape, dtype=s.dtype, value=attrs["mask_value"])
                s = F.where(mask, s, other)
            else:
                length = [mask]
        p = F.softmax(s, *length, axis=-1, use_length=bool(length))
        y = F.reshape_to(F.batch_dot(p, v), shape=(batch, heads, n_q, dim_v))
        return y if attrs["heads_first"] else F.transpose(y, axes=(0, 2, 1, 3))

    return compose


def _grad(F, dys, xs, ys, **attrs):
    n = attrs["n_sources"]
    grads = F._attention_grad(dys[0], *ys, *xs, **attrs)
    grads = list(grads) if isinstance(grads, (list, tuple)) else [grads]
    if attrs["mask"] == "add":
        grads.append(vjp(F, _composed(attrs), xs, dys[:1])[n])
    return grads + [None] * (len(xs) - len(grads))


def _grad_infer(ins, **attrs):
    dy, y, lse, *sources = ins
    _check("_attention_grad", sources, attrs)
    shape = _y_shape(attrs["sizes"], attrs["heads_first"])
    if dy.shape != shape or y.shape != shape or lse.shape != tuple(attrs["sizes"][:3]):
        raise ShapeError(
            "_attention_grad",
            f"dy, y must have shape {shape} and lse {attrs['sizes'][:3]}, got {dy.shape},"
            f" {y.shape}, {lse.shape}",
        )
    return list(sources[: attrs["n_sources"]])


def _grad_ref(xp, dy, y, lse, *sources, **attrs):
    s, counts, q, k, v = _scores(xp, sources, attrs)
    if attrs["mask"] == "where":
        at, *steps = attrs["mask_view"]
        scored = _take(xp, sources[-1], at, mask_sizes(**attrs), steps) != 0
    else:
        scored = counts
    if not attrs["heads_first"]:
        dy, y = xp.swapaxes(dy, 1, 2), xp.swapaxes(y, 1, 2)
    p = xp.where(counts, xp.exp(s - lse[..., None]), 0)
    ds = p * (dy @ xp.swapaxes(v, -1, -2) - (dy * y).sum(axis=-1, keepdims=True))
    ds = xp.where(counts & scored, ds, 0) * attrs["scale"]
    back = lambda a: xp.swapaxes(a, -1, -2)
    grads = [xp.zeros(prod(x.shape), x.dtype) for x in sources[: attrs["n_sources"]]]
    for (source, at, n, steps), g in zip(
        operands(**attrs), (ds @ k, back(ds) @ q, back(p) @ dy), strict=True
    ):
        xp.add.at(grads[source], places(xp, at, n, steps), g)
    return [g.reshape(x.shape) for g, x in zip(grads, sources)]


def _composed_grad(attrs):
    """(F, dy, *sources, mask) -> gradients of the sources, y and lse being functions of them."""

    def compose(F, dy, *sources):
        return vjp(F, _composed(attrs), sources, [dy])[: attrs["n_sources"]]

    return compose


def _grad_grad(F, dys, xs, ys, **attrs):
    dy, _, _, *sources = xs
    grads = vjp(F, _composed_grad(attrs), [dy, *sources], dys)
    return [grads[0], None, None, *grads[1:]]


_PACKED = {"q": (0, 0, 72, 4, 24), "k": (0, 8, 72, 4, 24), "v": (0, 16, 72, 4, 24)}
_APART = {"q": (0, 0, 24, 12, 4), "k": (1, 0, 40, 20, 4), "v": (2, 0, 30, 15, 3)}
_CASES = (
    ((2, 3, 24),),
    {"sizes": (2, 2, 3, 3, 4, 4), **_PACKED, "scale": 0.5},
    ((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)),
    {"sizes": (2, 2, 3, 5, 4, 3), **_APART, "n_sources": 3, "heads_first": True},
    ((2, 3, 24), (2, 3)),
    {"sizes": (2, 2, 3, 3, 4, 4), **_PACKED, "mask": "add", "mask_view": (0, 3, 0, 0, 1)},
    ((2, 3, 24), values([[1, 0, 1], [0, 1, 1]])),
    {
        "sizes": (2, 2, 3, 3, 4, 4),
        **_PACKED,
        "mask": "where",
        "mask_view": (0, 3, 0, 0, 1),
        "mask_value": -3.0,
    },
    ((2, 3, 24), values([2, 1], "int32")),
    {"sizes": (2, 2, 3, 3, 4, 4), **_PACKED, "mask": "length", "mask_view": (0, 1, 0, 0, 0)},
)
_SAMPLES: tuple[Any, ...] = tuple(zip(_CASES[::2], _CASES[1::2]))

operator(
    "_attention",
    inputs=("source0", "source1", "source2", "mask"),
    input_names=names,
    params=PARAMS,
    n_outputs=2,
    n_visible=1,
    output_names=("output", "log_sum"),
    infer=_infer,
    ref=_ref,
    grad=_grad,
    samples=tuple(sample(*ins, **attrs) for ins, attrs in _SAMPLES),
    doc=(
        "softmax(scale q . k^T + mask) . v for each batch and head; the log of the sum of e^score"
        " of each query is kept for the gradient. Result (batch, query, head, element), or"
        " (batch, head, query, element) with heads_first. Source: Vaswani et al. 2017,"
        " arXiv:1706.03762."
    ),
)

operator(
    "_attention_grad",
    inputs=("dy", "y", "log_sum", "source0", "source1", "source2", "mask"),
    input_names=lambda **attrs: ("dy", "y", "log_sum", *names(**attrs)),
    params=PARAMS,
    n_outputs=lambda n_sources, **_: n_sources,
    infer=_grad_infer,
    ref=_grad_ref,
    grad=_grad_grad,
    samples=tuple(
        sample(shape, shape, uniform(attrs["sizes"][:3], 0, 3), *ins, **attrs)
        for ins, attrs in _SAMPLES
        for shape in [_y_shape(attrs["sizes"], attrs.get("heads_first", False))]
    ),
    doc="Gradients of _attention with respect to its sources.",
)
