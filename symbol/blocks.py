"""Which block made which node: of a network that is called on Symbols to be drawn."""

from __future__ import annotations

from typing import Any

from ..graph.graph import Node
from .symbol import Symbol
from .units import Path


class Calls:
    """Scope in which a Block is called; knows the calls that made each node. A block that is called
    twice makes two units. Of what is no Block it knows nothing."""

    def __init__(self, network: Any):
        self._network = network
        self._of: dict[Node, Path] = {}
        self._titles: dict[Path, str] = {}
        self._inside: list[str] = []  # the calls that have not returned
        self._counts: dict[Path, int] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Calls:
        if hasattr(self._network, "_children"):
            self._watch(self._network, "", None, set())
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.detach()

    def paths(self) -> tuple[dict[Node, Path], dict[Path, str]] | None:
        """The path of each node, and the titles of those that are drawn; None without a block."""
        return (self._of, self._titles) if self._of else None

    def _watch(self, block: Any, name: str, parent: Any, seen: set) -> None:
        if block in seen:
            return
        seen.add(block)
        # a Sequential that is part of another kind of block is no unit of its own
        is_unit = not (block._is_container and parent is not None and not parent._is_container)
        kind = type(block).__name__
        title = name if block._is_container else f"{name} {kind}".strip()

        def before(called: Any, args: Any) -> None:
            path = (*self._inside, name or kind)
            self._counts[path] = count = self._counts.get(path, -1) + 1
            self._inside.append(f"{path[-1]}:{count}" if count else path[-1])

        def after(called: Any, args: Any, out: Any) -> None:
            path = tuple(self._inside)
            if is_unit and parent is not None:
                self._titles[path] = title
            self._inside.pop()
            begin = {v.node for s in _symbols(args) for v in s._outputs}
            stack = [v.node for s in _symbols(out) for v in s._outputs]
            while stack:
                node = stack.pop()
                if node in begin or node.op is None:
                    continue
                begin.add(node)
                self._of.setdefault(node, path)
                stack += [v.node for v in node.inputs]

        self._handles += [
            block.register_forward_pre_hook(before),
            block.register_forward_hook(after),
        ]
        for key, child in block._children.items():
            self._watch(child, f"{name}.{key}" if name else key, block, seen)


def _symbols(value: Any) -> list[Symbol]:
    """The Symbols in nested lists."""
    if isinstance(value, (list, tuple)):
        return [s for v in value for s in _symbols(v)]
    return [value] if isinstance(value, Symbol) else []
