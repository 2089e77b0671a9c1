"""The C type under Value: (node, index), hashed and compared by the node's identity."""

from collections.abc import Container
from typing import Any

class Pair:
    node: Any
    index: int
    def __init__(self, node: Any, index: int = 0) -> None: ...

def walk(outputs: list, given: Container = ..., instead: dict = ...) -> list: ...
