"""KVStoreServer: the server of distributed stores, which this build does not have."""

from __future__ import annotations

from ...engine.error import MXNetError


class KVStoreServer:
    """Serves a store to other processes. In plait every process has its own store."""

    def __init__(self, kvstore):
        self.kvstore, self.handle = kvstore, kvstore.handle

    def run(self) -> None:
        """Raises MXNetError: there are no distributed stores in this build."""
        raise MXNetError(
            "KVStoreServer.run: there are no stores across processes yet\n  fix:"
            " kv.create('device') in one process; unset DMLC_ROLE"
        )
