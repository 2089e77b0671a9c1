"""Blocks: names, children, hooks, hybridization, export; compared with what MXNet 1.9.1 gives."""

import copy
import json
import pathlib
import warnings

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.gluon.trace import LeakedSymbolError, StructureError

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"


def small(prefix="m_"):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu"), nn.Dense(3))
    return net


def test_names_and_repr_are_those_of_mxnet():
    net = small()
    assert list(net.collect_params()) == [
        "m_dense0_weight",
        "m_dense0_bias",
        "m_dense1_weight",
        "m_dense1_bias",
    ]
    assert list(net._collect_params_with_prefix()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert (
        repr(net) == "HybridSequential(\n  (0): Dense(None -> 4, Activation(relu))\n"
        "  (1): Dense(None -> 3, linear)\n)"
    )
    assert list(net.collect_params(".*weight")) == ["m_dense0_weight", "m_dense1_weight"]
    assert (
        repr(nn.Conv2D(6, (3, 2), groups=3, in_channels=3, strides=2))
        == "Conv2D(1 -> 6, kernel_size=(3, 2), stride=(2, 2), groups=3)"
    )


def test_shared_parameters():
    a = nn.Dense(3, in_units=3, prefix="a_")
    b = nn.Dense(3, in_units=3, params=a.params)
    assert b.weight is a.weight and b.bias is a.bias


def test_a_hybrid_block_takes_only_hybrid_children():
    with pytest.raises(ValueError, match="Children of HybridBlock must also be HybridBlock"):
        nn.HybridSequential().add(nn.Lambda("relu"))


def test_blocks_in_a_list_are_warned_of():
    class Net(nn.Block):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Dense(2)]

    with pytest.warns(UserWarning, match="unregistered container"):
        Net().collect_params()


def test_hooks_run_and_detach():
    net, calls = small(), []
    net.initialize()
    before = net.register_forward_pre_hook(lambda b, args: calls.append(("before", len(args))))
    after = net.register_forward_hook(lambda b, args, out: calls.append(("after", out.shape)))
    net(nd.ones((2, 5)))
    before.detach()
    after.detach()
    net(nd.ones((2, 5)))
    assert calls == [("before", 1), ("after", (2, 3))]


def test_op_hook_sees_every_operator():
    net, seen = small(), []
    net.initialize()
    net.hybridize()
    net.register_op_hook(lambda name, op, array: seen.append((name, op)))
    net(nd.ones((2, 5)))
    assert seen == [
        ("m_dense0_fwd_output", "FullyConnected"),
        ("m_dense0_relu_fwd_output", "Activation"),
        ("m_dense1_fwd_output", "FullyConnected"),
    ]


def test_op_hook_sees_hidden_outputs_in_training():
    """The names are those of MXNet 1.9.1."""
    net = nn.HybridSequential(prefix="n_")
    with net.name_scope():
        net.add(nn.BatchNorm(in_channels=3), nn.Dropout(0.5))
    net.initialize()
    net.hybridize()
    seen = []
    net.register_op_hook(lambda name, op, array: seen.append(name), monitor_all=True)
    inputs = ["data", "gamma", "beta", "moving_mean", "moving_var"]
    norm = [f"n_batchnorm0_fwd_{name}" for name in (*inputs, "output")]
    drop = ["n_dropout0_fwd_data", "n_dropout0_fwd_output"]
    net(nd.ones((2, 3)))
    assert seen == norm + drop
    seen.clear()
    with mx.autograd.record():
        net(nd.ones((2, 3)))
    hidden = ["n_batchnorm0_fwd_mean", "n_batchnorm0_fwd_var"]
    assert seen == norm + hidden + drop + ["n_dropout0_fwd_mask"]


class Nested(nn.HybridBlock):
    """Takes and gives nested lists, and leaves a Symbol in an attribute."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(3)
            self.scale = self.params.get("scale", shape=(1, 3), init="ones")

    def hybrid_forward(self, F, x, states, scale):
        self.seen = x + 1
        return self.dense(x) + F.broadcast_mul(states[0], scale), [states[1], [x]]


def flat(value):
    return [value] if isinstance(value, nd.NDArray) else [leaf for v in value for leaf in flat(v)]


@pytest.mark.parametrize("train", [False, True])
def test_nested_inputs_and_outputs(train):
    net = Nested()
    net.initialize()
    x, s = nd.array(np.random.RandomState(0).randn(3, 2)), [nd.ones((3, 3)), nd.zeros((1,))]
    eager = net(x, s)
    net.hybridize()
    with autograd.record(train_mode=train):
        graph = net(x, s)
    for a, b in zip(flat(eager), flat(graph), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-6)
    with pytest.raises(
        StructureError, match=r"Stored format = \[0, \[0, 0\]\], input format = \[0, \[0, -1\]\]"
    ):
        net(x, [nd.ones((3, 3)), None])


def test_error_of_a_leaked_symbol_names_its_attribute():
    net = Nested()
    net.initialize()
    net.hybridize()
    net(nd.ones((3, 2)), [nd.ones((3, 3)), nd.zeros((1,))])
    for use in (lambda v: v + 1, lambda v: nd.relu(v), lambda v: v.asnumpy()):
        with pytest.raises(
            LeakedSymbolError, match=r"(?s)self\.seen holds a Symbol.*test_block\.py:\d+"
        ):
            use(net.seen)


class Plain(nn.HybridBlock):
    """A plain forward in Python around a layer: it reads shapes and constants."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(4)
            self.c = self.params.get_constant("c", [[1, 2, 3, 4]])
            self.w = self.params.get("w", shape=(1, 4))

    def forward(self, x):
        y = self.dense(x) * self.c.data() + self.w.data()
        return nd.concat(nd.relu(y), nd.relu(-y), dim=1).reshape((x.shape[0] * 4, -1))[:, 1:]


def test_overridden_forward_runs_in_python_around_its_layers():
    mx.random.seed(1)  # some weights make every gradient cancel
    net = Plain()
    net.initialize()
    inputs = [nd.array(np.random.RandomState(n).randn(n, 3)) for n in (2, 5)]
    eager = [net(x).asnumpy() for x in inputs]
    net.hybridize()
    for x, y in zip(inputs, eager):
        np.testing.assert_allclose(net(x).asnumpy(), y, rtol=1e-6)
    with autograd.record():
        net(inputs[0]).sum().backward()
    graph = net.w.grad().asnumpy()
    net.hybridize(False)
    with autograd.record():
        net(inputs[0]).sum().backward()
    np.testing.assert_allclose(graph, net.w.grad().asnumpy(), rtol=1e-6)
    assert np.abs(graph).max() > 0


def test_gradients_equal_eager_ones():
    net, x = small(), nd.array(np.random.RandomState(0).randn(2, 5))
    net.initialize()
    grads = []
    for active in (False, True):
        net.hybridize(active)
        with autograd.record():
            y = (net(x) ** 2).sum()
        y.backward()
        grads.append([p.grad().asnumpy() for p in net.collect_params().values()])
    for a, b in zip(*grads):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert any(np.abs(g).max() > 0 for g in grads[0])


def test_batch_norm_updates_its_statistics_once_a_step():
    layer = nn.BatchNorm(in_channels=2, momentum=0.5)
    layer.initialize()
    for active in (False, True):
        layer.running_mean.set_data(nd.zeros((2,)))
        layer.hybridize(active)
        with autograd.record():
            y = layer(nd.array([[1, 2], [3, 6]]))
            y = (y * y).sum()
        y.backward()
        np.testing.assert_allclose(layer.running_mean.data().asnumpy(), [1, 2])


def test_check_reports_state_frozen_in_a_trace():
    class Counting(nn.HybridBlock):
        n = 0

        def hybrid_forward(self, F, x):
            self.n += 1
            return x * self.n

    net = Counting()
    net.hybridize(check=True)
    with pytest.raises(mx.MXNetError, match=r"check=True.*output 0 differs"):
        net(nd.ones((2,)))
    assert_fine = small()
    assert_fine.initialize()
    assert_fine.hybridize(check=True)
    assert assert_fine(nd.ones((2, 3))).shape == (2, 3)


def test_unused_inputs_and_parameters_are_warned_of():
    class Unused(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.w = self.params.get("w", shape=(1,))

        def hybrid_forward(self, F, x, y, w):
            return x + 1

    net = Unused()
    net.initialize()
    net.hybridize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net(nd.ones((1,)), nd.ones((1,)))
    assert len([w for w in caught if "not used by any computation" in str(w.message)]) == 2


def test_wrong_use():
    net = small()
    net.initialize()
    with pytest.raises(mx.MXNetError, match="first call block.hybridize"):
        net.export("nowhere")
    with pytest.raises(mx.MXNetError, match="flag 'fast' is unknown"):
        net.hybridize(fast=True)
    net.hybridize()
    with pytest.raises(ValueError, match="must be one NDArray or one Symbol"):
        net(1)
    net(nd.ones((2, 5)))
    with pytest.raises(ValueError, match=r"(?s)FullyConnected.*\(2, 7\).*m_dense0_fwd"):
        net(nd.ones((2, 7)))
    with pytest.raises(TypeError, match="Changing attribute type"):
        block = nn.Block()
        block.d = nn.Dense(2)
        block.d = 3


def test_infer_shape_before_training():
    net = small()
    net.infer_shape(nd.ones((2, 5)))
    assert net[0].weight.shape == (4, 5) and net[1].weight.shape == (3, 4)


def test_summary_is_that_of_mxnet(capsys):
    net = nn.HybridSequential(prefix="model_")
    with net.name_scope():
        net.add(
            nn.Conv2D(8, 3, in_channels=3),
            nn.BatchNorm(in_channels=8),
            nn.Dense(10, activation="relu", in_units=288),
        )
    net.initialize()
    net.summary(nd.ones((2, 3, 8, 8)))
    lines = capsys.readouterr().out.splitlines()
    assert lines[4:8] == [
        "            Conv2D-1                                (2, 8, 6, 6)             224",
        "         BatchNorm-2                                (2, 8, 6, 6)              32",
        "        Activation-3                                     (2, 10)               0",
        "             Dense-4                                     (2, 10)            2890",
    ]
    assert lines[10:15] == [
        "   Total params: 3146",
        "   Trainable params: 3130",
        "   Non-trainable params: 16",
        "Shared params in forward computation graph: 0",
        "Unique parameters in model: 3146",
    ]
    net.summary(nd.ones((2, 3, 8, 8)), style="tree")
    tree = capsys.readouterr().out.splitlines()
    assert tree[2].split() == ["HybridSequential", "(2,", "10)"]
    assert [line.split()[:2] for line in tree[3:-2]] == [
        ["0", "Conv2D"],
        ["1", "BatchNorm"],
        ["2", "Dense"],
        ["act", "Activation"],
    ]
    assert tree[3].startswith("  0 Conv2D") and tree[6].startswith("    act Activation")
    assert f"{2 * 8 * 6 * 6 * 27:,}" in tree[3] and f"{2 * 8 * 6 * 6 * 4 / 1000:.1f} kB" in tree[3]
    assert tree[-1].split() == ["Total", "3,146", *tree[-1].split()[2:]]
    assert len({len(line) for line in tree[3:-2]}) == 1  # aligned
    net.hybridize()
    for _ in range(2):  # hybridized, and with a graph of its own
        net.summary(nd.ones((2, 3, 8, 8)), style="tree")
        assert capsys.readouterr().out.splitlines() == tree
        net(nd.ones((2, 3, 8, 8)))
    assert len(net.hybrid_report().rows) == 1


def test_export_imports_again(tmp_path):
    net, x = small(), nd.array(np.random.RandomState(0).randn(2, 5))
    net.initialize()
    net.hybridize()
    y = net(x).asnumpy()
    net.export(str(tmp_path / "net"), epoch=7)
    graph = json.loads((tmp_path / "net-symbol.json").read_text())
    assert [n["name"] for n in graph["nodes"] if n["op"] == "null"][0] == "data"
    assert "attrs" not in graph["nodes"][0]  # not tied to this batch size
    again = gluon.SymbolBlock.imports(
        str(tmp_path / "net-symbol.json"), "data", str(tmp_path / "net-0007.params")
    )
    np.testing.assert_allclose(again(x).asnumpy(), y, rtol=1e-6)
    assert again(nd.ones((3, 5))).shape == (3, 3)
    with pytest.raises(mx.MXNetError, match="no variable 'dat'"):
        gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), "dat")


@pytest.mark.parametrize(
    "name, epoch, inputs", [("lenet", 3, "data"), ("mobilenet0.25", 0, "data")]
)
def test_networks_of_mxnet_give_its_answers(name, epoch, inputs):
    expected = np.load(FIXTURES / "expected.npz")
    key = name.split("0")[0]
    net = gluon.SymbolBlock.imports(
        str(FIXTURES / f"{name}-symbol.json"), inputs, str(FIXTURES / f"{name}-{epoch:04d}.params")
    )
    np.testing.assert_allclose(
        net(nd.array(expected[f"{key}_x"])).asnumpy(), expected[f"{key}_y"], atol=1e-4
    )
    # the same inside a traced block
    outer = nn.HybridSequential()
    outer.add(net)
    outer.hybridize()
    np.testing.assert_allclose(
        outer(nd.array(expected[f"{key}_x"])).asnumpy(), expected[f"{key}_y"], atol=1e-4
    )


def test_model_files(tmp_path):
    a, b, x = small(), small("b_"), nd.ones((2, 5))
    a.initialize()
    y = a(x).asnumpy()
    a.save(str(tmp_path / "m"))
    b.load(str(tmp_path / "m"))
    np.testing.assert_array_equal(b(x).asnumpy(), y)
    other = nn.HybridSequential()
    other.add(nn.Dense(4))
    with pytest.raises(mx.MXNetError, match=r"has 2 children \(0, 1\) where"):
        other.load(str(tmp_path / "m"))


class _LossOrScores(nn.HybridBlock):
    """As gluoncv's YOLOV3: what it returns depends on is_recording()."""

    scale = 1

    def hybrid_forward(self, F, x):
        return (x * x).sum() if autograd.is_recording() else x * self.scale


def test_a_graph_may_depend_on_recording():
    net, x = _LossOrScores(), nd.array([1.0, 2.0])
    net.hybridize()
    for _ in range(2):
        with autograd.train_mode():
            assert net(x).shape == (2,)
        with autograd.record():
            assert net(x).shape == (1,)
    assert len(net._traces) == 2
    net.scale = 3
    net._clear_cached_op()  # as gluoncv does after such a change
    np.testing.assert_array_equal(net(x).asnumpy(), [3.0, 6.0])


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_network_that_was_called_computes_by_itself(copies):
    x = nd.array([[1, 2], [3, 5]])
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2))
    net.initialize()
    net.hybridize()
    net.timeline(x)  # layers are looked for, and the network is traced
    before = net(x).asnumpy()
    other = copies(net)
    np.testing.assert_array_equal(other(x).asnumpy(), before)
    other[0].weight.data()[:] = 0
    is_deep = copies is copy.deepcopy
    np.testing.assert_array_equal(other(x).asnumpy(), np.zeros((2, 3)))
    np.testing.assert_array_equal(net(x).asnumpy(), before if is_deep else np.zeros((2, 3)))
