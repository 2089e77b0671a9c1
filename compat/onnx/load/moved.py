"""Attributes that later opsets made inputs: every rule sees them as inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .graph import Node

# operator: (attribute, number of the input that it became, dtype; of the first input: "")
MOVED: dict[str, tuple[tuple[str, int, str], ...]] = {
    "Clip": (("min", 1, ""), ("max", 2, "")),
    "Dropout": (("ratio", 1, "float32"),),
    "Pad": (("pads", 1, "int64"), ("value", 2, "")),
    "Reshape": (("shape", 1, "int64"),),
    "Slice": (("starts", 1, "int64"), ("ends", 2, "int64"), ("axes", 3, "int64")),
    "Split": (("split", 1, "int64"),),
    "Squeeze": (("axes", 1, "int64"),),
    "TopK": (("k", 1, "int64"),),
    "Unsqueeze": (("axes", 1, "int64"),),
    "Upsample": (("scales", 1, "float32"),),
    **{
        f"Reduce{kind}": (("axes", 1, "int64"),)
        for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
    },
}


def adapted(node: Node, xs: Sequence[Any]) -> tuple[Node, Sequence[Any]]:
    """The inputs with those that older opsets have as attributes."""
    given = [m for m in MOVED.get(node.op, ()) if m[0] in node.attrs]
    if not given:
        return node, xs
    inputs = list(xs)
    for name, place, dtype in given:
        inputs += [None] * (place + 1 - len(inputs))
        inputs[place] = np.asarray(node.attrs[name], dtype or np.dtype(xs[0].dtype))
    return node, inputs
