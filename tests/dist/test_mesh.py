"""A Trainer on a mesh of data x model ranks has the weights of one process; any mesh reads its
files."""

import launched
import numpy as np
import pytest


def run(n, tmp_path, *arguments):
    assert "done" in launched.succeed(n, ["meshes.py", *map(str, arguments)])
    return dict(np.load(tmp_path / "result.npz"))


def equal(got, wanted):
    assert got.keys() == wanted.keys()
    # of all: the bias of keys, whose gradient is zero but for rounding, stays about zero
    scale = max(np.abs(value).max() for value in wanted.values())
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6 * scale, err_msg=name)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same training in one process, by optimizer: (a folder with its files, the weights)."""
    found = {}
    for name in ("sgd", "adam"):
        folder = tmp_path_factory.mktemp(name)
        found[name] = folder, run(1, folder, "begin", "1x1", name, "none", folder)
    return found


@pytest.mark.parametrize(("optimizer", "shard"), [("sgd", "none"), ("adam", "states")])
def test_a_mesh_gives_the_weights_of_one_process(optimizer, shard, alone, tmp_path):
    folder, wanted = alone[optimizer]
    equal(run(4, tmp_path, "begin", "2x2", optimizer, shard, tmp_path), wanted)
    later = tmp_path / "later"
    later.mkdir()
    # files of the mesh in one process, and of one process in the mesh
    equal(run(1, later, "resume", "1x1", optimizer, "none", later, tmp_path), wanted)
    equal(run(4, later, "resume", "2x2", optimizer, shard, later, folder), wanted)


def test_files_of_one_mesh_in_another(alone, tmp_path):
    folder, wanted = alone["adam"]
    run(2, tmp_path, "begin", "1x2", "adam", "states", tmp_path)
    later = tmp_path / "later"
    later.mkdir()
    equal(run(2, later, "resume", "2x1", "adam", "states", later, tmp_path), wanted)


def test_a_checkpoint_of_a_mesh_goes_on_exactly(tmp_path):
    assert "done" in launched.succeed(4, ["meshes.py", "checkpoint", str(tmp_path)])


def test_an_estimator_on_a_mesh(tmp_path):
    assert "done" in launched.succeed(4, ["meshes.py", "estimator", str(tmp_path)])


def test_what_mistakes_are_told():
    assert "done" in launched.succeed(2, ["meshes.py", "mistakes"])
