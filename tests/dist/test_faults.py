"""A rank fails in the middle of training: the job ends, says why, and goes on from its checkpoint
with the result of a job in which nothing failed."""

import os

import launched
import pytest
from plait.tools.benchmark.namespaces import Namespaces, NotAllowed

REPEATS = int(os.environ.get("DIST_FAULTS", "1"))  # make dist-test: 20
LAST = "rank {last} of {n}"
SAID = {
    "killed": LAST + ": its process ended without a message: it was killed, or it crashed",
    "stopped": LAST + ": its process is stopped",
    "raises": LAST + " failed: ValueError: no such batch",
    "unequal": "waits for rank {last}, whose program has ended",
    "silent": "waited 3 s for rank {last}",
}


def digest(out: str) -> str:
    found = [line.split()[-1] for line in out.splitlines() if "digest" in line]
    assert len(found) == 1, out
    return found[0]


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """Digests of jobs in which nothing fails, by the number of ranks."""
    folder = tmp_path_factory.mktemp("unharmed")
    return {
        n: digest(launched.succeed(n, ["faults.py", "none", str(folder / str(n))]))
        for n in {2, *launched.RANKS}
    }


def check(status, out, said, expected):
    assert status == 0, out
    assert said in out.replace("\n", " "), out
    assert "plait launch: restart 1 of 1" in out
    assert digest(out) == expected


@pytest.mark.parametrize("n", launched.RANKS)
@pytest.mark.parametrize("fault", SAID)
@pytest.mark.parametrize("repeat", range(REPEATS))
def test_a_job_goes_on_after_a_fault(fault, n, repeat, unharmed, tmp_path):
    program = ["faults.py", fault, str(tmp_path / "run.ckpt")]
    waits = {"PLAIT_COMM_TIMEOUT": "3"} if fault == "silent" else {}
    done = launched.run(n, program, restarts=1, PLAIT_HEARTBEAT="2", **waits)
    check(*done, SAID[fault].format(last=n - 1, n=n), unharmed[n])


@pytest.mark.parametrize("repeat", range(REPEATS))
def test_a_job_goes_on_after_its_link_was_cut(repeat, unharmed, tmp_path):
    try:
        with Namespaces() as machines:
            done = launched.run(
                2,
                ["faults.py", "cut", str(tmp_path / "run.ckpt")],
                restarts=1,
                on=(machines, tmp_path),
                PLAIT_HEARTBEAT="3",
            )
    except NotAllowed as error:
        pytest.skip(str(error))
    check(*done, "its link is cut, or its machine is off", unharmed[2])
