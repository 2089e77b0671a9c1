"""Training loops on two ranks: what they compute, print and write."""

import json

import launched
import numpy as np


def ranks(n, *case, **env):
    printed = launched.succeed(n, ["loops.py", *map(str, case)], **env)
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def test_an_estimator_reports_the_same_metrics_and_only_the_first_rank_writes(tmp_path):
    first, second = ranks(2, "estimator", tmp_path, 2)
    assert first["values"] == second["values"]
    assert first["weights"] == second["weights"]
    assert "Train finished" in first["said"] and not second["said"]
    assert first["files"] == [
        "model-epoch0batch4.params", "model-epoch0batch4.states",
        "model-epoch1batch8.params", "model-epoch1batch8.states",
    ]  # fmt: skip


def test_an_estimator_that_resumes_on_two_ranks_equals_one_that_was_not_interrupted(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    expected = ranks(2, "estimator", whole, 3)
    ranks(2, "estimator", parts, 2)
    resumed = ranks(2, "estimator", parts, 3)
    for a, b in zip(expected, resumed):
        assert (b["weights"], b["values"]) == (a["weights"], a["values"])


def test_a_checkpoint_has_the_streams_and_residuals_of_every_rank(tmp_path):
    expected = ranks(2, "checkpoint", tmp_path, 7, 0)
    assert ranks(2, "checkpoint", tmp_path, 7, 3)[0]["resumed"] is False
    resumed = ranks(2, "checkpoint", tmp_path, 7, 0)
    for a, b in zip(expected, resumed):
        assert (b["resumed"], b["weights"], b["draw"]) == (True, a["weights"], a["draw"])
    assert expected[0]["draw"] != expected[1]["draw"]
    status, out = launched.run(1, ["loops.py", "checkpoint", str(tmp_path), "7", "0"])
    assert status and "was written by 2 ranks, this job has 1" in out


def test_module_prints_the_metrics_of_all_ranks_once(tmp_path):
    alone = ranks(1, "module", tmp_path)[0]
    first, second = ranks(2, "module", tmp_path)
    assert not second["said"]
    assert first["files"] == ["m-0001.params", "m-0002.params", "m-symbol.json"]
    epochs = [
        {line.split("=")[0]: float(line.split("=")[1]) for line in said.splitlines()
         if "Train-" in line or "Validation-" in line}
        for said in (alone["said"], first["said"])
    ]  # fmt: skip
    assert "Epoch[1] Validation-cross-entropy" in epochs[0]
    assert epochs[0].keys() == epochs[1].keys()
    for name, value in epochs[0].items():
        np.testing.assert_allclose(epochs[1][name], value, rtol=2e-5, err_msg=name)


def test_gradients_are_clipped_after_they_are_summed(tmp_path):
    (alone,) = ranks(1, "clipped", tmp_path)
    first, second = ranks(2, "clipped", tmp_path)
    assert first["weights"] == second["weights"]
    np.testing.assert_allclose(first["norms"], alone["norms"], rtol=1e-5)
    np.testing.assert_allclose(first["values"], alone["values"], rtol=1e-4, atol=1e-6)


def test_an_overflow_on_one_rank_is_one_on_all(tmp_path):
    (alone,) = ranks(1, "overflow", tmp_path)
    first, second = ranks(2, "overflow", tmp_path)
    assert first["skipped"] and second["skipped"]
    assert first["scales"] == second["scales"] == alone["scales"]
    assert alone["scales"][:2] == [65536.0, 32768.0]
    assert first["weights"] == second["weights"]
