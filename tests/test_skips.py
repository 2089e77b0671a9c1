"""What --may-skip does: a skip for a reason that it does not name fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_needs_a_gpu():
    pytest.skip("needs two GPUs")

def test_passes():
    pass
"""


@pytest.mark.parametrize(
    "options, ci, status",
    [
        ([], "", 0),
        ([], "1", 0),
        (["--may-skip", "x|GPU"], "", 0),
        (["--may-skip", "no C compiler"], "", 1),
        (["--may-skip", "no C compiler", "-n", "1"], "1", 1),
    ],
)
def test_only_named_reasons_to_skip(tmp_path, options, ci, status):
    (tmp_path / "test_some.py").write_text(TESTS)
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {"CI": ci}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "skips", *options],
        cwd=tmp_path,
        env=env | {"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    wrong = "does not allow: test_some.py::test_needs_a_gpu: Skipped: needs two GPUs"
    assert (wrong in done.stdout) == (status == 1)
