"""np.fft: NumPy's own transforms. plait has no complex dtype: spectra are arrays of NumPy, what is
real comes back as an array of mx.np. They have no gradient; nd.contrib.fft and nd.contrib.ifft
have one, on real and imaginary parts side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from ...engine import missing
from .array import array, ndarray
from .fallback import fallback

OF_ARRAYS = (
    *("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2"),
    *("rfftn", "irfftn", "hfft", "ihfft", "fftshift", "ifftshift"),
)


def fftfreq(n: int, d: float = 1.0) -> ndarray:
    """The frequencies of fft of n samples that are d apart, a float32."""
    return array(onp.fft.fftfreq(n, d), "float32")


def rfftfreq(n: int, d: float = 1.0) -> ndarray:
    """The frequencies of rfft of n samples that are d apart, a float32."""
    return array(onp.fft.rfftfreq(n, d), "float32")


def __getattr__(name: str) -> Callable[..., Any]:
    if name in OF_ARRAYS:
        return fallback(f"fft.{name}")
    raise missing.attribute("np.fft", name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [*OF_ARRAYS, "fftfreq", "rfftfreq"]  # noqa: F822 - OF_ARRAYS are made by __getattr__
