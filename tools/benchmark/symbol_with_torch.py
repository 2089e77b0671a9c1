"""A network of plait's, from its symbol's JSON, as a torch module: so peers run the same layers."""

from __future__ import annotations

import json
from ast import literal_eval
from typing import Any

import torch
from torch import nn

ACTIVATIONS = {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}


class Network(nn.Module):
    """The graph of a symbol with one input, node by node. Weights are torch's random ones."""

    def __init__(self, text: str):
        super().__init__()
        graph = json.loads(text)
        self.steps = []  # (number, operator, module or attributes, inputs)
        for i, node in enumerate(graph["nodes"]):
            if node["op"] == "null":
                continue
            attrs = {k: _value(v) for k, v in node.get("attrs", {}).items()}
            inputs = [at[0] for at in node["inputs"]]
            made = MODULES[node["op"]](attrs) if node["op"] in MODULES else None
            if made is not None:
                self.add_module(f"n{i}", made)
                inputs = inputs[:1]
            self.steps.append((i, node["op"], made, attrs, inputs))
        self.last = graph["heads"][0][0]

    def forward(self, x: Any) -> Any:
        values: dict[int, Any] = {}
        for i, op, module, attrs, inputs in self.steps:
            given = [values.get(k, x) for k in inputs]  # what no step makes is the data
            values[i] = module(*given) if module is not None else FUNCTIONS[op](attrs, *given)
        return values[self.last]


def network(text: str, x: Any) -> nn.Module:
    """The module for inputs like x."""
    torch.manual_seed(0)
    net = Network(text)
    with torch.no_grad():
        net.eval()(x)  # sets the sizes of its lazy layers
    return net


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _convolution(a: dict) -> nn.Module:
    return nn.LazyConv2d(
        a["num_filter"],
        a["kernel"],
        a.get("stride") or 1,
        a.get("pad") or 0,
        a.get("dilate") or 1,
        groups=a.get("num_group", 1),
        bias=not a.get("no_bias", False),
    )


def _pooling(a: dict) -> nn.Module:
    average = a.get("pool_type", "max") == "avg"
    if a.get("global_pool"):
        return nn.AdaptiveAvgPool2d(1) if average else nn.AdaptiveMaxPool2d(1)
    ceil = a.get("pooling_convention", "valid") == "full"
    sizes = (a["kernel"], a.get("stride") or 1, a.get("pad") or 0)
    if average:
        return nn.AvgPool2d(*sizes, ceil, a.get("count_include_pad", True))
    return nn.MaxPool2d(*sizes, ceil_mode=ceil)


def _dense(a: dict) -> nn.Module:
    layer = nn.LazyLinear(a["num_hidden"], bias=not a.get("no_bias", False))
    return nn.Sequential(nn.Flatten(), layer) if a.get("flatten", True) else layer


MODULES = {
    "Convolution": _convolution,
    "BatchNorm": lambda a: nn.LazyBatchNorm2d(a.get("eps", 1e-3), 1 - a.get("momentum", 0.9)),
    "Activation": lambda a: ACTIVATIONS[a["act_type"]](),
    "Pooling": _pooling,
    "FullyConnected": _dense,
    "Flatten": lambda a: nn.Flatten(),
    "Dropout": lambda a: nn.Dropout(a.get("p", 0.5)),
    "clip": lambda a: nn.Hardtanh(a["a_min"], a["a_max"]),
}
FUNCTIONS = {
    "elemwise_add": lambda a, x, y: x + y,
    "Concat": lambda a, *parts: torch.cat(parts, a.get("dim", 1)),
}
