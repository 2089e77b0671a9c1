"""Schedules of collectives: who sends which bytes to whom, and what is combined, in rounds.

A schedule is data: `engine/core/comm.c` runs it over MPI, the tests run it over NumPy. It fixes the
order in which values are combined, so all ranks get the same bits, in every run:

- `direct`, up to DIRECT_RANKS ranks: the order of ranks;
- `ring`: a part starts at the rank after its owner and goes once around;
- `tree`, for small arrays of many ranks: pairs, pairs of pairs, ..., the lower rank first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SCRATCH = -1  # in place of an array's number
SEND, RECEIVE, COMBINE, COPY = range(4)
SLICE_BYTES = 1 << 20
SLOTS = 4  # slices at a time
SMALL_BYTES = 1 << 14  # takes about as long as a message without bytes: docs/design/scale.md
DIRECT_RANKS = 8


class Place(NamedTuple):
    array: int  # or SCRATCH
    start: int  # elements

    def __add__(self, n):  # type: ignore[override]
        return Place(self.array, self.start + n)


class Step(NamedTuple):
    """SEND n elements at `at` to peer, RECEIVE them there, COMBINE the operands into it, COPY the
    operand to it."""

    kind: int
    at: Place
    n: int
    peer: int = -1
    operands: tuple[Place, ...] = ()


class Round(NamedTuple):
    messages: list[Step]  # run together
    steps: list[Step]  # run after them, in order


@dataclass
class Schedule:
    """Slices are lists of rounds; scratch: elements that each of SLOTS slices has for itself."""

    n_arrays: int
    slices: list[list[Round]] = field(default_factory=list)
    scratch: int = 0

    def add(self, rounds: list[Round], scratch: int = 0) -> None:
        self.slices.append(rounds)
        self.scratch = max(self.scratch, scratch)


def _pieces(n: int, longest: int) -> Iterator[tuple[int, int]]:
    """(start, length) of pieces of n elements, at most `longest` each and about equal."""
    count = max(1, -(-n // max(1, longest)))
    for k in range(count):
        start = n * k // count
        yield start, n * (k + 1) // count - start


def _parts(n: int, ranks: int) -> list[tuple[int, int]]:
    """(start, length) of each rank's part of n elements."""
    return [(n * r // ranks, n * (r + 1) // ranks - n * r // ranks) for r in range(ranks)]


def all_reduce(n: int, ranks: int, rank: int, itemsize: int, in_place: bool) -> Schedule:
    """Every rank gets the combination of all ranks' n elements. Arrays: the values and the result,
    one array when in_place."""
    source, target = Place(0, 0), Place(0 if in_place else 1, 0)
    made = Schedule(1 if in_place else 2)
    longest = SLICE_BYTES if ranks <= DIRECT_RANKS else max(SLICE_BYTES, SMALL_BYTES * ranks)
    for start, length in _pieces(n, longest // itemsize):
        _reduce_slice(made, source + start, target + start, length, ranks, rank, itemsize)
    return made


def bucket(
    sizes: tuple[int, ...], ranks: int, rank: int, itemsize: int, in_place: bool
) -> Schedule:
    """all_reduce of several arrays as one: they are packed into scratch memory. Arrays: the values,
    and, unless in_place, the results."""
    n_arrays, total, packed = len(sizes), sum(sizes), Place(SCRATCH, 0)
    made = Schedule(n_arrays if in_place else 2 * n_arrays)
    first = 0 if in_place else n_arrays  # result
    pack, unpack, at = [], [], 0
    for i, n in enumerate(sizes):
        pack.append(Step(COPY, packed + at, n, operands=(Place(i, 0),)))
        unpack.append(Step(COPY, Place(first + i, 0), n, operands=(packed + at,)))
        at += n
    _reduce_slice(made, packed, packed, total, ranks, rank, itemsize, total)
    made.slices[0].insert(0, Round([], pack))
    made.slices[0].append(Round([], unpack))
    return made


def _reduce_slice(made, source, target, n, ranks, rank, itemsize, used: int = 0) -> None:
    """One slice of all_reduce. used: elements of scratch memory that are taken."""
    spare = Place(SCRATCH, used)
    if ranks == 1:
        rounds, scratch = [_local(source, target, n)], 0
    elif ranks > DIRECT_RANKS:
        # what 2 (ranks - 1) messages cost, beside log2(ranks) with all bytes
        small = n * itemsize <= SMALL_BYTES * 2 * (ranks - 1) // (ranks.bit_length() - 1)
        rounds, scratch = (_tree if small else _ring)(source, target, n, ranks, rank, spare)
    elif n * itemsize <= SMALL_BYTES:
        rounds, scratch = _whole(source, target, n, ranks, rank, spare)
    else:
        parts = _parts(n, ranks)
        start, length = parts[rank]
        scattered, scratch = _direct_scatter(source, target + start, parts, rank, spare)
        rounds = [scattered, _direct_gather(target + start, target, parts, rank)]
    made.add(rounds, used + scratch)


def _local(source: Place, target: Place, n: int) -> Round:
    return Round([], [] if source == target else [Step(COPY, target, n, operands=(source,))])


def _whole(source, target, n, ranks, rank, spare) -> tuple[list[Round], int]:
    """Every rank sends all its values to all others."""
    messages, operands = [], []
    for peer in range(ranks):
        if peer == rank:
            operands.append(source)
            continue
        place = spare + n * (peer - (peer > rank))
        messages += [Step(SEND, source, n, peer), Step(RECEIVE, place, n, peer)]
        operands.append(place)
    return [Round(messages, [Step(COMBINE, target, n, operands=tuple(operands))])], n * (ranks - 1)


def _direct_scatter(source, target, parts, rank, spare) -> tuple[Round, int]:
    """Every rank receives all ranks' values for its part, and combines them into target."""
    n = parts[rank][1]
    messages, operands = [], []
    for peer, (start, length) in enumerate(parts):
        if peer == rank:
            operands.append(source + start)
            continue
        place = spare + n * (peer - (peer > rank))
        messages += [Step(SEND, source + start, length, peer), Step(RECEIVE, place, n, peer)]
        operands.append(place)
    combined = Step(COMBINE, target, n, operands=tuple(operands))
    return Round(messages, [combined]), n * (len(parts) - 1)


def _direct_gather(source, target, parts, rank) -> Round:
    """Every rank sends its part, at source, to all; target gets the parts side by side."""
    messages = []
    for peer, (start, length) in enumerate(parts):
        if peer != rank:
            messages += [
                Step(SEND, source, parts[rank][1], peer),
                Step(RECEIVE, target + start, length, peer),
            ]
    mine = target + parts[rank][0]
    return Round(messages, _local(source, mine, parts[rank][1]).steps)


def _ring(source, target, n, ranks, rank, spare) -> tuple[list[Round], int]:
    parts = _parts(n, ranks)
    rounds, longest = _ring_scatter(source, target, parts, rank, spare)
    return rounds + _ring_gather(target, parts, rank), longest


def _ring_scatter(source, target, parts, rank, spare) -> tuple[list[Round], int]:
    """Afterwards each rank has its combined part in target."""
    ranks = len(parts)
    rounds = []
    for k in range(ranks - 1):
        start, n = parts[(rank - k - 1) % ranks]
        sent = (source if k == 0 else target) + start
        start, length = parts[(rank - k - 2) % ranks]
        got = Step(RECEIVE, spare, length, (rank - 1) % ranks)
        combined = Step(COMBINE, target + start, length, operands=(spare, source + start))
        rounds.append(Round([Step(SEND, sent, n, (rank + 1) % ranks), got], [combined]))
    return rounds, max(n for _, n in parts)


def _ring_gather(target, parts, rank) -> list[Round]:
    ranks = len(parts)
    rounds = []
    for k in range(ranks - 1):
        start, n = parts[(rank - k) % ranks]
        at, length = parts[(rank - k - 1) % ranks]
        sent = Step(SEND, target + start, n, (rank + 1) % ranks)
        rounds.append(Round([sent, Step(RECEIVE, target + at, length, (rank - 1) % ranks)], []))
    return rounds


def _tree(source, target, n, ranks, rank, spare) -> tuple[list[Round], int]:
    """Recursive doubling. Ranks beyond the largest power of two join a lower one."""
    power = 1 << (ranks.bit_length() - 1)
    rounds = [_local(source, target, n)]
    extra = ranks - power
    if rank >= power:
        rounds.append(Round([Step(SEND, target, n, rank - power)], []))
        rounds.append(Round([Step(RECEIVE, target, n, rank - power)], []))
        return rounds, 0
    if rank < extra:
        combined = Step(COMBINE, target, n, operands=(target, spare))
        rounds.append(Round([Step(RECEIVE, spare, n, rank + power)], [combined]))
    distance = 1
    while distance < power:
        peer = rank ^ distance
        operands = (target, spare) if rank < peer else (spare, target)
        messages = [Step(SEND, target, n, peer), Step(RECEIVE, spare, n, peer)]
        rounds.append(Round(messages, [Step(COMBINE, target, n, operands=operands)]))
        distance *= 2
    if rank < extra:
        rounds.append(Round([Step(SEND, target, n, rank + power)], []))
    return rounds, n


def reduce_scatter(n: int, ranks: int, rank: int, itemsize: int) -> Schedule:
    """Each rank gets its n elements of the combination of all ranks' ranks * n. Arrays: the values,
    the result."""
    made = Schedule(2)
    for start, length in _pieces(n, SLICE_BYTES // itemsize // ranks):
        parts = [(r * n + start, length) for r in range(ranks)]
        source, target, spare = Place(0, 0), Place(1, start), Place(SCRATCH, 0)
        if ranks == 1:
            made.add([_local(source + start, target, length)])
        elif ranks <= DIRECT_RANKS:
            scattered, scratch = _direct_scatter(source, target, parts, rank, spare)
            made.add([scattered], scratch)
        else:  # partial results of all parts need memory: one after the other
            rounds, scratch = _ring_scatter(source, spare + length, _packed(parts), rank, spare)
            rounds = [_unpacked(r, parts, length) for r in rounds]
            mine = spare + (1 + rank) * length
            rounds.append(Round([], [Step(COPY, target, length, operands=(mine,))]))
            made.add(rounds, scratch + ranks * length)
    return made


def _packed(parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Parts side by side."""
    return [(i * n, n) for i, (_, n) in enumerate(parts)]


def _unpacked(made: Round, parts: list[tuple[int, int]], n: int) -> Round:
    """A round over packed parts, with what it reads of array 0 at the parts' own places."""

    def at(place: Place) -> Place:
        return place if place.array else Place(0, parts[place.start // max(1, n)][0])

    return Round(
        [s._replace(at=at(s.at)) for s in made.messages],
        [s._replace(operands=tuple(map(at, s.operands))) for s in made.steps],
    )


def all_gather(n: int, ranks: int, rank: int, itemsize: int) -> Schedule:
    """Every rank gets all ranks' n elements, in the order of ranks. Arrays: the values, the
    result."""
    made = Schedule(2)
    for start, length in _pieces(n, SLICE_BYTES // itemsize):
        parts = [(r * n + start, length) for r in range(ranks)]
        source, target = Place(0, start), Place(1, 0)
        if ranks <= DIRECT_RANKS:
            made.add([_direct_gather(source, target, parts, rank)])
        else:
            own = _local(source, target + parts[rank][0], length)
            made.add([own, *_ring_gather(target, parts, rank)])
    return made


def reduce_parts(n: int, ranks: int, rank: int, itemsize: int, lengths: tuple) -> Schedule:
    """Each rank gets its part of the combination of all ranks' n elements, in place; the rest of
    its array stays. lengths: of the ranks' parts, which lie side by side."""
    made = Schedule(1)
    for parts in _parts_of_slices(n, itemsize, lengths):
        array = Place(0, 0)
        mine = array + parts[rank][0]
        scattered, scratch = _direct_scatter(array, mine, parts, rank, Place(SCRATCH, 0))
        made.add([_not_empty(scattered)], scratch)
    return made


def gather_parts(n: int, ranks: int, rank: int, itemsize: int, lengths: tuple) -> Schedule:
    """Every rank gets the other ranks' parts of an array of n elements, in place. lengths: of the
    ranks' parts, which lie side by side."""
    made = Schedule(1)
    for parts in _parts_of_slices(n, itemsize, lengths):
        mine = Place(0, parts[rank][0])
        made.add([_not_empty(_direct_gather(mine, Place(0, 0), parts, rank))])
    return made


def _parts_of_slices(n: int, itemsize: int, lengths: tuple) -> Iterator[list[tuple[int, int]]]:
    """(start, length) of each rank's part of each slice."""
    count = max(1, -(-n * itemsize // SLICE_BYTES))
    starts = [sum(lengths[:r]) for r in range(len(lengths))]
    for k in range(count):
        yield [
            (start + m * k // count, m * (k + 1) // count - m * k // count)
            for start, m in zip(starts, lengths)
        ]


def _not_empty(made: Round) -> Round:
    return Round([s for s in made.messages if s.n], [s for s in made.steps if s.n])


def all_to_all(n: int, ranks: int, rank: int, itemsize: int) -> Schedule:
    """Rank r gets the r-th n elements of every rank, in the order of ranks. Arrays: the values, the
    result."""
    made = Schedule(2)
    for start, length in _pieces(n, SLICE_BYTES // itemsize):
        messages = []
        for k in range(1, ranks):  # not all to the same rank at once
            to, of = (rank + k) % ranks, (rank - k) % ranks
            messages += [
                Step(SEND, Place(0, to * n + start), length, to),
                Step(RECEIVE, Place(1, of * n + start), length, of),
            ]
        own = _local(Place(0, rank * n + start), Place(1, rank * n + start), length)
        made.add([Round(messages, own.steps)])
    return made


def broadcast(n: int, ranks: int, rank: int, itemsize: int, root: int) -> Schedule:
    """Every rank's array becomes that of root: along a binomial tree, slice behind slice."""
    made, me = Schedule(1), (rank - root) % ranks
    for start, length in _pieces(n, SLICE_BYTES // itemsize):
        at, rounds = Place(0, start), []
        distance = 1
        while distance < ranks:  # after the rounds before, ranks below distance have it
            if me < distance and me + distance < ranks:
                peer = (me + distance + root) % ranks
                rounds.append(Round([Step(SEND, at, length, peer)], []))
            elif distance <= me < 2 * distance:
                peer = (me - distance + root) % ranks
                rounds.append(Round([Step(RECEIVE, at, length, peer)], []))
            distance *= 2
        made.add(rounds)
    return made


def nothing(ranks: int, rank: int, itemsize: int) -> Schedule:
    """No message: only the descriptions are compared. Array: what is written when they match."""
    return Schedule(1)


def send(n: int, ranks: int, rank: int, itemsize: int, peer: int) -> Schedule:
    """n elements to a rank."""
    return _message(SEND, n, itemsize, peer)


def receive(n: int, ranks: int, rank: int, itemsize: int, peer: int) -> Schedule:
    """n elements of a rank."""
    return _message(RECEIVE, n, itemsize, peer)


def _message(kind: int, n: int, itemsize: int, peer: int) -> Schedule:
    made = Schedule(1)
    for start, length in _pieces(n, SLICE_BYTES // itemsize):
        made.add([Round([Step(kind, Place(0, start), length, peer)], [])])
    return made
