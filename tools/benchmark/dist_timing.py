"""Times the steps of one rank: alone, distributed, communication alone; for dist_with_*.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

WORKLOADS = {  # batch of a rank; sizes below
    "LSTM LM": 20,
    "ResNet-18": 4,
    "AlexNet": 16,
    "MLP 60 M": 32,
}
VOCABULARY, WIDTH, LENGTH = 5000, 256, 35  # of the LSTM LM; two layers
MLP = (4096, 4096, 4096, 4096, 2304)  # the width of each layer


def measure(
    rank: int,
    megabytes: float,
    seconds: float,
    align: Callable[[], None],
    steps: dict[str, Callable[[], None]],
    agreed: Callable[[float], float],
) -> None:
    """Rank 0 prints a line of JSON: lists of seconds and processor seconds of each kind of step.

    align: waits until all ranks are here and nothing runs; agreed: rank 0's value, on all ranks;
    steps: by kind. Kinds take turns, since the machine's speed drifts. One turn warms up, or two
    short ones; those that begin within `seconds` count, at least one.
    """
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    processor: dict[str, list[float]] = {kind: [] for kind in steps}

    def turn() -> None:
        for kind, step in steps.items():
            align()
            start, busy = time.perf_counter(), time.process_time()
            step()
            times[kind].append(time.perf_counter() - start)
            processor[kind].append(time.process_time() - busy)

    begin = time.perf_counter()
    turn()
    if agreed(begin + seconds / 2 - time.perf_counter()) > 0:
        turn()
    for some in (*times.values(), *processor.values()):
        some.clear()
    end = time.perf_counter() + seconds
    while not times["alone"] or agreed(end - time.perf_counter()) > 0:
        turn()
    if rank == 0:
        print(json.dumps({"mb": megabytes, "times": times, "processor": processor}), flush=True)
