"""What differs between two results of one call."""

from __future__ import annotations

import numpy as np

# MXNet computes many float64 operators with float32 constants and functions
TOLERANCE = {"float64": 2e-6, "float32": 2e-4, "float16": 2e-2}


class Call:
    """One call; its text runs in either framework."""

    def __init__(self, case: dict, arrays: dict):
        self.case, self.attrs = case, case["attrs"]
        self.operator, self.ours = case["operator"], case["ours"]
        self.arrays = [arrays[f"a{i}"] for i in range(len(arrays))]
        self.dtypes = [a.dtype.name for a in self.arrays]
        self.finite = all(np.isfinite(a).all() for a in self.arrays if a.dtype.kind == "f")

    def __str__(self) -> str:
        arrays = [
            f"array({a.tolist()}, dtype='{a.dtype}')" if a.size <= 16 else f"<{a.dtype} {a.shape}>"
            for a in self.arrays
        ]
        attrs = [f"{k}={v!r}" for k, v in self.attrs.items()]
        return f"{self.operator}({', '.join([*arrays, *attrs])})"


def far(ours: np.ndarray, theirs: np.ndarray, given: list[str]) -> np.ndarray:
    """Where two arrays of one shape differ by more than rounding."""
    if ours.dtype.kind != "f":
        return ours != theirs
    precision = [TOLERANCE[d] for d in (ours.dtype.name, *given) if d in TOLERANCE]
    tolerance = max(precision)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = b[np.isfinite(b)]
    scale = np.abs(finite).max(initial=1e-2)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= tolerance * np.maximum(np.abs(b), min(scale, 1))
    return ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))


def moments_differ(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Are these draws of two distributions? Means and spreads, within 7 standard errors."""
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    spread = max(a.std(), b.std(), 1e-6)
    error = 7 * spread / a.size**0.5
    return abs(a.mean() - b.mean()) > error or abs(a.std() - b.std()) > 2 * error


def differences(call: Call, ours: dict, theirs: dict) -> list[tuple[str, str]]:
    """(what: outputs, shape, dtype, values, inputs after, gradient; text), for each array."""
    found = []
    for key in sorted({*ours, *theirs}):
        if key == "no_gradient" or (key[0] == "g" and "no_gradient" in theirs):
            continue
        what = {"y": "values", "x": "input after", "g": "gradient"}[key[0]]
        if key not in ours or key not in theirs:
            side = "plait" if key in theirs else "MXNet"
            why = (ours if key in theirs else theirs).get("no_gradient", "")
            what = "gradient" if key[0] == "g" else "outputs"
            found.append((what, f"{key} is missing in {side} {why}"))
            continue
        a, b = ours[key], theirs[key]
        if a.shape != b.shape:
            found.append(("shape", f"{key} plait {a.shape}, MXNet {b.shape}"))
        elif a.dtype != b.dtype:
            found.append(("dtype", f"{key} plait {a.dtype}, MXNet {b.dtype}"))
        elif call.case["random"]:
            if key[0] == "y" and a.size >= 1000 and moments_differ(a, b):
                found.append(
                    (
                        "moments",
                        f"{key} mean plait {a.mean():g}, MXNet {b.mean():g}; "
                        f"spread plait {a.std():g}, MXNet {b.std():g}",
                    )
                )
        else:
            wrong = far(a, b, [*call.dtypes, str(call.attrs.get("dtype"))])
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                found.append(
                    (
                        what,
                        f"{key}{list(at)} plait {a[at]!r}, MXNet {b[at]!r} "
                        f"({int(wrong.sum())} of {a.size} elements)",
                    )
                )
    return found
