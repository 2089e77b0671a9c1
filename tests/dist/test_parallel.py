"""Models over several ranks: against one process and NumPy."""

import launched
import numpy as np
import pytest
from plait.dist.pipeline import order


def done(n: int, *cases: str) -> None:
    """Cases of parallel.py, all in one job."""
    printed = launched.succeed(n, ["parallel.py", *cases])
    assert printed.count("done") == len(cases), printed


@pytest.mark.parametrize("n", sorted({1, *launched.RANKS}))
def test_collectives_have_gradients_and_run_in_graphs(n):
    done(n, "gradients", "graphs")


def test_layouts_of_single_operators_and_what_mistakes_are_told():
    done(2, "mistakes", "layouts", "scaled")


def test_split_channels_give_the_weights_of_whole_ones():
    done(2, "pictures,False", "pictures,True")


CASES = {1: ["1x1,rows"], 2: ["1x2,rows", "2x1,rows", "1x2,columns"], 4: ["2x2,rows"]}


def split_weights(n: int, folder) -> dict[str, dict[str, np.ndarray]]:
    """What training over each mesh of n ranks gave."""
    files = {case: folder / case.replace(",", "-") for case in CASES[n]}
    done(n, *(f"split_weights,{case},{file}" for case, file in files.items()))
    return {case: dict(np.load(f"{file}.npz")) for case, file in files.items()}


def test_split_weights_give_outputs_gradients_and_weights_of_one_process(tmp_path):
    (alone,) = split_weights(1, tmp_path).values()
    for case, split in {**split_weights(2, tmp_path), **split_weights(4, tmp_path)}.items():
        assert split.keys() == alone.keys()
        # some gradients, as that of the keys' bias, are zero but for rounding
        for kind, rtol in (("out", 1e-6), ("grad", 1e-6), ("norm", 1e-6), ("weight", 3e-6)):
            names = [name for name in alone if name.startswith(kind)]
            scale = max(np.abs(alone[name]).max() for name in names)
            for name in names:
                np.testing.assert_allclose(
                    split[name], alone[name], atol=rtol * scale, err_msg=f"{case} {name}"
                )


@pytest.mark.parametrize("n", launched.RANKS)
def test_a_pipeline_gives_gradients_and_weights_of_one_process(n):
    done(n, "pipelines,1f1b", "pipelines,gpipe")


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
