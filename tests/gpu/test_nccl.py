"""Collectives between GPUs: NCCL in the engine, in one process and in two, against NumPy."""

import os
import subprocess
import sys
from pathlib import Path

import launched
import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.dist import nccl
from plait.dist.nccl import READ, UPDATE, WRITE
from plait.engine import lib

HERE = Path(__file__).resolve().parent
RANKS = str(HERE / "nccl_ranks.py")
two = pytest.mark.skipif(mx.num_gpus() < 2, reason="needs two GPUs")
pytestmark = two
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]


def whole(shape, seed):
    """Numbers of which sums are exact in every dtype."""
    return np.random.default_rng(seed).integers(0, 9, shape)


def on(values, device, dtype):
    return nd.array(values, ctx=mx.gpu(device), dtype="float32").astype(dtype)


def numbers(a):
    return a.astype("float64").asnumpy()


def run(kind, arguments, arrays, uses, operation="sum"):
    """A collective of two GPUs of this process; arrays[d]: those of gpu(d)."""
    n = len(arrays[0])
    calls = [
        step._replace(
            device=d,
            source=step.source and (d * n + step.source[0], step.source[1]),
            target=step.target and (d * n + step.target[0], step.target[1]),
        )
        for d in range(2)
        for step in nccl.steps(kind, 2, *arguments)
    ]
    clique = nccl.clique_of((0, 1))
    clique.push(calls, [a for some in arrays for a in some], list(uses) * 2, operation, kind)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_over_the_gpus_of_a_process(dtype):
    values = [[whole(shape, 10 * d + len(shape)) for d in range(2)] for shape in ((7,), (40, 33))]
    arrays = [[on(v, d, dtype) for d, v in enumerate(key)] for key in values]
    nccl.sum_over(arrays)
    for key, some in zip(values, arrays):
        for a in some:
            np.testing.assert_array_equal(numbers(a), key[0] + key[1])


@pytest.mark.parametrize("dtype", [*DTYPES, "bool"])
def test_what_moves_values(dtype):
    values = [whole((2, 5), d) % 2 if dtype == "bool" else whole((2, 5), d) for d in range(2)]
    inputs = [on(v, d, dtype) for d, v in enumerate(values)]
    new = lambda *shape: [nd.empty(shape, ctx=mx.gpu(d), dtype=dtype) for d in range(2)]
    gathered, exchanged = new(4, 5), new(2, 5)
    run("all_gather", (10,), list(zip(inputs, gathered)), (READ, WRITE))
    run("all_to_all", (5,), list(zip(inputs, exchanged)), (READ, WRITE))
    for d in range(2):
        np.testing.assert_array_equal(numbers(gathered[d]), np.concatenate(values))
        np.testing.assert_array_equal(numbers(exchanged[d]), [values[0][d], values[1][d]])
    run("gather_parts", (10, (3, 7)), [[a] for a in inputs], (UPDATE,))
    parts = np.concatenate([values[0].ravel()[:3], values[1].ravel()[3:]])
    for a in inputs:
        np.testing.assert_array_equal(numbers(a).ravel(), parts)
    run("broadcast", (10, 1), [[inputs[0]], [on(values[1], 1, dtype)]], (UPDATE,))
    np.testing.assert_array_equal(numbers(inputs[0]), values[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", ["sum", "prod", "max", "min"])
def test_what_combines_values(dtype, operation):
    combine = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[operation]
    values = [whole((4, 3), d) for d in range(2)]
    wanted = combine(*values)
    inputs = [on(v, d, dtype) for d, v in enumerate(values)]
    new = lambda *shape: [nd.empty(shape, ctx=mx.gpu(d), dtype=dtype) for d in range(2)]
    results, parts = new(4, 3), new(2, 3)
    run("all_reduce", (12, False), list(zip(inputs, results)), (READ, WRITE), operation)
    run("reduce_scatter", (6,), list(zip(inputs, parts)), (READ, WRITE), operation)
    run("reduce_parts", (12, (5, 7)), [[a] for a in inputs], (UPDATE,), operation)
    for d in range(2):
        np.testing.assert_array_equal(numbers(results[d]), wanted)
        np.testing.assert_array_equal(numbers(parts[d]), wanted[2 * d : 2 * d + 2])
    np.testing.assert_array_equal(numbers(inputs[0]).ravel()[:5], wanted.ravel()[:5])
    np.testing.assert_array_equal(numbers(inputs[1]).ravel()[5:], wanted.ravel()[5:])


def test_a_view_is_summed_where_it_is():
    arrays = [nd.array(np.arange(6.0), ctx=mx.gpu(d)) for d in range(2)]
    nccl.sum_over([[a[2:4] for a in arrays]])
    for a in arrays:
        np.testing.assert_array_equal(a.asnumpy(), [0, 1, 4, 6, 4, 5])


def test_a_poisoned_array_fails_its_sum_alone():
    def fail():
        raise ValueError("on purpose")

    good = [nd.ones((3,), ctx=mx.gpu(d)) for d in range(2)]
    bad = [nd.ones((3,), ctx=mx.gpu(d)) for d in range(2)]
    mx.engine.push(fail, writes=[bad[1]])
    nccl.sum_over([bad])
    nccl.sum_over([good])
    for a in bad:
        with pytest.raises(ValueError, match="on purpose"):
            a.wait_to_read()
    np.testing.assert_array_equal(good[1].asnumpy(), [2, 2, 2])


def test_memory_of_another_gpu_is_refused(emulator):
    arrays = [nd.ones((3,), ctx=mx.gpu(0)), nd.ones((3,), ctx=mx.gpu(0))]
    nd.waitall()
    calls = [nccl.Step(lib.PL_NCCL_ALL_REDUCE, 3, (d, 0), (d, 0), device=d) for d in range(2)]
    nccl.clique_of((0, 1)).push(calls, arrays, [UPDATE] * 2, "sum", "wrong")
    with pytest.raises(mx.MXNetError, match="wrong: NCCL: invalid argument.*memory of gpu.0.*"):
        arrays[1].wait_to_read()
    assert "memory of gpu(0) given to the rank of gpu(1)" in emulator.fault()
    emulator.reset()
    nd.waitall()


# ---- processes of their own --------------------------------------------------------------------


IMPORTS = "import plait as mx; from plait import nd\n"


def alone(program, status=0, **env):
    """What a program printed that runs in one process."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTS + program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_library_that_is_missing_or_too_old():
    said = alone(
        "from plait.engine import cuda\n"
        "find, driver = cuda.find, cuda.find('cuda')\n"
        "for found in (None, driver):\n"
        "    cuda.find = lambda name: found if name == 'nccl' else find(name)\n"
        "    try: mx.kv.create('nccl')\n"
        "    except mx.MXNetError as error: print(error)\n"
    )
    assert "NCCL (libnccl.so.2), which was not found\n  fix: pip install nvidia-nccl-cu13" in said
    assert "NCCL is too old, it has no nccl" in said


CALLS_DIFFER = """
from plait.dist import nccl
from plait.engine import lib
arrays = [nd.ones((4,), ctx=mx.gpu(d)) for d in range(2)]
step = lambda d, n: nccl.Step(lib.PL_NCCL_ALL_REDUCE, n, (d, 0), (d, 0), device=d)
clique = nccl.clique_of((0, 1))
clique.push([step(0, 4), step(1, 3)], arrays, [nccl.UPDATE] * 2, "sum", "different")
for x in (arrays[0], nd.ones((2,), ctx=mx.gpu(1))):
    try: print(x.asnumpy())
    except mx.MXNetError as error: print(error)
nd.waitall()
"""


def test_calls_that_differ_fail_all_that_gpus_compute(emulator):
    said = alone(CALLS_DIFFER)
    assert said.count("different: NCCL: invalid usage: ranks make different calls") == 2, said
    assert said.count("at: <string>:8") == 2, said
    assert "nothing waited for" not in said


def test_a_deadline_in_one_process(emulator):
    program = CALLS_DIFFER.replace("[step(0, 4), step(1, 3)]", "[step(0, 4)]")
    said = alone(program, PLAIT_COMM_TIMEOUT="0.5")
    assert said.count("different: rank 0 waited 0.5 s for the other ranks' GPUs") == 2, said


# ---- two processes -----------------------------------------------------------------------------


START = (
    "import plait as mx; from plait import dist, nd; world = dist.init()\n"
    "gpu = mx.gpu(world.rank); number = world.new_id()\n"
    "x = nd.ones((4,), ctx=gpu) * (1 + world.rank)\n"
    "def total(**how): return dist.all_reduce(x, name='w', **how)\n"
)


def test_collectives_of_two_processes():
    assert launched.succeed(2, [RANKS, "collectives"]).startswith("2 ")


def test_naive_mode():
    out = launched.succeed(
        2,
        START + "made = [total(), dist.all_gather(x), dist.reduce_scatter(x), dist.all_to_all(x),\n"
        "    dist.broadcast(x.copy(), 1)]\n"
        "print([a.asnumpy().tolist() for a in made] if world.rank else '')",
        PLAIT_ENGINE="naive",
    )
    assert (
        str([[3.0] * 4, [1.0] * 4 + [2.0] * 4, [3.0] * 2, [1.0, 1.0, 2.0, 2.0], [2.0] * 4]) in out
    )


def test_ranks_whose_arrays_are_ready_in_different_orders():
    assert "in order" in launched.succeed(2, [RANKS, "order"])


def test_training_on_two_processes_gives_the_weights_of_one(tmp_path):
    """LeNet, an LSTM, a sparse embedding; by Trainer, Module and Horovod's API."""
    for n, script in ((1, ["training.py"]), (2, [RANKS, "training"])):
        (tmp_path / str(n)).mkdir()
        launched.succeed(n, [*script, str(tmp_path / str(n))])
    cases = sorted(file.name for file in (tmp_path / "1").glob("*.npz"))
    assert len(cases) == 9
    for case in cases:
        alone, shared = (np.load(tmp_path / n / case) for n in "12")
        for name in alone:
            np.testing.assert_allclose(shared[name], alone[name], rtol=2e-4, atol=2e-5)


def test_sharded_states_have_the_same_bits():
    assert "same bits" in launched.succeed(2, [RANKS, "sharded"])


def test_ranks_that_run_other_operations_are_told_so():
    status, out = launched.run(
        2, START + "dist.all_reduce(nd.ones((2 + world.rank,), ctx=gpu)).wait_to_read()"
    )
    assert status == 1
    assert "all_reduce sum float32 (2,) on GPUs" in out
    assert "all_reduce sum float32 (3,) on GPUs" in out


def test_a_rank_whose_array_is_on_the_host_is_told_so():
    status, out = launched.run(
        2,
        START + "total().wait_to_read()\n"
        "dist.all_reduce(nd.ones((2,), ctx=mx.cpu() if world.rank else gpu)).wait_to_read()",
    )
    assert status == 1
    assert "ranks do not run the same operations" in out
    assert "all_reduce sum float32 (2,) on GPUs" in out


@pytest.mark.parametrize("engine", ["threaded", "naive"])
def test_a_deadline_names_operation_rank_and_line(engine):
    status, out = launched.run(
        2,
        START + "total(key=number).wait_to_read()\n"
        "import threading\n"
        "if world.rank: threading.Event().wait()\n"
        "total(key=number).wait_to_read()",
        PLAIT_COMM_TIMEOUT="2",
        PLAIT_ENGINE=engine,
    )
    assert status == 1
    assert "all_reduce w: rank 0 waited 2 s for the other ranks' GPUs\n  at: <string>:4" in out, out


def test_a_rank_that_is_killed_ends_what_waits_for_it():
    status, out = launched.run(
        2,
        START + "total(key=number).wait_to_read()\n"
        "import os, signal\n"
        "if world.rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "try: total(key=number).wait_to_read()\n"
        "except mx.MXNetError as error: print('rank 0 says', error, flush=True)",
        within_s=60,
    )
    assert status == 1
    assert "rank 0 says rank 1 of 2: its process ended without a message" in out, out


def test_unequal_numbers_of_batches_end_in_an_error_that_names_the_rank():
    status, out = launched.run(
        2, START + "for step in range(3 - world.rank):\n    total(key=number).wait_to_read()"
    )
    assert status == 1
    assert "all_reduce w: rank 0 waits for rank 1, whose program has ended" in out, out


def test_a_rank_that_skips_a_collective_is_not_matched_with_the_next_one():
    status, out = launched.run(
        2,
        START + "total(key=number).wait_to_read()\n"
        "def fail(): raise ValueError('on purpose')\n"
        "if world.rank == 0: mx.engine.push(fail, writes=[x])\n"
        "first = total(key=number)\n"
        "x = nd.ones((4,), ctx=gpu)\n"
        "print(world.rank, 'got', total(key=number).asnumpy())",
    )
    assert status == 1
    assert "got" not in out, out
    assert "earlier collective of this rank did not run" in out, out


def test_one_gpu_for_two_ranks_is_refused():
    status, out = launched.run(2, START.replace("gpu(world.rank)", "gpu(0)") + "total().asnumpy()")
    assert status == 1
    assert "NCCL: invalid usage" in out and "Duplicate GPU" in out, out
