"""Simulates one all-reduce of gradients on 8 to 4,096 ranks: `python tools/benchmark/scale.py`.

A message of m bytes costs a + b m seconds; a byte that is added costs g. A node sends and receives
at the same time, one message after the other. What docs/design/scale.md concludes comes from here.
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

RANKS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
NODE = 8  # ranks of a node, for `hierarchical`
SLICE, SLOTS = 1 << 20, 4  # of dist/schedules.py
ADD = 0.1e-9  # seconds a byte that is added: two reads and a write at 30 GB/s


class Link(NamedTuple):
    """a: seconds a message, b: seconds a byte."""

    a: float
    b: float


LINKS = {
    "1 Gbit/s TCP (measured)": Link(50e-6, 8.3e-9),
    "10 Gbit/s TCP": Link(25e-6, 0.85e-9),
    "100 Gbit/s RoCE": Link(3e-6, 0.085e-9),
    "200 Gbit/s InfiniBand": Link(1.5e-6, 0.042e-9),
}
INSIDE = Link(1e-6, 0.07e-9)  # of a node: shared memory, measured: 14 GB/s both ways


def rounds(steps: int, each: float, n: float, link: Link, added: float = 0.0) -> float:
    """steps rounds of `each` bytes a slice, for n slices of which SLOTS travel at a time: either
    the link is busy, or every group of slices waits for its rounds."""
    busy = n * steps * (each * link.b + link.a / SLOTS)
    waits = math.ceil(n / SLOTS) * steps * (link.a + each * link.b)
    return max(busy, waits) + n * added * ADD


def direct(size: float, p: int, link: Link) -> float:
    """Everyone sends to everyone, twice: 2 (p - 1) messages of a part of each slice."""
    n = math.ceil(size / SLICE)
    part = size / n / p
    return n * 2 * (p - 1) * (link.a + part * link.b) + size * ADD


def ring(size: float, p: int, link: Link) -> float:
    n = math.ceil(size / SLICE)
    return rounds(2 * (p - 1), size / n / p, n, link, size / n * (p - 1) / p)


def wide_ring(size: float, p: int, link: Link) -> float:
    """The ring with slices that grow with p, so that a message is worth its latency."""
    per_message = max(link.a / link.b, SLICE / p)
    n = max(1, math.ceil(size / (per_message * p)))
    return rounds(2 * (p - 1), size / n / p, n, link, size / n)


def tree(size: float, p: int, link: Link) -> float:
    """Recursive doubling: all bytes in each of log2(p) rounds."""
    return math.ceil(math.log2(p)) * (link.a + size * (link.b + ADD))


def halving(size: float, p: int, link: Link) -> float:
    """Recursive halving, then doubling: 2 log2(p) messages, each byte twice."""
    share = size * (p - 1) / p
    return 2 * math.ceil(math.log2(p)) * link.a + 2 * share * link.b + share * ADD


def hierarchical(size: float, p: int, link: Link) -> float:
    """Reduce-scatter in a node, `halving` of each part over nodes, all-gather in the node. The
    parts of a node share its link."""
    nodes = max(1, p // NODE)
    inside = 2 * (NODE - 1) * INSIDE.a + 2 * size * (NODE - 1) / NODE * INSIDE.b + size * ADD
    return inside + (halving(size, nodes, link) if nodes > 1 else 0)


SCHEDULES = {f.__name__: f for f in (direct, ring, wide_ring, tree, halving, hierarchical)}


def heartbeat(p: int) -> dict[str, float]:
    """Of rank 0, the centre of the star: links, messages a second, bytes when one rank fails."""
    return {"links": p - 1, "messages/s": 2 * (p - 1), "failure bytes": (p - 1) * 512}


def incast(p: int) -> float:
    """Bytes that may wait at one port when all send their part of SLOTS slices to one rank."""
    return (p - 1) * SLOTS * SLICE / p


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, nargs="*", default=[0.016, 1, 100])
    args = parser.parse_args()
    for name, link in LINKS.items():
        for mb in args.mb:
            print(f"\n{name}, {mb:g} MB, ms\n| ranks | " + " | ".join(SCHEDULES) + " |")
            print("|---:" * (1 + len(SCHEDULES)) + "|")
            for p in RANKS:
                times = [f(mb * 1e6, p, link) * 1e3 for f in SCHEDULES.values()]
                print(f"| {p} | " + " | ".join(f"{t:.4g}" for t in times) + " |")
    print("\n| ranks | heartbeat links | messages/s | incast MB |\n|---:|---:|---:|---:|")
    for p in RANKS:
        beat = heartbeat(p)
        print(f"| {p} | {beat['links']} | {beat['messages/s']} | {incast(p) / 1e6:.1f} |")


if __name__ == "__main__":
    main()
