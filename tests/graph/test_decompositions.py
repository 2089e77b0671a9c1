"""Operators that are made of others: their bodies in programs, and as kernels of eager calls."""

import numpy as np
import plait as mx
import pytest
from plait.engine import cpu
from plait.graph.decompositions import decomposition_entry
from plait.graph.graph import Builder, variable
from plait.graph.program import lower
from plait.kernels.cpu.backend import CPU
from plait.kernels.record import REGISTRY, Type

F = Builder()
X = np.random.default_rng(3).normal(size=(2, 4, 6, 6)).astype(np.float32)


def program_of(name, *types, **attrs):
    inputs = [variable(f"x{i}", t) for i, t in enumerate(types)]
    return lower([getattr(F, name)(*inputs, **attrs)], inputs, cpu())


def names(program):
    return [op.name for op in program.ops]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_program_runs_the_body(dtype):
    program = program_of("L2Normalization", Type(X.shape, dtype), mode="channel")
    assert "L2Normalization" not in names(program) and "broadcast_div" in names(program)
    x = mx.nd.array(X, dtype=dtype)
    (y,) = program.run([x])
    want = x.asnumpy() / np.sqrt((x.asnumpy().astype("f") ** 2).sum(1, keepdims=True) + 1e-10)
    np.testing.assert_allclose(y.asnumpy(), want, rtol=2e-3 if dtype == "float16" else 1e-5)


def test_decomposition_without_kernels_runs_the_reference():
    """Windows of several sizes; products in float64."""
    t = Type((1, 2, 5, 6))
    assert names(program_of("_contrib_AdaptiveAvgPooling2D", t, output_size=(2, 4))) == [
        "_contrib_AdaptiveAvgPooling2D"
    ]
    a = Type((3, 4), "float64")
    assert names(program_of("_linalg_syrk", a)) == ["_linalg_syrk"]


def test_an_output_that_is_an_input():
    program = program_of("amp_multicast", Type((3,)), num_outputs=1)
    assert "amp_multicast" not in names(program)
    np.testing.assert_array_equal(program.run([mx.nd.array([1, 2, 3])])[0].asnumpy(), [1, 2, 3])


def test_a_kernel_of_its_own_comes_first():
    op = REGISTRY["LinearRegressionOutput"]
    ins = [Type((3, 4))] * 2
    assert CPU.choose(op, ins, ins[:1], op.parse({})).function == "plk_copy_like"


def test_eager_calls_have_one_kernel():
    op = REGISTRY["_softmax_output_grad"]
    attrs = op.parse({"normalization": "valid", "use_ignore": True})
    found = decomposition_entry(op, [Type((8, 5)), Type((8,))], [Type((8, 5))], attrs, cpu())
    assert found.function == "pl_kernel_loop" and not found.can_fail


def test_gradient_through_a_hybrid_block():
    class Net(mx.gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.relu(F.L2Normalization(F.LRN(x, nsize=3, alpha=0.1), mode="spatial"))

    grads = []
    for hybrid in (False, True):
        net, x = Net(), mx.nd.array(X)
        x.attach_grad()
        if hybrid:
            net.hybridize()
        with mx.autograd.record():
            y = net(x)
        y.backward()
        grads.append(x.grad.asnumpy())
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-5, atol=1e-6)
