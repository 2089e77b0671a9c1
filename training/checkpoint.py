"""Checkpoint: the full state of a training run in one file, so that a resumed run equals an
uninterrupted one."""

from __future__ import annotations

import os
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from .. import dist
from ..engine import files
from ..engine.error import InvalidType, InvalidValue, MXNetError, compose
from ..graph import tiers
from ..ndarray import random, saved_state
from ..ndarray.saved_state import StateError
from . import checkpoint_ranks

__all__ = ["Checkpoint", "StateError"]

KIND = "Block"  # the kind of an entry that has parameters, in the file


@runtime_checkable
class HasParameters(Protocol):
    """Something with parameters: a gluon.Block. A checkpoint saves these alone."""

    def _structural_names(self) -> dict[Any, str]:
        """Each parameter once, with its first name."""

    def _saved_parameters(self) -> dict:
        """The values of the parameters, and the gradients that accumulate, as plain data."""

    def _restore_parameters(self, found: dict, where: str) -> None:
        """Restores them; changes nothing unless everything matches. Raises StateError."""


@runtime_checkable
class UpdatesParameters(Protocol):
    """Something that updates parameters: a gluon.Trainer."""

    def _updated(self) -> list:
        """The parameters, in its order."""


class Checkpoint:
    """Saves the state of a training run to a file, and resumes from it.

    A checkpoint holds the state of its parts and the random streams of plait, NumPy and Python. It
    is written to a temporary file and renamed: after a crash the file is the last complete
        checkpoint. It contains arrays and JSON, which `nd.load` reads too; no pickles.

    Args:
        path: the file.
        parts: the state of the run, by name: blocks (their parameters), and objects with
            state_dict() and load_state_dict(state): Trainer (optimizer, counts, schedule, loss
            scale), DataLoader and iterators (the position in the epoch), metrics, Modules, objects
            of your own. A value that is plain data (a number, a text, an array, a list ...) becomes
            an attribute of the checkpoint that can be read and set: `best=0.0` is
                `checkpoint.best`.

    >>> import os, tempfile
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

    if TYPE_CHECKING:  # values become attributes

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, path: str | PathLike[str], /, **parts: Any):
        self.path = os.fspath(path)
        self._parts: dict = {}
        self._values: list[str] = []
        self.add(**parts)

    def add(self, **parts: Any) -> None:
        """Adds parts."""
        for name, part in parts.items():
            if isinstance(part, HasParameters) or saved_state.has_state(part):
                self._parts[name] = part
            elif not saved_state.is_data(part):
                raise InvalidType(
                    compose(
                        f"Checkpoint: {name} must be a Block, an object with state_dict and"
                        f" load_state_dict, or plain data, got {type(part).__name__}",
                        fix="define both: the first returns plain data, the second takes it",
                    )
                )
            elif name.startswith("_") or hasattr(type(self), name) or name == "path":
                raise InvalidValue(f"Checkpoint: a value cannot be called {name!r}")
            else:
                self._values.append(name)
                setattr(self, name, part)

    def save(self) -> None:
        """Writes the file. Raises OSError if that fails; the old file then remains.

        All ranks of a job call it: the first writes one file for all, and the others wait for it.
        """
        state = checkpoint_ranks.gathered(self.state_dict())
        if state is not None:
            saved_state.write(self.path, saved_state.CHECKPOINT, state)
        if dist.is_initialized():
            dist.barrier(name="checkpoint")

    def restore(self) -> bool:
        """Continues from the file. Returns False if there is none.

        Call it directly before the training loop, when all parts exist. Raises StateError if the
        file is not a checkpoint, is damaged, or does not match the parts.
        """
        if not checkpoint_ranks.everywhere(self.path):
            return False
        try:
            self.load_state_dict(checkpoint_ranks.own(load(self.path), self.path))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, MXNetError):
                raise
            raise StateError(
                f"{self.path}: the checkpoint is damaged: {type(error).__name__}: {error}"
            ) from error
        return True

    def state_dict(self) -> dict:
        """What save writes."""
        parts = {name: state_of(part) for name, part in self._parts.items()}
        orders = {name: self._order(part) for name, part in self._trainers()}
        values = {name: saved_state.copied(getattr(self, name)) for name in self._values}
        common = {"streams": random.get_state(), "tiers": tiers.counts()}
        return {"parts": parts, "orders": orders, "values": values, **common}

    def _trainers(self) -> list[tuple[str, UpdatesParameters]]:
        return [(n, p) for n, p in self._parts.items() if isinstance(p, UpdatesParameters)]

    def _order(self, trainer: UpdatesParameters) -> list[str | None]:
        """The structural names of a trainer's parameters, sorted by full name as in the trainer:
        dense10 comes before dense9."""
        names = {
            p: f"{n}.{name}"
            for n, part in self._parts.items()
            if isinstance(part, HasParameters)
            for p, name in part._structural_names().items()
        }
        return [names.get(p) for p in trainer._updated()]

    def load_state_dict(self, found: dict) -> None:
        """What restore does with the file's content."""
        kept, here = [*found["parts"], *found["values"]], [*self._parts, *self._values]
        if set(kept) != set(here):
            raise StateError(
                f"{self.path}: the checkpoint has {', '.join(sorted(kept))}; this run"
                f" has {', '.join(sorted(here))}"
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
        first = [n for n, part in self._parts.items() if isinstance(part, HasParameters)]
        for name in (*first, *(n for n in self._parts if n not in first)):
            restore(self._parts[name], found["parts"][name], f"{self.path}: {name}")
        for name in self._values:
            now = getattr(self, name)
            setattr(
                self, name, saved_state.merged(now, found["values"][name], f"{self.path}: {name}")
            )
        tiers.resume(found["tiers"])
        random.set_state(found["streams"])


def load(path: str | PathLike[str]) -> dict:
    """The content of a checkpoint's file. Raises StateError for other files."""
    return saved_state.read(path, saved_state.CHECKPOINT, "checkpoint")


def is_checkpoint(path: str | PathLike[str]) -> bool:
    """Did a Checkpoint write this file?"""
    content = files.read(path, "checkpoint")
    return (
        saved_state.parse(content, saved_state.CHECKPOINT, os.fspath(path))[0]
        == saved_state.CHECKPOINT
    )


# ---- parts ---------------------------------------------------------------------------------------


def state_of(part: Any) -> saved_state.Saved:
    """The state of something with parameters or of an object with state_dict."""
    if isinstance(part, HasParameters):
        return saved_state.Saved(KIND, part._saved_parameters())
    return saved_state.saved(part)


def restore(part: Any, found: Any, where: str) -> None:
    """Restores the state of a part. Raises StateError."""
    if not isinstance(part, HasParameters):
        saved_state.restore(part, found, where)
        return
    if found.kind != KIND:
        raise StateError(f"{where}: the saved state is one of {found.kind}, not of {KIND}")
    part._restore_parameters(found.state, where)
