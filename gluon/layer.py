"""Layer: what type checkers know of a HybridBlock with one output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from .hybrid import HybridBlock

if TYPE_CHECKING:
    from ..ndarray.ndarray import NDArray
    from ..symbol.symbol import Symbol

    class Layer(HybridBlock):
        """An array for arrays, a Symbol for Symbols."""

        @overload
        def __call__(self, x: NDArray, *args: Any) -> NDArray: ...
        @overload
        def __call__(self, x: Symbol, *args: Any) -> Symbol: ...
        def __call__(self, x: Any, *args: Any) -> Any: ...

else:
    Layer = HybridBlock
