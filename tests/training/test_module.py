"""mx.mod.Module: training, checkpoints, several devices. Expected numbers are MXNet 1.9.1's for the
same data and first values."""

import logging
import warnings
from pathlib import Path

import numpy as np
import plait as mx
import pytest
import symbolic
from plait.engine.error import MXNetError

FLAT = symbolic.FLAT
IMAGES = symbolic.IMAGES
LABELS = symbolic.LABELS
batches = symbolic.batches
dense = symbolic.dense
draw = symbolic.draw
lenet = symbolic.lenet
lenet_params = symbolic.lenet_params
logged = symbolic.logged


FIXTURES = Path(__file__).parent.parent / "fixtures"
BOTH = [mx.cpu(0), mx.cpu(1)]
RATES = {"learning_rate": 0.1, "momentum": 0.9}


def fitted(num_epoch=2, context=mx.cpu(0), symbol=None, train=None, **kwargs):
    mod = mx.mod.Module(lenet() if symbol is None else symbol, context=context)
    mod.fit(
        train or batches(),
        arg_params=kwargs.pop("arg_params", lenet_params()),
        num_epoch=num_epoch,
        optimizer_params=RATES,
        **kwargs,
    )
    return mod


def beginning(params):
    return {k: v.asnumpy().ravel()[:4] for k, v in params.items()}


TWO_EPOCHS = {
    "c1_bias": [-0.2806, -0.1405, -0.6899, 0.4832],
    "c1_weight": [0.6233, -0.4036, -0.0587, -0.4337],
    "f1_bias": [0.0293, 0.1677, -0.2915, 0.2037],
    "f1_weight": [0.5392, 0.1411, 0.0424, -0.5535],
    "f2_bias": [0.1719, 0.2768, -0.2582],
    "f2_weight": [-0.1243, 0.07, 0.9901, -0.3258],
}


class TestFit:
    def test_lenet_trains_as_in_mxnet(self, caplog):
        caplog.set_level(logging.INFO)
        mod = fitted(eval_metric=["acc", "ce"])
        close = pytest.approx
        assert logged(caplog, "Epoch[0] Train-cross-entropy") == close(1.184063, abs=1e-5)
        assert logged(caplog, "Epoch[1] Train-cross-entropy") == close(1.047812, abs=1e-5)
        assert logged(caplog, "Epoch[1] Train-accuracy") == 0.5
        assert logged(caplog, "Epoch[1] Time cost") > 0
        for name, values in beginning(mod.get_params()[0]).items():
            np.testing.assert_allclose(values, TWO_EPOCHS[name], atol=2e-4)
        (acc,), (ce,) = mod.score(batches(), "acc"), mod.score(batches(), "ce")
        assert acc == ("accuracy", 0.52) and ce[1] == pytest.approx(0.850977, rel=1e-4)

    @pytest.mark.parametrize("kvstore", ["local", "device", "teststore", None])
    @pytest.mark.parametrize("loads", [None, [1, 4]])
    def test_two_devices_give_the_same(self, kvstore, loads):
        mod = mx.mod.Module(lenet(), context=BOTH, work_load_list=loads)
        mod.fit(
            batches(),
            kvstore=kvstore,
            arg_params=lenet_params(),
            num_epoch=2,
            optimizer_params=RATES,
        )
        if kvstore is None:  # each device by its own gradient: only their mean is kept
            assert mod._kvstore is None
            return
        for name, values in beginning(mod.get_params()[0]).items():
            np.testing.assert_allclose(values, TWO_EPOCHS[name], atol=2e-4)

    def test_callbacks(self):
        seen, batch_ends = [], []

        def at_batch(param):
            batch_ends.append((param.epoch, param.nbatch))
            assert param.locals["data_batch"].data[0].shape == (10, 1, 12, 12)

        mod = fitted(
            eval_data=batches(IMAGES[:20], LABELS[:20]),
            batch_end_callback=at_batch,
            epoch_end_callback=[lambda e, s, a, b: seen.append((e, sorted(a)[0], s.name))],
            eval_end_callback=lambda p: seen.append(("eval", p.nbatch)),
        )
        assert batch_ends == [(e, n) for e in range(2) for n in range(5)]
        assert seen == [
            (0, "c1_bias", "softmax"),
            ("eval", 2),
            (1, "c1_bias", "softmax"),
            ("eval", 2),
        ]
        assert mod.optimizer_initialized

    def test_errors(self):
        mod = mx.mod.Module(lenet())
        with pytest.raises(AssertionError, match="please specify number of epochs"):
            mod.fit(batches())
        for act in (lambda: mod.forward(None), mod.update, lambda: mod.data_shapes):
            with pytest.raises(AssertionError, match="not ready\n  fix: call bind"):
                act()
        mod.bind(batches().provide_data, batches().provide_label)
        with pytest.raises(RuntimeError, match="c1_bias is not presented"):
            mod.init_params(arg_params={}, aux_params={})
        with pytest.raises(ValueError, match="c1_weight must have shape"):
            mod.init_params(arg_params=lenet_params() | {"c1_weight": draw(1, 2)})
        with pytest.raises(MXNetError, match="train_data has no batches"):
            done = batches()
            list(done)
            fitted(train=done)
        with pytest.raises(ValueError, match="input with name 'nope' is not found"):
            mx.mod.Module(lenet(), data_names=["nope"])
        with pytest.raises(ValueError, match="Data provided by data_shapes don't match"):
            mx.mod.Module(lenet()).bind([("x", (1,))])
        with pytest.raises(ValueError, match="must have the same batch size"):
            mx.mod.Module(lenet()).bind([("data", (4, 1, 12, 12))], [("softmax_label", (5,))])
        with pytest.raises(ValueError, match="Some splits are empty"):
            mx.mod.Module(lenet(), context=BOTH).bind(
                [("data", (1, 1, 12, 12))], [("softmax_label", (1,))]
            )


class TestPrediction:
    def test_padding_is_cut_off(self):
        mod = fitted(1)
        it = batches(size=15)
        assert mod.predict(it).shape == (50, 3)
        parts = mod.predict(it, merge_batches=False)
        assert [p[0].shape[0] for p in parts] == [15, 15, 15, 5]
        assert mod.predict(it, num_batch=2, always_output_list=True)[0].shape == (30, 3)
        outputs = [(o[0].shape, n) for o, n, _ in mod.iter_predict(it)]
        assert outputs == [((15, 3), 0), ((15, 3), 1), ((15, 3), 2), ((5, 3), 3)]
        direct = mod.predict(IMAGES[:4])
        np.testing.assert_allclose(direct.asnumpy(), mod.predict(it).asnumpy()[:4], rtol=1e-5)
        with pytest.raises(ValueError, match="eval_data must be of type NDArray or DataIter"):
            mod.predict(3)

    def test_shapes_follow_the_batch(self):
        mod = mx.mod.Module(dense(), label_names=None, context=BOTH)
        mod.bind([("data", (4, 6))], for_training=False)
        mod.init_params(arg_params={"b_weight": draw(3, 3, 6), "b_bias": draw(4, 3)})
        found = {}
        for n in (6, 2, 4, 6):
            mod.forward(mx.io.DataBatch([draw(7, n, 6)]), is_train=False)
            found[n] = float(mod.get_outputs()[0].asnumpy().sum())
            assert [o.shape for o in mod.get_outputs(False)[0]] == [(n // 2, 3)] * 2
        assert found == {
            6: pytest.approx(-0.1491, abs=1e-3),
            2: pytest.approx(-0.1293, abs=1e-3),
            4: pytest.approx(-0.3546, abs=1e-3),
        }
        assert len(mod._exec_group._bound) == 3  # an executor for each shape, made once
        mod.forward([mx.io.DataBatch([draw(s, 3, 6)]) for s in (7, 8)], is_train=False)
        assert float(mod.get_outputs()[0].asnumpy().sum()) == pytest.approx(0.5907, abs=1e-3)

    def test_a_smaller_batch_without_labels(self):
        mod = mx.mod.Module(lenet())
        with pytest.warns(UserWarning, match="label_names .*softmax_label"):
            mod.bind([("data", (5, 1, 12, 12))], for_training=False)
        mod.init_params(arg_params=lenet_params())
        whole = mod.predict(IMAGES[:5]).asnumpy()
        with pytest.warns(UserWarning, match="label_names .*softmax_label"):
            part = mod.predict(IMAGES[:3])
        np.testing.assert_allclose(part.asnumpy(), whole[:3], rtol=1e-5)

    def test_parameters_never_change_their_shape(self):
        mod = mx.mod.Module(dense(), label_names=None)
        mod.bind([("data", (4, 6))], for_training=False)
        mod.init_params()
        with pytest.raises(ValueError, match="would change the shape of parameter b_weight"):
            mod.forward(mx.io.DataBatch([draw(7, 4, 5)]))

    def test_gradients_of_inputs_are_added_up(self):
        mod = mx.mod.Module(dense(), label_names=None, context=BOTH)
        mod.bind([("data", (4, 6))], inputs_need_grad=True, grad_req="add")
        mod.init_params(arg_params={"b_weight": draw(3, 3, 6), "b_bias": draw(4, 3)})
        for _ in range(2):
            mod.forward(mx.io.DataBatch([draw(7, 4, 6)]), is_train=True)
            mod.backward([draw(8, 4, 3)])
        (grad,) = mod.get_input_grads()
        np.testing.assert_allclose(
            grad.asnumpy()[0, :4], [-0.2958, -0.7151, -0.0246, 0.0175], atol=1e-4
        )
        assert [g.shape for g in mod.get_input_grads(False)[0]] == [(2, 6)] * 2

    def test_states(self):
        state = mx.sym.var("h", shape=(2, 3))
        symbol = mx.sym.Group([dense() + state, mx.sym.BlockGrad(state * 2)])
        mod = mx.mod.Module(symbol, label_names=None, state_names=["h"], context=BOTH)
        mod.bind([("data", (4, 6))], for_training=False)
        mod.init_params(mx.init.Zero())
        mod.set_states(value=1)
        for expected in (2, 4):
            mod.forward(mx.io.DataBatch([draw(7, 4, 6)]))
            mod.set_states(states=mod.get_outputs(merge_multi_context=False)[1:])
            assert [s.asnumpy()[0, 0] for s in mod.get_states(False)[0]] == [expected] * 2
        with pytest.raises(AssertionError, match="merge_multi_context=True is not supported"):
            mod.get_states()


class TestParameters:
    def test_fixed_ones_stay(self):
        params = lenet_params()
        mod = mx.mod.Module(lenet(), fixed_param_names=["c1_weight"])
        mod.fit(batches(), arg_params=params, num_epoch=1, optimizer_params=RATES)
        after = mod.get_params()[0]
        np.testing.assert_array_equal(after["c1_weight"].asnumpy(), params["c1_weight"].asnumpy())
        assert np.abs(after["f2_weight"].asnumpy() - params["f2_weight"].asnumpy()).max() > 1e-3

    def test_set_params_reaches_a_store_that_updates(self):
        mod = mx.mod.Module(lenet(), context=BOTH)
        mod.fit(batches(), arg_params=lenet_params(), num_epoch=1)
        zeros = {k: v * 0 for k, v in mod.get_params()[0].items()}
        mod.set_params(zeros, {})
        mod.forward_backward(next(batches()))
        mod.update()
        weights = mod.get_params()[0]
        assert np.abs(weights["c1_weight"].asnumpy()).max() == 0  # their gradient is 0
        mod.set_params({"f1_bias": weights["f1_bias"] + 5}, None, allow_missing=True)
        np.testing.assert_allclose(mod.get_params()[0]["f1_bias"].asnumpy(), 5, atol=1e-3)

    def test_rebinding_keeps_what_was_trained(self):
        mod = fitted(1)
        before = mod.predict(batches()).asnumpy()
        it = batches(size=5)
        mod.bind(it.provide_data, it.provide_label, for_training=False, force_rebind=True)
        np.testing.assert_allclose(mod.predict(it).asnumpy(), before, rtol=1e-5)

    def test_a_shared_module_has_the_same_weights_and_optimizer(self):
        mod = fitted(1)
        other = mx.mod.Module(lenet())
        shapes = [("data", (4, 1, 12, 12))], [("softmax_label", (4,))]
        other.bind(*shapes, shared_module=mod)
        other.forward_backward(next(batches(size=4)))
        other.update()
        for a, b in zip(mod._exec_group.param_arrays, other._exec_group.param_arrays):
            np.testing.assert_array_equal(a[0].asnumpy(), b[0].asnumpy())

    def test_multipliers_of_variables(self):
        weight = mx.sym.var("w", lr_mult=0)
        symbol = mx.sym.FullyConnected(mx.sym.var("data"), weight, num_hidden=3, name="fc")
        mod = fitted(
            1,
            symbol=mx.sym.SoftmaxOutput(symbol, name="softmax"),
            train=batches(FLAT),
            arg_params={"w": draw(1, 3, 144), "fc_bias": draw(2, 3)},
        )
        np.testing.assert_array_equal(mod.get_params()[0]["w"].asnumpy(), draw(1, 3, 144).asnumpy())


class TestFiles:
    def test_checkpoint_of_the_real_mxnet(self):
        expected = np.load(FIXTURES / "expected.npz")
        mod = mx.mod.Module.load(str(FIXTURES / "module"), 12)
        mod.bind([("data", (5, 4))], [("softmax_label", (5,))], for_training=False)
        y = mod.predict(mx.nd.array(expected["module_x"]))
        np.testing.assert_allclose(y.asnumpy(), expected["module_y"], rtol=1e-5)

    @pytest.mark.parametrize("context", [mx.cpu(0), BOTH])
    def test_training_goes_on_from_a_checkpoint(self, context, tmp_path, caplog):
        caplog.set_level(logging.INFO)
        prefix = str(tmp_path / "net")
        fitted(2, context).save_checkpoint(prefix, 2, save_optimizer_states=True)
        assert sorted(p.name for p in tmp_path.iterdir()) == [
            "net-0002.params",
            "net-0002.states",
            "net-symbol.json",
        ]
        mod = mx.mod.Module.load(prefix, 2, load_optimizer_states=True, context=context)
        caplog.clear()
        with pytest.warns(UserWarning, match="init_params call ignored"):
            mod.fit(batches(), eval_metric="ce", begin_epoch=2, num_epoch=4, optimizer_params=RATES)
        for epoch, value in ((2, 0.848902), (3, 0.769185)):
            found = logged(caplog, f"Epoch[{epoch}] Train-cross-entropy")
            assert found == pytest.approx(value, abs=1e-5)

    def test_params_file(self, tmp_path):
        mod = fitted(1)
        mod.save_params(str(tmp_path / "p"))
        other = mx.mod.Module(lenet())
        other.bind(batches().provide_data, batches().provide_label)
        other.load_params(str(tmp_path / "p"))
        for name, value in other.get_params()[0].items():
            np.testing.assert_array_equal(value.asnumpy(), mod.get_params()[0][name].asnumpy())
        mx.nd.save(str(tmp_path / "odd"), {"weight": draw(1, 2)})
        with pytest.raises(ValueError, match="Invalid param file"):
            other.load_params(str(tmp_path / "odd"))


def test_layers_on_several_devices():
    with mx.AttrScope(ctx_group="a"):
        h = mx.sym.Activation(dense(6, "a"), act_type="tanh")
    with mx.AttrScope(ctx_group="b"):
        out = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(h, num_hidden=3, name="b"), name="softmax")
    params = {
        "a_weight": draw(1, 6, 144),
        "a_bias": draw(2, 6),
        "b_weight": draw(3, 3, 6),
        "b_bias": draw(4, 3),
    }
    found = []
    for groups in (None, {"a": mx.cpu(1), "b": mx.cpu(2)}, [{"a": mx.cpu(1)}]):
        mod = mx.mod.Module(out, group2ctxs=groups)
        mod.fit(batches(FLAT), arg_params=params, num_epoch=1, optimizer_params=RATES)
        found.append(mod.get_params()[0]["a_weight"].asnumpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(AssertionError, match="each group must have 1 or 2 contexts"):
        mx.mod.Module(out, context=BOTH, group2ctxs={"a": [mx.cpu(1)] * 3}).bind(
            [("data", (4, 144))], [("softmax_label", (4,))]
        )


@pytest.mark.parametrize("context", [mx.cpu(0), BOTH])
def test_sparse_data_and_weights_train_as_in_mxnet(context, caplog, tmp_path):
    caplog.set_level(logging.INFO)
    values = np.random.RandomState(0)
    x = (values.rand(40, 30) < 0.1) * values.randn(40, 30)
    y = (x[:, :5].sum(1) > 0) * 1.0
    data = mx.sym.var("data", stype="csr")
    weight = mx.sym.var("w", stype="row_sparse", shape=(30, 2))
    scores = mx.sym.broadcast_add(mx.sym.sparse.dot(data, weight), mx.sym.var("b", shape=(2,)))
    csr = mx.nd.array(x).tostype("csr")
    it = mx.io.NDArrayIter(csr, y, 8, last_batch_handle="discard")
    mod = mx.mod.Module(mx.sym.SoftmaxOutput(scores, name="softmax"), context=context)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one device needs no rows fetched
        mod.fit(
            it,
            eval_metric="ce",
            num_epoch=2,
            arg_params={"w": draw(1, 30, 2).tostype("row_sparse"), "b": mx.nd.zeros((2,))},
            optimizer_params={"learning_rate": 0.5, "momentum": 0.9},
            sparse_row_id_fn=lambda batch: {"w": mx.nd.arange(0, 30, dtype="int64")},
        )
    for epoch, value in enumerate((0.589845, 0.376205)):
        found = logged(caplog, f"Epoch[{epoch}] Train-cross-entropy")
        assert found == pytest.approx(value, abs=1e-5)
    trained = mod.get_params()[0]
    assert trained["w"].stype == "row_sparse"
    np.testing.assert_allclose(trained["w"].asnumpy()[0], [-0.2359, 0.5397], atol=2e-4)
    np.testing.assert_allclose(trained["b"].asnumpy(), [1.6539, -1.6539], atol=2e-4)
    mod.save_params(str(tmp_path / "p"))
    assert mx.nd.load(str(tmp_path / "p"))["arg:w"].stype == "row_sparse"


def test_calls_before_bind_and_init_raise():
    mod = mx.mod.Module(dense(), label_names=None)
    params = {"w": mx.nd.ones(2)}
    with pytest.raises(ValueError, match=r"not ready\n  fix: call bind"):
        mod.set_params(params, {}, allow_missing=True)
    with pytest.raises(ValueError, match=r"not ready\n  fix: call bind"):
        mod.update_metric(mx.metric.Accuracy(), [])


def test_update_without_gradients():
    x = mx.sym.var("data")
    mod = mx.mod.Module(mx.sym.FullyConnected(x, num_hidden=2), label_names=None)
    mod.bind([("data", (4, 3))], for_training=False)
    mod.init_params()
    mod.init_optimizer()
    with pytest.raises(ValueError, match="re-bind with for_training=True to run update"):
        mod.update()


def test_files_without_names_are_no_parameters(tmp_path):
    file = str(tmp_path / "plain.params")
    mx.nd.save(file, [mx.nd.ones((2,))])
    module = mx.mod.Module(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1), label_names=[])
    module.bind([("data", (1, 2))], for_training=False)
    with pytest.raises(ValueError, match="the arrays of .*plain.params have no names"):
        module.load_params(file)
