"""What a checkpoint saves of a block: the values of its parameters on each device, and the sums of
gradients that may still grow."""

from __future__ import annotations

from typing import Any

from ..ndarray import saved_state
from ..ndarray.saved_state import StateError
from ..training.checkpoint import HasParameters
from .parameter import Parameter
from .parameter_dict import check_names


class SavedBlock(HasParameters):
    """The part of Block that checkpoints call."""

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        raise NotImplementedError  # Block defines it

    def _structural_names(self) -> dict[Any, str]:
        found: dict[Any, str] = {}
        for name, parameter in self._collect_params_with_prefix().items():
            found.setdefault(parameter, name)
        return found

    def _saved_parameters(self) -> dict:
        values, grads = {}, {}
        for parameter, name in self._structural_names().items():
            if parameter._data is None:
                raise parameter._not_initialized()
            values[name] = saved_state.device_copies(parameter._data)
            if parameter.grad_req == "add":  # a sum that may still grow
                grads[name] = saved_state.device_copies(parameter._grad)
        return {"values": values, "grads": grads}

    def _restore_parameters(self, found: dict, where: str) -> None:
        wanted = {name: parameter for parameter, name in self._structural_names().items()}
        values = found["values"]
        check_names(wanted, values, where, False, False)
        for name, parameter in wanted.items():  # nothing is written unless all of it fits
            parameter._check_load(values[name][0], False)
            made = parameter._data is not None or parameter._deferred_init
            here = len(parameter.list_ctx()) if made else 1
            if len(values[name]) not in (1, here):
                raise StateError(
                    f"{where}: {name} was saved on {len(values[name])} devices, here it is on"
                    f" {here}"
                )
        for name, parameter in wanted.items():
            parameter._load_init(values[name][0], None)
            if len(values[name]) > 1:
                saved_state.spread(values[name], parameter._data)
            if name in found["grads"] and parameter.grad_req == "add":
                saved_state.spread(found["grads"][name], parameter._grad)
