"""Settings of every test process."""

import importlib
import os
import signal

import hypothesis
import isa
import pytest
import skips
from skips import pytest_sessionfinish  # noqa: F401  (a hook)

os.environ.setdefault("MPLBACKEND", "Agg")
# The same examples in every run, on a busy machine too; --hypothesis-profile=random draws others.
hypothesis.settings.register_profile(
    "random", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "repeatable", hypothesis.settings.get_profile("random"), derandomize=True, database=None
)
hypothesis.settings.load_profile("repeatable")

# a shell's background job ignores Ctrl-C, and so would the programs that tests interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption("--isa", choices=isa.ISAS, help="kernels as on a machine that runs no more")
    skips.pytest_addoption(parser)
    parser.addoption("--backend", choices=("cpu", "reference"), help="of the current device")


def pytest_configure(config):
    """Every record is there before tests are collected: what a test covers never depends on which
    other tests were."""
    name = config.getoption("--isa")
    if name:
        isa.limit(name)
    importlib.import_module("plait.kernels.ops.np")
    if config.getoption("--backend") == "reference":
        device = importlib.import_module("reference_backend").reference()
        type(device).default_ctx = device


@pytest.fixture(autouse=True)
def checked_passes():
    """Graphs are verified after every pass. What a test left to be compiled in the background is
    done before the next one begins, and fails it if it fails; what is told once is told to each."""
    passes = importlib.import_module("plait.graph.passes")
    tiers = importlib.import_module("plait.graph.tiers")
    passes.checking = True
    importlib.import_module("plait.ndarray.sparse.storage")._warned.clear()
    yield
    tiers.wait_compiled()


@pytest.fixture(autouse=True)
def full_precision():
    """What a test switches on of mixed precision ends with it."""
    precision = importlib.import_module("plait.kernels.precision")
    yield
    if precision.used:
        amp = importlib.import_module("plait.gluon.amp.amp")
        precision.set_default(None)
        amp._loss_scaler, amp._amp_initialized = None, False
        amp._amp_loss_scale_initialized = False
