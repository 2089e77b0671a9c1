"""The state of all ranks in one checkpoint: the whole of the first rank's, and of each other rank
its numbers and those arrays that differ from the first rank's."""

from __future__ import annotations

import hashlib
import os

from .. import dist
from ..engine.error import compose
from ..ndarray import serialization
from ..ndarray.saved_state import StateError, decoded, encoded

RANKS = "ranks"  # in a checkpoint's data: (JSON text, arrays) of the other ranks


def gathered(state: dict) -> dict | None:
    """What the first rank writes; None on the others. All ranks call it."""
    if _ranks() == 1:
        return state
    text, arrays = encoded(state)
    buffers = {n: bytes(serialization.save_tobuffer({n: a})) for n, a in arrays.items()}
    digests = {name: hashlib.sha256(b).digest() for name, b in buffers.items()}
    dist.barrier(name="checkpoint")
    first = dist.exchange(digests if dist.rank() == 0 else None)
    other = {name: b for name, b in buffers.items() if first.get(name) != digests[name]}
    parts = dist.collect((text, other), 0, name="checkpoint")
    if parts is None:
        return None
    return state | {
        RANKS: [
            (text, {n: serialization.load_frombuffer(b)[n] for n, b in other.items()})
            for text, other in parts[1:]
        ]
    }


def own(found: dict, path: str) -> dict:
    """This rank's state, of a file's content. Raises StateError for another number of ranks."""
    others = found.pop(RANKS, [])
    n = _ranks()
    if len(others) + 1 != n:
        raise StateError(
            compose(
                f"{path}: the checkpoint was written by {len(others) + 1} ranks, this job has {n}",
                fix="start as many ranks, or load only the weights and Trainer.load_states",
            )
        )
    if n == 1 or dist.rank() == 0:
        return found
    text, arrays = others[dist.rank() - 1]
    return decoded(text, {**encoded(found)[1], **arrays})


def everywhere(path: str) -> bool:
    """Is there a file? Raises StateError if only some ranks see it. All ranks call it."""
    exists = os.path.exists(path)
    if _ranks() == 1:
        return exists
    seen = dist.collect(exists, name="checkpoint")
    assert seen is not None
    if len(set(seen)) > 1:
        raise StateError(
            compose(
                f"{path}: ranks {[r for r, there in enumerate(seen) if there]} see this checkpoint,"
                f" ranks {[r for r, there in enumerate(seen) if not there]} do not",
                fix="a folder that all machines share",
            )
        )
    return exists


def _ranks() -> int:
    return dist.size() if dist.is_initialized() else 1
