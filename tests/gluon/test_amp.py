"""Mixed precision: policies, casts in eager code, traces and symbols, loss scaling."""

import json
import threading

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.gluon import amp, nn
from plait.gluon.amp import amp as module
from plait.kernels import precision


def dense(x, n=4):
    return nd.FullyConnected(x, nd.ones((n, x.shape[1])), num_hidden=n, no_bias=True)


def graph():
    x = mx.sym.var("data")
    c = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="c0")
    r = mx.sym.Activation(mx.sym.BatchNorm(c, name="bn"), act_type="relu", name="r")
    s = mx.sym.Activation(r, act_type="softrelu", name="sr")
    f = mx.sym.FullyConnected(s, num_hidden=3, name="fc")
    return mx.sym.softmax(mx.sym.broadcast_add(f, mx.sym.exp(f, name="e"), name="z"), name="sm")


def nodes(symbol):
    """(name, names of inputs) of each operator."""
    found = json.loads(symbol.tojson(remove_amp_cast=False))["nodes"]
    return {n["name"]: [found[i]["name"] for i, *_ in n["inputs"]] for n in found if n["inputs"]}


# ---- lists ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_amp_lists_are_disjoint_and_name_records(dtype):
    lists = [
        amp.list_lp16_ops(dtype),
        amp.list_fp32_ops(dtype),
        amp.list_widest_type_cast(dtype),
        amp.list_lp16_fp32_ops(dtype),
        [name for name, *_ in amp.list_conditional_fp32_ops(dtype)],
    ]
    every = [name for names in lists for name in names]
    assert len(every) == len(set(every))
    assert all(precision.REGISTRY[name].name == name for name in every)
    assert "Convolution" in lists[0] and "softmax" in lists[1] and "dot" in lists[2]


def test_a_policy_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="target_dtype must be one of float16, bfloat16"):
        amp.list_fp32_ops("int8")
    with pytest.raises(ValueError, match="no operator 'sofmax'\n  fix: did you mean 'softm"):
        precision.policy("float16", full=["sofmax"])
    with pytest.raises(ValueError, match="exp must not be both"):
        precision.policy("float16", low=["exp"], full=["exp"])
    assert "softmax" not in precision.policy("float16", low=["softmax"]).full


# ---- eager ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_calls_cast_their_inputs(dtype):
    x = nd.array([[1.0, 2.0, 3.0]])
    with amp.autocast(dtype):
        low = dense(x)
        assert low._spec.dtype == dtype
        assert (low + x[:, :1])._spec.dtype == "float32"  # the widest
        assert (low + low)._spec.dtype == dtype
        assert nd.exp(low)._spec.dtype == low.sum()._spec.dtype == "float32"
        assert (low**2)._spec.dtype == "float32"
        assert nd.Activation(low, act_type="relu")._spec.dtype == dtype
        assert nd.Activation(low, act_type="softrelu")._spec.dtype == "float32"
        with amp.autocast(enabled=False):
            assert dense(x)._spec.dtype == "float32"
    assert dense(x)._spec.dtype == "float32" and not precision.used
    np.testing.assert_array_equal(low.astype("float32").asnumpy(), [[6, 6, 6, 6]])


def test_calls_remember_the_casts_of_each_policy_apart():
    """What is kept of a call under one policy serves no other policy and no call without one."""
    x, y = nd.array([[1.0, 2.0]]), nd.array([[3.0, 4.0]], dtype="bfloat16")
    a, b = x.as_np_ndarray(), y.as_np_ndarray()
    calls = {
        "dense": lambda: dense(x),
        "add": lambda: x + x,
        "scalar": lambda: 2 - x * 2,
        "exp": lambda: nd.exp(y),
        "np.exp": lambda: mx.np.exp(b),
        "np.add": lambda: a + a,
        "np.dot": lambda: mx.np.dot(a, a.T),
    }
    plain = {name: call()._spec.dtype for name, call in calls.items()}
    for _ in range(3):
        for dtype in precision.TARGETS:
            with amp.autocast(dtype):
                assert calls["dense"]()._spec.dtype == dtype
                assert {calls[n]()._spec.dtype for n in ("add", "scalar", "np.add")} == {"float32"}
        with amp.autocast("bfloat16"):
            assert calls["exp"]()._spec.dtype == "float32"
        assert {name: call()._spec.dtype for name, call in calls.items()} == plain


@pytest.mark.parametrize("kind", ["lenet", "lstm"])
def test_bfloat16_trains_as_float32_does(kind):
    """The losses after 40 steps of SGD agree, and have fallen."""

    def loss_of(dtype):
        rng = np.random.default_rng(0)
        labels = nd.array(np.arange(16) % 4)
        data = nd.array(rng.normal(size=(16, 1, 12, 12)) + np.arange(16).reshape(16, 1, 1, 1) % 4)
        mx.random.seed(0)
        net = nn.HybridSequential()
        if kind == "lenet":
            net.add(nn.Conv2D(8, 3, activation="relu"), nn.MaxPool2D(2), nn.Flatten())
        else:
            data = data.reshape((16, 12, 12))
            net.add(gluon.rnn.LSTM(12, layout="NTC"))
        net.add(nn.Dense(16, activation="tanh"), nn.Dense(4))
        net.initialize(mx.init.Xavier())
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        criterion = gluon.loss.SoftmaxCrossEntropyLoss()
        found = []
        for _ in range(40):
            with amp.autocast(dtype or "bfloat16", enabled=dtype is not None), autograd.record():
                loss = criterion(net(data), labels)
            loss.backward()
            trainer.step(16)
            found.append(float(loss.astype("float32").mean().asscalar()))
        return found

    wide, low = loss_of(None), loss_of("bfloat16")
    assert low[-1] < 0.8 * low[0] and wide[-1] < 0.8 * wide[0]
    assert abs(low[-1] - wide[-1]) < 0.1 * wide[0]


def test_integers_and_float64_are_not_cast():
    with amp.autocast():
        assert nd.sum(nd.array([1, 2], dtype="int32")).dtype == np.int32
        assert dense(nd.ones((1, 3), dtype="float32")).dtype == np.float16
        x = nd.ones((2, 3), dtype="float64")
        w = nd.ones((4, 3), dtype="float64")
        assert nd.FullyConnected(x, w, num_hidden=4, no_bias=True).dtype == np.float64


def test_a_scope_is_of_its_thread():
    seen = []
    with amp.autocast():
        thread = threading.Thread(target=lambda: seen.append(dense(nd.ones((1, 2))).dtype))
        thread.start()
        thread.join()
    assert seen == [np.float32]


def test_gradients_have_the_dtypes_of_their_arrays():
    x, w = nd.array([[1.0, -2.0]]), nd.array([[3.0, 4.0], [5.0, 6.0]])
    x.attach_grad()
    w.attach_grad()
    with amp.autocast(), autograd.record():
        y = nd.exp(nd.FullyConnected(x, w, num_hidden=2, no_bias=True) * 0.1)
        first = autograd.grad(y, [x], create_graph=True)[0]
        y.backward()
    assert x.grad.dtype == w.grad.dtype == first.dtype == np.float32
    e = np.exp(0.1 * np.array([-5.0, -7.0]))
    np.testing.assert_allclose(x.grad.asnumpy()[0], 0.1 * e @ w.asnumpy(), rtol=2e-3)
    np.testing.assert_allclose(first.asnumpy(), x.grad.asnumpy(), rtol=2e-3)


# ---- blocks --------------------------------------------------------------------------------------


def network():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))
    return net


def train(hybridize, scaled=False, steps=4):
    mx.random.seed(1)
    net = network()
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    x = nd.random.normal(shape=(16, 1, 6, 6))
    label = nd.array(np.arange(16) % 3)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
    if scaled:
        amp.init_trainer(trainer)
        trainer._amp_loss_scaler._next_loss_scale = trainer._amp_loss_scaler._loss_scale = 64.0
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(steps):
        with autograd.record():
            loss = loss_of(net(x), label)
            if scaled:
                with amp.scale_loss(loss, trainer) as bigger:
                    autograd.backward(bigger)
            else:
                loss.backward()
        trainer.step(16)
        losses.append(loss.mean().asscalar())
    assert {str(np.dtype(p.dtype)) for p in net.collect_params().values()} == {"float32"}
    return np.array(losses, "float64")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_training_follows_float32(dtype):
    full = train(False)
    with amp.autocast(dtype):
        eager, hybrid = train(False), train(True)
    np.testing.assert_allclose(hybrid, eager, rtol=2e-4)
    np.testing.assert_allclose(eager, full, rtol=5e-3)
    assert (eager != full).any()


def test_weights_do_not_depend_on_the_loss_scale():
    amp.init()
    np.testing.assert_allclose(train(True, scaled=True), train(True), rtol=1e-3)


def test_a_block_is_traced_again_under_another_policy():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize()
    x = nd.ones((1, 3))
    dtypes = [net(x).dtype]
    with amp.autocast():
        dtypes.append(net(x).dtype)
    dtypes.append(net(x).dtype)
    assert dtypes == [np.float32, np.float16, np.float32]


# ---- the loss scale ------------------------------------------------------------------------------


def test_the_scale_follows_overflows():
    amp.init()
    p = gluon.Parameter("w", shape=(2,))
    p.initialize(init="ones")
    trainer = gluon.Trainer([p], "sgd", {"learning_rate": 1.0})
    amp.init_trainer(trainer)
    scaler = trainer._amp_loss_scaler
    scaler.STEPS = 2

    def step(factor):
        with autograd.record():
            loss = (p.data() * factor).sum()
            with amp.scale_loss(loss, trainer) as scaled:
                scaled.backward()
        trainer.step(1)
        return p.data().asnumpy()[0], scaler.loss_scale

    # MXNet 1.9.1: a change of the scale takes effect one step after the check that found it
    assert step(np.inf) == (1.0, 2.0**16)
    assert step(0.25) == (0.75, 2.0**15)
    assert step(0.25) == (0.5, 2.0**15)
    assert step(0.25) == (0.25, 2.0**16)


@pytest.mark.parametrize("store", ["device", "dist_sync"])
def test_a_loss_scale_and_compressed_gradients_are_refused(store):
    """Two bits have no inf: the scaler would not see an overflow."""
    amp.init()
    p = gluon.Parameter("w", shape=(2,))
    p.initialize(init="ones", ctx=[mx.cpu(0), mx.cpu(1)])
    trainer = gluon.Trainer(
        [p],
        "sgd",
        kvstore=store,
        update_on_kvstore=False,
        compression_params={"type": "2bit", "threshold": 0.5},
    )
    amp.init_trainer(trainer)
    with autograd.record():
        losses = [(x * np.inf).sum() for x in p.list_data()]
        with amp.scale_loss(losses, trainer) as scaled:
            autograd.backward(scaled)
    with pytest.raises(ValueError, match="checks gradients.*but compression replaces.*\n  fix: "):
        trainer.step(1)


def test_unscale_divides_the_gradients_now():
    amp.init()
    p = gluon.Parameter("w", shape=(2,))
    p.initialize(init="ones")
    trainer = gluon.Trainer([p], "sgd", {"learning_rate": 1.0})
    amp.init_trainer(trainer)
    with autograd.record():
        loss = (p.data() * 0.25).sum()
        with amp.scale_loss([loss], trainer) as scaled:
            autograd.backward(scaled)
    amp.unscale(trainer)
    np.testing.assert_array_equal(p.grad().asnumpy(), [0.25, 0.25])
    trainer.step(1)
    np.testing.assert_array_equal(p.data().asnumpy(), [0.75, 0.75])


def test_losses_without_a_head_gradient_are_scaled_by_their_parameter():
    amp.init()
    module._loss_scaler._loss_scale = 8.0
    x = nd.array([[1.0, 2.0]])
    x.attach_grad()
    with autograd.record():
        out = nd.SoftmaxOutput(x, nd.array([0.0]), grad_scale=2.0)
    out.backward()
    e = 1 / (1 + np.exp(-1.0))
    np.testing.assert_allclose(x.grad.asnumpy(), [[-16 * e, 16 * e]], rtol=1e-5)


def test_amp_calls_in_the_wrong_order_raise():
    p = gluon.Parameter("w", shape=(2,))
    p.initialize()
    trainer = gluon.Trainer([p], "sgd")
    with pytest.raises(AssertionError, match=r"did you forget to call amp.init\(\)"):
        amp.init_trainer(trainer)
    with (
        pytest.raises(AssertionError, match=r"did you forget to call amp.init_trainer\(\)"),
        amp.scale_loss(nd.ones(1), trainer),
    ):
        pass
    amp.init()
    with pytest.raises(TypeError, match="only compatible with Gluon Trainer"):
        amp.init_trainer(mx.optimizer.SGD())


# ---- conversion ----------------------------------------------------------------------------------


def test_convert_symbol_puts_the_casts_where_mxnet_does():
    found = nodes(amp.convert_symbol(graph()))
    assert found["c0"] == [
        "data_amp_cast_float16",
        "c0_weight_amp_cast_float16",
        "c0_bias_amp_cast_float16",
    ]
    assert found["bn"] == ["c0", "bn_gamma", "bn_beta", "bn_moving_mean", "bn_moving_var"]
    assert found["sr"] == ["r_output_amp_cast_float32"]
    assert found["fc"][0] == "sr_output_amp_cast_float16"
    assert found["e"] == ["fc_output_amp_cast_float32"]
    assert found["z"] == ["fc_output_amp_cast_float32", "e"]
    assert found["sm"] == ["z"]


def test_excluded_nodes_stay_in_float32():
    found = nodes(amp.convert_symbol(graph(), excluded_sym_names=["c0"]))
    assert found["c0"] == ["data", "c0_weight", "c0_bias"]
    with pytest.raises(mx.MXNetError, match="there is no node nothing"):
        amp.convert_symbol(graph(), excluded_sym_names=["nothing"])


@pytest.mark.parametrize("cast_optional_params, dtype", [(False, np.float32), (True, np.float16)])
def test_convert_model_predicts_as_before(cast_optional_params, dtype):
    symbol, shape = graph(), (2, 3, 8, 8)
    shapes, _, aux_shapes = symbol.infer_shape(data=shape)
    rng = np.random.default_rng(0)
    arguments = {
        n: nd.array(rng.normal(size=s) / 4)
        for n, s in zip(symbol.list_arguments(), shapes)
        if n != "data"
    }
    auxiliary = {n: nd.ones(s) for n, s in zip(symbol.list_auxiliary_states(), aux_shapes)}
    converted, args, aux = amp.convert_model(
        symbol, arguments, auxiliary, cast_optional_params=cast_optional_params
    )
    assert args["c0_weight"].dtype == args["fc_bias"].dtype == dtype
    assert args["bn_gamma"].dtype == aux["bn_moving_var"].dtype == np.float32
    assert "amp_cast" not in converted.tojson()
    x = nd.array(rng.normal(size=shape))
    outs = [
        s.bind(mx.cpu(), {**a, "data": x}, aux_states=u).forward()[0].astype("float32").asnumpy()
        for s, a, u in ((symbol, arguments, auxiliary), (converted, args, aux))
    ]
    np.testing.assert_allclose(outs[1], outs[0], rtol=2e-2)
    assert (outs[0] != outs[1]).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_convert_hybrid_block(dtype, tmp_path):
    net = network()
    net.initialize(mx.init.Xavier())
    with pytest.raises(mx.MXNetError, match="hybridize"):
        amp.convert_hybrid_block(net, ctx=mx.cpu())
    net.hybridize()
    x = nd.random.normal(shape=(2, 1, 6, 6))
    expected = net(x).asnumpy()
    low = amp.convert_hybrid_block(net, dtype, ctx=mx.cpu(), cast_optional_params=True)
    out = low(x)
    assert out._spec.dtype == dtype
    np.testing.assert_allclose(out.astype("float32").asnumpy(), expected, atol=0.05)
    again = amp.convert_hybrid_block(low, dtype, ctx=mx.cpu())
    np.testing.assert_array_equal(
        again(x).astype("float32").asnumpy(), out.astype("float32").asnumpy()
    )


def test_convert_bucketing_module():
    def symbol_of(key):
        x = mx.sym.Embedding(mx.sym.var("data"), input_dim=5, output_dim=4, name="embed")
        y = mx.sym.FullyConnected(mx.sym.mean(x, axis=1), num_hidden=2, name="fc")
        return (
            mx.sym.SoftmaxOutput(y, mx.sym.var("softmax_label"), name="sm"),
            ("data",),
            ("softmax_label",),
        )

    made = mx.mod.BucketingModule(symbol_of, default_bucket_key=6)
    with pytest.raises(AssertionError, match="bind the module"):
        amp.convert_bucketing_module(made)
    made.bind([("data", (2, 6))], [("softmax_label", (2,))], for_training=False)
    made.init_params(mx.init.Xavier())
    low = amp.convert_bucketing_module(made)
    low.bind([("data", (2, 6))], [("softmax_label", (2,))], for_training=False)
    batch = mx.io.DataBatch(
        [nd.array([[1, 2, 3, 4, 0, 1]] * 2)],
        [nd.zeros(2)],
        bucket_key=6,
        provide_data=[("data", (2, 6))],
        provide_label=[("softmax_label", (2,))],
    )
    outs = []
    for module_ in (made, low):
        module_.forward(batch, is_train=False)
        outs.append(module_.get_outputs()[0].astype("float32").asnumpy())
    np.testing.assert_allclose(outs[1], outs[0], rtol=1e-2)
    assert "fc_weight_amp_cast_float16" in str(nodes(low._buckets[6].symbol))


def test_state_under_the_names_that_libraries_read():
    module = amp.amp
    assert not module._amp_initialized and not module._amp_loss_scale_initialized
    amp.init()
    assert module._amp_initialized and module._loss_scaler is not None
