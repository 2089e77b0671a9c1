"""Linear algebra where derived tests do not look: large matrices, the unread triangle, errors,
values of MXNet 1.9.1."""

import itertools

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd


def definite(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(2, n, n))
    return x @ np.swapaxes(x, -1, -2) / n + np.eye(n)


def f64(x):
    return nd.array(x, dtype="float64")


@pytest.mark.parametrize("n", [1, 5, 33, 130, 520, 1030])
def test_kernels_and_blocks_agree_with_numpy(n):
    a = definite(n)[:1] if n > 500 else definite(n)
    low = nd.linalg.potrf(f64(a)).asnumpy()
    np.testing.assert_allclose(low, np.linalg.cholesky(a), atol=1e-10)
    b = np.random.default_rng(1).normal(size=(len(a), n, 3))
    for lower, transpose, right in itertools.product((0, 1), repeat=3):
        half = np.tril(a) if lower else np.triu(a)
        op = np.swapaxes(half, -1, -2) if transpose else half
        given = np.swapaxes(b, -1, -2) if right else b
        kw = {"lower": lower, "transpose": transpose, "rightside": right}
        y = nd.linalg.trmm(f64(a), f64(given), alpha=2.0, **kw).asnumpy()
        np.testing.assert_allclose(y, 2 * (given @ op if right else op @ given), atol=1e-9)
        x = nd.linalg.trsm(f64(a), f64(y), alpha=0.5, **kw).asnumpy()
        assert np.abs(x - given).max() < 1e-6 * max(1, np.linalg.cond(half).max())


def test_only_one_triangle_is_read():
    a = nd.array([[4, 99, 99], [2, 5, 99], [1, 2, 6]])
    low = nd.linalg.potrf(a).asnumpy()
    np.testing.assert_allclose(low, [[2, 0, 0], [1, 2, 0], [0.5, 0.75, 2.2776084]], rtol=1e-6)
    solved = nd.linalg.trsm(a, nd.ones((3, 1)), alpha=2).asnumpy()
    np.testing.assert_allclose(solved, [[0.5], [0.2], [0.18333333]], rtol=1e-6)
    u, values = nd.linalg.syevd(a)
    np.testing.assert_allclose(values.asnumpy(), [2.3599763, 4.1353579, 8.5046635], rtol=1e-6)
    np.testing.assert_allclose(
        u.asnumpy()[0], [0.71709335, -0.67494804, 0.17384581], rtol=1e-4
    )  # the sign: its largest element is positive


def test_triangles_are_packed_as_in_mxnet():
    a = nd.array([[4, 99, 98], [2, 5, 97], [1, 2, 6]])
    pack = nd.linalg.extracttrian
    assert pack(a).asnumpy().tolist() == [4, 2, 5, 1, 2, 6]
    assert pack(a, lower=False).asnumpy().tolist() == [4, 99, 5, 98, 97, 6]
    assert pack(a, offset=1).asnumpy().tolist() == [99, 98, 97]
    assert pack(a, offset=-1, lower=False).asnumpy().tolist() == [2, 1, 2]


def test_gradient_of_cholesky_is_mxnets():
    a = f64([[4, 99, 99], [2, 5, 99], [1, 2, 6]])
    a.attach_grad()
    with autograd.record():
        low = nd.linalg.potrf(a)
    head = [[1.5, -0.5, -0.5], [-1.0, 0.75, -2.25], [1.75, -0.75, 0.25]]
    low.backward(f64(head))
    np.testing.assert_allclose(
        a.grad.asnumpy(),
        [[0.40842, -0.33074, 0.52782], [-0.33074, 0.26553, -0.20808], [0.52782, -0.20808, 0.05488]],
        atol=5e-6,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_name_the_cause(dtype):
    bad = nd.array([[1, 2], [2, 1]], dtype=dtype)
    with pytest.raises(mx.MXNetError, match="linalg_potrf: A must be symmetric and positive"):
        nd.linalg.potrf(bad).asnumpy()
    with pytest.raises(mx.MXNetError, match="linalg_inverse: A must be invertible"):
        nd.linalg.inverse(nd.ones((2, 2), dtype=dtype)).asnumpy()
    with pytest.raises(mx.MXNetError, match="A must hold square matrices"):
        nd.linalg.potrf(nd.ones((2, 3), dtype=dtype))
    with pytest.raises(mx.MXNetError, match="needs float32 or float64, got float16"):
        nd.linalg.potrf(nd.ones((2, 2), dtype="float16"))
    with pytest.raises(mx.MXNetError, match="rightside=True"):
        nd.linalg.trsm(bad, nd.ones((3, 2), dtype=dtype))


def test_singular_matrices_have_determinants():
    a = f64(np.ones((2, 2)))
    a.attach_grad()
    with autograd.record():
        sign, log = nd.linalg.slogdet(a)
    log.backward()
    assert (sign.asscalar(), log.asscalar()) == (0, -np.inf)
    assert not a.grad.asnumpy().any()
    with autograd.record():
        det = nd.linalg.det(a)
    det.backward()  # the derivative, where MXNet gives zero
    np.testing.assert_allclose(a.grad.asnumpy(), [[1, -1], [-1, 1]], atol=1e-12)
