"""SplitSampler: the shares of ranks."""

import pytest
from plait import dist, gluon
from plait.gluon.data import BatchSampler, SplitSampler


@pytest.mark.parametrize(("length", "parts"), [(12, 3), (13, 3), (7, 7), (100, 8)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_shares_are_disjoint_and_of_one_size_in_every_pass(length, parts, shuffle):
    samplers = [SplitSampler(length, parts, r, shuffle) for r in range(parts)]
    passes = []
    for _ in range(3):
        shares = [list(s) for s in samplers]
        assert {len(s) for s in shares} == {len(samplers[0])} == {length // parts}
        seen = sum(shares, [])
        assert len(set(seen)) == len(seen) and set(seen) <= set(range(length))
        passes.append(seen)
    assert (passes[0] != passes[1] != passes[2]) == shuffle
    assert len({len(list(BatchSampler(s, 2))) for s in samplers}) == 1


def test_parts_are_the_ranks_by_default():
    assert dist.size() == 1
    assert sorted(SplitSampler(5)) == list(range(5))


def test_seeds_give_other_orders_and_state_continues():
    one, other = SplitSampler(50, seed=1), SplitSampler(50, seed=2)
    assert list(one) != list(other)
    again = SplitSampler(50, seed=1)
    again.load_state_dict(one.state_dict())
    assert list(again) == list(one)


def test_errors():
    with pytest.raises(
        ValueError, match=r"part_index must be in \[0, num_parts\) = \[0, 2\), got 2"
    ):
        gluon.data.SplitSampler(5, 2, 2)
    with pytest.raises(ValueError, match="3 items cannot be split in 4 parts"):
        gluon.data.SplitSampler(3, 4, 0)
