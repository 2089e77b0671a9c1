"""What differs between two results of one call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# MXNet computes many float64 operators with float32 constants and functions
TOLERANCE = {"float64": 2e-6, "float32": 2e-4, "float16": 2e-2}


class Difference(NamedTuple):
    """what: outputs, shape, dtype, values, input after, gradient, moments, symbol, refusal,
    failure. key: the array that differs (y0: first output, g0: gradient of the first input, x0:
    first input after the call), and where it does."""

    what: str
    text: str
    key: str = ""
    wrong: np.ndarray | None = None


class Call:
    """One call and what became of it in both; its text runs in either framework.

    made, expected: what plait and MXNet made, by key (also h0: the gradient that the first output
    was given); empty where the framework has no answer.
    """

    def __init__(self, case: dict, arrays: dict, ours: dict | None = None, theirs=None):
        self.case, self.attrs = case, case["attrs"]
        self.made, self.expected = ours or {}, theirs or {}
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


KINDS = {"y": "values", "x": "input after", "g": "gradient", "k": "second gradient"}


def differences(call: Call) -> list[Difference]:
    """What differs between a call's arrays, for each of them."""
    ours, theirs = call.made, call.expected
    found = []
    for key in sorted(k for k in {*ours, *theirs} if k[0] in KINDS):
        if key[0] == "g" and "no_gradient" in theirs or key[0] == "k" and key not in theirs:
            continue
        what = KINDS[key[0]]
        if key not in ours or key not in theirs:
            side = "plait" if key in theirs else "MXNet"
            missing = ours if key in theirs else theirs
            why = missing.get("no_gradient", missing.get("no_second", ""))
            what = KINDS[key[0]] if key[0] in "gk" else "outputs"
            found.append(Difference(what, f"{key} is missing in {side} {why}", key))
            continue
        a, b = ours[key], theirs[key]
        if a.shape != b.shape:
            found.append(Difference("shape", f"{key} plait {a.shape}, MXNet {b.shape}", key))
        elif a.dtype != b.dtype:
            found.append(Difference("dtype", f"{key} plait {a.dtype}, MXNet {b.dtype}", key))
        elif call.case["random"]:
            if key[0] == "y" and a.size >= 1000 and moments_differ(a, b):
                text = (
                    f"{key} mean plait {a.mean():g}, MXNet {b.mean():g}; "
                    f"spread plait {a.std():g}, MXNet {b.std():g}"
                )
                found.append(Difference("moments", text, key))
        else:
            wrong = far(a, b, [*call.dtypes, str(call.attrs.get("dtype"))])
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                text = (
                    f"{key}{list(at)} plait {a[at]!r}, MXNet {b[at]!r} "
                    f"({int(wrong.sum())} of {a.size} elements)"
                )
                found.append(Difference(what, text, key, wrong))
    return found
