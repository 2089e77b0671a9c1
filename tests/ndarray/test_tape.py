"""The tape: what it keeps alive, what backward computes, cycles, memory over many steps, depth,
aliasing."""

import gc

import numpy as np
import plait as mx
import pytest
from plait import MXNetError, autograd, engine, gluon, nd
from plait.kernels.plan import make_plan
from plait.kernels.record import lookup
from plait.ndarray import backward
from plait.ndarray.tape import unread_and_saved


def used():
    gc.collect()
    nd.waitall()
    return engine.stats()["used_bytes"]


def plan(name, *arrays, **attrs):
    op = lookup(name)
    return make_plan(
        op,
        op.parse(attrs) | ({"train": True} if op.train_aware else {}),
        [a._spec for a in arrays],
        mx.cpu(),
    )


# ---- what is kept --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, attrs, unread, saved",
    [
        # all unread: the tuple of Nones that stands for the inputs
        ("relu", {}, (None,), (0,)),
        ("square", {}, (), ()),
        ("broadcast_mul", {}, (), ()),
        ("broadcast_add", {}, (None, None), ()),
        ("dot", {}, (), ()),
        ("Dropout", {"p": 0.5}, (None,), (1,)),
        ("FullyConnected", {"num_hidden": 3}, (2,), ()),
        ("BlockGrad", {}, (None,), ()),
    ],
)
def test_gradient_rules_decide_what_is_saved(name, attrs, unread, saved):
    x = nd.ones((3, 3))
    inputs = [x, x, nd.ones((3,))][
        : {"FullyConnected": 3, "broadcast_mul": 2, "broadcast_add": 2, "dot": 2}.get(name, 1)
    ]
    made = plan(name, *inputs, **attrs)
    assert unread_and_saved(made, made.scalars) == (unread, saved)


def test_memory_that_no_gradient_reads_is_freed_at_once():
    mb = 1 << 20
    x = nd.ones((256, 1024))
    x.attach_grad()
    before = used()
    with autograd.record():
        y = nd.relu(x + 1.0)  # x + 1 goes, relu's output stays
        assert used() - before == mb
        z = y * 2 - 3  # and nothing of y * 2
        assert used() - before == 2 * mb
        del y
        assert used() - before == 2 * mb
        total = z.sum()
    del z
    assert mb <= used() - before < 1.1 * mb
    total.backward()
    assert used() - before < mb / 10
    assert (x.grad.asnumpy() == 2).all()


def test_forward_results_are_not_recomputed():
    x, w = nd.ones((2, 3, 8, 8)), nd.ones((5, 3, 3, 3))
    x.attach_grad()
    w.attach_grad()
    backward._programs.clear()
    with autograd.record():
        y = nd.Convolution(x, w, kernel=(3, 3), num_filter=5, no_bias=True) * 2
        loss = (nd.tanh(y) * y).sum()
    loss.backward()
    (cached,) = backward._programs.values()
    assert not {"Convolution", "tanh"} & {op.name for op in cached.serving.program.ops}


def test_batch_norm_in_a_chain_updates_its_statistics_once():
    x = nd.array(np.arange(6.0).reshape(2, 3))
    mean, var, gamma, beta = nd.zeros((3,)), nd.ones((3,)), nd.ones((3,)), nd.zeros((3,))
    gamma.attach_grad()
    with autograd.record():
        y = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, momentum=0.5)
        loss = (y * y * y).sum()
    loss.backward()
    np.testing.assert_allclose(mean.asnumpy(), x.asnumpy().mean(0) / 2)


def test_unread_arrays_in_gradients_of_gradients():
    x = nd.array([0.5, -1.0, -0.2])
    x.attach_grad()
    with autograd.record():
        y = nd.sigmoid(nd.relu(x + 1.0) * 2 + x)
        (dx,) = autograd.grad(y, [x], create_graph=True)
        loss = (dx * dx).sum()
    loss.backward()
    t, up = x.asnumpy().astype("float64"), np.array([3.0, 1.0, 3.0])
    s = 1 / (1 + np.exp(-(2 * np.maximum(t + 1, 0) + t)))
    d1, d2 = s * (1 - s), s * (1 - s) * (1 - 2 * s)
    np.testing.assert_allclose(dx.asnumpy(), d1 * up, rtol=1e-5)
    np.testing.assert_allclose(x.grad.asnumpy(), 2 * d1 * up * d2 * up * up, rtol=1e-4, atol=1e-6)


# ---- aliasing ------------------------------------------------------------------------------------


def test_a_gradient_array_may_be_data_too():
    x, w = nd.ones((3,)), nd.ones((3,)) * 2
    x.attach_grad()
    w.attach_grad()
    x.grad[:], w.grad[:] = 5, 7
    with autograd.record():
        y = (x * w.grad * x + w * x.grad * w).sum()
    y.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), 2 * 7 * np.ones(3))
    np.testing.assert_array_equal(w.grad.asnumpy(), 2 * 5 * 2 * np.ones(3))


def test_a_gradient_may_be_the_head_gradient():
    x, w = nd.ones((3,)), nd.ones((3,)) * 2
    x.attach_grad()
    w.attach_grad()
    x.grad[:] = 5
    with autograd.record():
        y = x * w
    y.backward(x.grad)
    np.testing.assert_array_equal(x.grad.asnumpy(), [10] * 3)
    np.testing.assert_array_equal(w.grad.asnumpy(), [5] * 3)


# ---- many steps ----------------------------------------------------------------------------------


def training(hybrid):
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Dense(16, activation="relu"),
        gluon.nn.BatchNorm(),
        gluon.nn.Dropout(0.3),
        gluon.nn.Dense(4),
    )
    net.initialize()
    if hybrid:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    x, y = nd.random.normal(shape=(8, 10)), nd.array(np.arange(8) % 4)

    def step():
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(8)
        return loss

    return step


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_training_step_leaves_no_cycle(hybrid):
    step = training(hybrid)
    for _ in range(9):
        step()
        mx.wait_compiled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            step()
        assert gc.collect() == 0
    finally:
        gc.enable()


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


@pytest.mark.parametrize("hybrid", [False, True])
def test_memory_is_flat_over_training_steps(hybrid):
    step = training(hybrid)
    for _ in range(2):  # the second time with the programs that were compiled meanwhile
        for _ in range(25):
            step()
        mx.wait_compiled()
    before, rss = used(), resident_bytes()
    for _ in range(300):
        step()
    assert used() == before
    assert resident_bytes() - rss < 4 << 20


def test_a_loss_that_was_never_differentiated_is_freed():
    x = nd.ones((1000,))
    x.attach_grad()
    before = used()
    gc.disable()
    try:
        with autograd.record():
            y = nd.exp(nd.tanh(x) * x) * 2
        del y
        nd.waitall()
        assert engine.stats()["used_bytes"] == before
    finally:
        gc.enable()


def test_a_tape_50000_deep_is_freed_without_recursion():
    x = nd.ones((2,))
    x.attach_grad()
    with autograd.record():
        y = x
        for _ in range(50_000):
            y = nd.tanh(y)
    del y
    with autograd.record():
        y = x
        for _ in range(3_000):
            y = -y
    y.backward()
    assert x.grad.asnumpy().tolist() == [1, 1]


# ---- states --------------------------------------------------------------------------------------


def test_errors_leave_the_recording_state_as_it_was():
    x = nd.ones((2, 3))
    x.attach_grad()

    class Wrong(autograd.Function):
        def forward(self, x):
            return x * 2

        def backward(self, dy):
            raise KeyError("mine")

    def fails():
        with autograd.record():
            Wrong()(x).backward()

    for call, error in (
        (lambda: nd.dot(x, x), MXNetError),
        (fails, KeyError),
        (lambda: autograd.grad(x * 2, [nd.ones((1,))]), MXNetError),
    ):
        for recording in (False, True):
            with pytest.raises(error), autograd.record() if recording else autograd.pause():
                call()
            assert not autograd.is_recording() and not autograd.is_training()
    with autograd.record():
        y = (x * x).sum()
    y.backward()
    assert (x.grad.asnumpy() == 2).all()


def test_tapes_of_equal_structure_share_a_program():
    x = nd.ones((7, 3))
    x.attach_grad()
    backward._programs.clear()
    for scalar in (2.0, 2.0, 3.0):
        with autograd.record():
            y = (x * scalar).sum()
        y.backward()
        assert (x.grad.asnumpy() == scalar).all()
    (found,) = backward._programs.values()
    assert found.hits == 3
