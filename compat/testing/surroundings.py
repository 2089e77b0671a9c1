"""The environment of a test: environment variables, standard error, repetition, GPUs."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def environment(*args: Any) -> Iterator[Any]:
    """Sets environment variables (a name and a value, or a dictionary; None removes one) and
    restores them."""
    wanted = args[0] if len(args) == 1 else {args[0]: args[1]}
    before = {k: os.environ.get(k) for k in wanted}

    def put(values):
        for k, v in values.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = str(v)

    put(wanted)
    try:
        yield
    finally:
        put(before)


def retry(n: Any) -> Any:
    """Decorator: runs a test up to n times until it does not fail."""

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            for left in range(n - 1, -1, -1):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    if not left:
                        raise

        return run

    return decorate


@contextlib.contextmanager
def discard_stderr() -> Iterator[Any]:
    """Discards output to standard error, also from C code."""
    saved = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def list_gpus() -> list[int]:
    """Numbers of the usable GPUs."""
    from ...engine import num_gpus

    return list(range(num_gpus()))
