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
    """Graphs are verified after every pass. What a test left to be compiled in the background is
    done before the next one begins, and fails it if it fails."""
    passes = importlib.import_module("plait.symbol.passes")
    tiers = importlib.import_module("plait.symbol.tiers")
    passes.checking = True
    yield
    tiers.wait_compiled()
