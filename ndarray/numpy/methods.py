"""The methods of mx.np's array. Those that are functions of mx.np call these, whatever NDArray has
under their names."""

from __future__ import annotations

import math
import sys
from sys import getrefcount
from typing import Any

import numpy as onp

from ...engine import Context
from ...engine.error import InvalidType, InvalidValue, compose
from ...kernels.record import dtype_name
from ...kernels.spec import ITEM_BYTES, DType
from .. import functions
from ..indexing import view, view_plan
from ..launch import Plans, seen
from ..ndarray import NDArray, seen_as
from ..protocol import plain
from ..serialization import reduce as _reduce_nd
from ..temporary import TEMPORARY, is_sole
from .array import method, ndarray

MEAN = "axis=None, dtype=None, out=None, keepdims=False, where=True"
SUM = f"{MEAN.removesuffix(', where=True')}, initial=None, where=True"
TRUTH = "axis=None, out=None, keepdims=False, where=True"
EXTREME = "axis=None, out=None, keepdims=False, initial=None, where=True"
MOMENT = "axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=True"
PLACE = "axis=None, out=None, keepdims=False"
SIGNATURES = {  # of methods that are functions of mx.np of the same name
    "all": TRUTH,
    "any": TRUTH,
    "argmax": PLACE,
    "argmin": PLACE,
    "argpartition": "kth, axis=-1, kind='introselect', order=None",
    "argsort": "axis=-1, kind=None, order=None",
    "broadcast_to": "shape",
    "choose": "choices, out=None, mode='raise'",
    "clip": "min=None, max=None, out=None",
    "cumprod": "axis=None, dtype=None, out=None",
    "cumsum": "axis=None, dtype=None, out=None",
    "diagonal": "offset=0, axis1=0, axis2=1",
    "dot": "b, out=None",
    "expand_dims": "axis",
    "flip": "axis=None",
    "max": EXTREME,
    "mean": MEAN,
    "min": EXTREME,
    "nonzero": "",
    "ones_like": "dtype=None",
    "pad": "pad_width=None, mode='constant', **kwargs",
    "prod": SUM,
    "ravel": "order='C'",
    "repeat": "repeats, axis=None",
    "round": "decimals=0, out=None, **kwargs",
    "searchsorted": "v, side='left', sorter=None",
    "squeeze": "axis=None",
    "std": MOMENT,
    "sum": SUM,
    "swapaxes": "axis1, axis2",
    "take": "indices, axis=None, mode='raise'",
    "tile": "reps",
    "trace": "offset=0, axis1=0, axis2=1",
    "var": MOMENT,
    "zeros_like": "dtype=None",
}
ELEMENTWISE = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh degrees exp expm1 fix"
    " floor log log10 log1p log2 nanprod nansum radians reciprocal rint sign sin sinh sqrt square"
    " tan tanh trunc"
)
RENAMED = {"clip": {"min": "a_min", "max": "a_max"}}  # keyword of the method -> of the function
TEMPLATE = """def {name}(self, {signature}):
    return _np.{name}(self, {given})
"""


def _calls_function(name: str, signature: str) -> None:
    """A method that calls np's function with its arguments as keywords."""
    names = [part.split("=")[0].strip() for part in signature.split(",") if part.strip()]
    renamed = RENAMED.get(name, {})
    given = [n if n.startswith("*") else f"{renamed.get(n, n)}={n}" for n in names]
    source = TEMPLATE.format(name=name, signature=signature, given=", ".join(given))
    scope: dict[str, Any] = {"_np": sys.modules[__package__], "__name__": __name__}
    exec(compile(source, f"<plait method {name}>", "exec"), scope)
    function = scope[name]
    function.__doc__ = f"See np.{name}."
    method(function)


for _name, _signature in SIGNATURES.items():
    _calls_function(_name, _signature)
for _name in ELEMENTWISE.split():
    _calls_function(_name, "out=None, **kwargs")

# ---- what it is ----------------------------------------------------------------------------------


def _strides(self: ndarray) -> tuple[int, ...]:
    steps, size = [], ITEM_BYTES[self._spec.dtype]
    for n in reversed(self.shape):
        steps.append(size)
        size *= n
    return tuple(reversed(steps))


def _imaginary(self: ndarray) -> Any:
    return self.zeros_like()


PROPERTIES = {
    "T": (lambda self: self.transpose(), "The axes in reverse order."),
    "mT": (lambda self: self.swapaxes(-1, -2), "The last two axes exchanged."),
    "itemsize": (lambda self: ITEM_BYTES[self._spec.dtype], "Bytes of an element."),
    "nbytes": (lambda self: self._spec.nbytes, "Bytes of all elements."),
    "strides": (_strides, "Bytes from one element to the next along each axis."),
    "flat": (lambda self: self.reshape(-1), "The same memory as a vector."),
    "real": (lambda self: self, "The array itself: there are no complex numbers."),
    "imag": (_imaginary, "Zeros: there are no complex numbers."),
    "device": (lambda self: self.context, "The device, as `ctx`."),
}
for _name, (_get, _doc) in PROPERTIES.items():
    setattr(ndarray, _name, property(_get, doc=_doc))

# ---- text and numbers ----------------------------------------------------------------------------


@method
def __repr__(self: ndarray) -> str:
    """As NumPy prints it; float32 and bool are not said, nor a CPU."""
    name, more = self._spec.dtype, ""
    text = repr(plain(self))
    if "dtype=" in text:
        text = text[: text.rindex(",")] + ")"
    if name not in ("float32", "bool"):
        more += f", dtype={name}"
    if not self.context.on_host:
        more += f", ctx={self.context}"
    return f"{text[:-1]}{more})"


@method
def __str__(self: ndarray) -> str:
    return str(plain(self))


@method
def __round__(self: ndarray, n: int = 0) -> Any:
    """round(x, n): each element."""
    return sys.modules[__package__].round(self, n)


@method
def __floor__(self: ndarray) -> int:
    """math.floor(x) of an array of one element."""
    return math.floor(float(self))


@method
def __ceil__(self: ndarray) -> int:
    """math.ceil(x) of an array of one element."""
    return math.ceil(float(self))


@method
def tobytes(self: ndarray) -> bytes:
    """The values as bytes, row by row."""
    return self.asnumpy().tobytes()


# ---- copies --------------------------------------------------------------------------------------


def row_major(order: str, what: str) -> None:
    """Raises ValueError for another order in memory than C's."""
    if order not in ("C", "K", "A", None):
        raise InvalidValue(
            compose(f"{what}: arrays are row-major, got order {order!r}", fix="order='C'")
        )


@method
def copy(self: ndarray, order: str = "C") -> Any:
    """A copy on the same device."""
    row_major(order, "copy")
    if getrefcount(self) == TEMPORARY and is_sole(self):
        return self
    return functions._copy(self)


@method
def astype(
    self: ndarray,
    dtype: DType,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
) -> Any:
    """A copy with another dtype (the array itself if it has it and copy is False). Raises TypeError
    for a conversion that `casting` forbids."""
    name = dtype_name(dtype)
    row_major(order, "astype")
    if casting != "unsafe" and not onp.can_cast(self.dtype, name, casting):  # type: ignore[arg-type]
        raise InvalidType(f"astype: casting {casting!r} does not allow {self.dtype} to {name}")
    return NDArray.astype(self, name, copy)


@method
def as_in_ctx(self: ndarray, ctx: Context) -> Any:
    """This array if it is on that device, else a copy there."""
    return self.as_in_context(ctx)


@method
def to_device(self: ndarray, device: Context, stream: Any = None) -> Any:
    """This array if it is on that device, else a copy there."""
    return self.as_in_context(device)


def _unpickled(make: Any, *arguments: Any) -> Any:
    return seen_as(ndarray, make(*arguments))


@method
def __reduce__(self: ndarray) -> tuple:
    make, arguments = _reduce_nd(self)
    return _unpickled, (make, *arguments)


# ---- shapes --------------------------------------------------------------------------------------

_reshapes = Plans()  # plans by the array's spec and the arguments


@method
def reshape(self: ndarray, *shape: Any, order: str = "C", **kwargs: Any) -> Any:
    """The same memory under another shape; one size may be -1."""
    if order == "C" and not kwargs:
        try:
            plan = _reshapes[self._spec, shape]
        except TypeError:  # a list
            plan = None
        if plan is not None:
            return seen(self, plan)
    key = (self._spec, shape)
    target = (
        shape[0] if len(shape) == 1 else shape or kwargs.pop("newshape", kwargs.pop("shape", None))
    )
    if target is None or kwargs:
        raise InvalidType(
            compose(f"reshape: needs a shape, got {kwargs or 'none'}", fix="x.reshape(2, -1)")
        )
    if order == "F":
        return sys.modules[__package__].reshape(self, target, order=order)
    row_major(order, "reshape")
    sizes = whole_shape(self.shape, target)
    plan = view_plan(self._spec, "reshape_to", {"shape": sizes})
    if all([n.__class__ is int for n in shape]) or shape and shape[0].__class__ is tuple:
        _reshapes[key] = plan
    return seen(self, plan)


def whole_shape(shape: tuple[int, ...], target: Any) -> tuple[int, ...]:
    """A target of reshape as a caller gives it, complete. Raises TypeError, ShapeError."""
    from ...kernels.ops.np.shape import whole_shape as complete
    from ...kernels.record import several

    try:
        sizes = tuple([n.__index__() for n in several(target)])
    except (TypeError, AttributeError):
        raise InvalidType(f"reshape: shape must be a tuple of ints, got {target!r}") from None
    return complete("np.reshape", shape, sizes)


@method
def reshape_view(self: ndarray, *shape: Any, **kwargs: Any) -> Any:
    """As reshape: the same memory under another shape."""
    return self.reshape(*shape, **kwargs)


@method
def ravel(self: ndarray, order: str = "C") -> Any:
    """The same memory as a vector."""
    return self.reshape(-1, order=order) if self.size else view(self, "reshape_to", {"shape": (0,)})


@method
def flatten(self: ndarray, order: str = "C") -> Any:
    """A copy as a vector."""
    return ravel(self, order).copy()


@method
def transpose(self: ndarray, *axes: Any) -> Any:
    """Axes in another order: x.transpose(), x.transpose(1, 0), x.transpose((1, 0))."""
    order = axes[0] if len(axes) == 1 and not hasattr(axes[0], "__index__") else axes or None
    return sys.modules[__package__].transpose(self, axes=order)


@method
def compress(self: ndarray, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    """See np.compress."""
    return sys.modules[__package__].compress(condition, self, axis, out)


@method
def conj(self: ndarray) -> Any:
    """The array: its numbers are real."""
    return self


setattr(ndarray, "conjugate", conj)


@method
def tofile(self: ndarray, fid: Any, sep: str = "", format: str = "%s") -> None:
    """Writes the elements to a file, as bytes or as text between which `sep` stands."""
    self.asnumpy().tofile(fid, sep, format)


# ---- in place ------------------------------------------------------------------------------------


@method
def partition(self: ndarray, kth: Any, axis: int = -1) -> None:
    """np.partition in place."""
    self[...] = sys.modules[__package__].partition(self, kth, axis)


@method
def fill(self: ndarray, value: Any) -> None:
    """Writes a number into every element."""
    self[...] = value


@method
def sort(self: ndarray, axis: int = -1, kind: str | None = None, order: Any = None) -> None:
    """Sorts in place, as NumPy; np.sort(x) gives a sorted copy."""
    self[...] = sys.modules[__package__].sort(self, axis=axis)


@method
def put(self: ndarray, indices: Any, values: Any, mode: str = "raise") -> None:
    """Writes values, repeated as needed, at places of the flat array."""
    places = onp.asarray(indices).astype(onp.int64).reshape(-1)
    if mode == "wrap":
        places %= max(self.size, 1)
    elif mode == "clip":
        places = places.clip(0, self.size - 1)
    found = onp.resize(onp.asarray(values), places.shape)
    self.reshape(-1)[places] = found
