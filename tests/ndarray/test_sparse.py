"""Sparse arrays: 518 expressions with the results of the real MXNet 1.9.1, and what a list of
expressions cannot show."""

import copy
import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.ndarray.sparse import storage

FIXTURES = Path(__file__).parents[1] / "fixtures"
MXNET = json.loads((FIXTURES / "sparse.json").read_text())
# a product of a dense and a csr matrix: MXNet keeps the zeros of rows without any element
KEEPS_ZEROS = {k for k in MXNET["results"] if k.startswith("nd.dot(D,W2c") and "row" not in k}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", storage.StorageFallback)
        yield


def given() -> dict:
    scope = {"mx": mx, "nd": nd, "np": np}
    for name, values in MXNET["inputs"].items():
        array = nd.array(values)
        scope |= {
            name: array,
            name + "r": array.tostype("row_sparse"),
            name + "c": array.tostype("csr"),
        }
    return scope


def evaluate(text: str):
    scope = given()
    if text.startswith("grad "):
        expression, names, stypes, req = gradient_of(text)
        for name, stype in zip(names, stypes):
            scope[name].attach_grad(req, stype=stype)
        for _ in range(1 if req == "write" else 3 if "Embedding" in text else 2):
            with mx.autograd.record():
                y = eval(expression, scope)
            y.backward()
        return [scope[name].grad for name in names]
    statement, _, expression = text.rpartition(" ; ")
    exec(statement, scope)
    return eval(expression, scope)


def gradient_of(text: str):
    head, req = text[5:].rsplit(" ", 1)
    at = head.index(" [")
    names, stypes = head[at + 1 :].split("] [")
    return head[:at], eval(names + "]"), eval("[" + stypes), req


def check(found, expected, text):
    if isinstance(expected, list) and expected and isinstance(expected[0], list):
        for f, e in zip(found, expected, strict=True):
            check(f, e, text)
        return
    if not isinstance(found, nd.NDArray):
        assert (list(map(repr, found)) if isinstance(found, tuple) else repr(found)) == expected
        return
    stype, dtype, shape, values, indices = expected
    assert (found.stype, np.dtype(found.dtype).name, list(found.shape)) == (stype, dtype, shape)
    np.testing.assert_allclose(found.asnumpy().ravel(), values, atol=2e-3)
    if stype == "row_sparse":
        assert found.indices.asnumpy().tolist() == indices
    elif stype == "csr" and text not in KEEPS_ZEROS:
        assert found.indptr.asnumpy().tolist() == indices
    if stype != "default":
        found.check_format()
        assert found.indices.dtype == np.int64


@pytest.mark.parametrize("start", range(16))
def test_results_are_those_of_mxnet(start):
    for text, expected in list(MXNET["results"].items())[start::16]:
        try:
            check(evaluate(text), expected, text)
        except Exception as error:
            raise AssertionError(f"{text}: {error}") from error


def test_storage_fallback_warns_once_per_operator(monkeypatch):
    monkeypatch.setattr(storage, "_warned", set())
    x = nd.sparse.csr_matrix(([1.0], [0], [0, 1, 1]), shape=(2, 3))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        nd.exp(x), nd.exp(x), nd.sigmoid(x), nd.sin(x)
    assert [str(w.message).split()[2] for w in seen] == ["exp", "sigmoid"]
    assert "csr" in str(seen[0].message) and seen[0].filename == __file__
    monkeypatch.setattr(storage, "_warned", set())
    monkeypatch.setattr(storage, "warns", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nd.exp(x).stype == "default"


def test_refused_sparse_calls_say_why():
    csr, rows = given()["Dc"], given()["Dr"]
    refused = [
        (lambda: csr.tostype("row_sparse"), ValueError, "csr to row_sparse"),
        (lambda: rows.tostype("csr"), ValueError, "row_sparse to csr"),
        (lambda: csr[0, 1], ValueError, "Multi-dimension"),
        (lambda: csr[::2], ValueError, "continuous"),
        (lambda: csr[4], ValueError, "row 4"),
        (lambda: rows[0], ValueError, "only supports"),
        (lambda: rows.__setitem__(0, 1), ValueError, "only supports"),
        (lambda: csr.__setitem__(slice(None), 3), ValueError, "cannot assign"),
        (lambda: csr.size, NotImplementedError, "stored"),
        (lambda: csr.reshape((3, 4)), mx.MXNetError, "not supported for SparseNDArray"),
        (lambda: csr.copyto(rows), TypeError, "row_sparse"),
        (lambda: bool(csr), ValueError, "ambiguous"),
        (lambda: nd.sparse.csr_matrix(rows), ValueError, "RowSparse"),
        (lambda: nd.sparse.row_sparse_array(csr), ValueError, "CSR"),
        (lambda: nd.sparse.csr_matrix((1, 2, 3, 4)), ValueError, "length of input tuple"),
        (lambda: nd.sparse.csr_matrix(([1], [0], [0, 1, 1, 2]), (2, 2)), mx.MXNetError, "indptr"),
        (lambda: nd.sparse.csr_matrix(np.eye(2), (3, 3)), ValueError, "Shape mismatch"),
        (lambda: nd.sparse.csr_matrix(([1], ([5], [0])), (2, 2)), ValueError, "must be in"),
        (lambda: nd.sparse.array(nd.ones((2, 2))), AssertionError, "tostype"),
        (lambda: nd.sparse.array(np.eye(2)), ValueError, "mx.nd.array"),
        (lambda: nd.sparse.zeros("coo", (2, 2)), ValueError, "unknown storage type"),
        (lambda: nd.sparse.zeros("csr", (2, 2, 2)), ValueError, "two axes"),
        (lambda: nd.dot(csr, nd.ones((4, 2))), mx.MXNetError, "must equal"),
        (lambda: nd.sparse.retain(rows, nd.array([9])), ValueError, "indices"),
        (lambda: nd.sparse.nonsense, AttributeError, "nonsense"),
        (lambda: nd.from_dlpack(csr), Exception, "sparse|Sparse"),
    ]
    for call, error, text in refused:
        with pytest.raises(error, match=text):
            call()


def test_check_format_finds_what_is_wrong():
    bad = [
        (([1, 2], [1, 0], [0, 2]), (1, 2), "ascend"),
        (([1, 2], [0, 5], [0, 2]), (1, 2), "in \\[0, 2\\)"),
        (([1, 2], [0, 1], [0, 2, 1, 2]), (3, 2), "descend"),
    ]
    for parts, shape, text in bad:
        array = nd.sparse.csr_matrix(parts, shape=shape)
        array.check_format(full_check=False)
        with pytest.raises(mx.MXNetError, match=text):
            array.check_format()
    for indices, text in (([1, 0], "ascend"), ([0, 7], "in \\[0, 3\\)")):
        with pytest.raises(mx.MXNetError, match=text):
            nd.sparse.row_sparse_array((np.ones((2, 2)), indices), shape=(3, 2)).check_format()


def test_copies_and_views():
    scope = given()
    for x in (scope["Dc"], scope["Dr"]):
        before = x.asnumpy()
        twin, view = x.copy(), x.detach()
        others = [pickle.loads(pickle.dumps(x)), copy.copy(x), copy.deepcopy(x)]
        x[:] = scope["E"]
        assert np.array_equal(view.asnumpy(), scope["E"].asnumpy())
        for other in (twin, *others):
            assert other.stype == x.stype and np.array_equal(other.asnumpy(), before)
        x.data[:] = 7  # a copy
        assert np.array_equal(x.asnumpy(), scope["E"].asnumpy())
        assert x.copyto(mx.cpu(1)).context == mx.cpu(1) and x.as_in_context(x.context) is x


def test_a_sparse_array_among_dense_ones_is_no_crash():
    """Every way into the core refuses the handle that a sparse array has not."""
    x, dense = given()["Dc"], given()["D"]
    dense[:] = x
    dense[1:2] = x[1:2].tostype("default")
    assert np.array_equal(dense.asnumpy(), x.asnumpy())
    out = nd.zeros((4, 3)).tostype("row_sparse")
    nd.relu(dense, out=out)
    assert out.stype == "row_sparse" and (out.asnumpy() >= 0).all()
    with pytest.raises(TypeError, match="dense NDArray is needed"):
        mx.engine._array.shared([x], [dense])


def test_csr_without_scipy_and_with_a_scipy_like_matrix(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    x = nd.sparse.csr_matrix(([1.0, 2, 3], ([0, 0, 1], [1, 1, 0])), shape=(2, 2))
    assert x.asnumpy().tolist() == [[0, 3], [3, 0]]
    with pytest.raises(ImportError, match="pip install scipy"):
        x.asscipy()


def test_scipy_matrices_come_and_go():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    dense = np.array([[0, 1.5, 0], [2, 0, 0]])
    for make in (scipy_sparse.csr_matrix, scipy_sparse.coo_matrix, scipy_sparse.csc_matrix):
        for function in (nd.array, nd.sparse.array, nd.sparse.csr_matrix):
            x = function(make(dense))
            assert (x.stype, x.dtype) == ("csr", np.float64)
            assert np.array_equal(x.asnumpy(), dense)
    assert (x.asscipy() != scipy_sparse.csr_matrix(dense)).nnz == 0


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int64", "uint8", "bfloat16"])
def test_every_dtype(dtype):
    dense = nd.array([[1, 0], [0, 2]], dtype=dtype)
    for stype in ("csr", "row_sparse"):
        x = dense.tostype(stype)
        assert np.array_equal(x.tostype("default").asnumpy(), dense.asnumpy())
        total = (x + x).astype("float32").asnumpy()
        assert total.tolist() == [[2, 0], [0, 4]]
        assert nd.sum(x, axis=0).astype("float32").asnumpy().tolist() == [1, 2]
    x, ones = dense.tostype("csr"), nd.ones((2, 1), dtype=dtype)
    for transposed in (False, True):
        found = nd.dot(x, ones, transpose_a=transposed).astype("float32").asnumpy()
        assert found.ravel().tolist() == [1, 2]


def test_batches_are_split_over_devices():
    x = given()["Dc"]
    parts = mx.gluon.utils.split_and_load(x, [mx.cpu(0), mx.cpu(1)])
    assert [(p.stype, p.shape, p.context) for p in parts] == [
        ("csr", (2, 3), mx.cpu(0)),
        ("csr", (2, 3), mx.cpu(1)),
    ]


def test_unsorted_columns_are_understood():
    x = nd.sparse.csr_matrix(([1, 2, 3], [2, 0, 1], [0, 2, 3]), shape=(2, 3))
    dense = np.array([[2, 0, 1], [0, 3, 0]], np.float32)
    assert np.array_equal(x.asnumpy(), dense)
    assert np.array_equal((x + x).asnumpy(), 2 * dense)
    assert np.array_equal((x + x.tostype("default").tostype("csr")).asnumpy(), 2 * dense)
    assert np.allclose(nd.dot(x, nd.array(dense.T)).asnumpy(), dense @ dense.T)


def test_unsorted_rows_are_understood():
    x = nd.sparse.row_sparse_array(([[3, 3], [1, 1]], [2, 0]), shape=(4, 2))
    dense = np.array([[1, 1], [0, 0], [3, 3], [0, 0]], np.float32)
    assert np.array_equal(x.asnumpy(), dense)
    for wanted in ([0], [2], [2, 0, 3]):
        kept = np.where(np.isin(np.arange(4), wanted)[:, None], dense, 0)
        assert np.array_equal(nd.sparse.retain(x, nd.array(wanted)).asnumpy(), kept)
    assert np.array_equal(x.sum(axis=1).asnumpy(), dense.sum(1))


@pytest.mark.parametrize("axis", [0, 1, None])
def test_indices_outside_an_array_raise(axis):
    matrix = nd.sparse.csr_matrix(([1, 2], [0, 3], [0, 1, 2]), shape=(2, 3))
    rows = nd.sparse.row_sparse_array(([[1], [2]], [0, 2]), shape=(2, 1))
    for x in (matrix, rows):
        for call in (x.sum, x.mean, x.norm):
            with pytest.raises(IndexError, match=r"indices must be in \[0, [23]\), got 0 to [23]"):
                call(axis=axis)
    with pytest.raises(IndexError, match="row indices must be in"):
        rows.retain(nd.array([0]))


def test_large_products_use_every_thread_alike():
    rng = np.random.default_rng(0)
    dense = rng.random((300, 200), np.float32) * (rng.random((300, 200)) < 0.2)
    x = nd.array(dense).tostype("csr")
    for columns in (1, 3, 130):
        y, z = rng.random((200, columns), np.float32), rng.random((300, columns), np.float32)
        np.testing.assert_allclose(nd.dot(x, nd.array(y)).asnumpy(), dense @ y, rtol=1e-4)
        for stype in ("default", "row_sparse"):
            found = nd.dot(x, nd.array(z), transpose_a=True, forward_stype=stype)
            np.testing.assert_allclose(found.asnumpy(), dense.T @ z, rtol=1e-4, atol=1e-4)
    z64 = rng.random((300, 5))
    found = nd.dot(x.astype("float64"), nd.array(z64, dtype="float64"), transpose_a=True)
    np.testing.assert_allclose(found.asnumpy(), dense.T @ z64, rtol=1e-6)


def test_row_sparse_right_sides_with_missing_rows():
    x = given()["Dc"]
    rows = nd.sparse.row_sparse_array(([[1, 1]], [2]), shape=(3, 2))
    np.testing.assert_allclose(nd.dot(x, rows).asnumpy(), x.asnumpy() @ rows.asnumpy(), rtol=1e-6)
    empty = nd.sparse.zeros("row_sparse", (3, 2))
    assert nd.dot(x, empty).asnumpy().tolist() == np.zeros((4, 2)).tolist()
    table = nd.sparse.row_sparse_array(([[1, 1]] * 2, [1, 4]), shape=(6, 2))
    found = nd.Embedding(nd.array([[1, 2], [4, 9]]), table, input_dim=6, output_dim=2)
    assert found.asnumpy()[..., 0].tolist() == [[1, 0], [1, 0]]


def test_graph_operators():
    x = nd.sparse.csr_matrix(([5, 6, 7], [1, 0, 2], [0, 1, 3]), shape=(2, 3))
    assert nd.contrib.getnnz(x, axis=0).asnumpy().tolist() == [1, 1, 1]
    found = nd.contrib.edge_id(x, nd.array([0, 0, 1]), nd.array([1, 0, 2]))
    assert found.asnumpy().tolist() == [5, -1, 7]
    with pytest.raises(ValueError, match="v must be in"):
        nd.contrib.edge_id(x, nd.array([0]), nd.array([3]))


# ---- gradients -----------------------------------------------------------------------------------


def test_embedding_gradients_are_rows_and_programs_stay_compiled():
    ids = [nd.array([[0, 2, 2]]), nd.array([[5, 2, 9]])]  # 9 is clipped to 6
    grads = {}
    for stype in ("default", "row_sparse"):
        w = nd.array(np.arange(14).reshape(7, 2))
        w.attach_grad(stype=stype)
        for data in ids * 3:
            with mx.autograd.record():
                kw = {"input_dim": 7, "output_dim": 2, "sparse_grad": True}
                y = nd.Embedding(data, w, **kw) * nd.Embedding(ids[0], w, **kw)
                loss = (y * y).sum() + w.sum() * 0 if stype == "default" else (y * y).sum()
            loss.backward()
        grads[stype] = w.grad
    assert grads["row_sparse"].indices.asnumpy().tolist() == [0, 2, 5, 6]
    np.testing.assert_allclose(grads["row_sparse"].asnumpy(), grads["default"].asnumpy())


def test_a_dense_part_of_a_row_sparse_gradient():
    w = nd.ones((4, 2))
    w.attach_grad(stype="row_sparse")
    with mx.autograd.record():
        y = nd.Embedding(nd.array([1]), w, input_dim=4, output_dim=2).sum() + (w[0:1] * 3).sum()
    y.backward()
    assert w.grad.asnumpy().tolist() == [[3, 3], [1, 1], [0, 0], [0, 0]]
    with mx.autograd.record():
        y = (nd.ones((1,)) * 2).sum() + w.detach().sum() + w.sum() * 0
    y.backward()
    assert not w.grad.asnumpy().any()


def test_gradients_with_zero_head_and_retain_graph():
    x, w = given()["Dc"], given()["W"]
    w.attach_grad(grad_req="add", stype="row_sparse")
    with mx.autograd.record():
        y = nd.dot(x, w)
    y.backward(nd.ones(y.shape), retain_graph=True)
    once = w.grad.asnumpy()
    y.backward(nd.ones(y.shape))
    np.testing.assert_allclose(w.grad.asnumpy(), 2 * once, rtol=1e-5)
    w.grad[:] = 0
    assert not w.grad.asnumpy().any() and w.grad.stype == "row_sparse"


def test_gradients_of_gradients_through_a_sparse_product():
    x = given()["Dc"]
    w = nd.array(np.ones((3, 1)))
    w.attach_grad()
    with mx.autograd.record():
        y = (nd.dot(x, w) ** 3).sum()
        (g,) = mx.autograd.grad(y, [w], create_graph=True, retain_graph=True)
        z = (g.tostype("default") ** 2).sum()
    z.backward()
    dense = x.asnumpy().astype(np.float64)

    def f(v):
        return ((3 * dense.T @ (dense @ v) ** 2) ** 2).sum()

    eps, v = 1e-5, np.ones((3, 1))
    numeric = [(f(v + eps * e[:, None]) - f(v - eps * e[:, None])) / 2 / eps for e in np.eye(3)]
    np.testing.assert_allclose(w.grad.asnumpy().ravel(), numeric, rtol=1e-3)


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("indptr, indices", [([0, 9, 3], [0, 1, 2]), ([0, 1, 3], [0, 7, 2])])
def test_a_broken_csr_matrix_is_an_error_not_a_crash(indptr, indices, threaded):
    broken = nd.sparse.csr_matrix(([1.0, 2, 3], indices, indptr), shape=(2, 3))
    for transpose in (False, True):
        x = nd.ones((2 if transpose else 3, 400 if threaded else 2))
        with pytest.raises(mx.MXNetError, match="csr matrix|indices must be in"):
            nd.sparse.dot(broken, x, transpose_a=transpose).asnumpy()


def bad_arrays():
    csr, rows = nd.sparse.csr_matrix, nd.sparse.row_sparse_array
    yield csr(([1.0, 2, 3], [0, 9, 1], [0, 2, 3]), shape=(2, 3)), r"column indices .* got 0 to 9"
    yield csr(([1.0, 2, 3], [0, -1, 1], [0, 2, 3]), shape=(2, 3)), r"column indices .* got -1 to 1"
    yield csr(([1.0, 2, 3], [0, 2, 1], [0, 5, 3]), shape=(2, 3)), "indptr must not descend"
    yield rows(([[1.0, 2]] * 2, [0, 9]), shape=(3, 2)), r"row indices .* got 0 to 9"
    yield rows(([[1.0, 2]] * 2, [-1, 0]), shape=(3, 2)), r"row indices .* got -1 to 0"


@pytest.mark.parametrize("which", range(5))
def test_missing_indices_raise_where_they_matter(which):
    x, rule = list(bad_arrays())[which]
    uses = [lambda: x.tostype("default"), x.asnumpy, lambda: (x + x).asnumpy()]
    if x.stype == "csr":
        uses.append(lambda: x[0:2].asnumpy())
    for use in uses:
        with pytest.raises(mx.base.MXNetError, match=rule):
            use()
    with pytest.raises(mx.base.MXNetError, match="check_format"):
        x.check_format()


DENSE_DOTS = [
    ((4,), (4,), {}),
    ((4,), (4, 3), {}),
    ((2, 4), (4,), {}),
    ((2, 3, 4), (4, 5), {}),
    ((3, 4), (5, 4), {"transpose_b": True}),
    ((2, 3, 4), (2, 5, 3), {"transpose_a": True}),
]


@pytest.mark.parametrize(("a", "b", "transposed"), DENSE_DOTS)
def test_gradients_of_dense_products_with_row_sparse_results(a, b, transposed):
    rng = np.random.default_rng(0)
    inputs = [nd.array(rng.normal(size=shape)) for shape in (a, b)]
    grads = {}
    for stype in ("row_sparse", "default"):
        for x in inputs:
            x.attach_grad()
        with mx.autograd.record():
            y = nd.dot(*inputs, forward_stype=stype, **transposed)
        assert y.stype == stype
        y.backward(nd.arange(1, np.prod(y.shape) + 1).reshape(y.shape))
        grads[stype] = [x.grad.asnumpy() for x in inputs]
    for one, other in zip(*grads.values()):
        np.testing.assert_allclose(one, other, rtol=1e-5)
