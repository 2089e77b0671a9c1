"""Checkpoints of symbolic models: prefix-symbol.json and prefix-0001.params."""

from __future__ import annotations

import logging

from .. import symbol as sym
from ..engine.error import InvalidValue
from ..ndarray import NDArray, serialization


def split_names(named: list[NDArray] | dict[str, NDArray], where: str) -> tuple[dict, dict]:
    """(arguments, auxiliary states) from names with the prefixes "arg:" and "aux:". Raises
    InvalidValue for other names, and for arrays without names."""
    if isinstance(named, list):
        raise InvalidValue(f"load_params: the arrays of {where} have no names")
    found: dict[str, dict[str, NDArray]] = {"arg": {}, "aux": {}}
    for name, array in named.items():
        kind, _, rest = name.partition(":")
        if kind not in found or not rest:
            raise InvalidValue(
                f"Invalid param file {where}: every name must begin with arg: or aux:, got {name!r}"
            )
        found[kind][rest] = array
    return found["arg"], found["aux"]


def load_params(prefix: str, epoch: int) -> tuple[dict, dict]:
    """(arg_params, aux_params), dicts of NDArrays, from prefix-EPOCH.params."""
    where = f"{prefix}-{epoch:04d}.params"
    loaded = serialization.load(where)
    if not loaded:
        logging.warning("Params file '%s' is empty", where)
        return {}, {}
    return split_names(loaded, where)


def load_checkpoint(prefix: str, epoch: int) -> tuple:
    """(symbol, arg_params, aux_params) from prefix-symbol.json and prefix-EPOCH.params, written by
    save_checkpoint, Module or HybridBlock.export."""
    return (sym.load(f"{prefix}-symbol.json"), *load_params(prefix, epoch))
