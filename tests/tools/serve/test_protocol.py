"""The V2 protocol: addresses, numbers in both forms, and what is told of wrong requests."""

import io
import json
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from plait.tools.serve import protocol
from plait.tools.serve.protocol import Tensor
from serving import Running, Twice, asking, infer, request


def test_health_and_metadata(running):
    def get(path):
        answer = running(request(running.app, "GET", path))
        assert answer.status == 200
        return answer.json

    assert get("/v2/health/live") == {"live": True}
    assert get("/v2/health/ready") == {"ready": True}
    server = get("/v2")
    assert set(server) == {"name", "version", "extensions"} and server["name"] == "plait"
    assert "binary_tensor_data" in server["extensions"]
    tensors = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}]}
    tensors["outputs"] = [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]
    model = {"name": "m", "versions": ["1"], "platform": "numpy", **tensors}
    assert get("/v2/models/m") == get("/v2/models/m/versions/1") == model
    ready = {"name": "m", "ready": True}
    assert get("/v2/models/m/ready") == get("/v2/models/m/versions/1/ready") == ready
    assert get("/v2/models") == {"models": ["m"]}


def test_an_answer_has_what_the_protocol_says(running):
    body = asking([1, 2.5, 3, 4, 5, 6], id="a7", parameters={"priority": 1})
    answer = running(infer(running.app, body))
    tensor = {"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [2, 5, 6, 8, 10, 12]}
    assert answer.status == 200
    assert answer.json == {
        "model_name": "m", "model_version": "1", "id": "a7", "outputs": [tensor]
    }  # fmt: skip
    nested = running(infer(running.app, asking([[1, 2.5, 3], [4, 5, 6]], [2, 3])))
    assert nested.json["outputs"] == [tensor] and "id" not in nested.json


class Same:
    """Gives its input, of any one type."""

    platform = "numpy"
    outputs = [Tensor("y", None, None)]

    def __init__(self, datatype):
        self.inputs = [Tensor("x", datatype, (-1, 2))]

    def run(self, arrays):
        return [arrays[0].copy()]


VALUES = {"BOOL": [True, False], "FP16": [0.5, -2.0], "FP32": [0.1, 1e30], "FP64": [0.1, 1e300]}


@pytest.mark.parametrize("datatype", protocol.DATATYPES)
def test_numbers_come_back_in_either_form(folder, datatype):
    dtype = protocol.DATATYPES[datatype]
    values = VALUES.get(datatype)
    if values is None:
        limits = np.iinfo(dtype)
        values = [int(limits.min), int(limits.max)]
    exact = np.array(values, dtype)
    tensor = {"name": "x", "shape": [1, 2], "datatype": datatype}
    with Running(folder, lambda place: Same(datatype)) as running:
        in_json = running(infer(running.app, {"inputs": [{**tensor, "data": values}]}))
        (found,) = in_json.json["outputs"]
        assert found["datatype"] == datatype and found["shape"] == [1, 2]
        assert (np.array(found["data"], dtype) == exact).all()

        tensor["parameters"] = {"binary_data_size": exact.nbytes}
        text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        size = {"Inference-Header-Content-Length": len(text)}
        answer = running(infer(running.app, text + exact.tobytes(), headers=size))
        assert answer.headers[b"content-type"] == b"application/octet-stream"
        cut = int(answer.headers[b"inference-header-content-length"])
        (found,) = json.loads(answer.body[:cut])["outputs"]
        assert found["parameters"] == {"binary_data_size": exact.nbytes} and "data" not in found
        assert answer.body[cut:] == exact.tobytes()

        raw = running(
            infer(running.app, exact.tobytes(), headers={"Inference-Header-Content-Length": 0})
        )
        assert raw.body.endswith(exact.tobytes())


def test_classes_of_an_output(running):
    wanted = [{"name": "y", "parameters": {"classification": 2}}]
    answer = running(infer(running.app, asking([1, 4, 2.5], outputs=wanted)))
    (found,) = answer.json["outputs"]
    assert (found["name"], found["datatype"], found["shape"]) == ("y", "BYTES", [1, 2])
    assert found["data"] == ["8.000000:1:green", "5.000000:2"]
    wanted[0]["parameters"]["binary_data"] = True
    answer = running(infer(running.app, asking([1, 4, 2.5], outputs=wanted)))
    cut = int(answer.headers[b"inference-header-content-length"])
    memory, texts = answer.body[cut:], []
    while memory:
        (n,) = struct.unpack("<I", memory[:4])
        texts.append(memory[4 : 4 + n].decode())
        memory = memory[4 + n :]
    assert texts == found["data"]


class Sides(Twice):
    """How bright the left and the right half of pictures are."""

    inputs = [Tensor("data", "UINT8", (-1, 4, 6, 3), (), 4)]
    outputs = [Tensor("side", None, None, ("left", "right"))]

    def run(self, arrays):
        halves = [arrays[0][:, :, part].mean((1, 2, 3)) for part in (slice(3), slice(3, 6))]
        return [np.stack(halves, axis=1).astype(np.float32)]


def encoded(left, right, kind, size=(60, 40)):
    picture = Image.new("L", size, left)
    picture.paste(right, (size[0] // 2, 0, *size))
    picture.save(file := io.BytesIO(), kind)
    return file.getvalue()


def test_an_encoded_picture_gets_its_classes(folder, running, monkeypatch):
    def ask(app, body, kind="image/jpeg"):
        return infer(app, body, headers={"Content-Type": kind})

    with Running(folder, Sides) as pictures:
        for kind, high, low, best in (("PNG", 200, 10, "left"), ("JPEG", 10, 200, "right")):
            answer = pictures(ask(pictures.app, encoded(high, low, kind), f"image/{kind.lower()}"))
            (found,) = answer.json["outputs"]
            assert (found["datatype"], found["shape"]) == ("BYTES", [1, 2])
            assert found["data"][0].endswith(best) and float(found["data"][0].split(":")[0]) > 190
        for body, status, text in (
            (b"no picture", 422, "no known format"),
            (encoded(1, 2, "JPEG")[:-20], 422, "damaged"),
        ):
            answer = pictures(ask(pictures.app, body))
            assert answer.status == status and text in answer.error
        monkeypatch.setattr(protocol, "MOST_PIXELS", 2399)
        answer = pictures(ask(pictures.app, encoded(1, 2, "PNG")))
        assert answer.status == 413 and "40 x 60 pixels, the server takes 2399" in answer.error
    answer = running(ask(running.app, encoded(1, 2, "PNG")))
    assert answer.status == 415 and "takes no encoded pictures" in answer.error


TENSOR = asking([1, 2, 3])["inputs"][0]


def changed(**entries):
    tensor = {k: v for k, v in {**TENSOR, **entries}.items() if v is not None}
    return {"inputs": [tensor]}


BAD = [
    (b"", 400, "no JSON"),
    (b"{", 400, "no JSON"),
    (b"[" * 2000, 400, "no JSON"),
    ([], 400, "the body must be an object"),
    ({}, 400, "inputs must be a list"),
    ({"inputs": []}, 400, "inputs must be a list"),
    ({"inputs": [3]}, 400, r"inputs\[0\] must be an object"),
    ({"inputs": [TENSOR], "id": 3}, 400, "id must be a string"),
    ({"inputs": [TENSOR], "parameters": 3}, 400, "parameters must be an object"),
    ({"inputs": [TENSOR, TENSOR]}, 400, "'x' is given twice"),
    (changed(name=3), 400, "name must be a string"),
    (changed(name="z"), 422, r"no input 'z'\n  fix: its inputs are \['x'\]"),
    (changed(shape=3), 400, "shape must be a list"),
    (changed(shape=[1, -3]), 400, "shape must be a list of sizes"),
    (changed(shape=[True, 3]), 400, "shape must be a list of sizes"),
    (changed(shape=[1, 3.0]), 400, "shape must be a list of sizes"),
    (changed(shape=[3]), 422, r"takes shape \[-1, 3\], where -1 is any size, got \[3\]"),
    (changed(shape=[1, 4]), 422, "takes shape"),
    (changed(shape=[0, 3], data=[]), 422, "no elements"),
    (changed(shape=[2, 3]), 400, "has 6 elements, data has 3"),
    (changed(shape=[10**9, 3]), 413, "3000000000 elements"),
    (changed(shape=[9, 3], data=[0] * 27), 413, "may have 8"),
    (changed(datatype=None), 400, "datatype must be a string"),
    (changed(datatype="BYTES"), 422, "no datatype 'BYTES'"),
    (changed(datatype="FP64"), 422, "takes FP32, got FP64"),
    (changed(data=None), 400, "data must be a list"),
    (changed(data=["1", "2", "3"]), 400, "data must be numbers"),
    (changed(data=[1, None, 3]), 400, "data must be numbers"),
    (changed(data=[[1, 2], [3]]), 400, "lists of equal lengths"),
    (changed(data=[1, 2, 1e39]), 422, "does not fit into FP32"),
    (changed(data=[True, False, True]), 400, "numbers of FP32"),
    (changed(parameters={"binary_data_size": 12}), 400, "both data and binary_data_size"),
    (changed(data=None, parameters={"binary_data_size": 12}), 400, "12 are needed"),
    (changed(data=None, parameters={"binary_data_size": 11}), 400, "takes 12 bytes"),
    (asking([1, 2, 3], outputs=3), 400, "outputs must be a list"),
    (asking([1, 2, 3], outputs=[{"name": "q"}]), 422, "no output 'q'"),
    (asking([1, 2, 3], outputs=[{"name": "y"}] * 2), 400, "asked for twice"),
    (asking([1, 2, 3], outputs=[{"name": "y", "parameters": {"classification": -1}}]), 400, "cl"),
    (asking([1, 2, 3], outputs=[{"name": "y", "parameters": {"binary_data": 1}}]), 400, "true or"),
    (asking([1, -2, 3]), 422, "x must not be negative"),
]  # fmt: skip


def test_wrong_bodies_are_told_what_is_wrong(running):
    for body, status, text in BAD:
        answer = running(infer(running.app, body))
        assert answer.status == status, (body, answer.body)
        assert re.search(text, answer.error), (body, answer.error)
    assert running(infer(running.app, asking([1, 2, 3]))).status == 200


@pytest.mark.parametrize(
    "headers, body, status, text",
    [
        ({"Content-Type": "text/plain"}, b"{}", 415, "Content-Type: application/json"),
        ({"Content-Type": "application/octet-stream"}, b"{}", 415, "needs the header"),
        ({"Content-Encoding": "gzip"}, b"{}", 415, "compressed"),
        ({"Inference-Header-Content-Length": "x"}, b"{}", 400, "number of bytes"),
        ({"Inference-Header-Content-Length": "-1"}, b"{}", 400, "number of bytes"),
        ({"Inference-Header-Content-Length": 9}, b"{}", 400, "is 9, but the body has 2 bytes"),
        ({"Inference-Header-Content-Length": 0}, b"12345", 422, "5 bytes is no FP32 array"),
        ({"Inference-Header-Content-Length": 0}, b"", 422, "0 bytes is no FP32 array"),
        ({"Content-Length": 1 << 30}, b"{}", 413, "1073741824 bytes or more"),
        ({"Content-Length": "9" * 50}, b"{}", 413, "bytes or more"),
    ],
)
def test_wrong_headers(running, headers, body, status, text):
    answer = running(infer(running.app, body, headers=headers))
    assert answer.status == status and text in answer.error


def test_binary_data_of_another_length(running):
    text = json.dumps(changed(data=None, parameters={"binary_data_size": 12})).encode()
    for rest in (b"1" * 11, b"1" * 13):
        size = {"Inference-Header-Content-Length": len(text)}
        answer = running(infer(running.app, text + rest, headers=size))
        assert answer.status == 400 and "bytes" in answer.error


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("GET", "/", 404),
        ("GET", "/v2/models/other", 404),
        ("GET", "/v2/models/m/versions/2", 404),
        ("GET", "/v2/models/..%2f..%2fetc/passwd", 404),
        ("GET", "/v2/models/../../etc/passwd", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("GET", "/v2/models/m/infer", 405),
        ("DELETE", "/v2/models/m", 405),
        ("POST", "/metrics", 405),
    ],
)
def test_other_addresses_and_methods(running, method, path, status):
    answer = running(request(running.app, method, path))
    assert answer.status == status and answer.error
    assert (b"allow" in answer.headers) == (status == 405)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4) | st.sampled_from(["FP32", "x", "y", "INT64", "BYTES"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(["inputs", "outputs", "name", "shape", "datatype", "data", "parameters",
                         "binary_data_size", "classification", "binary_data", "id"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@st.composite
def damaged(draw):
    """A good request with one entry replaced or missing, or bytes of its text changed."""
    body = asking([1, 2, 3], outputs=[{"name": "y", "parameters": {"classification": 1}}], id="a")
    places = [body, body["inputs"][0], body["outputs"][0], body["outputs"][0]["parameters"]]
    place = draw(st.sampled_from(places))
    key = draw(st.sampled_from(sorted(place)))
    if draw(st.booleans()):
        place[key] = draw(JSON)
    else:
        del place[key]
    text = bytearray(json.dumps(body).encode())
    for _ in range(draw(st.integers(0, 2))):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.integers(0, 255))
    return bytes(text)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "m").mkdir()
    (folder / "m/net.onnx").touch()
    with Running(folder) as running:
        yield running


@settings(max_examples=60)
@given(body=damaged() | JSON.map(lambda v: json.dumps(v).encode()) | st.binary(max_size=60))
def test_no_body_makes_the_server_fail(shared, body):
    for headers in ({}, {"Inference-Header-Content-Length": len(body) // 2}):
        answer = shared(infer(shared.app, body, headers=headers))
        assert answer.status == 200 or 400 <= answer.status < 500 and answer.error, answer.body
