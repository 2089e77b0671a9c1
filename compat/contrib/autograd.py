"""mx.contrib.autograd: the interface of MXNet's first autograd, in which training mode and
recording were one switch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...engine.base import c_array, c_array_buf, c_handle_array, check_call  # noqa: F401
from ...engine.error import InvalidType
from ...ndarray import NDArray, functions
from ...ndarray import autograd as current
from ...ndarray.autograd import mark_variables

__all__ = [
    "TrainingStateScope",
    "backward",
    "compute_gradient",
    "grad",
    "grad_and_loss",
    "mark_variables",
    "set_is_training",
    "test_section",
    "train_section",
]


def set_is_training(is_train: Any) -> bool:
    """Switches training mode and recording together. Returns whether recording was on."""
    current.set_training(is_train)
    return current.set_recording(is_train)


class TrainingStateScope:
    """`with TrainingStateScope(True):` computations inside are recorded, in training mode."""

    def __init__(self, enter_state: bool):
        self._enter_state = enter_state
        self._before: bool | None = None

    def __enter__(self):
        self._before = set_is_training(self._enter_state)

    def __exit__(self, *error):
        if self._before != self._enter_state:
            set_is_training(self._before)


def train_section() -> TrainingStateScope:
    """Scope whose computations are recorded for gradients."""
    return TrainingStateScope(True)


def test_section() -> TrainingStateScope:
    """Scope without recording, inside a train_section."""
    return TrainingStateScope(False)


def backward(outputs: Any, out_grads: Any = None, retain_graph: bool = False) -> None:
    """Computes the gradients of marked variables. outputs: list of arrays; out_grads: None, or a
    list with a gradient, or None, for each."""
    if not isinstance(outputs, (list, tuple)):
        raise OutputsError("outputs must be a list or tuple of NDArrays")
    if out_grads is not None and len(out_grads) != len(outputs):
        raise OutputsError(
            f"outputs and out_grads must have the same length, got {len(outputs)} and"
            f" {len(out_grads)}"
        )
    current.backward(outputs, out_grads, retain_graph)


class OutputsError(InvalidType, AssertionError):
    """Outputs or inputs of a gradient that are not arrays."""


def compute_gradient(outputs: Any) -> None:
    """backward of a list of outputs."""
    backward(outputs)


def grad_and_loss(
    func: Callable[..., Any], argnum: int | Sequence[int] | None = None
) -> Callable[..., Any]:
    """A function that returns (gradients, outputs) of func. argnum: number of the argument, or of
    several, to differentiate by; None for all."""

    @functools.wraps(func)
    def wrapped(*args):
        chosen = range(len(args)) if argnum is None else argnum
        variables = [args[chosen]] if isinstance(chosen, int) else [args[i] for i in chosen]
        for x in variables:
            if not isinstance(x, NDArray):
                raise OutputsError(f"type of autograd input should NDArray, got {type(x).__name__}")
        grads = [functions.zeros_like(x) for x in variables]
        mark_variables(variables, grads)
        with train_section():
            outputs = func(*args)
        compute_gradient([outputs] if isinstance(outputs, NDArray) else outputs)
        return grads, outputs

    return wrapped


def grad(func: Callable[..., Any], argnum: Any = None) -> Any:
    """A function that returns the gradients of func. argnum: as in grad_and_loss."""
    both = grad_and_loss(func, argnum)

    @functools.wraps(func)
    def wrapped(*args):
        return both(*args)[0]

    return wrapped
