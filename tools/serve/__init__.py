"""`python -m plait serve FOLDER`: a server of the V2 (Open Inference) protocol.

repository.py finds the models of a folder and model.py loads them; app.py answers requests, which
protocol.py reads; batching.py joins them and runs them in one thread, in the sizes that buckets.py
chooses; metrics.py counts. Needs plait[serve].
"""

from __future__ import annotations

import argparse
import errno
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.error import MissingPackage, compose
from ..arguments import number

if TYPE_CHECKING:
    from .app import App

__all__ = ["main", "serve"]


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns 0 after a stop that was asked for, 1 where no model is usable."""
    parser = argparse.ArgumentParser(
        prog="python -m plait serve",
        description="Serve the models of a folder (V2 protocol).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add, count, seconds = parser.add_argument, number(int, 1), number(float, 0)
    add("folder", type=Path, help="a model, or a folder of models")
    add("--name", help="of the model, where the folder is one; None: the folder's")
    add("--host", default="127.0.0.1", help="address; 0.0.0.0: reachable from other machines")
    add("--port", type=number(int, 0, 65535), default=8080, help="0: a free one; it is printed")
    add("--max-batch", type=count, default=32, help="rows that run in one call at most")
    add("--max-delay-ms", type=seconds, default=5.0, help="a request waits for others at most")
    add("--max-queue", type=count, default=256, help="requests that wait; more get a 503")
    add("--max-request-mb", type=count, default=64, help="size of a request")
    add("--max-elements", type=count, default=1 << 24, help="numbers of a request")
    add("--max-shapes", type=count, default=16, help="input shapes that a model compiles")
    add("--timeout", type=seconds, default=30.0, help="seconds for a body to arrive, and to wait")
    add("--grace", type=seconds, default=10.0, help="seconds to answer what is queued at a stop")
    args = parser.parse_args(argv)
    try:
        from .app import App, Limits
    except ImportError as error:
        raise MissingPackage(
            f"the package {error.name} is missing\n  fix: pip install 'plait[serve]'"
        ) from error
    limits = Limits(
        args.max_batch, args.max_delay_ms / 1000, args.max_queue,
        args.max_request_mb << 20, args.max_elements, args.timeout, args.max_shapes,
    )  # fmt: skip
    make = lambda told: App(args.folder, limits, told=told, name=args.name)
    return serve(make, args.host, args.port, args.grace)


def serve(
    make: Callable[[Callable[[str | None], None]], App], host: str, port: int, grace: float
) -> int:
    """Runs an application until SIGTERM or SIGINT. make: gives it, for its argument `told`."""
    import uvicorn

    failed = False

    def told(line: str | None) -> None:
        nonlocal failed
        if line is not None:
            print(f"plait serve: {line}", file=sys.stderr, flush=True)
        elif not app.ready:
            failed = server.should_exit = True

    app: App = make(told)
    with _listening(host, port) as listening:
        address = listening.getsockname()
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        config = uvicorn.Config(
            app, http="httptools", loop="asyncio", ws="none", lifespan="on", access_log=False,
            log_config=None, log_level="error", server_header=False, timeout_keep_alive=30,
            timeout_graceful_shutdown=max(int(grace), 1),
        )  # fmt: skip
        server = uvicorn.Server(config)
        # uvicorn raises the signal again when it has stopped: the stop was asked for, so status 0
        stops = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, lambda *_: None) for number in stops]
        print(f"plait serve: http://{name}:{address[1]}", flush=True)
        try:
            server.run(sockets=[listening])
        finally:
            for number, handler in zip(stops, before):
                signal.signal(number, handler)
    return int(failed)


def _listening(host: str, port: int) -> socket.socket:
    """A socket that asyncio sees to be TCP's, so that it sends small answers at once (TCP_NODELAY):
    socket.create_server makes one of protocol 0, on which each answer takes 40 ms."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(1024)
    except OSError as error:
        made.close()
        rule = f"cannot listen on {host} port {port}: {error.strerror or error}"
        fix = "another --port; 0 finds a free one" if error.errno == errno.EADDRINUSE else None
        raise OSError(compose(rule, fix=fix)) from None
    return made
