"""ONNX files as networks: operators beside those of onnx, shapes, control flow, training, bad
files."""

from __future__ import annotations

import numpy as np
import onnx
import plait as mx
import pytest
from onnx import TensorProto, helper
from onnx.helper import make_graph, make_node, make_tensor_value_info
from onnx.reference import ReferenceEvaluator
from onnx_cases import CASES, f, i, model_of, model_of_case
from plait import autograd, gluon
from plait.compat.onnx.load import run
from plait.compat.onnx.load.graph import read_graph
from plait.compat.onnx.load.weights import static_inputs


def called(net, inputs: dict) -> list[np.ndarray]:
    found = net(*[mx.np.array(inputs[i.name], dtype=inputs[i.name].dtype) for i in net.inputs])
    return [x.asnumpy() for x in (found if isinstance(found, list) else [found])]


def compare(model, inputs: dict, tolerance: float = 1e-5) -> None:
    """On arrays and as a graph, where what decides shapes is constant."""
    expected = ReferenceEvaluator(model).run(None, inputs)
    fixed = {n: inputs[n] for n in static_inputs(read_graph(model)) if n in inputs}
    for constants in ({}, fixed):
        net = mx.onnx.load(model, constants=constants)
        net.hybridize(bool(constants is fixed and net.inputs))
        for want, have in zip(expected, called(net, inputs), strict=True):
            assert have.shape == np.shape(want) and have.dtype == np.asarray(want).dtype
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=[f"{k}-{c.op}-{c.opset}" for k, c in enumerate(CASES)])
def test_operator(case):
    model, inputs = model_of_case(case)
    compare(model, inputs)


def run_one(op: str, x: np.ndarray, opset: int, **attrs) -> np.ndarray:
    net = mx.onnx.load(model_of([make_node(op, ["x"], ["y"], **attrs)], {"x": x}, ["y"], opset))
    return net(mx.nd.array(x)).asnumpy()


def test_softmax_before_opset_13_is_over_all_later_axes():
    x = f(2, 3, 4)
    e = np.exp(x.reshape(2, 12).astype(np.float64))
    want = (e / e.sum(1, keepdims=True)).reshape(2, 3, 4)
    np.testing.assert_allclose(run_one("Softmax", x, 11, axis=1), want, rtol=1e-5)


def test_lrn():
    x = f(2, 5, 2, 2)
    squares = np.pad(x.astype(np.float64) ** 2, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    want = x / (1.5 + 0.3 / 3 * total) ** 0.6
    have = run_one("LRN", x, 17, size=3, alpha=0.3, beta=0.6, bias=1.5)
    np.testing.assert_allclose(have, want, rtol=1e-5)


# ---- shapes --------------------------------------------------------------------------------------


def flattened_by_shape():
    """x -> (batch, rest), with the batch size taken from Shape."""
    nodes = [
        make_node("Shape", ["x"], ["s"]),
        make_node("Gather", ["s", "zero"], ["n"]),
        make_node("Unsqueeze", ["n", "first"], ["n1"]),
        make_node("Concat", ["n1", "rest"], ["to"], axis=0),
        make_node("Reshape", ["x", "to"], ["flat"]),
        make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    constants = {"zero": np.array(0), "first": i(0), "rest": i(-1), "w": f(12, 2)}
    tensors = [onnx.numpy_helper.from_array(x, n) for n, x in constants.items()]
    model = model_of(nodes, {"x": f(2, 3, 4)}, ["y"], initializer=tensors)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    return model, constants["w"]


def test_shape_arithmetic_is_a_graph_for_each_size():
    model, w = flattened_by_shape()
    net = mx.onnx.load(model)
    assert net.inputs[0].shape == ("batch", 3, 4)
    for n in (2, 5, 1):
        x = f(n, 3, 4)
        y = net(mx.nd.array(x))
        assert type(y) is mx.nd.NDArray
        np.testing.assert_allclose(y.asnumpy(), x.reshape(n, 12) @ w, rtol=1e-5)
    assert not net._dynamic and isinstance(net, gluon.SymbolBlock)


def test_trains_freezes_and_saves(tmp_path):
    model, w = flattened_by_shape()
    net = mx.onnx.load(model)
    assert list(net.collect_params()) == ["w"]
    x, t = f(4, 3, 4), f(4, 2)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(mx.nd.array(x)), mx.nd.array(t))
    loss.backward()
    trainer.step(4)
    flat = x.reshape(4, 12)
    step = flat.T @ ((flat @ w - t) / 2) / 4
    np.testing.assert_allclose(
        net.params["w"].data().asnumpy(), w - 0.1 * step, rtol=1e-4, atol=1e-6
    )
    net.save_parameters(str(tmp_path / "net.params"))
    other = mx.onnx.load(model)
    other.load_parameters(str(tmp_path / "net.params"))
    other.freeze()
    np.testing.assert_array_equal(other(mx.nd.array(x)).asnumpy(), net(mx.nd.array(x)).asnumpy())


def test_mxnet_functions(tmp_path):
    file = str(tmp_path / "net.onnx")
    nodes = [
        make_node("Conv", ["x", "w"], ["c"], name="conv"),
        make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["y"], name="norm"),
    ]
    values = {"w": f(2, 1, 3, 3), "g": f(2), "b": f(2), "m": f(2), "v": np.abs(f(2))}
    tensors = [onnx.numpy_helper.from_array(x, n) for n, x in values.items()]
    x = f(1, 1, 5, 5)
    onnx.save(model_of(nodes, {"x": x}, ["y"], initializer=tensors), file)
    assert mx.contrib.onnx.get_model_metadata(file) == {
        "input_tensor_data": [("x", (1, 1, 5, 5), 1)],
        "output_tensor_data": [("y", ())],
    }
    symbol, args, aux = mx.contrib.onnx.import_model(file)
    assert sorted(args) == ["b", "g", "w"] and sorted(aux) == ["m", "v"]
    assert symbol.list_outputs() == ["norm_output"]
    (want,) = ReferenceEvaluator(file).run(None, {"x": x})
    graph = mx.sym.load_json(symbol.tojson())
    (bound,) = graph.bind(mx.cpu(), {**args, "x": mx.nd.array(x)}, aux_states=aux).forward()
    np.testing.assert_allclose(bound.asnumpy(), want, rtol=1e-4, atol=1e-5)
    net = mx.onnx.import_to_gluon(file, mx.cpu())
    np.testing.assert_allclose(net(mx.nd.array(x)).asnumpy(), want, rtol=1e-4, atol=1e-5)
    assert net.params["m"].grad_req == "null" and net.params["w"].grad_req == "write"


# ---- control flow and functions ------------------------------------------------------------------


def info(name: str, dtype: int = TensorProto.FLOAT, shape=None):
    return make_tensor_value_info(name, dtype, shape)


def branches():
    return {
        "then_branch": make_graph([make_node("Add", ["x", "x"], ["t"])], "a", [], [info("t")]),
        "else_branch": make_graph([make_node("Neg", ["x"], ["e"])], "b", [], [info("e")]),
    }


@pytest.mark.parametrize("taken", [True, False])
def test_if_of_an_input_is_a_branch_of_the_graph(taken):
    node = make_node("If", ["c"], ["y"], **branches())
    inputs = {"x": f(2, 3), "c": np.array(taken)}
    model = model_of([node], inputs, ["y"])
    net = mx.onnx.load(model)
    want = inputs["x"] * (2 if taken else -1)
    np.testing.assert_array_equal(called(net, inputs)[0], want)
    assert not net._dynamic


def test_if_of_a_shape_is_decided_for_each_signature():
    nodes = [
        make_node("Size", ["x"], ["n"]),
        make_node("Equal", ["n", "six"], ["c"]),
        make_node("If", ["c"], ["y"], **branches()),
    ]
    six = onnx.numpy_helper.from_array(np.array(6), "six")
    net = mx.onnx.load(model_of(nodes, {"x": f(2, 3)}, ["y"], initializer=[six]))
    for n, factor in ((3, 2), (4, -1)):
        x = f(2, n)
        np.testing.assert_array_equal(net(mx.np.array(x)).asnumpy(), x * factor)


def loop(condition_of_state: bool):
    flag = make_node("Less", ["total", "top"], ["go_on"])
    if not condition_of_state:
        flag = make_node("Identity", ["go"], ["go_on"])
    body = make_graph(
        [
            make_node("ReduceSum", ["a"], ["total"], keepdims=0),
            flag,
            make_node("Add", ["a", "x"], ["a_out"]),
            make_node("Identity", ["a_out"], ["row"]),
        ],
        "body",
        [info("k", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("a")],
        [info("go_on", TensorProto.BOOL, []), info("a_out"), info("row")],
    )
    node = make_node("Loop", ["n", "yes", "start"], ["last", "rows"], body=body)
    values = {"yes": np.array(True), "start": np.zeros(3, np.float32), "top": np.float32(10)}
    tensors = [onnx.numpy_helper.from_array(np.asarray(x), k) for k, x in values.items()]
    inputs = {"x": np.array([1, 2, 3], np.float32), "n": np.array(12)}
    return model_of([node], inputs, ["last", "rows"], initializer=tensors), inputs


@pytest.mark.parametrize("by_state", [True, False])
def test_loop(by_state):
    model, inputs = loop(by_state)
    compare(model, inputs)
    net = mx.onnx.load(model, constants={"n": inputs["n"]})
    called(net, inputs)
    assert net._dynamic == by_state  # a known number of iterations is part of the graph


def test_scan():
    body = make_graph(
        [make_node("Add", ["a", "row"], ["a_out"]), make_node("Mul", ["a_out", "row"], ["made"])],
        "body",
        [info("a"), info("row")],
        [info("a_out"), info("made")],
    )
    node = make_node("Scan", ["start", "x"], ["last", "rows"], body=body, num_scan_inputs=1)
    for n in (3, 20):
        inputs = {"start": f(4), "x": f(n, 4)}
        compare(model_of([node], inputs, ["last", "rows"]), inputs)


def test_functions_of_the_model():
    function = helper.make_function(
        "mine",
        "Scaled",
        ["a"],
        ["b"],
        [
            make_node("LeakyRelu", ["a"], ["c"]),
            make_node("Add", ["c", "a"], ["b"]),
        ],
        [helper.make_opsetid("", 17)],
        ["alpha"],
    )
    slope = function.node[0].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT)
    slope.ref_attr_name = "alpha"
    node = make_node("Scaled", ["x"], ["y"], domain="mine", alpha=0.5)
    inputs = {"x": f(3, 4)}
    model = model_of(
        [node], inputs, ["y"], functions=[function], opsets=[helper.make_opsetid("mine", 1)]
    )
    x = inputs["x"]
    want = np.where(x < 0, x * np.float32(0.5), x) + x
    np.testing.assert_allclose(called(mx.onnx.load(model), inputs)[0], want, rtol=1e-6)


# ---- bad files -----------------------------------------------------------------------------------


def refused(model, text: str) -> None:
    with pytest.raises(mx.onnx.OnnxError, match=text):
        mx.onnx.load(model)


def test_all_unsupported_nodes_are_reported():
    nodes = [
        make_node("TfIdfVectorizer", ["x"], ["a"], name="first"),
        make_node("Fancy", ["a"], ["b"], name="second", domain="somewhere"),
    ]
    model = model_of(nodes, {"x": i(1, 2)}, ["b"], opsets=[helper.make_opsetid("somewhere", 1)])
    refused(model, r"(?s)TfIdfVectorizer-17: first.*somewhere.Fancy: second")


@pytest.mark.parametrize(
    "nodes, text",
    [
        ([make_node("Relu", ["none"], ["y"])], "reads 'none', which is no input"),
        (
            [make_node("Relu", ["b"], ["a"]), make_node("Relu", ["a"], ["b"])],
            "computed only later: nodes are out of order or form a cycle",
        ),
        ([make_node("Relu", ["x"], ["x"])], "'x' is computed twice"),
        ([make_node("Relu", ["x"], ["z"])], "nothing computes the output 'y'"),
        ([make_node("Constant", [], ["y"])], "has no value"),
    ],
)
def test_graphs_that_make_no_sense(nodes, text):
    refused(model_of(nodes, {"x": f(2)}, ["y"]), text)


def test_damaged_files(tmp_path):
    model, _ = flattened_by_shape()
    content = model.SerializeToString()
    file = tmp_path / "net.onnx"
    for n in range(0, len(content), 7):
        file.write_bytes(content[:n])
        try:
            mx.onnx.load(str(file))
        except mx.onnx.OnnxError:
            continue
        raise AssertionError(f"the first {n} bytes of {len(content)} were taken")
    with pytest.raises(OSError):
        mx.onnx.load(str(tmp_path / "none.onnx"))


@pytest.mark.parametrize("location", ["../outside", "/etc/passwd", "", "missing"])
def test_external_data_outside_the_folder(tmp_path, location):
    model, _ = flattened_by_shape()
    (tmp_path / "outside").write_bytes(bytes(96))
    folder = tmp_path / "folder"
    folder.mkdir()
    (t,) = (t for t in model.graph.initializer if t.name == "w")
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    t.external_data.add(key="location", value=location)
    file = folder / "net.onnx"
    file.write_bytes(model.SerializeToString())
    refused(str(file), "below the model's folder")


@pytest.mark.parametrize("given, fits", [({"length": "96"}, True), ({"offset": "64"}, False)])
def test_external_data(tmp_path, given, fits):
    model, w = flattened_by_shape()
    (t,) = (t for t in model.graph.initializer if t.name == "w")
    (tmp_path / "data").write_bytes(t.raw_data)
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data", **given}.items():
        t.external_data.add(key=key, value=value)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    if not fits:
        return refused(str(tmp_path / "net.onnx"), "'w' is damaged")
    net = mx.onnx.load(str(tmp_path / "net.onnx"))
    np.testing.assert_array_equal(net.params["w"].data().asnumpy(), w)


@pytest.mark.parametrize(
    "op, values",
    [("ConstantOfShape", [i(1 << 40, 1 << 30)]), ("Expand", [f(1), i(1 << 40)]),
     ("Range", [i(0)[0], i(1 << 50)[0], i(1)[0]]), ("Tile", [f(4), i(1 << 40)]),
     ("Resize", [f(1, 1, 2, 2), f(0), np.array([1, 1, 1e9, 1e9], np.float32)]),
     ("Reshape", [f(6), i(4, -1)]), ("ConstantOfShape", [i(-3)])],
)  # fmt: skip
def test_shapes_no_array_can_have(op, values):
    names = [f"c{k}" for k in range(len(values))]
    tensors = [onnx.numpy_helper.from_array(np.asarray(x), n) for n, x in zip(names, values)]
    refused(model_of([make_node(op, names, ["y"])], {}, ["y"], initializer=tensors), f"{op} ")


def test_constants_that_double_at_each_node(monkeypatch):
    monkeypatch.setattr(run, "MAX_ELEMENTS", 1 << 20)
    nodes = [make_node("Concat", [f"c{k}", f"c{k}"], [f"c{k + 1}"], axis=0) for k in range(60)]
    first = onnx.numpy_helper.from_array(np.zeros(1 << 4, np.bool_), "c0")
    model = model_of(nodes, {}, ["c60"], initializer=[first])
    refused(model, "makes a constant of shape|no array")


def test_functions_that_double_at_each_call(monkeypatch):
    monkeypatch.setattr(run, "MAX_NODES", 1000)
    made = [("twice0", [make_node("Neg", ["a"], ["t"]), make_node("Neg", ["t"], ["b"])])]
    for k in range(30):
        call = f"twice{k}"
        pair = [
            make_node(call, ["a"], ["t"], domain="mine"),
            make_node(call, ["t"], ["b"], domain="mine"),
        ]
        made.append((f"twice{k + 1}", pair))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    functions = [helper.make_function("mine", n, ["a"], ["b"], body, opsets) for n, body in made]
    node = make_node("twice30", ["x"], ["y"], domain="mine")
    x = f(2)
    model = model_of([node], {"x": x}, ["y"], functions=functions, opsets=opsets[1:])
    net = mx.onnx.load(model)
    with pytest.raises(mx.onnx.OnnxError, match="more than"):
        net(mx.nd.array(x))


def test_a_function_that_calls_itself():
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    node = make_node("again", ["a"], ["b"], domain="mine")
    function = helper.make_function("mine", "again", ["a"], ["b"], [node], opsets)
    model = model_of(
        [make_node("again", ["x"], ["y"], domain="mine")],
        {"x": f(2)},
        ["y"],
        functions=[function],
        opsets=opsets[1:],
    )
    with pytest.raises(mx.onnx.OnnxError, match="deep"):
        mx.onnx.load(model)(mx.nd.ones(2))


def test_sparse_tensors():
    values = onnx.numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    places = onnx.numpy_helper.from_array(i(1, 5), "places")
    nodes = [make_node("Mul", ["x", "w"], ["y"])]
    for shape, fits in (((2, 3), True), ((2, 2), False), ((1 << 40, 1 << 20), False)):
        model = model_of(nodes, {"x": f(2, 3)}, ["y"])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, shape))
        if not fits:
            refused(model, "'w'")
            continue
        y = mx.onnx.load(model)(mx.nd.ones((2, 3))).asnumpy()
        np.testing.assert_array_equal(y, [[0, 5, 0], [0, 0, 7]])


def test_an_input_of_another_rank():
    model, _ = flattened_by_shape()
    net = mx.onnx.load(model)
    with pytest.raises(ValueError, match="input 'x' must have 3 axes"):
        net(mx.nd.ones((2, 3)))
    with pytest.raises(ValueError, match="needs 1 inputs"):
        net(mx.nd.ones((2, 3, 4)), mx.nd.ones(1))
