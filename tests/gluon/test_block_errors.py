"""Bad files, blocks, trainers and symbols: an error of the stated form; nothing is changed."""

import warnings

import numpy as np
import plait as mx
import pytest
from bad_input import raises, unharmed, x  # noqa: F401
from plait import gluon, nd, sym
from plait.engine.error import MXNetError
from plait.gluon import nn

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
            r'lhs.shape\[-1\][\s\S]*at: .*test_block_errors.py:\d+, node "dot',
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


def test_a_stale_gradient_warns():
    net = initialized(Two())
    before = net.first.weight.data().asnumpy()
    with pytest.raises(UserWarning, match="has not been updated by backward"):
        gluon.Trainer(net.collect_params(), "sgd").step(1)
    assert np.array_equal(before, net.first.weight.data().asnumpy())


def test_children_in_a_list_warn():
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
