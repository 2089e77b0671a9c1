"""The conditions under which a process runs its cases: instruction set, tier, threads."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import NamedTuple

import isa

ROOT = Path(__file__).resolve().parents[2]
BLOCK = {
    "operators": 600,
    "sizes": 150,
    "graphs": 60,
    "files": 1000,
    "nets": 8,
    "processes": 5,
}  # cases
ISA = "FUZZ_ISA"


class Conditions(NamedTuple):
    isa: str = "avx512"
    tier: str = "1"
    threads: int = 2

    def variables(self) -> dict[str, str]:
        return {
            ISA: self.isa,
            "PLAIT_TIER": self.tier,
            "OMP_NUM_THREADS": str(self.threads),
        }

    def environment(self) -> dict[str, str]:
        """Of a process with these conditions. Numbers do not depend on the hash seed."""
        return {**os.environ, "PYTHONHASHSEED": "0"} | {
            "PYTHONPATH": str(ROOT),
            **self.variables(),
        }

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.variables().items())


def drawn(target: str, seed: int, index: int) -> tuple[Conditions, int]:
    """The conditions of a case, and the first case after it that has others. In three blocks of
    cases each instruction set, tier and number of threads comes once."""
    size = BLOCK.get(target, 100)
    block = index // size
    rng = random.Random(f"conditions {target} {seed} {block // 3}")
    isas = isa.available()
    orders = (isas * 3)[:3], ["0", "1", "1"], [1, 2, 4]
    made = [rng.sample(order, 3)[block % 3] for order in orders]
    return Conditions(*made), (block + 1) * size


def apply() -> None:
    """Holds this process to the instruction set that its environment names."""
    if name := os.environ.get(ISA):
        isa.limit(name)
