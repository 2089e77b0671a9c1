"""Kernels as on a lesser machine: `pytest --isa avx2`, and what processes of the fuzzer draw."""

from __future__ import annotations

import importlib

# name: the level in the core
ISAS = {
    "baseline": "PLK_BASELINE",
    "avx2": "PLK_AVX2",
    "avx512": "PLK_AVX512",
}


def limit(isa: str) -> None:
    """This process uses no better kernels than those of `isa`."""
    lib = importlib.import_module("plait.engine").lib
    lib.plk_isa_limit(getattr(lib, ISAS[isa]))


def available() -> list[str]:
    """Those that this machine runs."""
    lib = importlib.import_module("plait.engine").lib
    return [isa for isa, level in ISAS.items() if getattr(lib, level) <= lib.plk_isa_best()]
