"""Models over several ranks: against one process and NumPy."""

import launched
import numpy as np
import pytest
from plait.dist.pipeline import order


@pytest.mark.parametrize("n", [1, 2])
def test_gradients_of_collectives_are_those_of_the_sum_of_all_losses(n):
    assert "done" in launched.succeed(n, ["parallel.py", "gradients"])


@pytest.mark.parametrize("n", [1, 2])
def test_graphs_with_collectives_equal_eager_calls(n):
    assert "done" in launched.succeed(n, ["parallel.py", "graphs"])


def split_weights(n: int, sizes: str, words: str, file) -> dict[str, np.ndarray]:
    launched.succeed(n, ["parallel.py", "split_weights", sizes, words, str(file)])
    return dict(np.load(f"{file}.npz"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in one process."""
    return split_weights(1, "1x1", "rows", tmp_path_factory.mktemp("alone") / "saved")


@pytest.mark.parametrize(
    "n, sizes, words",
    [(2, "1x2", "rows"), (2, "2x1", "rows"), (2, "1x2", "columns"), (4, "2x2", "rows")],
)
def test_split_weights_give_outputs_gradients_and_weights_of_one_process(
    n, sizes, words, alone, tmp_path
):
    split = split_weights(n, sizes, words, tmp_path / "saved")
    assert split.keys() == alone.keys()
    # some gradients, as that of the keys' bias, are zero but for rounding
    for kind in ("out", "grad", "weight"):
        names = [name for name in alone if name.startswith(kind)]
        scale = max(np.abs(alone[name]).max() for name in names)
        for name in names:
            np.testing.assert_allclose(split[name], alone[name], atol=1e-5 * scale, err_msg=name)


@pytest.mark.parametrize("n, schedule", [(2, "1f1b"), (2, "gpipe"), (4, "1f1b")])
def test_a_pipeline_gives_gradients_and_weights_of_one_process(n, schedule):
    assert "done" in launched.succeed(n, ["parallel.py", "pipelines", schedule])


@pytest.mark.parametrize("n_stages", [1, 2, 4, 7])
@pytest.mark.parametrize("n", [1, 3, 8])
@pytest.mark.parametrize("kind", ["gpipe", "1f1b"])
def test_the_order_of_a_pipeline_ends_and_keeps_few_micro_batches(kind, n_stages, n):
    """Simulates all stages: each step must find what it reads from its neighbours."""
    orders = [order(kind, n_stages, stage, n) for stage in range(n_stages)]
    done, at = set(), [0] * n_stages
    most = [0] * n_stages
    moved = True
    while moved:
        moved = False
        for stage, steps in enumerate(orders):
            if at[stage] == len(steps):
                continue
            what, i = steps[at[stage]]
            neighbour = stage - 1 if what == "forward" else stage + 1
            if 0 <= neighbour < n_stages and (what, i, neighbour) not in done:
                continue
            assert what == "forward" or ("forward", i, stage) in done
            done.add((what, i, stage))
            at[stage] += 1
            moved = True
            kept = sum((-1) ** (w == "backward") for w, _ in steps[: at[stage]])
            most[stage] = max(most[stage], kept)
    assert at == [2 * n] * n_stages
    assert most == [n if kind == "gpipe" else min(n, n_stages - s) for s in range(n_stages)]


@pytest.mark.parametrize("case", ["layouts", "mistakes", "scaled"])
def test_layouts_of_single_operators_and_what_mistakes_are_told(case):
    assert "done" in launched.succeed(2, ["parallel.py", case])


@pytest.mark.parametrize("channels_last", [False, True])
def test_split_channels_give_the_weights_of_whole_ones(channels_last):
    assert "done" in launched.succeed(2, ["parallel.py", "pictures", str(channels_last)])
