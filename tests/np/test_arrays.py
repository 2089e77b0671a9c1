"""mx.np's array beyond its values: text, copies, classes, gradients, files."""

import copy
import math
import pickle
import threading
from pathlib import Path

import numpy as onp
import plait as mx
import pytest
from plait import autograd, nd, np, npx

FILE = Path(__file__).parent / "arrays.npx"


@pytest.mark.parametrize(
    "text, shown",
    [
        ("np.array([1, 2])", "array([1., 2.])"),
        ("np.array(1.5)", "array(1.5)"),
        ("np.zeros((0, 3))", "array([], shape=(0, 3))"),
        ("np.array([1, 2], dtype='int32')", "array([1, 2], dtype=int32)"),
        ("np.array([1, 2], dtype='int64')", "array([1, 2], dtype=int64)"),
        ("np.array([1, 2], dtype='float64')", "array([1., 2.], dtype=float64)"),
        ("np.array([1, 0], dtype=bool)", "array([ True, False])"),
        ("np.array(1, dtype='float16')", "array(1., dtype=float16)"),
        ("np.array([1, 2], dtype='bfloat16')", "array([1., 2.], dtype=bfloat16)"),
        ("np.zeros((0,), dtype='int32')", "array([], dtype=int32)"),
        ("np.ones((2, 2))", "array([[1., 1.],\n       [1., 1.]])"),
        ("np.ones((2,), ctx=mx.cpu(1))", "array([1., 1.])"),
    ],
)
def test_repr(text, shown):
    assert repr(eval(text)) == shown


def test_repr_of_a_long_array_and_print_options():
    x, text = np.arange(2000), "0.000e+00, 1.000e+00, 2.000e+00, ..., 1.997e+03, 1.998e+03,\n"
    assert repr(x) == f"array([{text}       1.999e+03], shape=(2000,))"
    before = onp.get_printoptions()["precision"]
    try:
        np.set_printoptions(precision=2)
        assert str(np.array([1.23456])) == "[1.23]"
    finally:
        np.set_printoptions(precision=before)


def test_classes_and_what_views_share():
    x = np.arange(6).reshape(2, 3)
    for made in (
        x[0],
        x[0, 0],
        x[:, 1],
        x.T,
        x.copy(),
        x.astype(int),
        x.detach(),
        x[x > 2],
        x[[0]],
        next(iter(x)),
    ):
        assert type(made) is np.ndarray
    for made in (
        x.copyto(mx.cpu()),
        x.as_in_ctx(mx.cpu()),
        x.to_device(mx.cpu()),
        x.flat,
        x.sum(),
        pickle.loads(pickle.dumps(x)),
        copy.deepcopy(x),
        copy.copy(x),
    ):
        assert type(made) is np.ndarray
    x.reshape(-1)[0] = 7
    x.ravel()[1] = 8
    np.expand_dims(x, 0)[0, 1, 2] = 9
    x.as_nd_ndarray()[1, 0] = 10
    assert x.tolist() == [[7, 8, 2], [10, 4, 9]]
    x.flatten()[0] = 0
    x.T[0, 0] = 0
    x[:, ::2][0, 0] = 0
    assert x[0, 0] == 7
    assert isinstance(x, nd.NDArray) and not isinstance(nd.ones(1), np.ndarray)


def test_pickle_keeps_class_dtype_and_shape():
    for x in (np.array(1.5), np.zeros((0, 2), dtype="int32"), np.array([True], dtype=bool)):
        found = pickle.loads(pickle.dumps(x))
        assert type(found) is np.ndarray
        assert (found.dtype, found.shape, found.tolist()) == (x.dtype, x.shape, x.tolist())


def test_numbers_and_numpy():
    x = np.arange(4, dtype="int32")
    assert list(range(10))[x[2]] == 2 and onp.arange(5)[x].tolist() == [0, 1, 2, 3]
    assert onp.asarray(x).dtype == onp.int32 and onp.array([x[0], x[1]]).tolist() == [0, 1]
    assert len({hash(x), hash(x)}) == 1 and x in [x][0:1]
    assert (math.floor(np.array(1.7)), math.ceil(np.array([1.2])), int(np.array([3.7]))) == (
        1,
        2,
        3,
    )
    x.fill(3)
    assert x.tolist() == [3] * 4
    y = np.array([3, 1, 2])
    assert y.sort() is None and y.tolist() == [1, 2, 3]
    y.put([0, -1], [8, 9])
    assert y.tolist() == [8, 2, 9]
    np.put_along_axis(y, np.array([1], dtype="int64"), 5, 0)
    np.copyto(y, 4, where=y > 8)
    assert y.tolist() == [8, 5, 4]
    z = np.zeros((3, 3))
    np.fill_diagonal(z, 2)
    assert z.tolist() == (onp.eye(3) * 2).tolist()


def test_a_float_index_that_looks_like_a_mask_warns():
    x = np.arange(3)
    with pytest.warns(UserWarning, match="positions and no mask"):
        assert x[np.array([True, False, True])].tolist() == [1, 0, 1]
    assert x[[True, False, True]].tolist() == [0, 2]
    assert x[np.array([0, 2])].tolist() == [0, 2]


def test_dtypes():
    assert np.array([True]).dtype == np.array(5).dtype == np.full((1,), 7).dtype == onp.float32
    assert np.full((1,), True).dtype == bool and np.indices((2,)).dtype == onp.int32
    assert (
        np.array(onp.array([1])).dtype == onp.int64
        and np.zeros(1, dtype=float).dtype == onp.float64
    )
    assert np.array(nd.ones(1, dtype="int8")).dtype == onp.int8
    assert np.concatenate([np.ones(1, dtype="int32"), np.ones(1)]).dtype == onp.float32
    assert np.stack([np.ones(1, dtype="float16"), np.ones(1)]).dtype == onp.float32
    assert np.where(np.ones(1, dtype=bool), np.ones(1, dtype="int32"), 1.5).dtype == onp.float32
    assert np.where(np.ones(1, dtype=bool), np.ones(1, dtype="int32"), 1).dtype == onp.int32
    assert np.full((2,), 2**60, dtype="int64")[0] == 2**60
    assert np.ones(1, dtype="bfloat16").astype("float32")[0] == 1


# ---- gradients -----------------------------------------------------------------------------------


def gradient(f, *values):
    xs = [np.array(onp.asarray(v, "float64")) for v in values]
    for x in xs:
        x.attach_grad()
    with autograd.record():
        y = f(*xs)
        total = (y * np.arange(1, y.size + 1, dtype="float64").reshape(y.shape)).sum()
    total.backward()
    assert all(type(x.grad) is np.ndarray for x in xs)
    return [x.grad.asnumpy() for x in xs]


def central(f, *values):
    """Of the same sum, by official NumPy."""

    def total(*xs):
        y = onp.asarray(f(*xs))
        return (y * onp.arange(1, y.size + 1).reshape(y.shape)).sum()

    found = []
    for i, v in enumerate(values):
        v = onp.asarray(v, "float64")
        g = onp.zeros_like(v)
        for at in onp.ndindex(v.shape):
            step = onp.zeros_like(v)
            step[at] = 1e-4
            plus = [x if j != i else v + step for j, x in enumerate(values)]
            minus = [x if j != i else v - step for j, x in enumerate(values)]
            g[at] = (total(*plus) - total(*minus)) / 2e-4
        found.append(g)
    return found


X = onp.arange(12.0).reshape(3, 4) / 4 + 0.1
Y = onp.cos(X)
MOVES = """
x[1] x[1,2] x[()] x[...,None] x[::-1,::2] x[[0,0,2]] x[[0,2],[1,1]] x[x>1.2] x[x[:,0]>1]
x[:,[1,1]] x[None,True] x[onp.array([2,0])] x[[[0,1],[1,2]],1] x[1:,[0,3]] x.T x.reshape(2,-1)
x.ravel() np.insert(x,1,y[:,0],axis=1) np.delete(x,[1],1) np.append(x,y,0) np.resize(x,(5,3))
np.tile(x,2) np.repeat(x,[1,0,2],0) np.roll(x,1,1) np.rot90(x) np.rot90(x,3) np.flip(x,1)
np.pad(x,2,'reflect') np.pad(x,((1,0),(2,3)),'wrap') np.pad(x,1,'mean')
np.pad(x,(4,5),'symmetric') np.pad(x,2,'edge') np.pad(x,1,'maximum') np.atleast_1d(x)
np.atleast_2d(x[0]) np.atleast_3d(x) np.where(x>1,x,0) np.where(x>1,0,x) np.where(x>1,x,y)
np.where(x>1,x,y[0]) np.diagonal(x,1) np.diag(x[0]) np.tril(x) np.triu(x,1) np.take(x,[5,5,0])
np.take(x,[1,1],1) np.take_along_axis(x,onp.argsort(Y,1),1) np.choose([0,1,1,0],[x,y])
np.compress([1,0,1],x,0) np.extract(x>1.3,x) np.select([x<1,x>2],[x,y]) np.concatenate([x,y],1)
np.stack([x,y],1) np.dstack([x,y]) np.column_stack([x[:,0],y]) np.split(x,2,1)[1]
np.array_split(x,3,1)[0] np.broadcast_to(x[0],(2,4)) np.squeeze(x[None]) np.moveaxis(x[None],0,2)
np.trim_zeros(x[0]) np.linspace(x[0],y[0],3) np.meshgrid(x[0],y[1])[0]
""".split()


@pytest.mark.parametrize("text", MOVES)
def test_gradients_of_what_moves_values(text):
    scope = {"onp": onp, "Y": Y}
    ours = lambda x, y: eval(text, {**scope, "np": np, "x": x, "y": y})
    theirs = lambda x, y: eval(text, {**scope, "np": onp, "x": x, "y": y})
    with autograd.pause():
        onp.testing.assert_allclose(
            ours(np.array(X), np.array(Y)).asnumpy(), theirs(X, Y), rtol=1e-6
        )
    got = gradient(lambda x, y: ours(x, y) + 0 * y.sum() + 0 * x.sum(), X, Y)
    for g, w in zip(got, central(lambda x, y: theirs(x, y), X, Y)):
        onp.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-6)


def test_second_order_of_indexing():
    x = np.array(X)
    x.attach_grad()
    with autograd.record():
        y = (x[[0, 0, 2]] ** 3).sum()
        (g,) = autograd.grad(y, [x], create_graph=True, retain_graph=True)
        assert type(g) is np.ndarray
        total = (g * g).sum()
    total.backward()
    n = onp.array([2, 0, 1])[:, None]
    onp.testing.assert_allclose(x.grad.asnumpy(), 36 * n**2 * X**3, rtol=1e-6)


def test_what_autograd_records_is_not_written():
    w = np.ones(3)
    w.attach_grad()
    with autograd.record():
        v = w * 2
        for key in (0, [0], w > 0, slice(None)):
            with pytest.raises(mx.MXNetError, match="already in a computational graph"):
                v[key] = 1
        with pytest.raises(mx.MXNetError, match="already in a computational graph"):
            v += 1
        assert v.detach()._tape is None


def test_autograd_functions_give_arrays_of_np():
    class Double(autograd.Function):
        def forward(self, x):
            assert type(x) is np.ndarray
            return x * 2

        def backward(self, dy):
            assert type(dy) is np.ndarray
            return dy * 2

    x = np.ones(2)
    x.attach_grad()
    assert type(x.grad) is np.ndarray and x.grad.tolist() == [0, 0]
    with autograd.record():
        y = Double()(x)
    y.backward(np.array([1.0, 3.0]))
    assert type(y) is np.ndarray and x.grad.tolist() == [2, 6]


def test_custom_operators_take_arrays_of_np():
    class Square(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * in_data[0])

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            self.assign(in_grad[0], req[0], 2 * in_data[0] * out_grad[0])

    @mx.operator.register("np_square_of_test")
    class SquareProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, in_shapes, in_dtypes):
            return Square()

    x = np.array([1.0, 3.0])
    x.attach_grad()
    with autograd.record():
        y = nd.Custom(x, op_type="np_square_of_test")
    y.backward()
    assert type(y) is np.ndarray and x.grad.tolist() == [2, 6]


# ---- files ---------------------------------------------------------------------------------------


def test_the_file_of_mxnet():
    found = npx.load(str(FILE))
    assert found and all(type(x) is np.ndarray for x in found.values())
    again = nd.load(str(FILE))
    assert all(type(x) is nd.NDArray for x in again.values())
    assert {k: x.shape for k, x in again.items()} == {k: x.shape for k, x in found.items()}
    assert () in [x.shape for x in found.values()]


def test_files(tmp_path):
    given = {
        "w": np.ones((2,)),
        "s": np.array(3.0),
        "z": np.zeros((0, 3)),
        "i": np.ones((2,), dtype="int32"),
        "b": np.array([1, 0], dtype=bool),
    }
    path = str(tmp_path / "a.npx")
    npx.save(path, given)
    found = npx.load(path)
    for name, x in given.items():
        assert (found[name].dtype, found[name].shape) == (x.dtype, x.shape)
        assert found[name].tolist() == x.tolist()
    content = Path(path).read_bytes()
    assert content.count(b"\xca\xfa\x93\xf9") == 5 and b"\xc9\xfa\x93\xf9" not in content
    nd.save(path, [np.ones(2), nd.ones((3,))])
    assert [x.shape for x in npx.load(path)] == [(2,), (3,)]
    npx.save(path, np.ones(2))
    assert npx.load(path)[0].tolist() == [1, 1]
    np.save(path + ".npy", np.arange(3))
    assert np.load(path + ".npy").tolist() == [0, 1, 2]
    np.savez(path + ".npz", a=np.arange(2))
    assert np.load(path + ".npz")["a"].tolist() == [0, 1]


def test_of_threads():
    x = np.arange(3)
    found = []
    thread = threading.Thread(target=lambda: found.append(x[x > 0].tolist()))
    thread.start()
    thread.join()
    assert found == [[1, 2]]
