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
    "multi_task": [
        *[1.2202965, 0.68079579, 1.2955557, 0.70413065],
        *[1.234820823, 0.69126976, 1.216975898, 0.68615794],
    ],
    "sparse_factors": [
        *[0.256971978, 0.505135149, 0.229121797, 0.47598733],
        *[0.207510147, 0.447179854, 0.190615751, 0.418832704],
    ],
    "symbol_mlp": [0.2445761, 0.26975116, 0.27470523, 0.27737337],
    "tiny_detector": [
        *[0.8242016, 0.020744165, 0.34901416, 0.018981664, 0.24893154, 0.017239945],
        *[0.19281353, 0.016644882, 0.16002914, 0.016035987],
        *[0.0, 0.5275288, 0.38851583, 0.13285187, 0.88622177, 0.6235188],
    ],
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
