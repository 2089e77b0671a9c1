"""Batch sizes: the few that are compiled, and how rows are divided among them."""

from __future__ import annotations

from collections.abc import Mapping


def sizes(most: int) -> list[int]:
    """1, 2, 4 ... and `most`."""
    powers = [1 << i for i in range(most.bit_length())]
    return powers if powers[-1] == most else [*powers, most]


class Plan:
    """How n rows run, from the seconds of a call of each size.

    Where a call of 8 rows costs hardly more than one of 4, 5 rows are padded to 8; where the time
    grows with the rows, they run as 4 and 1.

    >>> Plan({1: 1.0, 2: 1.1, 4: 1.2, 8: 1.3}).calls(5)
    [8]
    >>> Plan({1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}).calls(5)
    [4, 1]
    """

    def __init__(self, seconds: Mapping[int, float]):
        """seconds: by size; 1 is one of them."""
        self.most = max(seconds)
        seconds = _smooth(seconds)
        self.seconds = [0.0]  # of n rows
        self._first = [0]  # the size of the first call of n rows
        for n in range(1, self.most + 1):
            exact = [n] if n in seconds else sorted(seconds, reverse=True)
            cost, size = min((seconds[s] + self.seconds[max(n - s, 0)], -s) for s in exact)
            self.seconds.append(cost)
            self._first.append(-size)
        # what n rows that wait could save at most, if others joined them
        self.saving = [
            max((self.seconds[n] + self.seconds[m - n] - self.seconds[m]
                 for m in seconds if m > n), default=0.0)
            for n in range(self.most + 1)
        ]  # fmt: skip

    def calls(self, rows: int) -> list[int]:
        """The sizes of the calls that compute so many rows, at most `most`."""
        made = []
        while rows > 0:
            made.append(self._first[rows])
            rows -= made[-1]
        return made


def _smooth(seconds: Mapping[int, float]) -> dict[int, float]:
    """Without what a busy machine added: fewer rows never cost more than more rows, and more rows
    never more than several calls."""
    made = {n: min(s for m, s in seconds.items() if m >= n) for n in sorted(seconds)}
    for n in made:
        made[n] = min(made[m] * -(-n // m) for m in made if m <= n)
    return made


def linear(most: int) -> Plan:
    """A plan for what was not measured: each row costs the same, nothing is padded."""
    return Plan({n: float(n) * 1e-9 for n in sizes(most)})
