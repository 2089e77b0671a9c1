"""The position of fit in a checkpoint; the state of a Module as plain data."""

from __future__ import annotations

from typing import Any

from ...ndarray.saved_state import StateError, copied, device_copies, merged, spread
from ..checkpoint import Checkpoint
from ..kvstore.base import state_of


class Progress:
    """The epoch and the number of completed batches in it; the checkpoint that stores them, if any.

    checkpoint: a path, a Checkpoint, or None. period: batches between writes, besides the one after
    each epoch.
    """

    def __init__(self, epoch: int, checkpoint: Any, period: int | None):
        self.epoch, self.batch, self._period = epoch, 0, period
        made = checkpoint is None or isinstance(checkpoint, Checkpoint)
        self._checkpoint = checkpoint if made else Checkpoint(checkpoint)

    def restore(self, **parts: Any) -> None:
        """Adds parts to the checkpoint and resumes from its file, if it exists."""
        if self._checkpoint is not None:
            self._checkpoint.add(**parts, fit=self)
            self._checkpoint.restore()

    def is_due(self, batch: int) -> bool:
        """Is a checkpoint due after this number of batches of an epoch?"""
        self.batch = 0  # in a resumed epoch this point is already past
        if self._checkpoint is None or not self._period:
            return False
        return batch % self._period == 0

    def save(self, epoch: int, batch: int) -> None:
        """Writes the checkpoint, if there is one."""
        if self._checkpoint is not None:
            self.epoch, self.batch = epoch, batch
            self._checkpoint.save()
            self.batch = 0

    def state_dict(self) -> dict:
        return {"epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: dict) -> None:
        self.epoch, self.batch = state["epoch"], state["batch"]


def _arrays(module) -> dict[str, list]:
    """The arrays of a module that outlive a batch, one for each device."""
    group = module._group
    found = {}
    for kind, names, arrays in (
        ("arg", group.param_names, group.param_arrays),
        ("aux", group.aux_names, group.aux_arrays),
        ("state", group.state_names, group.state_arrays),
        ("grad", group.param_names, group.grad_arrays),
    ):
        for name, parts in zip(names, arrays):
            if kind != "grad" or group.grad_req.get(name) == "add":
                found[f"{kind}:{name}"] = parts
    return found


def _stateful(module) -> dict:
    store = module._kvstore
    return {
        "optimizer": module._optimizer,
        "updater": state_of(store)[0] if module._update_on_kvstore else module._updater,
        "compression": getattr(store, "_compression", None),
    }


def module_state(module: Any) -> dict:
    """Parameters on all devices, the values of a store that updates them, optimizer, counts."""
    module._need(optimizer=True)
    arrays = {name: device_copies(parts) for name, parts in _arrays(module).items()}
    stored = dict(state_of(module._kvstore)[1]) if module._update_on_kvstore else {}
    return {"arrays": arrays, "stored": stored, **copied(_stateful(module))}


def set_module_state(module: Any, state: dict) -> None:
    """Continues from module_state. Raises StateError where it does not fit."""
    module._need(optimizer=True)
    now = _arrays(module)
    for name in sorted({*now, *state["arrays"]}):
        parts, saved = now.get(name), state["arrays"].get(name)
        if parts is None or saved is None or len(saved) not in (1, len(parts)):
            there, here = ("nothing" if x is None else f"{len(x)} arrays" for x in (saved, parts))
            raise StateError(f"Module: of {name}, {there} was saved and {here} is here")
        if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(parts, saved)):
            raise StateError(
                f"Module: {name} was saved with shape {saved[0].shape} and dtype"
                f" {saved[0].dtype.__name__}, here it has {parts[0].shape} and"
                f" {parts[0].dtype.__name__}"
            )
    for name, parts in now.items():
        spread(state["arrays"][name], parts)
    for name, value in state["stored"].items():
        module._kvstore._set(name, value)
    for name, part in _stateful(module).items():
        merged(part, state[name], f"Module: {name}")
    module._params_dirty = True
