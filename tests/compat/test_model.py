"""mx.model (FeedForward, checkpoints), mx.executor_manager, mx.monitor. Expected numbers are MXNet
1.9.1's."""

import logging
import warnings
from pathlib import Path

import numpy as np
import plait as mx
import pytest
import symbolic
from plait.engine.error import MXNetError

FIXTURES = Path(__file__).parent.parent / "fixtures"
IMAGES, LABELS, batches = symbolic.IMAGES, symbolic.LABELS, symbolic.batches
pytestmark = pytest.mark.filterwarnings("ignore:mxnet.model.FeedForward has been deprecated")


def model(**kwargs):
    kwargs = {"arg_params": symbolic.lenet_params(), "aux_params": {}} | kwargs
    return mx.model.FeedForward(symbolic.lenet(), learning_rate=0.1, **kwargs)


def check(found, expected):
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].asnumpy().ravel()[:4], values, atol=2e-4)


class TestFeedForward:
    def test_trains_as_in_mxnet(self, caplog):
        caplog.set_level(logging.INFO)
        net = model(num_epoch=2, momentum=0.9)
        counts = []
        net.fit(
            batches(),
            eval_data=batches(IMAGES[:20], LABELS[:20]),
            eval_metric="ce",
            batch_end_callback=lambda p: counts.append(p.nbatch),
        )
        assert counts == [1, 2, 3, 4, 5] * 2
        for epoch, value in enumerate((0.899034, 0.813754)):
            found = symbolic.logged(caplog, f"Epoch[{epoch}] Validation-cross-entropy")
            assert found == pytest.approx(value, abs=1e-5)
        check(net.arg_params, {"c1_bias": [-0.2806, -0.1405, -0.6899, 0.4832]})
        check(net.arg_params, {"f2_weight": [-0.1243, 0.07, 0.9901, -0.3258]})
        sums = net.predict(IMAGES).sum(0)
        np.testing.assert_allclose(sums, [30.796, 16.361, 2.843], atol=2e-3)
        assert net.score(batches(), "acc") == pytest.approx(0.52)
        outputs, data, labels = net.predict(batches(size=15), return_data=True)
        assert (outputs.shape, data.shape, labels.shape) == ((50, 3), IMAGES.shape, (50,))

    def test_arrays_epoch_size_and_two_devices(self):
        net = model(num_epoch=3, epoch_size=3, ctx=[mx.cpu(0), mx.cpu(1)], numpy_batch_size=10)
        np.random.seed(3)  # the order of samples: as the real one draws it
        net.fit(IMAGES, LABELS)
        check(
            net.arg_params,
            {
                "c1_bias": [-0.0965, -0.0676, -0.597, 0.5017],
                "f2_weight": [0.0605, -0.0371, 0.8025, -0.1475],
            },
        )

    def test_files(self, tmp_path):
        net = model(num_epoch=1)
        net.fit(batches())
        net.save(str(tmp_path / "net"))
        again = mx.model.FeedForward.load(str(tmp_path / "net"), 1)
        assert again.begin_epoch == 1
        np.testing.assert_array_equal(again.predict(IMAGES), net.predict(IMAGES))

    def test_create(self):
        np.random.seed(1)
        net = mx.model.FeedForward.create(
            symbolic.lenet(),
            IMAGES,
            LABELS,
            num_epoch=1,
            initializer=mx.init.Zero(),
            learning_rate=0.1,
        )
        check(net.arg_params, {"f2_bias": [0.0167, 0.0067, -0.0233]})

    def test_buckets(self):
        np.random.seed(0)
        net = mx.model.FeedForward(
            lambda n: symbolic.lstm(n)[0],
            num_epoch=2,
            learning_rate=1.0,
            arg_params=symbolic.lstm_params(),
        )
        values = []
        net.fit(
            symbolic.Sentences(),
            eval_metric=mx.metric.Perplexity(None),
            batch_end_callback=lambda p: values.append(p.eval_metric.get()[1]),
        )
        assert values[-1] < values[0] - 1

    def test_errors(self):
        with pytest.raises(ValueError, match="y must be specified when X is numpy.ndarray"):
            model(num_epoch=1).fit(IMAGES)
        with pytest.raises(TypeError, match="X must be DataIter"):
            model(num_epoch=1).fit("x")
        with pytest.raises(ValueError, match="numbers of data points and labels not equal"):
            model(num_epoch=1).fit(IMAGES, LABELS[:3])
        with pytest.raises(ValueError, match="the model has no parameters"):
            model(arg_params=None).predict(IMAGES)
        twice = mx.sym.var("x") + mx.sym.var("x")
        with pytest.raises(ValueError, match='duplicated argument name "x"'):
            mx.model.FeedForward(twice)
        with pytest.warns(DeprecationWarning, match="deprecated"):
            warnings.simplefilter("always")
            model()


def test_checkpoint_of_the_real_mxnet(tmp_path):
    symbol, args, aux = mx.model.load_checkpoint(str(FIXTURES / "module"), 12)
    expected = np.load(FIXTURES / "expected.npz")
    x = mx.nd.array(expected["module_x"])
    label = mx.nd.zeros((5,))
    (y,) = symbol.bind(mx.cpu(), args | {"data": x, "softmax_label": label}).forward()
    np.testing.assert_allclose(y.asnumpy(), expected["module_y"], rtol=1e-5)
    assert aux == {}
    mx.model.save_checkpoint(str(tmp_path / "again"), 12, symbol, args, aux)
    for suffix in ("-symbol.json", "-0012.params"):
        again = (tmp_path / ("again" + suffix)).read_bytes()
        assert again == (FIXTURES / ("module" + suffix)).read_bytes()
    mx.nd.save(str(tmp_path / "odd-0001.params"), {"w": mx.nd.zeros((1,))})
    with pytest.raises(MXNetError, match="every name must begin with arg: or aux:, got 'w'"):
        mx.model.load_params(str(tmp_path / "odd"), 1)


def test_split_input_slice():
    split = mx.executor_manager._split_input_slice
    assert split(10, [1, 2]) == [slice(0, 3), slice(3, 10)]
    assert split(7, [1, 1, 1]) == [slice(0, 2), slice(2, 4), slice(4, 7)]
    with pytest.raises(ValueError, match="Some splits are empty"):
        split(2, [1, 1, 1])


def test_executor_manager_sums_to_one_device():
    symbol, params = symbolic.lenet(), symbolic.lenet_params()
    found = []
    for ctx in ([mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]):
        it = batches()
        manager = mx.executor_manager.DataParallelExecutorManager(
            symbol, ctx, it, symbol.list_arguments(), list(params), []
        )
        manager.set_params(params, {})
        manager.load_data_batch(next(it))
        manager.forward(is_train=True)
        manager.backward()
        found.append([sum(g.asnumpy() for g in grads) for grads in manager.grad_arrays])
        metric = mx.metric.Accuracy()
        manager.update_metric(metric, [mx.nd.array(LABELS[:10])])
        assert metric.num_inst == 10
        copies = {k: mx.nd.zeros(v.shape) for k, v in params.items()}
        manager.copy_to(copies, {})
        np.testing.assert_allclose(copies["f1_bias"].asnumpy(), params["f1_bias"].asnumpy())
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


class TestMonitor:
    def module(self, monitor):
        with mx.name.NameManager():
            h = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="fc1")
            h = mx.sym.Activation(h, act_type="relu", name="act")
            h = mx.sym.BatchNorm(h, name="bn")
            h = h + mx.sym.Activation(h, act_type="relu", name="act2")
            h = mx.sym.FullyConnected(h, num_hidden=3, name="fc2")
        mod = mx.mod.Module(mx.sym.SoftmaxOutput(h, name="softmax"))
        mod.bind([("data", (4, 5))], [("softmax_label", (4,))])
        mod.init_params(mx.init.One())
        mod.install_monitor(monitor)
        return mod

    def step(self, mod, monitor):
        monitor.tic()
        mod.forward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.zeros((4,))]), is_train=True)
        mod.backward()
        return monitor.toc()

    def test_sees_outputs_gradients_and_parameters_as_in_mxnet(self):
        monitor = mx.mon.Monitor(1)
        found = self.step(self.module(monitor), monitor)
        assert {step for step, _, _ in found} == {1}
        names = [name for _, name, _ in found]
        assert names[:9] == [
            "fc1_output", "act_output", "bn_output", "bn_mean", "bn_var", "act2_output",
            "_plus0_output", "fc2_output", "softmax_output",
        ]  # fmt: skip
        values = {name: text for _, name, text in found}
        assert values["fc1_output"] == values["bn_mean"] == "5.0\t"
        assert values["bn_var"] == "31.622774\t" and values["data"] == "1.0\t"
        assert float(values["fc2_backward_output2"]) == pytest.approx(1.8856181, rel=1e-6)
        assert float(values["softmax_backward_output"]) == pytest.approx(0.47140452, rel=1e-6)
        assert float(values["bn_moving_var"]) == pytest.approx(0.9)
        order = [n for n in names if "_backward_" in n]
        assert order.index("fc2_backward_output0") < order.index("fc1_backward_output0")

    def test_interval_pattern_statistic_and_order(self, caplog):
        caplog.set_level(logging.INFO)
        monitor = mx.mon.Monitor(2, lambda x: x.max(), "fc.*(output|weight)$", sort=True)
        mod = self.module(monitor)
        found = self.step(mod, monitor)
        assert [n for _, n, _ in found] == ["fc1_output", "fc1_weight", "fc2_output", "fc2_weight"]
        assert self.step(mod, monitor) == []
        assert mod._exec_group.execs[0]._monitor is None  # between: as fast as ever
        monitor.tic()
        mod.forward(mx.io.DataBatch([mx.nd.ones((4, 5))], [mx.nd.zeros((4,))]), is_train=True)
        monitor.toc_print()
        assert caplog.records[0].getMessage().split() == ["Batch:", "3", "fc1_output", "5.0"]

    def test_inputs_too(self):
        monitor = mx.mon.Monitor(1, monitor_all=True)
        names = [n for _, n, _ in self.step(self.module(monitor), monitor)]
        assert {"fc1_weight", "fc2_data", "_plus0_lhs", "act2_output"} <= set(names)

    def test_training_is_the_same(self):
        def trained(monitor):
            mod = mx.mod.Module(symbolic.lenet())
            mod.fit(batches(), arg_params=symbolic.lenet_params(), num_epoch=1, monitor=monitor)
            return mod.get_params()[0]["c1_weight"].asnumpy()

        np.testing.assert_allclose(trained(mx.mon.Monitor(2)), trained(None), rtol=1e-5)

    def test_statistics_must_be_arrays(self):
        monitor = mx.mon.Monitor(1, lambda x: 3)
        with pytest.raises(TypeError, match="stat_func must return an NDArray"):
            self.step(self.module(monitor), monitor)
