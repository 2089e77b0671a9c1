"""NDArray's methods: Python operators, operator records as methods, and array-only methods."""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

from ..engine import Context, lib
from ..engine.error import InvalidType, InvalidValue, MXNetError
from ..graph.operators import BINARY, add_composites, add_operators
from ..kernels.plan import copy_plan
from ..kernels.record import REGISTRY, dtype_name, lookup, several
from ..kernels.spec import DType
from . import autograd, functions
from .indexing import view, view_plan
from .invoke import invoke
from .launch import Plans, copy_into, run, seen
from .ndarray import NDArray, make_view, seen_as
from .notebook import array_html
from .operators import binary_method, in_place_method, not_a_number, scalar_method
from .protocol import text
from .tape import Variable, refuse_recorded
from .temporary import TEMPORARY, is_sole

add_operators(NDArray, binary_method, scalar_method, lambda self: functions.negative(self))
add_composites(
    NDArray, lambda: functions, lambda self, other: not_a_number(self, other, lookup("dot"))
)
for _operator, (_both, _right, _) in BINARY.items():
    if _operator != "pow":  # x **= 2 makes a new array, as in MXNet
        setattr(NDArray, f"__i{_operator}__", in_place_method(_both, _right))
setattr(NDArray, "__idiv__", getattr(NDArray, "__itruediv__"))
setattr(NDArray, "__hash__", object.__hash__)


def method(function: Callable[..., Any]) -> Callable:
    setattr(NDArray, function.__name__, function)
    return function


class _OperatorMethod:
    """A method that becomes the operator's function, with its signature, when it is first used."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, instance, owner):
        function = getattr(functions, self.name)
        setattr(NDArray, self.name, function)
        return function if instance is None else function.__get__(instance)


# their first input has another name than `data`
ALSO = ("batch_dot", "broadcast_like", "dot", "one_hot", "reshape_like", "take")
# every public operator whose first input is `data` is a method
for _name, _op in REGISTRY.items():
    if (
        (_op.inputs[:1] == ("data",) or _name in ALSO)
        and _name[0].islower()
        and _name not in NDArray.__dict__
    ):
        setattr(NDArray, _name, _OperatorMethod(_name))
setattr(NDArray, "__abs__", lambda self: functions.abs(self))


@method
def asscalar(self: NDArray) -> Any:
    """The value of an array of one element as a Python number."""
    if self.size != 1:
        raise InvalidValue(f"asscalar: the array must have one element, got shape {self.shape}")
    return self.asnumpy().reshape(-1)[0]


@method
def attach_grad(self: NDArray, grad_req: str = "write", stype: str | None = None) -> None:
    """Makes this array a variable: backward stores (or adds) its gradient in `.grad`, of storage
    type stype (default: the array's own). Detaches it from the tape."""
    zeros = functions.zeros_like(self.detach())
    if stype not in (None, zeros.stype):
        zeros = functions.zeros(self.shape, self.context, self._spec.dtype, stype=stype)
    autograd.mark_variables([self], [zeros], grad_req)


def _grad(self):
    """The gradient that backward stored, or None."""
    tape = self._tape
    return tape.grad if tape is not None and tape.__class__ is not tuple else None


setattr(NDArray, "grad", property(_grad))


@method
def backward(
    self: NDArray, out_grad: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Computes the gradients of this array with respect to the variables it depends on."""
    autograd.backward([self], [out_grad], retain_graph, train_mode)


@method
def detach(self: NDArray) -> NDArray:
    """An array on the same memory, without its tape entry."""
    return make_view(self)


@method
def copy(self: NDArray) -> NDArray:
    """A copy on the same device."""
    return self if getrefcount(self) == TEMPORARY and is_sole(self) else functions._copy(self)


@method
def copyto(self: NDArray, other: Any) -> NDArray:
    """Copies into an array of the same shape, or to a device (a new array); converts the dtype.
    Returns the target."""
    if isinstance(other, Context):
        other.check()
        return run(copy_plan(self._spec, other), [self])
    if isinstance(other, NDArray):
        target = other
        if target.shape != self.shape:
            raise InvalidValue(f"copyto: shapes must be equal, got {self.shape} and {target.shape}")
        if (
            target._spec.stype == "default"
            and lib.pl_array_shares(target._handle, self._handle)
            and lib.pl_array_data(target._handle) == lib.pl_array_data(self._handle)
        ):
            return target
    else:
        raise InvalidType(
            f"copyto: the target must be an NDArray or a Context, got {type(other).__name__}"
        )
    copy_into(self, target)
    return target


@method
def as_in_context(self: NDArray, context: Any) -> NDArray:
    """This array if it is on that device, else a copy there."""
    return self if context == self.context else self.copyto(context)


@method
def astype(self: NDArray, dtype: DType, copy: bool = True) -> NDArray:
    """A copy with another dtype (the array itself if it has it and copy is False)."""
    name = dtype_name(dtype)
    if not copy and name == self._spec.dtype:
        return self
    return functions.cast(self, dtype=name)


def _sizes(shape) -> tuple[int, ...]:
    try:
        return tuple(n.__index__() for n in several(shape))
    except (TypeError, AttributeError):
        raise InvalidType(f"reshape: shape must be a tuple of ints, got {shape!r}") from None


_reshapes = Plans()  # plans by the array's spec and the arguments


@method
def reshape(self: NDArray, *shape: Any, **kwargs: Any) -> NDArray:
    """The same memory under another shape; see nd.Reshape for the codes 0, -1, -2, -3, -4."""
    try:
        plan = None if kwargs else _reshapes[self._spec, shape]
    except TypeError:  # a list
        plan = None
    if plan is not None:
        return seen(self, plan)
    key, given = (self._spec, shape), shape
    if len(shape) == 1:
        given = shape[0]
    elif not shape:
        if "shape" not in kwargs:
            raise MXNetError(
                "reshape: needs a shape\n  fix: x.reshape((2, -1)), or x.reshape(2, -1)"
            )
        given = kwargs["shape"]
    attrs = {"shape": _sizes(given), "reverse": kwargs.get("reverse", False)}
    plan = view_plan(self._spec, "Reshape", attrs)
    if not kwargs and given.__class__ is tuple and all([n.__class__ is int for n in given]):
        _reshapes[key] = plan
    return seen(self, plan)


@method
def expand_dims(self: NDArray, axis: Any, inplace: bool = False) -> NDArray:
    """A new axis of size 1 before `axis`. inplace: as a view of the same memory."""
    if inplace:
        return view(self, "expand_dims", {"axis": axis})
    return functions.expand_dims(self, axis)


@method
def squeeze(self: NDArray, axis: Any = None, inplace: bool = False) -> NDArray:
    """Removes axes of size 1, or those in `axis`. inplace: as a view of the same memory."""
    axis = tuple(axis) if isinstance(axis, list) else axis
    return view(self, "squeeze", {"axis": axis}) if inplace else functions.squeeze(self, axis)


@method
def flatten(self: NDArray, inplace: bool = False) -> NDArray:
    """(d1, d2, ..., dk) -> (d1, d2 * ... * dk). inplace: as a view of the same memory."""
    return view(self, "Flatten", {}) if inplace else functions.flatten(self)


@method
def broadcast_like(
    self: NDArray, other: Any, lhs_axes: Any = None, rhs_axes: Any = None
) -> NDArray:
    """Repeats axes of size 1 until the shape is that of `other`."""
    return functions.broadcast_like(self, other, lhs_axes, rhs_axes)


def _transposed(self):
    return functions.transpose(self)


setattr(NDArray, "T", property(_transposed))


@method
def __repr__(self):
    shape = "x".join(map(str, self.shape))
    return f"\n{text(self)}\n<NDArray {shape} @{self.context}>"


@method
def _repr_html_(self):
    """Jupyter's view: what the array is, and some of its values."""
    return array_html(self)


@method
def slice_assign(self: NDArray, rhs: Any, begin: Any, end: Any, step: Any) -> NDArray:
    """Writes rhs into self[begin:end:step] (tuples with a number or None for each axis); returns
    self."""
    refuse_recorded(self, rhs)
    return invoke(
        lookup("_slice_assign"), (self, rhs), {"begin": begin, "end": end, "step": step or ()}, self
    )


@method
def slice_assign_scalar(self: NDArray, value: Any, begin: Any, end: Any, step: Any) -> NDArray:
    """Writes a number into self[begin:end:step] (tuples with a number or None for each axis);
    returns self."""
    refuse_recorded(self)
    return invoke(
        lookup("_slice_assign_scalar"),
        (self,),
        {"scalar": value, "begin": begin, "end": end, "step": step or ()},
        self,
    )


@method
def split_v2(
    self: NDArray, indices_or_sections: Any, axis: Any = 0, squeeze_axis: bool = False
) -> Any:
    """See nd.split_v2."""
    return functions.split_v2(self, indices_or_sections, axis, squeeze_axis)


@method
def tostype(self: NDArray, stype: str) -> NDArray:
    """A copy in another storage type: row_sparse or csr (the array itself for 'default')."""
    return self if stype == "default" else functions.cast_storage(self, stype=stype)


@method
def as_nd_ndarray(self: NDArray) -> NDArray:
    """The same memory, with the same gradients, as an NDArray: itself unless it is of mx.np."""
    return seen_as(NDArray, self)


@method
def as_np_ndarray(self: NDArray) -> Any:
    """The same memory, with the same gradients, as an array of mx.np. Raises TypeError for a sparse
    array."""
    from .numpy import ndarray  # stands on these methods

    return seen_as(ndarray, self)


def _fresh(self) -> bool:
    """Has backward stored a gradient since the last Trainer.step?"""
    return self._tape.fresh if isinstance(self._tape, Variable) else False


def _set_fresh(self, value) -> None:
    if isinstance(self._tape, Variable):
        self._tape.fresh = bool(value)


setattr(NDArray, "_fresh_grad", property(_fresh, _set_fresh))


def _writable(self) -> bool:
    """False for an array on read-only memory, see from_numpy."""
    return not lib.pl_array_protected(self._handle)


setattr(NDArray, "writable", property(_writable))
