"""Jobs of processes on this machine, without MPI: how one rank's end is told to all."""

import os
import signal
import subprocess
import sys

import pytest
from plait.dist import heartbeat
from ranks import SIZE, START, Job


@pytest.fixture
def job(tmp_path):
    started = []

    def start(code, **env):
        started.append(Job(tmp_path, code, **env))
        return started[0]

    yield start
    started[0].close()


def test_a_job_that_ends_well(job):
    for status, out, err in job("sys.exit(0)").ends():
        assert (status, out, err) == (0, "", "")


def test_a_rank_that_raises_ends_all_and_they_say_why(job):
    """Also those that sleep; what these have printed is not lost."""
    running = job(
        """
def load():
    raise ValueError("no such record: 17")
if rank == 1:
    load()
print("no newline", end="")
time.sleep(1000)  # here
"""
    )
    ends = running.ends()
    assert [status for status, _, _ in ends] == [1] * SIZE
    why = f"rank 1 of 3 failed: ValueError: no such record: 17\n  at: {running.line('raise Val')}"
    assert "Traceback" in ends[1][2] and f"plait: {why}" not in ends[1][2]
    assert ends[1][1] == "abandoned\n"
    assert f"plait: {why}\n" in ends[0][2]
    for rank in (0, 2):
        assert f"plait: rank {rank} of 3 is ended: the job was given up" in ends[rank][2]
        assert f"  at: {running.line('# here')}\n  cause: {why}\n" in ends[rank][2]
        assert ends[rank][1] == "no newline"


def test_rank_0_says_itself_why_it_failed(job):
    """Others may have failed at the same moment, and take themselves for the reason."""
    ends = job("if rank == 0: raise ValueError('no such record')\ntime.sleep(1000)").ends()
    said = "plait: rank 0 of 3 failed: ValueError: no such record"
    assert [err.count(said) for _, _, err in ends] == [1, 0, 0]


def test_a_rank_that_holds_pythons_lock_is_ended_too(job):
    ends = job(
        """
import ctypes
heartbeat.FORCED_S = 0.1
if rank == 2:
    ctypes.PyDLL(None).pause()  # like a C function that hangs
if rank == 1:
    raise KeyError("k")
"""
    ).ends()
    assert [status for status, _, _ in ends] == [1] * SIZE
    assert "rank 2 of 3 is ended" in ends[2][2] and "KeyError: 'k'" in ends[2][2]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed(job, rank):
    """Also where silence has no end."""
    running = job("time.sleep(1000)", PLAIT_COMM_TIMEOUT="0")
    running.ranks[rank].kill()
    others = [r for r in range(SIZE) if r != rank]
    for status, _, err in running.ends(*others):
        assert status == 1
        assert f"rank {rank} of 3: its process ended without a message" in err and "fix:" in err


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_is_stopped_and_goes_on_later(job, rank):
    running = job("time.sleep(1000)", PLAIT_COMM_TIMEOUT="12")
    os.kill(running.ranks[rank].pid, signal.SIGSTOP)
    others = [r for r in range(SIZE) if r != rank]
    for status, _, err in running.ends(*others):
        assert status == 1
        assert f"rank {rank} of 3: its process is stopped" in err and "for 2 s" in err
    os.kill(running.ranks[rank].pid, signal.SIGCONT)
    [(status, _, err)] = running.ends(rank)
    assert status == 1 and f"rank {rank} of 3: its process is stopped" in err


def test_an_error_that_nothing_waited_for_fails_the_job(job):
    ends = job(
        """
x = engine.Var()
def fail():
    raise ValueError("at the end")
if rank == 2:
    engine.push(fail, writes=[x], name="last")
"""
    ).ends()
    assert [status for status, _, _ in ends] == [1] * SIZE
    assert "plait: rank 2 of 3 failed: " in ends[0][2] and "at the end" in ends[0][2]


def test_a_program_that_replaces_our_hook(job):
    ends = job(
        """
sys.excepthook = lambda *args: None
if rank == 2:
    raise ValueError("unseen")
"""
    ).ends()
    assert [status for status, _, _ in ends] == [1] * SIZE
    assert "plait: rank 2 of 3 failed: ValueError: unseen\n  at: " in ends[0][2]


def test_ctrl_c_on_one_rank(job):
    running = job(
        """
if rank == 1:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        ready()
        time.sleep(1000)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
"""
    )
    running.wait_ready(1)
    running.ranks[1].send_signal(signal.SIGINT)
    ends = running.ends()
    assert [status for status, _, _ in ends][::2] == [1, 1] and ends[1][0] != 0
    assert "rank 1 of 3 failed: KeyboardInterrupt\n  at: " in ends[0][2]


def test_children_do_not_speak_for_their_rank(job):
    """A forked child that fails, and one that outlives its rank: others still see its end."""
    running = job(
        """
if rank == 1:
    r, w = os.pipe()
    if os.fork() == 0:
        raise ValueError("of a child")
    os.wait()
    if os.fork() == 0:
        os.close(1), os.close(2)
        time.sleep(20)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1000)
"""
    )
    for status, _, err in running.ends(0, 2):
        assert status == 1 and "rank 1 of 3: its process ended without a message" in err


def test_what_a_thread_ended_with_is_told_with_a_good_end(job):
    ends = job(
        """
from plait.engine import ffi, lib
if rank == 1:
    def load():
        raise OSError("no space")
    thread = threading.Thread(target=load, name="loader")
    thread.start()
    thread.join()
else:
    text = ffi.new("char[]", 4096)
    while lib.pl_heartbeat_text(1, text, 4096) == lib.PL_RANK_ALIVE:
        lib.pl_heartbeat_wait(1)
    print(ffi.string(text).decode())
"""
    ).ends()
    assert [status for status, _, _ in ends] == [0] * SIZE
    assert ends[0][1].startswith("its thread 'loader' ended with OSError: no space\n  at: ")


def test_how_long_a_rank_may_be_silent():
    """A sixth of what an operation waits, within limits; 0: for ever."""
    found = [heartbeat.patience_s(s) for s in (1, 12, 30, 60, 600)]
    assert found == [2, 2, 5, 10, 10] and heartbeat.patience_s(0) >= 86400


def test_a_rank_that_does_not_come(tmp_path):
    code = START.replace("heartbeat.GRACE_S", "heartbeat.JOIN_S = 0.1; heartbeat.GRACE_S")
    code = code.replace("with open", "continue\n        with open")
    done = subprocess.run(
        [sys.executable, "-c", code, "0", "2", tmp_path, "1"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "rank 1 of 2 did not connect to rank 0 within 0.1 s" in done.stderr
