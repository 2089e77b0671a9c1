"""plait launch: its arguments, the command lines of both MPIs, the end of a job."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from plait import __main__ as cli
from plait.engine.error import InvalidValue
from plait.tools import launch, mpiexec

# an mpiexec as MPICH's, for this machine: it ends the other ranks when one fails
FAKE = f"""#!{sys.executable}
import os, signal, subprocess, sys
words, ranks = sys.argv[1:], []
parts = [[]]
for word in words[words.index("-bind-to") + 2 :]:
    parts.append([]) if word == ":" else parts[-1].append(word)
runs = []
for part in parts:
    n, at, env = int(part[part.index("-n") + 1]), part.index("-n") + 2, {{}}
    while part[at] == "-env":
        env[part[at + 1]], at = part[at + 2], at + 3
    runs += [(env, part[at:])] * n
for rank, (env, program) in enumerate(runs):
    env = {{**os.environ, **env, "PMI_RANK": str(rank), "PMI_SIZE": str(len(runs))}}
    ranks.append(subprocess.Popen(program, env=env))
signal.signal(signal.SIGINT, lambda *_: [r.kill() for r in ranks])
status = 0
while ranks:
    pid, ended = os.wait()
    ranks = [r for r in ranks if r.pid != pid]
    if ended and not status:
        status = abs(os.waitstatus_to_exitcode(ended))
        for r in ranks:
            r.kill()
sys.exit(status)
"""
PRINTS = "import os; print(*(os.environ.get(n) for n in {names}))\n"


@pytest.fixture
def started(tmp_path, monkeypatch, capfd):
    """Runs the launcher on the fake mpiexec; returns status, stdout and stderr."""
    program = tmp_path / "mpiexec"
    program.write_text(FAKE)
    program.chmod(0o755)
    monkeypatch.setattr(mpiexec, "find", lambda kind: mpiexec.Mpi("mpich", str(program)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name in ("DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER"):
        monkeypatch.delenv(name, raising=False)

    def run(arguments, code):
        script = tmp_path / "train.py"
        script.write_text(code)
        status = cli.main(["launch", *arguments, str(script)])
        return status, *capfd.readouterr()

    return run


def prints(*names):
    return PRINTS.format(names=names)


def test_workers_come_before_servers_and_know_what_they_are(started):
    code = prints(
        "PMI_RANK", "DMLC_ROLE", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "A", "PLAIT_RESTART"
    )
    arguments = ["-n", "2", "-s", "1", "--env", "A=x y", "--env-server", "A:z"]
    status, out, err = started(arguments, code)
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == [
        "0 worker 2 1 x y 0",
        "1 worker 2 1 x y 0",
        "2 server 2 1 z 0",
    ]


def test_cores_are_shared_by_the_ranks(started, monkeypatch):
    cores = len(os.sched_getaffinity(0))
    code = prints("OMP_NUM_THREADS")
    assert started(["-n", "1"], code)[1].split() == [str(cores)]
    assert started(["-n", str(cores + 1)], code)[1].split() == ["1"] * (cores + 1)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")  # the user's word
    assert started(["-n", "1"], code)[1].split() == ["3"]
    assert started(["-n", "1", "--threads", "2"], code)[1].split() == ["2"]


def test_variables_of_mxnets_trackers(started, monkeypatch):
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    monkeypatch.setenv("DMLC_NUM_SERVER", "1")
    out = started([], prints("DMLC_ROLE"))[1]  # lines of two ranks may mix
    assert (out.count("worker"), out.count("server")) == (2, 1)
    assert started(["-n", "1", "-s", "0"], prints("DMLC_ROLE"))[1].split() == ["worker"]
    monkeypatch.setenv("DMLC_ROLE", "scheduler")
    status, out, _ = started([], "raise SystemExit(3)")
    assert status == 0 and "DMLC_ROLE=scheduler: this process is not needed" in out
    monkeypatch.setenv("DMLC_ROLE", "worker")
    monkeypatch.setenv("DMLC_NUM_WORKER", "two")
    status, _, err = started([], "")
    assert status == 1 and "DMLC_NUM_WORKER=two: must be a number" in err


FAILS = """
import os, sys
if os.environ["PMI_RANK"] == "1" and int(os.environ["PLAIT_RESTART"]) < {times}:
    print("plait: rank 1 of 2 failed: ValueError: bad\\n  at: train.py:41\\n  fix: mend it",
          file=sys.stderr, flush=True)
    print("plait: rank 0 of 2 failed: because of it\\n  at: elsewhere", file=sys.stderr, flush=True)
    sys.exit(1)
"""


def test_the_first_failure_is_the_last_word(started):
    status, _, err = started(["-n", "2"], FAILS.format(times=9))
    assert status == 1
    end = "plait launch: rank 1 of 2 failed: ValueError: bad\n  at: train.py:41\n  fix: mend it\n"
    assert err.endswith(end)


def test_restarts(started):
    status, _, err = started(["-n", "2", "--restarts", "3"], FAILS.format(times=2))
    assert status == 0
    assert err.count("plait launch: rank 1 of 2 failed") == 2
    assert "plait launch: restart 2 of 3\n" in err and "restart 3" not in err
    status, _, err = started(["-n", "2", "--restarts", "1"], FAILS.format(times=2))
    assert status == 1 and "restart 1 of 1" in err


def test_a_failure_before_the_ranks_know_each_other(started):
    status, _, err = started(["-n", "2"], "import nothing_here")
    assert status == 1
    assert "by ModuleNotFoundError: No module named 'nothing_here': mpiexec's status is 1" in err


def test_each_line_says_who_wrote_it(started):
    code = "import os, sys\nfor f in (sys.stdout, sys.stderr): print('a\\nb', file=f)"
    status, out, err = started(["-n", "2", "--prefix"], code)
    assert status == 0
    for said in (out, err):
        assert sorted(said.splitlines()) == ["[0] a", "[0] b", "[1] a", "[1] b"]
    status, _, err = started(["-n", "2", "--prefix"], FAILS.format(times=9))
    assert status == 1 and "plait launch: rank 1 of 2 failed: ValueError: bad\n  at: train" in err


def test_a_job_that_takes_too_long(started):
    status, _, err = started(["-n", "2", "--timeout", "0.5"], "import time; time.sleep(1000)")
    assert status == 1 and "ran longer than --timeout 0.5 s" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_ranks(tmp_path, number):
    """Also one that the launcher alone gets, as from an editor or a container."""
    (tmp_path / "mpiexec").write_text(FAKE)
    (tmp_path / "mpiexec").chmod(0o755)
    (tmp_path / "train.py").write_text(
        "import os, time; os.write(1, b'runs\\n')\nwhile True: time.sleep(0.1)"
    )
    code = (
        "from plait.tools import launch, mpiexec\n"
        f"mpiexec.find = lambda kind: mpiexec.Mpi('mpich', {str(tmp_path / 'mpiexec')!r})\n"
        f"raise SystemExit(launch.main(['-n', '2', {str(tmp_path / 'train.py')!r}]))"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    run = subprocess.Popen([sys.executable, "-c", code], **pipes)
    assert [run.stdout.readline() for _ in range(2)] == ["runs\n"] * 2
    run.send_signal(number)
    _, err = run.communicate(timeout=300)  # the pipes are closed: no rank holds them
    assert run.returncode == 128 + number and f"ended by signal {int(number)}" in err


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (["train.py"], "-n: must be at least 1 worker, got nothing"),
        (["-n", "0", "train.py"], "-n: must be at least 1 worker, got 0"),
        (["-n", "1", "-s", "-1", "train.py"], "-s: must be at least 0 servers, got -1"),
        (["-n", "1", "--threads", "0", "train.py"], "--threads must be at least 1, got 0"),
        (["-n", "1", "--restarts", "-1", "train.py"], "--restarts must be at least 0, got -1"),
        (["-n", "1", "--env", "A", "train.py"], "--env: must be NAME=VALUE, got 'A'"),
        (["-n", "1", "-H", "a b", "train.py"], "-H: must be HOST[:RANKS],..., got 'a b'"),
        (["-n", "1", "-H", "a:0", "train.py"], "-H: must be HOST[:RANKS],..., got 'a:0'"),
        (["-n", "5", "-H", "a:2,b:2", "train.py"], "room for 4 ranks, and the job has 5: a:2,b:2"),
        (["-n", "1", "-H", "a", "--hostfile", "f", "train.py"], "only one of the two"),
        (["-n", "1", "--hostfile", "/no/such", "train.py"], "/no/such"),
        (["-n", "1", "--launcher", "yarn", "train.py"], "--launcher yarn: this launcher starts"),
        (["-n", "1", "--launcher", "slurm", "train.py"], "srun -n 4 python train.py"),
        (["-n", "1", "--launcher", "local", "-H", "a", "train.py"], "it takes no -H"),
        (["-n", "1", "nosuch.py"], "nosuch.py: there is no such script in /"),
        (["-n", "1", "--sync-dst-dir", "/x", "train.py"], "files are not copied"),
    ],
)
def test_wrong_arguments(arguments, rule, started, capfd):
    assert cli.main(["launch", *arguments]) == 1
    said = capfd.readouterr().err
    assert said.startswith("plait launch: ") and rule in said


def test_a_missing_script_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["launch", "-n", "2"])
    assert stop.value.code == 2 and "the script is missing" in capsys.readouterr().err


def test_hosts_of_a_line_and_of_a_file(tmp_path):
    assert mpiexec.hosts("a:2,b,[fe80::1]:3") == [("a", 2), ("b", 1), ("[fe80::1]", 3)]
    file = tmp_path / "hosts"
    file.write_text("# machines\na:2\nb slots=4 max-slots=8\n\nc\n")
    assert mpiexec.read_hosts(str(file)) == [("a", 2), ("b", 4), ("c", 1)]
    file.write_text("# none\n")
    with pytest.raises(InvalidValue, match="names no host"):
        mpiexec.read_hosts(str(file))
    file.write_text("a\nb\n")
    args = launch._parser().parse_args(["-n", "3", "-H", str(file), "train.py"])  # as MXNet's -H
    assert launch._hosts(args, 3) == [("a", 2), ("b", 1)]
    assert launch._hosts(args, 1) == [("a", 1)]


def plain(words):
    return " ".join("RUN" if word == mpiexec.LINGER.format("") else word for word in words)


PARTS = [mpiexec.Part(2, {"R": "w", "T": "1"}), mpiexec.Part(1, {"R": "s"})]


def test_the_command_line_of_mpich():
    words = mpiexec.command(
        mpiexec.Mpi("mpich", "/x/mpiexec"), ["python", "t.py"], PARTS, [("a", 2)], "core", ["-v"]
    )
    assert plain(words) == (
        "/x/mpiexec -bind-to core -hosts a:2 -v "
        "-n 2 -env R w -env T 1 sh -c RUN python t.py : -n 1 -env R s sh -c RUN python t.py"
    )


def test_the_command_line_of_open_mpi(monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 0)
    mpi = mpiexec.Mpi("openmpi", "/x/mpiexec")
    words = mpiexec.command(mpi, ["python", "t.py"], PARTS, [("a", 2)], "none", [])
    assert plain(words) == (
        "/x/mpiexec --allow-run-as-root --map-by :OVERSUBSCRIBE --bind-to none --host a:2 "
        "-n 2 -x R=w -x T=1 sh -c RUN python t.py : -n 1 -x R=s sh -c RUN python t.py"
    )
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert "--allow-run-as-root" not in mpiexec.command(mpi, ["x"], PARTS, [], "none", [])


def test_the_mpi_of_this_environment_is_found(monkeypatch, tmp_path):
    """mpi4py's library decides; an mpiexec of another MPI is not used."""
    folder = tmp_path / "lib"
    other, own = tmp_path / "other" / "mpiexec", tmp_path / "bin" / "mpiexec"
    for program, says in ((other, "mpiexec (OpenRTE) Open MPI 5"), (own, "HYDRA build details:")):
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    monkeypatch.setattr(mpiexec, "_library", lambda: ("mpich", str(folder / "libmpi.so.12")))
    assert mpiexec.find() == mpiexec.find("mpich") == ("mpich", str(own))
    with pytest.raises(InvalidValue, match="--mpi openmpi: mpi4py of this environment uses MPICH"):
        mpiexec.find("openmpi")
    own.unlink()
    with pytest.raises(InvalidValue, match=f"there is no mpiexec of it; found {other}\n  fix: "):
        mpiexec.find()


def test_an_environment_without_mpi4py(monkeypatch):
    monkeypatch.setattr(mpiexec, "ASK", "raise ModuleNotFoundError('no mpi4py')")
    with pytest.raises(InvalidValue, match="needs mpi4py .* no mpi4py\n  fix: pip install mpi4py"):
        mpiexec.find()


def test_a_real_mpi_runs_a_job(tmp_path):
    pytest.importorskip("mpi4py")
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nfrom mpi4py import MPI\nfrom plait.dist import environment as e\n"
        "place = e.of_environment()\nassert place == e.of_mpi(MPI.COMM_WORLD)\n"
        "os.write(1, b'%d %d %d %d\\n' % place)  # a line in one piece\n"
    )
    command = [sys.executable, "-m", "plait", "launch", "-n", "2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path.home())
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["0 2 0 2", "1 2 1 2"]
