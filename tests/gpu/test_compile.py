"""The compiler of CUDA sources: its cache, its messages, what tells kernels apart."""

import logging
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from plait import MXNetError, gpu, nd
from plait.engine import cuda
from plait.engine.error import DeviceError
from plait.graph.graph import Value, typed_node, variable
from plait.graph.program import lower
from plait.kernels import cache
from plait.kernels.cuda import backend as kernels_of_gpus
from plait.kernels.cuda import compile as compiler
from plait.kernels.cuda.compile import Kernel, compile_all, function, ready
from plait.kernels.plan import make_plan, of_programs
from plait.kernels.record import REGISTRY, Type, lookup

SOURCE = "template<class T> __global__ void k(T *x) {\n x[0] = VALUE; }"


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """An empty cache, nothing loaded."""

    def use():
        monkeypatch.setattr(compiler, "_functions", {})
        monkeypatch.setattr(compiler, "_modules", {})
        monkeypatch.setattr(compiler, "_failed", {})

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.folder.cache_clear()
    use()
    yield use
    monkeypatch.undo()
    cache.folder.cache_clear()


def files():
    return sorted(cache.folder().glob("*.cubin"))


def test_compiled_once_then_read(fresh, monkeypatch):
    given = (0, SOURCE, "k<float>", (("VALUE", "3"),))
    assert not ready(*given)
    handle = function(*given)
    assert handle and handle == function(*given) and ready(*given)
    (path,) = files()
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    fresh()
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("it lies in the cache"))
    assert ready(*given) and function(*given)


def test_instances_and_defines_are_kernels_of_their_own(fresh):
    one = function(0, SOURCE, "k<float>", (("VALUE", "3"),))
    assert one != function(0, SOURCE, "k<int>", (("VALUE", "3"),))
    assert one != function(0, SOURCE, "k<float>", (("VALUE", "4"),))
    assert len(files()) == 3


def test_a_damaged_file_is_made_again(fresh):
    given = (0, SOURCE, "k<float>", (("VALUE", "5"),))
    assert function(*given)
    (path,) = files()
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"?" + whole[101:])
    fresh()
    assert function(*given)
    assert path.read_bytes() == whole or len(files()) == 1


def test_errors_bring_the_compilers_messages(fresh):
    with pytest.raises(MXNetError, match=r"generated code does not compile as k<float>") as error:
        function(0, SOURCE, "k<float>")
    assert "VALUE" in str(error.value)
    with pytest.raises(MXNetError, match="VALUE"):  # known by now
        function(0, SOURCE, "k<float>")
    with pytest.raises(MXNetError, match="no_such"):
        function(0, SOURCE, "no_such", (("VALUE", "3"),))
    assert not files()


def test_in_the_background(fresh):
    wanted = [Kernel(SOURCE, "k<float>", (("VALUE", str(n)),)) for n in range(5)]
    wanted.append(Kernel("this is\nno CUDA", "k"))
    compile_all(0, wanted)
    assert all(ready(0, *k) for k in wanted[:5]) and not ready(0, *wanted[5])
    assert len(files()) == 5
    before = [f.stat().st_mtime_ns for f in files()]
    compile_all(0, wanted)
    assert len(before) == len(files())


def test_a_header_tells_kernels_apart(fresh, monkeypatch):
    source = '#include "intrinsics.cuh"\n__global__ void k(float *x) { x[0] = 1; }'
    key = compiler._key(Kernel(source, "k"), "sm_90")
    assert list(compiler._headers(source)) == ["intrinsics.cuh"]
    assert "intrinsics.cuh" in compiler._headers('#include "device.cuh"\n')
    compiler._key.cache_clear()
    text = compiler._header("intrinsics.cuh")
    monkeypatch.setattr(compiler, "_header", lambda name: text + "// changed\n")
    assert compiler._key(Kernel(source, "k"), "sm_90") != key
    compiler._key.cache_clear()


@pytest.mark.parametrize(
    "capability, known, want",
    [
        ((9, 0), [80, 90], "sm_90"),
        ((8, 6), [80, 90], "sm_80"),  # its cubins run there
        ((12, 0), [80, 90], "compute_90"),  # PTX, for the driver
        ((7, 5), [80, 90], None),
    ],
)
def test_what_it_compiles_for(monkeypatch, capability, known, want):
    monkeypatch.setattr(
        cuda, "properties", lambda device: type("P", (), {"capability": capability})
    )
    nvrtc = type("N", (), {"architectures": known, "version": (13, 0)})
    monkeypatch.setattr(compiler, "_nvrtc", lambda: nvrtc)
    find = compiler._architecture.__wrapped__
    if want is None:
        with pytest.raises(DeviceError, match=r"8\.0 and later, this GPU has 7\.5"):
            find(0)
    else:
        assert find(0) == want


def test_a_missing_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda, "find", lambda library: None)
    with pytest.raises(DeviceError, match="pip install"):
        compiler._nvrtc.__wrapped__()


def test_nvidias_compiler_takes_our_sources():
    """It needs no GPU. make gpu-check ARGS="--all --nvrtc" compiles all."""
    env = {k: v for k, v in os.environ.items() if k != "PLAIT_CUDA_LIBRARIES"}
    command = [sys.executable, str(Path(__file__).parent / "check.py"), "--nvrtc", "--step", "24"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if "skipped" in done.stdout:
        pytest.skip("no NVRTC of NVIDIA: pip install nvidia-cuda-nvrtc")
    assert "kernels ok" in done.stdout


# ---- nobody waits --------------------------------------------------------------------------------


class Held:
    """A compiler that works only when told to, and counts."""

    def __init__(self, monkeypatch):
        self.go, self.calls = threading.Event(), []
        inner = compiler._compile

        def slow(kernel, architecture):
            self.calls.append(kernel)
            assert self.go.wait(60)
            return inner(kernel, architecture)

        monkeypatch.setattr(compiler, "_compile", slow)
        monkeypatch.setattr(kernels_of_gpus, "checking", False)


@pytest.fixture
def held(fresh, monkeypatch):
    for op in REGISTRY.values():
        op.plans.clear()
    of_programs.clear()
    found = Held(monkeypatch)
    yield found
    found.go.set()
    nd.waitall()


def test_calls_go_on_while_kernels_are_compiled(held):
    x = nd.array(np.arange(6.0).reshape(2, 3), ctx=gpu(0))
    y = nd.softmax(nd.sin(x) * 2 + nd.sum(x))  # nothing is compiled yet, nothing waits
    assert not compiler._functions
    held.go.set()
    want = np.sin(x.asnumpy()) * 2 + 15
    e = np.exp(want - want.max(1, keepdims=True))
    np.testing.assert_allclose(y.asnumpy(), e / e.sum(1, keepdims=True), rtol=1e-5)
    assert len(held.calls) == len(set(held.calls)) >= 4  # each once
    plan = make_plan(REGISTRY["sin"], {}, [x._spec], gpu(0))
    assert plan.pending is None  # made anew


def test_the_reference_runs_where_a_late_kernel_does_not_compile(held, monkeypatch, caplog):
    def refuse(kernel, architecture):
        raise compiler.CompileError("refused")

    monkeypatch.setattr(compiler, "_compile", refuse)
    x = nd.array([0.25, 4.0], ctx=gpu(0))
    with caplog.at_level(logging.WARNING):
        np.testing.assert_allclose(nd.sqrt(x).asnumpy(), [0.5, 2.0])
    assert "sqrt: its reference runs instead: refused" in caplog.text


def test_a_program_that_is_compiled_waits_for_its_kernels_at_once(held):
    """All of a graph's kernels are with the compiler before one of them is there."""
    x = variable("x", Type((4, 5), "float32"))
    y = Value(typed_node(lookup("softmax"), lookup("softmax").parse({}), [x]))
    y = Value(typed_node(lookup("_np_cumsum"), lookup("_np_cumsum").parse({"axis": 1}), [y]))
    early = lower([y], [x], gpu(0))
    assert early.can_fail  # its kernels are references
    held.go.set()
    program = lower([y], [x], gpu(0), tier=1)
    assert not program.can_fail
    given = nd.ones((4, 5), ctx=gpu(0))
    for p in (early, program):
        np.testing.assert_allclose(p.run([given])[0].asnumpy()[:, -1], 1, rtol=1e-5)
