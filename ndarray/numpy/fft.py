"""np.fft: NumPy's transforms. plait has no complex dtype, so spectra are arrays of NumPy itself;
what is real comes back as an array of mx.np. They have no gradient: nd.contrib.fft and
nd.contrib.ifft have, with real and imaginary parts side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from ...engine.error import InvalidType, MXNetError
from ..ndarray import NDArray, state
from .array import array

OF_ARRAYS = (
    *("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2"),
    *("rfftn", "irfftn", "hfft", "ihfft", "fftshift", "ifftshift"),
)


def _transform(name: str) -> Callable[..., Any]:
    official = getattr(onp.fft, name)

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(a, NDArray):
            if state.recording and a._tape is not None:
                raise MXNetError(
                    f"np.fft.{name}: has no gradient, as plait has no complex dtype\n"
                    "  fix: nd.contrib.fft(x.as_nd_ndarray()), or autograd.pause()"
                )
            a = a.asnumpy()
        elif hasattr(a, "_call_operator"):
            raise InvalidType(f"np.fft.{name}: a must be an array, got a Symbol")
        made = official(a, *args, **kwargs)
        return made if made.dtype.kind == "c" else array(made)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"As numpy.fft.{name}: complex results are arrays of NumPy."
    return call


for _name in OF_ARRAYS:
    globals()[_name] = _transform(_name)


def fftfreq(n: int, d: float = 1.0) -> Any:
    """The frequencies of fft of n samples that are d apart, a float32."""
    return array(onp.fft.fftfreq(n, d), "float32")


def rfftfreq(n: int, d: float = 1.0) -> Any:
    """The frequencies of rfft of n samples that are d apart, a float32."""
    return array(onp.fft.rfftfreq(n, d), "float32")


__all__ = [*OF_ARRAYS, "fftfreq", "rfftfreq"]
