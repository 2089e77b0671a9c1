"""A rank fails in the middle of training: the job ends, all ranks say why, and it goes on from its
checkpoint with the result of a job in which nothing failed."""

import os
import re

import launched
import pytest
from plait.tools.benchmark.namespaces import Namespaces, NotAllowed

REPEATS = int(os.environ.get("DIST_FAULTS", "1"))  # make dist-test: 20
TOGETHER_S = 10
LAST = "rank {last} of {n}"
SAID = {
    "killed": LAST + ": its process ended without a message: it was killed, or it crashed",
    "stopped": LAST + ": its process is stopped",
    "raises": LAST + " failed: ValueError: no such batch",
    "unequal": "waits for rank {last}, whose program has ended",
    "differs": "norm: ranks do not run the same operations",
    "silent": "waited 3 s for rank {last}",
    "cut": "rank ({far}) of {n}: its link is cut, or its machine is off",
}


def digest(out: str) -> str:
    found = [line.split()[-1] for line in out.splitlines() if "digest" in line]
    assert len(found) == 1, out
    return found[0]


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """The digest of a job of n ranks in which nothing fails."""
    folder, found = tmp_path_factory.mktemp("unharmed"), {}

    def of(n):
        if n not in found:
            found[n] = digest(launched.succeed(n, ["faults.py", "none", str(folder / str(n))]))
        return found[n]

    return of


def check(fault, n, folder, expected, **options):
    """The other ranks get the error within seconds of each other, and what it says is the
    launcher's reason to start the job again."""
    program = ["faults.py", fault, str(folder / "run.ckpt")]
    timeout = "3" if fault == "silent" else "12"  # of 12 s: silence of 2 s is too long
    status, out = launched.run(n, program, restarts=1, PLAIT_COMM_TIMEOUT=timeout, **options)
    said = SAID[fault].format(last=n - 1, n=n, far="|".join(map(str, range(n // 2, n))))
    others = range(n // 2 if fault == "cut" else n - 1)  # what is said beyond the cut is not heard
    assert status == 0, out
    told = {int(r): (float(s), text) for r, s, text in re.findall(r"told (\d+) (\S+) (.*)", out)}
    assert told.keys() >= set(others), out
    for rank in others:
        assert re.search(said, told[rank][1]), out
    seconds = [s for s, _ in told.values()]
    assert max(seconds) - min(seconds) < TOGETHER_S, out
    assert re.search(f"plait launch: .*{said}(?s:.*)plait launch: restart 1 of 1", out), out
    assert digest(out) == expected


@pytest.mark.parametrize("n", launched.RANKS)
@pytest.mark.parametrize("fault", [fault for fault in SAID if fault != "cut"])
@pytest.mark.parametrize("repeat", range(REPEATS))
def test_a_job_goes_on_after_a_fault(fault, n, repeat, unharmed, tmp_path):
    check(fault, n, tmp_path, unharmed(n))


@pytest.mark.parametrize("n", launched.RANKS)
@pytest.mark.parametrize("repeat", range(REPEATS))
def test_a_job_goes_on_after_its_link_was_cut(n, repeat, unharmed, tmp_path):
    try:
        with Namespaces() as machines:
            check("cut", n, tmp_path, unharmed(n), on=(machines, tmp_path))
    except NotAllowed as error:
        pytest.skip(str(error))
