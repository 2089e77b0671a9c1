"""Compression of what is sent: Compression.none, Compression.fp16."""

from __future__ import annotations

from typing import Any

from ....ndarray import NDArray


class Compressor:
    """Encodes an array for sending, and decodes it."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """(what is sent, what decompress needs)."""
        return tensor, None

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """The array, in its first dtype."""
        return tensor


class NoneCompressor(Compressor):
    """Sends arrays as they are."""


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16; they are added in float16 too."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        wide = tensor._spec.dtype in ("float32", "float64")
        return (tensor.astype("float16") if wide else tensor), tensor._spec.dtype

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        return tensor.astype(ctx) if tensor._spec.dtype != ctx else tensor


class Compression:
    """What `DistributedTrainer(compression=...)` takes."""

    none = NoneCompressor
    fp16 = FP16Compressor
