"""Attention as one operator, on operands that are read where they lie; the pass makes it of
batch_dot, softmax, batch_dot.

An operand is given by a source array and (source, at, batch, head, row): its number among the
sources, the element where it begins, and the steps between batches, heads and rows; the elements
of a row lie side by side. Only `_attention_grad` is a fused backward operator: its own gradient,
and that of a mask, come from the composition of plain operators. `_attention_dropout` draws what
Dropout would draw from the probabilities and keeps a bit of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from ...engine.error import OperatorError, ShapeError
from ..compose import vjp
from ..record import FRACTION, Param, Shape, Type, operator, sample, uniform, values
from ..traits import Rematerializes
from .strided import check_view, places

# attention

LONGEST = 256  # elements of a key or a value that the kernels hold

PARAMS = (
    Param("sizes", "shape", doc="batches, heads, queries, keys, elements of a key, of a value"),
    Param("q", "shape"),
    Param("k", "shape"),
    Param("v", "shape"),
    Param("n_sources", "int", 1, limits=(1, 3)),
    Param("heads_first", "bool", False),
    Param("scale", "float", 1.0),
    Param("mask", ("None", "add", "where", "length"), None),
    Param("mask_value", "float", 0.0, doc="where: the score of a key whose mask is 0"),
    Param("mask_view", "shape", (0, 0, 0, 0, 0), doc="at, steps of batch, head, query, key"),
)


# 32 probabilities are kept or dropped by the bits of one int32, the first by the lowest


def _words(kept_shape):
    return (*kept_shape[:-1], -(-kept_shape[-1] // 32))


def _packed(xp, kept):
    """The bits of a boolean array whose last axis is the keys."""
    *lead, n = kept.shape
    whole = xp.zeros((*lead, _words(kept.shape)[-1] * 32), "uint32")
    whole[..., :n] = kept
    bits = whole.reshape(_words(kept.shape) + (32,)) << xp.arange(32, dtype="uint32")
    return bits.sum(axis=-1, dtype="uint32").view("int32")


def _unpacked(xp, words, n):
    bits = words.view("uint32")[..., None] >> xp.arange(32, dtype="uint32")
    return (bits & 1).reshape(*words.shape[:-1], -1)[..., :n]


def kept_scale(p: float) -> float:
    return 1 / (1 - p) if p < 1 else 0.0


def _factors_infer(ins, n, p, dtype):
    if _words((*ins[0].shape[:-1], n)) != ins[0].shape or ins[0].dtype != "int32":
        raise ShapeError(
            "_kept_factors", f"kept must hold {n} bits in int32 along its last axis, got {ins[0]}"
        )
    return [Type((*ins[0].shape[:-1], n), dtype)]


operator(
    "_kept_factors",
    inputs=("kept",),
    params=(
        Param("n", "int"),
        Param("p", "float", limits=FRACTION),
        Param("dtype", "dtype", "float32"),
    ),
    infer=_factors_infer,
    ref=lambda xp, kept, *, n, p, dtype: (_unpacked(xp, kept, n) * kept_scale(p)).astype(dtype),
    samples=(sample(values([[5, 1], [-1, 0]], "int32"), n=40, p=0.5),),
    doc="What dropout multiplies by, 1 / (1 - p) where the bit of an element is set, else 0.",
)


def names(n_sources: int, mask: str, **_: Any) -> tuple[str, ...]:
    return (*(f"source{i}" for i in range(n_sources)), *(("masks",) if mask else ()))


def operands(
    sizes: Shape, q: Shape, k: Shape, v: Shape, **_: Any
) -> list[tuple[int, int, Shape, Shape]]:
    """(source, at, sizes, steps) of q, k and v."""
    batch, heads, n_q, n_k, dim, dim_v = sizes
    shapes = ((n_q, dim), (n_k, dim), (n_k, dim_v))
    return [(x[0], x[1], (batch, heads, *s), (*x[2:], 1)) for x, s in zip((q, k, v), shapes)]


def apart(views: Iterable[tuple[int, Sequence[int], Sequence[int]]]) -> bool:
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


def mask_sizes(sizes: Shape, mask: str, **_: Any) -> Shape:
    return sizes[:3] if mask == "length" else sizes[:4]


def _y_shape(sizes, heads_first):
    batch, heads, n_q, _, _, dim_v = sizes
    return (batch, heads, n_q, dim_v) if heads_first else (batch, n_q, heads, dim_v)


def _sums_shape(sizes):
    """Of each query: its largest score, and the log of the sum of e^(score - largest). One number,
    their sum, would not hold the second beside a large first: masks of -1e9."""
    return (*sizes[:3], 2)


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
    return [Type(_y_shape(sizes, attrs["heads_first"]), dtype), Type(_sums_shape(sizes), wide)]


def _take(xp, x, at, sizes, steps):
    return x.reshape(-1)[places(xp, prod(x.shape), at, sizes, steps)]


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


def _ref(xp, *sources, factors=1, **attrs):
    s, counts, _, _, v = _scores(xp, sources, attrs)
    top = xp.max(xp.where(counts, s, -xp.inf), axis=-1, keepdims=True, initial=-xp.inf)
    shift = xp.where(xp.isinf(top), 0, top)
    e = xp.where(counts, xp.exp(s - shift), 0)
    total = e.sum(axis=-1, keepdims=True)
    none = (total == 0) & (attrs["mask"] == "length")
    y = xp.where(none, 0, (e / xp.where(none, 1, total) * factors) @ v)
    sums = xp.concatenate([xp.where(none, 0, top), xp.log(xp.where(none, 1, total))], axis=-1)
    return (y if attrs["heads_first"] else xp.swapaxes(y, 1, 2)), sums


def _composed(attrs, kept=None):
    """(F, *sources, mask) -> y in plain operators. kept: bits, where some are dropped."""
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
        if kept is not None:
            factors = F._kept_factors(kept, n=n_k, p=attrs["p"], dtype=p.dtype)
            p = F.broadcast_mul(p, F.reshape_to(factors, shape=p.shape))
        y = F.reshape_to(F.batch_dot(p, v), shape=(batch, heads, n_q, dim_v))
        return y if attrs["heads_first"] else F.transpose(y, axes=(0, 2, 1, 3))

    return compose


def _grad(F, dys, xs, ys, **attrs):
    n = attrs["n_sources"]
    grads = F._attention_grad(dys[0], *ys, *xs, **attrs)
    grads = list(grads) if isinstance(grads, (list, tuple)) else [grads]
    if attrs["mask"] == "add":
        grads.append(vjp(F, _composed(attrs, *ys[2:]), xs, dys[:1])[n])
    return grads + [None] * (len(xs) - len(grads))


def _parts(ins, p, **_):
    """(dy, y, sums, bits of what was kept or None, sources)"""
    dy, y, sums, *sources = ins
    return (dy, y, sums, sources[0], sources[1:]) if p else (dy, y, sums, None, sources)


def _grad_infer(ins, **attrs):
    dy, y, sums, kept, sources = _parts(ins, **attrs)
    _check("_attention_grad", sources, attrs)
    if kept is not None and kept != Type(_words(attrs["sizes"][:4]), "int32"):
        raise ShapeError(
            "_attention_grad",
            f"kept must be int32 {_words(attrs['sizes'][:4])}, got {kept.dtype} {kept.shape}",
        )
    shape = _y_shape(attrs["sizes"], attrs["heads_first"])
    if dy.shape != shape or y.shape != shape or sums.shape != _sums_shape(attrs["sizes"]):
        raise ShapeError(
            "_attention_grad",
            f"dy, y must have shape {shape} and sums {_sums_shape(attrs['sizes'])}, got"
            f" {dy.shape}, {y.shape}, {sums.shape}",
        )
    return list(sources[: attrs["n_sources"]])


def _grad_ref(xp, *ins, **attrs):
    dy, y, sums, kept, sources = _parts(ins, **attrs)
    s, counts, q, k, v = _scores(xp, sources, attrs)
    factors = 1
    if kept is not None:
        factors = (_unpacked(xp, kept, s.shape[-1]) * kept_scale(attrs["p"])).astype(s.dtype)
    if attrs["mask"] == "where":
        at, *steps = attrs["mask_view"]
        scored = _take(xp, sources[-1], at, mask_sizes(**attrs), steps) != 0
    else:
        scored = counts
    if not attrs["heads_first"]:
        dy, y = xp.swapaxes(dy, 1, 2), xp.swapaxes(y, 1, 2)
    p = xp.where(counts, xp.exp(s - sums[..., :1] - sums[..., 1:]), 0)
    dp = dy @ xp.swapaxes(v, -1, -2) * factors
    ds = p * (dp - (dy * y).sum(axis=-1, keepdims=True))
    ds = xp.where(counts & scored, ds, 0) * attrs["scale"]
    back = lambda a: xp.swapaxes(a, -1, -2)
    grads = [xp.zeros(prod(x.shape), x.dtype) for x in sources[: attrs["n_sources"]]]
    for (source, at, n, steps), g in zip(
        operands(**attrs), (ds @ k, back(ds) @ q, back(p * factors) @ dy), strict=True
    ):
        xp.add.at(grads[source], places(xp, grads[source].size, at, n, steps), g)
    return [g.reshape(x.shape) for g, x in zip(grads, sources)]


def _composed_grad(attrs, kept):
    """(F, dy, *sources, mask) -> gradients of the sources, y and sums being functions of them."""

    def compose(F, dy, *sources):
        return vjp(F, _composed(attrs, kept), sources, [dy])[: attrs["n_sources"]]

    return compose


def _grad_grad(F, dys, xs, ys, **attrs):
    dy, _, _, kept, sources = _parts(xs, **attrs)
    grads = vjp(F, _composed_grad(attrs, kept), [dy, *sources], dys)
    return [grads[0], None, None, *([] if kept is None else [None]), *grads[1:]]


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


def _some_kept(sizes):
    """Bits for a sample: all but every third."""
    n = prod(_words(sizes[:4]))
    return values((np.arange(n) * 7 + 0b11011).reshape(_words(sizes[:4])).tolist(), "int32")


operator(
    "_attention",
    inputs=("source0", "source1", "source2", "masks"),
    input_names=names,
    params=PARAMS,
    n_outputs=2,
    n_visible=1,
    output_names=("output", "sums"),
    infer=_infer,
    ref=_ref,
    grad=_grad,
    samples=tuple(sample(*ins, **attrs) for ins, attrs in _SAMPLES),
    doc=(
        "softmax(scale q . k^T + mask) . v for each batch and head; each query's largest score and"
        " log of sum are kept for the gradient. Result (batch, query, head, element), or"
        " (batch, head, query, element) with heads_first. Source: Vaswani et al. 2017,"
        " arXiv:1706.03762."
    ),
)


def _dropout_infer(ins, p, **attrs):
    if not 0 < p <= 1:
        raise OperatorError("_attention_dropout", f"p must be in (0, 1], got {p}")
    return [*_infer(ins, **attrs), Type(_words(attrs["sizes"][:4]), "int32")]


def _dropout_ref(xp, *sources, p, rng, **attrs):
    kept = rng.random(attrs["sizes"][:4], dtype="float32") < 1 - p
    factors = (kept * kept_scale(p)).astype(sources[0].dtype)
    return *_ref(xp, *sources, factors=factors, **attrs), _packed(xp, kept)


def _rematerialize(F, xs, ys, **attrs):
    return _composed(attrs, ys[2])(F, *xs)


operator(
    "_attention_dropout",
    inputs=("source0", "source1", "source2", "masks"),
    input_names=names,
    params=(*PARAMS, Param("p", "float", 0.5, limits=FRACTION)),
    n_outputs=3,
    n_visible=1,
    output_names=("output", "sums", "kept"),
    random=True,
    infer=_dropout_infer,
    ref=_dropout_ref,
    grad=_grad,
    traits=(Rematerializes(_rematerialize),),
    samples=tuple(sample(*ins, p=0.25, **attrs) for ins, attrs in _SAMPLES),
    doc=(
        "_attention with probabilities dropped at random (p of them) and the others scaled by"
        " 1 / (1 - p), as Dropout draws from an array (batch, head, query, key); the bits of what"
        " was kept are there for the gradient. Source: Srivastava et al. 2014, JMLR 15."
    ),
)

operator(
    "_attention_grad",
    inputs=("dy", "y", "sums", "kept", "source0", "source1", "source2", "masks"),
    input_names=lambda p, **attrs: (
        *("dy", "y", "sums", *(("kept",) if p else ())),
        *names(**attrs),
    ),
    params=(*PARAMS, Param("p", "float", 0.0, limits=FRACTION)),
    n_outputs=lambda n_sources, **_: n_sources,
    infer=_grad_infer,
    ref=_grad_ref,
    grad=_grad_grad,
    samples=tuple(
        sample(
            shape, shape, uniform(_sums_shape(attrs["sizes"]), 0, 1.5), *kept, *ins, p=p, **attrs
        )
        for p in (0.0, 0.25)
        for ins, attrs in _SAMPLES
        for shape in [_y_shape(attrs["sizes"], attrs.get("heads_first", False))]
        for kept in [[_some_kept(attrs["sizes"])] if p else []]
    ),
    doc=(
        "Gradients of _attention with respect to its sources; p: of _attention_dropout, given the"
        " bits of what it kept."
    ),
)
