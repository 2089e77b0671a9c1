"""Scripts written for MXNet, run unchanged in compatibility mode, give the numbers that MXNet 1.9.1
gives."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

MXNET_PRINTS = {
    "batch_norm": [1.1224823, 1.1771584, 1.107585, 1.2966512, 1.1700258],
    "character_rnn": [2.389244, 2.417889, 2.6291783, 2.4958496],
    "symbol_mlp": [0.2445761, 0.26975116, 0.27470523, 0.27737337],
}


@pytest.mark.parametrize("name", MXNET_PRINTS)
def test_prints_what_mxnet_prints(name):
    script = pathlib.Path(__file__).parent / "scripts" / f"{name}.py"
    run = subprocess.run(
        [sys.executable, "-m", "plait.compat", str(script)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(
        [float(line) for line in run.stdout.split()], MXNET_PRINTS[name], rtol=1e-4
    )
