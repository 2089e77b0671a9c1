"""`plait bench --serve`: plait's server under load, and the same server with ONNX Runtime in it.

Clients on this machine send a request, wait for its answer, and so on: as many at once as the row
says, one picture or vector each. The servers take turns; a cell is the median over the rounds.
Times are in milliseconds; `cpu` is the server's processor time for an answer. Pictures are sent as
binary data, vectors as JSON. The last rows have more clients than the queue takes: `refused` counts
answers 503, `errors` all other failures. The clients need processor time too, on the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ... import gluon, nd, random
from ...gluon.model_zoo import get_model

HERE = Path(__file__).parent
ROW = "{:10}{:>8}  {:14}{:>10}{:>9}{:>9}{:>11}{:>9}{:>8}"
QUEUE = 16  # of the servers for overload
START = 300  # seconds until a server is ready


class Net(NamedTuple):
    """A network, the shape of a request, and how it is sent."""

    make: Any
    shape: tuple[int, ...]
    binary: bool


def _mlp() -> Any:
    net = gluon.nn.HybridSequential()
    for _ in range(2):
        net.add(gluon.nn.Dense(512, activation="relu"))
    net.add(gluon.nn.Dense(10))
    return net


def _resnet() -> Any:
    return get_model("resnet18_v1")


NETS = {
    "mlp": Net(_mlp, (1, 784), False),
    "resnet18": Net(_resnet, (1, 3, 224, 224), True),
}


class Server:
    """A process that serves, with its port."""

    def __init__(self, name: str, command: list[str], threads: int):
        self.name = name
        own = _package_folder(__package__.partition(".")[0])
        path = os.pathsep.join(filter(None, [own, os.environ.get("PYTHONPATH")]))
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONPATH=path)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdout
        found = re.search(r":(\d+)$", self.process.stdout.readline())
        if found is None:
            _, errors = self.process.communicate()
            raise RuntimeError(f"{name} failed: {(errors.strip().splitlines() or ['?'])[-1]}")
        self.port = int(found[1])

    def processor_seconds(self) -> float:
        """Of all its threads, since it began."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            found = re.search(r"^process_cpu_seconds_total (.*)$", answer.read().decode(), re.M)
        assert found is not None
        return float(found[1])

    def wait_ready(self) -> None:
        """Until its models are compiled. Raises RuntimeError."""
        end = time.monotonic() + START
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/health/ready", timeout=5)
                return
            except (urllib.error.URLError, TimeoutError):
                time.sleep(0.1)
        self.end()
        raise RuntimeError(f"{self.name} did not become ready")

    def end(self) -> None:
        """Stops it."""
        self.process.terminate()
        try:
            self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


def _package_folder(name: str) -> str:
    """The folder in which a package is found by its name."""
    spec = find_spec(name)
    assert spec is not None and spec.submodule_search_locations
    return str(Path(list(spec.submodule_search_locations)[0]).absolute().parent)


def _write(folder: Path, names: list[str], onnx: bool) -> None:
    """The files of the networks. onnx: for the peer too."""
    for name in names:
        net, shape, _ = NETS[name]
        random.seed(0)
        made = net()
        made.initialize()
        made.hybridize()
        x = nd.ones(shape)
        made(x)
        (folder / "plait" / name).mkdir(parents=True)
        made.export(str(folder / "plait" / name / "net"))
        data = {"name": "data", "dtype": "float32", "shape": [None, *shape[1:]]}
        said = {"format": "plait model 1", "inputs": [data], "outputs": []}
        (folder / "plait" / name / "model.json").write_text(json.dumps(said))
        if onnx:
            (folder / "onnx" / name).mkdir(parents=True)
            file = str(folder / "onnx" / name / "net.onnx")
            made.export_onnx(file, x, dynamic_input_shapes=[("batch", *shape[1:])])


def _servers(args: argparse.Namespace, folder: Path, queue: int) -> list[Server]:
    """All ready."""
    batch = str(args.max_batch)
    commands = [
        ("plait", [sys.executable, "-m", "plait", "serve", str(folder / "plait"), "--port", "0",
                   "--max-queue", str(queue), "--max-batch", batch]),
    ]  # fmt: skip
    if args.onnxruntime:
        packages = _package_folder("uvicorn")
        script = str(HERE / "serve_with_onnxruntime.py")
        commands.append(
            ("ONNX Runtime", [args.onnxruntime, script, str(folder / "onnx"), str(queue), batch,
                              packages]),
        )  # fmt: skip
    made: list[Server] = []
    try:
        for command in commands:
            made.append(Server(*command, args.threads))
            made[-1].wait_ready()
    except RuntimeError:
        for server in made:
            server.end()
        raise
    return made


def _measure(args, servers: list[Server], nets: list[str], concurrencies: list[int]) -> None:
    """Prints the rows of some concurrencies."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "serve_client.py")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as client:  # fmt: skip
        assert client.stdin and client.stdout
        given, said = client.stdin, client.stdout

        def load(server: Server, name: str, concurrency: int, seconds: float) -> dict:
            net = NETS[name]
            asked = [server.port, name, net.shape, net.binary, concurrency, seconds]
            before = server.processor_seconds()
            print(json.dumps(asked), file=given, flush=True)
            found = json.loads(said.readline())
            used = server.processor_seconds() - before
            return {**found, "processor": 1e3 * used / max(found["codes"].get("200", 0), 1)}

        for name in nets:
            for concurrency in concurrencies:
                found: dict[str, list[dict]] = {s.name: [] for s in servers}
                for _ in range(args.rounds):
                    for server in servers:
                        load(server, name, concurrency, args.seconds / 4)
                        found[server.name].append(load(server, name, concurrency, args.seconds))
                for server in servers:
                    print(_row(name, concurrency, server.name, found[server.name]), flush=True)
        given.close()


def _row(name: str, concurrency: int, server: str, rounds: list[dict]) -> str:
    cells = [statistics.median(r[k] for r in rounds) for k in ("rate", "p50", "p99", "processor")]
    codes = [r["codes"] for r in rounds]
    refused = sum(c.get("503", 0) for c in codes)
    errors = sum(n for c in codes for code, n in c.items() if code not in ("200", "503"))
    shown = f"{cells[0]:.1f}", *(f"{ms:.2f}" for ms in cells[1:])
    return ROW.format(name, concurrency, server, *shown, refused, errors)


def main(argv: list[str] | None = None) -> int:
    """The command line: `plait bench --serve [--onnxruntime PYTHON]`."""
    parser = argparse.ArgumentParser(
        prog="plait bench --serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("nets", nargs="*", metavar="NET", help=f"of {', '.join(NETS)}")
    parser.add_argument("--onnxruntime", metavar="PYTHON", help="interpreter that has onnxruntime")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument(
        "--overload", type=int, default=64, help="clients of the last rows; 0: none"
    )
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args(argv)
    nets = args.nets or list(NETS)
    if wrong := [n for n in nets if n not in NETS]:
        parser.error(f"no network {wrong[0]!r}; those are {', '.join(NETS)}")
    head = ("requests/s", "p50", "p99", "processor", "refused", "errors")
    print(ROW.format("network", "clients", "server", *head), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder), nets, bool(args.onnxruntime))
        for queue, clients in ((256, args.concurrency), (QUEUE, [args.overload])):
            if clients == [0]:
                continue
            servers = _servers(args, Path(folder), queue)
            try:
                _measure(args, servers, nets, clients)
            finally:
                for server in servers:
                    server.end()
    return 0
