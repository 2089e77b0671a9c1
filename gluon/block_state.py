"""The state of a block in a checkpoint: the values of its parameters on each device, and gradients
that accumulate. Parameters are a dict by structural name."""

from __future__ import annotations

from ..ndarray import saved_state
from ..ndarray.saved_state import StateError
from . import shard
from .parameter import Parameter
from .parameter_dict import check_names


def names(parameters: dict[str, Parameter]) -> dict[Parameter, str]:
    """Each parameter once, with its first name: blocks may share it."""
    found: dict[Parameter, str] = {}
    for name, parameter in parameters.items():
        found.setdefault(parameter, name)
    return found


def save(parameters: dict[str, Parameter]) -> dict:
    """The values, and the gradients with grad_req "add", as plain data. Raises
    DeferredInitializationError or MXNetError for a parameter without a value."""
    values, grads = {}, {}
    for parameter, name in names(parameters).items():
        if parameter._data is None:
            raise parameter._not_initialized()
        values[name] = _saved(parameter, parameter._data)
        if parameter.grad_req == "add":  # accumulates over several backward passes
            grads[name] = _saved(parameter, parameter._grad)
    return {"values": values, "grads": grads}


def _saved(parameter: Parameter, arrays) -> list:
    """Those of all devices; of a parameter that is split over ranks the whole."""
    if parameter._part is not None:
        return [shard.whole(parameter, arrays[0])]
    return saved_state.device_copies(arrays)


def restore(parameters: dict[str, Parameter], found: dict, where: str) -> None:
    """Restores the result of `save`; changes nothing unless everything matches. Raises
    StateError."""
    wanted = {name: parameter for parameter, name in names(parameters).items()}
    values = found["values"]
    check_names(wanted, values, where, False, False)
    for name, parameter in wanted.items():
        parameter._check_load(values[name][0], False)
        made = parameter._data is not None or parameter._deferred_init
        here = len(parameter.list_ctx()) if made else 1
        if len(values[name]) not in (1, here):
            raise StateError(
                f"{where}: {name} was saved on {len(values[name])} devices, here it is on {here}"
            )
    for name, parameter in wanted.items():
        parameter._load_init(values[name][0], None)
        if len(values[name]) > 1:
            saved_state.spread(values[name], parameter._data)
        if name in found["grads"] and parameter.grad_req == "add":
            saved_state.spread([parameter._own(g) for g in found["grads"][name]], parameter._grad)
