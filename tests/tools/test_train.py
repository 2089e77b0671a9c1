"""plait train: data sets, networks, the loop, Ctrl-C, and whole runs on digits and on a folder."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import plait as mx
import pytest
from PIL import Image
from plait import __main__ as cli
from plait import gluon, nd
from plait.gluon.data import ArrayDataset, DataLoader
from plait.tools import model_folder, train
from plait.tools.train import folder, models, named
from plait.tools.train.arguments import parse
from plait.tools.train.loop import StopRequest, evaluate, train_epoch
from plait.tools.train.pictures import Prepare
from plait.training.progress import Progress


def small_loader(n=128, batch_size=32):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(n, 1, 8, 8)).astype(np.float32)
    labels = (images.mean(axis=(1, 2, 3)) > 0).astype(np.float32)
    return DataLoader(ArrayDataset(images, labels), batch_size)


def network():
    mx.seed_all(1)
    net = models.mlp(2)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net, gluon.loss.SoftmaxCrossEntropyLoss()


def write_pictures(top, counts, size=(30, 20), grey=False, seed=0):
    """Folders of one colour each, as PNG and JPEG. counts: class -> number."""
    rng = np.random.default_rng(seed)
    for i, (name, n) in enumerate(counts.items()):
        (top / name).mkdir(parents=True)
        for j in range(n):
            values = rng.integers(0, 60, (size[1], size[0], 3)) + np.roll([170, 0, 0], i)
            image = Image.fromarray(values.astype(np.uint8)).convert("L" if grey else "RGB")
            image.save(top / name / f"{j}.{'jpg' if j % 2 else 'png'}")
    return top


# ---- data sets and networks ----------------------------------------------------------------------


def test_digits_are_bytes_and_labels():
    pictures = named.load("digits")
    image, label = pictures.train[0]
    assert image.shape == (8, 8, 1) == pictures.shape and image.dtype == np.uint8
    assert (len(pictures.train), len(pictures.valid)) == (1437, 360) and label.dtype == np.float32
    values = np.stack([image for image, _ in pictures.train]) / 255
    assert abs(values.mean() - pictures.mean[0]) < 1e-4
    assert abs(values.std() - pictures.std[0]) < 1e-4


def test_a_named_set_in_another_size():
    pictures = named.load("digits", 16, "shift")
    assert pictures.train[0][0].shape == pictures.valid[3][0].shape == (16, 16, 1)
    assert np.array_equal(pictures.valid[3][0], pictures.valid[3][0])


@pytest.mark.parametrize(
    "name, size, parameters",
    [("mlp", 8, 6), ("lenet", 8, 8), ("lenet", 28, 8), ("convnet", 8, 12), ("convnet", 20, 17)],
)
def test_models_by_name(name, size, parameters):
    net = models.Classifier(models.build(name, size), (0.5,), (0.25,))
    net.initialize()
    assert net(models.zeros((size, size, 1), 2)).shape == (2, 10)
    assert len(net.collect_params()) == parameters


def test_scaling_is_part_of_the_network():
    net = models.Classifier(gluon.nn.Flatten(), (0.1, 0.2, 0.3), (0.5, 0.25, 0.125))
    net.initialize()
    x = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3)).astype(np.uint8)
    scaled = (x / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.25, 0.125]
    wanted = scaled.transpose(0, 3, 1, 2).reshape(2, -1)
    assert np.allclose(net(nd.array(x, dtype="uint8")).asnumpy(), wanted, atol=1e-5)


def test_a_folder_is_split_the_same_with_one_seed(tmp_path):
    write_pictures(tmp_path / "p", {"b": 10, "a": 5, ".hidden": 1})
    pictures = folder.load(str(tmp_path / "p"), 8, seed=3)
    assert pictures.classes == ["a", "b"] and pictures.shape == (8, 8, 3)
    assert (len(pictures.train), len(pictures.valid)) == (12, 3)
    files = [{e.path for e in part.files} for part in (pictures.train, pictures.valid)]
    assert not files[0] & files[1] and len(files[0] | files[1]) == 15
    again, other = (folder.load(str(tmp_path / "p"), 8, seed=s) for s in (3, 4))
    assert {e.path for e in again.valid.files} == files[1]
    assert {e.path for e in other.valid.files} != files[1]


def test_pictures_that_are_not_kept_in_memory_are_the_same(tmp_path, monkeypatch):
    write_pictures(tmp_path, {"x": 5, "y": 5}, size=(70, 50))
    Image.open(tmp_path / "x/0.png").convert("L").save(tmp_path / "x/0.png")
    items = []
    for n_bytes in (10**9, 3000):
        monkeypatch.setattr(folder, "kept_bytes", lambda n=n_bytes: n)
        pictures = folder.load(str(tmp_path), 16)
        mx.seed_all(1)
        items.append([part[i][0] for part in (pictures.train, pictures.valid) for i in range(2)])
        n_kept = sum(e.kept is not None for e in pictures.train.files + pictures.valid.files)
        assert n_kept == 10 if n_bytes > 3000 else n_kept < 10
    assert all(np.array_equal(a, b) for a, b in zip(*items))


def test_validation_pictures_are_what_the_model_reads(tmp_path):
    write_pictures(tmp_path / "p", {"x": 5, "y": 5}, size=(200, 90))
    pictures = folder.load(str(tmp_path / "p"), 16)
    whole = models.Probabilities(models.Classifier(models.mlp(2), pictures.mean, pictures.std))
    whole.initialize()
    whole.hybridize()
    whole(models.zeros(pictures.shape))
    model_folder.write(tmp_path / "m", whole, pictures.shape, pictures.classes, pictures.resize)
    model = model_folder.Model(tmp_path / "m")
    for i, file in enumerate(pictures.valid.files):
        assert np.array_equal(pictures.valid[i][0], model.read(file.path))


def test_folders_for_training_and_validation(tmp_path):
    write_pictures(tmp_path / "train", {"x": 3, "y": 3}, grey=True)
    write_pictures(tmp_path / "val", {"x": 1, "y": 2}, grey=True)
    pictures = folder.load(str(tmp_path), 8)
    assert (len(pictures.train), len(pictures.valid), pictures.shape) == (6, 3, (8, 8, 1))
    (tmp_path / "val" / "z").mkdir()
    with pytest.raises(ValueError, match="'z' is no class of the training pictures"):
        folder.load(str(tmp_path), 8)


def test_statistics_are_those_of_the_pixels(tmp_path):
    write_pictures(tmp_path, {"x": 4, "y": 4})
    for file in tmp_path.rglob("*.jpg"):
        Image.open(file).save(file.with_suffix(".png"))  # exact values; replaces none
        file.unlink()
    pictures = folder.load(str(tmp_path), 20)
    pixels = [np.asarray(Image.open(e.path)).reshape(-1, 3) for e in pictures.train.files]
    values = np.concatenate(pixels) / 255
    assert np.allclose(pictures.mean, values.mean(axis=0), atol=2e-4)
    assert np.allclose(pictures.std, values.std(axis=0), atol=2e-4)


def test_files_that_cannot_be_read_are_left_out_and_named(tmp_path):
    write_pictures(tmp_path, {"x": 6, "y": 6})
    whole = (tmp_path / "x/1.jpg").read_bytes()
    (tmp_path / "x/1.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "y/0.png").write_bytes(b"")
    (tmp_path / "y/fake.jpeg").write_bytes(b"\xff\xd8\xff\xe0 not")
    (tmp_path / "y/notes.txt").write_text("no picture")
    pictures = folder.load(str(tmp_path), 8)
    assert len(pictures.train) + len(pictures.valid) == 10
    names = sorted(os.path.basename(line.split(": ")[0]) for line in pictures.skipped)
    assert names == ["0.png", "1.jpg", "fake.jpeg"]
    assert pictures.others == "1 .txt"


def test_folders_from_which_nothing_can_be_learned(tmp_path):
    one = write_pictures(tmp_path / "one", {"only": 2})
    with pytest.raises(ValueError, match="at least two, got only only"):
        folder.load(str(one), 8)
    (one / "empty").mkdir()
    with pytest.raises(ValueError, match="the class 'empty' has no training picture"):
        folder.load(str(one), 8)
    single = write_pictures(tmp_path / "single", {"a": 1, "b": 1})
    with pytest.raises(ValueError, match="no validation picture"):
        folder.load(str(single), 8)


@pytest.mark.parametrize("augment", ["none", "shift", "photo"])
@pytest.mark.parametrize("shape", [(40, 25, 3), (9, 50, 1), (16, 16, 3)])
def test_pictures_get_one_size(augment, shape):
    x = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    mx.seed_all(1)
    prepare = Prepare(16, 16, augment)
    made = [prepare(x) for _ in range(4)]
    assert all(m.shape == (16, 16, shape[2]) and m.dtype == np.uint8 for m in made)
    assert (augment == "none") == all(np.array_equal(m, made[0]) for m in made)
    if augment == "none" and shape == (16, 16, 3):
        assert np.array_equal(made[0], x)


# ---- arguments -----------------------------------------------------------------------------------


def test_defaults_depend_on_the_data(tmp_path, monkeypatch):
    args = parse(["--data", "digits"])
    assert (args.augment, args.epochs, args.lr) == ("none", 15, 2e-3)
    (tmp_path / "w.params").touch()
    args = parse(["--data", str(tmp_path), "--weights", str(tmp_path / "w.params")])
    assert (args.augment, args.lr) == ("photo", 5e-4)
    for installed, name in ((True, "fashion-mnist"), (False, "digits")):
        monkeypatch.setattr(train.arguments, "is_installed", lambda _, found=installed: found)
        assert parse([]).data == name


# ---- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["params", "safetensors"])
def test_weights_of_another_number_of_classes(tmp_path, ending):
    def made(classes):
        net = models.convnet(8, classes)
        net.initialize(mx.init.Xavier())
        net(nd.zeros((1, 1, 8, 8)))
        return net

    first, second = made(10), made(3)
    path = str(tmp_path / f"w.{ending}")
    first.save_parameters(path)
    new = models.load_weights(second, path)
    assert len(new) == 2 and all(name.endswith(("weight", "bias")) for name in new)
    ours, theirs = (n._collect_params_with_prefix() for n in (second, first))
    for name, parameter in ours.items():
        same = np.array_equal(parameter.data().asnumpy(), theirs[name].data().asnumpy())
        assert name in new or same, name
    other = models.lenet(8)
    other.initialize()
    other(nd.zeros((1, 1, 8, 8)))
    with pytest.raises(ValueError, match="--model must be the network"):
        models.load_weights(other, path)


# ---- the loop ------------------------------------------------------------------------------------


def test_an_epoch_lowers_the_loss_and_evaluate_sees_it():
    net, loss_of = network()
    loader = small_loader()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01})
    means = [train_epoch(net, loader, trainer, loss_of) for _ in range(8)]
    assert means[-1][0] < 0.5 * means[0][0] and means[-1][1] > 0.9
    assert evaluate(net, loader) > 0.9
    assert 0 <= evaluate(net, loader, batches=1) <= 1


class Loss:
    """An array that notes when somebody waits for it."""

    def __init__(self, number, waits):
        self.number, self.waits = number, waits

    def asnumpy(self):
        self.waits.append(self.number)
        return np.array([float(self.number)])


def test_progress_waits_only_for_what_is_long_past():
    waits = []
    progress = Progress(100, "epoch")
    for step in range(1, 101):
        progress.step(Loss(step, waits))
        assert not waits or waits[-1] <= step - progress.EVERY
    progress.close()
    assert waits == [20, 40, 60, 80]


def test_a_bar_on_terminals_and_nothing_elsewhere(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        for name in ("CI", "NO_COLOR"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("sys.stderr", stream)
        progress = Progress(400, "epoch 1/2", unit="picture")
        for step in range(40):
            progress.step(Loss(step, []), 10)
        progress.close()
        assert ("epoch 1/2" in stream.getvalue() and "picture/s" in stream.getvalue()) == shown


def test_ctrl_c_asks_once_and_then_interrupts():
    numbers = signal.SIGINT, signal.SIGTERM
    before = [signal.getsignal(n) for n in numbers]
    for first in numbers:
        with StopRequest() as stop:
            signal.raise_signal(first)
            assert stop.asked
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
        assert [signal.getsignal(n) for n in numbers] == before
    with StopRequest(alone=False) as stop, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not stop.asked


def test_a_run_is_not_resumed_with_others_and_not_overwritten(tmp_path, capsys):
    write_pictures(tmp_path / "p", {"x": 9, "y": 6}, size=(12, 12))
    options = f"--model mlp --size 8 --epochs 9 --workers 0 --no-report --out {tmp_path}".split()
    data = ["--data", str(tmp_path / "p")]
    save = mx.checkpoint.Checkpoint.save
    with pytest.MonkeyPatch.context() as patched:

        def interrupted(checkpoint):
            save(checkpoint)
            signal.raise_signal(signal.SIGINT)

        patched.setattr(mx.checkpoint.Checkpoint, "save", interrupted)
        assert cli.main(["train", *data, *options]) == 130
    assert cli.main(["train", *data, *options, "--resume", "--no-hybridize", "--lr", "0.1"]) == 1
    said = capsys.readouterr().err
    assert "was written by a run with --lr 0.002, --hybridize\n" in said
    (tmp_path / "p/x/9.png").write_bytes((tmp_path / "p/x/8.png").read_bytes())
    assert cli.main(["train", *data, *options, "--resume"]) == 1
    assert "a run with other pictures in --data" in capsys.readouterr().err
    (tmp_path / "p/x/9.png").unlink()
    (tmp_path / "q").mkdir()
    (tmp_path / "p").rename(tmp_path / "q/p")  # it does not matter where they are
    data = ["--data", str(tmp_path / "q/p")]
    kept = (tmp_path / "mlp-p.ckpt").read_bytes()
    assert cli.main(["train", *data, *options]) == 0
    assert f"mlp-p.ckpt, of an unfinished run, is now {tmp_path}/mlp-p.ckpt.old" in (
        capsys.readouterr().out
    )
    assert (tmp_path / "mlp-p.ckpt.old").read_bytes() == kept
    assert len(json.loads((tmp_path / "mlp-p-history.json").read_text())) == 9
    (tmp_path / "mlp-p.ckpt.old").replace(tmp_path / "mlp-p.ckpt")
    assert cli.main(["train", *data, *options, "--resume"]) == 0
    assert "is now" not in capsys.readouterr().out


def test_wrong_names_are_told_before_pictures_are_read(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(folder, "load", lambda *_: pytest.fail("it reads pictures"))
    (tmp_path / "file").touch()
    options = ["train", "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    for option, value in (("--model", "lennet"), ("--optimizer", "adan"), ("--out", "file")):
        value = str(tmp_path / "file") if option == "--out" else value
        assert cli.main([*options, option, value]) == 1
        assert value in capsys.readouterr().err


def test_ctrl_c_saves_and_a_resumed_run_ends_as_one_that_was_not_stopped(tmp_path, capsys):
    options = "--data digits --model mlp --epochs 2 --no-report --out".split()
    save, n_saved = mx.checkpoint.Checkpoint.save, 0

    def interrupted(checkpoint):
        nonlocal n_saved
        save(checkpoint)
        n_saved += 1
        if n_saved == 7:  # in the second epoch: 23 batches each, one checkpoint in 5
            signal.raise_signal(signal.SIGINT)

    train.run([*options, str(tmp_path / "whole")])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mx.checkpoint.Checkpoint, "save", interrupted)
        stopped = [*options, str(tmp_path / "parts"), "--checkpoint-every", "5"]
        assert train.main(stopped) == 130
    said = capsys.readouterr().out
    assert "python -m plait train --data digits --model mlp" in said and "--resume" in said
    train.run([*options, str(tmp_path / "parts"), "--resume"])
    files = [tmp_path / part / "mlp-digits/model-0000.params" for part in ("whole", "parts")]
    values = [sorted(a.asnumpy().tobytes() for a in nd.load(str(f)).values()) for f in files]
    assert values[0] == values[1]


# ---- whole runs ----------------------------------------------------------------------------------


def test_a_folder_of_pictures_trains_end_to_end(tmp_path, monkeypatch, capsys):
    write_pictures(tmp_path / "colours", {"red": 20, "green": 20})
    (tmp_path / "colours/red/broken.jpg").write_bytes(b"\xff\xd8\xff no")
    (tmp_path / "colours/red/a.webp").touch()
    half = Image.new("P", (9, 9))  # of whose transparency Pillow would warn
    half.save(tmp_path / "colours/red/clear.png", transparency=bytes([0, 100]))
    options = "--data colours --size 12 --epochs 6 --batch-size 8 --workers 1 --no-report"
    command = [sys.executable, "-W", "error", "-m", "plait", "train", *options.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "skipped 1 file that cannot be read:" and "broken.jpg" in lines[1]
    assert lines[2] == "left out what does not end in .jpg, .jpeg, .png: 1 .webp"
    assert lines[3].startswith("convnet on colours: 33 training and 8 validation pictures 12x12x3")
    assert sum(line.startswith("epoch ") for line in lines) == 6 and "\r" not in done.stdout
    assert "pictures/s" in lines[4] and done.stderr == ""
    history = json.loads((tmp_path / "out/convnet-colours-history.json").read_text())
    assert history[-1]["valid"] > 0.8
    monkeypatch.chdir(tmp_path)
    assert cli.main(["predict", "out/convnet-colours", "colours"]) == 1  # one cannot be read
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"(39|40|41) of 41 are right", lines[-1])
    assert any("colours/red/broken.jpg" in ln and "cannot be read" in ln for ln in lines)


BAD_TRAINERS = {
    "an optimizer that is not there": ("adan", {}, "device"),
    "a parameter that it has not": ("sgd", {"speed": 1}, "device"),
    "a store that is not there": ("sgd", {}, "p3"),
    "parameters beside an optimizer": (mx.optimizer.SGD(), {"momentum": 0.9}, "device"),
    "a store of another type": (mx.optimizer.SGD(), {}, 3),
}


@pytest.mark.parametrize("optimizer, params, store", BAD_TRAINERS.values(), ids=BAD_TRAINERS)
def test_a_trainer_that_cannot_be_made_leaves_nothing_behind(optimizer, params, store):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    before = getattr(optimizer, "param_dict", None)
    with pytest.raises((mx.MXNetError, TypeError)):
        gluon.Trainer(net.collect_params(), optimizer, params, kvstore=store)
    assert all(p._trainer is None for p in net.collect_params().values())
    assert getattr(optimizer, "param_dict", None) is before
