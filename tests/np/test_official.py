"""What mx.np shares with NumPy or makes of its own functions, beside NumPy."""

import io

import numpy as onp
import pytest
from plait import autograd, np

X = onp.arange(6, dtype="float32").reshape(2, 3)


@pytest.mark.parametrize(
    "text",
    """
    np.r_[V, 5.0, 1.0:4.0]
    np.r_[0.0:1.0:5j]
    np.c_[V, V * 2]
    np.c_[X, X]
    X[np.s_[:, 1:]]
    list(np.ndindex(2, 2))
    list(np.ndenumerate(X))
    np.array_str(X)
    np.array_repr(X)
    np.array2string(V, precision=1, separator=", ")
    np.stack([V, V], dtype="float64")
    np.hstack([V, V], dtype="float64")
    np.vstack([V, V], dtype="float64")
    np.divmod(V, 2.0, out=(V.copy(), V.copy()))
    np.modf(V, out=(V.copy(), V.copy()))
    X.conj()
    X.conjugate()
    """.strip().splitlines(),
)
def test_equals_numpy(text):
    V = X[0] + 0.5
    want = eval(text, {"np": onp, "X": X, "V": V})
    got = eval(text, {"np": np, "X": np.array(X), "V": np.array(V)})
    if isinstance(want, onp.ndarray):
        assert (got.shape, got.dtype.kind) == (want.shape, want.dtype.kind)
        onp.testing.assert_allclose(got.asnumpy(), want)
    elif isinstance(want, tuple):
        for a, b in zip(got, want):
            onp.testing.assert_allclose(a.asnumpy(), b)
    elif isinstance(want, str):  # float32 is the usual dtype of mx.np, so that it is not shown
        assert got == want
    else:
        assert got == want


def test_text_and_bytes(tmp_path):
    mine, theirs = io.StringIO(), io.StringIO()
    np.savetxt(mine, np.array(X), fmt="%.2f")
    onp.savetxt(theirs, X, fmt="%.2f")
    assert mine.getvalue() == theirs.getvalue()
    np.array(X).tofile(tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == X.tobytes()


def test_partition_in_place():
    x = np.array([3.0, 1.0, 2.0, 0.0])
    x.partition(1)
    assert x.asnumpy()[1] == 1 and x.asnumpy()[:2].max() <= x.asnumpy()[2:].min()


def test_joined_arrays_keep_gradients():
    x = np.array([1.0, 2.0])
    x.attach_grad()
    with autograd.record():
        total = (np.r_[x, 3.0, x] ** 2).sum() + np.c_[x, x].sum()
    total.backward()
    onp.testing.assert_allclose(x.grad.asnumpy(), [6.0, 10.0])
    with pytest.raises(TypeError, match="got the text 'r'"):
        np.r_["r", x]


def test_complex_numbers_are_refused_by_name():
    x = np.array([1.0])
    for call in (
        lambda: np.array([1 + 2j]),
        lambda: np.zeros(2, dtype="complex64"),
        lambda: x.astype(complex),
        lambda: x * 1j,
        lambda: np.exp(1j),
    ):
        with pytest.raises((TypeError, ValueError), match="complex|1j"):
            call()
