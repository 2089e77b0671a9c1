"""mx.contrib: the first autograd, TensorBoard callback, loaders as iterators, namespaces."""

from types import SimpleNamespace

import numpy as np
import plait as mx
import pytest

nd, autograd = mx.nd, mx.contrib.autograd


def test_gradients_of_functions():
    x, y = nd.array([1, 2]), nd.array([3, 4])

    def f(x, y):
        return x * y + x

    grads, out = autograd.grad_and_loss(f)(x, y)
    assert [g.asnumpy().tolist() for g in grads] == [[4, 5], [1, 2]]
    assert out.asnumpy().tolist() == [4, 10]
    assert autograd.grad(f, argnum=1)(x, y)[0].asnumpy().tolist() == [1, 2]
    assert [g.asnumpy().tolist() for g in autograd.grad(f, argnum=[0])(x, y)] == [[4, 5]]
    with pytest.raises(AssertionError, match="should NDArray"):
        autograd.grad(f)(1, y)


def test_sections():
    assert autograd.set_is_training(True) is False
    assert mx.autograd.is_recording() and mx.autograd.is_training()
    assert autograd.set_is_training(False) is True and not mx.autograd.is_training()
    with autograd.train_section():
        with autograd.test_section():
            assert not mx.autograd.is_recording()
        assert mx.autograd.is_recording()
    assert not mx.autograd.is_recording()


def test_marked_variables():
    x, dx = nd.array([1, 2]), nd.zeros(2)
    autograd.mark_variables([x], [dx])
    with autograd.train_section():
        z = x * x
    autograd.backward([z], [nd.array([1, 10])])
    assert dx.asnumpy().tolist() == [2, 40]
    with pytest.raises(AssertionError, match="must be a list or tuple"):
        autograd.backward(z)
    with pytest.raises(AssertionError, match="same length"):
        autograd.backward([z], [])


def test_tensorboard_callback(monkeypatch):
    rows = []
    writer = SimpleNamespace(add_scalar=lambda *a, **k: rows.append((*a, k["global_step"])))
    tensorboard = mx.contrib.tensorboard
    monkeypatch.setattr(tensorboard, "summary_writer", lambda folder: writer)
    metric = mx.metric.create("acc")
    metric.update([nd.array([1])], [nd.array([[0, 1]])])
    for prefix in (None, "train"):
        callback = tensorboard.LogMetricsCallback("logs", prefix)
        callback(mx.callback.BatchEndParam(3, 0, metric, None))
    callback(mx.callback.BatchEndParam(3, 0, None, None))
    assert rows == [("accuracy", 1.0, 3), ("train-accuracy", 1.0, 3)]


def test_loader_as_iterator():
    data = mx.gluon.data.ArrayDataset(
        np.arange(10, dtype="float64").reshape(5, 2), np.arange(5, dtype="float32")
    )
    it = mx.contrib.io.DataLoaderIter(mx.gluon.data.DataLoader(data, 2), data_name="x")
    assert it.provide_data[0].name == "x" and it.provide_data[0].shape == (2, 2)
    assert it.provide_label[0].name == "softmax_label" and it.batch_size == 2
    for _ in range(2):
        batches = list(it)
        assert [b.pad for b in batches] == [0, 0, 1]
        assert batches[2].data[0].asnumpy().tolist() == [[8, 9], [0, 0]]
        assert batches[2].data[0].dtype == np.float32
        assert batches[1].label[0].asnumpy().tolist() == [2, 3]
        it.reset()


def test_namespaces():
    assert mx.contrib.nd is mx.contrib.ndarray and mx.contrib.sym is mx.contrib.symbol
    name = next(n for n in dir(mx.nd.contrib) if not n.startswith("_"))
    assert getattr(mx.contrib.nd, name) is getattr(mx.nd.contrib, name)
    assert getattr(mx.contrib.sym, name)
    assert set(dir(mx.contrib.nd)) == set(dir(mx.nd.contrib))
    with pytest.raises(AttributeError):
        mx.contrib.nosuch
