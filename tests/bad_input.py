"""Shared by the tests of bad input: arrays whose shapes do not fit, and the check that an error
leaves everything as it was."""

import numpy as np
import pytest
from plait import autograd, engine, nd


def x():
    return nd.array(np.arange(6.0).reshape(2, 3))


def y():
    return nd.ones((4, 5))


@pytest.fixture(autouse=True)
def unharmed():
    """After each test autograd is off, nothing is pending or unreported, and arrays compute."""
    yield
    assert not autograd.is_recording()
    nd.waitall()
    assert engine.stats()["pending"] == 0
    assert (x() + 1).asnumpy()[1, 2] == 6


def raises(kind, rule):
    return pytest.raises(kind, match=rule)
