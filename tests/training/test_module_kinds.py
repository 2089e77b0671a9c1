"""BucketingModule, SequentialModule, PythonLossModule, SVRGModule. Expected numbers are MXNet
1.9.1's."""

import logging
from collections import namedtuple

import numpy as np
import plait as mx
import pytest
import symbolic
from plait.training.module import bucketing_module
from plait.training.svrg_optimization import SVRGModule

FLAT = symbolic.FLAT
Sentences = symbolic.Sentences
batches = symbolic.batches
dense = symbolic.dense
draw = symbolic.draw
lstm = symbolic.lstm
lstm_params = symbolic.lstm_params
logged = symbolic.logged


def beginning(mod):
    return {k: v.asnumpy().ravel()[:4] for k, v in mod.get_params()[0].items()}


def check(mod, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(beginning(mod)[name], values, atol=2e-4)


class TestBucketing:
    RATES = {"learning_rate": 1.0, "momentum": 0.5}  # noqa: RUF012

    def trained(self, epochs=3, **kwargs):
        mod = mx.mod.BucketingModule(lstm, 7, **kwargs)
        mod.fit(
            Sentences(),
            eval_data=Sentences(),
            eval_metric=mx.metric.Perplexity(None),
            arg_params=lstm_params(),
            num_epoch=epochs,
            optimizer_params=self.RATES,
        )
        return mod

    def test_trains_as_in_mxnet(self, caplog):
        caplog.set_level(logging.INFO)
        mod = self.trained()
        close = pytest.approx
        for epoch, value in enumerate((6.742771, 1.973879, 1.133771)):
            assert logged(caplog, f"Epoch[{epoch}] Train-perplexity") == close(value, rel=1e-5)
        assert logged(caplog, "Epoch[2] Validation-perplexity") == close(1.043602, rel=1e-5)
        check(
            mod,
            {
                "cls_weight": [0.9558, -2.7013, 1.7758, 0.1261],
                "h2h_bias": [0.2429, 0.7578, 2.3767, 0.5882],
                "embed_weight": [0.9609, -1.3336, -1.6892, 0.3456],
            },
        )
        assert sorted(mod._buckets) == [3, 5, 7]

    def test_files(self, tmp_path):
        mod = self.trained(1)
        mod.save_checkpoint(str(tmp_path / "lm"), 1)
        assert len(list(tmp_path.glob("lm-*-symbol.json"))) == 3
        again = mx.mod.BucketingModule.load(str(tmp_path / "lm"), 1, lstm, 7)
        again.bind(Sentences().provide_data, Sentences().provide_label)
        metric = mx.metric.Perplexity(None)
        assert again.score(Sentences(), metric) == mod.score(Sentences(), metric)

    def test_rebinding_keeps_what_was_trained(self):
        with pytest.raises(AssertionError, match="default_bucket_key must be given"):
            mx.mod.BucketingModule(lstm)
        one = self.trained(1)
        before = beginning(one)
        one.bind(Sentences().provide_data, Sentences().provide_label, force_rebind=True)
        for name, values in beginning(one).items():
            np.testing.assert_array_equal(values, before[name])


class TestSequential:
    def chain(self):
        first = mx.sym.Activation(dense(6, "a"), act_type="tanh")
        last = mx.sym.SoftmaxOutput(dense(3, "b"), name="softmax")
        chain = mx.mod.SequentialModule().add(mx.mod.Module(first, label_names=[]))
        return chain.add(mx.mod.Module(last), take_labels=True, auto_wiring=True)

    def test_trains_as_in_mxnet(self, caplog):
        caplog.set_level(logging.INFO)
        chain = self.chain()
        chain.fit(
            batches(FLAT),
            eval_metric="ce",
            arg_params={
                "a_weight": draw(1, 6, 144),
                "a_bias": draw(2, 6),
                "b_weight": draw(3, 3, 6),
                "b_bias": draw(4, 3),
            },
            num_epoch=2,
            optimizer_params={"learning_rate": 0.1},
        )
        for epoch, value in enumerate((1.081631, 1.002398)):
            found = logged(caplog, f"Epoch[{epoch}] Train-cross-entropy")
            assert found == pytest.approx(value, abs=1e-5)
        check(
            chain,
            {
                "a_weight": [0.4776, -0.1963, -0.1572, -0.3311],
                "b_bias": [0.1589, 0.1453, -0.4378],
            },
        )
        assert chain.output_shapes == [("softmax_output", (10, 3))]
        assert chain.predict(batches(FLAT)).shape == (50, 3)

    def test_errors(self):
        with pytest.raises(AssertionError, match='Unknown meta "take_label", a typo'):
            mx.mod.SequentialModule().add(mx.mod.Module(dense(), label_names=[]), take_label=True)
        with pytest.raises(AssertionError, match="empty SequentialModule"):
            mx.mod.SequentialModule().bind([("data", (1, 2))])
        twice = mx.mod.SequentialModule()
        twice.add(mx.mod.Module(dense(6), label_names=[]))
        twice.add(mx.mod.Module(dense(6), label_names=[]), auto_wiring=True)
        twice.bind([("data", (2, 6))])
        with pytest.raises(AssertionError, match='Duplicated parameter names: name "b_'):
            twice.init_params()


def test_loss_in_python(caplog):
    caplog.set_level(logging.INFO)

    def gradient(scores, labels):
        e = np.exp(scores.asnumpy())
        e /= e.sum(1, keepdims=True)
        e[np.arange(len(e)), labels.asnumpy().astype(int)] -= 1
        return e

    chain = mx.mod.SequentialModule().add(mx.mod.Module(dense(), label_names=[]))
    loss = mx.mod.PythonLossModule(grad_func=gradient)
    chain.add(loss, take_labels=True, auto_wiring=True)
    chain.fit(
        batches(FLAT),
        eval_metric="acc",
        arg_params={"b_weight": draw(3, 3, 144), "b_bias": draw(4, 3)},
        num_epoch=2,
        optimizer_params={"learning_rate": 0.1},
    )
    assert logged(caplog, "Epoch[1] Train-accuracy") == pytest.approx(0.42)
    check(
        chain, {"b_weight": [0.5194, 0.0089, 0.0986, -0.5168], "b_bias": [0.1704, 0.1538, -0.4578]}
    )
    with pytest.raises(
        NotImplementedError, match="PythonLossModule does not define _backward_impl"
    ):
        mx.mod.PythonLossModule()._backward_impl()


class TestSVRG:
    X = np.random.RandomState(2).randn(24, 5).astype(np.float32)

    def fit(self, update_freq, epochs, context=mx.cpu(0)):
        out = mx.sym.LinearRegressionOutput(dense(1, "fc"), mx.sym.var("lin_label"), name="lin")
        mod = SVRGModule(out, label_names=["lin_label"], update_freq=update_freq, context=context)
        it = mx.io.NDArrayIter(self.X, self.X.sum(1), 6, label_name="lin_label")
        params = {"fc_weight": draw(1, 1, 5), "fc_bias": mx.nd.zeros((1,))}
        mod.fit(
            it,
            eval_metric="mse",
            arg_params=params,
            num_epoch=epochs,
            optimizer_params={"learning_rate": 0.1},
        )
        return [v.asnumpy() for _, v in sorted(mod.get_params()[0].items())]

    def by_hand(self, update_freq, epochs):
        x = self.X.astype(np.float64)
        y = x.sum(1)
        w, b = draw(1, 1, 5).asnumpy()[0].astype(np.float64), 0.0

        def gradient(w, b, part):
            error = (x[part] @ w + b - y[part]) / 6
            return error @ x[part], error.sum()

        parts = [slice(k, k + 6) for k in range(0, 24, 6)]
        for epoch in range(epochs):
            if epoch % update_freq == 0:
                w0, b0 = w.copy(), b
                full = [np.mean(g, 0) for g in zip(*(gradient(w0, b0, p) for p in parts))]
            for p in parts:
                now, then = gradient(w, b, p), gradient(w0, b0, p)
                w = w - 0.1 * (now[0] - then[0] + full[0]) * 1.0
                b = b - 0.1 * (now[1] - then[1] + full[1])
        return [np.array([b]), w[None]]

    @pytest.mark.parametrize("update_freq", [1, 2])
    def test_follows_the_algorithm(self, update_freq):
        for a, b in zip(self.fit(update_freq, 3), self.by_hand(update_freq, 3)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

    def test_two_devices(self):
        both = self.fit(1, 1, [mx.cpu(0), mx.cpu(1)])
        assert all(np.isfinite(v).all() for v in both)

    def test_errors(self):
        for freq, error in ((0, ValueError), ("1", TypeError), (None, TypeError)):
            with pytest.raises(error, match="must be a positive integer"):
                SVRGModule(dense(), label_names=None, update_freq=freq)


def test_batches_without_a_label():
    """The inference idiom of MXNet's tutorials: a batch that has data and nothing else."""
    Batch = namedtuple("Batch", ["data"])
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    params = {"fc_weight": mx.nd.ones((3, 4)), "fc_bias": mx.nd.zeros((3,))}
    for names, shapes in ((None, None), (["softmax_label"], [("softmax_label", (1,))])):
        module = mx.mod.Module(net, label_names=names)
        module.bind([("data", (1, 4))], shapes, for_training=False)
        module.set_params(params, {}, allow_missing=True)
        module.forward(Batch([mx.nd.ones((1, 4))]))
        np.testing.assert_allclose(module.get_outputs()[0].asnumpy(), [[1 / 3] * 3], rtol=1e-6)


def test_unused_buckets_are_rebound_and_keep_training(monkeypatch):
    """Adam's weights after 40 steps over 12 buckets: the same, however many of them stay bound."""

    def trained(n_kept):
        monkeypatch.setattr(bucketing_module, "MAX_BUCKETS", n_kept)
        mx.random.seed(3)
        module = mx.mod.BucketingModule(summed, default_bucket_key=12)
        module.bind([("data", (2, 12))], None)
        module.init_params(mx.init.One())
        module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.1})
        for step in range(40):
            key = step * 5 % 12 + 1
            shapes = [mx.io.DataDesc("data", (2, key))]
            data = mx.nd.array(np.random.RandomState(step).randn(2, key))
            batch = mx.io.DataBatch([data], None, provide_data=shapes, bucket_key=key)
            module.prepare(batch)
            module.forward_backward(batch)
            module.update()
            assert sum(m.binded for m in module._buckets.values()) <= 2 * n_kept + 1
        module.switch_bucket(1, None)  # with the shapes it had
        assert module.data_shapes[0].shape == (2, 1)
        return module.get_params()[0]["w_weight"].asnumpy()

    def summed(key):
        w = mx.sym.var("w_weight", shape=(1,))
        return mx.sym.make_loss((mx.sym.var("data") * 1 + 1) * w), ("data",), None

    np.testing.assert_array_equal(trained(2), trained(99))


@pytest.mark.parametrize("request_, values", [("add", [2, 4, 6]), ("write", [2, 2, 2])])
def test_buckets_share_their_gradients(request_, values):
    def bucket(key):
        w = mx.sym.var("w", shape=(1,), init=mx.init.One())
        return mx.sym.make_loss(mx.sym.broadcast_mul(mx.sym.var("data"), w)), ("data",), None

    module = mx.mod.BucketingModule(bucket, default_bucket_key=10)
    module.bind([("data", (2,))], for_training=True, grad_req=request_)
    module.init_params()
    for key, value in zip((10, 5, 5), values):
        shapes = [mx.io.DataDesc("data", (2,), layout="N")]
        module.forward_backward(
            mx.io.DataBatch([mx.nd.ones((2,))], None, provide_data=shapes, bucket_key=key)
        )
        [group] = module._curr_module._exec_group.execs
        assert group.grad_dict["w"].asscalar() == value
