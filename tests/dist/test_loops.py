"""Training loops on two ranks: what they compute, print and write."""

import json

import launched
import numpy as np


def ranks(n, *cases):
    """What each case of loops.py gave on each rank; all cases run in one job."""
    words = [json.dumps(case, default=str) for case in cases]
    printed = launched.succeed(n, ["loops.py", *words])
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    assert len(found) == len(cases), printed
    return found


def test_loops_on_two_ranks(tmp_path):
    """Beside one process, and beside themselves, interrupted and resumed in a new job."""
    folders = {name: tmp_path / name for name in ("alone", "files", "whole", "parts", "saved")}
    for folder in folders.values():
        folder.mkdir()
    alone = ranks(1, ("module", folders["alone"]), ("clipped",), ("overflow",))
    found = ranks(
        2,
        ("module", folders["files"]),
        ("clipped",),
        ("estimator", folders["whole"], 3),
        ("estimator", folders["parts"], 2),
        ("checkpoint", folders["saved"], 7, 0),
        ("checkpoint", folders["saved"], 7, 3),
        ("overflow",),
    )
    resumed = ranks(2, ("estimator", folders["parts"], 3), ("checkpoint", folders["saved"], 7, 0))
    check_module(alone[0], found[0])
    check_clipped(alone[1], found[1])
    check_estimator(found[2], found[3])
    check_resumed_estimator(found[2], resumed[0])
    check_checkpoint(found[4], found[5], resumed[1])
    check_overflow(alone[2], found[6])
    case = json.dumps(["checkpoint", str(folders["saved"]), 7, 0])
    status, out = launched.run(1, ["loops.py", case])
    assert status and "was written by 2 ranks, this job has 1" in out


def check_estimator(whole, shorter):
    """All ranks report the same metrics, and only the first writes."""
    first, second = whole
    assert first["values"] == second["values"]
    assert first["weights"] == second["weights"]
    assert "Train finished" in first["said"] and not second["said"]
    assert shorter[0]["files"] == [
        "model-epoch0batch4.params", "model-epoch0batch4.states",
        "model-epoch1batch8.params", "model-epoch1batch8.states",
    ]  # fmt: skip


def check_resumed_estimator(whole, resumed):
    for a, b in zip(whole, resumed, strict=True):
        assert (b["weights"], b["values"]) == (a["weights"], a["values"])


def check_checkpoint(whole, interrupted, resumed):
    """It has the streams and residuals of every rank."""
    assert interrupted[0]["resumed"] is False
    for a, b in zip(whole, resumed, strict=True):
        assert (b["resumed"], b["weights"], b["draw"]) == (True, a["weights"], a["draw"])
    assert whole[0]["draw"] != whole[1]["draw"]


def check_module(alone, found):
    """The metrics of all ranks are printed once."""
    first, second = found
    assert not second["said"]
    assert first["files"] == ["m-0001.params", "m-0002.params", "m-symbol.json"]
    epochs = [
        {line.split("=")[0]: float(line.split("=")[1]) for line in said.splitlines()
         if "Train-" in line or "Validation-" in line}
        for said in (alone[0]["said"], first["said"])
    ]  # fmt: skip
    assert "Epoch[1] Validation-cross-entropy" in epochs[0]
    assert epochs[0].keys() == epochs[1].keys()
    for name, value in epochs[0].items():
        np.testing.assert_allclose(epochs[1][name], value, rtol=2e-5, err_msg=name)


def check_clipped(alone, found):
    """Gradients are clipped after they are summed."""
    first, second = found
    assert first["weights"] == second["weights"]
    np.testing.assert_allclose(first["norms"], alone[0]["norms"], rtol=1e-5)
    np.testing.assert_allclose(first["values"], alone[0]["values"], rtol=1e-4, atol=1e-6)


def check_overflow(alone, found):
    """An overflow on one rank is one on all."""
    first, second = found
    assert first["skipped"] and second["skipped"]
    assert first["scales"] == second["scales"] == alone[0]["scales"]
    assert first["scales"][:2] == [65536.0, 32768.0]
    assert first["weights"] == second["weights"]
