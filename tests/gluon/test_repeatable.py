"""One seed, one result: processes with other loads, threads and caches compute the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("repeatable.py")
THREADS = (1, 2, 4, 2, 1, 4, 2, 2)


@pytest.fixture
def load():
    """A process that keeps one core busy."""
    script = "import os\nos.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", script])
    yield
    process.kill()
    process.wait()


def test_eight_processes_end_with_the_same_weights(load, tmp_path):
    processes = []
    for k, threads in enumerate(THREADS):
        env = os.environ | {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OMP_NUM_THREADS": str(threads),
        }
        if k < 2:  # it compiles all kernels while the others find some
            env["XDG_CACHE_HOME"] = str(tmp_path / str(k))
        processes.append(
            subprocess.Popen([sys.executable, str(SCRIPT)], env=env, stdout=subprocess.PIPE)
        )
    runs = []
    for process in processes:
        out, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        runs.append(json.loads(out))
    for name, (_, changes) in runs[0].items():
        found = [run[name] for run in runs]
        assert all(f == found[0] for f in found), (name, found)
        assert name in ("eager", "module") or len(changes) == 3, (name, changes)
