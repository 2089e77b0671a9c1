"""activations.cuh: the activations as functions of CUDA kernels."""

from __future__ import annotations

from ..cpu.generate import cases, kinds


def activation_cuda() -> str:
    """activations.cuh: the same for CUDA kernels, in float and double."""
    functions = "".join(
        f"DEVICE {ctype} activated(int act, {ctype} x, {ctype} low, {ctype} high)\n{{\n"
        f"    switch (act) {{\n{cases(dtype, lambda a: a.text, 'ACT_')}    }}\n    return x;\n}}\n"
        for dtype, ctype in (("float32", "float"), ("float64", "double"))
    )
    return (
        f'/* Written by kernels/cuda/activation_source.py. */\n#pragma once\n#include "math.cuh"\n'
        f"enum {{\n    {kinds('ACT_')}\n}};\n/* act(x); low, high: the numbers of some */\n"
        f"{functions}"
    )
