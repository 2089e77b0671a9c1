"""Folders: models, their versions, and what is no model."""

import pytest
from plait.engine.error import MXNetError
from plait.tools.serve.app import App
from plait.tools.serve.repository import Repository
from serving import Running, Twice, asking, infer, request


def test_versions_are_folders_with_numbers(tmp_path):
    for place in ("a/1", "a/2", "a/10", "b", ".hidden", "b/old"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "net.onnx").touch()

    def read(place):
        if place.name == "10":
            raise MXNetError("damaged")
        return Twice(place)

    with Running(tmp_path, read) as running:
        get = lambda path: running(request(running.app, "GET", path)).json
        assert get("/v2/models") == {"models": ["a", "b"]}
        assert get("/v2/models/a")["versions"] == ["1", "2", "10"]
        assert running(infer(running.app, asking([1, 2, 3]), "a")).json["model_version"] == "2"
        old = running(infer(running.app, asking([1, 2, 3]), "a/versions/1"))
        assert old.json["model_version"] == "1"
        assert running(infer(running.app, asking([1, 2, 3]), "a/versions/10")).status == 503
        assert "one of ['1', '2', '10']" in get("/v2/models/a/versions/3")["error"]
    with Running(tmp_path / "a", read) as running:
        assert running(request(running.app, "GET", "/v2/models/a/versions/1")).status == 200


@pytest.mark.parametrize("place, text", [(".", "has no model"), ("nothing", "is no folder")])
def test_a_folder_without_models(tmp_path, place, text):
    with pytest.raises(MXNetError, match=text):
        App(tmp_path / place)


def test_a_model_gets_a_name(tmp_path):
    (tmp_path / "net.onnx").touch()
    assert list(Repository(tmp_path).models) == [tmp_path.name]
    assert list(Repository(tmp_path, "digits").models) == ["digits"]
    with pytest.raises(MXNetError, match="is no model, so it cannot be named"):
        Repository(tmp_path.parent, "digits")
