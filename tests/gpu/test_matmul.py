"""Matrix products on gpu(0), by cuBLASLt and by our own kernel; no multiples of tiles."""

import numpy as np
import pytest
from calls import back, call, close, drawn, on_gpu, reference
from plait import gpu, nd
from plait.kernels.cuda import matmul_plan

DTYPES = ("float32", "float64", "float16", "bfloat16")


@pytest.fixture(params=["cuBLASLt", "own"])
def library(request, monkeypatch):
    if request.param == "cuBLASLt" and not matmul_plan.has_blas():
        pytest.skip("there is no cuBLASLt")
    monkeypatch.setattr(matmul_plan, "FORCE_OWN", request.param == "own")


@pytest.fixture
def own(monkeypatch):
    monkeypatch.setattr(matmul_plan, "FORCE_OWN", True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (65, 70, 33), (3, 130, 7)])
def test_dot(library, dtype, sizes):
    m, n, k = sizes
    rng = np.random.default_rng(0)
    a, b = on_gpu(drawn(rng, m, k), dtype), on_gpu(drawn(rng, k, n), dtype)
    close(call("dot", a, b), back(a) @ back(b), dtype)
    close(call("dot", a.T, b, transpose_a=True), back(a) @ back(b), dtype)
    close(call("dot", a, b.T, transpose_b=True), back(a) @ back(b), dtype)
    close(call("dot", a.T, b.T, transpose_a=True, transpose_b=True), back(a) @ back(b), dtype)


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_large_tiles(own, dtype, monkeypatch):
    """The tiles of 128 x 128, which only products have that fill a device."""
    monkeypatch.setattr(matmul_plan, "FILLING", 1)
    rng = np.random.default_rng(1)
    a, b = on_gpu(drawn(rng, 131, 37), dtype), on_gpu(drawn(rng, 37, 150), dtype)
    close(call("dot", a, b), back(a) @ back(b), dtype)
    close(call("dot", a, b.T, transpose_b=True), back(a) @ back(b), dtype)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_slices_of_a_long_sum(own, dtype):
    rng = np.random.default_rng(2)
    a, b = on_gpu(drawn(rng, 5, 1100), dtype), on_gpu(drawn(rng, 1100, 6), dtype)
    close(call("dot", a, b), back(a) @ back(b), dtype)


def test_rows_that_begin_anywhere(library):
    """A view of an array begins where vectors of four elements do not."""
    rng = np.random.default_rng(3)
    a, b = on_gpu(drawn(rng, 21, 4)), on_gpu(drawn(rng, 4, 8))
    whole = on_gpu(drawn(rng, 40, 1))
    close(call("dot", a[1:], b), back(a)[1:] @ back(b))
    part = whole[3:31].reshape((7, 4))
    close(call("dot", part, b), back(whole)[3:31].reshape(7, 4) @ back(b))


def test_nothing_to_add_up(library):
    y = call("dot", nd.zeros((3, 0), ctx=gpu(0)), nd.zeros((0, 4), ctx=gpu(0)))
    assert (y.asnumpy() == np.zeros((3, 4))).all()
    assert call("dot", nd.zeros((0, 3), ctx=gpu(0)), nd.zeros((3, 4), ctx=gpu(0))).shape == (0, 4)


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_batches(library, dtype):
    rng = np.random.default_rng(4)
    a, b = on_gpu(drawn(rng, 3, 9, 10), dtype), on_gpu(drawn(rng, 3, 10, 66), dtype)
    close(call("batch_dot", a, b), back(a) @ back(b), dtype)
    close(call("_linalg_gemm2", a, b, alpha=-0.5), -0.5 * (back(a) @ back(b)), dtype)


@pytest.mark.parametrize("act", [None, "relu", "sigmoid", "gelu", "silu", "softrelu"])
@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("residual, keep", [(False, False), (True, False), (True, True)])
def test_what_follows_a_product(library, act, dtype, residual, keep):
    rng = np.random.default_rng(5)
    shapes = [(7, 20), (18, 20), (18,), (7, 18)][: 3 + residual]
    arrays = [on_gpu(drawn(rng, *s), dtype) for s in shapes]
    attrs = dict(transpose_b=True, scale=0.5, act=act, bias=True, residual=residual, keep=keep)
    outs = call("_dense", *arrays, **attrs)
    want = reference("_dense", *arrays, **attrs)
    for got, w in zip(outs if keep else [outs], want if keep else [want], strict=True):
        close(got, w, dtype)


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_product_and_sums(library, dtype):
    rng = np.random.default_rng(6)
    arrays = on_gpu(drawn(rng, 70, 33), dtype), on_gpu(drawn(rng, 70, 5), dtype)
    for got, want in zip(call("_dot_sum", *arrays), reference("_dot_sum", *arrays), strict=True):
        close(got, want, dtype)


def test_tf32(own, monkeypatch):
    """Where it is asked for, operands have 10 bits; else all 23."""
    a = np.full((8, 64), 1 + 2.0**-12)
    exact = back(call("dot", on_gpu(a), on_gpu(a.T)))
    monkeypatch.setenv("PLAIT_TF32", "1")
    rounded = back(call("dot", on_gpu(a), on_gpu(a.T)))
    assert (rounded == 64).all()
    assert np.allclose(exact, 64 * (1 + 2.0**-12) ** 2, rtol=1e-6)


INTERLEAVED = {
    "selfatt_qk": ((5, 2, 24),),
    "selfatt_valatt": ((5, 2, 24), (4, 5, 5)),
    "encdec_qk": ((3, 2, 10), (7, 2, 20)),
    "encdec_valatt": ((7, 2, 20), (4, 3, 7)),
}


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("name", INTERLEAVED)
def test_interleaved_products(library, name, dtype):
    rng, full = np.random.default_rng(7), f"_contrib_interleaved_matmul_{name}"
    arrays = [on_gpu(drawn(rng, *s), dtype) for s in INTERLEAVED[name]]
    close(call(full, *arrays, heads=2), reference(full, *arrays, heads=2), dtype)
