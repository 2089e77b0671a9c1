"""A link between two machines that is cut: network namespaces stand for the machines."""

import pytest
from plait.tools.benchmark.namespaces import Namespaces, NotAllowed
from ranks import SIZE, Job


@pytest.fixture
def machines():
    try:
        with Namespaces() as made:
            yield made
    except NotAllowed as error:
        pytest.skip(str(error))


# lost: packets vanish in one direction, as when a switch fails; down: an interface is off
CUTS = {
    "lost": ("route", "replace", "blackhole", "192.0.2.0/25"),
    "down": ("link", "set", "eth0", "down"),
}


@pytest.mark.parametrize("cut", CUTS)
def test_both_sides_of_a_cut_link_say_so_and_end(machines, tmp_path, cut):
    near, far = machines.within(0), machines.within(1)
    job = Job(tmp_path, "time.sleep(1000)", within=[near, near, far], PLAIT_COMM_TIMEOUT="12")
    try:
        machines.ip("-n", machines.names[1], *CUTS[cut])
        ends = job.ends()
    finally:
        job.close()
    assert [status for status, _, _ in ends] == [1] * SIZE
    said = "its link is cut, or its machine is off: it acknowledges no messages for 2 s"
    assert f"plait: rank 2 of 3: {said}\n" in ends[0][2]
    assert (
        f"cause: rank 2 of 3: {said}\n" in ends[0][2]
        and f"cause: rank 2 of 3: {said}\n" in ends[1][2]
    )
    assert f"cause: rank 0 of 3: {said}\n" in ends[2][2]
