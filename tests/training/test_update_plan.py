"""A Trainer's step works out its calls once; what changes between steps still counts."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, gluon, nd
from plait.training.optimizer import optimizer as module
from plait.training.optimizer.update_plan import UpdatePlan


@pytest.fixture
def n_plans(monkeypatch):
    """How many plans were made, as a function."""
    made, init = [], UpdatePlan.__init__

    def counted(self, *args):
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(UpdatePlan, "__init__", counted)
    return lambda: len(made)


def parameters(*shapes):
    found = [gluon.Parameter(f"p{i}_weight", shape=s) for i, s in enumerate(shapes)]
    for i, p in enumerate(found):
        p.initialize(mx.init.Constant(i + 1.0))
    return found


def backward(params):
    """Gradients of half the sum of squares: the weights."""
    with autograd.record():
        loss = sum((p.data() ** 2).sum() for p in params) / 2
    loss.backward()


class Reference:
    """SGD with momentum in float64, of weights whose gradient is themselves."""

    def __init__(self, params):
        self.w = [p.data().asnumpy().astype(np.float64) for p in params]
        self.m = [np.zeros_like(w) for w in self.w]

    def step(self, lr, momentum, wd=0.0, batch=1, clip=None, factors=None):
        for i, w in enumerate(self.w):
            g = w / batch
            g = (g if clip is None else np.clip(g, -clip, clip)) + wd * w
            self.m[i] = momentum * self.m[i] - lr * (factors or {}).get(i, 1.0) * g
            self.w[i] = w + self.m[i]

    def check(self, params):
        for w, p in zip(self.w, params):
            np.testing.assert_allclose(p.data().asnumpy(), w, rtol=1e-5)


def test_numbers_that_change_count_in_the_step_that_follows(n_plans):
    params = parameters((3, 4), (5,))
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    reference = Reference(params)

    def step(batch=1, **numbers):
        backward(params)
        trainer.step(batch)
        reference.step(batch=batch, **numbers)
        reference.check(params)

    step(lr=0.1, momentum=0.9)
    step(lr=0.1, momentum=0.9)
    trainer.set_learning_rate(0.05)
    step(lr=0.05, momentum=0.9)
    step(lr=0.05, momentum=0.9, batch=4)
    trainer.optimizer.wd = 0.1
    step(lr=0.05, momentum=0.9, wd=0.1)
    trainer.optimizer.clip_gradient = 0.5
    step(lr=0.05, momentum=0.9, wd=0.1, clip=0.5)
    trainer.optimizer.momentum = 0.5
    step(lr=0.05, momentum=0.5, wd=0.1, clip=0.5)
    params[1].lr_mult = 0.1
    step(lr=0.05, momentum=0.5, wd=0.1, clip=0.5, factors={1: 0.1})
    assert n_plans() == 1
    assert trainer.optimizer.num_update == 8


def test_a_schedule_counts_updates(n_plans):
    params = parameters((3,))
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.4, "lr_scheduler": schedule})
    expected = 1.0
    for rate in (0.4, 0.4, 0.2, 0.2, 0.1):
        backward(params)
        trainer.step(1)
        expected -= rate * expected
        np.testing.assert_allclose(params[0].data().asnumpy(), expected, rtol=1e-5)
    assert n_plans() == 1


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_arrays_that_change_make_a_new_plan(n_plans, optimizer, tmp_path):
    numbers = {"learning_rate": 0.1} | ({"momentum": 0.9} if optimizer == "sgd" else {})

    def run(changes):
        """Five steps; before the third of them `changes`."""
        params = parameters((3, 4), (5,))
        trainer = gluon.Trainer(params, optimizer, numbers)
        for i in range(5):
            if i == 2:
                changes(params, trainer)
            backward(params)
            trainer.step(1)
        return [p.data().asnumpy().tobytes() for p in params]

    def saved(params, trainer):
        trainer.save_states(str(tmp_path / "states"))
        trainer.load_states(str(tmp_path / "states"))

    def other_request(params, trainer):
        params[0].grad_req = "null"
        params[0].grad_req = "write"

    def set_again(params, trainer):
        for p in params:
            p.set_data(p.data().copy())

    expected = run(lambda *_: None)
    before = n_plans()
    assert before == 1
    for changes, n in ((saved, 2), (other_request, 2), (set_again, 1)):
        assert run(changes) == expected
        assert n_plans() - before == n
        before = n_plans()


def test_a_gradient_that_was_not_computed_is_noticed_after_many_steps():
    params = parameters((3,), (2,))
    trainer = gluon.Trainer(params, "sgd", {"learning_rate": 0.1})
    for _ in range(3):
        backward(params)
        trainer.step(1)
    backward(params[:1])
    with pytest.raises(UserWarning, match="p1_weight"):
        trainer.step(1)
    before = params[1].data().asnumpy()
    trainer.step(1, ignore_stale_grad=True)
    np.testing.assert_array_equal(params[1].data().asnumpy(), before)
    np.testing.assert_allclose(params[0].data().asnumpy(), 0.9**4, rtol=1e-5)
    backward(params)
    trainer.step(1)
    np.testing.assert_allclose(params[1].data().asnumpy(), before * 0.9, rtol=1e-5)


def test_a_subclass_that_updates_otherwise_is_asked_at_each_step():
    asked = []

    class Twice(mx.optimizer.SGD):
        def update_multi_precision(self, index, weight, grad, state):
            asked.append(len(index))
            super().update_multi_precision(index, weight, [2 * g for g in grad], state)

    params = parameters((3,), (2,))
    trainer = gluon.Trainer(params, Twice(learning_rate=0.1))
    for i in range(4):
        backward(params)
        trainer.step(1)
        np.testing.assert_allclose(params[0].data().asnumpy(), 0.8 ** (i + 1), rtol=1e-5)
    assert asked == [2] * 4
    assert len(trainer._updaters[0]._plans) <= module.MAX_PLANS


def test_plans_are_no_part_of_a_state():
    params = parameters((3,))
    trainer = gluon.Trainer(params, "adam")
    backward(params)
    trainer.step(1)
    assert "_plans" not in trainer.optimizer.state_dict()
    assert "_plans" not in trainer.optimizer.__getstate__()
    nd.waitall()
