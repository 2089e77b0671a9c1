"""Consistency checks of blocks and optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine import cpu
from ...kernels.spec import DType
from ...ndarray import autograd
from ...ndarray.random import seed as seed_engine
from .assertions import assert_almost_equal, compare_ndarray_tuple
from .draw import rand_ndarray


def check_gluon_hybridize_consistency(
    net_builder: Any,
    data_l: Any,
    numpy_func: Any = None,
    test_grad: bool = True,
    rtol: float = 1e-4,
    atol: float = 1e-4,
) -> None:
    """Compares outputs and gradients of a block eager and hybridized (and with a NumPy
    function)."""
    saved_outputs, saved_grads = None, None
    for hybridize in (False, True):
        np.random.seed(1)
        seed_engine(1)
        net = net_builder()
        net.initialize()
        if hybridize:
            net.hybridize()
        inputs = [x.as_in_context(cpu()).copy() for x in data_l]
        for x in inputs:
            x.attach_grad()
        if test_grad:
            with autograd.record():
                out = net(*inputs)
            out.backward(out)
            grads = [x.grad.asnumpy() for x in inputs]
            if saved_grads is None:
                saved_grads = grads
            for a, b in zip(saved_grads, grads):
                assert_almost_equal(a, b, rtol, atol)
        else:
            out = net(*inputs)
        if saved_outputs is None:
            saved_outputs = out.asnumpy()
        assert_almost_equal(saved_outputs, out, rtol, atol)
        if numpy_func is not None:
            assert_almost_equal(numpy_func(*[x.asnumpy() for x in inputs]), out, rtol, atol)


def compare_optimizer(
    opt1: Any,
    opt2: Any,
    shape: Sequence[int],
    dtype: DType,
    w_stype: str = "default",
    g_stype: str = "default",
    rtol: float = 1e-4,
    atol: float = 1e-5,
    compare_states: bool = True,
    ntensors: int = 1,
) -> None:
    """One update of two optimizers from the same weights and gradients must agree.

    shape: of the weight, or a list of `ntensors` shapes. w_stype, g_stype: storage types that opt2
        gets; opt1 gets dense arrays.
    """
    several = ntensors > 1
    shapes: Any = shape if several else [shape]

    def draw(stype, density=None):
        return [rand_ndarray(s, stype, density=density, dtype=dtype) for s in shapes]

    weights, grads = draw(w_stype, 1), draw(g_stype)
    results = []
    for optimizer in (opt1, opt2):
        w, g = [a.copy() for a in weights], [a.copy() for a in grads]
        if optimizer is opt1:
            w, g = ([a.tostype("default") for a in arrays] for arrays in (w, g))
        index = list(range(ntensors)) if several else 0
        state = [optimizer.create_state_multi_precision(i, a) for i, a in enumerate(w)]
        optimizer.update_multi_precision(
            index, w if several else w[0], g if several else g[0], state if several else state[0]
        )
        results.append((w, state))
    for a, b in zip(results[0][0], results[1][0]):
        assert_almost_equal(a, b, rtol, atol)
    if compare_states:
        for a, b in zip(results[0][1], results[1][1]):
            compare_ndarray_tuple(a, b, rtol, atol)
