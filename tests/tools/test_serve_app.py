"""The server's application, called in this process with networks made of NumPy: the V2 protocol,
batches, limits, failures, metrics."""

import asyncio
import json
import re
import struct
import threading
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("uvicorn")
from plait.engine.error import MXNetError
from plait.tools.serve import buckets, protocol
from plait.tools.serve.app import App, Limits
from plait.tools.serve.protocol import Tensor
from prometheus_client.parser import text_string_to_metric_families


class Twice:
    """y = 2 x, of rows of 3 numbers; negative numbers are refused. It notes its calls, and waits in
    each while `gate` is closed."""

    platform = "numpy"
    inputs = [Tensor("x", "FP32", (-1, 3))]
    outputs = [Tensor("y", None, None, ("red", "green"))]

    def __init__(self, folder=None):
        self.calls, self.gate, self.entered = [], threading.Event(), threading.Event()
        self.gate.set()

    def run(self, arrays):
        self.entered.set()
        assert self.gate.wait(10)
        (x,) = arrays
        self.calls.append(len(x))
        if (x < 0).any():
            raise MXNetError("x must not be negative")
        return [x * 2]


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, dict(headers), body

    @property
    def json(self):
        assert self.headers[b"content-type"] == b"application/json"
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]


async def request(app, method, path, body=b"", headers=(), parts=None):
    """One request; parts: of its body, as they arrive; what is missing never does."""
    sent = []
    waiting = list(parts) if parts is not None else [body]
    total = len(waiting) if parts is None else len(waiting) + 1

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        more = total > 1 and (len(waiting) > 1 or parts is not None)
        return {"type": "http.request", "body": waiting.pop(0), "more_body": more}

    async def send(message):
        sent.append(message)

    headers = [(k.lower().encode(), str(v).encode()) for k, v in dict(headers).items()]
    scope = {"type": "http", "method": method, "path": path, "headers": headers}
    await app(scope, receive, send)
    start, end = sent
    assert int(dict(start["headers"])[b"content-length"]) == len(end["body"]) or method == "HEAD"
    return Answer(start["status"], start["headers"], end["body"])


def infer(app, body, name="m", headers=(), **kwargs):
    body = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    headers = {"Content-Length": len(body), **dict(headers)}
    return request(app, "POST", f"/v2/models/{name}/infer", body, headers, **kwargs)


def asking(data, shape=None, **others):
    """A request for Twice."""
    shape = shape or [len(data) // 3, 3]
    return {"inputs": [{"name": "x", "shape": shape, "datatype": "FP32", "data": data}], **others}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m/net.onnx").touch()  # the tests' `read` opens no file
    return tmp_path


class Running:
    """An application between its start and its stop, in an event loop of this thread."""

    def __init__(self, folder, read=Twice, **limits):
        self.made, self.told, ended = [], [], threading.Event()

        def reading(place):
            self.made.append(read(place))
            return self.made[-1]

        def told(line):
            self.told.append(line)
            if line is None:
                ended.set()

        self.app = App(folder, Limits(**{"rows": 8, **limits}), reading, told)
        self.loop = asyncio.new_event_loop()
        self.inbox = asyncio.Queue()
        self.said = asyncio.Queue()
        self.lifespan = self.loop.create_task(
            self.app({"type": "lifespan"}, self.inbox.get, self.said.put)
        )
        self._life("startup")
        assert ended.wait(10)

    def _life(self, word):
        async def turn():
            await self.inbox.put({"type": f"lifespan.{word}"})
            return await self.said.get()

        assert self.loop.run_until_complete(turn()) == {"type": f"lifespan.{word}.complete"}

    def __call__(self, *waiting):
        """The answers to requests that are sent at once."""

        async def all_of_them():
            return await asyncio.wait_for(asyncio.gather(*waiting), 20)

        found = self.loop.run_until_complete(all_of_them())
        return found[0] if len(found) == 1 else found

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for model in self.made:
            model.gate.set() if hasattr(model, "gate") else None
        self._life("shutdown")
        self.loop.run_until_complete(self.lifespan)
        self.loop.close()


@pytest.fixture
def running(folder):
    with Running(folder) as running:
        yield running


# ---- the protocol --------------------------------------------------------------------------------


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


@settings(max_examples=150)
@given(body=damaged() | JSON.map(lambda v: json.dumps(v).encode()) | st.binary(max_size=60))
def test_no_body_makes_the_server_fail(shared, body):
    for headers in ({}, {"Inference-Header-Content-Length": len(body) // 2}):
        answer = shared(infer(shared.app, body, headers=headers))
        assert answer.status == 200 or 400 <= answer.status < 500 and answer.error, answer.body


# ---- batches -------------------------------------------------------------------------------------


def busy(running):
    """A request that the model holds in its hands, as an awaitable of its answer."""
    model = running.made[0]
    model.calls.clear()
    model.entered.clear()
    model.gate.clear()
    first = running.loop.create_task(infer(running.app, asking([1, 1, 1])))
    while not model.entered.is_set():
        running(asyncio.sleep(0))
    return first


def waiting(running, n, data=lambda i: [i, i, i]):
    """n requests that wait."""
    made = [running.loop.create_task(infer(running.app, asking(data(i)))) for i in range(n)]
    while running.app._batcher.length() < n:
        running(asyncio.sleep(0))
    return made


def test_requests_that_wait_are_joined_and_each_gets_its_rows(running):
    first = busy(running)
    others = waiting(running, 5, lambda i: [i] * 3 * (1 + i % 2))  # 7 rows
    running.made[0].gate.set()
    answers = running(first, *others)
    assert [a.status for a in answers] == [200] * 6
    for i, answer in enumerate(answers[1:]):
        assert answer.json["outputs"][0]["data"] == [2 * i] * 3 * (1 + i % 2)
    calls = running.made[0].calls
    assert calls[0] == 1 and 7 <= sum(calls[1:]) <= 8 and set(calls) <= {1, 2, 4, 8}


def test_a_batch_has_no_more_rows_than_it_may(running):
    first = busy(running)
    others = waiting(running, 20)
    running.made[0].gate.set()
    assert {a.status for a in running(first, *others)} == {200}
    assert max(running.made[0].calls) <= 8 and sum(running.made[0].calls[1:]) >= 20


def test_a_refused_row_does_not_take_others_with_it(running):
    first = busy(running)
    others = waiting(running, 4, lambda i: [-1 if i == 2 else i] * 3)
    running.made[0].gate.set()
    assert [a.status for a in running(first, *others)] == [200, 200, 200, 422, 200]


class Centred(Twice):
    """Subtracts the mean of the batch: rows depend on each other."""

    def run(self, arrays):
        (x,) = arrays
        self.calls.append(len(x))
        return [x - x.mean(axis=0)]


class Sum(Twice):
    """One number for the batch."""

    def run(self, arrays):
        self.calls.append(len(arrays[0]))
        return [arrays[0].sum()]


@pytest.mark.parametrize("kind", [Centred, Sum])
def test_rows_that_depend_on_each_other_are_not_joined(folder, kind):
    with Running(folder, kind) as running:
        assert "no batches" in running.told[0]
        running.made[0].calls.clear()
        answers = running(*[infer(running.app, asking([i] * 6)) for i in range(4)])
        assert {a.status for a in answers} == {200} and running.made[0].calls == [2] * 4


class Undeclared(Twice):
    inputs = [Tensor("x", None, None)]


def test_a_model_without_declared_shapes_takes_so_many_of_them(folder):
    with Running(folder, Undeclared, shapes=2) as running:
        assert "no model.json" in running.told[0]

        def status(n):
            return running(infer(running.app, asking([1.0] * n, [n]))).status

        negative = asking([-1.0] * 9, [9])
        assert [status(3), status(4)] == [200, 200]
        answer = running(infer(running.app, asking([1.0] * 5, [5])))
        assert answer.status == 422 and "--max-shapes" in answer.error
        assert status(3) == 200
    with Running(folder, Undeclared, shapes=1) as running:
        assert running(infer(running.app, negative)).status == 422
        assert status(3) == 200  # what the model refuses takes no place


@given(times=st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_a_plan_is_the_cheapest_way(times):
    seconds = dict(zip((1, 2, 4, 8), np.maximum.accumulate(np.cumsum(times)).tolist()))
    plan, smooth = buckets.Plan(seconds), buckets._smooth(seconds)
    for n in range(1, 9):
        calls = plan.calls(n)
        assert sum(calls) >= n and set(calls) <= set(seconds)
        ways = (w for k in range(1, n + 1) for w in product(smooth, repeat=k) if sum(w) >= n)
        best = min(sum(smooth[s] for s in w) for w in ways) if n < 5 else 0
        assert n in smooth or n >= 5 or sum(smooth[s] for s in calls) <= best + 1e-9
        assert n not in smooth or calls == [n]


def test_sizes_of_batches():
    assert buckets.sizes(8) == [1, 2, 4, 8] and buckets.sizes(6) == [1, 2, 4, 6]
    assert buckets.sizes(1) == [1]


# ---- limits, failures, metrics -------------------------------------------------------------------


def test_a_full_queue_answers_503_and_works_again(folder):
    with Running(folder, queue=4) as running:
        first = busy(running)
        others = waiting(running, 3)
        refused = running(*[infer(running.app, asking([1, 1, 1])) for _ in range(5)])
        assert {a.status for a in refused} == {503}
        assert refused[0].headers[b"retry-after"] == b"1" and "4 requests wait" in refused[0].error
        running.made[0].gate.set()
        assert {a.status for a in running(first, *others)} == {200}
        assert running(infer(running.app, asking([1, 1, 1]))).status == 200


def test_bodies_that_wait_have_a_limit_too(folder):
    body = asking([1, 1, 1])
    with Running(folder, body_bytes=len(json.dumps(body)) + 10) as running:
        first = busy(running)
        (second,) = waiting(running, 1)
        assert running(infer(running.app, body)).status == 503
        running.made[0].gate.set()
        assert {a.status for a in running(first, second)} == {200}


def test_what_waits_too_long_is_refused(folder):
    with Running(folder) as running:
        first = busy(running)
        others = waiting(running, 1)
        (queue,) = running.app._batcher._queues.values()
        queue.jobs[0].since -= 60
        running.made[0].gate.set()
        one, other = running(first, *others)
        assert (one.status, other.status) == (200, 503) and b"retry-after" in other.headers


def test_a_body_that_does_not_arrive(folder):
    with Running(folder, seconds=0.05) as running:
        answer = running(infer(running.app, b"", parts=[b'{"inputs"']))
        assert answer.status == 408 and answer.headers[b"connection"] == b"close"


def test_a_body_without_length_that_grows(folder):
    with Running(folder, body_bytes=100, seconds=0.05) as running:
        send = request(running.app, "POST", "/v2/models/m/infer", parts=[b" " * 60, b" " * 60])
        answer = running(send)
        assert answer.status == 413 and "100" in answer.error


class Broken:
    def __init__(self, folder):
        raise MXNetError(f"{folder}/net.onnx is damaged")


def test_a_model_that_fails_to_load_does_not_stop_the_others(folder):
    (folder / "bad").mkdir()
    (folder / "bad/net.onnx").touch()
    read = lambda place: (Broken if place.name == "bad" else Twice)(place)
    with Running(folder, read) as running:
        assert running.told[0].startswith("bad, version 1: failed: ")
        assert "bad/net.onnx is damaged" in running.told[0]
        assert running(request(running.app, "GET", "/v2/health/ready")).status == 200
        answer = running(request(running.app, "GET", "/v2/models/bad/ready"))
        assert answer.status == 503 and "is damaged" in answer.error
        assert running(infer(running.app, asking([1, 2, 3]), "bad")).status == 503
        assert running(infer(running.app, asking([1, 2, 3]))).status == 200
    with Running(folder, Broken) as running:
        assert running(request(running.app, "GET", "/v2/health/ready")).status == 503
        assert running(request(running.app, "GET", "/v2/health/live")).status == 200


class Crashes(Twice):
    """An error that is not the request's, after the first calls."""

    def run(self, arrays):
        if arrays[0].max() > 100:
            raise AttributeError("a secret of the server")
        return super().run(arrays)


def test_an_error_of_the_server_says_nothing_of_it(folder, capsys):
    with Running(folder, Crashes) as running:
        answer = running(infer(running.app, asking([1, 2, 300])))
        assert answer.status == 500 and "secret" not in answer.error
        assert running(infer(running.app, asking([1, 2, 3]))).status == 200
    assert "a secret of the server" in capsys.readouterr().err


def metrics(running):
    answer = running(request(running.app, "GET", "/metrics"))
    assert answer.status == 200
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            labels = sample.labels
            found[sample.name, labels.get("code") or labels.get("le"), labels.get("what")] = (
                sample.value
            )
    return found


def test_metrics_count_requests_errors_and_batches(running):
    first = busy(running)
    others = waiting(running, 4)
    assert metrics(running)["plait_queue_length", None, None] == 4
    running.made[0].gate.set()
    running(first, *others)
    running(infer(running.app, b"{"))
    running(request(running.app, "GET", f"/v2/models/{'x' * 50}"))
    found = metrics(running)
    assert found["plait_requests_total", "200", "infer"] == 5
    assert found["plait_requests_total", "400", "infer"] == 1
    assert found["plait_requests_total", "404", "model"] == 1
    assert found["plait_request_seconds_count", None, None] == 6
    assert found["plait_queue_seconds_count", None, None] == 5
    assert found["plait_batch_rows_count", None, None] == 2
    assert found["plait_batch_rows_sum", None, None] == 5
    assert found["plait_batch_rows_bucket", "1.0", None] == 1
    assert found["plait_batch_rows_bucket", "4.0", None] == 2
    assert found["plait_queue_length", None, None] == 0
    assert found["plait_model_ready", None, None] == 1


# ---- folders -------------------------------------------------------------------------------------


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
    with Running(tmp_path / "a", read) as running:
        assert running(request(running.app, "GET", "/v2/models/a/versions/1")).status == 200


@pytest.mark.parametrize("place, text", [(".", "has no model"), ("nothing", "is no folder")])
def test_a_folder_without_models(tmp_path, place, text):
    with pytest.raises(MXNetError, match=text):
        App(Path(tmp_path / place))
