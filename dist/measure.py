"""What a partition is decided by, measured: the time of each operator, forward and backward, and of
messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ..engine import Context, cpu, waitall
from ..engine.error import MXNetError
from ..graph.graph import Node
from ..kernels.record import Type, lookup
from ..kernels.spec import NUMPY_DTYPES
from ..ndarray.autograd import backward, record
from ..ndarray.creation import empty, ones
from ..ndarray.interpreter import run_plan
from .collectives import receive, send
from .world import rank, size

REPEATS = 3
SMALL, LARGE = 1, 1 << 20  # elements of messages
COPY = lookup("_copy")


def seconds_of(nodes: Sequence[Node], device: Context) -> dict[Node, float]:
    """The time of each operator alone on a device, forward and backward, on arrays of ones of its
    inputs' types. Equal ones are measured once."""
    one = Type((1,), "float32")
    overhead = _time(Node(COPY, COPY.parse({}), [], "", [one]), [one], device)
    found: dict[Any, float] = {}
    made = {}
    for node in nodes:
        types = [v.type for v in node.inputs]
        key = node.operation, repr(node.attrs), *types
        if key not in found:
            found[key] = max(0.0, _time(node, types, device) - overhead)
        made[node] = found[key]
    return made


def _time(node: Node, types: Sequence[Type], device: Context) -> float:
    inputs = [ones(t.shape, device, t.dtype) for t in types]
    for a, t in zip(inputs, types):
        if NUMPY_DTYPES[t.dtype].kind not in "iub":
            a.attach_grad()

    def forward() -> list:
        with record():
            outputs = run_plan(node, inputs, device)
        return [a for a in outputs[: node.n_visible] if a._tape is not None]

    def both() -> None:
        if heads := forward():
            backward(heads)

    try:
        return _fastest(both)
    except MXNetError:  # no gradient
        return _fastest(forward)


def _fastest(function: Callable[[], Any]) -> float:
    """The least of some times, after a call that compiles what there is to compile."""
    found = []
    for _ in range(REPEATS + 1):
        waitall()
        start = time.perf_counter()
        function()
        waitall()
        found.append(time.perf_counter() - start)
    return min(found[1:])


def link() -> tuple[float, float]:
    """(seconds for each message, bytes per second): between the first two ranks of the job, for
    which all ranks call this; in one process between two devices."""
    small, large = (_fastest(_exchange(n)) / 2 for n in (SMALL, LARGE))
    return small, 4 * (LARGE - SMALL) / max(large - small, 1e-9)


def _exchange(n: int) -> Callable[[], None]:
    """What moves n floats there and back."""
    here = empty((n,))
    if size() > 1:

        def messages() -> None:
            if rank() == 0:
                send(here, 1, name="cost of a message")
                receive(here, 1, name="cost of a message")
            elif rank() == 1:
                receive(here, 0, name="cost of a message")
                send(here, 0, name="cost of a message")

        return messages

    def copies() -> None:
        here.as_in_context(cpu(1)).copyto(here)

    return copies
