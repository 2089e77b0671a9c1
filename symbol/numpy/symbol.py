"""The Symbol of mx.sym.np: NumPy's rules for shapes, dtypes, operators and methods."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...engine.error import compose
from ...kernels.record import lookup
from ...kernels.spec import DType
from ...ndarray import numpy
from ...ndarray.numpy import methods
from ...ndarray.numpy.operators import add_operators
from ...ndarray.numpy.products import add_products
from ..base import Symbol, UntypedError, apply
from ..indexing import slice_of


class _Symbol(Symbol):
    """A Symbol under NumPy's rules: what is computed from one is one."""

    __slots__ = ()
    __array_priority__ = 1001.0

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return len(self._outputs)

    def _part(self, key: Any) -> Symbol:
        """x[key] of an array of known shape. Symbols as keys choose elements, as arrays do."""
        keys = key if isinstance(key, tuple) else (key,)
        if keys and all([isinstance(k, Symbol) for k in keys]):
            return self._chosen(keys)
        attrs, shape = slice_of(self.shape, key, ())
        x: Any = self if attrs is None else apply(lookup("slice"), "slice", [self], attrs)
        return x if x.shape == shape else numpy.reshape(x, shape)

    def _chosen(self, keys: tuple[Symbol, ...]) -> Any:
        if len(keys) == 1 and keys[0]._outputs[0].type.dtype == "bool":
            return apply(lookup("_npi_boolean_mask"), "boolean_mask", [self, keys[0]], {"axis": 0})
        if len(keys) == 1:
            return numpy.take(self, keys[0], axis=0)
        places = [numpy.stack(numpy.broadcast_arrays(*keys))]
        return apply(lookup("gather_nd"), "gather_nd", [self, *places], {})

    # the array's of the same name read or share memory
    def reshape(self, *shape: Any, order: str = "C", **kwargs: Any) -> Any:
        """The same elements under another shape; one size may be -1."""
        given = shape[0] if len(shape) == 1 else shape
        return numpy.reshape(self, given if shape else kwargs["newshape"], order=order)

    def ravel(self, order: str = "C") -> Any:
        """The elements as a vector."""
        return self.reshape(-1, order=order)

    flatten = ravel  # type: ignore[assignment]  # takes NumPy's arguments

    def astype(self, dtype: DType, *args: Any, copy: bool = True, **kwargs: Any) -> Any:
        """Another dtype."""
        return apply(lookup("Cast"), "cast", [self], {"dtype": dtype})

    def __bool__(self):
        raise UntypedError(
            compose(
                "a traced array has no value that `if` could ask",
                fix="np.where, or npx.cond; or do not hybridize this block",
            )
        )


add_operators(_Symbol, writes=False)
add_products(_Symbol, in_place=False)
for _name in (*methods.SIGNATURES, *methods.ELEMENTWISE.split(), "transpose"):
    if _name not in vars(_Symbol):
        setattr(_Symbol, _name, vars(numpy.ndarray)[_name])
for _name in ("T", "mT", "real"):
    setattr(_Symbol, _name, vars(numpy.ndarray)[_name])


def symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose Symbols are under NumPy's rules, whatever it is given."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        return made.as_np_ndarray() if isinstance(made, Symbol) else made

    return call
