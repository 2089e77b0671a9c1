"""The table of rules: for an operator of plait, the nodes of ONNX that compute it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
# operators that have no form in ONNX: the pattern of their names, and why
REASONS: dict[str, str] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of operators: (g, *inputs, **attributes) -> a Tensor, or a list of the
    visible outputs. g is the Graph that the nodes go to; g.outs has the types of the outputs."""

    def add(made: Rule) -> Rule:
        for name in names:
            assert name not in RULES, name
            RULES[name] = made
        return made

    return add


def table(kinds: dict[str, str], make: Callable[[str], Rule]) -> None:
    """Rules that differ in one word: {word: "operator operator ..."}."""
    for kind, names in kinds.items():
        rule(*names.split())(make(kind))


def without(reason: str, names: str) -> None:
    """Says why operators have no form in ONNX."""
    REASONS.update(dict.fromkeys(names.split(), reason))


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """ "relu:Relu tanh:Tanh" as pairs."""
    for word in text.split():
        name, _, kind = word.partition(":")
        yield name, kind
