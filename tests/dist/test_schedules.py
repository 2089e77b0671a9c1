"""Schedules, run over NumPy: every rank count gets what NumPy computes, and the same bits on all
ranks."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from plait.dist import schedules
from plait.dist.group import compile_schedule
from plait.dist.schedules import COMBINE, COPY, RECEIVE, SCRATCH, SEND

RANKS = [1, 2, 3, 4, 8, 9, 12, 13]
SIZES = [0, 1, 5, 30, 300, 5000]


@pytest.fixture(autouse=True)
def small_slices(monkeypatch):
    """The largest size has several slices, the middle ones are small for some numbers of ranks."""
    monkeypatch.setattr(schedules, "SLICE_BYTES", schedules.SLICE_BYTES >> 7)
    monkeypatch.setattr(schedules, "SMALL_BYTES", schedules.SMALL_BYTES >> 7)


def run(made: list[schedules.Schedule], arrays: list[list[np.ndarray]]) -> None:
    """Runs the schedules of all ranks on their arrays. Slices run one after the other, in an order
    that differs between ranks."""
    wires: dict = collections.defaultdict(collections.deque)
    pending = []
    for rank, schedule in enumerate(made):
        order = range(len(schedule.slices))
        pending += [
            work(rank, s, schedule, arrays[rank], wires) for s in (order, order[::-1])[rank % 2]
        ]
    while pending:
        left = [p for p in pending if next(p, "done") != "done"]
        pending = left
    assert not any(wires.values()), "messages that nobody received"


def work(rank, number, schedule, arrays, wires):
    scratch = np.full(schedule.scratch, np.nan, np.float32)

    def at(place, n):
        memory = scratch if place.array == SCRATCH else arrays[place.array]
        assert 0 <= place.start and place.start + n <= memory.size
        return memory[place.start : place.start + n]

    for messages, steps in schedule.slices[number]:
        for step in messages:
            if step.kind == SEND:
                wires[rank, step.peer, number].append(at(step.at, step.n).copy())
        for step in messages:
            if step.kind == RECEIVE:
                wire = wires[step.peer, rank, number]
                while not wire:
                    yield
                value = wire.popleft()
                assert value.size == step.n
                at(step.at, step.n)[:] = value
        for step in steps:
            parts = [at(p, step.n) for p in step.operands]
            if step.kind == COPY:
                at(step.at, step.n)[:] = parts[0]
            else:
                assert step.kind == COMBINE
                total = parts[0].copy()
                for part in parts[1:]:
                    total = total + part
                at(step.at, step.n)[:] = total


def values(n: int, ranks: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).standard_normal((ranks, n)).astype(np.float32))


def check_sum(results: list[np.ndarray], expected: np.ndarray) -> None:
    assert all(r.tobytes() == results[0].tobytes() for r in results)
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("in_place", [True, False])
def test_all_reduce(ranks, n, in_place):
    x = values(n, ranks)
    made = [schedules.all_reduce(n, ranks, r, 4, in_place) for r in range(ranks)]
    arrays = [[v.copy()] if in_place else [v.copy(), np.zeros(n, np.float32)] for v in x]
    run(made, arrays)
    check_sum([a[-1] for a in arrays], np.sum(x, 0, dtype=np.float64))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("in_place", [True, False])
def test_bucket(ranks, in_place):
    sizes = (3, 0, 550, 11)
    x = values(sum(sizes), ranks)
    ends = np.cumsum(sizes)[:-1]
    arrays = [[part.copy() for part in np.split(v, ends)] for v in x]
    results = arrays if in_place else [[np.zeros_like(part) for part in a] for a in arrays]
    all_arrays = arrays if in_place else [a + r for a, r in zip(arrays, results)]
    run([schedules.bucket(sizes, ranks, r, 4, in_place) for r in range(ranks)], all_arrays)
    check_sum([np.concatenate(r) for r in results], np.sum(x, 0, dtype=np.float64))
    if not in_place:
        assert all(np.array_equal(np.concatenate(a), v) for a, v in zip(arrays, x))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("n", SIZES)
def test_reduce_scatter(ranks, n):
    x = values(n * ranks, ranks)
    arrays = [[v.copy(), np.zeros(n, np.float32)] for v in x]
    run([schedules.reduce_scatter(n, ranks, r, 4) for r in range(ranks)], arrays)
    expected = np.sum(x, 0, dtype=np.float64).reshape(ranks, n)
    for (_, part), wanted in zip(arrays, expected):
        np.testing.assert_allclose(part, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("n", SIZES)
def test_all_gather(ranks, n):
    x = values(n, ranks)
    arrays = [[v, np.zeros(n * ranks, np.float32)] for v in x]
    run([schedules.all_gather(n, ranks, r, 4) for r in range(ranks)], arrays)
    for _, whole in arrays:
        np.testing.assert_array_equal(whole, np.concatenate(x))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("n", SIZES[:-1])
def test_all_to_all(ranks, n):
    x = values(n * ranks, ranks)
    arrays = [[v, np.zeros(n * ranks, np.float32)] for v in x]
    run([schedules.all_to_all(n, ranks, r, 4) for r in range(ranks)], arrays)
    whole = np.stack(x).reshape(ranks, ranks, n)
    for r, (_, got) in enumerate(arrays):
        np.testing.assert_array_equal(got, whole[:, r].reshape(-1))


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("root", [0, 1, -1])
@pytest.mark.parametrize("n", [1, 5000])
def test_broadcast(ranks, root, n):
    root %= ranks
    x = values(n, ranks)
    arrays = [[v.copy()] for v in x]
    run([schedules.broadcast(n, ranks, r, 4, root) for r in range(ranks)], arrays)
    for (got,) in arrays:
        np.testing.assert_array_equal(got, x[root])


def test_send_and_receive():
    x = values(5000, 2)
    made = [schedules.send(5000, 2, 0, 4, 1), schedules.receive(5000, 2, 1, 4, 0)]
    arrays = [[x[0].copy()], [x[1].copy()]]
    run(made, arrays)
    np.testing.assert_array_equal(arrays[1][0], x[0])


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("owner", [None, 0, -1])
def test_parts(ranks, n, owner):
    """Equal parts, or one rank has all."""
    ends = [n * r // ranks for r in range(ranks + 1)]
    if owner is not None:
        ends = [n * (r > owner % ranks) for r in range(ranks + 1)]
    lengths = tuple(b - a for a, b in zip(ends, ends[1:]))
    x = values(n, ranks)
    arrays = [[v.copy()] for v in x]
    run([schedules.reduce_parts(n, ranks, r, 4, lengths) for r in range(ranks)], arrays)
    in_order = x[0].copy()
    for v in x[1:]:
        in_order += v
    for r, (got,) in enumerate(arrays):
        mine = slice(ends[r], ends[r + 1])
        np.testing.assert_array_equal(got[mine], in_order[mine])
        got[: ends[r]] = got[ends[r + 1] :] = np.nan
    run([schedules.gather_parts(n, ranks, r, 4, lengths) for r in range(ranks)], arrays)
    for (got,) in arrays:
        np.testing.assert_array_equal(got, in_order)


def test_a_large_array_has_many_slices_and_needs_no_more_memory(monkeypatch):
    """6 GiB, which nothing allocates here: more slices than there are tags for them."""
    monkeypatch.undo()
    made = schedules.all_reduce(3 << 29, 4, 1, 4, True)
    assert len(made.slices) == 6 << 10
    assert compile_schedule(made, "float32", 4, "sum")
    assert made.scratch <= schedules.all_reduce(1 << 28, 4, 1, 4, True).scratch
    ends = 0
    for scattered, gathered in made.slices:  # each byte once
        start = min(
            s.at.start for s in (*scattered.messages, *gathered.messages) if s.at.array == 0
        )
        assert start == ends
        ends += sum({(s.at.start, s.n): s.n for s in gathered.messages}.values())
    assert ends == 3 << 29
