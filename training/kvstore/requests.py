"""What workers and servers of "dist_async" say to each other.

A request is a header of four int64, then what belongs to it, as messages of one rank to another,
which arrive in order:

    TEXT      number of bytes     JSON: a list of keys, an optimizer, changed hyperparameters ...
    INIT      list of keys        the first values
    PUSH      list of keys        gradients; PUSHPULL: the server then sends the weights
    PULL      list of keys        the server sends the weights
    SYNC                          the server sends a header, when it has done what came before
    SAVE      1: all, 0: states   the server sends a header with a number of bytes, then states
    LOAD      number of bytes     states
    STOP                          this worker asks for nothing more

States are as in files: Updater.get_states. SAVE 1: with the optimizer's numbers and counts.

Lists of keys have a number, which TEXT gave them. A server has one part of a large weight.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from ...dist import heartbeat, receive, send, servers
from ...ndarray import NDArray
from ...ndarray.creation import array, empty

TEXT, INIT, PUSH, PUSHPULL, PULL, SYNC, SAVE, LOAD, STOP = range(9)
HEADER = 4  # words


class Entry(NamedTuple):
    """A key of a list: what travels for it."""

    key: int | str
    shape: tuple[int, ...]
    dtype: str


def header(operation: int = 0, number: int = 0) -> NDArray:
    """The beginning of a request, or room for one."""
    return array([operation, number, 0, 0], dtype="int64")


def request(server: int, operation: int, number: int = 0) -> None:
    """Begins a request."""
    send(header(operation, number), server, name="request")


def tell(server: int, found: dict) -> None:
    """Sends plain data."""
    _give(server, TEXT, json.dumps(found).encode())


def _give(server: int, operation: int, content: bytes) -> None:
    request(server, operation, len(content))
    send_bytes(content, server)


def send_bytes(content: bytes, to: int) -> None:
    """Sends bytes, of which the other side knows the number."""
    send(array(np.frombuffer(content, np.uint8), dtype="uint8"), to, name="request")


def told(text: NDArray) -> dict:
    """What `tell` sent."""
    return json.loads(text.asnumpy().tobytes())


def load(server: int, states: bytes) -> None:
    """Gives a server its states, and waits until it has them."""
    _give(server, LOAD, states)
    synchronize(server)


def save(server: int, dump_optimizer: bool) -> bytes:
    """The states that a server has; empty: it has no optimizer."""
    request(server, SAVE, int(dump_optimizer))
    n = receive(header(), server, name="answer").asnumpy()[1]
    if n == 0:
        return b""
    return receive(empty((int(n),), dtype="uint8"), server, name="answer").asnumpy().tobytes()


def synchronize(server: int) -> None:
    """Waits until a server has done all that this worker asked for."""
    request(server, SYNC)
    receive(empty((HEADER,), dtype="int64"), server, name="answer").wait_to_read()


def leave() -> None:
    """At the end of a worker: its servers may end."""
    if heartbeat.culprit() is None:
        for server in servers():
            request(server, STOP)


def entries(listed: Any) -> list[Entry]:
    """A list of keys, from JSON."""
    return [Entry(key, tuple(shape), dtype) for key, shape, dtype in listed]
