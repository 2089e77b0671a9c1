"""mx.onnx.export_model on networks: MXNet's own outputs, sizes that vary, control flow, errors."""

import builtins
from pathlib import Path

import numpy as np
import onnx
import onnx_reference
import plait as mx
import pytest
from plait import nd, sym
from plait.__main__ import main
from plait.gluon import nn, rnn

FIXTURES = Path(__file__).parents[1] / "fixtures" / "onnx"


def outputs(path, *inputs):
    """The outputs of a file for inputs in its order."""
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    names = [x.name for x in model.graph.input]
    arrays = [x.asnumpy() if hasattr(x, "asnumpy") else x for x in inputs]
    return onnx_reference.run(model, dict(zip(names, arrays, strict=True)))


def kinds(path):
    return [n.op_type for n in onnx.load(path).graph.node]


def close(got, want):
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


# ---- networks whose outputs MXNet 1.9.1 computed -------------------------------------------------


@pytest.mark.parametrize(
    "name, varying",
    [
        ("mlp", [("batch", 10)]),
        ("lstm_lm", [("time", "batch"), (2, "batch", 16), (2, "batch", 16)]),
        ("bert_block", [(6, "batch", 16), ("batch", 6, 6)]),
        ("ssd_head", [("batch", 3, 8, 8), None]),
    ],
)
@pytest.mark.parametrize("varies", [False, True])
def test_outputs_are_mxnets(name, varying, varies, tmp_path):
    data = np.load(FIXTURES / f"{name}.npz")
    inputs = {k.split("_", 2)[2]: data[k] for k in data if k.startswith("in_")}
    weights = onnx.load(FIXTURES / f"{name}.onnx").graph.initializer
    symbol = sym.load(str(FIXTURES / f"{name}-symbol.json"))
    known = set(symbol.list_inputs()) - set(inputs)
    params = {t.name: nd.array(onnx.numpy_helper.to_array(t)) for t in weights if t.name in known}
    shapes = {k: x.shape for k, x in inputs.items()}
    if varies:
        shapes = {k: s or x.shape for (k, x), s in zip(inputs.items(), varying)}
    path = mx.onnx.export_model(symbol, params, shapes, onnx_file_path=tmp_path / "net.onnx")
    want = [data[k] for k in data if k.startswith("out_")]
    for a, b in zip(outputs(path, *inputs.values()), want, strict=True):
        close(a, b)


# ---- the file ------------------------------------------------------------------------------------


def small_net():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Conv2D(4, 3, strides=2, activation="relu"), nn.BatchNorm(), nn.Dropout(0.5))
        net.add(nn.MaxPool2D(), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(5))
    net.initialize()
    return net


def test_a_file_says_what_it_needs(tmp_path):
    net, x = small_net(), nd.random.normal(shape=(2, 3, 20, 22))
    want = net(x).asnumpy()
    path = net.export_onnx(tmp_path / "net.onnx", x, dynamic_input_shapes=[("n", 3, None, None)])
    model = onnx.load(path)
    assert model.opset_import[0].version == 17
    assert [x.name for x in model.graph.input] == ["data"]  # parameters are initializers
    names = [x.name for x in model.graph.initializer if x.name.startswith("net_")]
    assert len(names) == 8
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim][0] == "n"
    out = model.graph.output[0]
    assert (out.name, out.type.tensor_type.shape.dim[0].dim_param) == ("net_dense0_fwd", "n")
    assert "Dropout" not in kinds(path)
    assert {x.name for x in model.graph.value_info} >= {"net_conv0_fwd", "net_batchnorm0_fwd"}
    close(outputs(path, x)[0], want)
    x = nd.random.normal(shape=(3, 3, 31, 19))
    close(outputs(path, x)[0], net(x).asnumpy())


@pytest.mark.parametrize("opset", range(13, 22))
def test_opsets(opset, tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(6, flatten=False), nn.GELU(), nn.LayerNorm())
    net.initialize()
    x = nd.random.normal(shape=(2, 3, 4))
    path = net.export_onnx(tmp_path / "net.onnx", x, opset_version=opset)
    assert onnx.load(path).opset_import[0].version == opset
    assert ("Gelu" in kinds(path)) == (opset >= 20)
    assert ("LayerNormalization" in kinds(path)) == (opset >= 17)
    close(outputs(path, x)[0], net(x).asnumpy())


def test_fixed_gamma_is_one(tmp_path):
    net = nn.BatchNorm(scale=False, in_channels=2)
    net.initialize()
    net.gamma.set_data(nd.array([2, 3]))
    x = nd.array([[1, 2], [3, 4]])
    path = net.export_onnx(tmp_path / "net.onnx", x)
    close(outputs(path, x)[0], x.asnumpy() / np.sqrt(1 + 1e-5))


def test_outputs_are_in_the_symbols_order(tmp_path):
    a, b = sym.var("a"), sym.var("b")
    first = sym.exp(a, name="first")
    symbol = sym.Group([sym.tanh(first, name="second"), first, a, first])
    path = mx.onnx.export_model(
        sym.Group([symbol, b]), {}, [(2,), (2,)], onnx_file_path=tmp_path / "x.onnx"
    )
    x, y = np.array([0.5, -1], "f"), np.array([1, 2], "f")
    want = [np.tanh(np.exp(x)), np.exp(x), x, np.exp(x), y]
    names = [o.name for o in onnx.load(path).graph.output]
    assert names[:2] == ["second", "first"]
    assert len(set(names)) == 5
    for got, expected in zip(outputs(path, x, y), want, strict=True):
        close(got, expected)


def test_labels_of_losses_are_no_inputs(tmp_path):
    net = sym.SoftmaxOutput(
        sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc"), name="softmax"
    )
    params = {"arg:fc_weight": nd.random.normal(shape=(3, 4)), "arg:fc_bias": nd.zeros(3)}
    path = mx.onnx.export_model(net, params, [(2, 4)], onnx_file_path=tmp_path / "x.onnx")
    x = nd.random.normal(shape=(2, 4))
    close(outputs(path, x)[0], nd.softmax(nd.dot(x, params["arg:fc_weight"].T)).asnumpy())


@pytest.mark.parametrize("shape", [(-3, 0), (0, -4, 2, -1, 0), (-2, 1), (-1, 0, 0)])
def test_codes_of_reshape_with_sizes_that_vary(shape, tmp_path):
    net = sym.reshape(sym.var("data"), shape=shape, name="out")
    path = mx.onnx.export_model(net, {}, [("n", 6, 5)], onnx_file_path=tmp_path / "x.onnx")
    x = nd.arange(120).reshape((4, 6, 5))
    close(outputs(path, x)[0], nd.reshape(x, shape=shape).asnumpy())


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_relu"])
@pytest.mark.parametrize("layers, both", [(1, False), (3, True)])
def test_recurrent_layers(kind, layers, both, tmp_path):
    make = {"lstm": rnn.LSTM, "gru": rnn.GRU, "rnn_relu": rnn.RNN}[kind]
    net = make(5, layers, bidirectional=both, input_size=4)
    net.initialize(mx.init.Xavier())
    x, states = nd.random.normal(shape=(6, 2, 4)), net.begin_state(2)
    want = net(x, states)
    path = net.export_onnx(
        tmp_path / "net.onnx", x, states,
        dynamic_input_shapes=[("t", "n", 4)] + [(layers * (1 + both), "n", 5)] * len(states),
    )  # fmt: skip
    assert kinds(path).count({"lstm": "LSTM", "gru": "GRU", "rnn_relu": "RNN"}[kind]) == layers
    for got, expected in zip(outputs(path, x, *states), [want[0], *want[1]], strict=True):
        close(got, expected.asnumpy())


# ---- control flow --------------------------------------------------------------------------------


def test_foreach_is_scan(tmp_path):
    data, state, w = sym.var("data"), sym.var("state"), sym.var("w")

    def body(x, states):
        new = sym.tanh(sym.dot(x, w) + states[0])
        return new * 2, [new]

    outs, last = sym.contrib.foreach(body, data, [state])
    net, weight = sym.Group([outs, last[0]]), nd.random.normal(shape=(3, 4))
    shapes = {"data": ("t", "n", 3), "state": ("n", 4)}
    path = mx.onnx.export_model(net, {"w": weight}, shapes, onnx_file_path=tmp_path / "x.onnx")
    assert "Scan" in kinds(path)
    x, s = nd.random.normal(shape=(5, 2, 3)), nd.random.normal(shape=(2, 4))
    want = [y.asnumpy() for y in net.eval(data=x, state=s, w=weight)]
    for got, expected in zip(outputs(path, x, s), want, strict=True):
        close(got, expected)


def test_while_loop_is_loop(tmp_path):
    i, total = sym.var("i"), sym.var("total")
    outs, last = sym.contrib.while_loop(
        lambda i, total: i <= 3, lambda i, total: ([i * 2], [i + 1, total + i]), [i, total], 6
    )
    net = sym.Group([outs[0], *last])
    path = mx.onnx.export_model(net, {}, [(1,), (1,)], onnx_file_path=tmp_path / "x.onnx")
    assert "Loop" in kinds(path)
    given = [np.array([1], "f"), np.array([0], "f")]
    got = outputs(path, *given)
    close(got[0].reshape(-1), [2, 4, 6, 0, 0, 0])
    close([got[1], got[2]], [[4], [6]])


@pytest.mark.parametrize("x", [2.0, -2.0])
def test_cond_is_if(x, tmp_path):
    data = sym.var("data")
    net = sym.contrib.cond(
        sym.sum(data) > 0, lambda: sym.exp(data), lambda: sym.contrib.cond(
            sym.sum(data) < -1, lambda: data * 3, lambda: data
        ),
    )  # fmt: skip
    path = mx.onnx.export_model(net, {}, [(1,)], onnx_file_path=tmp_path / "x.onnx")
    assert "If" in kinds(path)
    close(outputs(path, np.array([x], "f"))[0], [np.exp(x) if x > 0 else x * 3])


# ---- detection -----------------------------------------------------------------------------------


def suppressed(boxes, threshold):
    """Which of boxes (n, 6: class, score, corners), by falling score, stay: the plain loop."""
    keep = []
    for i, a in enumerate(boxes):
        for j in keep:
            b = boxes[j]
            low, high = np.maximum(a[2:4], b[2:4]), np.minimum(a[4:], b[4:])
            shared = np.prod(np.maximum(high - low, 0))
            areas = sum(np.prod(x[4:] - x[2:4]) for x in (a, b))
            if a[0] == b[0] and shared / (areas - shared) > threshold:
                break
        else:
            keep.append(i)
    return boxes[keep]


def test_suppression_is_the_plain_loop(tmp_path):
    """Chains of boxes that overlap their neighbours: each decision depends on the one before."""
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 4, (200, 2))
    boxes = np.concatenate(
        [rng.integers(0, 2, (200, 1)), rng.permuted(np.arange(200))[:, None], corner, corner + 1], 1
    )
    net = sym.contrib.box_nms(sym.var("data"), overlap_thresh=0.1, id_index=0, valid_thresh=-1)
    path = mx.onnx.export_model(net, {}, [("n", 200, 6)], onnx_file_path=tmp_path / "x.onnx")
    (got,) = outputs(path, np.stack([boxes, boxes]).astype("f"))
    want = suppressed(boxes[np.argsort(-boxes[:, 1])], 0.1)
    for one in got:
        close(one[: len(want)], want)
        assert np.all(one[len(want) :] == -1)


# ---- errors --------------------------------------------------------------------------------------


def test_all_nodes_without_a_form_are_named():
    a = sym.var("a")
    net = sym.linalg.potrf(sym.linalg.potri(a, name="bad1"), name="bad2")
    with pytest.raises(mx.onnx.OnnxError, match=r"(?s)2 nodes.*bad1 \(_linalg_potri\).*bad2"):
        mx.onnx.export_model(net, {}, [(3, 3)])


def test_sizes_that_cannot_vary_are_said():
    """A size that a node was inferred for, and one that the network itself fixes."""
    net = sym.linalg.trsm(sym.var("a"), sym.var("b"), name="solve")
    with pytest.raises(mx.onnx.OnnxError, match="need fixed sizes: solve"):
        mx.onnx.export_model(net, {}, [("m", "m"), ("m", 4)])
    net = sym.reshape(sym.var("a"), shape=(6, 2))
    with pytest.raises(mx.onnx.OnnxError, match="the size 'n' cannot vary"):
        mx.onnx.export_model(net, {}, [(3, 4)], dynamic_input_shapes=[("n", 4)])


@pytest.mark.parametrize(
    "given, rule",
    [
        ({"opset_version": 12}, "opset_version must be from 13 to 21, got 12"),
        ({"in_shapes": [(2, 3), (3,)]}, "a shape for each of the inputs data, got 2 shapes"),
        ({"in_shapes": {"x": (2, 3)}}, r"must name the inputs data, got \['x'\]"),
        ({"in_types": ["float32", "float32"]}, "in_types must have 1 dtypes, got 2"),
        ({"params": 3}, "params must be a file, a dict"),
        ({"sym": 3}, "sym must be a Symbol or a file, got int"),
    ],
)
def test_wrong_arguments(given, rule):
    usual = {"sym": sym.exp(sym.var("data")), "params": {}, "in_shapes": [(2, 3)]}
    with pytest.raises(ValueError, match=rule):
        mx.onnx.export_model(**usual | given)


def test_without_the_package(monkeypatch):
    whole = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "onnx":
            raise ImportError(name)
        return whole(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r"fix: pip install 'plait\[onnx\]'"):
        mx.onnx.export_model(sym.exp(sym.var("x")), {}, [(2,)])


# ---- the command line, old names -----------------------------------------------------------------


def test_command(tmp_path, capsys):
    net = small_net()
    net.hybridize()
    x = nd.random.normal(shape=(2, 3, 16, 16))
    want = net(x).asnumpy()
    net.export(str(tmp_path / "net"))
    files = [str(tmp_path / f) for f in ("net-symbol.json", "net-0000.params", "net.onnx")]
    assert main(["onnx", "export", *files[:2], "-o", files[2], "--shape", "data=n,3,16,16"]) == 0
    assert capsys.readouterr().out == f"wrote {files[2]}\n"
    close(outputs(files[2], x)[0], want)


def test_old_path_and_support():
    assert mx.contrib.onnx.export_model is mx.onnx.export_model
    found = mx.onnx.get_operator_support()
    assert {"Convolution", "RNN", "broadcast_maximum", "GroupNorm", "MultiBoxDetection"} <= {
        n.removeprefix("_contrib_") for n in found
    }
    assert "_linalg_potrf" not in found
