"""Cached attributes that are dropped and computed again: graph/derived.py."""

from plait.graph.derived import Derived


class Pair(Derived):
    parts = ("a", "b")
    __slots__ = (*parts, "n")

    def __init__(self):
        self.n = 0

    def derive(self):
        self.n += 1
        return {"a": self.n, "b": self.n}


def test_whole_gives_parts_of_one_computation():
    pair = Pair()
    assert (pair.a, pair.b, pair.n) == (1, 1, 1)
    pair.forget()
    assert pair.whole("a", "b") == [2, 2]
    del pair.a  # as if a thread had forgotten, and another one read meanwhile
    assert pair.whole("b", "a") == [2, 2] and pair.n == 2
    pair.forget()
    assert pair.whole("b") == [3] and pair.n == 3
