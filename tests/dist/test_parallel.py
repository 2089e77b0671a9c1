"""Models over several ranks: against one process and NumPy."""

import launched
import numpy as np
import pytest


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
    gradients = max(np.abs(g).max() for name, g in alone.items() if name.startswith("grad"))
    for name, wanted in alone.items():
        scale = gradients if name.startswith("grad") else np.abs(wanted).max()
        np.testing.assert_allclose(split[name], wanted, atol=1e-5 * scale, err_msg=name)


@pytest.mark.parametrize("case", ["layouts", "mistakes"])
def test_layouts_of_single_operators_and_what_mistakes_are_told(case):
    assert "done" in launched.succeed(2, ["parallel.py", case])
