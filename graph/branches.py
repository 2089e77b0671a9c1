"""Branches: steps of a program that may run at once, found by what they read and what they cost.

A section is a list of branches without a path between them; a branch is a list of steps. Large
kernels split themselves among the threads, or fill a GPU, and get nothing out of company. Many
small ones do, each on one thread or on a few of a GPU's processors: heads of attention, towers of
small layers, updates of small arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine import Context, lib
from ..kernels import backend
from ..kernels.plan import Plan
from .graph import Node, Value

MAX_BUFS = 16  # BRANCH_BUFS of program.c
MIN_BRANCH_US = 2.0  # a shorter branch may be joined to another one


def small(plan: Plan, limit_bytes: int) -> bool:
    """May this call run beside others: on one thread, without drawing numbers or writing inputs?"""
    return (
        not plan.can_fail
        and not plan.mutated
        and len(plan.in_specs) + len(plan.out_specs) <= MAX_BUFS
        and not plan.op.is_random(plan.attrs)
        and sum(s.nbytes for s in plan.in_specs + plan.out_specs) <= limit_bytes
    )


def find_sections(
    steps: Sequence[Node],
    plans: Sequence[Plan],
    alone: set[Node],
    base: Callable[[Value], Value],
    threads: int,
    device: Context,
) -> list[list[list[int]]]:
    """Sections in the order in which they must run; together they hold every step once.

    threads: how many branches run at once. alone: nodes that must keep their place, because the
    graph writes memory that they use.
    """
    limits = backend.of(device).branches
    if limits is None:
        return [[[i]] for i in range(len(steps))]
    sections: list[list[list[int]]] = []
    group: dict[int, list[int]] = {}  # of the section being made: its groups by their first step
    group_of: dict[int, int] = {}
    made_by: dict[Node, int] = {}
    cost: dict[int, float] = {}

    def close() -> None:
        total = sum(cost.values())
        if len(group) > 1 and total - max(total / threads, *cost.values()) >= limits.gain_us:
            sections.append(list(group.values()))
        else:
            sections.extend([[i]] for i in sorted(group_of))
        for at in (group, group_of, made_by, cost):
            at.clear()

    for i, (node, plan) in enumerate(zip(steps, plans)):
        if node in alone or not small(plan, limits.small_bytes):
            close()
            sections.append([[i]])
            continue
        makers = [made_by[b.node] for v in node.inputs if (b := base(v)).node in made_by]
        joined = sorted({group_of[m] for m in makers})
        if sum(cost[g] >= MIN_BRANCH_US for g in joined) > 1:
            close()
            joined = []
        first = joined[0] if joined else i
        steps_of = group.setdefault(first, [])
        for g in joined[1:]:
            moved = group.pop(g)
            steps_of += moved
            cost[first] += cost.pop(g)
            group_of.update((m, first) for m in moved)
        steps_of.sort()
        steps_of.append(i)
        cost[first] = cost.get(first, 0.0) + plan.cost_us
        group_of[i] = first
        made_by[node] = i
    close()
    return sections


def at_once(device: Context) -> int:
    """How many branches of a program may run at once."""
    limits = backend.of(device).branches
    return 1 if limits is None else limits.at_once or lib.pl_thread_pool_size()
