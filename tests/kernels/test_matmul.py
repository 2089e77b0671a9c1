"""Matrix products: every shape of tile, few rows, packing, threads, and what follows a product."""

import numpy as np
import plait as mx
import pytest
from plait.engine import ffi, lib
from plait.kernels.activations import NUMBERS

SIZES = [
    (1, 1, 1),
    (1, 70, 33),
    (2, 3, 0),
    (3, 130, 17),
    (4, 16, 5),
    (6, 16, 8),
    (13, 17, 19),
    (64, 10, 128),
    (97, 33, 300),
    (130, 513, 70),
    (100, 40, 2100),  # more than one pass over the depth
    (5, 3000, 700),  # more than one stripe
    (8, 5, 200),  # rows of A times rows of B, the last group of columns twice
    (17, 66, 260),
    (33, 2, 700),
    (40, 64, 40),  # both operands where they lie
    (9, 1024, 36),  # lines of B in one set of the cache
    (22, 1024, 36),
    (28, 48, 1100),
    (1, 1, 1000),  # two vectors
    (1, 1, 77),
    (1, 9, 133),  # a vector and a matrix
    (10, 10, 10),  # small: B in one buffer, or in place
    (7, 32, 64),
    (64, 50, 40),
    (5, 33, 3),
    (50, 101, 24),  # few multiplications for each store: one row of tiles after the other
    (130, 70, 64),
    (200, 2100, 7),
]


@pytest.fixture(params=range(lib.plk_isa_best() + 1))
def isa(request):
    lib.plk_isa_set(request.param)
    yield request.param
    lib.plk_isa_set(lib.plk_isa_best())


def normal(*shape):
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def close(got, want, scale=1.0):
    np.testing.assert_allclose(got.asnumpy(), want, rtol=2e-5, atol=4e-6 * scale + 1e-6)


@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_dot(isa, m, n, k, ta, tb):
    a, b = normal(*((k, m) if ta else (m, k))), normal(*((n, k) if tb else (k, n)))
    want = (a.T if ta else a).astype("float64") @ (b.T if tb else b)
    close(mx.nd.dot(mx.nd.array(a), mx.nd.array(b), transpose_a=ta, transpose_b=tb), want, k)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_rows_meet_each_column_once(isa, m):
    for n in (*range(1, 14), 63, 64, 65, 67, 130, 190):
        a, b = normal(m, 70), normal(n, 70)
        got = mx.nd.dot(mx.nd.array(a), mx.nd.array(b), transpose_b=True)
        close(got, a.astype("float64") @ b.T, 70)


@pytest.mark.parametrize("m, n, k", [(64, 48, 32), (200, 300, 150), (700, 129, 260)])
def test_dense(isa, m, n, k):
    x, w, b = normal(m, k), normal(n, k), normal(n)
    y = mx.nd.FullyConnected(*map(mx.nd.array, (x, w, b)), num_hidden=n)
    close(y, x.astype("float64") @ w.T + b, k)


def test_not_a_number_stays_in_its_row_and_column():
    a, b = normal(20, 30), normal(30, 40)
    a[3, 4], b[5, 6] = np.nan, np.inf
    got = mx.nd.dot(mx.nd.array(a), mx.nd.array(b)).asnumpy()
    with np.errstate(invalid="ignore"):
        want = a @ b
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


def test_many_threads_give_what_one_gives():
    x, w = mx.nd.array(normal(500, 256)), mx.nd.array(normal(100, 256))
    many = mx.nd.dot(x, w, transpose_b=True).asnumpy()
    rows = [mx.nd.dot(x[i : i + 20], w, transpose_b=True).asnumpy() for i in range(0, 500, 20)]
    np.testing.assert_array_equal(many, np.concatenate(rows))


@pytest.mark.parametrize(
    "m, n, k", [(3, 70, 40), (8, 70, 200), (16, 6, 300), (40, 40, 30), (65, 40, 300)]
)
def test_what_follows_a_product(isa, m, n, k):
    """Bias, activation, addition and what was activated, for each way through the operands."""
    a, b, bias, more = normal(m, k), normal(n, k), normal(n), normal(m, n)
    fields = {
        "n_batch": 1,
        "m": m,
        "n": n,
        "k": k,
        "alpha": 0.5,
        "transpose_b": 1,
        "act": NUMBERS["relu"],
    }
    params = ffi.new("plk_gemm *", fields | {"bias": 1, "residual": 1, "keep": 1})
    c, pre = np.empty((m, n), "float32"), np.empty((m, n), "float32")
    arrays = (a, b, bias, more, c, pre)
    bufs = ffi.new("void *[]", [ffi.cast("void *", x.ctypes.data) for x in arrays])
    assert lib.plk_gemm_run(params, bufs, ffi.NULL) == lib.PL_OK
    want = 0.5 * (a.astype("float64") @ b.T) + bias
    np.testing.assert_allclose(pre, want, rtol=2e-5, atol=4e-6 * k)
    np.testing.assert_allclose(c, np.maximum(want, 0) + more, rtol=2e-5, atol=4e-6 * k)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 7, 13, 33, 98])
@pytest.mark.parametrize("n, k", [(1, 9), (70, 200), (16, 30), (130, 2100), (2100, 65)])
@pytest.mark.parametrize("wide", [0.5, 1, 2])
def test_weights_in_panels(isa, m, n, k, wide):
    """The columns of B filled up with what no result may show; panels of this machine's best
    kernels, of lesser ones, and of wider ones."""
    a, b, bias, more = normal(m, k), normal(k, n), normal(n), normal(m, n)
    width = int(wide * (8 << lib.plk_isa_best()))
    padded = np.concatenate([b, np.full((k, -n % width), np.nan, "float32")], 1)
    panels = np.ascontiguousarray(padded.reshape(k, -1, width).swapaxes(0, 1))
    fields = {"n_batch": 1, "m": m, "n": n, "k": k, "alpha": 0.5, "panel": width}
    params = ffi.new("plk_gemm *", fields | {"bias": 1, "residual": 1, "act": NUMBERS["relu"]})
    c = np.full((m + 1, n), 7, "float32")
    bufs = ffi.new(
        "void *[]", [ffi.cast("void *", x.ctypes.data) for x in (a, panels, bias, more, c)]
    )
    assert lib.plk_gemm_run(params, bufs, ffi.NULL) == lib.PL_OK
    want = np.maximum(0.5 * (a.astype("float64") @ b) + bias, 0) + more
    np.testing.assert_allclose(c[:m], want, rtol=2e-5, atol=4e-6 * k)
    assert (c[m] == 7).all()


def test_the_cut_of_rows_changes_no_result(isa):
    """A row's sum is the same in a tall tile and in a short one."""
    b = mx.nd.array(normal(300, 70))
    x = normal(120, 300)
    all_rows = mx.nd.dot(mx.nd.array(x), b).asnumpy()
    for m in range(4, 120):
        got = mx.nd.dot(mx.nd.array(x[:m]), b).asnumpy()
        np.testing.assert_array_equal(got, all_rows[:m])


def test_a_batch_of_none_writes_nothing():
    """The kernel once took no batches for one, and wrote past the end of an empty array."""
    guard = np.full(64, 7, "float32")
    fields = {"n_batch": 0, "m": 4, "n": 4, "k": 4, "a_step": 16, "b_step": 16, "alpha": 1.0}
    params = ffi.new("plk_gemm *", fields)
    bufs = ffi.new("void *[]", [ffi.cast("void *", guard.ctypes.data)] * 3)
    assert lib.plk_gemm_run(params, bufs, ffi.NULL) == lib.PL_OK
    assert (guard == 7).all()
