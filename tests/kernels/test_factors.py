"""Factorizations in C (cpu/factors.c) beside NumPy in float64."""

import numpy as np
import plait as mx
import pytest
from native_calls import TOLERANCE, normal, run_native
from plait import nd
from plait.kernels.record import REGISTRY

SIZES = [1, 2, 3, 8, 17, 64]


def native(name, *arrays):
    found, _ = run_native(REGISTRY[name], arrays, [a.dtype.name for a in arrays], {})
    return found


def well(n, dtype, batch=3):
    """Matrices whose pivots lie anywhere, not near a singular one."""
    q = np.linalg.qr(normal(batch, n, n).astype("float64"))[0]
    return (q * np.linspace(1, 2, n)).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_solutions_are_numpys(n, dtype):
    a, b = well(n, dtype), normal(3, n, 4).astype(dtype)
    wide, tolerance = a.astype("float64"), {"rtol": 1e-4, "atol": 1e-5}
    if dtype == "float64":
        tolerance = {"rtol": 1e-9, "atol": 1e-11}
    close = lambda got, want: np.testing.assert_allclose(got, want, **tolerance)
    close(native("_linalg_solve", a, b)[0], np.linalg.solve(wide, b.astype("float64")))
    close(native("_linalg_inverse", a)[0], np.linalg.inv(wide))
    close(native("_linalg_inverse_or_zero", a)[0], np.linalg.inv(wide))
    close(native("_linalg_det", a)[0], np.linalg.det(wide))
    for got, want in zip(native("_linalg_slogdet", a), np.linalg.slogdet(wide)):
        close(got, want)
    low = np.linalg.cholesky(wide @ np.swapaxes(wide, -1, -2)).astype(dtype)
    product = low.astype("float64") @ np.swapaxes(low.astype("float64"), -1, -2)
    close(native("_linalg_potri", low)[0], np.linalg.inv(product))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m, n", [(1, 1), (1, 5), (3, 3), (4, 9), (20, 31)])
def test_orthonormal_rows_have_lapacks_signs(m, n, dtype):
    a = normal(2, m, n).astype(dtype)
    q, low = native("_linalg_gelqf", a)
    want_q, want_r = np.linalg.qr(np.swapaxes(a.astype("float64"), -1, -2))
    tolerance = 20 * TOLERANCE[dtype]
    np.testing.assert_allclose(q, np.swapaxes(want_q, -1, -2), atol=tolerance)
    np.testing.assert_allclose(low, np.swapaxes(want_r, -1, -2), atol=tolerance)
    if m < n:
        columns = np.ascontiguousarray(np.swapaxes(q, -1, -2))
        (rest,) = native("_linalg_complement", columns)
        whole = np.concatenate([columns, rest], axis=-1)
        eye = np.swapaxes(whole, -1, -2) @ whole
        np.testing.assert_allclose(eye, np.broadcast_to(np.eye(n), eye.shape), atol=tolerance)


def test_singular_matrices():
    a = np.stack([np.diag([2.0, 0, 3]), np.ones((3, 3)), np.diag([1.0, 2, 4])])
    assert native("_linalg_det", a)[0].tolist() == [0, 0, 8]
    sign, logs = native("_linalg_slogdet", a)
    assert sign.tolist() == [0, 0, 1] and logs.tolist() == [-np.inf, -np.inf, np.log(8)]
    zeros = native("_linalg_inverse_or_zero", a)[0]
    assert not zeros[:2].any() and zeros[2].tolist() == np.diag([1, 0.5, 0.25]).tolist()
    for call in (
        lambda x: nd.linalg.inverse(x),
        lambda x: mx.np.linalg.solve(x.as_np_ndarray(), x.as_np_ndarray()),
    ):
        with pytest.raises(mx.MXNetError, match="must be invertible"):
            call(nd.array(a)).asnumpy()
    with pytest.raises(mx.MXNetError, match="no zero on its diagonal"):
        nd.linalg.potri(nd.array(a[0])).asnumpy()


def test_what_is_not_a_number_stays_so():
    a = np.full((1, 2, 2), np.nan)
    assert np.isnan(native("_linalg_det", a)[0]).all()
    assert all(np.isnan(x).all() for x in native("_linalg_slogdet", a))


def test_no_matrices_and_none_of_a_size():
    assert native("_linalg_det", np.zeros((0, 3, 3)))[0].shape == (0,)
    assert native("_linalg_inverse", np.zeros((2, 0, 0)))[0].shape == (2, 0, 0)
    assert native("_linalg_det", np.zeros((2, 0, 0)))[0].tolist() == [1, 1]
