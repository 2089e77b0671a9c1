"""Files of trained parameters and downloads: folders, $MXNET_HOME, repositories; nothing remote."""

import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait.data import download
from plait.gluon import nn
from plait.gluon.model_zoo import model_store, vision


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.delenv("MXNET_GLUON_REPO", raising=False)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    return tmp_path


def test_short_hash():
    assert model_store.short_hash("resnet18_v1") == "a0666292"
    assert set(model_store._model_sha1) == set(vision.MODELS)
    with pytest.raises(ValueError, match="for zz is not available"):
        model_store.short_hash("zz")


def test_pretrained_from_mxnet_home(home):
    (home / "models").mkdir()
    net = vision.squeezenet1_1(classes=3)
    net.initialize()
    x = mx.nd.ones((1, 3, 224, 224))
    expected = net(x).asnumpy()
    for name in ("squeezenet1.1", f"squeezenet1.1-{model_store.short_hash('squeezenet1.1')}"):
        path = home / "models" / f"{name}.params"
        net.save_parameters(str(path))
        assert model_store.get_model_file("squeezenet1.1") == str(path)
    loaded = vision.get_model("squeezenet1.1", pretrained=True, classes=3)
    np.testing.assert_array_equal(loaded(x).asnumpy(), expected)
    model_store.purge()
    assert not list((home / "models").iterdir())


def test_missing_files_say_where_they_belong(home):
    with pytest.raises(FileNotFoundError) as raised:
        vision.resnet18_v1(pretrained=True)
    assert f"no file resnet18_v1-a0666292.params or resnet18_v1.params in {home / 'models'}" in str(
        raised.value
    )
    assert "fix: put MXNet's file resnet18_v1-a0666292.params there" in str(raised.value)


def test_custom_model_repository(home, tmp_path, monkeypatch):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.save_parameters(str(tmp_path / "p"))
    content = (tmp_path / "p").read_bytes()
    sha1 = hashlib.sha1(content).hexdigest()
    monkeypatch.setitem(model_store._model_sha1, "alexnet", sha1)
    folder = tmp_path / "repository" / "gluon" / "models"
    folder.mkdir(parents=True)
    monkeypatch.setenv("MXNET_GLUON_REPO", (tmp_path / "repository").as_uri())
    with pytest.raises(mx.MXNetError, match="download: file://"):
        monkeypatch.setattr(download.time, "sleep", lambda seconds: None)
        model_store.get_model_file("alexnet")
    with zipfile.ZipFile(folder / f"alexnet-{sha1[:8]}.zip", "w") as z:
        z.writestr(f"alexnet-{sha1[:8]}.params", content)
    path = model_store.get_model_file("alexnet")
    assert path == str(home / "models" / f"alexnet-{sha1[:8]}.params")
    assert Path(path).read_bytes() == content and os.listdir(home / "models") == [
        os.path.basename(path)
    ]


def test_a_wrong_file_of_a_repository_is_refused(home, tmp_path, monkeypatch):
    name = f"alexnet-{model_store.short_hash('alexnet')}"
    folder = tmp_path / "repository" / "gluon" / "models"
    folder.mkdir(parents=True)
    monkeypatch.setenv("MXNET_GLUON_REPO", (tmp_path / "repository").as_uri())
    with zipfile.ZipFile(folder / f"{name}.zip", "w") as z:
        z.writestr(f"{name}.params", b"other")
    with pytest.raises(ValueError, match="has different hash"):
        model_store.get_model_file("alexnet")
    (folder / f"{name}.zip").write_bytes(b"no archive")
    with pytest.raises(mx.MXNetError, match="not a zip file"):
        model_store.get_model_file("alexnet")
    assert not list((home / "models").iterdir())


def test_folders(monkeypatch):
    monkeypatch.setenv("MXNET_HOME", "/data/mx")
    assert str(download.local_folder("~/.mxnet/datasets/mnist")) == "/data/mx/datasets/mnist"
    assert str(download.local_folder("/elsewhere/mnist")) == "/elsewhere/mnist"
    monkeypatch.delenv("MXNET_HOME")
    assert str(download.local_folder("~/.mxnet/x")) == os.path.expanduser("~/.mxnet/x")
    monkeypatch.setenv("MXNET_GLUON_REPO", "http://x/y")
    assert download._get_repo_file_url("n", "f") == "http://x/y/n/f"
