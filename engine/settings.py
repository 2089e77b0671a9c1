"""The environment variables of plait: this table has all; nothing else reads the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple


class Setting(NamedTuple):
    default: Any
    parse: Callable[[str], Any]
    doc: str


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not (value == 0 or 0.1 <= value <= 86400):
        raise ValueError
    return value


def _engine(text: str) -> str:
    if text not in ("threaded", "naive"):
        raise ValueError
    return text


def _switch(text: str) -> int:
    if text not in ("0", "1"):
        raise ValueError
    return int(text)


def _tier(text: str) -> int | str:
    return text if text == "ready" else _switch(text)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(t.strip() for t in text.split(",") if t.strip())
    if any(t not in ("hybridize", "gpu", "ops") for t in topics):
        raise ValueError
    return topics


SETTINGS = {
    "PLAIT_ENGINE": Setting(
        "threaded", _engine, "threaded, or naive: every operation runs on its caller, in order"
    ),
    "PLAIT_PENDING_OPS": Setting(
        4096, _positive, "a push waits while so many operations are queued"
    ),
    "PLAIT_PENDING_MB": Setting(
        None,
        _positive,
        "a push waits while queued operations hold so many MB of new "
        "arrays; default: 128, at most a quarter of the machine's memory",
    ),
    "PLAIT_TIER": Setting(
        1,
        _tier,
        "1: what runs again is compiled in the background, and used from a call on that does not "
        "depend on the clock; ready: used as soon as it is compiled; 0: never compiled, for "
        "debugging",
    ),
    "PLAIT_LOG": Setting(
        (),
        _topics,
        "hybridize: a line for each signature of a hybridized block and each program swapped in; "
        "gpu: a line for each operator that has no kernel on GPUs; ops: a line for each operation "
        "that ran, with its thread, time and shapes",
    ),
    "PLAIT_CC": Setting(
        None,
        str,
        "the C compiler that makes fused kernels while a program runs, or none; default: the "
        "first of cc, gcc and clang",
    ),
    "PLAIT_CUDA_LIBRARIES": Setting(
        None, str, "a folder where the CUDA driver and its libraries are looked for first"
    ),
    "PLAIT_TF32": Setting(
        0,
        _switch,
        "1: float32 products on a GPU round their operands to TF32, as MXNet does with "
        "MXNET_CUDA_TENSOR_OP_MATH_ALLOW_CONVERSION=1; 0: they do not",
    ),
    "PLAIT_COMM_TIMEOUT": Setting(
        60.0,
        _seconds,
        "seconds without a message after which a collective that waits fails; a rank without a "
        "sign of life for a sixth of it, at least 2 s and at most 10 s, is given up, and the job "
        "with it; 0: for ever, for debuggers that stop a rank",
    ),
    "PLAIT_PROFILE": Setting(
        None, str, "a file: profile from the start and write the trace there at exit"
    ),
}


def get(name: str) -> Any:
    """The value of a setting. Raises ValueError if the environment holds something else."""
    setting = SETTINGS[name]
    text = os.environ.get(name)
    if not text:
        return setting.default
    try:
        return setting.parse(text)
    except ValueError:
        raise ValueError(
            f"{name}={text}: not a value of this variable\n  fix: {setting.doc}"
        ) from None


def cache_home() -> str:
    """Where programs keep what they can make again. Source: XDG Base Directory Specification."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return home if os.path.isabs(home) else os.path.join(os.path.expanduser("~"), ".cache")
