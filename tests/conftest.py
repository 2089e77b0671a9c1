"""For all tests: graphs are verified after every pass."""
import pytest


@pytest.fixture(autouse=True, scope="session")
def verified_passes():
    from plait.symbol import passes
    passes.checking = True
