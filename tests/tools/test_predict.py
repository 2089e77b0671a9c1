"""Model folders, and plait predict."""

import json

import numpy as np
import plait as mx
import pytest
from PIL import Image
from plait import nd
from plait.__main__ import main
from plait.tools import model_folder
from plait.tools.train import models


@pytest.fixture
def model(tmp_path):
    """A folder whose network finds the brighter half of a picture: left or right."""
    mx.seed_all(1)
    dense = models.nn.Dense(2, in_units=3 * 4 * 6, use_bias=False)
    net = models.Classifier(models.nn.HybridSequential(), (0.5,) * 3, (0.5,) * 3)
    net.net.add(dense)
    net.initialize()
    weight = np.zeros((2, 3, 4, 6), np.float32)
    weight[0, :, :, :3] = weight[1, :, :, 3:] = 1
    dense.weight.set_data(nd.array(weight.reshape(2, -1)))
    whole = models.Probabilities(net)
    whole.hybridize()
    whole(models.zeros((4, 6, 3)))
    folder = tmp_path / "side"
    model_folder.write(folder, whole, (4, 6, 3), ["left", "rechts & grün"], 4, 0.5)
    return folder


def halves(left, right, height=40, width=60):
    values = np.zeros((height, width, 3), np.uint8)
    values[:, : width // 2], values[:, width // 2 :] = left, right
    return values


def test_a_model_takes_bytes_and_gives_probabilities(model):
    loaded = model_folder.Model(model)
    assert loaded.classes == ["left", "rechts & grün"] and loaded.shape == (4, 6, 3)
    x = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3)).astype(np.uint8)
    side = [((x / 255 - 0.5) / 0.5)[:, :, part].sum(axis=(1, 2, 3)) for part in
            (slice(3), slice(3, 6))]  # fmt: skip
    scores = np.exp(np.stack(side, axis=1))
    wanted = scores / scores.sum(axis=1, keepdims=True)
    assert np.allclose(loaded.predict(x), wanted, atol=1e-5)


@pytest.mark.parametrize("shape", [(40, 60, 3), (40, 60), (4, 6, 3), (9, 300, 3), (300, 9, 3)])
def test_pictures_of_any_size_are_made_to_fit(model, shape):
    loaded = model_folder.Model(model)
    picture = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    made = loaded.fit(picture)
    assert made.dtype == np.uint8 and made.shape[:2] == (4, 6)
    if shape == (4, 6, 3):
        assert np.array_equal(made, picture)


def test_predict_prints_classes_and_how_many_are_right(model, tmp_path, capsys):
    for name, left, right in (("left", 250, 5), ("rechts & grün", 5, 250)):
        (tmp_path / "p" / name).mkdir(parents=True)
        Image.fromarray(halves(left, right)).save(tmp_path / "p" / name / "a.png")
    Image.fromarray(halves(5, 250)).save(tmp_path / "p" / "left" / "b.jpg")
    assert main(["predict", str(model), str(tmp_path / "p"), "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4 and lines[-1] == "2 of 3 are right: 66.67%"
    assert "left/a.png" in lines[0] and "left 100.0%, rechts & grün 0.0%" in lines[0]


def test_a_picture_that_cannot_be_read_does_not_stop_the_others(model, tmp_path, capsys):
    (tmp_path / "a.png").write_bytes(b"no picture")
    Image.fromarray(halves(250, 5)).save(tmp_path / "b.png")
    files = [str(tmp_path / n) for n in ("a.png", "missing.png", "b.png")]
    assert main(["predict", str(model), *files]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert ["cannot be read" in line for line in lines] == [True, True, False]
    assert "left" in lines[2]


@pytest.mark.parametrize(
    "change, rule",
    [
        (lambda d: d.update(format="plait model 2"), "its format is 'plait model 2'"),
        (lambda d: d.pop("outputs"), "it has no 'outputs'"),
        (lambda d: d["inputs"][0].update(dtype="float32"), "pictures are uint8 of shape"),
        (lambda d: d["inputs"][0].update(shape=[None, 3]), "pictures are uint8 of shape"),
        (lambda d: d["inputs"][0].update(shape=[None, 4, 0, 3]), "a size is null, where it"),
        (lambda d: d["inputs"][0].pop("layout"), "describes no classifier of pictures"),
        (lambda d: d.update(inputs=[]), "describes no classifier of pictures"),
        (lambda d: d["outputs"][0].update(classes=["a"]), "1 classes for the shape [None, 2]"),
    ],
)
def test_descriptions_that_cannot_be_used(model, change, rule, capsys):
    path = model / "model.json"
    description = json.loads(path.read_text())
    change(description)
    path.write_text(json.dumps(description))
    assert main(["predict", str(model), "x.png"]) == 1
    assert rule in capsys.readouterr().err


def test_other_folders_are_refused(model, tmp_path, capsys):
    assert main(["predict", str(tmp_path), "x.png"]) == 1
    assert "give a folder that `plait train` wrote" in capsys.readouterr().err
    (model / "model.json").write_text("{")
    assert main(["predict", str(model), "x.png"]) == 1
    assert "model.json" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["predict", str(tmp_path / "side"), str(tmp_path / "empty")]) == 1


def test_a_model_folder_is_compiled(model, tmp_path, capsys):
    out = tmp_path / "c"
    assert main(["compile", str(model), "-o", str(out)]) == 0
    header = (out / "net.h").read_text()
    assert "net_run(plait_net *net, const uint8_t *data, float *probabilities)" in header
    assert "/* input data: uint8 (1, 4, 6, 3) */" in header
    assert main(["compile", str(model), "--shape", "data=5,4,6,3", "-o", str(out)]) == 0
    assert "/* input data: uint8 (5, 4, 6, 3) */" in (out / "net.h").read_text()
    capsys.readouterr()
    assert main(["compile", str(tmp_path), "-o", str(out)]) == 1
    assert "give a folder that `plait train` wrote" in capsys.readouterr().err
