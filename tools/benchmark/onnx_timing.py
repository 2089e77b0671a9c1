"""What the scripts onnx_with_*.py share: a loop that times calls when it is asked. It imports no
framework."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

SECONDS = 0.3  # of a turn
CALLS = 500  # of a turn, at most


def serve(make: Callable[[str, dict[str, Any]], Callable[[], Sequence[Any]]]) -> None:
    """Runs `script FILE INPUTS OUTPUTS`: for each line on standard input it calls the network for a
    while and prints seconds of each call. make: (file, inputs) -> the call."""
    file, inputs, outputs = sys.argv[1:]
    call = make(file, dict(np.load(inputs)))
    np.savez(outputs, **{str(i): x for i, x in enumerate(call())})
    for _ in sys.stdin:
        seconds: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(seconds) < 3 or len(seconds) < CALLS and time.perf_counter() < end:
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)
