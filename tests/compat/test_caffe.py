"""Caffe networks beside OpenCV's outputs, which downstream/caffe_models.py wrote, and NumPy."""

from pathlib import Path

import caffe_nets as nets
import numpy as np
import plait as mx
import pytest
from plait import caffe, gluon, nd
from plait.__main__ import main
from plait.compat.caffe.schema import messages

OPENCV = np.load(Path(__file__).parent.parent / "fixtures" / "caffe_opencv.npz")


def files(folder, text, model):
    (folder / "net.prototxt").write_text(text)
    (folder / "net.caffemodel").write_bytes(model)
    return folder / "net.prototxt", folder / "net.caffemodel"


def output(folder, text, model, x, **how):
    symbol, args, aux, _ = caffe.convert_model(*files(folder, text, model), **how)
    made = symbol.bind(mx.cpu(), {"data": nd.array(x), **args}, aux_states=aux)
    return made.forward()[0].asnumpy()


def windows(x, k, s, pad, mean):
    """Caffe's pooling: windows are counted up, the last begins inside the padded input, and a mean
    counts padding up to the padded border."""
    counts = [-(-(n + 2 * pad - k) // s) + 1 for n in x.shape[2:]]
    counts = [c - (pad > 0 and (c - 1) * s >= n + pad) for c, n in zip(counts, x.shape[2:])]
    out = np.zeros((*x.shape[:2], *counts))
    for i in range(counts[0]):
        for j in range(counts[1]):
            ends = []
            size = 1
            for at, n in ((i * s - pad, x.shape[2]), (j * s - pad, x.shape[3])):
                size *= min(at + k, n + pad) - at
                ends.append(slice(max(at, 0), min(at + k, n)))
            part = x[:, :, ends[0], ends[1]]
            out[:, :, i, j] = part.sum((2, 3)) / size if mean else part.max((2, 3))
    return out


BY_NUMPY = {
    "max pooling": lambda x: windows(x, 3, 2, 1, False),
    "mean pooling": lambda x: windows(x, 3, 2, 1, True),
    "padded windows that begin outside": lambda x: windows(x, 2, 2, 1, False),
    "argmax": lambda x: x.argmax(1)[:, None],
}


@pytest.mark.parametrize("name", nets.NETS)
def test_outputs(name, tmp_path):
    x = nets.data(name)
    got = output(tmp_path, nets.NETS[name][0], nets.model(name), x)
    wanted = BY_NUMPY[name](x) if name in BY_NUMPY else OPENCV[name]
    if name == "detection":  # rows of (image, label, score, corners)
        wanted = wanted.reshape(-1, 7)
        wanted = np.concatenate([wanted[:, 1:2] - 1, wanted[:, 2:]], 1)
        assert (got[0, len(wanted) :] == -1).all()
        got = got[0, : len(wanted)]
    assert got.shape == wanted.shape or got.size == wanted.size
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-3, atol=2e-5)


OTHERS = {  # what OpenCV lacks
    "Log": (("Log", "log_param { base: 10 shift: 3 }"), lambda x: np.log10(x + 3)),
    "Threshold": (("Threshold", "threshold_param { threshold: 0.5 }"), lambda x: x > 0.5),
    "sum": (("Reduction", "reduction_param { axis: 2 coeff: 2 }"), lambda x: 2 * x.sum((2, 3))),
    "mean of squares": (
        ("Reduction", "reduction_param { operation: SUMSQ axis: 1 }"),
        lambda x: (x * x).sum((1, 2, 3)),
    ),
    "Tile": (("Tile", "tile_param { axis: 2 tiles: 3 }"), lambda x: np.tile(x, (1, 1, 3, 1))),
    "Bias": (
        ("Bias", "", (3,)),
        lambda x: x + nets.values("Bias bias0 0", (3,))[:, None, None],
    ),
    "a scale of several axes": (
        ("Scale", "scale_param { axis: 2 num_axes: 2 }", (11, 13)),
        lambda x: x * nets.values("a scale of several axes scale0 0", (11, 13)),
    ),
    "argmax of all": (
        ("ArgMax", "argmax_param { top_k: 2 out_max_val: true }"),
        lambda x: np.stack(
            [
                np.argsort(-x.reshape(2, -1), 1)[:, :2],
                -np.sort(-x.reshape(2, -1), 1)[:, :2],
            ],
            1,
        ),
    ),
    "mvn across": (
        ("MVN", "mvn_param { across_channels: true normalize_variance: false }"),
        lambda x: x - x.mean((1, 2, 3), keepdims=True),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_layers_that_opencv_lacks(name, tmp_path, monkeypatch):
    part, wanted = OTHERS[name]
    monkeypatch.setitem(nets.NETS, name, nets.layers(part))
    x = nets.image()
    got = output(tmp_path, nets.NETS[name][0], nets.model(name), x)
    np.testing.assert_allclose(got, wanted(x.astype("float64")), rtol=1e-5, atol=1e-5)


def test_a_crop_an_embedding_and_several_inputs(tmp_path):
    text = """
    input: "data" input_dim: 2 input_dim: 3 input_dim: 11 input_dim: 13
    input: "like" input_dim: 2 input_dim: 3 input_dim: 5 input_dim: 6
    layer { name: "crop" type: "Crop" bottom: "data" bottom: "like" top: "crop"
            crop_param { offset: 2 offset: 3 } }
    layer { name: "words" type: "Input" top: "words" input_param { shape { dim: 2 dim: 4 } } }
    layer { name: "e" type: "Embed" bottom: "words" top: "e"
            embed_param { num_output: 3 input_dim: 7 } }
    """
    model = messages()["NetParameter"]()
    kept = model.layer.add(name="e")
    for shape in ((7, 3), (3,)):
        blob = kept.blobs.add()
        blob.shape.dim.extend(shape)
        blob.data.extend(np.arange(np.prod(shape)))
    symbol, args, aux, shapes = caffe.convert_model(
        *files(tmp_path, text, model.SerializeToString())
    )
    assert shapes == [(2, 3, 11, 13), (2, 3, 5, 6), (2, 4)] and aux == {}
    x, words = nets.image(), np.array([[0, 6, 1, 2], [3, 3, 5, 4]])
    inputs = {"data": nd.array(x), "words": nd.array(words)}
    inputs["like"] = nd.zeros((2, 3, 5, 6))
    given = {k: v for k, v in {**inputs, **args}.items() if k in symbol.list_arguments()}
    first, second = [y.asnumpy() for y in symbol.bind(mx.cpu(), given).forward()]
    np.testing.assert_array_equal(first, x[:, :, 2:7, 3:9])
    np.testing.assert_array_equal(second, np.arange(21).reshape(7, 3)[words] + np.arange(3))


@pytest.mark.parametrize("name", ["convolution", "max pooling", "groups"])
def test_rgb_takes_the_channels_in_reverse(name, tmp_path):
    text, model, x = nets.NETS[name][0], nets.model(name), nets.data(name)
    bgr = output(tmp_path, text, model, x)
    rgb = output(tmp_path, text, model, x[:, ::-1].copy(), rgb=True)
    np.testing.assert_allclose(rgb, bgr, rtol=1e-5, atol=1e-6)


def test_the_command_writes_what_gluon_loads(tmp_path, capsys):
    prototxt, model = files(tmp_path, nets.NETS["version 1"][0], nets.model("version 1"))
    prefix = tmp_path / "out"
    assert main(["caffe", "convert", str(prototxt), str(model), "-o", str(prefix)]) == 0
    assert "(2, 3, 11, 13); outputs: prob_output" in capsys.readouterr().out
    net = gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
    got = net(nd.array(nets.image())).asnumpy()
    np.testing.assert_allclose(got, OPENCV["version 1"].reshape(2, 5), rtol=1e-4)
    symbol, shapes = caffe.convert_symbol(prototxt)
    assert symbol.list_outputs() == ["prob_output"] and shapes == [(2, 3, 11, 13)]
    assert main(["caffe", "convert", str(prototxt), str(tmp_path / "none"), "-o", "x"]) == 1
    assert "none" in capsys.readouterr().err


def test_a_mean_image(tmp_path):
    blob = messages()["BlobProto"](num=1, channels=3, height=2, width=2)
    blob.data.extend(range(12))
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    wanted = np.arange(12).reshape(3, 2, 2)
    np.testing.assert_array_equal(caffe.convert_mean(tmp_path / "mean").asnumpy(), wanted)
    found = caffe.convert_mean(tmp_path / "mean", str(tmp_path / "m.nd"), rgb=True)
    np.testing.assert_array_equal(found.asnumpy(), wanted[::-1])
    np.testing.assert_array_equal(
        nd.load(str(tmp_path / "m.nd"))["mean_image"].asnumpy(), wanted[::-1]
    )


ONE = 'layer {{ name: "a" type: "{}" bottom: "{}" top: "a" {} }}'
BAD_TEXT = {
    "no protobuf": ("layer { name", "no network in protobuf's text form"),
    "a wrong value": ("layer { name: 3 }", "no network in protobuf's text form"),
    "nothing": ("", "no output"),
    "an unknown layer": (nets.net(ONE.format("Pythn", "data", "")), "a is a Pythn layer"),
    "an unknown bottom": (
        nets.net(ONE.format("ReLU", "dat", "")),
        "'dat', which no layer makes\n  fix: .*'data'",
    ),
    "the first format": (nets.net('layers { layer { name: "a" } }'), "first format"),
    "both versions": (nets.net('layers {} layer { name: "a" }'), "both versions"),
    "a stochastic pool": (
        nets.net(
            ONE.format("Pooling", "data", "pooling_param { pool: STOCHASTIC kernel_size: 2 }")
        ),
        "STOCHASTIC",
    ),
    "no shape": (
        'input: "data" ' + ONE.format("MVN", "data", ""),
        "needs the shape of its input\n  fix: input_shape",
    ),
    "a layer without a bottom": (
        nets.net('layer { name: "r" type: "ReLU" top: "r" }'),
        "r needs bottom 1, it has 0",
    ),
    "numbers of coefficients": (
        nets.net(ONE.format("Eltwise", "data", "eltwise_param { coeff: 1 coeff: 2 }")),
        "coeff must have",
    ),
}


@pytest.mark.parametrize("text, message", BAD_TEXT.values(), ids=BAD_TEXT)
def test_a_wrong_prototxt_is_one_clear_error(text, message, tmp_path):
    with pytest.raises(ValueError, match=message) as e:
        caffe.convert_model(*files(tmp_path, text, nets.model("convolution")))
    assert isinstance(e.value, mx.MXNetError)


def test_a_damaged_model_is_one_clear_error(tmp_path):
    text, model = nets.NETS["convolution"][0], nets.model("convolution")
    rng = np.random.RandomState(0)
    cases = [b"", model[: len(model) // 2], rng.bytes(300), text.encode()]
    for _ in range(150):
        changed = bytearray(model)
        for at in rng.randint(0, len(changed), 3):
            changed[at] = rng.randint(256)
        cases.append(bytes(changed))
    refused = 0
    for content in cases:
        try:
            symbol, args, aux, _ = caffe.convert_model(*files(tmp_path, text, content))
            given = {"data": nd.array(nets.image()), **args}
            symbol.bind(mx.cpu(), given, aux_states=aux).forward()[0].wait_to_read()
        except mx.MXNetError:
            refused += 1
    assert refused > 20
    with pytest.raises(ValueError, match="is no text: is it the caffemodel"):
        caffe.convert_symbol(files(tmp_path, "", b"\xff\xfe\x80")[1])
    other = model.replace(b"convolution0", b"convolution1")
    with pytest.raises(ValueError, match="no blobs for convolution0\n  fix: .*'convolution1'"):
        caffe.convert_model(*files(tmp_path, text, other))
