"""The ASGI application: the V2 protocol's addresses, limits, errors as JSON, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ... import __version__
from .. import model_folder
from . import model, protocol
from .batching import Batcher, Job
from .buckets import sizes
from .metrics import Metrics
from .refused import Refused
from .repository import Repository, Served

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
JSON, BINARY, TEXT = b"application/json", b"application/octet-stream", b"text/plain; version=0.0.4"
JSON_BYTES = b"inference-header-content-length"
ON_THE_LOOP = 1 << 16  # bytes of a body that are read in the event loop's thread; more in another


class Limits(NamedTuple):
    """What a server takes. seconds: for a body to arrive, and then to wait in a queue. rows: of a
    batch. delay: seconds a request waits for others. shapes: of a model, that are not declared."""

    rows: int = 32
    delay: float = 0.005
    queue: int = 256
    body_bytes: int = 64 << 20
    elements: int = 1 << 24
    seconds: float = 30.0
    shapes: int = 16


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    body: bytes
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class App:
    """Serves the models of a folder.

    read: gives the model in a folder; another one serves another framework's. told: called with a
    line when a model is loaded or fails, and at the end with None. name: of the only model.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits = Limits(),
        read: Callable[[Path], model.Model] = model.load,
        told: Callable[[str | None], None] = lambda line: None,
        name: str | None = None,
    ):
        self.repository, self.limits = Repository(folder, name), limits
        self._read, self._told = read, told
        self._batcher = Batcher(limits.delay, limits.seconds, lambda: self.metrics)
        self.metrics = Metrics(sizes(limits.rows), self._batcher.length)
        self._loaded = False
        self._open, self._open_bytes = 0, 0  # requests that are read, wait or run; their bytes
        self._pool = ThreadPoolExecutor(1, "plait serve body")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """ASGI 3."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"plait serve: no {scope['type']}")
        start = time.perf_counter()
        words = [w for w in scope["path"].split("/") if w]
        what = _what(words)
        served: Served | None = None
        try:
            served = self._served(words)
            answer = await self._answer(what, words, served, scope, receive)
        except Refused as refused:
            answer = _error(refused)
            if refused.status == 413 and refused.unread:
                await self._discard(scope, receive)
        except Exception as error:
            traceback.print_exception(error, file=sys.stderr)
            answer = _error(Refused(500, f"the server failed: {type(error).__name__}"))
        labels = (served.name, served.version) if served else ("", "")
        self.metrics.requests.labels(what, *labels, answer.status).inc()
        if what == "infer" and served:
            self.metrics.seconds.labels(*labels).observe(time.perf_counter() - start)
        headers = [
            (b"content-type", answer.kind),
            (b"content-length", b"%d" % len(answer.body)),
            *answer.headers,
        ]
        status = {"type": "http.response.start", "status": answer.status, "headers": headers}
        await send(status)
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})

    # ---- start and stop --------------------------------------------------------------------------

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            kind = (await receive())["type"]
            if kind == "lifespan.startup":
                self._batcher.start(self._load, asyncio.get_running_loop())
            else:
                await asyncio.to_thread(self._batcher.close, 1.0)
                self._pool.shutdown(wait=False, cancel_futures=True)
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return

    def _load(self) -> None:
        """In the batcher's thread, which is the only one that runs models."""
        for served in self.repository:
            served.load(self._read, self.limits.rows)
            ready = served.state == "ready"
            self.metrics.ready.labels(served.name, served.version).set(ready)
            size = f"batches of {served.plan.most}" if served.batched else "no batches"
            if ready and served.model and any(i.shape is None for i in served.inputs):
                size += f": no {model_folder.DESCRIPTION} tells the shapes of its inputs"
            self._told(
                f"{served.name}, version {served.version}: "
                + (f"ready, {size}" if ready else f"failed: {served.error}")
            )
        self._loaded = True
        self._told(None)

    @property
    def ready(self) -> bool:
        """Is everything loaded, and at least one model usable?"""
        return self._loaded and any(s.state == "ready" for s in self.repository)

    # ---- addresses -------------------------------------------------------------------------------

    def _served(self, words: list[str]) -> Served | None:
        """The model that a path names. Raises Refused."""
        if words[:2] != ["v2", "models"] or len(words) < 3:
            return None
        return self.repository.find(words[2], words[4] if words[3:4] == ["versions"] else None)

    async def _answer(
        self, what: str, words: list[str], served: Served | None, scope: Message, receive: Receive
    ) -> Answer:
        if what == "other":
            raise Refused(
                404, f"nothing is at {scope['path'][:200]!r}\n  fix: /v2 tells the models"
            )
        allowed = ("POST",) if what == "infer" else ("GET", "HEAD")
        if scope["method"] not in allowed:
            refused = _error(Refused(405, f"{what} takes {allowed[0]}, got {scope['method'][:20]}"))
            return refused._replace(headers=((b"allow", ", ".join(allowed).encode()),))
        if what == "infer":
            assert served is not None
            return await self._infer(served, scope, receive)
        if what == "metrics":
            return Answer(200, self.metrics.text(), TEXT)
        if what == "live":
            return _json(200, {"live": True})
        if what == "ready" and served is None:
            return _json(200 if self.ready else 503, {"ready": self.ready})
        if what == "ready":
            assert served is not None
            found: dict[str, Any] = {"name": served.name, "ready": served.state == "ready"}
            if served.error:
                found["error"] = served.error
            return _json(200 if found["ready"] else 503, found)
        if what == "model":
            assert served is not None
            _usable(served)
            versions = sorted(self.repository.models[served.name], key=int)
            return _json(200, served.described(versions))
        if what == "models":
            return _json(200, {"models": sorted(self.repository.models)})
        return _json(
            200,
            {"name": "plait", "version": __version__, "extensions": list(protocol.EXTENSIONS)},
        )

    # ---- inference -------------------------------------------------------------------------------

    async def _infer(self, served: Served, scope: Message, receive: Receive) -> Answer:
        _usable(served)
        headers = dict(scope["headers"])
        is_picture = headers.get(b"content-type", JSON).lower().startswith(b"image/")
        json_bytes = None if is_picture else _json_bytes(headers)
        length = _content_length(headers, self.limits.body_bytes)
        if self._open >= self.limits.queue or (
            self._open and self._open_bytes + length > 2 * self.limits.body_bytes
        ):
            raise Refused(503, f"{self._open} requests wait, more do not fit", retry_after=1)
        self._open += 1
        self._open_bytes += length
        try:
            body = await self._body(receive)
            tensors = served.inputs, served.outputs
            request = await (
                self._elsewhere(protocol.read_picture, body, *tensors)
                if is_picture
                else self._off_the_loop(
                    len(body), protocol.read, body, json_bytes, *tensors, self.limits.elements
                )
            )
            rows = served.rows(request.arrays)
            signature = served.admit(request.arrays, self.limits.shapes)
            job = Job(request.arrays, rows, asyncio.get_running_loop().create_future())
            self._batcher.add(served, signature, job)
            results = await job.future
            size = sum(x.nbytes for x in results)
            text, json_bytes = await self._off_the_loop(
                size, protocol.write, request, results, served.name, served.version, served.outputs
            )
        finally:
            self._open -= 1
            self._open_bytes -= length
        if json_bytes is None:
            return Answer(200, text)
        return Answer(200, text, BINARY, ((JSON_BYTES, b"%d" % json_bytes),))

    async def _off_the_loop(self, size: int, function: Callable[..., Any], *given: Any) -> Any:
        """The result of a function, in another thread if it works on many bytes."""
        return function(*given) if size <= ON_THE_LOOP else await self._elsewhere(function, *given)

    def _elsewhere(self, function: Callable[..., Any], *given: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._pool, function, *given)

    async def _body(self, receive: Receive) -> bytes:
        """Of a request. Raises Refused where it is too long or too slow."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                parts, size, more = [], 0, True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "the client left before the end of its request")
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
                    if size > self.limits.body_bytes:
                        raise _too_long(size, self.limits.body_bytes)
                return parts[0] if len(parts) == 1 else b"".join(parts)
        except TimeoutError:
            raise Refused(
                408, f"the body did not arrive within {self.limits.seconds:g} s", unread=True
            ) from None

    async def _discard(self, scope: Message, receive: Receive) -> None:
        """Takes what is left of a body that is somewhat too long: a client that still sends would
        find the connection closed, and no answer."""
        size, more = 0, True
        told = dict(scope["headers"]).get(b"content-length", b"0")
        if len(told) > 18 or int(told) > 2 * self.limits.body_bytes:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.seconds):
                while more and size <= self.limits.body_bytes:
                    message = await receive()
                    size += len(message.get("body", b""))
                    more = message.get("more_body", False)


def _what(words: list[str]) -> str:
    """What a path asks for, as the metrics name it."""
    if words in (["v2"], ["metrics"], ["v2", "models"]):
        return {"v2": "server"}.get(words[-1], words[-1])
    if words in (["v2", "health", "live"], ["v2", "health", "ready"]):
        return words[-1]
    if words[:2] == ["v2", "models"]:
        rest = words[5:] if words[3:4] == ["versions"] and len(words) > 4 else words[3:]
        if not rest:
            return "model"
        if rest in (["ready"], ["infer"]):
            return rest[0]
    return "other"


def _usable(served: Served) -> None:
    if served.state == "loading":
        raise Refused(503, f"model {served.name!r} is being loaded", retry_after=1)
    if served.state == "failed":
        raise Refused(503, f"model {served.name!r} could not be loaded: {served.error}")


def _json_bytes(headers: dict[bytes, bytes]) -> int | None:
    """Of the body, as the binary extension tells it. Raises Refused for a body that is not the
    protocol's."""
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"identity", b""):
        raise Refused(415, "the body is compressed\n  fix: send it without Content-Encoding")
    text = headers.get(JSON_BYTES)
    if text is not None:
        if not text.isdigit() or len(text) > 18:
            raise Refused(400, "Inference-Header-Content-Length must be a number of bytes")
        return int(text)
    kind = headers.get(b"content-type", JSON).split(b";")[0].strip().lower()
    if kind == BINARY:
        raise Refused(
            415, "application/octet-stream needs the header Inference-Header-Content-Length"
        )
    if kind != JSON:
        raise Refused(
            415,
            f"the body is {kind.decode('latin-1')[:60]}\n  fix: Content-Type:"
            " application/json; image/jpeg or image/png for a picture",
        )
    return None


def _content_length(headers: dict[bytes, bytes], most: int) -> int:
    """The length that a request tells; the most, if it tells none."""
    text = headers.get(b"content-length")
    if text is None or not text.isdigit():
        return most
    if len(text) > 18 or int(text) > most:
        raise _too_long(int(text[:18]), most)
    return int(text)


def _too_long(size: int, most: int) -> Refused:
    return Refused(
        413, f"the body has {size} bytes or more, the server takes {most}\n  fix: fewer rows,"
        " binary data, or start it with a larger --max-request-mb", unread=True,
    )  # fmt: skip


def _json(status: int, value: Any, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
    return Answer(status, orjson.dumps(value), JSON, tuple(headers))


def _error(refused: Refused) -> Answer:
    headers = []
    if refused.retry_after is not None:
        headers.append((b"retry-after", b"%d" % refused.retry_after))
    if refused.unread:
        headers.append((b"connection", b"close"))
    text = refused.text.encode("utf-8", "replace").decode()
    return _json(refused.status, {"error": text}, headers)
