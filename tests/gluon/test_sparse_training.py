"""Sparse gradients and weights in gluon: parameters, optimizers that touch few rows, stores, files,
LibSVMIter; numbers from the real MXNet."""

import json
import warnings
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import nn
from plait.ndarray.sparse import storage

MXNET = json.loads((Path(__file__).parents[1] / "fixtures/sparse.json").read_text())


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", storage.StorageFallback)
        yield


@pytest.mark.parametrize("case", MXNET["updates"], ids=lambda c: f"{c[0]}-{c[1]}-{c[2]}")
def test_update_operators_touch_the_rows_that_mxnet_touches(case):
    name, stype, state_stype, numbers, (expected, *states) = case
    weight = nd.array(np.arange(1, 13).reshape(4, 3) / 10).tostype(stype)
    grad = nd.sparse.row_sparse_array(([[0.1, 0.2, 0.3], [1, 0, -1]], [1, 3]), shape=(4, 3))
    held = [nd.full((4, len(s) // 4), 0.5).tostype(state_stype) for s in states]
    function = getattr(nd._internal, name)
    assert function(weight, grad, *held, out=weight, **numbers) is weight
    for found, wanted in zip([weight, *held], [expected, *states], strict=True):
        np.testing.assert_allclose(found.asnumpy().ravel(), wanted, atol=2e-4)
    assert weight.stype == stype


def test_a_row_sparse_weight_grows_by_the_rows_it_lacks():
    weight = nd.sparse.row_sparse_array(([[1.0, 1]], [2]), shape=(5, 2))
    grad = nd.sparse.row_sparse_array(([[1.0, 2], [3, 4]], [0, 2]), shape=(5, 2))
    for _ in range(2):
        nd.sgd_update(weight, grad, out=weight, lr=0.5)
    assert weight.indices.asnumpy().tolist() == [0, 2]
    assert weight.asnumpy().tolist() == [[-1, -2], [0, 0], [-2, -3], [0, 0], [0, 0]]
    empty = nd.sparse.zeros("row_sparse", (5, 2))
    nd.sgd_update(empty, grad, out=empty, lr=1)
    assert empty.asnumpy()[2].tolist() == [-3, -4]
    nd.sgd_update(weight, nd.sparse.zeros("row_sparse", (5, 2)), out=weight, lr=1, wd=1)
    assert weight.asnumpy()[0].tolist() == [-1, -2]


def trained(optimizer, options, sparse, hybrid, steps=4, ctx=None):
    rng = np.random.RandomState(3)
    net = nn.HybridSequential()
    net.add(nn.Embedding(50, 4, sparse_grad=sparse), nn.Dense(3, in_units=4, flatten=False))
    net.initialize(ctx=ctx)
    for p in net.collect_params().values():
        p.set_data(nd.array(rng.randn(*p.shape)))
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, options)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(steps):
        x, y = nd.array(rng.randint(0, 20, (6, 3))), nd.array(rng.randint(0, 3, (6, 3)))
        with autograd.record():
            loss = loss_fn(net(x), y)
        loss.backward()
        trainer.step(6)
    return net[0].weight, x


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(
    "optimizer, options",
    [
        ("sgd", {"learning_rate": 0.5, "momentum": 0.9, "lazy_update": False, "wd": 0.1}),
        ("adam", {"learning_rate": 0.1, "lazy_update": False}),
        ("adagrad", {"learning_rate": 0.1}),
        ("rmsprop", {"learning_rate": 0.1}),
    ],
)
def test_sparse_gradient_training_equals_dense_training(optimizer, options, hybrid):
    """Without laziness (adagrad without decay is not lazy in effect) both give the same weights."""
    dense = trained(optimizer, options, False, False)[0]
    weight, x = trained(optimizer, options, True, hybrid)
    assert (dense.grad().stype, weight.grad().stype) == ("default", "row_sparse")
    assert weight.grad().indices.asnumpy().tolist() == sorted(set(x.asnumpy().ravel()))
    np.testing.assert_allclose(weight.data().asnumpy(), dense.data().asnumpy(), atol=1e-4)


def test_lazy_updates_do_not_change_other_rows():
    options = {"learning_rate": 0.5, "momentum": 0.9, "wd": 0.5}
    weight = trained("sgd", options, True, True)[0]
    before = np.random.RandomState(3).randn(50, 4)
    np.testing.assert_allclose(weight.data().asnumpy()[20:], before[20:], rtol=1e-5)
    assert not np.allclose(weight.data().asnumpy()[:20], before[:20], rtol=1e-2)


def test_hybridized_blocks_take_csr_and_learn_what_mxnet_learns():
    rng = np.random.RandomState(0)
    x = ((rng.rand(200, 50) < 0.1) * rng.rand(200, 50)).astype("f")
    labels = (x @ rng.randn(50) > 0).astype("f")

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                one = mx.init.One()
                self.w = self.params.get("w", shape=(50, 2), grad_stype="row_sparse", init=one)

        def hybrid_forward(self, F, x, w):
            return F.tanh(F.sparse.dot(x, w))

    for hybrid in (False, True):
        net = Net()
        net.initialize()
        if hybrid:
            net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "adagrad", {"learning_rate": 0.1})
        for i in range(4):
            batch = nd.array(x[i : i + 20]).tostype("csr")
            with autograd.record():
                loss = (net(batch) - nd.array(labels[i : i + 20, None])).square().sum()
            loss.backward()
            trainer.step(20)
        expected, stype, value, rows = MXNET["training"][f"hyb{int(hybrid)}"]
        np.testing.assert_allclose(net.w.data().asnumpy(), expected, atol=1e-3)
        assert net.w.grad().stype == stype and net.w.grad().indices.asnumpy().tolist() == rows
        assert abs(float(loss) - value) < 1e-2


# ---- row_sparse parameters -----------------------------------------------------------------------


def sparse_parameter(ctx=None):
    p = gluon.Parameter("w", shape=(8, 2), stype="row_sparse", grad_stype="row_sparse")
    p.initialize(mx.init.One(), ctx=ctx)
    return p


def test_row_sparse_parameters_are_asked_for_rows():
    p = sparse_parameter()
    rows = p.row_sparse_data(nd.array([5, 1, 5]))
    assert rows.indices.asnumpy().tolist() == [1, 5] and rows.asnumpy().sum() == 4
    with autograd.record():
        y = (p.row_sparse_data(nd.array([5, 1])) * 3).tostype("default").sum()
    y.backward()
    assert p.grad().stype == "row_sparse" and p.grad().asnumpy()[:, 0].tolist() == [
        0, 3, 0, 0, 0, 3, 0, 0,
    ]  # fmt: skip
    p.zero_grad()
    assert not p.grad().asnumpy().any()
    for call in (p.data, p.list_data):
        with pytest.raises(mx.MXNetError, match="row_sparse_data"):
            call()
    dense = gluon.Parameter("d", shape=(2, 2))
    dense.initialize()
    with pytest.raises(mx.MXNetError, match="Please use data"):
        dense.row_sparse_data(nd.array([0]))
    with pytest.raises(mx.MXNetError, match="Please use data"):
        dense.list_row_sparse_data(nd.array([0]))


@pytest.mark.parametrize("contexts", [[mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]])
def test_a_trainer_keeps_sparse_weights_on_its_store(contexts, tmp_path):
    p = sparse_parameter(contexts)
    trainer = gluon.Trainer([p], "sgd", {"learning_rate": 0.5})
    for _ in range(2):
        losses = []
        with autograd.record():
            for ctx in contexts:
                x = nd.array([[0, 1.0, 0, 0, 2, 0, 0, 0]], ctx).tostype("csr")
                losses.append(nd.dot(x, p.row_sparse_data(nd.array([1, 3, 4], ctx))).sum())
        for loss in losses:
            loss.backward()
        trainer.step(len(contexts))
    everything = p.row_sparse_data(nd.arange(8, ctx=contexts[-1]))
    assert everything.asnumpy()[:, 0].tolist() == [1, 0, 1, 1, -1, 1, 1, 1]
    with pytest.raises(ValueError, match="update_on_kvstore=False"):
        gluon.Trainer([sparse_parameter()], "sgd", update_on_kvstore=False).step(1)


def test_saved_and_loaded(tmp_path):
    class Net(gluon.Block):
        def __init__(self):
            super().__init__(prefix="net_")
            self.w = self.params.get("w", shape=(4, 2), stype="row_sparse", init=mx.init.One())

    net, other = Net(), Net()
    net.initialize()
    net.save_parameters(str(tmp_path / "net.params"))
    assert nd.load(str(tmp_path / "net.params"))["w"].stype == "row_sparse"
    other.load_parameters(str(tmp_path / "net.params"))
    assert other.w.row_sparse_data(nd.arange(4)).asnumpy().sum() == 8


def test_optimizer_states_of_sparse_weights_are_saved():
    p = sparse_parameter()
    updater = mx.optimizer.get_updater(mx.optimizer.create("adam"))
    grad = nd.sparse.row_sparse_array(([[1.0, 2]], [3]), shape=(8, 2))
    updater(0, grad, p._data[0])
    assert [s.stype for s in updater.states[0]] == ["row_sparse"] * 2
    twin = mx.optimizer.get_updater(mx.optimizer.create("adam"))
    twin.set_states(updater.get_states())
    for a, b in zip(twin.states[0], updater.states[0]):
        assert a.stype == "row_sparse" and np.array_equal(a.asnumpy(), b.asnumpy())


def test_a_store_gives_rows():
    kv = mx.kv.create("local")
    values = np.arange(12, dtype=np.float32).reshape(6, 2)
    kv.init("w", nd.array(values).tostype("row_sparse"))
    out = [nd.sparse.zeros("row_sparse", (6, 2)) for _ in range(2)]
    kv.row_sparse_pull("w", out=out, row_ids=[nd.array([3, 1, 3]), nd.array([0])])
    assert [o.indices.asnumpy().tolist() for o in out] == [[1, 3], [0]]
    assert out[0].asnumpy()[3].tolist() == [6, 7]
    with pytest.warns(UserWarning, match="row_sparse_pull"):
        kv.pull("w", out=out[1])
    assert out[1].indices.asnumpy().tolist() == [0]
    kv.pull("w", out=out[1], ignore_sparse=False)
    assert np.array_equal(out[1].asnumpy(), values)
    grad = nd.sparse.row_sparse_array(([[1, 1], [2, 2]], [1, 4]), shape=(6, 2))
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.5))
    kv.push("w", [grad, grad])
    kv.row_sparse_pull("w", out=out[0], row_ids=nd.arange(6))
    values[[1, 4]] -= [[1, 1], [2, 2]]
    assert np.array_equal(out[0].asnumpy(), values)
    with pytest.raises(mx.MXNetError, match="row_sparse storage type"):
        kv.row_sparse_pull("w", out=nd.zeros((6, 2)), row_ids=nd.array([0]))
    with pytest.raises(mx.MXNetError, match="needs row_ids for each"):
        kv.row_sparse_pull("w", out=out, row_ids=[nd.array([0])])


# ---- data ----------------------------------------------------------------------------------------

LINES = "1.0 0:0.5 2:1.2\n-2.0\n-3.0 0:0.6 1:2.4 2:1.2  # three\n\n4 2:-1.2\n"
ROWS = np.array([[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2], [0, 0, -1.2]], np.float32)


def test_libsvm_files_come_as_csr(tmp_path):
    (tmp_path / "data.t").write_text(LINES)
    (tmp_path / "label.t").write_text("1\n-2 0:0.125\n-3 2:1.2\n4 1:1.0 2:-1.2\n")
    given = {"data_libsvm": str(tmp_path / "data.t"), "data_shape": (3,), "batch_size": 3}
    it = mx.io.LibSVMIter(**given)
    orders = [[[0, 1, 2], [3, 0, 1]], [[2, 3, 0]]]  # the second epoch goes on: as MXNet does
    for order in orders:
        found = list(it)
        assert [list(b.index) for b in found] == order
        for batch, rows in zip(found, order):
            assert batch.data[0].stype == "csr"
            assert np.array_equal(batch.data[0].asnumpy(), ROWS[rows])
            labels = np.array([1, -2, -3, 4])[rows]
            assert batch.label[0].asnumpy().tolist() == labels.tolist()
        it.reset()
    it = mx.io.LibSVMIter(**given, label_libsvm=str(tmp_path / "label.t"), label_shape=(3,))
    batch = next(it)
    assert batch.label[0].stype == "csr" and batch.label[0].asnumpy()[1, 0] == 0.125
    assert it.provide_data[0].shape == (3, 3) and it.provide_data[0].name == "data"


def test_parts_of_a_libsvm_file_share_its_lines(tmp_path):
    text = "".join(
        f"{i} " + " ".join(f"{j}:{i + j / 10}" for j in range(i % 5)) + "\n" for i in range(23)
    )
    (tmp_path / "big.t").write_text(text)
    seen = []
    for part in range(3):
        it = mx.io.LibSVMIter(
            data_libsvm=str(tmp_path), data_shape=6, batch_size=1, num_parts=3, part_index=part
        )
        labels = [int(b.label[0].asnumpy()[0]) for b in it]
        assert labels == list(range(*[(0, 9), (9, 16), (16, 23)][part]))  # as the real MXNet cuts
        seen += labels
    assert seen == list(range(23))


@pytest.mark.parametrize(
    "text, more, rule",
    [
        ("1 0:1 7:2\n", {}, "columns must be in"),
        ("1 0:1 5\n", {}, "label column:value"),
        ("1 0:x\n", {}, "could not convert"),
        ("", {}, "no lines"),
        ("1 0:1\n", {"round_batch": False}, "round_batch"),
        ("1 0:1\n", {"label_shape": (2,)}, "label_shape"),
        ("1 0:1\n", {"part_index": 3}, "part_index"),
    ],
)
def test_wrong_libsvm_files_are_refused(tmp_path, text, more, rule):
    (tmp_path / "x.t").write_text(text)
    with pytest.raises(mx.MXNetError, match=rule):
        mx.io.LibSVMIter(data_libsvm=str(tmp_path / "x.t"), data_shape=(3,), batch_size=1, **more)


def test_ndarrayiter_gives_csr_batches():
    x = np.arange(21, dtype=np.float32).reshape(7, 3) * (np.arange(21).reshape(7, 3) % 2)
    csr = nd.array(x).tostype("csr")
    it = mx.io.NDArrayIter({"data": csr}, np.arange(7), batch_size=3)
    batches = list(it)
    assert [b.data[0].stype for b in batches] == ["csr"] * 3 and batches[2].pad == 2
    assert np.array_equal(batches[2].data[0].asnumpy(), x[[6, 0, 1]])
    it = mx.io.NDArrayIter(csr, np.arange(7), 3, shuffle=True, last_batch_handle="discard")
    for batch in it:
        rows = batch.label[0].asnumpy().astype(int)
        assert np.array_equal(batch.data[0].asnumpy(), x[rows])


def test_random_sparse_arrays_for_tests():
    tu = mx.test_utils
    rows, (values, indices) = tu.rand_sparse_ndarray((6, 2), "row_sparse", rsp_indices=[1, 4])
    assert np.array_equal(rows.asnumpy()[indices], values)
    csr, (indptr, _, _) = tu.rand_sparse_ndarray((5, 16), "csr", 0.5, distribution="powerlaw")
    assert np.diff(indptr.asnumpy()).tolist() == [2, 4, 8, 16, 10]
    assert tu.rand_ndarray((10, 10), "csr", density=0.3).data.shape == (30,)
    assert tu.create_sparse_array((4, 3), "csr", data_init=2.0, density=1).asnumpy().min() == 2
    found = tu.create_sparse_array_zd((6, 2), "row_sparse", 0.9, rsp_indices=[4, 0])
    assert found.indices.asnumpy().tolist() == [0, 4]
    shuffled = tu.create_sparse_array((3, 40), "csr", density=1, shuffle_csr_indices=True)
    with pytest.raises(mx.MXNetError, match="ascend"):
        shuffled.check_format()
    for name, options in (("sgd", {"momentum": 0.9, "wd": 0.1}), ("adam", {})):
        a, b = (mx.optimizer.create(name, lazy_update=False, **options) for _ in range(2))
        tu.compare_optimizer(a, b, (4, 3), "float32", w_stype="row_sparse", g_stype="row_sparse")
    with pytest.raises(AssertionError):
        lazy = mx.optimizer.create("sgd", momentum=0.9, wd=0.5)
        plain = mx.optimizer.create("sgd", momentum=0.9, wd=0.5)
        tu.compare_optimizer(plain, lazy, (99, 3), "float32", g_stype="row_sparse")


@pytest.mark.parametrize("kvstore, n_contexts", [("local", 1), ("local", 2), (None, 1)])
def test_module_trains_row_sparse_weights(kvstore, n_contexts):
    """The weights are the same on a store, on several devices, and by hand with dense arrays."""
    rng = np.random.RandomState(0)
    x = ((rng.rand(60, 20) < 0.2) * rng.rand(60, 20)).astype("f")
    labels = (x @ rng.randn(20) > 0).astype("f")
    start = rng.randn(20, 2).astype("f")
    weight = mx.sym.var("w", shape=(20, 2), stype="row_sparse")
    scores = mx.sym.sparse.dot(mx.sym.var("data", stype="csr"), weight)
    net = mx.sym.SoftmaxOutput(scores, mx.sym.var("softmax_label"), name="softmax")
    it = mx.io.NDArrayIter(nd.array(x).tostype("csr"), labels, 20, last_batch_handle="discard")
    module = mx.mod.Module(net, context=[mx.cpu(i) for i in range(n_contexts)])
    module.bind(it.provide_data, it.provide_label)
    module.init_params(arg_params={"w": nd.array(start).tostype("row_sparse")})
    store = mx.kv.create(kvstore) if kvstore else None
    module.init_optimizer(store, "sgd", (("learning_rate", 0.5),))
    expected = start.copy()
    for batch in it:
        rows = np.flatnonzero(batch.data[0].asnumpy().any(axis=0))
        if store:
            module.prepare(batch, sparse_row_id_fn=lambda b, rows=rows: {"w": nd.array(rows)})
        module.forward_backward(batch)
        module.update()
        inputs = batch.data[0].asnumpy()
        e = np.exp(inputs @ expected)
        p = e / e.sum(axis=1, keepdims=True)
        p[np.arange(20), batch.label[0].asnumpy().astype(int)] -= 1
        expected -= 0.5 / 20 * inputs.T @ p
    if store:
        module.prepare(None, sparse_row_id_fn=lambda b: {"w": nd.arange(20)})
    found = module.get_params()[0]["w"]
    assert found.stype == "row_sparse"
    np.testing.assert_allclose(found.asnumpy(), expected, atol=1e-5)
