"""Models over several ranks: against one process and NumPy."""

import launched
import pytest


@pytest.mark.parametrize("n", [1, 2])
def test_gradients_of_collectives_are_those_of_the_sum_of_all_losses(n):
    assert "done" in launched.succeed(n, ["parallel.py", "gradients"])


@pytest.mark.parametrize("n", [1, 2])
def test_graphs_with_collectives_equal_eager_calls(n):
    assert "done" in launched.succeed(n, ["parallel.py", "graphs"])
