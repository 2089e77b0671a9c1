"""NDArray's methods: Python operators, operator records as methods, and what only arrays can do."""
from __future__ import annotations

from ..engine import Context, lib
from ..engine.error import MXNetError
from ..kernels.record import REGISTRY, dtype_name
from ..symbol.operators import BINARY, add_operators
from . import autograd, functions
from .ndarray import NDArray, make
from .indexing import refuse_recorded, view
from .invoke import binary_method, copy_into, scalar_method

add_operators(NDArray, binary_method, scalar_method, lambda self: functions.negative(self))
NDArray.__hash__ = object.__hash__


def method(function):
    setattr(NDArray, function.__name__, function)
    return function


def _in_place(operator: str):
    plain = getattr(NDArray, f"__{operator}__")

    def assign(self, other):
        refuse_recorded(self, other)
        result = plain(self, other)
        if result is NotImplemented:
            return result
        if result.shape != self.shape:
            raise MXNetError(f"in-place operation: the result must have the array's shape {self.shape}, "
                             f"got {result.shape}")
        with autograd.pause():
            copy_into(result, self)
        return self
    return assign


for _operator in BINARY:
    setattr(NDArray, f"__i{_operator}__", _in_place(_operator))


def _operator_method(name: str):
    def call(self, *args, **kwargs):
        return getattr(functions, name)(self, *args, **kwargs)
    call.__name__ = name
    call.__doc__ = f"See nd.{name}."
    return call


for _name, _op in REGISTRY.items():       # every public operator whose first input is `data` is a method
    if not _name.startswith("_") and _op.inputs[:1] == ("data",) and not hasattr(NDArray, _name) \
            and _name[0].islower():
        setattr(NDArray, _name, _operator_method(_name))


@method
def asscalar(self):
    """The value of an array of one element as a Python number."""
    if self.size != 1:
        raise ValueError(f"asscalar: the array must have one element, got shape {self.shape}")
    return self.asnumpy().reshape(-1)[0]


@method
def attach_grad(self, grad_req: str = "write", stype=None) -> None:
    """Makes this array a variable: backward stores (or adds) its gradient in `.grad`. Detaches it from the tape."""
    autograd.mark_variables([self], [functions.zeros_like(self.detach())], grad_req)


def _grad(self):
    """The gradient that backward stored, or None."""
    tape = self._tape
    return tape.grad if tape is not None and tape.__class__ is not tuple else None


NDArray.grad = property(_grad)


@method
def backward(self, out_grad=None, retain_graph: bool = False, train_mode: bool = True) -> None:
    """Computes the gradients of this array with respect to the variables it depends on."""
    autograd.backward([self], [out_grad], retain_graph, train_mode)


@method
def detach(self) -> NDArray:
    """The same memory, not on the tape."""
    return make(lib.pl_array_view(self._handle, 0), self._spec)


@method
def copy(self) -> NDArray:
    """A copy on the same device."""
    return functions._copy(self)


@method
def copyto(self, other):
    """Copies into an array of the same shape, or to a device (a new array); converts the dtype. Returns the target."""
    if isinstance(other, Context):
        other.check()
        target = functions.empty(self.shape, other, self._spec.dtype)
    elif isinstance(other, NDArray):
        target = other
        if target.shape != self.shape:
            raise ValueError(f"copyto: shapes must be equal, got {self.shape} and {target.shape}")
        if lib.pl_array_shares(target._handle, self._handle) and \
                lib.pl_array_data(target._handle) == lib.pl_array_data(self._handle):
            return target
    else:
        raise TypeError(f"copyto: the target must be an NDArray or a Context, got {type(other).__name__}")
    copy_into(self, target)
    return target


@method
def as_in_context(self, context) -> NDArray:
    """This array if it is on that device, else a copy there."""
    return self if context == self.context else self.copyto(context)


@method
def astype(self, dtype, copy: bool = True) -> NDArray:
    """A copy with another dtype (the array itself if it has it and copy is False)."""
    name = dtype_name(dtype)
    if not copy and name == self._spec.dtype:
        return self
    return functions.cast(self, dtype=name)


@method
def reshape(self, *shape, **kwargs) -> NDArray:
    """The same memory under another shape; see nd.Reshape for the codes 0, -1, -2, -3, -4."""
    if len(shape) == 1 and not hasattr(shape[0], "__index__"):
        shape = tuple(shape[0])
    elif not shape:
        shape = tuple(kwargs.get("shape", ()))
    return view(self, "Reshape", {"shape": tuple(int(n) for n in shape), "reverse": kwargs.get("reverse", False)})


def _transposed(self):
    return functions.transpose(self)


NDArray.T = property(_transposed)


@method
def __len__(self):
    if not self.shape:
        raise TypeError("len() of a 0-d array")
    return self.shape[0]


@method
def __bool__(self):
    if self.size == 0:
        return False
    if self.size != 1:
        raise ValueError("The truth value of an NDArray with multiple elements is ambiguous\n  fix: x.sum() > 0, "
                         "x.asnumpy().any()")
    return bool(self.asscalar())


@method
def __repr__(self):
    shape = "x".join(map(str, self.shape))
    return f"\n{self.asnumpy()!s}\n<NDArray {shape} @{self.context}>"


@method
def __array__(self, dtype=None, copy=None):
    if copy is False:
        raise ValueError("an NDArray cannot be seen by NumPy without a copy")
    values = self.asnumpy()
    return values if dtype is None else values.astype(dtype)
