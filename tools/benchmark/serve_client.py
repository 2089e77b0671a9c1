"""A client that loads a server: for each line [PORT, MODEL, SHAPE, BINARY, CONCURRENCY, SECONDS] on
standard input it sends a request again and again over so many connections, and prints what came
back, as JSON. It imports no framework."""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time

REQUESTS = 20_000  # of one run, at most


class Connection(asyncio.Protocol):
    """Sends the request, waits for the answer, and so on until `end`."""

    def __init__(self, request: bytes, seconds: list[float], codes: dict[str, int], end: float):
        self.request, self.seconds, self.codes, self.end = request, seconds, codes, end
        self.buffer, self.need = b"", -1
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._send()

    def _send(self) -> None:
        if time.perf_counter() >= self.end or len(self.seconds) >= REQUESTS:
            self.transport.close()
            return
        self.start = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self.buffer += data
        if self.need < 0:
            head, found, _ = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.need = len(head) + 4 + int(length)
        if len(self.buffer) < self.need:
            return
        code = self.buffer[9:12].decode()
        self.codes[code] = self.codes.get(code, 0) + 1
        if code == "200":
            self.seconds.append(time.perf_counter() - self.start)
        self.buffer, self.need = b"", -1
        if code == "200":
            self._send()
        else:  # as a client should that was told to come later
            asyncio.get_running_loop().call_later(0.02 + 0.02 * random.random(), self._send)

    def connection_lost(self, error: Exception | None) -> None:
        """Ends."""
        if error is not None:
            self.codes["broken"] = self.codes.get("broken", 0) + 1
        if not self.closed.done():
            self.closed.set_result(None)


async def run(port: int, request: bytes, concurrency: int, seconds: float) -> dict:
    """What came back: a second, the median and the 99th percentile of milliseconds, counts by
    status."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    codes: dict[str, int] = {}
    begin = time.perf_counter()
    made = [
        (
            await loop.create_connection(
                lambda: Connection(request, times, codes, begin + seconds), "127.0.0.1", port
            )
        )[1]
        for _ in range(concurrency)
    ]
    await asyncio.wait([c.closed for c in made], timeout=seconds + 30)
    took = time.perf_counter() - begin
    times.sort()
    quantile = [1e3 * times[int(q * (len(times) - 1))] if times else 0.0 for q in (0.5, 0.99)]
    return {"rate": len(times) / took, "p50": quantile[0], "p99": quantile[1], "codes": codes}


def request(model: str, n: int, shape: list[int], binary: bool) -> bytes:
    """The bytes of a request for n numbers."""
    tensor: dict = {"name": "data", "shape": shape, "datatype": "FP32"}
    values = [(i % 97) / 97 for i in range(n)]
    headers, tail = "Content-Type: application/json\r\n", b""
    if binary:
        tensor["parameters"], tail = {"binary_data_size": 4 * n}, struct.pack(f"<{n}f", *values)
    else:
        tensor["data"] = [round(v, 4) for v in values]
    text = json.dumps({"inputs": [tensor]}).encode()
    if binary:
        headers = f"Inference-Header-Content-Length: {len(text)}\r\n"
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\n{headers}"
        f"Content-Length: {len(text) + len(tail)}\r\n\r\n"
    )
    return head.encode() + text + tail


def main() -> None:
    """Reads lines until the end of the input."""
    for line in sys.stdin:
        port, model, shape, binary, concurrency, seconds = json.loads(line)
        n = 1
        for size in shape:
            n *= size
        sent = request(model, n, shape, binary)
        print(json.dumps(asyncio.run(run(port, sent, concurrency, seconds))), flush=True)


if __name__ == "__main__":
    main()
