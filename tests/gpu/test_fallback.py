"""Operators without a kernel on GPUs: their reference, on CuPy or through the host."""

import ctypes
import os
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.engine import ffi
from plait.kernels.cuda import fallback, trace
from plait.kernels.cuda.backend import CUDA
from plait.kernels.plan import of_programs
from plait.kernels.record import REGISTRY

GPU = mx.gpu(0)


@pytest.fixture(autouse=True)
def untraced(monkeypatch):
    """References make no kernels here."""

    def refuse(*_):
        raise trace.Untraceable("a test")

    monkeypatch.setattr(trace, "trace", refuse)
    for op in REGISTRY.values():
        op.plans.clear()
    of_programs.clear()
    yield
    for op in REGISTRY.values():
        op.plans.clear()
    of_programs.clear()


class Stream:
    """cupy.cuda.ExternalStream: entering waits, since NumPy knows no streams."""

    def __init__(self, handle, device):
        self.handle = handle

    def __enter__(self):
        path = os.path.join(os.environ["PLAIT_CUDA_LIBRARIES"], "libcuda.so.1")
        assert ctypes.CDLL(path).cuStreamSynchronize(ctypes.c_void_p(self.handle)) == 0

    def __exit__(self, *_):
        pass


class Cupy:
    """NumPy under CuPy's names, over memory of the emulated GPU."""

    def __init__(self, lacks=()):
        self.lacks, self.used = set(lacks), set()
        self.cuda = SimpleNamespace(
            Device=lambda i: nullcontext(),
            ExternalStream=Stream,
            UnownedMemory=lambda address, nbytes, owner, device: (address, nbytes),
            MemoryPointer=lambda memory, offset: memory,
        )

    def ndarray(self, shape, dtype, memory):
        self.used.add("ndarray")
        path = os.path.join(os.environ["PLAIT_CUDA_LIBRARIES"], "libcuda.so.1")
        find = ctypes.CDLL(path).emulatorMemory
        find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        buffer = ffi.buffer(ffi.cast("void *", find(memory[0])), memory[1])
        return np.frombuffer(buffer, dtype).reshape(shape)

    def __getattr__(self, name):
        if name in self.lacks:
            raise AttributeError(name)
        return getattr(np, name)


def call(name, ctx, *inputs, **attrs):
    arrays = [nd.array(x, ctx=ctx, dtype=d) for x, d in inputs]
    made = getattr(nd, name)(*arrays, **attrs)
    return [a.astype("float32").asnumpy() for a in [made, *arrays]]


RNG = np.random.default_rng(0)
CALLS = [
    ("khatri_rao", [(RNG.random((2, 3)), "float32"), (RNG.random((4, 3)), "float32")], {}),
    ("LRN", [(RNG.random((2, 4, 3, 3)), "float16")], {"nsize": 3}),
    ("LRN", [(RNG.random((2, 4, 3, 3)), "bfloat16")], {"nsize": 3}),
    ("shape_array", [(RNG.random((2, 0)), "float32")], {}),
]


@pytest.mark.parametrize("lacks", [None, (), ("sum", "concatenate", "einsum", "sqrt", "power")])
@pytest.mark.parametrize("name, inputs, attrs", CALLS)
def test_references(name, inputs, attrs, lacks, monkeypatch, emulator):
    own = CUDA.entries[name]
    assert own == [trace.traced_entry], "this needs an operator without a kernel of its own"
    cupy = None if lacks is None else Cupy(lacks)
    monkeypatch.setattr(fallback, "cupy", lambda: cupy)
    monkeypatch.setattr(fallback, "_on_numpy", set())
    wanted = call(name, mx.cpu(), *inputs, **attrs)
    for a, b in zip(call(name, GPU, *inputs, **attrs), wanted):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert cupy is None or cupy.used or not inputs[0][0].size


def test_inputs_that_are_written(monkeypatch, emulator):
    for cupy in (None, Cupy()):
        monkeypatch.setattr(fallback, "cupy", lambda cupy=cupy: cupy)
        results = []
        for ctx in (mx.cpu(), GPU):
            w, g, h = (nd.full((2, 3), k, ctx=ctx) for k in (1, 2, 3))
            h = nd.full((2, 1), 3, ctx=ctx)
            nd.contrib.group_adagrad_update(w, g, h, lr=0.1, out=w)
            results.append((w.asnumpy(), h.asnumpy()))
        for a, b in zip(*results):
            np.testing.assert_allclose(a, b, rtol=1e-6)
        assert (results[1][1] != 3).all()


def test_random_numbers_come_from_the_host(monkeypatch, emulator):
    monkeypatch.setattr(fallback, "cupy", lambda: Cupy())
    drawn = []
    for ctx in (mx.cpu(), GPU):
        mx.random.seed(7)
        drawn.append(nd.random.gamma(2, 1, shape=(5,), ctx=ctx).asnumpy())
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-6)


def test_values_that_a_reference_refuses():
    x = nd.array([[1, 2], [2, 1]], ctx=GPU)
    with pytest.raises(mx.MXNetError, match="potrf"):
        nd.linalg.potrf(x).wait_to_read()  # not positive definite
    assert (nd.ones((2,), ctx=GPU) + 1).asnumpy().tolist() == [2, 2]


def test_a_source_that_does_not_compile_leaves_the_reference(monkeypatch, caplog):
    from plait.kernels.cuda import backend, launch
    from plait.kernels.record import lookup

    def broken(op, ins, outs, attrs):
        return launch.launches(launch.Launch("nonsense\n", "f", (1,), (1,), []))

    monkeypatch.setitem(CUDA.entries, "LRN", [broken])
    monkeypatch.setattr(backend, "checking", False)
    lookup("LRN").plans.clear()
    x = nd.ones((1, 4, 2, 2), ctx=GPU)
    wanted = nd.LRN(x.as_in_context(mx.cpu()), nsize=3).asnumpy()
    np.testing.assert_allclose(nd.LRN(x, nsize=3).asnumpy(), wanted, rtol=1e-6)
    assert "LRN: its reference runs instead" in caplog.text
    monkeypatch.setattr(backend, "checking", True)
    lookup("LRN").plans.clear()
    with pytest.raises(mx.MXNetError, match="does not compile"):
        nd.LRN(x, nsize=5)
    lookup("LRN").plans.clear()
