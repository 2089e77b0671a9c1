"""Recomputation and reports of Module, BucketingModule and executors: what Gluon's blocks have."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd
from plait.gluon import nn
from plait.graph import residuals, tiers


def deep(n=8, width=8):
    x = mx.sym.var("data")
    for i in range(n):
        y = mx.sym.Convolution(x, num_filter=width, kernel=(3, 3), pad=(1, 1), name=f"c{i}")
        y = mx.sym.BatchNorm(y, name=f"bn{i}", fix_gamma=False)
        y = mx.sym.Dropout(mx.sym.Activation(y, act_type="tanh"), p=0.2)
        x = y if i == 0 else x + y
    x = mx.sym.FullyConnected(mx.sym.Flatten(x), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def bound(symbol, context=None, **kwargs):
    mod = mx.mod.Module(symbol, context=context or mx.cpu(), **kwargs)
    mod.bind([("data", (4, 8, 12, 12))], [("softmax_label", (4,))])
    values = np.random.RandomState(0)
    shapes = symbol.infer_shape(data=(4, 8, 12, 12))[0]
    params = {
        name: nd.array(values.uniform(-0.3, 0.3, shape))
        for name, shape in zip(symbol.list_arguments(), shapes)
        if name not in ("data", "softmax_label")
    }
    mod.init_params(arg_params=params)
    return mod


def batch():
    values = np.random.RandomState(1)
    return mx.io.DataBatch([nd.array(values.rand(4, 8, 12, 12))], [nd.array([0, 1, 2, 0])])


def gradients(mod, steps=3):
    """Of one batch at both tiers, and the outputs."""
    found = []
    for _ in range(steps):
        mx.random.seed(5)
        mod.forward_backward(batch())
        grads = [g.asnumpy() for e in mod.executors() for g in e.grad_arrays if g is not None]
        found.append([*grads, mod.get_outputs()[0].asnumpy()])
        mx.wait_compiled()
    return found


def kept(mod):
    report = mod.memory_report().training
    return report["residuals"] + report["arena"]


@pytest.mark.parametrize("how", [True, 0.5, "mirror"])
def test_recompute_keeps_gradients_and_saves_memory(how):
    plain, other = bound(deep()), bound(deep(), recompute=how)
    first, *rest = zip(gradients(other), gradients(plain))
    for got, want in zip(*first):
        np.testing.assert_array_equal(got, want)  # bit for bit; at tier 1 within rounding
    for a, b in rest:
        for got, want in zip(a, b):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert other.report().rows[0].tier == 1
    residuals = [mod.memory_report().training["residuals"] for mod in (other, plain)]
    assert residuals[0] < 0.8 * residuals[1]
    if how != "mirror":
        assert kept(other) < 0.75 * kept(plain)


def test_recompute_applies_to_every_device_bucket_and_shape():
    symbol = deep(4)
    plain, other = (bound(symbol, [mx.cpu(0), mx.cpu(1)], recompute=how) for how in (None, True))
    for got, want in zip(gradients(other)[0], gradients(plain)[0]):
        np.testing.assert_array_equal(got, want)
    assert kept(other) < 0.8 * kept(plain)
    before = other.memory_report().training["residuals"]
    other.reshape([("data", (8, 8, 12, 12))], [("softmax_label", (8,))])
    assert other.memory_report().training["residuals"] > 1.9 * before
    one, two = (
        mx.mod.BucketingModule(lambda key: (deep(4), ("data",), ("softmax_label",)), 4, recompute=r)
        for r in (None, True)
    )
    for mod in (one, two):
        mod.bind([("data", (4, 8, 12, 12))], [("softmax_label", (4,))])
    assert kept(two) < 0.8 * kept(one)


def test_svrg_modules_recompute_too():
    """Both of its modules keep less."""
    made = []
    for how in (None, True):
        mod = mx.contrib.svrg_optimization.SVRGModule(deep(), update_freq=1, recompute=how)
        mod.bind([("data", (4, 8, 12, 12))], [("softmax_label", (4,))])
        made.append([kept(part) for part in (mod, mod._mod_aux)])
    assert all(less < 0.8 * more for more, less in zip(*made))


def test_modules_obey_mxnets_mirroring(monkeypatch):
    plain = bound(deep(4))
    want, before = gradients(plain, 1), plain.memory_report().training["residuals"]
    monkeypatch.setattr(residuals, "default", "mirror")  # as MXNET_BACKWARD_DO_MIRROR does
    other = bound(deep(4))
    for got, expected in zip(*gradients(other, 1), *want):
        np.testing.assert_array_equal(got, expected)
    assert other.memory_report().training["residuals"] < 0.8 * before


def test_recompute_accepts_documented_values():
    for wrong in ("blocks", "all", 2.0):
        with pytest.raises(ValueError, match="Module: recompute must be True, False, 'mirror'"):
            mx.mod.Module(deep(1), recompute=wrong)
    with pytest.raises(ValueError, match="bind: recompute must be"):
        deep(1).simple_bind(data=(4, 8, 12, 12), recompute="blocks")


# ---- reports -------------------------------------------------------------------------------------


def test_a_report_lists_every_program():
    mod = bound(deep(1), [mx.cpu(0), mx.cpu(1)])
    assert "no programs" in str(mod.report())
    for _ in range(3):
        mod.forward_backward(batch())
        mod.forward(batch(), is_train=False)
        mx.wait_compiled()
    rows = mod.report().rows
    assert [(r.kind, r.hits, r.tier) for r in rows] == [
        ("record", 3, 1),
        ("backward", 3, 1),
        ("predict", 3, 1),
    ] * 2
    shown = "float32[2, 8, 12, 12]@cpu({0}), float32[2]@cpu({0})"
    assert [r.inputs for r in rows] == [shown.format(d) for d in (0, 0, 0, 1, 1, 1)]
    assert [r.operators > 0 for r in rows[:3]] == [True, False, True]
    assert all(r.change_at == 3 and r.compile_s > 0 and r.instructions for r in rows)
    text = str(mod.report()).splitlines()
    assert text[0] == "Module" and text[1].split()[:4] == ["kind", "inputs", "hits", "tier"]
    assert len(text) == 2 + len(rows)


def test_a_report_lists_every_bucket_and_every_part():
    def bucket(key):
        net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc", flatten=False)
        return mx.sym.mean(net, axis=1), ("data",), None

    mod = mx.mod.BucketingModule(bucket, 6)
    mod.bind([("data", (1, 6, 3))], for_training=False)
    mod.init_params()
    for n in (6, 4, 6):
        data = [("data", (1, n, 3))]
        mod.forward(mx.io.DataBatch([nd.ones((1, n, 3))], bucket_key=n, provide_data=data))
    assert [(r.inputs, r.hits) for r in mod.report().rows] == [
        ("float32[1, 6, 3]@cpu(0)", 2),
        ("float32[1, 4, 3]@cpu(0)", 1),
    ]
    assert mod.memory_report().inference["inputs"] == 4 * 18

    chain = mx.mod.SequentialModule()
    for name in ("one", "two"):
        net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name=name)
        chain.add(mx.mod.Module(net, label_names=None), auto_wiring=True)
    chain.bind([("data", (5, 3))], for_training=False)
    chain.init_params()
    chain.forward(mx.io.DataBatch([nd.ones((5, 3))]))
    assert [r.kind for r in chain.report().rows] == ["predict", "predict"]
    assert chain.memory_report().inference["parameters"] == 2 * 4 * 12


def test_a_module_uses_the_memory_of_the_same_block():
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu", in_units=4), nn.Dense(2, in_units=8))
    net.initialize()
    net.hybridize()
    block = net.memory_report(nd.ones((3, 4)))
    x = mx.sym.relu(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="one"))
    x = mx.sym.FullyConnected(x, num_hidden=2, name="two")
    mod = mx.mod.Module(x, label_names=())
    mod.bind([("data", (3, 4))])
    report = mod.memory_report()
    assert report.inference == block.inference and report.training == block.training
    assert str(report).splitlines()[1:] == str(block).splitlines()[1:]


def test_a_report_runs_nothing_and_counts_nothing():
    executor = deep(1).simple_bind(data=(4, 8, 12, 12))
    executor.memory_report()
    assert executor.aux_dict["bn0_moving_mean"].asnumpy().tolist() == [0] * 8
    assert not executor.report().rows
    still = deep(1).simple_bind(data=(4, 8, 12, 12), grad_req="null")
    assert still.memory_report().training == {}


def test_an_executor_without_programs_says_why():
    data = mx.sym.var("data", stype="csr")
    executor = mx.sym.dot(data, mx.sym.var("w")).simple_bind(data=(2, 3), w=(3, 4))
    executor.forward()
    assert "there are sparse arrays: it runs operator by operator" in str(executor.report())
    with pytest.raises(ValueError, match="memory_report: there are sparse arrays"):
        executor.memory_report()


def test_a_report_of_a_resumed_run_takes_no_counts_from_the_calls():
    """Counts of a resumed run are for the first signature that is made with their structure."""

    def made():
        net = nn.Dense(2, in_units=4)
        net.initialize()
        net.hybridize()
        return net, deep(1).simple_bind(data=(4, 8, 12, 12))

    net, executor = made()
    for _ in range(3):
        with autograd.predict_mode():
            net(nd.ones((3, 4)))
        executor.forward()
    mx.wait_compiled()
    counts = tiers.counts()
    net, executor = made()
    tiers.resume(counts)
    try:
        net.memory_report(nd.ones((3, 4)))
        executor.memory_report()
        net(nd.ones((3, 4)))
        executor.forward()
        assert [r.hits for r in (*net.hybrid_report().rows, *executor.report().rows)] == [4, 4]
    finally:
        tiers.resume({})
