"""Errors of the command line, in child processes, and their classes."""

import os
import subprocess
import sys
import warnings

import plait as mx
import pytest
from bad_input import unharmed, x, y  # noqa: F401
from plait import nd
from plait.engine.error import InvalidValue, ShapeError


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (("draw", "no_such_file"), "symbol file: cannot read"),
        (("draw", __file__), "is not a symbol"),
        (("train", "--epochs", "-1"), "must be a whole number of 1 or more, got '-1'"),
    ],
    ids=str,
)
def test_command_line(arguments, rule):
    run = subprocess.run(
        [sys.executable, "-m", "plait", *arguments], capture_output=True, text=True
    )
    assert run.returncode in (1, 2) and rule in run.stderr and "Traceback" not in run.stderr


def test_a_child_process_reports_errors_too():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        pid = os.fork()
    if pid == 0:
        status = 2
        try:
            nd.dot(x(), y())
        except ShapeError:
            status = 0 if (x() * 2).sum().asscalar() == 30 else 1
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_broken_values_are_one_class():
    """Whoever catches InvalidValue gets all errors that are what it is to users."""
    kinds, found = [mx.MXNetError], []
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__name__ not in ("DeferredError",) and issubclass(kind, ValueError):
            if issubclass(kind, AssertionError) and not issubclass(kind, InvalidValue):
                found.append(kind.__name__)
    assert not found
