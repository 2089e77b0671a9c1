"""Errors have the types that MXNet 1.9.1 raises for the same mistakes, and are MXNetErrors too.

Types in the table are MXNet's, seen by running it.
"""

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd, sym
from plait.gluon import nn
from plait.gluon.contrib.estimator import Estimator


class Sum(nn.HybridBlock):
    def hybrid_forward(self, F, a, b):
        return a + b


def summed(a, b, hybrid=False):
    net = Sum()
    net.hybridize(hybrid)
    return net(a, b)


def dense():
    net = nn.Dense(1)
    net.initialize()
    return net


X = nd.ones((2, 3))
CASES = {
    "arrays and Symbols": (lambda: summed(X, sym.var("a")), ValueError),
    "Symbols and arrays": (lambda: summed(sym.var("a"), X), ValueError),
    "a Symbol in a list": (lambda: summed(X, [sym.var("a")]), ValueError),
    "mixed, hybridized": (lambda: summed(X, sym.var("a"), True), ValueError),
    "no array": (lambda: summed(None, None), ValueError),
    "unknown metric": (lambda: mx.metric.create("nope"), AssertionError),
    "lengths": (lambda: gluon.data.ArrayDataset([1], [1, 2]), AssertionError),
    "no arrays": (lambda: gluon.data.ArrayDataset(), AssertionError),
    "shard": (lambda: gluon.data.SimpleDataset([1, 2]).shard(2, 5), AssertionError),
    "lambda": (lambda: nn.HybridLambda("nope"), AssertionError),
    "layout": (lambda: nn.Conv2D(2, 3, layout="CHWN"), AssertionError),
    "clip nothing": (lambda: gluon.utils.clip_global_norm([], 1), AssertionError),
    "GPU": (
        lambda: Estimator(dense(), gluon.loss.L2Loss(), context=mx.gpu(77)),
        AssertionError,
    ),
    "child": (lambda: nn.HybridSequential().add(nn.Lambda("tanh")), ValueError),
    "truth": (lambda: bool(X), ValueError),
    "asscalar": (lambda: X.asscalar(), ValueError),
    "index": (lambda: X[9], IndexError),
    "no optimizer": (lambda: mx.optimizer.create("nope"), ValueError),
    "request": (lambda: gluon.Parameter("a", grad_req="nope"), AssertionError),
}


@pytest.mark.parametrize("name", CASES)
def test_type(name):
    call, kind = CASES[name]
    with pytest.raises(mx.MXNetError) as found:
        call()
    assert isinstance(found.value, kind)


def test_mixed_inputs_say_so():
    with pytest.raises(ValueError, match="mixed NDArrays and Symbols"):
        summed(X, sym.var("a"))


def test_one_class_for_what_symbols_lack():
    from plait.base import NotImplementedForSymbol

    for call in (lambda: bool(sym.var("x")), lambda: sym.var("x").asnumpy()):
        with pytest.raises(NotImplementedForSymbol, match="not available for a Symbol"):
            call()
    # made as MXNet's libraries make it
    text = str(NotImplementedForSymbol(nd.NDArray.copy, "copy", np.float32(1)))
    assert text.startswith('Function copy (namely operator "copy") with arguments (<class \'nump')
