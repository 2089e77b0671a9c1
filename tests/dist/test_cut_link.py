"""A link between two machines that is cut: network namespaces stand for the machines."""

import os
import shutil
import subprocess

import pytest
from ranks import SIZE, Job

NAMES = [f"plait-{os.getpid()}-{side}" for side in "ab"]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def machines():
    """Two network namespaces with a link between them; skips where they are not allowed."""
    if not shutil.which("ip"):
        pytest.skip("needs ip, of iproute2")
    try:
        for name in NAMES:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
    try:
        a, b = NAMES
        ip("link", "add", "eth0", "netns", a, "type", "veth", "peer", "name", "eth0", "netns", b)
        for number, name in enumerate(NAMES, 1):
            ip("-n", name, "addr", "add", f"192.0.2.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield NAMES
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


# lost: packets vanish in one direction, as when a switch fails; down: an interface is off
CUTS = {
    "lost": ("route", "replace", "blackhole", "192.0.2.0/25"),
    "down": ("link", "set", "eth0", "down"),
}


@pytest.mark.parametrize("cut", CUTS)
def test_both_sides_of_a_cut_link_say_so_and_end(machines, tmp_path, cut):
    near, far = (["ip", "netns", "exec", name] for name in machines)
    job = Job(tmp_path, "time.sleep(1000)", within=[near, near, far], PLAIT_HEARTBEAT="3")
    try:
        ip("-n", machines[1], *CUTS[cut])
        ends = job.ends()
    finally:
        job.close()
    assert [status for status, _, _ in ends] == [1] * SIZE
    said = "its link is cut, or its machine is off: it acknowledges no messages for 3 s"
    assert f"plait: rank 2 of 3: {said}\n" in ends[0][2]
    assert (
        f"cause: rank 2 of 3: {said}\n" in ends[0][2]
        and f"cause: rank 2 of 3: {said}\n" in ends[1][2]
    )
    assert f"cause: rank 0 of 3: {said}\n" in ends[2][2]
