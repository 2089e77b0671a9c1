"""The server's application, called in this process with networks made of NumPy."""

import asyncio
import json
import threading

from plait.engine.error import MXNetError
from plait.tools.serve.app import App, Limits
from plait.tools.serve.protocol import Tensor


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
