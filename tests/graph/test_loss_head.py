"""The pass that joins the gradients of pick and log_softmax."""

import numpy as np
import plait as mx
import pytest
from plait.engine import current_context
from plait.graph.graph import Builder, topological, variable
from plait.graph.passes.loss_head import loss_head
from plait.graph.program import lower
from plait.kernels.record import Type

F = Builder()


def head(shape, axis, pick_axis):
    picked = tuple(n for i, n in enumerate(shape) if i != pick_axis % len(shape))
    variables = [
        variable("dy", Type(picked)),
        variable("index", Type(picked)),
        variable("y", Type(shape)),
    ]
    one_hot = F._pick_grad(*variables[:2], axis=pick_axis, shape=shape)
    return F._log_softmax_grad(one_hot, variables[2], axis=axis), variables


@pytest.mark.parametrize("shape", [(7, 10), (3, 5000), (2, 3, 33), (1, 1)])
def test_fused_equals_unfused_loss(shape):
    out, variables = head(shape, -1, len(shape) - 1)
    names = [n.op.name for n in topological(loss_head([out])) if n.op]
    assert names == ["_pick_log_softmax_grad"]
    rng = np.random.default_rng(0)
    dy = rng.standard_normal(variables[0].shape).astype("f")
    index = rng.integers(-1, shape[-1] + 1, variables[1].shape).astype("f")
    y = np.log(rng.dirichlet(np.ones(shape[-1]), shape[:-1]) + 1e-30).astype("f")
    arrays = [mx.nd.array(a) for a in (dy, index, y)]
    results = [
        lower([out], variables, current_context(), tier=tier).run(arrays)[0].asnumpy()
        for tier in (0, 1)
    ]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_loss_over_another_axis_is_not_fused():
    out, _ = head((4, 4), 0, 1)
    names = [n.op.name for n in topological(loss_head([out])) if n.op]
    assert names == ["_pick_grad", "_log_softmax_grad"]
