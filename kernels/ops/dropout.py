"""Dropout."""

from __future__ import annotations

from ..record import FRACTION, Param, Type, operator, sample
from ..shapes import many_axes
from ..traits import Dropout, Identity, Rematerializes


def _active(p, mode, train):
    return p > 0 and (train or mode == "always")


def _mask_shape(shape, axes):
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


def _infer(ins, p, mode, axes, train, **_):
    x = ins[0]
    shared = many_axes("Dropout", axes, len(x.shape)) if axes else ()
    return [x, Type(_mask_shape(x.shape, shared) if _active(p, mode, train) else (0,), x.dtype)]


def _ref(xp, x, *, p, mode, axes, rng, train, **_):
    if not _active(p, mode, train):
        return x, xp.zeros((0,), x.dtype)
    keep = 1 - p
    mask = rng.random(_mask_shape(x.shape, [a % x.ndim for a in axes]), dtype="float32") < keep
    mask = mask.astype(x.dtype) / (keep or 1)
    return x * mask, mask


def _grad(F, dys, xs, ys, p, mode, axes, train, **_):
    return [F.broadcast_mul(dys[0], ys[1]) if _active(p, mode, train) else dys[0]]


def _rematerialize(F, xs, ys, p, mode, train, **_):
    return F.broadcast_mul(xs[0], ys[1]) if _active(p, mode, train) else xs[0]


operator(
    "Dropout",
    aliases=("_npx_dropout",),
    params=(
        Param("p", "float", 0.5, limits=FRACTION),
        Param("mode", ("always", "training"), "training"),
        Param("axes", "shape", ()),
        Param("cudnn_off", "bool?", False),
    ),
    n_outputs=2,
    n_visible=1,
    output_names=("output", "mask"),
    random=lambda p, mode, train, **_: _active(p, mode, train),
    train_aware=True,
    infer=_infer,
    ref=_ref,
    grad=_grad,
    traits=(
        Dropout(),
        Identity(when=lambda p, mode, train, **_: not _active(p, mode, train)),
        Rematerializes(_rematerialize),
    ),
    samples=(
        sample((4, 5)),
        sample((4, 5), p=0.0),
        sample((4, 5), p=0.2, mode="always"),
        sample((4, 3, 5), p=0.5, axes=(0, 2), mode="always"),
        sample((2, 3), p=1.0, mode="always"),
    ),
    doc=(
        "While training (or always, with mode='always') zeroes each element with probability p and"
        " scales the others by 1 / (1 - p); identity otherwise. Elements that differ only along"
        " `axes` share their fate. Source: Srivastava et al. 2014, JMLR 15."
    ),
)
