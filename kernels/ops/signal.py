"""Discrete Fourier transforms and count sketches of rows (MXNet has them on GPUs only), and the
correlation of two vectors."""

from __future__ import annotations

from ...engine.error import ShapeError
from ..record import LARGE, Param, Type, ints, operator, sample
from ..shapes import must_be, same_dtype
from .index import numbered
from .linalg import matrices


def _rows(op, ins, even):
    dtype = matrices(op, [Type((1, *ins[0].shape), ins[0].dtype)], ("data",))
    if not ins[0].shape or ins[0].shape[-1] < 1 or (even and ins[0].shape[-1] % 2):
        raise ShapeError(op, f"data needs a last axis of {'even ' * even}size, got {ins[0].shape}")
    return dtype


def _fft_infer(ins, compute_size):
    dtype = _rows("_contrib_fft", ins, False)
    return [Type((*ins[0].shape[:-1], 2 * ins[0].shape[-1]), dtype)]


def _fft_ref(xp, x, *, compute_size):
    y = xp.fft.fft(x, axis=-1)
    return xp.stack([y.real, y.imag], axis=-1).reshape(*x.shape[:-1], 2 * x.shape[-1])


def _ifft_infer(ins, compute_size):
    dtype = _rows("_contrib_ifft", ins, True)
    return [Type((*ins[0].shape[:-1], ins[0].shape[-1] // 2), dtype)]


def _ifft_ref(xp, x, *, compute_size):
    pairs = x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)
    y = xp.fft.ifft(pairs[..., 0] + 1j * pairs[..., 1], axis=-1, norm="forward")
    return y.real


_SIZE = (Param("compute_size", "int", 128),)

operator(
    "_contrib_fft",
    params=_SIZE,
    infer=_fft_infer,
    ref=_fft_ref,
    grad=lambda F, dys, xs, ys, **attrs: [F._contrib_ifft(dys[0], **attrs)],
    samples=(sample((3, 4)), sample((2, 1, 2, 5)), sample((1, 1))),
    doc=(
        "The discrete Fourier transform of the last axis; real and imaginary parts lie side by"
        " side: (..., n) -> (..., 2 n). compute_size changes nothing."
    ),
)
operator(
    "_contrib_ifft",
    params=_SIZE,
    infer=_ifft_infer,
    ref=_ifft_ref,
    grad=lambda F, dys, xs, ys, **attrs: [F._contrib_fft(dys[0], **attrs)],
    samples=(sample((3, 4)), sample((2, 1, 2, 6)), sample((1, 2))),
    doc=(
        "The real part of the inverse of _contrib_fft times n, which is not divided out: (..., 2 n)"
        " -> (..., n). compute_size changes nothing."
    ),
)


_SKETCH = "_contrib_count_sketch"


def _sketch_infer(ins, out_dim, processing_batch_size):
    x, h, s = (t.shape for t in ins)
    dtype = same_dtype(_SKETCH, (ins[0], ins[2]), ("data", "s"))
    if len(x) < 2 or out_dim < 1:
        raise ShapeError(_SKETCH, f"needs data (rows, n) and out_dim >= 1, got {x}, {out_dim}")
    for shape, name, t in ((h, "h", ins[1]), (s, "s", ins[2])):
        if shape != x[-1:]:
            must_be(_SKETCH, name, t, (1, x[-1]))
    return [Type((*x[:-1], out_dim), dtype)]


def _sketch_ref(xp, x, h, s, *, out_dim, processing_batch_size):
    y, h = xp.zeros((*x.shape[:-1], out_dim), x.dtype), h.reshape(-1)
    xp.add.at(y, (..., numbered(xp, _SKETCH, "h", h, out_dim)), x * s.reshape(-1))
    return y


def _sketch_grad(F, dys, xs, ys, out_dim, processing_batch_size):
    x, h, s = xs
    sign = F.reshape_to(s, shape=(*[1] * (len(x.shape) - 1), x.shape[-1]))
    picked = F.take(dys[0], F.reshape_to(h, shape=(x.shape[-1],)), axis=-1)
    return [F.broadcast_mul(picked, sign), None, None]


operator(
    _SKETCH,
    inputs=("data", "h", "s"),
    params=(Param("out_dim", "int"), Param("processing_batch_size", "int", 32)),
    infer=_sketch_infer,
    ref=_sketch_ref,
    grad=_sketch_grad,
    samples=(
        sample((3, 5), ints((1, 5), 0, 4), ints((1, 5), -1, 2), out_dim=4),
        sample((2, 3, 5), ints((5,), 0, 4), ints((5,), -1, 2), out_dim=4),
    ),
    doc=(
        "Count sketch of the last axis: y[h[j]] is the sum of s[j] * data[j]. h: whole numbers in"
        " [0, out_dim), s: 1 or -1. Source: Pham and Pagh 2013."
    ),
)


# ---- correlation ---------------------------------------------------------------------------------


def _correlate_infer(ins, pad):
    dtype = same_dtype("_correlate", ins, ("data", "weight"))
    if any(len(t.shape) != 1 or not t.shape[0] for t in ins):
        raise ShapeError("_correlate", f"needs two vectors with elements, got {ins}")
    n = ins[0].shape[0] + 2 * pad - ins[1].shape[0] + 1
    if n < 1:
        raise ShapeError("_correlate", f"weight is longer than data with its padding, got {ins}")
    return [Type((n,), dtype)]


def _correlate_ref(xp, x, w, *, pad):
    wide = xp.pad(x.astype(xp.float64), pad)
    windows = xp.lib.stride_tricks.sliding_window_view(wide, w.shape[0])
    return xp.sum(windows * w.astype(xp.float64), axis=1)


def _correlate_grad(F, dys, xs, ys, pad):
    x, w = xs
    n, k = x.shape[0], w.shape[0]
    part = lambda a, begin, end: F.slice_axis(a, axis=0, begin=begin, end=end)
    # of all sums of dy with the weights turned round, those of the data's places
    dx = F._correlate(dys[0], F.reverse(w, axis=0), pad=k - 1)
    dx = dx if not pad else part(dx, pad, pad + n)
    # dw[j] = sum over i of data[i + j - pad] dy[i]
    return [dx, F._correlate(x, dys[0], pad=pad)]


operator(
    "_correlate",
    inputs=("data", "weight"),
    params=(Param("pad", "int", 0, limits=(0, LARGE[1])),),
    infer=_correlate_infer,
    ref=_correlate_ref,
    grad=_correlate_grad,
    samples=(
        sample((7,), (3,)),
        sample((40,), (5,), pad=4),
        sample((70,), (6,), pad=2),
        sample((3,), (5,), pad=2),
    ),
    doc=(
        "y[i] = sum over j of data[i + j - pad] weight[j], of two vectors; data is 0 outside of its"
        " places."
    ),
)
