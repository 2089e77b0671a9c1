"""The C type under Value: (node, index), hashed and compared by the node's identity."""

from typing import Any

class Pair:
    node: Any
    index: int
    def __init__(self, node: Any, index: int = 0) -> None: ...
