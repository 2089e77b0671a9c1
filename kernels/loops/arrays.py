"""What a reference gets in place of NumPy and its arrays: they record what is done to them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..shapes import contiguous
from .functions import FUNCTIONS
from .nodes import Checked, Map, Node, Strided, Untraceable

SPECIAL = 25  # operations that a special function takes, about


class Unknown(Untraceable, AttributeError):
    """An attribute of arrays that is not traced."""


def applied(function: Callable, t: Any, *args: Any, **kwargs: Any) -> Any:
    """A traced function's result. Raises Untraceable for arguments that it does not take."""
    try:
        inspect.signature(function).bind(t, *args, **kwargs)
    except TypeError as error:
        raise Untraceable(str(error)) from None
    return function(t, *args, **kwargs)


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """What a reference gets in place of an array."""

    __array_priority__ = 1000

    def __init__(
        self, tracer: Any, node: Node, weak: bool = False, part_of: tuple[Array, Any] | None = None
    ):
        self.tracer, self.node, self.weak = tracer, node, weak
        self._part_of = part_of  # (array, key): what is looked at through a slice, or Strided

    shape = property(lambda self: self.node.shape)
    dtype = property(lambda self: self.node.dtype)
    ndim = property(lambda self: len(self.node.shape))
    size = property(lambda self: prod(self.node.shape))
    T = property(lambda self: FUNCTIONS["transpose"](self.tracer, self))
    real = property(lambda self: self)

    def _values(self, *_, **__):
        raise Untraceable("it looks at values")

    __array__ = __bool__ = __int__ = __float__ = __index__ = __complex__ = _values
    item = tolist = tobytes = view = nonzero = __contains__ = _values
    __hash__ = object.__hash__

    def __len__(self):
        return self.shape[0]

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        t = self.tracer
        if ufunc is np.matmul:
            return FUNCTIONS["matmul"](t, *inputs)
        if kwargs.get("where", True) is not True:
            raise Untraceable(f"{ufunc.__name__} with where")
        if method == "at":
            return t.add_at(ufunc, *inputs)
        if method == "reduce":
            names = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
            if ufunc.__name__ not in names:
                raise Untraceable(f"{ufunc.__name__}.reduce")
            return t.reduce(names[ufunc.__name__], *inputs, **kwargs)
        if method != "__call__":
            raise Untraceable(f"{ufunc.__name__}.{method}")
        made = t.ufunc(ufunc, inputs, kwargs.get("dtype"))
        if out is None:
            return made
        (target,) = out
        if not isinstance(target, Array):
            raise Untraceable("it writes into an array of the host")
        target.replace(t.cast(t.broadcast(made.node, target.shape), target.dtype))
        return target

    def __array_function__(self, function, types, args, kwargs):
        made = FUNCTIONS.get(function.__name__)
        if made is None:
            raise Untraceable(f"there is no {function.__name__}")
        return applied(made, self.tracer, *args, **kwargs)

    def __getattr__(self, name):
        made = FUNCTIONS.get(name)
        if name.startswith("_"):
            raise AttributeError(name)
        if made is None:
            raise Unknown(f"there is no {name} of an array")
        return lambda *args, **kwargs: applied(made, self.tracer, self, *args, **kwargs)

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        return Array(self.tracer, self.tracer.cast(self.node, dtype))

    def __getitem__(self, key):
        return self.tracer.item(self, key)

    def __setitem__(self, key, value):
        self.replace(self.tracer.assigned(self.node, key, value))

    def replace(self, node: Node) -> None:
        """Writes all of the array."""
        self.node = node
        if self._part_of is None:
            return
        whole, key = self._part_of
        if isinstance(key, Strided):
            flat = [np.arange(n) * s for n, s in zip(node.shape, key.strides)]
            places = sum(np.ix_(*flat), np.asarray(key.offset))
            t, shape = self.tracer, whole.shape
            made = t.scatter(
                t.flat(whole.node), (np.broadcast_to(places, node.shape),), node, False
            )
            whole.replace(t.strided(made, shape, contiguous(shape), 0))
        else:
            whole[key] = Array(self.tracer, node)


class Namespace:
    """NumPy, whose new arrays record too."""

    def __init__(self, tracer: Any):
        self._tracer = tracer

    def __getattr__(self, name):
        return getattr(np, name)

    @property
    def random(self) -> Any:
        raise Untraceable("it calls an operator that draws random numbers")

    def _new(self, shape, value, dtype) -> Array:
        shape = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        t = self._tracer
        return Array(t, t.broadcast(t.cast(t.node(value), dtype), shape))

    def zeros(self, shape: Any, dtype: Any = float) -> Array:
        return self._new(shape, 0, dtype)

    empty = zeros

    def ones(self, shape: Any, dtype: Any = float) -> Array:
        return self._new(shape, 1, dtype)

    def full(self, shape: Any, fill_value: Any, dtype: Any = None) -> Array:
        return self._new(
            shape, fill_value, dtype or np.asarray(self._tracer.like(fill_value)).dtype
        )

    def special(self, name: str, x: Array) -> Array:
        """A function of kernels/special.py, in double."""
        t = self._tracer
        of = t.cast(t.node(x), "float64")
        made = Map(f"plk_{name}_f64({{0}})", [of], "float64")
        made.weight += SPECIAL
        return Array(t, made)

    def checked(self, x: Array, n: int, negative: bool = False) -> Array:
        """Whole indices of an axis of n elements. A call with another one fails: here where
        `negative` is not, else where they are used."""
        t = self._tracer
        if not t.for_cpu:
            raise Untraceable("it looks at values")
        return x if negative else Array(t, Checked(t.node(x), n))

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        x = self._tracer.joined(x)
        if not isinstance(x, Array):
            return np.asarray(x, dtype)
        return x if dtype is None or x.dtype == dtype else x.astype(dtype)

    ascontiguousarray = asarray

    def array(self, x: Any, dtype: Any = None, copy: bool = True) -> Any:
        made = self.asarray(x, dtype)
        return Array(self._tracer, made.node) if isinstance(made, Array) else made.copy()
