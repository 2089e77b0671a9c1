"""What the scripts decode_with_*.py share: the weights of a decoder, and a loop that generates
tokens whenever it is asked. It imports no framework."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Weights = dict[str, Any]


class Sizes(NamedTuple):
    """Of a decoder: GPT-2's layers, with positions learned."""

    vocabulary: int
    units: int
    heads: int
    layers: int
    prompt: int
    new: int

    @property
    def length(self) -> int:
        """Of the caches."""
        return self.prompt + self.new


def weights_of(s: Sizes) -> Weights:
    """The parameters by name; matrices are (outputs, inputs)."""
    rng, u = np.random.default_rng(7), s.units

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32) * np.float32(0.05)

    made = {"tokens": normal(s.vocabulary, u), "places": normal(s.length, u)}
    for i in range(s.layers):
        for name, n_out, n_in in (
            ("qkv", 3 * u, u),
            ("out", u, u),
            ("up", 4 * u, u),
            ("down", u, 4 * u),
        ):
            made[f"{name}{i}.weight"], made[f"{name}{i}.bias"] = normal(n_out, n_in), normal(n_out)
        for name in ("norm", "norm_up"):
            made[f"{name}{i}.gamma"], made[f"{name}{i}.beta"] = 1 + normal(u), normal(u)
    made["norm.gamma"], made["norm.beta"] = 1 + normal(u), normal(u)
    made["scores.weight"] = normal(s.vocabulary, u)
    return made


Step = Callable[[Any, int], Any]  # (tokens (1, n), position) -> the next token, as an array


def serve(make: Callable[[Sizes, str], Step]) -> None:
    """Runs `script MODE VOCABULARY UNITS ...`: for each line on standard input it generates tokens
    once and prints seconds of the prompt, seconds of each token, and the tokens.

    make: the step of a decoder in a mode, which starts anew at position 0.
    """
    mode, sizes = sys.argv[1], Sizes(*map(int, sys.argv[2:]))
    step = make(sizes, mode)
    prompt = np.arange(sizes.prompt, dtype=np.int64)[None] * 37 % sizes.vocabulary
    for _ in sys.stdin:
        tokens, seconds, given = [], [], prompt
        for i in range(sizes.new):
            start = time.perf_counter()
            given = step(given, sizes.prompt + i - 1 if i else 0)
            tokens.append(int(given[0, 0]))
            seconds.append(time.perf_counter() - start)
        print(json.dumps([seconds[0], seconds[1:], tokens]), flush=True)
