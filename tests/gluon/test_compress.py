"""mx.contrib.compress: training for bytes, pruning, clustering, products with pruned weights."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.contrib import compress


def small(seed=3, bias=True):
    mx.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(
            gluon.nn.Conv2D(8, 3, padding=1, activation="relu"),
            gluon.nn.MaxPool2D(2, 2),
            gluon.nn.Flatten(),
            gluon.nn.Dense(32, activation="relu", use_bias=bias),
            gluon.nn.Dense(4),
        )
    net.initialize(mx.init.Xavier())
    net(nd.zeros((1, 1, 8, 8)))
    return net


RNG = np.random.default_rng(0)
X = RNG.uniform(0, 1, (64, 1, 8, 8)).astype("float32")
Y = X.reshape(64, 4, 16).sum(axis=2).argmax(axis=1).astype("float32")
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def train(net, trainer, steps, start=0):
    for i in range(start, start + steps):
        at = np.arange(16 * i, 16 * i + 16) % 64
        with autograd.record():
            loss = LOSS(net(nd.array(X[at])), nd.array(Y[at]))
        loss.backward()
        trainer.step(16)


def adam(net):
    return gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 3e-3})


def weights(net):
    return [p.data().asnumpy() for n, p in net.collect_params().items() if n.endswith("weight")]


# ---- pruning -------------------------------------------------------------------------------------


def test_the_schedule_is_that_of_zhu_and_gupta():
    pruner = compress.Pruner(small(), 0.9, begin=10, end=110, initial_sparsity=0.1)
    for step in (0, 9, 10, 35, 60, 110, 500):
        t = min(max((step - 10) / 100, 0), 1)
        want = 0.9 + (0.1 - 0.9) * (1 - t) ** 3 if step >= 10 else 0
        assert pruner.target(step) == pytest.approx(want)


@pytest.mark.parametrize("hybrid", [False, True])
def test_the_least_weights_are_zero_and_stay_so(hybrid):
    net = small()
    net.hybridize(hybrid)
    trainer = adam(net)
    compress.Pruner(net, 0.75, begin=1, end=9, every=2).attach(trainer)
    train(net, trainer, 9)
    first = [w == 0 for w in weights(net)]
    assert [m.mean() for m in first] == pytest.approx([0.75] * 3, abs=0.01)
    train(net, trainer, 4, 9)
    assert all(((w == 0) >= m).all() for w, m in zip(weights(net), first))
    assert compress.sparsity_of(net) == pytest.approx(0.75, abs=0.01)


def test_one_mask_beside_numpy():
    net = small()
    before = weights(net)
    pruner = compress.Pruner(net, 0.5, begin=0, end=1, every=1)
    pruner.after_step()
    for w, kept in zip(before, weights(net)):
        border = np.sort(np.abs(w).ravel())[w.size // 2]
        np.testing.assert_array_equal(kept, np.where(np.abs(w) >= border, w, 0))


def test_blocks_are_pruned_together():
    net = small()
    compress.Pruner(net, 0.5, begin=0, end=1, every=1, block=(16, 2)).after_step()
    zero = (net[3].weight.data().asnumpy() == 0).reshape(2, 16, -1, 2)
    assert set(zero.mean(axis=(1, 3)).ravel()) == {0, 1} and zero.mean() == 0.5


@pytest.mark.parametrize("kind", ["checkpoint", "states"])
def test_a_resumed_run_is_the_same(tmp_path, kind):
    def start():
        net = small()
        trainer = adam(net)
        compress.Pruner(net, 0.8, begin=1, end=12, every=3).attach(trainer)
        return net, trainer

    net, trainer = start()
    train(net, trainer, 14)
    want = weights(net)
    net, trainer = start()
    train(net, trainer, 6)
    path = str(tmp_path / "run")
    if kind == "checkpoint":
        mx.checkpoint.Checkpoint(path, net=net, trainer=trainer).save()
    else:
        net.save_parameters(path + ".params")
        trainer.save_states(path)
    net, trainer = start()
    if kind == "checkpoint":
        assert mx.checkpoint.Checkpoint(path, net=net, trainer=trainer).restore()
    else:
        net.load_parameters(path + ".params")
        trainer.load_states(path)
    train(net, trainer, 8, 6)
    for a, b in zip(weights(net), want):
        np.testing.assert_array_equal(a, b)


def test_a_state_with_rules_needs_a_trainer_with_rules(tmp_path):
    net = small()
    trainer = adam(net)
    compress.Pruner(net, 0.5).attach(trainer)
    train(net, trainer, 1)
    trainer.save_states(str(tmp_path / "s"))
    with pytest.raises(mx.MXNetError, match="has 1 rules to follow, this trainer has 0"):
        adam(net).load_states(str(tmp_path / "s"))


# ---- clustering ----------------------------------------------------------------------------------


def test_clusters_stay_and_train_as_one_parameter():
    net = small()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    clusterer = compress.Clusterer(net, n_clusters=8)
    clusterer.attach(trainer)
    before = weights(net)
    assert all(len(np.unique(w)) <= 8 for w in before)
    train(net, trainer, 3)
    for old, new in zip(before, weights(net)):
        assert 2 < len(np.unique(new)) <= 8
        for value in np.unique(old):  # what was equal is equal
            assert len(np.unique(new[old == value])) == 1
    assert any((a != b).any() for a, b in zip(before, weights(net)))


def test_a_cluster_of_zeros_stays():
    net = small()
    compress.Pruner(net, 0.6, begin=0, end=1, every=1).after_step()
    zero = [w == 0 for w in weights(net)]
    trainer = adam(net)
    compress.Clusterer(net, 8, keep_zeros=True).attach(trainer)
    train(net, trainer, 3)
    assert all((w[z] == 0).all() for w, z in zip(weights(net), zero))


# ---- training for bytes --------------------------------------------------------------------------


def test_fake_quantize_rounds_as_bytes_do_and_passes_gradients():
    x = nd.array([-3.0, -0.9, -0.01, 0.3, 0.999, 2.0])
    low, high = nd.array([-1.0]), nd.array([1.0])
    for a in (x, low, high):
        a.attach_grad()
    with autograd.record():
        y = nd.contrib.fake_quantize(x, low, high)
    y.backward(nd.arange(1, 7))
    q = np.clip(np.rint(x.asnumpy() * 127.5), -128, 127)
    np.testing.assert_allclose(y.asnumpy(), q / 127.5, rtol=1e-6)
    inside = np.abs(x.asnumpy()) <= 1
    np.testing.assert_array_equal(x.grad.asnumpy(), np.arange(1, 7) * inside)
    of_range = (q - x.asnumpy() * 127.5 * inside) / 127.5 * np.arange(1, 7)
    np.testing.assert_allclose(high.grad.asnumpy(), [of_range.sum()], rtol=1e-4)
    assert low.grad.asnumpy() == 0  # the larger magnitude decides, of equal ones high
    y = nd.contrib.fake_quantize(nd.array([0.5, 3.0]), nd.array([0.0]), nd.array([1.0]))
    np.testing.assert_allclose(y.asnumpy(), np.array([128, 255]) / 255.5, rtol=1e-6)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("ranges", ["moving", "learned"])
def test_training_for_bytes_ends_in_the_network_that_was_trained(ranges, hybrid):
    net = small()
    calib = [nd.array(X[:32])]
    compress.quantize_aware(net, ranges=ranges, calib_data=calib)
    net.hybridize(hybrid)
    trainer = adam(net)
    before = [p.data().asnumpy() for n, p in net.collect_params(".*input_range").items()]
    train(net, trainer, 12)
    after = [p.data().asnumpy() for n, p in net.collect_params(".*input_range").items()]
    assert len(after) == 3 and any((a != b).any() for a, b in zip(after, before))
    trained = net(nd.array(X)).asnumpy()
    made = compress.convert(net, data_shapes=[(1, 1, 8, 8)])
    y = made(nd.array(X)).asnumpy()
    assert np.abs(y - trained).max() < 0.03 * np.abs(trained).max()
    assert made.collect_params()["net_dense0_weight_quantize"].dtype == np.int8


def test_the_ranges_are_saved_with_the_network(tmp_path):
    net = compress.quantize_aware(small())
    trainer = adam(net)
    train(net, trainer, 4)
    path = str(tmp_path / "net.params")
    net.save_parameters(path)
    again = compress.quantize_aware(small(seed=9))
    again.load_parameters(path)
    np.testing.assert_array_equal(again(nd.array(X)).asnumpy(), net(nd.array(X)).asnumpy())


# ---- products with pruned weights ----------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("block", [(1, 1), (16, 1)])
def test_sparse_layers_give_what_dense_ones_give(block, bias):
    net = small(bias=bias)
    compress.Pruner(net, 0.8, begin=0, end=1, every=1, block=block).after_step()
    want = net(nd.array(X)).asnumpy()
    compress.sparsify(net, always=True)
    assert [type(b).__name__ for b in net][3:] == ["SparseDense", "SparseDense"]
    for n in (1, 5, 64):
        np.testing.assert_allclose(net(nd.array(X[:n])).asnumpy(), want[:n], rtol=1e-4, atol=1e-5)
    net.hybridize()
    np.testing.assert_allclose(net(nd.array(X)).asnumpy(), want, rtol=1e-4, atol=1e-5)
    net.freeze()
    np.testing.assert_allclose(net(nd.array(X)).asnumpy(), want, rtol=1e-4, atol=1e-5)


def test_dense_layers_without_zeros_stay():
    net = compress.sparsify(small())
    assert [type(b).__name__ for b in net][3:] == ["Dense", "Dense"]


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, rule",
    [
        (lambda net: compress.Pruner(net, 1.0), "sparsity < 1 must hold"),
        (lambda net: compress.Pruner(net, 0.5, begin=9, end=3), "begin <= end"),
        (lambda net: compress.Pruner(net, 0.5, block=(0, 1)), "block must be two sizes"),
        (lambda net: compress.Pruner(net, 0.5, exclude=["weight"]), "no weights to compress"),
        (lambda net: compress.Clusterer(net, 1), "n_clusters must be at least 2"),
        (lambda net: compress.quantize_aware(net, ranges="fixed"), "ranges must be one of"),
        (lambda net: compress.quantize_aware(net, ranges="learned"), "needs calib_data"),
        (lambda net: compress.quantize_aware(net[4]), "must contain Dense or Conv layers"),
        (
            lambda net: compress.convert(net, data_shapes=[(1, 1, 8, 8)]),
            "no layers of quantize_aware",
        ),
        (
            lambda net: compress.convert(compress.quantize_aware(net), data_shapes=[(1, 1, 8, 8)]),
            "has not been trained",
        ),
        (lambda net: compress.sparsify(net[4]), "must contain its Dense layers"),
        (lambda net: compress.sparsify(net, batch_size=0), "batch_size must be at least 1"),
    ],
)
def test_what_is_refused(call, rule):
    with pytest.raises(mx.MXNetError, match=rule):
        call(small())


def test_columns_outside_the_weight_are_refused():
    x, v = nd.ones((2, 3)), nd.ones((1, 1))
    index = lambda values: nd.array(values, dtype="int32")
    for columns, starts in (([3], [0, 1]), ([-1], [0, 1]), ([0], [1, 0]), ([0], [0, 2])):
        with pytest.raises(mx.MXNetError, match="sparse weight"):
            nd.contrib.sparse_dense(
                x, v, index(columns), index(starts), num_hidden=1, no_bias=True
            ).asnumpy()
