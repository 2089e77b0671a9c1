"""A target that fails on purpose: tests/test_fuzz.py sees what the fuzzer makes of it."""

from __future__ import annotations

import random

FAULTS = ("assert one == 2, f'one is {one}'", "[][one]", "import os; os.abort()", "pass")


def script(rng: random.Random, *_) -> tuple[str, str]:
    fault = rng.choice(FAULTS)
    return fault[:6], "\n".join(["one = 1", "two = 2", "three = 3", fault, "four = 4", ""])
