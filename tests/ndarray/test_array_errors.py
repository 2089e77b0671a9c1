"""Bad arguments of nd and autograd: an error of the stated form at the user's line; nothing is
changed."""

import numpy as np
import plait as mx
import pytest
from bad_input import raises, unharmed, x, y  # noqa: F401
from plait import autograd, nd
from plait.engine.error import (
    DeviceError,
    DTypeError,
    MXNetError,
    OperatorError,
    OutOfMemory,
    ShapeError,
)

CALLS = [
    (
        "shapes that do not broadcast",
        lambda: x() + y(),
        ShapeError,
        r"broadcast_add: shapes must be equal or broadcast .*lhs \(2, 3\) and rhs \(4, 5\)",
    ),
    ("in place", lambda: x().__iadd__(y()), ShapeError, r"got lhs \(2, 3\) and rhs \(4, 5\)"),
    (
        "dtypes",
        lambda: x() + x().astype("float64"),
        DTypeError,
        r"dtypes must be equal, got lhs float32 and rhs float64\n  fix: convert",
    ),
    (
        "dot",
        lambda: nd.dot(x(), y()),
        ShapeError,
        r"dot: lhs.shape\[-1\] must equal rhs.shape\[0\], got lhs \(2, 3\) and rhs \(4, 5\)",
    ),
    (
        "integers and weights",
        lambda: nd.FullyConnected(x().astype("uint8"), y()[:, :3], num_hidden=4, no_bias=True),
        DTypeError,
        r"got data uint8 and weight float32\n  fix: convert one: x.astype\('float32'\)",
    ),
    (
        "a shape as two numbers",
        lambda: nd.zeros(2, 3),
        TypeError,
        r"ctx must be a Context, got 3\n  fix: .* a shape of several axes is one tuple",
    ),
    (
        "a shape that is none",
        lambda: nd.random.uniform(0, 1, 4.5),
        OperatorError,
        "shape must be an int or a tuple of ints or None, got 4.5",
    ),
    (
        "another case",
        lambda: nd.convolution,
        AttributeError,
        r"no function 'convolution'\n  fix: did you mean 'Convolution'",
    ),
    (
        "typo in a parameter",
        lambda: nd.dot(x(), y(), transpose_aa=True),
        OperatorError,
        r"no parameter 'transpose_aa'.*\n  fix: did you mean 'transpose_a'",
    ),
    (
        "typo in a value",
        lambda: nd.Activation(x(), act_type="rleu"),
        OperatorError,
        r"act_type must be one of .* got 'rleu'\n  fix: did you mean 'relu'",
    ),
    (
        "typo in a function",
        lambda: nd.sofmax(x()),
        AttributeError,
        r"no function 'sofmax'\n  fix: did you mean 'softmax'",
    ),
    (
        "typo in a dtype",
        lambda: x().astype("flot32"),
        TypeError,
        r"dtype: 'flot32' is not supported, .*\n  fix: did you mean 'float32'",
    ),
    ("no input", lambda: nd.relu(), OperatorError, r"relu: needs 1 inputs \(data\), got 0"),
    ("None", lambda: nd.relu(None), OperatorError, r"relu: needs 1 inputs"),
    (
        "None among many",
        lambda: nd.concat(x(), None, dim=0),
        TypeError,
        "every input must be an NDArray, got NoneType",
    ),
    (
        "a list",
        lambda: nd.relu([1, 2]),
        TypeError,
        r"relu: every input must be an NDArray, got list\n  fix: nd.array",
    ),
    ("a list for arrays", lambda: nd.stack([x(), x()]), TypeError, r"fix: nd.stack\(\*arrays\)"),
    ("a NumPy array", lambda: nd.relu(np.ones(3)), TypeError, "got ndarray"),
    (
        "mixed with NumPy",
        lambda: x() + np.ones((2, 3)),
        TypeError,
        "cannot mix NDArray and ndarray",
    ),
    ("too many inputs", lambda: nd.relu(*[x()] * 6), TypeError, "relu"),
    (
        "a missing parameter",
        lambda: nd.FullyConnected(x(), y()),
        OperatorError,
        "parameter 'num_hidden' is required",
    ),
    (
        "missing weights",
        lambda: nd.FullyConnected(x(), num_hidden=2),
        OperatorError,
        r"needs 3 inputs \(data, weight, bias\), got 1",
    ),
    (
        "an attribute's type",
        lambda: nd.softmax(x(), axis="a"),
        OperatorError,
        "softmax: axis must be int, got 'a'",
    ),
    ("an axis", lambda: nd.softmax(x(), axis=7), ShapeError, r"axis must be in \[-2, 2\)"),
    ("an axis twice", lambda: nd.sum(x(), axis=(0, 0)), ShapeError, "axis must not repeat"),
    (
        "beyond 64 bits",
        lambda: nd.one_hot(nd.ones((2,)), depth=10**30),
        OperatorError,
        "one_hot: depth must be int",
    ),
    (
        "reshape",
        lambda: x().reshape((4, 4)),
        ShapeError,
        r"must stay 6, got data \(2, 3\) and shape \(4, 4\)",
    ),
    (
        "reshape to text",
        lambda: x().reshape("a"),
        TypeError,
        "reshape: shape must be a tuple of ints",
    ),
    (
        "reshape to nothing",
        lambda: x().reshape(None),
        TypeError,
        "reshape: shape must be a tuple of ints, got None",
    ),
    (
        "out of another shape",
        lambda: nd.relu(x(), out=y()),
        OperatorError,
        r"out must have shape \(2, 3\)",
    ),
    (
        "a stride of 0",
        lambda: nd.Pooling(nd.ones((1, 1, 4, 4)), kernel=(2, 2), stride=(0, 0)),
        OperatorError,
        "stride must have 2 entries of at least 1",
    ),
    (
        "a negative pad",
        lambda: nd.Pooling(nd.ones((1, 1, 4, 4)), kernel=(2, 2), pad=(-1, -1)),
        OperatorError,
        "pad must be between 0 and 1048576",
    ),
    (
        "a huge kernel",
        lambda: nd.Pooling(nd.ones((1, 1, 4, 4)), kernel=(1 << 20, 1 << 20)),
        ShapeError,
        "kernel must fit the padded data",
    ),
    (
        "a huge dilation",
        lambda: nd.Convolution(
            nd.ones((1, 1, 4, 4)),
            nd.ones((1, 1, 3, 3)),
            kernel=(3, 3),
            dilate=(1 << 20, 1 << 20),
            num_filter=1,
            no_bias=True,
        ),
        ShapeError,
        "the dilated kernel must fit",
    ),
    (
        "too many layers",
        lambda: nd.RNN(
            nd.ones((2, 2, 2)),
            nd.ones((5,)),
            nd.ones((1, 2, 2)),
            mode="rnn_tanh",
            state_size=2,
            num_layers=1 << 40,
        ),
        OperatorError,
        "num_layers must be between 0 and 4096",
    ),
    (
        "too many parts",
        lambda: nd.split(nd.ones((0, 3)), num_outputs=1 << 40, axis=0),
        OperatorError,
        "num_outputs must be between 0 and 65536",
    ),
    (
        "an empty range of numbers",
        lambda: nd.random.randint(5, 1),
        OperatorError,
        "low must be smaller than high",
    ),
    ("a maximum of nothing", lambda: nd.max(nd.ones((0,))), ShapeError, "must not be empty"),
    (
        "arange over nan",
        lambda: nd.arange(0, float("nan")),
        OperatorError,
        "start, stop and step must be finite",
    ),
    ("arange in no steps", lambda: nd.arange(0, 10, 0), OperatorError, "step must not be 0"),
    (
        "a truth value",
        lambda: bool(x()),
        ValueError,
        "truth value of an NDArray with multiple elements",
    ),
    (
        "asscalar",
        lambda: x().asscalar(),
        ValueError,
        r"asscalar: the array must have one element, got shape \(2, 3\)",
    ),
    ("float", lambda: float(x()), TypeError, "only an array of one element"),
    (
        "copyto",
        lambda: x().copyto(y()),
        ValueError,
        r"copyto: shapes must be equal, got \(2, 3\) and \(4, 5\)",
    ),
    ("index", lambda: x()[5], IndexError, "index 5 is out of bounds for axis 0 with size 2"),
    ("negative index", lambda: x()[-3], IndexError, "index -3 is out of bounds"),
    (
        "second index",
        lambda: x()[0, 7],
        IndexError,
        "index 7 is out of bounds for axis 1 with size 3",
    ),
    ("many indices", lambda: x()[0, 0, 0], IndexError, "too many indices"),
    ("text as index", lambda: x()["a"], ValueError, "does not support a key of type str"),
    (
        "assignment",
        lambda: x().__setitem__(slice(None), y()),
        ValueError,
        r"cannot broadcast a value of shape \(4, 5\)",
    ),
    (
        "assignment of text",
        lambda: x().__setitem__(0, "a"),
        TypeError,
        "the value must hold numbers",
    ),
    (
        "two devices",
        lambda: x() + nd.ones((2, 3), ctx=mx.cpu(1)),
        DeviceError,
        r"one device, got cpu\(0\) and cpu\(1\)\n  fix: ",
    ),
    (
        "a GPU",
        lambda: nd.ones((2,), ctx=mx.gpu(99)),
        DeviceError,
        r"gpu\(99\): .*\n  fix: ",
    ),
    (
        "a device's name",
        lambda: nd.zeros((2,), ctx="cpu"),
        TypeError,
        r"ctx must be a Context, got 'cpu'\n  fix: ctx=mx.cpu\(\)",
    ),
    (
        "a ragged list",
        lambda: nd.array([[1, 2], [3]]),
        TypeError,
        "array: the source must be an array or a regular nesting",
    ),
    ("text", lambda: nd.array("abc"), TypeError, "'abc'"),
    ("None as source", lambda: nd.array(None), TypeError, "got None"),
    (
        "a value that is text",
        lambda: nd.full((2,), "a"),
        TypeError,
        "full: val must be a number, got 'a'",
    ),
]


@pytest.mark.parametrize(
    "call, kind, rule", [pytest.param(*c[1:], id=c[0].replace(" ", "-")) for c in CALLS]
)
def test_call(call, kind, rule):
    with raises(kind, rule) as caught:
        call()
    # Python's own words for a call that does not fit a signature
    if "relu() takes" not in str(caught.value):
        assert isinstance(caught.value, MXNetError)
    with autograd.record(), pytest.raises(kind):
        call()


@pytest.mark.parametrize(
    "make",
    [nd.zeros, nd.ones, nd.empty, lambda s: nd.full(s, 2), lambda s: nd.random.uniform(shape=s)],
    ids=["zeros", "ones", "empty", "full", "uniform"],
)
@pytest.mark.parametrize(
    "shape, kind, rule",
    [
        ((-1, 2), ValueError, r"shape must not be negative, got \(-1, 2\)"),
        ((1 << 40,), MemoryError, "memory"),
        ((1 << 40, 1 << 40), MemoryError, "memory for"),
        ((1 << 62, 4), MemoryError, "memory for"),
        ("ab", (TypeError, ValueError), "shape must be .*'ab'"),
        ((2.5,), (TypeError, ValueError), r"shape must be .*\(2.5,\)"),
    ],
    ids=str,
)
def test_absurd_sizes(make, shape, kind, rule):
    with raises(kind, rule) as caught:
        make(shape)
    assert isinstance(caught.value, MXNetError)


def test_out_of_memory_in_an_operation_leaves_the_engine_usable():
    a, b = nd.ones((1 << 20, 1)), nd.ones((1, 1 << 20))
    with raises(OutOfMemory, "out of memory for 4398046511104 bytes"):
        a + b
    with raises(OutOfMemory, "tile: no machine has the memory"):
        nd.tile(a, (1 << 30, 1 << 30))
    assert a.sum().asscalar() == 1 << 20


@pytest.mark.parametrize(
    "call",
    [
        lambda i: nd.take(x(), i),
        lambda i: nd.take(x(), i, mode="wrap"),
        lambda i: nd.pick(x(), i[:2]),
        lambda i: nd.one_hot(i, depth=3),
        lambda i: nd.Embedding(i, x(), input_dim=2, output_dim=3),
        lambda i: nd.SoftmaxOutput(x(), i[:2]),
    ],
    ids=["take", "wrap", "pick", "one_hot", "Embedding", "SoftmaxOutput"],
)
def test_indices_that_are_no_numbers_do_not_crash(call):
    for values in ([np.nan, np.inf, -np.inf], [1e30, -1e30, 2.0**63], [-1, 9, 2**31]):
        assert np.isfinite(call(nd.array(values)).asnumpy()).all()


# ---- autograd ------------------------------------------------------------------------------------


def variable():
    v = nd.ones((3,))
    v.attach_grad()
    return v


def recorded(v):
    with autograd.record():
        return v * 2


def twice(z):
    z.backward()
    z.backward()


def in_place(z):
    with autograd.record():
        z[:] = 3


@pytest.mark.parametrize(
    "call, rule",
    [
        (lambda v: x().backward(), r"not in a computational graph.*\n  fix: "),
        (
            lambda v: twice(recorded(v)),
            r"already used by an earlier backward\n  fix: .*retain_graph",
        ),
        (lambda v: in_place(recorded(v)), "already in a computational graph"),
        (lambda v: recorded(v).backward(nd.ones((7,))), r"head's shape \(3,\), got \(7,\)"),
        (lambda v: recorded(v).backward("a"), "head gradient must be an NDArray, got str"),
        (lambda v: autograd.backward([]), r"heads must be one or more NDArrays, got \[\]"),
        (lambda v: autograd.backward(None), "heads must be one or more NDArrays, got None"),
        (
            lambda v: autograd.backward([recorded(v)], [v, v]),
            "as many head gradients as heads, got 2 and 1",
        ),
        (lambda v: autograd.grad(recorded(v), [x()]), "must have been marked with attach_grad"),
        (
            lambda v: nd.ones((2,)).attach_grad("wrte"),
            "grad_req must be write, add or null, got 'wrte'",
        ),
        (lambda v: autograd.mark_variables([v], []), "as many gradients"),
        (lambda v: autograd.get_symbol(x()), "not in a computational graph"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_autograd(call, rule):
    v = variable()
    with raises(MXNetError, rule):
        call(v)
    recorded(v).backward()
    assert v.grad.asnumpy().tolist() == [2, 2, 2]
