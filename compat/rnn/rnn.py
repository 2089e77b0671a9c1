"""Checkpoints of models with recurrent cells: files have one array per gate."""

from __future__ import annotations

import warnings
from typing import Any

from ...training.callback import save_checkpoint
from ...training.model_params import load_checkpoint
from .base import BaseRNNCell

__all__ = [
    "do_rnn_checkpoint",
    "load_checkpoint",
    "load_rnn_checkpoint",
    "rnn_unroll",
    "save_checkpoint",
    "save_rnn_checkpoint",
]


def rnn_unroll(
    cell: Any,
    length: Any,
    inputs: Any = None,
    begin_state: Any = None,
    input_prefix: str = "",
    layout: str = "NTC",
) -> Any:
    """cell.unroll; kept for old scripts."""
    warnings.warn("rnn_unroll is deprecated. Please call cell.unroll directly.", stacklevel=2)
    return cell.unroll(length=length, inputs=inputs, begin_state=begin_state, layout=layout)


def _listed(cells) -> list:
    return [cells] if isinstance(cells, BaseRNNCell) else list(cells)


def save_rnn_checkpoint(
    cells: Any, prefix: str, epoch: int, symbol: Any, arg_params: Any, aux_params: Any
) -> None:
    """Writes prefix-symbol.json and prefix-EPOCH.params, with the weights of the cells unpacked."""
    for cell in _listed(cells):
        arg_params = cell.unpack_weights(arg_params)
    save_checkpoint(prefix, epoch, symbol, arg_params, aux_params)


def load_rnn_checkpoint(cells: Any, prefix: str, epoch: int) -> Any:
    """(symbol, arg_params, aux_params) of a checkpoint, with the weights of the cells packed."""
    symbol, arguments, auxiliary = load_checkpoint(prefix, epoch)
    for cell in _listed(cells):
        arguments = cell.pack_weights(arguments)
    return symbol, arguments, auxiliary


def do_rnn_checkpoint(cells: Any, prefix: str, period: int = 1) -> Any:
    """A callback for the end of an epoch that saves a checkpoint every `period` epochs."""
    period = int(max(1, period))

    def save(iter_no, sym=None, arg=None, aux=None):
        if (iter_no + 1) % period == 0:
            save_rnn_checkpoint(cells, prefix, iter_no + 1, sym, arg, aux)

    return save
