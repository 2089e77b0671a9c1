"""Settings of every test process."""

import importlib
import os

import pytest

# Test processes share the cores: an OpenMP thread that spins at a barrier takes the core from the
# one it waits for.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(autouse=True)
def checked_passes():
    """Graphs are verified after every pass, and a failed compilation in the background fails the
    test that runs."""
    passes = importlib.import_module("plait.symbol.passes")
    tiers = importlib.import_module("plait.symbol.tiers")
    passes.checking = True
    yield
    error, tiers._compiler.error = tiers._compiler.error, None
    if error is not None:
        raise error


@pytest.fixture(autouse=True)
def full_precision():
    """What a test switches on of mixed precision ends with it."""
    precision = importlib.import_module("plait.kernels.precision")
    yield
    if precision.used:
        amp = importlib.import_module("plait.gluon.mxcontrib.amp.amp")
        precision.set_default(None)
        precision.used, amp._scaler, amp._taken = False, None, False
