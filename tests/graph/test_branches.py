"""Branches of a program that run at once: the same bits as one after the other, on any graph."""

import dags
import numpy as np
import pytest
from hypothesis import given, settings
from plait import cpu, nd
from plait.graph import branches, program
from plait.graph.graph import Builder, variable
from plait.kernels import backend
from plait.kernels.record import Type

F = Builder(train=True)


@pytest.fixture(scope="module")
def eager_to_split():
    """Every section of two branches runs on two threads, whatever it gains."""
    with pytest.MonkeyPatch.context() as patch:
        here = backend.of(cpu())
        patch.setattr(here, "branches", here.branches._replace(gain_us=-1e9))
        patch.setattr(branches, "MIN_BRANCH_US", 0.0)
        patch.setattr(program, "INLINE_US", 0.0)  # on a lane, which has a thread pool
        yield


def _towers(n_towers: int, depth: int, shape=(8, 8)):
    x = variable("x", Type(shape))
    tops = []
    for k in range(n_towers):
        y = F._plus_scalar(x, scalar=float(k))
        for _ in range(depth):
            y = F.tanh(F._mul_scalar(y, scalar=1.5))
        tops.append(y)
    return [F.add_n(*tops)], [x]


def test_small_branches_are_not_split():
    outputs, given_ = _towers(2, 1)
    assert program.Assignment(outputs, given_, cpu(), 2, 0).ends == []


def test_parallel_branches_give_the_same_bits(eager_to_split):
    outputs, given_ = _towers(4, 40, (32, 32))
    split = program.assemble(outputs, given_, cpu(), "split", 2)
    plain = program.assemble(outputs, given_, cpu(), "plain", 1)
    assert program.Assignment(outputs, given_, cpu(), 2, 0).ends
    x = nd.array(np.random.default_rng(0).normal(size=(32, 32)).astype("float32"))
    want = plain.run([x])[0].asnumpy()
    for _ in range(20):
        np.testing.assert_array_equal(split.run([x])[0].asnumpy(), want)


def test_towers_become_branches(eager_to_split):
    outputs, given_ = _towers(3, 2)
    made = program.Assignment(outputs, given_, cpu(), 2, 0)
    assert made.sections == [0, 0, 0, 1] and made.ends == [5, 10, 15, 16]
    assert program.Assignment(outputs, given_, cpu(), 1, 0).ends == []


@settings(max_examples=150)
@given(dags.graphs())
def test_random_graphs_give_the_same_bits(eager_to_split, graph):
    outputs, variables = graph
    split = program.assemble(outputs, variables, cpu(), "split", 2)
    plain = program.assemble(outputs, variables, cpu(), "plain", 1)
    want = plain.run(dags.draw_arrays(variables, 5))
    for a, b in zip(split.run(dags.draw_arrays(variables, 5)), want):
        assert dags.bits(a) == dags.bits(b)
