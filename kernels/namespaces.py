"""Namespaces of operators, whose functions are made on first use: nd.relu is the operator relu,
nd.linalg.gemm2 is _linalg_gemm2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..engine import missing
from ..engine.error import did_you_mean
from .record import REGISTRY


def derive(
    module: str,
    make: Callable[[str, str], Any],
    *prefixes: str,
    shown: str,
    others: Mapping[str, str] | None = None,
    fixes: Mapping[str, str] | None = None,
    shows: Callable[[str], bool] = bool,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """(__getattr__, __dir__) of a module whose functions are the operators `prefix + name`.

    make: from an operator's name and the function's to the function. shown: the module's name in
        errors. others: operators with other names. fixes: what to use instead of names that there
        are not. shows: which operators, by their full names, are functions here.
    """
    others, fixes = others or {}, fixes or {}

    def get(name: str) -> Any:
        if name.startswith("__"):  # not an operator, and Python asks for some
            raise AttributeError(name)
        for full in (others.get(name, ""), *(prefix + name for prefix in prefixes)):
            if full in REGISTRY and shows(full):
                function = make(full, name)
                setattr(sys.modules[module], name, function)
                return function
        rule = f"module {shown!r} has no function {name!r}"
        advice = lambda: fixes.get(name) or did_you_mean(name, names())  # made when it is read
        raise missing.attribute(shown, name, rule, advice)

    def names() -> list[str]:
        known = [n for n in REGISTRY if shows(n)]
        every = {n.removeprefix(p) for p in prefixes for n in known if n.startswith(p)}
        if "_" not in prefixes:
            every = {n for n in every if not n.startswith("_")}
        defined = vars(sys.modules[module])
        here = [n for n, v in defined.items() if getattr(v, "__module__", None) == module]
        public = defined.get("__all__", [n for n in here if not n.startswith("_")])
        return sorted({*public, *every, *others})

    return get, names
