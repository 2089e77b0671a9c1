"""Every operator record as a Symbol: the outputs and gradients of an executor are those of eager
code."""

import numpy as np
import plait as mx
import pytest
import samples
from plait.kernels.record import REGISTRY
from plait.kernels.traits import Eager, Front
from plait.ndarray.invoke import invoke

CASES = [
    pytest.param(op, s, id=f"{name}-{i}")
    for name, op in REGISTRY.items()
    if name == op.name and not op.random and not op.has(Eager) and not op.has(Front)
    if op.n_outputs != 0
    for i, s in enumerate(op.samples)
]


def draw(op, given, rng):
    """The array of a sample's input."""
    x, own = samples.draw(rng, given)
    return mx.nd.array(x, dtype=own or samples.usual_dtype(op))


@pytest.mark.parametrize("op, sample", CASES)
def test_executor_is_eager(op, sample):
    rng = np.random.default_rng(0)
    given = {k: v for k, v in sample.attrs.items() if k != op.variadic_key}
    arrays = [draw(op, spec, rng) for spec in sample.inputs]
    twins = [a.copy() for a in arrays]
    floats = [a.dtype == np.float32 for a in arrays]
    kind = op.grad.__qualname__ if op.grad is not None else "no_gradient"
    floats = [f and kind != "no_gradient" for f in floats]
    symbol = mx.sym.symbol.apply(
        op, "node", [mx.sym.var(f"v{i}") for i in range(len(arrays))], given
    )
    names = symbol.list_arguments()
    args = {f"v{i}": a for i, a in enumerate(twins)}
    grads = {
        f"v{i}": a.zeros_like()
        for i, a in enumerate(twins)
        if floats[i] and f"v{i}" in names and a.shape
    }
    ex = symbol.bind(
        mx.cpu(),
        {n: args[n] for n in names},
        grads,
        "write",
        {n: args[n] for n in symbol.list_auxiliary_states()},
    )
    for a, is_float in zip(arrays, floats):
        if is_float:
            a.attach_grad()
    with mx.autograd.record():
        outs = invoke(op, arrays, given)
    outs = outs if isinstance(outs, list) else [outs]
    for got, want in zip(ex.forward(is_train=True), outs):
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(
            got.asnumpy().astype("float64"), want.asnumpy().astype("float64"), rtol=1e-5, atol=1e-6
        )
    for a, twin in zip(arrays, twins):  # moving statistics, updated weights
        np.testing.assert_allclose(a.asnumpy(), twin.asnumpy(), rtol=1e-5, atol=1e-6)
    if not grads or kind.startswith("first_order."):
        return
    heads = [mx.nd.array(rng.normal(size=o.shape)).astype(o.dtype) for o in outs]
    ex.backward(heads)
    mx.autograd.backward(outs, heads)
    for i, a in enumerate(arrays):
        if f"v{i}" in grads:
            np.testing.assert_allclose(
                ex.grad_dict[f"v{i}"].asnumpy(), a.grad.asnumpy(), rtol=1e-4, atol=1e-5
            )
