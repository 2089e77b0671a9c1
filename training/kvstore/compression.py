"""Compressed gradients, in two bits or as float16; the error is added to the next gradient.

In two bits a value is -threshold, 0 or threshold.

A code stands for each value: 11 for threshold, 10 for -threshold, 00 for 0. Sixteen codes fill a
float32 word: value i lies in byte i // 4, the first one in its highest bits. Source: Seide et al.
2014, 1-bit stochastic gradient descent, with two bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...engine import cpu, push
from ...engine.error import DTypeError, InvalidValue
from ...ndarray import NDArray
from ...ndarray.creation import empty, zeros
from ...ndarray.saved_state import Stateful

CODES = np.array([0, 3, 2], np.uint8)  # of 0, 1, -1; as an index -1 is the last
SIGNS = np.array([0, 0, -1, 1], np.float32)  # of the codes
SHIFTS = np.array([6, 4, 2, 0], np.uint8)
WORD = 16  # values in one float32


def quantize(gradient: np.ndarray, residual: np.ndarray, threshold: float) -> np.ndarray:
    """Adds a gradient to the residual (in place), and subtracts the quantized part.

    Args:
        gradient, residual: (n,) float32.
    Returns: (ceil(n / 16),) float32, the packed codes.
    """
    residual += gradient
    signs = (residual >= threshold).astype(np.int8) - (residual <= -threshold)
    residual -= threshold * signs.astype(np.float32)
    codes = np.zeros(-(-len(signs) // WORD) * WORD, np.uint8)
    codes[: len(signs)] = CODES[signs]
    packed = np.bitwise_or.reduce(codes.reshape(-1, 4) << SHIFTS, axis=1)
    return packed.view(np.float32)


def dequantize(packed: np.ndarray, size: int, threshold: float) -> np.ndarray:
    """(size,) float32 from packed codes."""
    codes = (packed.view(np.uint8)[:, None] >> SHIFTS) & 3
    return SIGNS[codes.ravel()[:size]] * np.float32(threshold)


class GradientCompression(Stateful):
    """Compresses what devices or processes push; stores the residual of each (key, device).

    params: {"type": "2bit", "threshold": a number above 0, default 0.5}; between processes also
        {"type": "fp16"}. types: those that the store has.
    Raises: InvalidValue (MXNetError) for another type or threshold.
    """

    def __init__(self, params: Any, types: tuple[str, ...] = ("2bit",)):
        if not isinstance(params, dict):
            raise InvalidValue(
                f"unexpected type for param_dict: {type(params)}\n  fix: {{'type': '2bit'}}"
            )
        kind = params.get("type")
        if kind not in types:
            known = " or ".join(map(repr, types))
            raise InvalidValue(f"Unknown type for gradient compression {kind}\n  fix: {known}")
        self.kind = kind
        self.threshold = float(params.get("threshold", 0.5))
        if not self.threshold > 0:
            raise InvalidValue(f"threshold must be greater than 0, got {self.threshold}")
        self._residuals: dict[tuple, NDArray] = {}

    def through(self, key: Any, number: int, gradient: NDArray, priority: int = 0) -> NDArray:
        """The gradient of device `number` after compression and decompression; an operation on the
        engine.

        Raises DTypeError (MXNetError) unless it is float32.
        """
        if not gradient.context.on_host:  # on the host, where the bits are packed
            arrived = self.through(key, number, gradient.as_in_context(cpu()), priority)
            return arrived.as_in_context(gradient.context)
        residual, threshold = self._residual(key, number, gradient), self.threshold
        arrived = empty(gradient.shape, gradient.context)

        def compress():
            packed = quantize(gradient._memory().ravel(), residual._memory().reshape(-1), threshold)
            result = dequantize(packed, gradient.size, threshold)
            arrived._memory()[...] = result.reshape(gradient.shape)

        push(compress, [gradient, residual], [residual, arrived], lane="comm", priority=priority)
        return arrived

    def _residual(self, key: Any, number: int, gradient: NDArray) -> NDArray:
        if gradient._spec.dtype != "float32":
            raise DTypeError(
                "kvstore",
                f"gradient compression needs float32 gradients, got {gradient._spec.dtype} of key"
                f" {key!r}",
            )
        residual = self._residuals.get((key, number))
        if residual is None or residual.shape != gradient.shape:
            residual = self._residuals[key, number] = zeros(gradient.shape, gradient.context)
        return residual

    def encoded(self, key: Any, gradient: NDArray, priority: int = 0) -> NDArray:
        """What a process sends of a gradient on the host: packed codes, (n,) int32, or float16
        values of its shape."""
        residual, threshold = self._residual(key, 0, gradient), self.threshold
        if self.kind == "fp16":
            residual += gradient
            sent = residual.astype("float16")
            residual -= sent.astype("float32")
            return sent
        codes = self.buffer(gradient.shape)

        def pack():
            flat = residual._memory().reshape(-1)
            packed = quantize(gradient._memory().ravel(), flat, threshold)
            codes._memory()[...] = packed.view(np.int32)

        push(pack, [gradient, residual], [residual, codes], lane="comm", priority=priority)
        return codes

    def buffer(self, shape: tuple[int, ...]) -> NDArray:
        """An array of the shape and dtype that `encoded` gives for a gradient."""
        if self.kind == "fp16":
            return empty(shape, dtype="float16")
        return empty((-(-math.prod(shape) // WORD),), dtype="int32")

    def decoded(self, codes: NDArray, shape: tuple[int, ...], priority: int = 0) -> NDArray:
        """What a process sent; in two bits, the sum of what several did: their codes one after the
        other."""
        if self.kind == "fp16":
            return codes.astype("float32")
        total, threshold = empty(shape), self.threshold
        words = -(-total.size // WORD)

        def unpack():
            values = total._memory().reshape(-1)
            values[...] = 0
            for packed in codes._memory().reshape(-1, max(words, 1)):
                values += dequantize(packed.view(np.float32), total.size, threshold)

        push(unpack, [codes], [total], lane="comm", priority=priority)
        return total
