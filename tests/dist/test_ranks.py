"""Collectives and training on several ranks: against NumPy, and against one process."""

import json

import launched
import numpy as np
import pytest

START = "import plait as mx; from plait import dist, nd; world = dist.init()\n"


@pytest.mark.parametrize("n", launched.RANKS)
def test_collectives_have_the_values_of_numpy_and_the_same_bits(n):
    assert launched.succeed(n, ["collectives.py"]).startswith(f"{n} ")


def test_one_process_needs_no_launcher():
    assert launched.succeed(1, ["collectives.py"]).startswith("1 ")


@pytest.mark.parametrize("n_ranks", launched.RANKS)
@pytest.mark.parametrize("model", ["lenet", "lstm", "embedding", "module"])
def test_training_on_ranks_gives_the_weights_of_one_process(model, n_ranks, tmp_path):
    case = json.dumps([model, "dist_sync", {}])
    weights = []
    for n in (1, n_ranks, n_ranks):
        file = tmp_path / f"{len(weights)}.npz"
        printed = launched.succeed(n, ["training.py", case, str(file)])
        weights.append((printed.split()[0], np.load(file)))
    (_, alone), (first, shared), (second, _) = weights
    assert first == second, "two runs have different bits"
    for name in alone:
        scale = np.abs(alone[name]).max()
        np.testing.assert_allclose(shared[name], alone[name], rtol=1e-6, atol=1e-6 * scale)


def test_what_all_ranks_write_to_a_weight_between_steps_stays_as_in_one_process():
    out = launched.succeed(
        2,
        START + "from plait import autograd, gluon\n"
        "p = gluon.Parameter('w', shape=(2,), init='ones')\n"
        "p.initialize()\n"
        "trainer = gluon.Trainer([p], 'sgd', {'learning_rate': 0.125}, kvstore='dist_sync')\n"
        "for _ in range(2):\n"
        "    with autograd.record(): loss = (p.data() * (world.rank + 1)).sum()\n"
        "    loss.backward()\n"
        "    trainer.step(1)\n"
        "    p.data()[:] = p.data() * 2\n"  # 1 - 0.375 = 0.625, 1.25 - 0.375 = 0.875
        "assert p.data().asnumpy().tolist() == [1.75, 1.75]\n"
        "assert p.grad().asnumpy().tolist() == [world.rank + 1] * 2  # its own\n"
        "print('same')",
    )
    assert out.count("same") == 2


def test_ranks_that_run_other_operations_are_told_so():
    status, out = launched.run(
        2,
        START + "x = nd.ones((2 + world.rank, 3))\n"
        "dist.all_reduce(x, name='weights').wait_to_read()",
    )
    assert status == 1
    assert "ranks do not run the same operations" in out
    assert "all_reduce sum float32 (2, 3) weights" in out
    assert "all_reduce sum float32 (3, 3) weights" in out


def test_a_rank_whose_queue_is_full_for_a_while_counts_its_collectives_like_the_others():
    out = launched.succeed(
        2,
        START + "from plait.dist import group\n"
        "class Full:\n"
        "    calls = 0\n"
        "    def __getattr__(self, name): return getattr(core, name)\n"
        "    def pl_schedule_push(self, *arguments):\n"
        "        self.calls += 1\n"
        "        return core.PL_AGAIN if self.calls < 3 else core.pl_schedule_push(*arguments)\n"
        "core = group.lib\n"
        "if world.rank == 1: group.lib = Full()\n"
        "sums = [dist.all_reduce(nd.ones((2,)) * i) for i in range(3)]\n"
        "print('sums', [s.asnumpy().tolist() for s in sums])",
        PLAIT_COMM_TIMEOUT="10",
    )
    assert out.count("sums [[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]]") == 2


def test_unequal_numbers_of_batches_end_in_an_error_that_names_the_rank():
    status, out = launched.run(
        2,
        START + "for step in range(3 - world.rank):\n    x = dist.all_reduce(nd.ones((4,)))\n"
        "    x.wait_to_read()",
    )
    assert status == 1
    assert "rank 0 waits for rank 1, whose program has ended" in out
    assert "fix: the same number of batches on all ranks" in out


def test_a_deadline_names_the_rank_that_did_not_answer():
    status, out = launched.run(
        2,
        START + "import threading\n"
        "if world.rank == 0:\n    dist.all_reduce(nd.ones((4,)), name='w').wait_to_read()\n"
        "threading.Event().wait()",
        PLAIT_COMM_TIMEOUT="2",
    )
    assert status == 1
    assert "all_reduce w: rank 0 waited 2 s for rank 1" in out


def test_a_rank_that_is_killed_ends_the_others_with_its_name():
    status, out = launched.run(
        2,
        START + "import os, signal\n"
        "if world.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "try:\n    dist.all_reduce(nd.ones((4,))).wait_to_read()\n"
        "except mx.MXNetError as error: print('rank 0 says', error, flush=True)",
        within_s=60,
    )
    assert status == 1
    killed = "rank 1 of 2: its process ended without a message: it was killed, or it crashed"
    assert f"rank 0 says {killed}" in out
    assert f"plait launch: {killed}" in out
