"""Batches: which requests are joined, in which sizes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait.tools.serve import buckets
from plait.tools.serve.protocol import Tensor
from serving import Running, Twice, asking, busy, infer, waiting


def test_requests_that_wait_are_joined_and_each_gets_its_rows(running):
    first = busy(running)
    others = waiting(running, 5, lambda i: [i] * 3 * (1 + i % 2))  # 7 rows
    running.made[0].gate.set()
    answers = running(first, *others)
    assert [a.status for a in answers] == [200] * 6
    for i, answer in enumerate(answers[1:]):
        assert answer.json["outputs"][0]["data"] == [2 * i] * 3 * (1 + i % 2)
    calls = running.made[0].calls
    assert calls[0] == 1 and 7 <= sum(calls[1:]) <= 8 and set(calls) <= {1, 2, 4, 8}


def test_a_batch_has_no_more_rows_than_it_may(running):
    first = busy(running)
    others = waiting(running, 20)
    running.made[0].gate.set()
    assert {a.status for a in running(first, *others)} == {200}
    assert max(running.made[0].calls) <= 8 and sum(running.made[0].calls[1:]) >= 20


def test_a_refused_row_does_not_take_others_with_it(running):
    first = busy(running)
    others = waiting(running, 4, lambda i: [-1 if i == 2 else i] * 3)
    running.made[0].gate.set()
    assert [a.status for a in running(first, *others)] == [200, 200, 200, 422, 200]


class Centred(Twice):
    """Subtracts the mean of the batch: rows depend on each other."""

    def run(self, arrays):
        (x,) = arrays
        self.calls.append(len(x))
        return [x - x.mean(axis=0)]


class Sum(Twice):
    """One number for the batch."""

    def run(self, arrays):
        self.calls.append(len(arrays[0]))
        return [arrays[0].sum()]


@pytest.mark.parametrize("kind", [Centred, Sum])
def test_rows_that_depend_on_each_other_are_not_joined(folder, kind):
    with Running(folder, kind) as running:
        assert "no batches" in running.told[0]
        running.made[0].calls.clear()
        answers = running(*[infer(running.app, asking([i] * 6)) for i in range(4)])
        assert {a.status for a in answers} == {200} and running.made[0].calls == [2] * 4


class Undeclared(Twice):
    inputs = [Tensor("x", None, None)]


def test_a_model_without_declared_shapes_takes_so_many_of_them(folder):
    with Running(folder, Undeclared, shapes=2) as running:
        assert "no model.json" in running.told[0]

        def status(n):
            return running(infer(running.app, asking([1.0] * n, [n]))).status

        negative = asking([-1.0] * 9, [9])
        assert [status(3), status(4)] == [200, 200]
        answer = running(infer(running.app, asking([1.0] * 5, [5])))
        assert answer.status == 422 and "--max-shapes" in answer.error
        assert status(3) == 200
    with Running(folder, Undeclared, shapes=1) as running:
        assert running(infer(running.app, negative)).status == 422
        assert status(3) == 200  # what the model refuses takes no place


@settings(max_examples=30)
@given(times=st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_a_plan_is_the_cheapest_way(times):
    seconds = dict(zip((1, 2, 4, 8), np.maximum.accumulate(np.cumsum(times)).tolist()))
    plan, smooth = buckets.Plan(seconds), buckets._smooth(seconds)
    for n in range(1, 9):
        calls = plan.calls(n)
        assert sum(calls) >= n and set(calls) <= set(seconds)
        ways = (w for k in range(1, n + 1) for w in product(smooth, repeat=k) if sum(w) >= n)
        best = min(sum(smooth[s] for s in w) for w in ways) if n < 5 else 0
        assert n in smooth or n >= 5 or sum(smooth[s] for s in calls) <= best + 1e-9
        assert n not in smooth or calls == [n]


def test_sizes_of_batches():
    assert buckets.sizes(8) == [1, 2, 4, 8] and buckets.sizes(6) == [1, 2, 4, 6]
    assert buckets.sizes(1) == [1]
