"""The NDArray class: construction, dtype rules, in-place arithmetic, conversion, printing, methods,
nd functions."""

import inspect
import operator

import numpy as np
import plait as mx
import pytest
from plait import nd

DTYPES = ["float32", "float64", "float16", "uint8", "int32", "int8", "int64"]


# ---- construction --------------------------------------------------------------------------------


def test_array_is_float32_by_default():
    for source in (
        3,
        [1, 2],
        np.arange(3),
        np.arange(3.0),
        (True, False),
        [nd.array([1]), nd.array([2])],
        range(3),
    ):
        assert nd.array(source).dtype == np.float32
    assert nd.array(nd.array([1], dtype="int32")).dtype == np.int32
    assert (
        nd.array([1.7], dtype=int).asnumpy().tolist() == [1]
        and nd.array([2], dtype="bool").asnumpy().all()
    )
    assert nd.array([1.0], dtype="bfloat16").dtype.names == ("bfloat16",)
    x = nd.array([1, 2])
    y = nd.array(x)
    y[:] = 0
    assert x.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("source", [None, "x", [[1, 2], [3]], [object()], np.array(["a"])])
def test_array_refuses_values_that_are_no_numbers(source):
    with pytest.raises(TypeError, match="array: "):
        nd.array(source)


@pytest.mark.parametrize("create", [nd.zeros, nd.ones, nd.eye])
def test_creation_refuses_unknown_keywords(create):
    """MXNet 1.9.1: MXNetError "Cannot find argument"; name, attr and __any__ are for Symbols."""
    assert create(2, name="a", attr={}, __layout__="NC").shape[0] == 2
    with pytest.raises(mx.MXNetError, match="has no parameter 'cxt'[^!]*did you mean 'ctx'"):
        create(2, cxt=mx.cpu())


def test_creation_functions():
    assert (
        nd.zeros(3).shape == (3,)
        and nd.zeros((2, 3), dtype="int32").dtype == np.int32
        and nd.empty((2,)).shape == (2,)
    )
    assert nd.full((2,), 7).asnumpy().tolist() == [7, 7] and nd.ones(
        (1,), mx.cpu(2)
    ).context == mx.cpu(2)
    assert nd.arange(2, 6, 2, repeat=2).asnumpy().tolist() == [2, 2, 4, 4]
    assert nd.linspace(0, 1, 3).asnumpy().tolist() == [0, 0.5, 1] and nd.eye(
        2
    ).asnumpy().tolist() == [[1, 0], [0, 1]]
    out = nd.zeros((2,))
    assert nd.ones((2,), out=out) is out and out.asnumpy().tolist() == [1, 1]
    with mx.cpu(1):
        assert nd.zeros((1,)).context == mx.cpu(1)
    with pytest.raises(mx.MXNetError, match="GPU"):
        nd.zeros((1,), mx.gpu(0))
    with pytest.raises(mx.MXNetError, match="negative"):
        nd.zeros((-1,))


def test_properties():
    x = nd.zeros((2, 3), dtype="float16")
    assert (x.shape, x.size, x.ndim, x.context, x.ctx, x.stype) == (
        (2, 3),
        6,
        2,
        mx.cpu(),
        mx.cpu(),
        "default",
    )
    assert x.dtype is np.float16 and x.T.shape == (3, 2) and x.writable and x.grad is None
    with pytest.raises(AttributeError):
        x.shape = (6,)
    with pytest.raises(AttributeError):
        x.nonsense()


# ---- dtypes --------------------------------------------------------------------------------------


def test_numbers_take_the_arrays_dtype():
    i = nd.array([3], dtype="int32")
    for result, value in (
        (i + 1.5, 4),
        (i * 1.5, 3),
        (i / 2, 1),
        (1.5 - i, -2),
        (i == 3, 1),
        (i / nd.array([2], dtype="int32"), 1),
    ):
        assert result.dtype == np.int32 and result.asnumpy().tolist() == [value]
    i += 1.5
    assert i.asnumpy().tolist() == [4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_keep_the_dtype(dtype):
    x, y = nd.array([1, 2, 3], dtype=dtype), nd.array([3, 2, 1], dtype=dtype)
    for compare in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        for result, wanted in (
            (compare(x, y), compare(x.asnumpy(), y.asnumpy())),
            (compare(x, 2), compare(x.asnumpy(), 2)),
            (compare(2, x), compare(2, x.asnumpy())),
        ):
            assert result.dtype == np.dtype(dtype) and result.asnumpy().tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "f", [operator.add, operator.mul, operator.eq, operator.pow, nd.maximum, nd.dot, nd.concat]
)
def test_dtypes_do_not_mix(f):
    with pytest.raises(mx.MXNetError, match="dtypes must be equal"):
        f(nd.array([1, 2], dtype="int32"), nd.array([1, 2]))


def test_comparing_with_other_things():
    x = nd.array([1, 2])
    assert (x == None) is False and (x != None) is True  # noqa: E711
    for other in ("x", [1, 2], {}):
        for compare in (operator.eq, operator.ne, operator.lt):
            with pytest.raises(TypeError):
                compare(x, other)
    assert hash(x) == hash(x) and len({x, x, nd.array([1, 2])}) == 2


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "mod", "pow"])
def test_operators_on_either_side(name, dtype):
    f = getattr(operator, name)
    a, b = np.array([[5, 7, 9]], dtype), np.array([[2], [3]], dtype)
    truncate = (
        (lambda v: v.astype(dtype)) if dtype != "int32" else lambda v: np.trunc(v).astype(dtype)
    )
    for result, wanted in (
        (f(nd.array(a, dtype=dtype), nd.array(b, dtype=dtype)), f(a, b)),
        (f(nd.array(a, dtype=dtype), 2), f(a, 2)),
        (f(2, nd.array(b, dtype=dtype)), f(2, b)),
    ):
        assert result.dtype == np.dtype(dtype)
        np.testing.assert_allclose(result.asnumpy(), truncate(wanted), rtol=1e-6)


# ---- in place ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["iadd", "isub", "imul", "itruediv", "imod"])
def test_in_place_operators_keep_the_array(name):
    f, plain = getattr(operator, name), getattr(operator, name[1:])
    for other in (3, nd.array([2, 4]), np.float64(3)):
        x = nd.array([[7, 9], [5, 6]])
        view, wanted = x[0], plain(x, other).asnumpy()
        assert f(x, other) is x
        np.testing.assert_allclose(x.asnumpy(), wanted)
        np.testing.assert_allclose(view.asnumpy(), wanted[0])
    x = nd.array([1, 2])
    x += x
    assert x.asnumpy().tolist() == [2, 4]
    before = x
    x **= 2  # a new array, as in MXNet
    assert before.asnumpy().tolist() == [2, 4] and x.asnumpy().tolist() == [4, 16]


def test_in_place_operators_refuse_and_change_nothing():
    x = nd.array([1, 2])
    for other, kind in (
        (nd.ones((2, 2)), mx.MXNetError),
        (nd.ones((3,)), mx.MXNetError),
        (np.ones(2), TypeError),
        (nd.ones((2,), dtype="int32"), mx.MXNetError),
        (None, TypeError),
        ("2", TypeError),
    ):
        with pytest.raises(kind):
            x += other
    assert x.asnumpy().tolist() == [1, 2]


# ---- conversion ----------------------------------------------------------------------------------


def test_one_element_becomes_a_python_number():
    x = nd.array([[2.5]])
    assert float(x) == 2.5 and int(x) == 2 and x.asscalar() == 2.5 and bool(x)
    assert [5, 6, 7][nd.array([1], dtype="int32")] == 6
    assert (
        not nd.array([0])
        and not nd.zeros((0,))
        and float(nd.array([1.5]).astype("bfloat16")) == 1.5
    )
    many = nd.array([1, 2])
    for f in (float, int, operator.index):
        with pytest.raises(TypeError):
            f(many)
    with pytest.raises(TypeError, match="integer"):
        operator.index(x)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(many)
    with pytest.raises(ValueError, match="one element"):
        many.asscalar()


def test_copies_and_devices():
    x = nd.array([1, 2])
    assert (
        x.astype("float32", copy=False) is x
        and x.astype("float32") is not x
        and x.as_in_context(mx.cpu()) is x
    )
    y = x.copyto(mx.cpu(1))
    assert y.context == mx.cpu(1) and y.asnumpy().tolist() == [1, 2] and x.copy() is not x
    target = nd.zeros((2,), dtype="int32")
    assert x.copyto(target) is target and target.asnumpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="shapes must be equal"):
        x.copyto(nd.zeros((3,)))
    with pytest.raises(TypeError, match="copyto"):
        x.copyto(5)
    with pytest.raises(mx.MXNetError, match="one device"):
        x + y


def test_reshape_shares_memory_and_knows_the_codes():
    x = nd.array(np.arange(24).reshape(2, 3, 4))
    for args, shape in (
        ((3, -1), (3, 8)),
        (((0, -1),), (2, 12)),
        ((-1,), (24,)),
        ((-2,), (2, 3, 4)),
        ((-3, 0), (6, 4)),
        (((-4, 1, 2, -2),), (1, 2, 3, 4)),
    ):
        assert x.reshape(*args).shape == shape
    assert x.reshape(shape=(6, 4)).shape == (6, 4) and x.reshape(
        (8, 3, -1), reverse=True
    ).shape == (8, 3, 1)
    x.reshape(-1)[5] = 99
    assert x.asnumpy()[0, 1, 1] == 99
    with pytest.raises(mx.MXNetError, match="needs a shape"):
        x.reshape()
    with pytest.raises(mx.MXNetError, match="number of elements"):
        x.reshape((5, 5))


# ---- printing ------------------------------------------------------------------------------------


def test_printing_as_mxnet():
    assert repr(nd.array([1, 2])) == str(nd.array([1, 2])) == "\n[1. 2.]\n<NDArray 2 @cpu(0)>"
    assert repr(nd.ones((1, 2), mx.cpu(1), "int32")) == "\n[[1 1]]\n<NDArray 1x2 @cpu(1)>"
    assert (
        repr(nd.array(3.0)) == "\n3.0\n<NDArray  @cpu(0)>"
        and repr(nd.zeros((0, 3))) == "\n[]\n<NDArray 0x3 @cpu(0)>"
    )
    assert "..." in repr(nd.ones((1000, 1000))) and "1.5" in repr(
        nd.array([1.5]).astype("bfloat16")
    )
    html = nd.array([[1, 2]])._repr_html_()
    assert "1x2" in html and ">1</td>" in html and ">2</td>" in html and "float32" in html


# ---- methods and functions -----------------------------------------------------------------------

METHODS = [
    "T",
    "abs",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "argmax",
    "argmax_channel",
    "argmin",
    "argsort",
    "as_in_context",
    "as_nd_ndarray",
    "as_np_ndarray",
    "asnumpy",
    "asscalar",
    "astype",
    "attach_grad",
    "backward",
    "broadcast_axes",
    "broadcast_like",
    "broadcast_to",
    "cbrt",
    "ceil",
    "clip",
    "context",
    "copy",
    "copyto",
    "cos",
    "cosh",
    "ctx",
    "degrees",
    "depth_to_space",
    "detach",
    "diag",
    "dtype",
    "exp",
    "expand_dims",
    "expm1",
    "fix",
    "flatten",
    "flip",
    "floor",
    "grad",
    "handle",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "max",
    "mean",
    "min",
    "nanprod",
    "nansum",
    "ndim",
    "norm",
    "one_hot",
    "ones_like",
    "pad",
    "pick",
    "prod",
    "radians",
    "rcbrt",
    "reciprocal",
    "relu",
    "repeat",
    "reshape",
    "reshape_like",
    "rint",
    "round",
    "rsqrt",
    "shape",
    "shape_array",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "size",
    "size_array",
    "slice",
    "slice_assign",
    "slice_assign_scalar",
    "slice_axis",
    "slice_like",
    "softmax",
    "softmin",
    "sort",
    "space_to_depth",
    "split",
    "split_v2",
    "sqrt",
    "square",
    "squeeze",
    "stype",
    "sum",
    "swapaxes",
    "take",
    "tan",
    "tanh",
    "tile",
    "to_dlpack_for_read",
    "to_dlpack_for_write",
    "topk",
    "tostype",
    "transpose",
    "trunc",
    "wait_to_read",
    "writable",
    "zeros_like",
]


def test_every_method_of_mxnets_class_is_there():
    assert [m for m in METHODS if not hasattr(nd.NDArray, m)] == []
    assert list(inspect.signature(nd.NDArray.clip).parameters)[:3] == ["data", "a_min", "a_max"]


def test_methods_call_their_operators():
    x = nd.array([[1, -2], [3, 4]])
    assert (
        x.sum(axis=0).asnumpy().tolist() == [4, 2]
        and abs(x).asnumpy().min() == 1
        and x.clip(0, 2).asnumpy().max() == 2
    )
    assert x.one_hot(5).shape == (2, 2, 5) and x.take(nd.array([1])).asnumpy().tolist() == [[3, 4]]
    assert x.broadcast_to((2, 2)).shape == (2, 2) and x.reshape_like(nd.zeros((4, 1))).shape == (
        4,
        1,
    )
    assert [p.shape for p in x.split(2, axis=0)] == [(1, 2)] * 2 and x.split_v2((1,))[
        1
    ].asnumpy().tolist() == [[3, 4]]
    assert x.tostype("default") is x and x.as_nd_ndarray() is x
    with pytest.raises(mx.MXNetError, match="stype"):
        x.tostype("coo")


def test_slice_assign_writes_in_place():
    x = nd.zeros((2, 3))
    assert x.slice_assign(nd.ones((1, 3)), (0, None), (1, None), (None, None)) is x
    assert x.slice_assign_scalar(5, (1, 0), (2, 3), (1, 2)) is x
    assert x.asnumpy().tolist() == [[1, 1, 1], [5, 0, 5]]


@pytest.mark.parametrize(
    "name, f",
    [
        ("add", np.add),
        ("subtract", np.subtract),
        ("multiply", np.multiply),
        ("divide", np.divide),
        ("true_divide", np.divide),
        ("modulo", np.mod),
        ("power", np.power),
        ("maximum", np.maximum),
        ("minimum", np.minimum),
        ("equal", np.equal),
        ("not_equal", np.not_equal),
        ("greater", np.greater),
        ("greater_equal", np.greater_equal),
        ("lesser", np.less),
        ("lesser_equal", np.less_equal),
        ("logical_and", np.logical_and),
        ("logical_or", np.logical_or),
        ("logical_xor", np.logical_xor),
        ("hypot", np.hypot),
    ],
)
def test_two_sided_functions(name, f):
    a, b = np.array([[1, 2, 3]], "float32"), np.array([[2], [0.5]], "float32")
    g = getattr(nd, name)
    for result, wanted in (
        (g(nd.array(a), nd.array(b)), f(a, b)),
        (g(nd.array(a), 2), f(a, 2)),
        (g(2, nd.array(b)), f(2, b)),
    ):
        np.testing.assert_allclose(result.asnumpy(), wanted.astype("float32"), rtol=1e-6)
    assert g(3, 2) == pytest.approx(float(f(3.0, 2.0)))
    for bad in ("x", None, np.ones(2)):
        with pytest.raises(TypeError, match=f"{name}: operands"):
            g(nd.array(a), bad)
        with pytest.raises(TypeError, match=f"{name}: operands"):
            g(bad, nd.array(a))


def test_concatenate_moveaxis_onehot_split():
    x = nd.array(np.arange(6).reshape(2, 3))
    assert nd.concatenate([x, x]).shape == (4, 3) and nd.concatenate([x, x], axis=1).shape == (2, 6)
    assert nd.concatenate([x], always_copy=False) is x and nd.concatenate([x]) is not x
    y = nd.zeros((2, 3, 4))
    assert nd.moveaxis(y, 0, 2).shape == (3, 4, 2) and nd.moveaxis(y, [0, 1], [-1, 0]).shape == (
        3,
        4,
        2,
    )
    out = nd.zeros((2, 3))
    assert nd.onehot_encode(nd.array([1, 0]), out) is out and out.asnumpy().tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]
    assert [p.shape for p in nd.split_v2(x, 3, axis=1)] == [(2, 1)] * 3
    assert [p.shape for p in nd.split_v2(x, (1,), axis=1)] == [(2, 1), (2, 2)]
    for call in (
        lambda: nd.moveaxis(y, 5, 2),
        lambda: nd.moveaxis(y, [0, 0], [1, 2]),
        lambda: nd.moveaxis(y, [0], [1, 2]),
        lambda: nd.split_v2(x, 2, axis=1),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(mx.MXNetError, match="at least one"):
        nd.concatenate([])


def test_histogram():
    x = nd.array([0, 1, 2, 3, 4])
    for args, counts, edges in (
        ({"bins": 2}, [2, 3], [0, 2, 4]),
        ({"bins": 5, "range": (0, 5)}, [1] * 5, range(6)),
        ({"bins": nd.array([0, 2, 4])}, [2, 3], [0, 2, 4]),
    ):
        found = nd.histogram(x, **args)
        assert found[0].asnumpy().tolist() == counts and found[1].asnumpy().tolist() == list(edges)
    with pytest.raises(mx.MXNetError, match="_histogram"):
        nd.histogram(x, bins=0, range=(0, 1))


def test_namespaces():
    x = nd.array([[1, 2], [3, 4]])
    assert nd.linalg.gemm2(x, x).asnumpy().tolist() == [[7, 10], [15, 22]]
    assert nd.contrib.arange_like(x).shape == (2, 2) and nd.op.relu(-x).asnumpy().max() == 0
    assert (
        nd._internal._plus_scalar(x, scalar=1).asnumpy()[0, 0] == 2
        and "relu" in dir(nd)
        and "gemm2" in dir(nd.linalg)
    )
    for module in (nd, nd.linalg, nd.contrib, nd.image, nd._internal):
        with pytest.raises(AttributeError):
            module.nonsense()


def test_errors_of_an_operation_leave_its_inputs():
    x = nd.array([[1, 2]])
    for call in (
        lambda: nd.dot(x, x),
        lambda: x + nd.ones((3,)),
        lambda: nd.exp(x, out=nd.zeros((3,))),
        lambda: x.sum(axis=5),
        lambda: nd.LeakyReLU(x, nonsense=1),
        lambda: nd.relu(5),
        lambda: nd.concat(x, 5),
    ):
        with pytest.raises((mx.MXNetError, TypeError)):
            call()
    assert x.asnumpy().tolist() == [[1, 2]]
