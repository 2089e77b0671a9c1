"""Symbols with sparse arrays: storage types that simple_bind infers, linear classification and a
factorization machine trained as MXNet's tutorials do, with the weights that the real MXNet gets."""

import json
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import nd, sym

MXNET = json.loads((Path(__file__).parents[1] / "fixtures/sparse.json").read_text())["training"]
N, D = 200, 50


@pytest.fixture(autouse=True)
def names():
    with mx.name.NameManager():
        yield


def examples():
    rng = np.random.RandomState(0)
    x = ((rng.rand(N, D) < 0.1) * rng.rand(N, D)).astype("f")
    return rng, x, (x @ rng.randn(D) > 0).astype("f")


def train(executor, optimizer, x, label_name, labels):
    names = [n for n, g in executor.grad_dict.items() if g is not None]
    updater = mx.optimizer.get_updater(optimizer)
    for _ in range(3):
        for i in range(0, N, 20):
            batch = {"data": nd.array(x[i : i + 20]).tostype("csr")}
            executor.forward(is_train=True, **batch, **{label_name: nd.array(labels[i : i + 20])})
            executor.backward()
            for k, name in enumerate(names):
                updater(k, executor.grad_dict[name], executor.arg_dict[name])


def test_linear_classification_learns_what_mxnet_learns():
    rng, x, labels = examples()
    data = sym.var("data", stype="csr")
    weight = sym.var("weight", shape=(D, 2), stype="row_sparse")
    scores = sym.broadcast_add(sym.sparse.dot(data, weight), sym.var("bias", shape=(2,)))
    net = sym.SoftmaxOutput(scores, sym.var("softmax_label"), name="softmax")
    ex = net.simple_bind(
        mx.cpu(), data=(20, D), softmax_label=(20,), grad_req={"weight": "write", "bias": "write"}
    )
    assert {k: a.stype for k, a in ex.arg_dict.items()} == {
        "data": "csr",
        "weight": "row_sparse",
        "bias": "default",
        "softmax_label": "default",
    }
    ex.arg_dict["weight"][:] = nd.array(rng.randn(D, 2) * 0.1).tostype("row_sparse")
    sgd = mx.optimizer.create("sgd", learning_rate=0.5, rescale_grad=1 / 20, momentum=0.9)
    train(ex, sgd, x, "softmax_label", labels)
    expected, stype, outputs, rows = MXNET["lin"]
    np.testing.assert_allclose(ex.arg_dict["weight"].asnumpy(), expected, atol=1e-3)
    np.testing.assert_allclose(ex.outputs[0].asnumpy(), outputs, atol=1e-3)
    assert ex.grad_dict["weight"].stype == stype == "row_sparse"
    assert ex.grad_dict["weight"].indices.asnumpy().tolist() == rows


def test_a_factorization_machine_learns_what_mxnet_learns():
    rng, x, labels = examples()
    data = sym.var("data", stype="csr")
    w1 = sym.var("w1", shape=(D, 1), stype="row_sparse")
    v = sym.var("v", shape=(D, 4), stype="row_sparse")
    squares = sym._internal._square_sum(v, axis=1, keepdims=True)
    pairs = sym.sum(sym.square(sym.sparse.dot(data, v)), axis=1, keepdims=True)
    y = sym.sparse.dot(data, w1) + 0.5 * (pairs - sym.sparse.dot(sym.sparse.square(data), squares))
    net = sym.LogisticRegressionOutput(y, sym.var("label"))
    ex = net.simple_bind(
        mx.cpu(), data=(20, D), label=(20, 1), grad_req={"w1": "write", "v": "write"}
    )
    rng = np.random.RandomState(0)
    rng.rand(N, D), rng.rand(N, D), rng.randn(D), rng.randn(D, 2)
    ex.arg_dict["v"][:] = nd.array(rng.randn(D, 4) * 0.1).tostype("row_sparse")
    ex.arg_dict["w1"][:] = nd.array(rng.randn(D, 1) * 0.1).tostype("row_sparse")
    adam = mx.optimizer.create("adam", learning_rate=0.05, rescale_grad=1 / 20)
    train(ex, adam, x, "label", labels[:, None])
    expected, stype, outputs, _ = MXNET["fm"]
    np.testing.assert_allclose(ex.arg_dict["v"].asnumpy(), expected, atol=2e-3)
    np.testing.assert_allclose(ex.outputs[0].asnumpy(), outputs, atol=2e-3)
    assert ex.grad_dict["v"].stype == stype


def test_storage_types_of_gradients_are_inferred():
    x, w, plain = sym.var("x", stype="csr"), sym.var("w", stype="row_sparse"), sym.var("p")
    table = sym.Embedding(sym.var("d"), plain, input_dim=5, output_dim=2, sparse_grad=True)
    cases = [
        (sym.dot(x, w), {"x": (4, 5), "w": (5, 2)}, "w", "row_sparse", "default"),
        (sym.dot(x, plain), {"x": (4, 5), "p": (5, 2)}, "p", "row_sparse", "default"),
        (table, {"d": (3,)}, "p", "row_sparse", "default"),
        (sym.square(w), {"w": (5, 2)}, "w", "row_sparse", "row_sparse"),
        (sym.FullyConnected(x, plain, no_bias=True, num_hidden=2), {"x": (4, 5)}, "p", "default",
         "default"),
        (sym.dot(x, plain, transpose_a=True), {"x": (4, 5), "p": (4, 2)}, "p", "default",
         "row_sparse"),
    ]  # fmt: skip
    for net, shapes, name, stype, out in cases:
        ex = net.simple_bind(mx.cpu(), **shapes)
        assert (ex.grad_dict[name].stype, ex.outputs[0].stype) == (stype, out)
        ex.forward(is_train=True)
        ex.backward([nd.ones(o.shape) for o in ex.outputs])
        assert (ex.grad_dict[name].stype, ex.outputs[0].stype) == (stype, out)


def test_stype_dict_and_the_monitor_and_predictions():
    net = sym.tanh(sym.dot(sym.var("x"), sym.var("w"), name="product"), name="t")
    ex = net.simple_bind(mx.cpu(), x=(2, 3), w=(3, 2), stype_dict={"x": "csr"})
    ex.arg_dict["x"][:] = nd.array([[1, 0, 0], [0, 0, 2]]).tostype("csr")
    ex.arg_dict["w"][:] = nd.ones((3, 2))
    seen = []
    ex.set_monitor_callback(lambda name, array: seen.append((name, array.stype)), monitor_all=True)
    (out,) = ex.forward(is_train=False)
    np.testing.assert_allclose(out.asnumpy()[:, 0], np.tanh([1, 2]), rtol=1e-6)
    assert ("x", "csr") in seen and ("product_output", "default") in seen
    ex.backward(nd.ones((2, 2)))  # as after a training forward
    assert ex.grad_dict["w"].indices.asnumpy().tolist() == [0, 2]


def test_the_sparse_namespace_has_mxnets_names():
    table = Path(__file__).parents[1] / "fixtures/api.tsv"
    names = {
        line.split("\t")[2]
        for line in table.read_text().splitlines()
        if line.startswith("mxnet.ndarray.sparse\t")
    }
    assert len(names) == 91
    assert not [n for n in names if not hasattr(nd.sparse, n)]
    assert {"dot", "retain", "Embedding", "cast_storage", "adam_update"} <= set(dir(sym.sparse))


def test_a_json_round_trip_keeps_storage_types():
    net = sym.load_json(sym.dot(sym.var("x", stype="csr"), sym.var("w")).tojson())
    assert net.simple_bind(mx.cpu(), x=(2, 3), w=(3, 2)).arg_dict["x"].stype == "csr"


def test_row_sparse_gradients_of_dense_graphs_stay_compiled():
    table = sym.Embedding(sym.var("d"), sym.var("w"), input_dim=6, output_dim=2, sparse_grad=True)
    net = sym.sum(sym.square(table) * 3)
    w = nd.array(np.arange(12).reshape(6, 2))
    for req in ("write", "add"):
        grad = nd.sparse.zeros("row_sparse", (6, 2))
        ex = net.bind(mx.cpu(), {"d": nd.array([4, 1, 4]), "w": w}, {"w": grad}, {"w": req})
        assert ex._storage is None
        for _ in range(4):
            ex.forward(is_train=True)
            ex.backward(nd.ones((1,)))
        times = 1 if req == "write" else 4
        expected = np.zeros((6, 2))
        expected[1], expected[4] = 6 * w.asnumpy()[1], 12 * w.asnumpy()[4]
        assert grad.indices.asnumpy().tolist() == [1, 4]
        np.testing.assert_allclose(grad.asnumpy(), times * expected, rtol=1e-5)


def test_an_executor_of_another_shape():
    net = sym.dot(sym.var("x", stype="csr"), sym.var("w"))
    ex = net.simple_bind(mx.cpu(), x=(4, 3), w=(3, 2)).reshape(x=(2, 3), w=(3, 2))
    assert (ex.arg_dict["x"].stype, ex.arg_dict["x"].shape) == ("csr", (2, 3))
    assert ex.forward()[0].shape == (2, 2) and "allocated" in ex.debug_str()
