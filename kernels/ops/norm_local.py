"""L2Normalization and LRN: normalisations without statistics to learn."""

from __future__ import annotations

from ...engine.error import OperatorError, ShapeError
from ..record import REACH, Param, operator, sample
from ..traits import Decomposition

_L2_AXES = {
    "instance": lambda nd: tuple(range(1, nd)),
    "channel": lambda nd: (1,),
    "spatial": lambda nd: tuple(range(2, nd)),
}


def _l2_infer(ins, eps, mode):
    nd = len(ins[0].shape)
    low = {"instance": 2, "channel": 2, "spatial": 3}[mode]
    if nd < low:
        raise ShapeError(
            "L2Normalization",
            f"data must have at least {low} dimensions with mode='{mode}', got {ins[0].shape}",
        )
    return [ins[0]]


def _l2_ref(xp, x, *, eps, mode):
    return x / xp.sqrt((x * x).sum(axis=_L2_AXES[mode](x.ndim), keepdims=True) + eps)


def _l2_body(F, x, eps, mode):
    total = F.sum(F.square(x), axis=_L2_AXES[mode](len(x.shape)), keepdims=True)
    return [F.broadcast_div(x, F.sqrt(F._plus_scalar(total, scalar=eps)))]


def _l2_grad(F, dys, xs, ys, eps, mode):
    x, dy = xs[0], dys[0]
    axes = _L2_AXES[mode](len(x.shape))
    r = F.rsqrt(F.sum(F.square(x), axis=axes, keepdims=True) + eps)
    along = F.sum(dy * x, axis=axes, keepdims=True) * F.square(r)
    return [F.broadcast_mul(dy - F.broadcast_mul(x, along), r)]


operator(
    "L2Normalization",
    params=(
        Param("eps", "float", 1e-10),
        Param("mode", ("channel", "instance", "spatial"), "instance"),
    ),
    infer=_l2_infer,
    ref=_l2_ref,
    traits=(Decomposition(_l2_body),),
    grad=_l2_grad,
    samples=(
        sample((3, 4)),
        sample((2, 3, 4)),
        sample((2, 3, 4), mode="channel"),
        sample((2, 3, 2, 2), mode="spatial", eps=0.1),
    ),
    doc=(
        "data / sqrt(sum(data^2) + eps), summed over all axes but the first (instance), axis 1"
        " (channel) or the axes from 2 on (spatial)."
    ),
)


def _lrn_infer(ins, nsize, **_):
    if nsize < 1:
        raise OperatorError("LRN", f"nsize must be at least 1, got {nsize}")
    if len(ins[0].shape) != 4:
        raise ShapeError("LRN", f"data must be (N, C, H, W), got {ins[0].shape}")
    return [ins[0]]


def _lrn_ref(xp, x, *, alpha, beta, knorm, nsize):
    side = (nsize - 1) // 2
    square = xp.pad(x * x, ((0, 0), (side, side), (0, 0), (0, 0)))
    total = sum(square[:, i : i + x.shape[1]] for i in range(2 * side + 1))
    return x * (knorm + alpha / nsize * total) ** -beta


def _lrn_window(F, x, nsize):
    """Sums over the neighbouring channels."""
    n, c, h, w = x.shape
    side = (nsize - 1) // 2
    flat = F.reshape_to(x, shape=(n, 1, c, h * w))
    total = F.Pooling(flat, kernel=(2 * side + 1, 1), pad=(side, 0), pool_type="sum")
    return F.reshape_to(total, shape=x.shape)


def _lrn_base(F, x, alpha, knorm, nsize):
    return _lrn_window(F, F.square(x), nsize) * (alpha / nsize) + knorm


def _lrn_body(F, x, alpha, beta, knorm, nsize):
    if 0 in x.shape:
        return None
    return [x * _lrn_base(F, x, alpha, knorm, nsize) ** -beta]


def _lrn_grad(F, dys, xs, ys, alpha, beta, knorm, nsize):
    x, dy = xs[0], dys[0]
    base = _lrn_base(F, x, alpha, knorm, nsize)
    around = _lrn_window(F, dy * x * base ** (-beta - 1), nsize)
    return [dy * base**-beta - x * around * (2 * alpha * beta / nsize)]


operator(
    "LRN",
    params=(
        Param("alpha", "float", 1e-4),
        Param("beta", "float", 0.75),
        Param("knorm", "float", 2.0),
        Param("nsize", "int", limits=REACH),
    ),
    infer=_lrn_infer,
    ref=_lrn_ref,
    traits=(Decomposition(_lrn_body),),
    grad=_lrn_grad,
    samples=(
        sample((2, 5, 3, 2), nsize=3, alpha=0.5),
        sample((1, 4, 2, 2), nsize=5, alpha=1.0, beta=0.5, knorm=1.0),
        sample((1, 5, 2, 2), nsize=4, alpha=1.0),
    ),
    doc=(
        "data * (knorm + alpha / nsize * sum of squares over nsize neighbouring channels)^-beta;"
        " an even nsize has a window of nsize - 1 channels. Source: Krizhevsky et al. 2012."
    ),
)
