"""mx.nd.CachedOp: a Symbol as a function of arrays."""

from __future__ import annotations

from typing import Any

from ..engine.error import InvalidValue
from .cached import CachedGraph
from .launch import copy_into


class CachedOp:
    """Calls a Symbol: `CachedOp(sym)(*arrays)`, arrays in the order of sym.list_inputs().

    Args:
        sym: Symbol.
        flags: pairs of names and values, as for hybridize; they change nothing here.
    """

    is_np_sym = False

    def __init__(self, sym: Any, flags: Any = ()):
        values = sym.get_internals()._outputs
        inputs = [v for v in values if v.node.op is None]
        self._names = sym.list_inputs()
        self._graph = CachedGraph(sym._outputs, inputs, sym.name or "cached_op")

    @property
    def handle(self) -> CachedGraph:
        return self._graph

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """The output, or a list of several. out: array(s) to write into. Raises ValueError for
        another number of arrays."""
        if len(args) != len(self._names):
            raise InvalidValue(
                f"CachedOp: takes {len(self._names)} arrays ({', '.join(self._names)}), got "
                f"{len(args)}"
            )
        made = self._graph(args)
        if out is not None:
            targets = out if isinstance(out, (list, tuple)) else [out]
            for value, target in zip(made, targets, strict=True):
                copy_into(value, target)
            return out
        return made[0] if len(made) == 1 else made
