"""The default device, dtype and tolerances of tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine import Context, current_context
from ...kernels.spec import DType

_RTOL = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-5}
_ATOL = {np.dtype(np.float16): 1e-1, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-20}


def default_context() -> Context:
    """The device that tests use."""
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Makes ctx the default device of this thread outside any `with`."""
    Context.default_ctx = ctx


def default_dtype() -> Any:
    """The dtype of test data: float32."""
    return np.float32


def default_rtols() -> dict:
    """Relative tolerance by dtype; integers and bools compare exactly."""
    return {**_RTOL, **{np.dtype(t): 0 for t in ("bool", "int8", "uint8", "int32", "int64")}}


def default_atols() -> dict:
    """Absolute tolerance by dtype."""
    return {**_ATOL, **{np.dtype(t): 0 for t in ("bool", "int8", "uint8", "int32", "int64")}}


def default_numeric_eps() -> dict:
    """Step of numeric differentiation by dtype."""
    return {
        np.dtype(np.float16): 2.0**-6,
        np.dtype(np.float32): 2.0**-9,
        np.dtype(np.float64): 2.0**-14,
    }


def effective_dtype(dat: Any) -> Any:
    """The dtype whose precision data has."""
    return np.dtype(dat.dtype if hasattr(dat, "dtype") else np.float64)


def get_tolerance(dat: Any, tol: Any, default_tol: Any) -> Any:
    """A tolerance given as None (default), a number, or a dictionary by dtype."""
    if isinstance(tol, (int, float)):
        return tol
    table = default_tol if tol is None else {np.dtype(k): v for k, v in tol.items()}
    return table.get(effective_dtype(dat), 0)


def get_tols(x: Any, y: Any, rtol: Any = None, atol: Any = None) -> Any:
    """The looser of two arrays' tolerances."""
    return (
        max(get_tolerance(x, rtol, default_rtols()), get_tolerance(y, rtol, default_rtols())),
        max(get_tolerance(x, atol, default_atols()), get_tolerance(y, atol, default_atols())),
    )


def get_rtol(rtol: Any = None, dtype: DType = np.dtype("float64")) -> Any:
    """rtol, or the default of a dtype."""
    return default_rtols()[np.dtype(dtype)] if rtol is None else rtol


def get_atol(atol: Any = None, dtype: DType = np.dtype("float64")) -> Any:
    """atol, or the default of a dtype."""
    return default_atols()[np.dtype(dtype)] if atol is None else atol
