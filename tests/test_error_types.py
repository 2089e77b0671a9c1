"""Errors have the types that MXNet 1.9.1 raises for the same mistakes, and are MXNetErrors too.

Types in the table are MXNet's, seen by running it.
"""

import multiprocessing
import pickle

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd, sym
from plait.engine.error import DeferredError, InvalidValue, OperatorError
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
    "gather_nd": (lambda: nd.gather_nd(X, nd.array([[2], [0]])).asnumpy(), IndexError),
    "scatter_nd": (
        lambda: nd.scatter_nd(nd.ones((1,)), nd.array([[0], [3]]), shape=(2, 3)).asnumpy(),
        IndexError,
    ),
    "no optimizer": (lambda: mx.optimizer.create("nope"), ValueError),
    "request": (lambda: gluon.Parameter("a", grad_req="nope"), AssertionError),
}


@pytest.mark.parametrize("name", CASES)
def test_type(name):
    call, kind = CASES[name]
    with pytest.raises(mx.MXNetError) as found:
        call()
    assert isinstance(found.value, kind)


INDICES = nd.array([[0, 3]])
OUTSIDE = {
    "take": lambda: nd.take(X, INDICES, axis=1, mode="raise"),
    "gather_nd": lambda: nd.gather_nd(X, INDICES),
    "gather_nd, below": lambda: nd.gather_nd(X, nd.array([[-3]])),
    "its gradient": lambda: nd._internal._backward_gather_nd(X, INDICES, shape=(2, 3)),
    "scatter_nd": lambda: nd.scatter_nd(X, INDICES, shape=(2, 3)),
    "_scatter_set_nd": lambda: nd._internal._scatter_set_nd(X, X, INDICES, shape=(2, 3)),
    "_take_along_axis": lambda: nd._internal._take_along_axis(X[:1, :2], INDICES, axis=1),
    "_put_along_axis": lambda: nd._internal._put_along_axis(X[:1, :2], INDICES, axis=1, size=3),
    "retain": lambda: nd.sparse.retain(X.tostype("row_sparse"), nd.array([3])),
}


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("naive", [False, True])
def test_indices_outside_are_an_IndexError_and_a_ValueError(name, naive):
    mx.engine.set_naive(naive)
    try:
        for kind in (IndexError, ValueError, mx.MXNetError):
            with pytest.raises(kind, match="indices must be in"):
                OUTSIDE[name]().asnumpy()
    finally:
        mx.engine.set_naive(False)


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


def classes(base=mx.MXNetError):
    return [base, *(c for k in base.__subclasses__() for c in classes(k))]


def test_an_error_that_passes_through_two_operations_keeps_its_type():
    """The second waits for an array that the first could not make."""
    first, second = nd.ones((1,)), nd.ones((1,))

    def refuse():
        raise InvalidValue("no such value")

    mx.engine.push(refuse, [], [first])
    mx.engine.push(first.asnumpy, [], [second])
    for x in (first, second):
        with pytest.raises(InvalidValue, match="no such value") as deferred:
            x.wait_to_read()
    for error in (deferred.value, DeferredError("a text")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


def test_every_error_survives_pickling():
    """What a worker of a multiprocessing.Pool raises travels so; what cannot be read hangs it."""
    with pytest.raises(ValueError) as shapes:
        nd.dot(nd.ones((2, 3)), nd.ones((2, 3)))
    with pytest.raises(IndexError) as deferred:
        nd.gather_nd(nd.ones((2,)), nd.array([[5]])).asnumpy()
    plain = [c for c in classes() if "__init__" not in vars(c) and not issubclass(c, OperatorError)]
    made = [c("a text") for c in plain if c.__module__.startswith("plait.")]
    assert len(made) > 20
    for error in (shapes.value, deferred.value, *made):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.args) == (type(error), str(error), error.args)
        assert vars(again) == vars(error)


def test_a_failure_of_c_after_one_of_python_keeps_its_type():
    class Fails(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            raise KeyError("of Python")

    @mx.operator.register("fails_in_python")
    class Prop(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Fails()

    mx.engine.set_naive(True)  # both on this thread
    try:
        poisoned = []  # alive, and so are their errors
        with pytest.raises(KeyError):
            poisoned.append(nd.Custom(X, op_type="fails_in_python"))
            poisoned[0].asnumpy()
        with pytest.raises(IndexError) as found:
            nd.gather_nd(X, nd.array([[9]])).asnumpy()
        assert found.value.__cause__ is None
    finally:
        mx.engine.set_naive(False)


def test_an_error_in_a_pool_is_raised_here():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        with pytest.raises(ValueError, match="dot: lhs.shape"):
            pool.apply_async(wrong_shapes).get(60)


def wrong_shapes():
    nd.dot(nd.ones((2, 3)), nd.ones((2, 3)))
