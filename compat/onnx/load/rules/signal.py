"""Spectra: complex numbers are pairs of floats in the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...types import DTYPES
from ..run import Call, dtype_of, rule
from .shape import axis_of, padded, sliced


@rule("DFT", static=(1, 2))
def dft(c: Call, x: Any, length: Any = None, axis: Any = None) -> Any:
    given = int(axis.reshape(-1)[0]) if axis is not None else c("axis", 1 if c.opset < 20 else -2)
    at = axis_of(c, given, len(x.shape))
    n = int(length.reshape(-1)[0]) if length is not None else x.shape[at]
    if n < x.shape[at]:
        x = sliced(c, x, at, 0, n)
    x = padded(c, x, [(0, n - x.shape[at]) if i == at else (0, 0) for i in range(len(x.shape))])
    inverse = bool(c("inverse", 0))
    return _transform(c, x, at, n, inverse, bool(c("onesided", 0)))


def _transform(c: Call, x: Any, at: int, n: int, inverse: bool, one_sided: bool) -> Any:
    """The discrete Fourier transform along an axis as two products."""
    rows = n // 2 + 1 if one_sided else n
    angle = -2 * np.pi * np.outer(np.arange(n), np.arange(rows)) / n
    angle = -angle if inverse else angle
    scale = 1 / n if inverse else 1.0
    dtype = np.dtype(dtype_of(x))
    cos, sin = (c.array((f(angle) * scale).astype(dtype)) for f in (np.cos, np.sin))
    last = len(x.shape) - 1

    def product(part: Any, matrix: Any) -> Any:
        return c.np.swapaxes(c.np.matmul(c.np.swapaxes(part, at, -1), matrix), at, -1)

    real = c.np.squeeze(sliced(c, x, last, 0, 1), axis=last)
    re, im = product(real, cos), product(real, sin)
    if x.shape[last] == 2:
        other = c.np.squeeze(sliced(c, x, last, 1, 2), axis=last)
        re, im = re - product(other, sin), im + product(other, cos)
    return c.np.stack([re, im], axis=last)


@rule("STFT", static=(1, 3))
def stft(c: Call, x: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    hop = int(step.reshape(-1)[0])
    size = int(length.reshape(-1)[0]) if length is not None else window.shape[0]
    count = (x.shape[1] - size) // hop + 1
    if hop < 1 or count < 1:
        raise c.fail(f"a frame of {size} and a step of {hop} do not fit {x.shape[1]} values")
    if len(x.shape) == 2:
        x = c.np.expand_dims(x, 2)
    at = np.arange(count)[:, None] * hop + np.arange(size)
    frames = c.np.take(x, c.array(at.astype(np.int64)), axis=1, mode="clip")
    if window is not None:
        frames = frames * c.np.reshape(window, (1, 1, -1, 1))
    return _transform(c, frames, 2, size, False, bool(c("onesided", 1)))


@rule("MelWeightMatrix", static=(0, 1, 2, 3, 4))
def mel_weight_matrix(c: Call, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    n, size, hertz = (int(v.reshape(-1)[0]) for v in (bins, length, rate))
    rows = size // 2 + 1
    ends = [2595 * np.log10(1 + float(f.reshape(-1)[0]) / 700) for f in (low, high)]
    step = (ends[1] - ends[0]) / (n + 2)
    mel = np.arange(n + 2) * step + ends[0]
    edges = ((size + 1) * (700 * (10 ** (mel / 2595) - 1)) // hertz).astype(int)
    made = np.zeros((rows, n))
    for i in range(n):
        left, center, right = edges[i : i + 3]
        if center == left:
            made[center, i] = 1
        else:
            at = np.arange(left, center + 1)
            made[at, i] = (at - left) / (center - left)
        if right > center:
            at = np.arange(center, right)
            made[at, i] = (right - at) / (right - center)
    return made.astype(DTYPES[c("output_datatype", 1)])
