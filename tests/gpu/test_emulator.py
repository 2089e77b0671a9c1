"""The emulated GPU itself: what it runs, what it finds wrong, how it fails on request."""

import ctypes
import os

import numpy as np
import pytest
from plait.engine import cuda, ffi, lib
from plait.kernels.cuda.compile import function

ILLEGAL_ADDRESS, OUT_OF_MEMORY, LAUNCH_FAILED, NOT_READY = 700, 2, 719, 600
CAPTURE_UNSUPPORTED, UNJOINED = 900, 904
HEAD = '#include "device.cuh"\n'


@pytest.fixture
def driver(emulator):
    cuda.check(0)
    d = ctypes.CDLL(os.path.join(os.environ["PLAIT_CUDA_LIBRARIES"], "libcuda.so.1"))
    context = ctypes.c_void_p()
    assert d.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert d.cuCtxSetCurrent(context) == 0
    yield d
    d.cuCtxSetCurrent(None)


class Memory:
    """Device memory that holds an array."""

    def __init__(self, driver, array):
        self.driver, self.like = driver, np.ascontiguousarray(array)
        self.at = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(self.like.nbytes)) == 0
        size = ctypes.c_size_t(self.like.nbytes)
        assert driver.cuMemcpyHtoD_v2(self.at, ctypes.c_void_p(self.like.ctypes.data), size) == 0

    def get(self):
        got = np.empty_like(self.like)
        size = ctypes.c_size_t(got.nbytes)
        code = self.driver.cuMemcpyDtoH_v2(ctypes.c_void_p(got.ctypes.data), self.at, size)
        assert code == 0, code
        return got

    def free(self):
        assert self.driver.cuMemFree_v2(self.at) == 0


def argument(v):
    return v.at if isinstance(v, Memory) else ctypes.c_int(v)


def launch(driver, source, *args, grid=1, block=32, shared=0, stream=None, cooperative=False):
    """Runs the kernel `k` of a source; the driver's code."""
    handle = ctypes.c_void_p(function(0, HEAD + source, "k"))
    given = [argument(a) for a in args]
    cells = [ctypes.cast(ctypes.byref(g), ctypes.c_void_p) for g in given]
    params = (ctypes.c_void_p * max(len(cells), 1))(*cells)
    sizes = (grid, 1, 1, block, 1, 1, shared)
    if cooperative:
        return driver.cuLaunchCooperativeKernel(handle, *sizes, stream, params)
    return driver.cuLaunchKernel(handle, *sizes, stream, params, None)


def test_a_block_reduces(driver):
    source = """
    __global__ void k(float *x, int n) {
        extern __shared__ float part[];
        float s = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) s += x[i];
        for (int d = 16; d; d /= 2) s += __shfl_down_sync(0xffffffffu, s, d);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
        __syncthreads();
        if (threadIdx.x == 0) {
            float all = 0;
            for (int w = 0; w < blockDim.x / 32; w++) all += part[w];
            x[0] = all;
        }
    }"""
    x = Memory(driver, np.arange(1000, dtype=np.float32))
    assert launch(driver, source, x, 1000, block=128, shared=16) == 0
    assert x.get()[0] == 499500
    x.free()


@pytest.mark.parametrize("missing", [False, True])
def test_a_missing_barrier_is_seen(driver, missing):
    """The order of threads turns around from launch to launch."""
    barrier = "" if missing else "__syncthreads();"
    source = f"""
    __global__ void k(int *x) {{
        __shared__ int s[64];
        s[threadIdx.x] = threadIdx.x;
        {barrier}
        x[threadIdx.x] = s[63 - threadIdx.x];
    }}"""
    good = []
    for _ in range(2):
        x = Memory(driver, np.zeros(64, np.int32))
        assert launch(driver, source, x, block=64) == 0
        good.append(x.get().tolist() == list(range(63, -1, -1)))
        x.free()
    assert all(good) != missing


# either text, by the order in which the launches before left the threads
WRONG = {
    "lane 15 waits|lane 0 waits|thread 16 on: returned": (
        "if (threadIdx.x < 16) x[0] = __shfl_xor_sync(~0u, x[0], 1);"
    ),
    "wait for each other": "if (threadIdx.x % 2) __syncthreads(); else __syncwarp();",
    "of its block wait at": "if (threadIdx.x < 8)\n__syncthreads();\nelse\n__syncthreads();",
    "index 40 is out of|index 71 is out of": (
        "__shared__ float s[40]; s[threadIdx.x + 8] = 0; x[0] = s[0];"
    ),
    "is not aligned": "float4 v = *(float4 *)(x + 1); x[0] = v.x;",
    "is not in the mask": "x[0] = __shfl_sync(1u, x[0], 0);",
    "assertion failed: x": "assert(x == nullptr);",
    "name the lanes": "x[0] = __activemask();",
    "needs a cooperative launch": "unsigned r = 0; grid_barrier((unsigned *)x, r);",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_a_kernel_does_wrong_is_told(driver, emulator, text, capfd):
    x = Memory(driver, np.zeros(64, np.float32))
    assert launch(driver, f"__global__ void k(float *x) {{ {WRONG[text]} }}", x, block=64) == 0
    assert driver.cuCtxSynchronize() == LAUNCH_FAILED
    assert any(part in emulator.fault() for part in text.split("|")), emulator.fault()
    assert emulator.fault() in capfd.readouterr().err
    assert driver.cuCtxSynchronize() == LAUNCH_FAILED  # the device stays so, as a real one does
    emulator.reset()
    x.free()


def test_asynchronous_copies_arrive_when_waited_for(driver):
    source = """
    __global__ void k(float *x, int wait) {
        __shared__ alignas(16) float s[128];
        copy_async16(s + 4 * threadIdx.x, x + 4 * threadIdx.x, threadIdx.x < 31);
        copy_async_commit();
        if (wait) copy_async_wait<0>();
        __syncthreads();
        for (int i = 0; i < 4; i++) x[4 * threadIdx.x + i] = 2 * s[4 * threadIdx.x + i];
    }"""
    for wait in (1, 0):
        x = Memory(driver, np.ones(128, np.float32))
        assert launch(driver, source, x, wait) == 0
        got = x.get()
        x.free()
        assert (got[:124] == 2).all() == wait and (got[124:] == 0).all() == wait


@pytest.mark.parametrize("kind", ["half", "bfloat16", "tf32"])
def test_tensor_cores(driver, kind):
    k = 8 if kind == "tf32" else 16
    pack = {
        "half": "half2_of_floats({0}, {1})",
        "bfloat16": "bfloat162_of_floats({0}, {1})",
        "tf32": "tf32_of_float({0})",
    }[kind]
    if k == 16:
        place = lambda r, c: pack.format(f"a[({r}) * 16 + {c}]", f"a[({r}) * 16 + {c} + 1]")
        fill = [place("g", "2 * t"), place("g + 8", "2 * t"), place("g", "2 * t + 8")]
        fill += [place("g + 8", "2 * t + 8")]
        two = [
            pack.format(f"b[({r}) * 8 + g]", f"b[({r} + 1) * 8 + g]") for r in ("2*t", "2*t + 8")
        ]
    else:
        fill = [pack.format(f"a[({r}) * 8 + {c}]") for r, c in
                (("g", "t"), ("g + 8", "t"), ("g", "t + 4"), ("g + 8", "t + 4"))]  # fmt: skip
        two = [pack.format(f"b[({r}) * 8 + g]") for r in ("t", "t + 4")]
    source = f"""
    __global__ void k(const float *a, const float *b, float *d) {{
        int g = threadIdx.x / 4, t = threadIdx.x % 4;
        unsigned x[4] = {{{", ".join(fill)}}}, y[2] = {{{", ".join(two)}}};
        float c[4] = {{0, 0, 0, 0}};
        mma_{kind}(c, x, y);
        d[g * 8 + 2 * t] = c[0], d[g * 8 + 2 * t + 1] = c[1];
        d[(g + 8) * 8 + 2 * t] = c[2], d[(g + 8) * 8 + 2 * t + 1] = c[3];
    }}"""
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (16, k)).astype(np.float32)
    b = rng.integers(-4, 5, (k, 8)).astype(np.float32)
    arrays = [Memory(driver, v) for v in (a, b, np.zeros((16, 8), np.float32))]
    assert launch(driver, source, *arrays) == 0
    np.testing.assert_array_equal(arrays[2].get(), a @ b)
    for m in arrays:
        m.free()


def test_blocks_of_a_grid_meet(driver):
    source = """
    __global__ void k(int *x, int *count) {
        __shared__ int mine;
        if (threadIdx.x == 0) mine = blockIdx.x + 1;
        __syncthreads();
        unsigned round = 0;
        for (int step = 0; step < 3; step++) {
            if (threadIdx.x == 0) x[blockIdx.x] += mine;
            grid_barrier((unsigned *)count, round);
            if (threadIdx.x == 0 && blockIdx.x == 0)
                for (int b = 1; b < gridDim.x; b++) x[0] += x[b];
            grid_barrier((unsigned *)count, round);
        }
    }"""
    x, count = Memory(driver, np.zeros(3, np.int32)), Memory(driver, np.zeros(1, np.int32))
    assert launch(driver, source, x, count, grid=3, block=64, cooperative=True) == 0
    assert x.get().tolist() == [33, 6, 9]  # 1+2+3, then 7+4+6, then 18+6+9
    assert launch(driver, source, x, count, grid=100000, block=64, cooperative=True) == 720


def test_streams_wait_for_events_only(driver):
    slow = "__global__ void k(int *x) { for (int i = 0; i < 300; i++) __syncthreads(); *x += 1; }"
    streams = [ctypes.c_void_p() for _ in range(2)]
    event = ctypes.c_void_p()
    for s in streams:
        assert driver.cuStreamCreate(ctypes.byref(s), 1) == 0
    assert driver.cuEventCreate(ctypes.byref(event), 0) == 0
    x = Memory(driver, np.zeros(1, np.int32))
    for _ in range(4):  # 8 launches of two streams in turns: each waits for the one before
        for s in streams:
            assert launch(driver, slow, x, stream=s, block=256) == 0
            assert driver.cuEventRecord(event, s) == 0
            for other in streams:
                assert driver.cuStreamWaitEvent(other, event, 0) == 0
    assert driver.cuEventQuery(event) in (0, NOT_READY)
    for s in streams:
        assert driver.cuStreamSynchronize(s) == 0
        assert driver.cuStreamDestroy_v2(s) == 0
    assert driver.cuEventQuery(event) == 0
    assert x.get()[0] == 8 * 256
    x.free()


class KernelNode(ctypes.Structure):
    _fields_ = (
        [("function", ctypes.c_void_p)]
        + [(n, ctypes.c_uint) for n in ("gx", "gy", "gz", "bx", "by", "bz", "shared")]
        + [("params", ctypes.c_void_p), ("extra", ctypes.c_void_p)]
    )


def test_a_graph_is_replayed_with_other_arguments(driver):
    source = "__global__ void k(int *x, int n) { if (threadIdx.x == 0) *x = *x * 10 + n; }"
    stream, graph, run = (ctypes.c_void_p() for _ in range(3))
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    x = Memory(driver, np.zeros(1, np.int32))
    function(0, HEAD + source, "k")  # loading a module is not allowed while a stream captures
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    nodes, n = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
    status, name = ctypes.c_int(), ctypes.c_uint64()
    for digit in (1, 2):
        assert launch(driver, source, x, digit, stream=stream) == 0
    about = [ctypes.byref(v) for v in (status, name)]
    assert (
        driver.cuStreamGetCaptureInfo_v2(stream, *about, None, ctypes.byref(nodes), ctypes.byref(n))
        == 0
    )
    assert (status.value, n.value) == (1, 1)
    last = ctypes.c_void_p(nodes[0])
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    assert x.get()[0] == 0  # nothing ran
    flags = ctypes.c_uint64(0)
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(run), graph, flags) == 0
    assert driver.cuGraphLaunch(run, stream) == 0
    seven = ctypes.c_int(7)
    cells = [ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in (x.at, seven)]
    params = (ctypes.c_void_p * 2)(*cells)
    handle = function(0, HEAD + source, "k")
    node = KernelNode(handle, 1, 1, 1, 32, 1, 1, 0, ctypes.cast(params, ctypes.c_void_p), None)
    assert driver.cuGraphExecKernelNodeSetParams(run, last, ctypes.byref(node)) == 0
    assert driver.cuGraphLaunch(run, stream) == 0
    assert driver.cuStreamSynchronize(stream) == 0
    assert x.get()[0] == 1217
    assert driver.cuGraphExecDestroy(run) == driver.cuGraphDestroy(graph) == 0
    assert driver.cuStreamDestroy_v2(stream) == 0


def test_what_a_capture_refuses(driver):
    stream, graph, more = (ctypes.c_void_p() for _ in range(3))
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(more), ctypes.c_size_t(64)) == CAPTURE_UNSUPPORTED
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 901
    assert driver.cuStreamBeginCapture_v2(stream, 2) == 0
    assert driver.cuStreamSynchronize(stream) == CAPTURE_UNSUPPORTED
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 901
    assert driver.cuStreamDestroy_v2(stream) == 0


def test_memory_is_checked(driver):
    size = ctypes.c_size_t
    free, total = size(), size()
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    more = ctypes.c_uint64()
    too_much = size(total.value + 1)
    assert driver.cuMemAlloc_v2(ctypes.byref(more), too_much) == OUT_OF_MEMORY
    x = Memory(driver, np.zeros(4, np.float32))
    inside = ctypes.c_void_p(x.like.ctypes.data)
    assert driver.cuMemcpyHtoD_v2(x.at, inside, size(17)) == 1  # beyond its end
    assert driver.cuMemcpyHtoD_v2(ctypes.c_uint64(x.like.ctypes.data), inside, size(16)) == 1
    x.free()
    assert driver.cuMemFree_v2(x.at) == 1


def test_failures_on_request(driver, emulator):
    source = "__global__ void k(int *x) { *x = 1; }"
    x = Memory(driver, np.zeros(1, np.int32))
    emulator.fail(emulator.LAUNCH, 701, after=1)
    assert [launch(driver, source, x) for _ in range(3)] == [0, 701, 0]
    emulator.fail(emulator.ALLOCATION, OUT_OF_MEMORY)
    more = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(more), ctypes.c_size_t(8)) == OUT_OF_MEMORY
    emulator.fail(emulator.KERNEL, ILLEGAL_ADDRESS)
    assert launch(driver, source, x) == 0  # it fails later
    assert driver.cuCtxSynchronize() == ILLEGAL_ADDRESS
    emulator.reset()
    assert driver.cuCtxSynchronize() == 0
    x.free()


def test_launches_that_do_not_fit_are_refused(driver):
    source = "__global__ void k(int *x) { *x = 1; }"
    x = Memory(driver, np.zeros(1, np.int32))
    assert launch(driver, source, x, block=1025) == 1
    assert launch(driver, source, x, grid=0) == 1
    assert launch(driver, source, x, shared=(48 << 10) + 1) == 1
    handle = function(0, HEAD + source, "k")
    assert lib.pl_gpu_function_shared(0, handle, 100 << 10) == 0
    assert launch(driver, source, x, shared=100 << 10) == 0
    assert lib.pl_gpu_function_shared(0, handle, 1 << 20) != 0
    assert "shared memory" in ffi.string(lib.pl_error_message()).decode()
    assert driver.cuCtxSynchronize() == 0
    x.free()
