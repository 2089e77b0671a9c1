"""x.copy(): new memory, but of a temporary, which nobody else can see, the array itself."""

import sys

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd
from plait.engine import lib

X = np.arange(24, dtype="float32").reshape(4, 6)
ELIDES = sys.version_info < (3, 14)


def copies(run):
    """The result of run(), and how many copies it made."""
    mx.nd.waitall()
    mx.profiler.set_config(profile_all=True, aggregate_stats=True)
    mx.profiler.set_state("run")
    made = run()
    mx.nd.waitall()
    mx.profiler.set_state("stop")
    lines = mx.profiler.dumps(reset=True).splitlines()
    rows = [line.split() for line in lines]
    return made, sum([int(row[1]) for row in rows if row[:1] == ["_copy"]])


@pytest.mark.skipif(not ELIDES, reason="Python does not count the references of arguments")
@pytest.mark.parametrize("module", [mx.np, mx.nd])
def test_a_copy_of_a_temporary_is_itself(module):
    x = module.array(X)
    for run, want in [
        (lambda: x[:, ::2].copy(), X[:, ::2]),
        (lambda: x[1:, 2:].copy(), X[1:, 2:]),
        (lambda: x.T.copy(), X.T),
        (lambda: (x + x).copy(), X + X),
        (lambda: x[1:3, :2].reshape((4,)).copy(), X[1:3, :2].reshape(4)),
    ]:
        made, n = copies(run)
        assert n == 0
        made[:] = -1
        np.testing.assert_array_equal(x.asnumpy(), X)
        np.testing.assert_array_equal(run().asnumpy(), want)


@pytest.mark.parametrize("module", [mx.np, mx.nd])
def test_a_copy_of_what_others_see_is_new(module):
    x = module.array(X)
    pair, held = (module.array(X),), {"x": module.array(X)}
    views = [x.reshape((6, 4)), x.detach()]
    whole = x.reshape((24,))
    runs = [
        lambda: x.copy(),
        lambda: x[1:3].copy(),
        lambda: x.reshape((6, 4)).copy(),
        lambda: x.detach().copy(),
        lambda: whole[3:].copy(),
        lambda: views[0].copy(),
        lambda: type(x).copy(*pair),
        lambda: held["x"].copy(),
        lambda: list(map(type(x).copy, [pair[0]]))[0],
        lambda: next(iter(x)).copy(),
    ]
    for run in runs:
        made, n = copies(run)
        assert n == 1
        made[:] = -1
        for other in (x, *pair, *held.values()):
            np.testing.assert_array_equal(other.asnumpy(), X)


def test_a_view_that_outlives_its_base_is_copied_while_another_lives():
    x = mx.np.array(X) + 0
    kept = x[1:]
    made = x.reshape(-1)[6:].copy()
    made[:] = -1
    np.testing.assert_array_equal(kept.asnumpy(), X[1:])


def test_memory_of_others_is_copied():
    foreign = np.arange(3, dtype="float32")
    made = mx.np.from_dlpack(foreign).copy()
    made[:] = 7
    assert foreign.tolist() == [0, 1, 2]
    x = mx.np.array([1.0, 2.0]) * 2
    shared = np.from_dlpack(x)
    y = x.reshape(2)
    del x
    made = y.copy()
    made[:] = 0
    assert shared.tolist() == [2, 4]


def test_a_recorded_temporary_is_copied_with_its_gradient():
    x = mx.np.array(X)
    x.attach_grad()
    with autograd.record():
        y = (x * x).T.copy()
        y.sum().backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), 2 * X)
    made = (x.grad).copy()
    made[:] = 0
    np.testing.assert_array_equal(x.grad.asnumpy(), 2 * X)


def test_sole_counts_arrays_and_not_operations():
    x = nd.ones((300, 300))
    for _ in range(20):
        x = nd.dot(x, x) / 300
    assert lib.pl_array_is_sole(x._handle)  # whether or not it is computed
    view = x.reshape((-1,))
    assert not lib.pl_array_is_sole(x._handle)
    assert not lib.pl_array_is_sole(view._handle)
    del x
    assert lib.pl_array_is_sole(view._handle)
