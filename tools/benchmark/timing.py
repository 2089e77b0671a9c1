"""Times one workload in this process and prints one JSON line: called at the end of every with_*.py
script."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from typing import Any

WARM_UP = 5


def nothing() -> None:
    pass


def peak_mib() -> Any:
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve(step: Any, sync: Any) -> None:
    """For each line on stdin, a number of seconds, prints the times of the calls that fit in."""
    print("ready", flush=True)
    for line in sys.stdin:
        times: list[float] = []
        end = time.perf_counter() + float(line)
        while time.perf_counter() < end or not times:
            start = time.perf_counter()
            step()
            sync()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


def time_workload(
    workloads: Any, sync: Any = nothing, settle: Any = nothing, memory: Any = peak_mib
) -> None:
    """Runs the workload that the command line names: `script NAME SECONDS`. 0 seconds: `serve`.

    workloads: name -> function that makes a step, a function without arguments; or (step, calls in
    one step); or (step, calls, bytes that a call must move). sync: waits until all steps are done.
    settle: waits for background compilation. memory: final MiB.
    Prints seconds a call (median and minimum of the repeats), seconds to the first result, MiB,
    bytes.
    """
    name, seconds = sys.argv[1], float(sys.argv[2])
    if name not in workloads:
        print(json.dumps(None))
        return
    made = workloads[name]()
    step, calls, *moved = made if isinstance(made, tuple) else (made, 1)

    def timed(n):
        start = time.perf_counter()
        for _ in range(n):
            step()
        sync()
        return (time.perf_counter() - start) / n

    first = timed(1)
    timed(WARM_UP)
    settle()
    timed(1)
    if seconds == 0:
        serve(step, sync)
        return
    n = 1  # more than one call: a loader may have its next batches ready
    while n * timed(n) < seconds / 10:
        n *= 2
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        times.append(timed(n))
    print(
        json.dumps(
            {
                "seconds": statistics.median(times) / calls,
                "least_seconds": min(times) / calls,
                "first_seconds": first / calls,
                "peak_mib": memory(),
                "bytes": moved[0] if moved else 0,
            }
        )
    )
