"""`plait serve` as a process: networks of plait in it, over HTTP, and how it stops."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import plait as mx
import pytest
from plait import __main__ as cli
from plait import nd
from plait.gluon import nn
from plait.tools import serve

TOLERANCE = 1e-5  # of a row in a batch of another size: sums are in another order


def network():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.Flatten())
    net.add(nn.Dense(32, activation="relu"), nn.Dense(3))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    net(nd.ones((2, 1, 8, 8)))
    return net


def described(shape, classes=()):
    data = {"name": "data", "dtype": "float32", "shape": shape}
    scores = {"name": "scores", "dtype": "float32", "shape": [None, 3], "classes": list(classes)}
    return json.dumps({"format": "plait model 1", "inputs": [data], "outputs": [scores]})


class Client:
    """What asks a server."""

    def __init__(self, port):
        self.port = port

    def wait_ready(self):
        end = time.monotonic() + 120
        while self.get("/v2/health/ready")[0] != 200:
            assert time.monotonic() < end
            threading.Event().wait(0.05)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, path):
        return self.ask("GET", path)

    def ask(self, method, path, body=None, headers={}, connection=None):
        """(status, JSON or text, headers)."""
        own = connection or self.connection()
        own.request(method, path, body, headers)
        answer = own.getresponse()
        text = answer.read()
        if connection is None:
            own.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text, answer.headers

    def infer(self, name, x, connection=None, **others):
        """The first output for an array, sent as binary data."""
        tensor = {"name": "data", "shape": x.shape, "datatype": "FP32"}
        tensor["parameters"] = {"binary_data_size": x.nbytes}
        asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}, **others}
        text = json.dumps(asked).encode()
        headers = {"Inference-Header-Content-Length": len(text)}
        status, body, headers = self.ask(
            "POST", f"/v2/models/{name}/infer", text + x.tobytes(), headers, connection
        )
        assert status == 200, body
        cut = int(headers["Inference-Header-Content-Length"])
        shape = json.loads(body[:cut])["outputs"][0]["shape"]
        return np.frombuffer(body[cut:], np.float32).reshape(shape)


class Server(Client):
    """A server in a process of its own."""

    def __init__(self, folder, *options):
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "plait", "serve", str(folder), "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        found = re.fullmatch(
            r"plait serve: http://127.0.0.1:(\d+)\n", self.process.stdout.readline()
        )
        assert found, self.process.communicate()
        super().__init__(int(found[1]))

    def stop(self):
        self.process.terminate()
        return self.process.wait(30), *self.process.communicate()


@pytest.fixture
def serve_here(monkeypatch):
    """Runs a server in this process, until `use`, which gets a Client in a thread of its own,
    returns and a signal comes. Gives the exit status."""

    def run(folder, number, use, *options):
        listening, thread, failed = serve._listening, None, []

        def listen(host, port):
            nonlocal thread
            made = listening(host, port)
            thread = threading.Thread(target=client, args=(Client(made.getsockname()[1]),))
            thread.start()
            return made

        def client(asks):
            asks.get("/v2/health/live")  # from now on the server handles signals
            stop = lambda: os.kill(os.getpid(), number)
            try:
                after = use(asks)
                stop()
                after()
            except BaseException as error:  # shown by the test's thread
                failed.append(error)
                stop()

        monkeypatch.setattr(serve, "_listening", listen)
        status = cli.main(["serve", str(folder), "--port", "0", *options])
        thread.join(60)
        assert not failed, failed
        return status

    return run


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    mx.seed_all(1)
    net = network()
    for name in ("exported", "saved", "converted", "plain", "damaged"):
        (folder / name).mkdir()
    net.export(str(folder / "exported/net"), epoch=3)
    (folder / "exported/net-0001.params").write_bytes(b"an older one")
    (folder / "exported/model.json").write_text(described([None, 1, 8, 8], "abc"))
    net.save(str(folder / "saved/net"))
    (folder / "saved/model.json").write_text(described([None, 1, 8, 8]))
    varying = [("batch", 1, 8, 8)]
    x = nd.ones((2, 1, 8, 8))
    net.export_onnx(str(folder / "converted/net.onnx"), x, dynamic_input_shapes=varying)
    net.export(str(folder / "plain/net"))
    net.export(str(folder / "damaged/net"))
    (folder / "damaged/net-0000.params").write_bytes(b"damaged")
    server = Server(folder, "--max-batch", "8", "--max-request-mb", "1", "--max-queue", "64")
    server.wait_ready()
    yield net, server
    status, out, err = server.stop()
    assert (status, out) == (0, "")
    assert re.search(r"damaged, version 1: failed: .*damaged/net-0000.params", err)


@pytest.fixture(scope="module")
def pictures():
    return np.random.default_rng(0).random((40, 1, 8, 8), np.float32)


def near(found, wanted):
    return np.abs(found - wanted).max() <= TOLERANCE * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["exported", "saved", "converted", "plain"])
def test_answers_are_those_of_the_network(served, pictures, name):
    net, server = served
    for rows in (1, 2, 3, 8):
        x = pictures[:rows]
        assert near(server.infer(name, x), net(nd.array(x)).asnumpy())


def test_answers_of_one_size_are_equal_bit_for_bit(served, pictures):
    _, server = served
    alone = [server.infer("exported", pictures[i : i + 1]) for i in range(8)]
    again = [server.infer("exported", pictures[i : i + 1]) for i in range(8)]
    assert (np.concatenate(alone) == np.concatenate(again)).all()
    together = server.infer("exported", pictures[:8])
    assert near(together, np.concatenate(alone))
    assert (together == server.infer("exported", pictures[:8])).all()


def test_many_clients_at_once(served, pictures):
    net, server = served
    wanted = net(nd.array(pictures)).asnumpy()
    found, failed = {}, []

    def client(first):
        connection = server.connection()
        try:
            for i in range(first, 40, 8):
                found[i] = server.infer("exported", pictures[i : i + 1], connection)
        except BaseException as error:  # shown by the test's thread
            failed.append(error)
        connection.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(found) == 40
    assert near(np.concatenate([found[i] for i in range(40)]), wanted)


def test_metadata_of_the_kinds_of_files(served):
    _, server = served
    tensor = {"name": "data", "datatype": "FP32", "shape": [-1, 1, 8, 8]}
    for name, platform in (("exported", "plait"), ("converted", "plait_onnx")):
        status, found, _ = server.get(f"/v2/models/{name}")
        assert (status, found["platform"], found["inputs"]) == (200, platform, [tensor])
        assert found["outputs"][0]["shape"] == [-1, 3]
    status, found, _ = server.get("/v2/models/damaged/ready")
    assert status == 503 and "damaged/net-0000.params" in found["error"]


def test_names_of_classes(served, pictures):
    net, server = served
    tensor = {"name": "data", "shape": [1, 1, 8, 8], "datatype": "FP32"}
    tensor["data"] = pictures[0].reshape(-1).tolist()
    wanted = [{"name": "scores", "parameters": {"classification": 3}}]
    body = json.dumps({"inputs": [tensor], "outputs": wanted})
    status, found, _ = server.ask(
        "POST", "/v2/models/exported/infer", body, {"Content-Type": "application/json"}
    )
    scores = net(nd.array(pictures[:1])).asnumpy()[0]
    found = [text.split(":") for text in found["outputs"][0]["data"]]
    assert [(int(i), name) for _, i, name in found] == [
        (i, "abc"[i]) for i in np.argsort(-scores).tolist()
    ]
    assert near(np.array([float(v) for v, _, _ in found]), np.sort(scores)[::-1])


def test_a_connection_lives_on_after_an_error(served, pictures):
    _, server = served
    connection = server.connection()
    for path, status in (("/v2/models/none/infer", 404), ("/v2/models/exported/infer", 400)):
        body = b"x" * 100_000
        found = server.ask("POST", path, body, {"Content-Type": "application/json"}, connection)
        assert found[0] == status and found[1]["error"]
    server.infer("exported", pictures[:1], connection)
    connection.close()
    found = server.ask("POST", "/v2/models/exported/infer", b"x" * ((1 << 20) + 1))
    assert found[0] == 413 and "--max-request-mb" in found[1]["error"]


def test_a_body_in_chunks(served, pictures):
    net, server = served
    text = json.dumps({"inputs": [{"name": "data", "shape": [1, 1, 8, 8], "datatype": "FP32",
                                   "data": pictures[0].tolist()}]}).encode()  # fmt: skip
    body = iter([text[:50], text[50:]])
    status, found, _ = server.ask(
        "POST", "/v2/models/exported/infer", body, {"Content-Type": "application/json"}
    )
    assert status == 200
    assert near(np.array(found["outputs"][0]["data"]), net(nd.array(pictures[:1])).asnumpy()[0])


def test_a_stop_answers_what_was_sent_and_takes_no_more(tmp_path, serve_here, capsys):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(512) for _ in range(4)], nn.Dense(3))
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 512)))
    net.export(str(tmp_path / "net"))
    (tmp_path / "model.json").write_text(described([None, 512]))
    x = np.ones((4, 512), np.float32)
    begun, answers, ports = threading.Barrier(9), [], []

    def client(asks):
        connection = asks.connection()
        answers.append(asks.infer(tmp_path.name, x, connection).shape)
        begun.wait(30)
        try:
            while True:
                answers.append(asks.infer(tmp_path.name, x, connection).shape)
        except (http.client.RemoteDisconnected, ConnectionError):
            connection.close()  # between two requests: the one before was answered

    def use(asks):
        ports.append(asks.port)
        asks.wait_ready()
        threads = [threading.Thread(target=client, args=(asks,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        begun.wait(30)
        return lambda: [thread.join(30) for thread in threads]

    assert serve_here(tmp_path, signal.SIGTERM, use, "--max-batch", "4") == 0
    assert "Traceback" not in capsys.readouterr().err
    assert len(answers) >= 8 and set(answers) == {(4, 3)}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ports[0]))


def test_a_stop_while_models_are_loaded(tmp_path, serve_here):
    network().export(str(tmp_path / "net"))
    params = tmp_path / "net-0000.params"
    params.unlink()
    os.mkfifo(params)  # which nobody writes: reading it does not end

    def use(asks):
        status, found, headers = asks.get(f"/v2/models/{tmp_path.name}")
        assert status == 503 and headers["retry-after"] == "1" and "being loaded" in found["error"]
        return lambda: None

    assert serve_here(tmp_path, signal.SIGINT, use) == 0
    params.open("wb").close()


def test_nothing_that_can_be_served(tmp_path, capsys):
    (tmp_path / "net.onnx").write_bytes(b"damaged")
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["serve", str(tmp_path), "--port", "0"]) == 1
    assert f"{tmp_path}/net.onnx" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_small_answers_are_sent_at_once():
    """asyncio sets TCP_NODELAY on connections of a socket that says that it is TCP's."""
    with serve._listening("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_wrong_arguments(tmp_path, capsys):
    def told(*arguments):
        assert cli.main(["serve", *map(str, arguments)]) == 1
        return capsys.readouterr().err

    assert "is no folder" in told(tmp_path / "nothing")
    assert "has no model" in told(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"")
    with socket.create_server(("127.0.0.1", 0)) as other:
        said = told(tmp_path, "--port", other.getsockname()[1])
        assert "Address already in use\n  fix: another --port" in said
    assert "fix" not in told(tmp_path, "--host", "no address")
    for option, value, text in (
        ("--max-batch", "0", "must be a whole number of 1 or more, got '0'"),
        ("--port", "70000", "must be a whole number from 0 to 65535, got '70000'"),
        ("--timeout", "nan", "must be a number of 0 or more, got 'nan'"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["serve", str(tmp_path), option, value])
        assert text in capsys.readouterr().err
