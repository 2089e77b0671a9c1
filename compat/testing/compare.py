"""Comparisons of arrays, graphs and speeds of mx.test_utils, besides assert_almost_equal."""

from __future__ import annotations

import json
import platform
import time
from typing import Any

import numpy as np

from ...engine import Context, current_context, waitall
from ...engine.error import InvalidValue


def checkShapes(a: Any, b: Any) -> None:  # noqa: N802 - MXNet's name
    """Raises AssertionError if two arrays differ in shape."""
    if a.shape != b.shape:
        raise AssertionError(f"a.shape = {a.shape} and b.shape = {b.shape} are not equal")


def get_etol(etol: Any = None) -> float:
    """The fraction of elements that may be wrong; default 0."""
    return 0 if etol is None else etol


def locationError(a: Any, b: Any, index: Any, names: Any, maxError: bool = False) -> str:  # noqa: N802, N803 - MXNet's names
    """A description of where two arrays differ."""
    most = "maximum " if maxError else ""
    return f"Location of {most}error: {index}, {names[0]}={a[index]:.8f}, {names[1]}={b[index]:.8f}"


def same_symbol_structure(sym1: Any, sym2: Any) -> bool:
    """Have two graphs the same operators in the same order?"""
    first, second = ([node["op"] for node in json.loads(s.tojson())["nodes"]] for s in (sym1, sym2))
    return first == second


def check_speed(
    sym: Any,
    location: Any = None,
    ctx: Context | None = None,
    N: int = 20,
    grad_req: Any = None,
    typ: str = "whole",
    **kwargs: Any,
) -> float:
    """Seconds that a symbol takes for one pass, the mean of N.

    Args:
        location: {input name: NumPy array}; default normal numbers of the shapes in kwargs.
        typ: "whole" for forward and backward, "forward".
    """
    if typ not in ("whole", "forward"):
        raise InvalidValue(f"check_speed: typ must be 'whole' or 'forward', got {typ!r}")
    shapes = kwargs if location is None else {k: v.shape for k, v in location.items()}
    executor = sym.simple_bind(ctx or current_context(), grad_req=grad_req or "write", **shapes)
    if location is None:
        location = {k: np.random.normal(size=a.shape) for k, a in executor.arg_dict.items()}
    for name, values in location.items():
        executor.arg_dict[name][:] = values

    def step():
        executor.forward(is_train=typ == "whole")
        if typ == "whole":
            executor.backward(out_grads=executor.outputs)

    step()
    waitall()
    start = time.perf_counter()
    for _ in range(N):
        step()
    waitall()
    return (time.perf_counter() - start) / N


def is_op_runnable() -> bool:
    """Can operators run on the current context?"""
    current_context().check()
    return True


def has_tvm_ops() -> bool:
    """Are there TVM operators? There are none."""
    return False


def is_cd_run() -> bool:
    """Is this a run of MXNet's own release tests? It is not."""
    return False


def is_aarch64_run() -> bool:
    """Is this a 64-bit ARM machine?"""
    return platform.machine() in ("aarch64", "arm64")
