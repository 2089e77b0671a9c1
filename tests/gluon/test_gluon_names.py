"""Names and members that scripts written for MXNet reach in gluon, optimizer, metric and others."""

import inspect
import io
import logging
import multiprocessing.pool

import numpy as np
import plait as mx
import pytest
from plait import gluon
from plait.gluon import nn, rnn
from plait.gluon.data import ArrayDataset, DataLoader
from plait.gluon.data.dataloader import ForkingPickler, _as_in_context, _MultiWorkerIter

nd = mx.nd


def test_dtype_of_a_parameter_can_be_set():
    p = gluon.Parameter("w", shape=(2, 3))
    p.initialize()
    p.dtype = "float64"
    assert p.data().dtype == np.float64 and p.grad().dtype == np.float64 and p.dtype == "float64"
    before = p.data()
    p.dtype = np.float64
    assert p.data() is before
    constant = gluon.Constant("c", [1.0, 2.0])
    constant.initialize()
    constant.dtype = "float16"
    assert constant.data().dtype == np.float16


def test_loader_makes_batches_ahead_when_asked():
    read = []

    class Data:
        def __len__(self):
            return 4

        def __getitem__(self, i):
            read.append(i)
            return np.float32(i)

    loader = DataLoader(Data(), 2, num_workers=1, thread_pool=True)
    loader.refresh()
    assert [b.asnumpy().tolist() for b in loader] == [[0, 1], [2, 3]] and sorted(read) == [
        *range(4)
    ]
    loader.refresh()
    loader.clean()
    assert loader._next_epoch is None
    assert len(list(loader)) == 2
    here = DataLoader(Data(), 2)
    here.refresh()
    here.clean()
    assert len(list(here)) == 2


def _pickled(indices, batchify, dataset):
    stream = io.BytesIO()
    ForkingPickler(stream, -1).dump([i * 10 for i in indices])
    return stream.getvalue()


def test_loaders_with_a_pool_of_their_own():
    data = ArrayDataset(np.arange(6, dtype="float32"))
    with multiprocessing.pool.ThreadPool(2) as pool:
        made = _MultiWorkerIter(
            pool,
            lambda items: sum(items),
            [[0, 1], [2, 3], [5]],
            worker_fn=lambda indices, batchify, d: batchify([d[i] for i in indices]),
            prefetch=2,
            dataset=data,
        )
        assert len(made) == 3 and list(made) == [1, 5, 5]
        assert list(_MultiWorkerIter(pool, None, [[1], [2, 3]], worker_fn=_pickled)) == [
            [10],
            [20, 30],
        ]


def test_arrays_go_to_a_device():
    moved = _as_in_context([nd.ones(2), (nd.ones(1), "text")], mx.cpu(1))
    assert moved[0].context == moved[1][0].context == mx.cpu(1) and moved[1][1] == "text"


def test_tensor_types():
    assert gluon.tensor_types == gluon.parameter.tensor_types == (mx.sym.Symbol, nd.NDArray)


def test_global_pooling_says_its_layout():
    for n, layout in ((1, "NCW"), (2, "NCHW"), (3, "NCDHW")):
        for kind in ("Max", "Avg"):
            layer = getattr(nn, f"Global{kind}Pool{n}D")
            assert inspect.signature(layer).parameters["layout"].default == layout
            assert f"pool_type={kind.lower()}, layout={layout}" in repr(layer())


def test_texts_and_prefixes_as_mxnet():
    assert rnn.ResidualCell(rnn.GRUCell(2, prefix="g_")).prefix == "g_residualcell"
    out = mx.sym.FullyConnected(mx.sym.var("a"), num_hidden=3, name="fc")
    assert repr(gluon.SymbolBlock(out, mx.sym.var("a"))) == (
        "SymbolBlock(\n<Symbol fc> : 1 -> 1\n)"
    )
    cell = rnn.SequentialRNNCell()
    cell.add(rnn.RNNCell(2, input_size=2))
    cell.initialize()
    states = cell.begin_state(1)
    a, _ = cell(nd.ones((1, 2)), states)
    b, _ = cell.hybrid_forward(nd, nd.ones((1, 2)), states)
    np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


def test_sparse_embedding():
    layer = gluon.contrib.nn.SparseEmbedding(10, 3)
    assert repr(layer) == "SparseEmbedding(10 -> 3, float32)"
    assert (layer.weight.stype, layer.weight.grad_stype) == ("row_sparse", "row_sparse")
    layer.initialize(mx.init.One())
    trainer = gluon.Trainer(layer.collect_params(), "sgd", {"learning_rate": 1.0})
    with mx.autograd.record():
        total = (layer(nd.array([1, 2, 1])) * 2).sum()
    total.backward()
    trainer.step(1)
    assert layer(nd.array([0, 1, 2])).asnumpy()[:, 0].tolist() == [1, -3, -1]


def test_optimizer_modules():
    for name in ("SGD", "Adam", "GroupAdaGrad", "Updater", "LAMB"):
        assert getattr(mx.optimizer.optimizer, name) is getattr(mx.optimizer, name)
    assert mx.optimizer.contrib.GroupAdaGrad is mx.optimizer.GroupAdaGrad
    assert mx.optimizer.optimizer.zeros is mx.optimizer.contrib.zeros
    assert mx.optimizer.ccSGD(0.5, learning_rate=2).momentum == 0.5


def test_first_learning_rate_schedules(caplog):
    schedule = mx.misc.FactorScheduler(3, 0.5)
    schedule.base_lr = 1.0
    with caplog.at_level(logging.INFO):
        assert [schedule(i) for i in range(0, 9, 2)] == [1, 1, 0.5, 0.25, 0.25]
    assert caplog.messages[0] == "At Iteration [4]: Swith to new learning rate 0.50000"
    assert isinstance(schedule, mx.misc.LearningRateScheduler)
    for arguments in ((0,), (1, 1.0)):
        with pytest.raises(ValueError):
            mx.misc.FactorScheduler(*arguments)


def test_initializers_by_name():
    create = mx.init.create
    assert create("constant", 4.0).value == 4 and create("xavier", magnitude=5).magnitude == 5
    with pytest.raises(ValueError, match="got nothing"):
        create()
    assert mx.init.load is nd.load


def test_parts_of_pearsons_correlation():
    metric = mx.metric.PearsonCorrelation(average="micro")
    values = np.array([1.0, 2, 5])
    count, mean, squares = metric.update_variance(values, 2, 1.5, 0.5)
    whole = np.array([1.0, 2, 1, 2, 5])  # two values of mean 1.5 and square sum 0.5 came before
    assert (count, mean) == (5, whole.mean())
    assert squares == pytest.approx(((whole - whole.mean()) ** 2).sum())
    metric.update_cov(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    assert metric._moments["_local"].second[0, 1] == 11
