"""The protocol between workers and servers of "dist_async".

A request is a header of four int64 (the operation, its argument, two zeros), then the operation's
data. Messages from one rank to another arrive in order. By operation: the argument, then the data.

    TEXT      number of bytes     JSON: a list of keys, an optimizer, changed hyperparameters ...
    INIT      list of keys        the first values
    PUSH      list of keys        gradients; PUSHPULL: the server then sends the weights
    PULL      list of keys        none; the server sends the weights
    SYNC      -                   none; the server sends a header when all requests before are done
    SAVE      1: all, 0: states   none; the server sends a header with a size, then states
    LOAD      number of bytes     states
    STOP      -                   none; this worker sends no more requests

States are the bytes of a file (Updater.get_states); all: with the optimizer's hyperparameters and
counts. A list of keys is sent once, by TEXT, with a number that requests refer to. Of a weight that
is split over servers, each has one part.
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
    """A key of a list, with the shape and dtype of what is sent for it."""

    key: int | str
    shape: tuple[int, ...]
    dtype: str


def header(operation: int = 0, number: int = 0) -> NDArray:
    """The beginning of a request, or a buffer to receive one."""
    return array([operation, number, 0, 0], dtype="int64")


def request(server: int, operation: int, number: int = 0) -> None:
    """Begins a request."""
    send(header(operation, number), server, name="request")


def send_json(server: int, data: dict) -> None:
    """Sends plain data."""
    _send(server, TEXT, json.dumps(data).encode())


def _send(server: int, operation: int, content: bytes) -> None:
    request(server, operation, len(content))
    send_bytes(content, server)


def send_bytes(content: bytes, to: int) -> None:
    """Sends bytes whose number the receiver knows."""
    send(array(np.frombuffer(content, np.uint8), dtype="uint8"), to, name="request")


def read_json(text: NDArray) -> dict:
    """What `send_json` sent."""
    return json.loads(text.asnumpy().tobytes())


def load(server: int, states: bytes) -> None:
    """Gives a server its states, and waits until it has them."""
    _send(server, LOAD, states)
    synchronize(server)


def save(server: int, dump_optimizer: bool) -> bytes:
    """The states that a server has; empty: it has no optimizer."""
    request(server, SAVE, int(dump_optimizer))
    n = receive(header(), server, name="answer").asnumpy()[1]
    if n == 0:
        return b""
    return receive(empty((int(n),), dtype="uint8"), server, name="answer").asnumpy().tobytes()


def synchronize(server: int) -> None:
    """Waits until a server has done all earlier requests of this worker."""
    request(server, SYNC)
    receive(empty((HEADER,), dtype="int64"), server, name="answer").wait_to_read()


def leave() -> None:
    """At the end of a worker: it sends no more requests, so its servers may end."""
    if heartbeat.culprit() is None:
        for server in servers():
            request(server, STOP)


def entries(listed: Any) -> list[Entry]:
    """A list of keys, from JSON."""
    return [Entry(key, tuple(shape), dtype) for key, shape, dtype in listed]
