"""Collectives and training on several ranks: against NumPy, and against one process."""

import launched
import numpy as np
import pytest

START = "import plait as mx; from plait import dist, nd; world = dist.init()\n"


@pytest.mark.parametrize("n", launched.RANKS)
def test_collectives_have_the_values_of_numpy_and_the_same_bits(n):
    assert launched.succeed(n, ["collectives.py"]).startswith(f"{n} ")


def test_one_process_needs_no_launcher():
    assert launched.succeed(1, ["collectives.py"]).startswith("1 ")


def trained(n, folder):
    """The digests and weights of all cases of training.py."""
    folder.mkdir()
    lines = launched.succeed(n, ["training.py", str(folder)]).splitlines()
    digests = dict(line.split()[1:] for line in lines if line.startswith("digest "))
    assert len(digests) == 9, lines
    return digests, {case: np.load(folder / f"{case}.npz") for case in digests}


@pytest.mark.parametrize("n", launched.RANKS)
def test_training_on_ranks_gives_the_weights_of_one_process(n, tmp_path):
    """LeNet, an LSTM, a sparse embedding; by Trainer, Module and Horovod's API."""
    _, alone = trained(1, tmp_path / "alone")
    digests, shared = trained(n, tmp_path / "first")
    again, _ = trained(n, tmp_path / "second")
    assert digests == again, "two runs have different bits"
    for case, weights in alone.items():
        for name, wanted in weights.items():
            atol = 1e-6 * np.abs(wanted).max()
            np.testing.assert_allclose(shared[case][name], wanted, 1e-6, atol, err_msg=case)


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


def test_sums_in_place_leave_what_is_stored():
    out = launched.succeed(
        2,
        START + "kv, sizes = mx.kv.create('dist_sync'), (3, 20000, 5)\n"
        "kv.init([0, 1, 2], [nd.zeros((n,)) for n in sizes])\n"
        "grads = [[nd.full((n,), world.rank + 1 + n)] for n in sizes]\n"
        "kv.sum_in_place([0, 1, 2], grads, [0, -1, -2])\n"
        "stored = [nd.ones((n,)) for n in sizes]\n"
        "kv.pull([0, 1, 2], out=stored)\n"
        "assert all((g.asnumpy() == 3 + 2 * n).all() for (g,), n in zip(grads, sizes))\n"
        "assert not any(s.asnumpy().any() for s in stored)\n"
        "print('summed')",
    )
    assert out.count("summed") == 2


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


def test_a_message_of_another_size_waits_for_what_explains_it():
    """Rank 2 gets rank 0's values before rank 1, which compares itself with rank 0, begins."""
    status, out = launched.run(
        3,
        START + "x, token = nd.ones((2 + (world.rank == 0), 3)), nd.zeros((1,))\n"
        "try:\n"
        "    if world.rank == 1: dist.receive(token, 2).wait_to_read()\n"
        "    y = dist.all_reduce(x, name='weights')\n"
        "    if world.rank == 0: dist.send(token, 2)\n"
        "    if world.rank == 2:\n"
        "        dist.receive(token, 0).wait_to_read()\n"
        "        dist.send(token, 1)\n"
        "    y.wait_to_read()\n"
        "except mx.MXNetError as error:\n"
        "    text = str(error).replace(chr(10), ' ')\n"
        "    print('rank', world.rank, 'is told', text, flush=True)\n"
        "    raise",
    )
    assert status == 1
    told = [line for line in out.splitlines() if " is told " in line]
    assert len(told) == 3, out
    for line in told:
        assert "ranks do not run the same operations" in line, out
        assert "(2, 3) weights" in line and "(3, 3) weights" in line, out


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
