"""Bad input gives an error of the stated form at the user's line, and leaves everything as it
was."""

import os
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import plait as mx
import pytest
from plait import autograd, engine, gluon, nd, sym
from plait.engine.error import (
    DeviceError,
    DTypeError,
    InvalidValue,
    MXNetError,
    OperatorError,
    OutOfMemory,
    ShapeError,
)
from plait.gluon import nn

HERE = os.path.basename(__file__)


def x():
    return nd.array(np.arange(6.0).reshape(2, 3))


def y():
    return nd.ones((4, 5))


@pytest.fixture(autouse=True)
def unharmed():
    """After each test autograd is off, nothing is pending, no error is untold, and arrays still
    compute."""
    yield
    assert not autograd.is_recording()
    nd.waitall()
    assert engine.stats()["pending"] == 0
    assert (x() + 1).asnumpy()[1, 2] == 6


def raises(kind, rule):
    return pytest.raises(kind, match=rule)


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


# ---- failures on a lane --------------------------------------------------------------------------


def test_a_failing_kernel_is_told_at_the_wait_with_operator_and_line_and_poisons_dependants():
    bad = nd.take(x(), nd.array([9.0]), mode="raise")
    line = f"{HERE}:{sys._getframe().f_lineno - 1}"
    after = bad * 2
    for array in (bad, after, bad):
        with raises(IndexError, r"take: indices must be in \[0, 2\)") as caught:
            array.asnumpy()
        assert (
            line in str(caught.value)
            and 'operator "take"' in str(caught.value)
            and "\n  fix: " in str(caught.value)
        )
    after[:] = 1
    assert after.asnumpy().sum() == 3


def test_a_failing_push_keeps_its_type_and_is_healed_by_a_whole_write():
    def boom():
        raise KeyError("mine")

    z = nd.zeros((3,))
    engine.push(boom, writes=[z], name="boomer")
    with raises(KeyError, 'operator "boomer"') as caught:
        (z + 1).asnumpy()
    assert HERE in str(caught.value) and isinstance(caught.value, MXNetError)
    z[:] = 2
    assert z.asnumpy().tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (dict(fn=3), "fn must be callable"),
        (dict(fn=print, writes=[3]), "writes must be arrays"),
        (dict(fn=print, lane="gpuu"), "lane must be one of"),
        (dict(fn=print, lane="gpu_compute", device=99), r"gpu\(99\): "),
    ],
    ids=str,
)
def test_push(arguments, rule):
    with raises(MXNetError, rule):
        engine.push(**arguments)


def test_naive_mode_raises_at_the_call():
    engine.set_naive(True)
    try:
        with raises(IndexError, r"take: indices must be in \[0, 2\)"):
            nd.take(x(), nd.array([9.0]), mode="raise")
        net = nn.HybridLambda(lambda F, a, i: F.take(a, i, mode="raise") * 2)
        net.hybridize()
        with raises(IndexError, "take: indices must be in"):
            net(x(), nd.array([9.0]))
    finally:
        engine.set_naive(False)
    bad = nd.take(x(), nd.array([9.0]), mode="raise")  # threaded again: told at the wait
    with raises(ValueError, "take"):
        bad.asnumpy()


def test_ctrl_c_ends_a_long_wait():
    z, gate = nd.zeros((3,)), threading.Event()
    engine.push(gate.wait, writes=[z])
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    # a job in the background of a shell begins with the signal ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            z.asnumpy()
    finally:
        gate.set()
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_errors_in_many_threads():
    found = []

    def work():
        for call in (
            lambda: nd.dot(x(), y()),
            lambda: nd.take(x(), nd.array([9.0]), mode="raise").asnumpy(),
        ):
            try:
                call()
            except MXNetError as error:
                found.append(type(error).__name__)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == ["IndexOutOfRange"] * 8 + ["ShapeError"] * 8


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


# ---- files ---------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path):
    nd.save(str(tmp_path / "whole"), {"a": x()})
    whole = (tmp_path / "whole").read_bytes()
    for name, data in {
        "text": b"hello, this is a text of some length",
        "empty": b"",
        "zip": b"PK\x03\x04" + b"0" * 60,
        "pickle": b"\x80\x04}q\x00.",
        "truncated": whole[:-7],
    }.items():
        (tmp_path / name).write_bytes(data)
    nd.save(str(tmp_path / "list"), [x()])
    return tmp_path


@pytest.mark.parametrize("name", ["text", "empty", "zip", "pickle", "truncated"])
def test_foreign_files(files, name):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    before = net.weight.data().asnumpy()
    for load in (
        lambda: nd.load(str(files / name)),
        lambda: nd.load_frombuffer((files / name).read_bytes()),
        lambda: net.load_parameters(str(files / name)),
    ):
        with raises(MXNetError, "is no whole MXNet array file"):
            load()
    with raises(MXNetError, "is not a symbol|symbol file: "):
        sym.load(str(files / name))
    with raises(MXNetError, "is not a symbol|symbol file: "):
        gluon.SymbolBlock.imports(str(files / name), ["data"])
    with raises(MXNetError, "is no whole MXNet array file|plait does not read pickles"):
        gluon.Trainer(net.collect_params(), "adam").load_states(str(files / name))
    assert np.array_equal(before, net.weight.data().asnumpy())


@pytest.mark.parametrize(
    "call",
    [
        nd.load,
        lambda p: nn.Dense(2).load_parameters(p),
        sym.load,
        lambda p: gluon.SymbolBlock.imports(p, ["data"]),
        gluon.data.RecordFileDataset,
        lambda p: gluon.Trainer(nn.Dense(2).collect_params(), "sgd").load_states(p),
    ],
)
def test_missing_files(tmp_path, call):
    with raises(MXNetError, r"no_such_file"):
        call(str(tmp_path / "no_such_file"))


class Two(gluon.HybridBlock):
    def __init__(self, first=3, second=2, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = nn.Dense(first, in_units=3), nn.Dense(second, in_units=first)

    def hybrid_forward(self, F, x):
        return self.second(self.first(x))


def initialized(net):
    net.initialize()
    return net


@pytest.mark.parametrize(
    "other, rule",
    [
        (lambda: Two(3, 4), r"shape incompatible expected \(4,.*vs saved \(2,"),
        (lambda: nn.Dense(3, in_units=3), "is missing in file|is not present in the block"),
        (
            lambda: nn.HybridLambda("relu"),
            r"is not present in the block.*unknown[\s\S]*\n  fix: .*ignore_extra",
        ),
        (
            lambda: gluon.rnn.LSTM(3, input_size=3),
            r"is missing in file[\s\S]*\n  fix: .*allow_missing",
        ),
    ],
)
def test_parameters_of_another_network_change_nothing(tmp_path, other, rule):
    path = str(tmp_path / "two.params")
    initialized(Two()).save_parameters(path)
    net = initialized(other())
    before = {k: p.data().asnumpy() for k, p in net.collect_params().items()}
    with raises(MXNetError, rule):
        net.load_parameters(path)
    assert all(
        np.array_equal(before[k], p.data().asnumpy()) for k, p in net.collect_params().items()
    )


def test_arrays_without_names(files):
    net = initialized(Two())
    net.hybridize()
    net(x())
    net.export(str(files / "net"))
    with raises(MXNetError, "arrays without names"):
        net.load_parameters(str(files / "list"))
    with raises(MXNetError, "must hold arrays by name, got list"):
        gluon.SymbolBlock.imports(str(files / "net-symbol.json"), ["data"], str(files / "list"))
    with raises(MXNetError, "has no variable 'dta'"):
        gluon.SymbolBlock.imports(str(files / "net-symbol.json"), ["dta"])


# ---- blocks --------------------------------------------------------------------------------------


def hybrid(forward, **extra):
    net = type("Net", (gluon.HybridBlock,), {"hybrid_forward": forward, **extra})()
    net.hybridize()
    return net


def no_super(self):
    self.child = nn.Dense(2)


@pytest.mark.parametrize(
    "call, rule",
    [
        (
            lambda: nn.Dense(3)(x()),
            r'has not been initialized[\s\S]*at: Dense "dense[\s\S]*fix: net.initialize',
        ),
        (
            lambda: (lambda net: net.weight.data())(initialized(nn.Dense(3))),
            r"deferred: dimension 1 of its shape \(3, 0\)[\s\S]*fix: .*in_units=",
        ),
        (lambda: initialized(nn.Dense(3))(nd.ones((2, 0))), r"invalid shape: \(3, 0\)"),
        (
            lambda: initialized(Two())(nd.ones((2, 7))),
            r"weight must have shape .*got data \(2, 7\)",
        ),
        (
            lambda: initialized(nn.Dense(3, in_units=3))(x().astype("float64")),
            "dtypes must be equal, got data float64",
        ),
        (lambda: initialized(nn.Dense(3))([1, 2]), "there must be one NDArray or one Symbol"),
        (
            lambda: initialized(nn.Dense(3))(np.ones((2, 3))),
            r"input must be \(nested\) list of Symbol or NDArray",
        ),
        (
            lambda: initialized(nn.Dense(3))(nd.ones((2, 3), ctx=mx.cpu(1))),
            r"was not initialized on context cpu\(1\)",
        ),
        (
            lambda: hybrid(lambda s, F, a: a if a.sum() > 0 else -a)(x()),
            r"__bool__.*\n  fix: .*F.where",
        ),
        (
            lambda: hybrid(lambda s, F, a: a + nd.ones((3,)))(x()),
            "operands must be Symbols or numbers",
        ),
        (
            lambda: hybrid(lambda s, F, a: a * a.asnumpy())(x()),
            "asnumpy is not available for a Symbol",
        ),
        (lambda: hybrid(lambda s, F, a: 3)(x()), "list of symbols"),
        (
            lambda: type("Net", (gluon.Block,), {"__init__": no_super})(),
            r"Net: Block's own __init__ must run first.*\n  fix: call super",
        ),
        (lambda: type("Net", (gluon.Block,), {})()(x()), "Net must define forward"),
        (lambda: nn.Sequential().add(3), "a child must be a Block, got int"),
        (lambda: nn.Dense("a"), "units must be an int"),
        (lambda: nn.Sequential([nn.Dense(1)]), r"prefix must be a str, got list\n  fix: .*\.add"),
        (
            lambda: sym.var("x").save("/no/such/folder/x"),
            "cannot write '/no/such/folder/x': the folder '/no' does not exist",
        ),
        (lambda: nn.Dense(-1), "units must be an int of at least 0"),
        (
            lambda: nn.Dense(3).initialize(init="xaviar"),
            r"xaviar is not registered.*\n  fix: did you mean 'xavier'",
        ),
        (lambda: nn.Dense(3).initialize(init=3), "must be an Initializer or its name, got 3"),
        (lambda: nn.Dense(3).initialize(ctx="cpu"), "ctx must be a Context"),
        (lambda: nn.Dense(3, in_units=2).initialize(ctx=mx.gpu(99)), r"gpu\(99\): "),
        (lambda: Two().export("nowhere"), "run forward with this block"),
        (lambda: nn.Dense(3).hybridize(static_aloc=True), "flag 'static_aloc' is unknown"),
        (lambda: setattr(Two(), "first", 3), "Changing attribute type"),
        (
            lambda: gluon.Trainer(Two().collect_params(), "sdg"),
            r"Cannot find optimizer sdg\n  fix: did you mean 'sgd'",
        ),
        (
            lambda: gluon.Trainer(Two().collect_params(), "sgd", {"momentun": 0.9}),
            r"no parameter 'momentun'.*\n  fix: did you mean 'momentum'",
        ),
        (lambda: gluon.Trainer([x()], "sgd"), "list or dict of Parameters"),
        (
            lambda: gluon.Trainer(initialized(Two()).collect_params(), "sgd").step(0),
            "batch_size must be a number above 0, got 0",
        ),
        (
            lambda: gluon.Trainer(initialized(Two()).collect_params(), "sgd").step("a"),
            "batch_size must be a number above 0, got 'a'",
        ),
        (lambda: gluon.Trainer(Two().collect_params(), "sgd").step(1), "has not been initialized"),
        (lambda: gluon.utils.split_and_load(x(), []), "num_slice must be at least 1"),
        (lambda: gluon.data.DataLoader([1, 2], batch_size=0), "batch_size must be positive"),
        (lambda: gluon.data.ArrayDataset([1, 2], [1]), "must have the same length, got 2, 1"),
        (lambda: mx.metric.create("acuracy"), r"'acuracy' is unknown.*\n  fix: .* 'accuracy'"),
        (
            lambda: initialized(nn.Dense(3, in_units=2, prefix="last_"))(x()),
            r"got data \(2, 3\) and weight \(3, 2\)\n  at: Dense \"last\"",
        ),
        (lambda: initialized(nn.Dense(3))(np.ones((2, 3))), r"(?s)but got.*\n  fix: nd.array"),
        (lambda: sym.array([1]), r"no function 'array'\n  fix: .*get_constant"),
        (lambda: gluon.model_zoo.vision.get_model("resnet19_v1"), "resnet19_v1 is not supported"),
        (
            lambda: sym.dot(sym.var("a"), sym.var("b")).infer_shape(a=(2, 3), b=(4, 5)),
            r'lhs.shape\[-1\][\s\S]*at: .*test_errors.py:\d+, node "dot',
        ),
        (lambda: (sym.var("a") + sym.var("b")).bind(mx.cpu(), {"a": x()}), "key `b` is missing"),
        (
            lambda: (sym.var("a") + sym.var("b")).infer_shape(c=(2,)),
            "name c not found, the variables are a, b",
        ),
        (lambda: sym.var("a", shape="q"), "var: shape must be a tuple of ints, got 'q'"),
        (lambda: sym.load_json("[]"), "is not a symbol"),
        (lambda: sym.load_json(None), "required to be string"),
        (
            lambda: sym.load_json(
                '{"nodes":[{"op":"reluu","name":"r","inputs":[]}],"arg_nodes":[],"heads":[[0,0,0]]}'
            ),
            r"operator 'reluu' is unknown\n  fix: did you mean 'relu'",
        ),
        (
            lambda: sym.load_json(
                '{"nodes":[{"op":"relu","name":"r","inputs":[[7,0,0]]}],"arg_nodes":[],"heads":[[0,0,0]]}'
            ),
            "reads output 0 of node 7",
        ),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_blocks_trainers_and_symbols(call, rule):
    with raises(MXNetError, rule):
        call()


def test_a_stale_gradient_is_told():
    net = initialized(Two())
    before = net.first.weight.data().asnumpy()
    with pytest.raises(UserWarning, match="has not been updated by backward"):
        gluon.Trainer(net.collect_params(), "sgd").step(1)
    assert np.array_equal(before, net.first.weight.data().asnumpy())


def test_children_in_a_list_are_told():
    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Dense(3)]

    with pytest.warns(UserWarning, match='"Net.layers" is an unregistered container'):
        Net().collect_params()


class Rows(gluon.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        if i == 2:
            raise KeyError("row two")
        return np.float32(i)


@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 1, "thread_pool": True}, {"num_workers": 1}], ids=str
)
def test_an_error_in_a_worker_keeps_its_type(workers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        with pytest.raises(KeyError, match="row two"):
            list(gluon.data.DataLoader(Rows(), batch_size=2, **workers))


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (("draw", "no_such_file"), "symbol file: cannot read"),
        (("draw", __file__), "is not a symbol"),
        (("train", "--epochs", "-1"), "invalid positive value: '-1'"),
    ],
    ids=str,
)
def test_command_line(arguments, rule):
    run = subprocess.run(
        [sys.executable, "-m", "plait", *arguments], capture_output=True, text=True
    )
    assert run.returncode in (1, 2) and rule in run.stderr and "Traceback" not in run.stderr


def test_a_child_process_reports_errors_too():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads
        pid = os.fork()
    if pid == 0:
        status = 2
        try:
            nd.dot(x(), y())
        except ShapeError:
            status = 0 if (x() * 2).sum().asscalar() == 30 else 1
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_broken_values_are_one_class():
    """Whoever catches InvalidValue gets all errors that are what it is to users."""
    kinds, found = [mx.MXNetError], []
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__name__ not in ("DeferredError",) and issubclass(kind, ValueError):
            if issubclass(kind, AssertionError) and not issubclass(kind, InvalidValue):
                found.append(kind.__name__)
    assert not found
