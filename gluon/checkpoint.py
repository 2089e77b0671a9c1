"""Checkpoint: all that a training run depends on, in one file, so that a resumed run equals one
that was never interrupted."""

from __future__ import annotations

import os

from ..engine import files
from ..engine.error import InvalidType, InvalidValue, compose
from ..ndarray import random
from . import state
from .block import Block
from .parameter import Parameter
from .parameter_dict import check_names
from .state import StateError
from .trainer import Trainer

__all__ = ["Checkpoint", "StateError"]


class Checkpoint:
    """Saves the state of a training run to a file, and goes on from it.

    A checkpoint holds the state of its parts and the random streams of plait, NumPy and Python. It
    is written beside its place and renamed: after a crash the file is the last whole checkpoint.
    The file is one of arrays and JSON, which `nd.load` reads too; no pickle.

    Args:
        path: the file.
        parts: by name, what the run depends on: blocks (their parameters), and whatever has
            state_dict() and load_state_dict(state): Trainer (optimizer, counts, schedule, loss
            scale), DataLoader and iterators (the position in the epoch), metrics, Modules, objects
            of your own. A value that is plain data (a number, a text, an array, a list ...) becomes
            an attribute of the checkpoint, to be read and set: `best=0.0` is `checkpoint.best`.

    >>> net = gluon.nn.Dense(1, in_units=2)
    >>> net.initialize()
    >>> trainer = gluon.Trainer(net.collect_params(), "adam")
    >>> path = os.path.join(tempfile.mkdtemp(), "run.ckpt")
    >>> checkpoint = mx.checkpoint.Checkpoint(path, net=net, trainer=trainer, best=0.0)
    >>> checkpoint.restore()
    False
    >>> checkpoint.best = 0.5
    >>> checkpoint.save()
    >>> checkpoint.best = 0.75
    >>> checkpoint.restore(), checkpoint.best
    (True, 0.5)
    """

    def __init__(self, path, /, **parts):
        self.path = os.fspath(path)
        self._parts: dict = {}
        self._values: list[str] = []
        self.add(**parts)

    def add(self, **parts) -> None:
        """More parts."""
        for name, part in parts.items():
            if isinstance(part, Block) or state.has_state(part):
                self._parts[name] = part
            elif not state.is_data(part):
                raise InvalidType(
                    compose(
                        f"Checkpoint: {name} must be a Block, an object with state_dict and"
                        f" load_state_dict, or plain data, got {type(part).__name__}",
                        fix="give the class these two methods: data out, and in again",
                    )
                )
            elif name.startswith("_") or hasattr(type(self), name) or name == "path":
                raise InvalidValue(f"Checkpoint: a value cannot be called {name!r}")
            else:
                self._values.append(name)
                setattr(self, name, part)

    def save(self) -> None:
        """Writes the file. Raises OSError where that cannot be done; the old file then stays."""
        state.write(self.path, state.CHECKPOINT, self.state_dict())

    def restore(self) -> bool:
        """Goes on from the file. Returns False where there is none.

        Call it directly before the training loop, when all parts are made. Raises StateError where
        the file is another one's, damaged, or does not fit the parts.
        """
        if not os.path.exists(self.path):
            return False
        self.load_state_dict(load(self.path))
        return True

    def state_dict(self) -> dict:
        """What save writes."""
        parts = {name: state_of(part) for name, part in self._parts.items()}
        orders = {name: self._order(part) for name, part in self._trainers()}
        values = {name: state.copied(getattr(self, name)) for name in self._values}
        streams = random.get_state()
        return {"parts": parts, "orders": orders, "values": values, "streams": streams}

    def _trainers(self) -> list[tuple[str, Trainer]]:
        return [(n, part) for n, part in self._parts.items() if isinstance(part, Trainer)]

    def _order(self, trainer: Trainer) -> list[str | None]:
        """The structural names of a trainer's parameters in its order, which is that of their full
        names: dense10 comes before dense9."""
        blocks = [(n, part) for n, part in self._parts.items() if isinstance(part, Block)]
        names = {p: f"{n}.{name}" for n, block in blocks for name, p in _named(block).items()}
        return [names.get(p) for p in trainer._params]

    def load_state_dict(self, found: dict) -> None:
        """What restore does with the file's content."""
        kept, here = [*found["parts"], *found["values"]], [*self._parts, *self._values]
        if set(kept) != set(here):
            raise StateError(
                f"{self.path}: the checkpoint holds {', '.join(sorted(kept))}; here are"
                f" {', '.join(sorted(here))}"
            )
        for name, trainer in self._trainers():
            if self._order(trainer) != found["orders"].get(name):
                raise StateError(
                    compose(
                        f"{self.path}: {name} has its parameters in the order"
                        f" {self._order(trainer)}, the checkpoint in {found['orders'].get(name)}",
                        fix="build the network as before, in a fresh process or with a prefix",
                    )
                )
        # parameters before the trainers that hold them
        for name in sorted(self._parts, key=lambda n: not isinstance(self._parts[n], Block)):
            restore(self._parts[name], found["parts"][name], f"{self.path}: {name}")
        for name in self._values:
            now = getattr(self, name)
            setattr(self, name, state.merged(now, found["values"][name], f"{self.path}: {name}"))
        random.set_state(found["streams"])


def load(path) -> dict:
    """The content of a checkpoint's file. Raises StateError for other files."""
    return state.read(path, state.CHECKPOINT, "checkpoint")


def is_checkpoint(path) -> bool:
    """Did a Checkpoint write this file?"""
    content = files.read(path, "checkpoint")
    return state.parse(content, state.CHECKPOINT, os.fspath(path))[0] == state.CHECKPOINT


# ---- parts ---------------------------------------------------------------------------------------


def state_of(part) -> state.Saved:
    """The state of a block or of an object with state_dict."""
    if isinstance(part, Block):
        return state.Saved("Block", _parameters(part))
    return state.saved(part)


def restore(part, found, where: str) -> None:
    """Gives a part its state back. Raises StateError."""
    if not isinstance(part, Block):
        state.restore(part, found, where)
        return
    if found.kind != "Block":
        raise StateError(f"{where}: the saved state is one of {found.kind}, here is a Block")
    _set_parameters(part, found.state, where)


def _named(block: Block) -> dict[str, Parameter]:
    """Each parameter once, by its first structural name."""
    found: dict[Parameter, str] = {}
    for name, parameter in block._collect_params_with_prefix().items():
        found.setdefault(parameter, name)
    return {name: parameter for parameter, name in found.items()}


def _parameters(block: Block) -> dict:
    values, grads = {}, {}
    for name, parameter in _named(block).items():
        if parameter._data is None:
            raise parameter._not_initialized()
        values[name] = state.device_copies(parameter._data)
        if parameter.grad_req == "add":  # a sum that may still grow
            grads[name] = state.device_copies(parameter._grad)
    return {"values": values, "grads": grads}


def _set_parameters(block: Block, found: dict, where: str) -> None:
    wanted, values = _named(block), found["values"]
    check_names(wanted, values, where, False, False)
    for name, parameter in wanted.items():  # nothing is written unless all of it fits
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
            state.spread(values[name], parameter._data)
        if name in found["grads"] and parameter.grad_req == "add":
            state.spread(found["grads"][name], parameter._grad)
