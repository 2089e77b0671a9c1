"""Tests of GPUs: on a real one, or on the emulated one where there is none.

The core opens the driver once, so an emulated one needs processes of its own. `pytest tests/gpu`
(`make gpu-test`) is such a process. In a run of all tests each file of this folder is one test,
which runs pytest on the file.

GPU_TESTS=all: also what takes minutes on the emulated GPU. GPU_TESTS=emulator: the emulated GPU
even where there is a real one.
"""

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
SECONDS = 400  # for a file
PARTS = {"test_operators.py": 4}  # a file with many tests is several

_spec = importlib.util.spec_from_file_location("emulator_build", HERE / "emulator" / "build.py")
build = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(build)


def has_gpu() -> bool:
    """Is there a real GPU?"""
    if os.environ.get("GPU_TESTS") == "emulator":
        return False
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    n = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value > 0


REAL = has_gpu()
WHY_NOT = None if REAL else build.missing()


def _only_these(config) -> bool:
    """Was pytest asked for tests of this folder alone, by a process that has not loaded plait?"""
    if "plait" in sys.modules:
        return False
    root = config.invocation_params.dir
    paths = [(root / a.split("::")[0]).resolve() for a in config.args]
    return bool(paths) and all(HERE == p or HERE in p.parents for p in paths)


def pytest_configure(config):
    config.gpu_inside = REAL or "GPU_TESTS_INSIDE" in os.environ or _only_these(config)
    if config.gpu_inside and not REAL and not WHY_NOT:
        use_emulator()


def use_emulator() -> None:
    """From here on this process and those that it starts have emulated GPUs."""
    python = str(HERE / "emulator" / "python")
    os.environ["PLAIT_CUDA_LIBRARIES"] = str(build.folder())
    os.environ["PYTHONPATH"] = os.pathsep.join([python, *filter(None, sys.path)])
    sys.path.insert(0, python)


# ---- in a run of all tests: a file is a test -----------------------------------------------------


def pytest_pycollect_makemodule(module_path, parent):
    if getattr(parent.config, "gpu_inside", False):
        return None
    return Elsewhere.from_parent(parent, path=module_path)


class Elsewhere(pytest.File):
    """A file whose tests run in a process of their own."""

    def collect(self):
        n = PARTS.get(self.path.name, 1)
        for part in range(n):
            yield Run.from_parent(self, name=f"part {part + 1} of {n}", part=f"{part}/{n}")


class Run(pytest.Item):
    def __init__(self, *, part, **kwargs):
        super().__init__(**kwargs)
        self.part = part

    def runtest(self):
        if WHY_NOT:
            pytest.skip(WHY_NOT)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        env |= {
            "GPU_TESTS_INSIDE": self.part,
            "CI": "",  # what skips on an emulated GPU is not for tests/skips.py
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
        done = subprocess.run(
            [*command, str(self.path)],
            cwd=self.config.rootpath,
            env=env,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        if done.returncode == 5:
            pytest.skip("no tests in this part")
        if done.returncode:
            raise Failed((done.stdout + done.stderr)[-20000:])

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, Failed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, None, f"{self.path.name}, {self.name}"


class Failed(Exception):
    """What the tests of a file printed."""


def pytest_collection_modifyitems(config, items):
    part, _, n = os.environ.get("GPU_TESTS_INSIDE", "").partition("/")
    if n:
        keep = [i for k, i in enumerate(items) if k % int(n) == int(part)]
        config.hook.pytest_deselected(items=[i for i in items if i not in keep])
        items[:] = keep


# ---- inside --------------------------------------------------------------------------------------


class Emulator:
    """The emulated driver beyond CUDA: failures on request, what kernels did wrong, counts."""

    LAUNCH, KERNEL, ALLOCATION, COPY, WAIT = range(5)
    LAUNCHES, GRAPHS, COPIES, ALLOCATIONS = range(4)

    def __init__(self):
        path = os.path.join(os.environ["PLAIT_CUDA_LIBRARIES"], "libcuda.so.1")
        self._driver = ctypes.CDLL(path)
        self._driver.emulatorFault.restype = ctypes.c_char_p
        self._driver.emulatorCount.restype = ctypes.c_long

    def fail(self, kind: int, code: int, after: int = 0) -> None:
        """The call of this kind after the next `after` ones gives this error."""
        self._driver.emulatorFail(kind, after, code)

    def fault(self) -> str:
        """What a kernel did wrong, or ''. Forgotten by `reset`."""
        return self._driver.emulatorFault().decode()

    def reset(self) -> None:
        self._driver.emulatorReset()

    def hold(self, on: bool) -> None:
        """Graphs that are launched stop behind the first event that they record, until it is off
        again."""
        self._driver.emulatorHold(int(on))

    def count(self, kind: int) -> int:
        return self._driver.emulatorCount(kind)


@pytest.fixture(autouse=True)
def faultless(request):
    """A test during which an emulated kernel fails, fails; one that wants it has `emulator`."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    yield
    if not REAL:
        driver = Emulator()
        fault = driver.fault()
        driver.reset()
        if fault and "emulator" not in request.fixturenames:
            pytest.fail(f"on the emulated GPU: {fault}")


@pytest.fixture(autouse=True, scope="session")
def sources_compile():
    """A source that the compiler refuses is an error here, not a warning."""
    if not WHY_NOT:
        from plait.kernels.cuda import backend

        backend.checking = True


@pytest.fixture
def emulator():
    """The emulated driver. Skips where there is a real one."""
    if REAL:
        pytest.skip("this needs the emulated GPU: GPU_TESTS=emulator")
    driver = Emulator()
    yield driver
    driver.reset()
