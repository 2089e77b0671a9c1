"""MPI against gRPC: pushes of a tensor from one process to another. Needs grpcio; for two ranks:

    python -m plait launch -n 2 --threads 1 tools/benchmark/push.py [MB ...]

Rank 0 pushes, rank 1 has the values in an array when the push has ended. Both ways take turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent import futures

import numpy as np
from plait import dist, nd

PORT, ROUNDS = 29731, 7
LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def main(sizes: list[float]) -> None:
    import grpc  # of the benchmark only

    world = dist.init()
    into: dict[int, np.ndarray] = {}

    def take(request: bytes, context: object) -> bytes:
        into[len(request)][:] = np.frombuffer(request, "float32")
        return b""

    if world.rank == 1:
        handler = grpc.method_handlers_generic_handler(
            "Push", {"take": grpc.unary_unary_rpc_method_handler(take)}
        )
        server = grpc.server(futures.ThreadPoolExecutor(1), options=LIMIT)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"127.0.0.1:{PORT}")
        server.start()
    dist.barrier()
    call = grpc.insecure_channel(f"127.0.0.1:{PORT}", options=LIMIT).unary_unary("/Push/take")
    for mb in sizes:
        x = nd.ones((int(mb * 250_000),))
        values = x.asnumpy()
        into[values.nbytes] = np.empty_like(values)

        def by_grpc() -> None:
            if world.rank == 0:
                call(values.tobytes())

        def by_mpi() -> None:
            if world.rank == 0:
                dist.send(x, 1)
                nd.waitall()
            else:
                dist.receive(x, 0).wait_to_read()

        ways: dict[str, Callable[[], None]] = {"gRPC": by_grpc, "MPI": by_mpi}
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(ROUNDS):
            for way, push in ways.items():
                dist.barrier()
                start = time.perf_counter()
                push()
                dist.barrier()
                times[way].append(time.perf_counter() - start)
        if world.rank == 0:
            best = {way: min(t) * 1e3 for way, t in times.items()}
            ratio = np.median(np.divide(times["gRPC"], times["MPI"]))
            print(f"{mb:g} MB: " + ", ".join(f"{w} {t:.2f} ms" for w, t in best.items()), end="")
            print(f", median ratio {ratio:.1f}", flush=True)


if __name__ == "__main__":
    main([float(a) for a in sys.argv[1:]] or [0.001, 1, 16, 64])
