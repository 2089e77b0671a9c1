"""KVStoreServer: the server of distributed stores, which are not supported."""

from __future__ import annotations

from typing import Any

from ...engine.error import MXNetError


class KVStoreServer:
    """The server of a distributed store. In plait every process has its own store."""

    def __init__(self, kvstore: Any):
        self.kvstore, self.handle = kvstore, kvstore.handle

    def run(self) -> None:
        """Raises MXNetError: distributed stores are not supported."""
        raise MXNetError(
            "KVStoreServer.run: distributed stores are not supported\n  fix:"
            " kv.create('device') in one process; unset DMLC_ROLE"
        )
