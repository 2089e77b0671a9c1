"""Programs on a GPU: what they compute, and that they are recorded and replayed."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd


def trained(ctx, hybrid, optimizer="adam", steps=8):
    """The losses of a small network with dropout, whose numbers change from step to step."""
    mx.random.seed(3)
    np.random.seed(0)
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="relu", in_units=6))
    net.add(gluon.nn.Dropout(0.5), gluon.nn.BatchNorm(in_channels=8), gluon.nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier(), ctx=ctx)
    if hybrid:
        net.hybridize()
    schedule = mx.lr_scheduler.FactorScheduler(2, 0.9, base_lr=0.05)
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"lr_scheduler": schedule})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    x = nd.array(np.random.rand(4, 6), ctx=ctx)
    y = nd.array(np.random.randint(0, 3, 4), ctx=ctx)
    losses = []
    for step in range(steps):
        with autograd.record():
            now = loss(net(x), y)
        now.backward()
        trainer.step(4)
        losses.append(now.mean().asscalar())
        if step == 3:
            mx.wait_compiled()
    return losses


@pytest.mark.parametrize("hybrid", [False, True])
def test_training_gives_what_the_cpu_gives(hybrid):
    np.testing.assert_allclose(
        trained(mx.gpu(0), hybrid), trained(mx.cpu(), hybrid), rtol=1e-5, atol=1e-6
    )


def hybrid_chain():
    net = gluon.nn.HybridLambda(lambda F, x: F.sum(F.softmax(F.relu(x) * 2, axis=1) + x, axis=0))
    net.hybridize()
    return net


def test_a_program_is_replayed_on_the_same_memory(emulator):
    net, x = hybrid_chain(), nd.array([[1, -2, 3], [0, 1, 2]], ctx=mx.gpu(0))
    wanted = hybrid_chain()(x.as_in_context(mx.cpu())).asnumpy()
    for _ in range(4):
        np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-6)
    mx.wait_compiled()
    net(x).asnumpy(), net(x).asnumpy()
    graphs, launches = emulator.count(emulator.GRAPHS), emulator.count(emulator.LAUNCHES)
    for k in range(3):
        x[0, 0] = k
        y = net(x).asnumpy()
        np.testing.assert_allclose(
            y, hybrid_chain()(x.as_in_context(mx.cpu())).asnumpy(), rtol=1e-6
        )
    assert emulator.count(emulator.GRAPHS) == graphs + 3
    assert emulator.count(emulator.LAUNCHES) >= launches


def test_other_memory_is_not_read_by_a_replay():
    net = hybrid_chain()
    arrays = [nd.array(np.random.rand(2, 3), ctx=mx.gpu(0)) for _ in range(12)]
    for _ in range(4):  # more sets of memory than are kept
        for x in arrays:
            wanted = hybrid_chain()(x.as_in_context(mx.cpu())).asnumpy()
            np.testing.assert_allclose(net(x).asnumpy(), wanted, rtol=1e-6)


def test_replays_draw_new_numbers():
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Dropout(0.5),
        gluon.nn.HybridLambda(lambda F, x: F.softmax(F.relu(x), axis=0)),
        gluon.nn.Dropout(0.5),
    )
    net.hybridize()
    x = nd.ones((64,), ctx=mx.gpu(0))
    seen = []
    with autograd.train_mode():
        for _ in range(6):
            seen.append(net(x).asnumpy())
    assert len({s.tobytes() for s in seen}) == 6


def test_programs_of_two_devices():
    if mx.context.num_gpus() < 2:
        pytest.skip("one GPU")
    net = gluon.nn.Dense(3, in_units=4)
    net.initialize(mx.init.Xavier(), ctx=[mx.gpu(0), mx.gpu(1)])
    net.hybridize()
    x = nd.array(np.random.rand(2, 4))
    wanted = net(x.as_in_context(mx.gpu(0))).asnumpy()
    for _ in range(4):
        parts = gluon.utils.split_and_load(nd.concat(x, x, dim=0), [mx.gpu(0), mx.gpu(1)])
        for part in parts:
            np.testing.assert_allclose(net(part).asnumpy(), wanted, rtol=1e-5)


def test_bind_and_module():
    data = mx.sym.Variable("data")
    out = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    rng = np.random.default_rng(0)
    arrays = {"data": rng.random((2, 4)), "fc_weight": rng.random((3, 4)), "fc_bias": rng.random(3)}
    results = []
    for ctx in (mx.cpu(), mx.gpu(0)):
        args = {k: nd.array(v, ctx=ctx) for k, v in arrays.items()}
        grads = {k: nd.zeros(v.shape, ctx=ctx) for k, v in arrays.items()}
        bound = out.bind(ctx, args, args_grad=grads)
        y = bound.forward(is_train=True)[0]
        bound.backward(nd.ones((2, 3), ctx=ctx))
        assert y.context == ctx
        results.append([y.asnumpy(), *(g.asnumpy() for g in grads.values())])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-5)
