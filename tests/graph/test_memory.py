"""The memory plan: buffers that live together never overlap, the arena is no larger than their sum,
and it is fast."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from plait.graph.passes.memory import ALIGN_BYTES, Buffer, plan_memory, rounded

buffers = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 12)).map(
        lambda t: Buffer(t[0], t[1], t[1] + t[2])
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(buffers)
def test_live_buffers_never_overlap(plan):
    offsets, size = plan_memory(plan)
    assert size <= sum(rounded(b.nbytes) for b in plan)
    for i, a in enumerate(plan):
        assert offsets[i] % ALIGN_BYTES == 0 and 0 <= offsets[i] and offsets[i] + a.nbytes <= size
        for j, b in enumerate(plan[:i]):
            if a.first <= b.last and b.first <= a.last:
                assert offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i], (
                    a,
                    b,
                )


@settings(max_examples=100)
@given(buffers)
def test_arena_holds_at_least_what_is_alive(plan):
    _, size = plan_memory(plan)
    alive = [
        sum(rounded(b.nbytes) for b in plan if b.first <= step <= b.last) for step in range(50)
    ]
    assert size >= max(alive)


def test_chain_needs_two_buffers():
    _, size = plan_memory([Buffer(1000, i, i + 1) for i in range(100)])
    assert size == 2 * rounded(1000)


def test_a_hundred_thousand_buffers_take_seconds():
    """Lives of very different length leave thousands of holes, which a scan of all holes would not
    survive."""
    plan = [Buffer(64 * (1 + i * 7919 % 500), i, i + 1 + i * 104729 % 2000) for i in range(100_000)]
    start = time.thread_time()
    offsets, size = plan_memory(plan)
    assert time.thread_time() - start < 20
    assert len(offsets) == len(plan) and size < sum(b.nbytes for b in plan) / 10
