"""CSRNDArray and RowSparseNDArray: arrays that store only some elements or rows, as a few dense
arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np

from ...engine import Context, wait
from ...engine._array import make_of
from ...engine.base import NotSupportedForSparseNDArray
from ...engine.error import (
    InvalidType,
    InvalidValue,
    MXNetError,
    compose,
)
from ...engine.svg import escape
from ...kernels.record import dtype_name, lookup
from ...kernels.spec import DType, Spec, spec
from .. import functions
from ..arithmetic import add, divide, multiply, subtract
from ..invoke import invoke
from ..launch import copy_into
from ..ndarray import NDArray
from ..notebook import array_html
from . import storage, structure
from .rows import added_up


class NotInSparse(MXNetError, NotImplementedError):
    """An operation that sparse arrays do not support."""


class BaseSparseNDArray(NDArray):
    """An array with a sparse storage type.

    Made by `csr_matrix`, `row_sparse_array`, `zeros` or `tostype`, not by calling the class. Its
    parts are dense arrays; an assignment replaces them.
    """

    __slots__ = ("_parts",)  # a list, shared with the result of `detach`: values, then indices

    def __repr__(self):
        shape = "x".join(map(str, self.shape))
        return f"\n<{type(self).__name__} {shape} @{self.context}>"

    def _repr_html_(self) -> str:
        """Jupyter's view: what the array is, and its first stored parts."""
        values, *indices = self._parts
        shape = "x".join(map(str, self.shape))
        kind = f"<b>{type(self).__name__}</b> {shape} {self._spec.dtype} {escape(self.context)}"
        n = values.shape[0]
        what = ("row" if self.stype == "row_sparse" else "element") + "s" * (n != 1)
        names = ["indices"] if len(indices) == 1 else ["indptr", "indices"]
        views = [("values", values), *zip(names, indices)]
        parts = "".join(
            f'<td style="padding:0 2em 0 0">{array_html(a, name)}</td>' for name, a in views
        )
        return f"<div>{kind}, {n} {what} stored<table><tr>{parts}</tr></table></div>"

    def _call_operator(self, op, inputs, attrs, out=None, ctx=None):
        """The entry point of `invoke` for sparse inputs; see ndarray.invoke.door, storage.call."""
        return storage.call(op, inputs, attrs, out)

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def stype(self) -> str:
        return self._spec.stype

    @property
    def size(self) -> int:
        raise NotInSparse(
            "size: ambiguous for sparse arrays: all elements or the stored ones\n  fix:"
            " math.prod(x.shape), or"
            " x.data.size"
        )

    @property
    def data(self) -> NDArray:
        """A copy of the stored values."""
        return self._parts[0].copy()

    @property
    def indices(self) -> NDArray:
        """A copy of the numbers of the stored rows, or of each value's column; int64."""
        return self._parts[-1].copy()

    @property
    def writable(self) -> bool:
        return all([p.writable for p in self._parts])

    @property
    def _num_aux(self) -> int:
        return len(self._parts) - 1

    @property
    def _aux_types(self) -> list:
        return [np.int64] * self._num_aux

    def _aux_type(self, i):
        return self._aux_types[i]

    def _data(self) -> NDArray:
        return self.data

    def _aux_data(self, i) -> NDArray:
        return self._parts[1 + i].copy()

    # ---- values ----------------------------------------------------------------------------------

    def wait_to_read(self) -> None:
        """Blocks until the contents are computed."""
        for part in self._parts:
            wait(part._handle)

    def wait_to_write(self) -> None:
        """Blocks until all pending reads and writes of the contents are done."""
        for part in self._parts:
            wait(part._handle, for_write=True)

    def asnumpy(self) -> np.ndarray:
        """A dense copy as a NumPy array."""
        return self.tostype("default").asnumpy()

    def asscalar(self) -> Any:
        """Raises as `size` does."""
        return self.size

    def __bool__(self):
        raise InvalidValue("The truth value of an NDArray with multiple elements is ambiguous.")

    def check_format(self, full_check: bool = True) -> None:
        """Checks that indices are in range and in order. Raises MXNetError. full_check: check every
        index, not only the ends."""
        rule = structure.broken_rule(self, full_check)
        if rule:
            raise MXNetError(f"check_format: {rule}")

    def detach(self) -> Self:
        """An array on the same memory, without its tape entry."""
        return _of_parts(type(self), self._spec, self._parts)

    def copy(self) -> Self:
        """A copy on the same device."""
        same: Any = functions._copy(self)  # of the same class
        return same

    def astype(self, dtype: DType, copy: bool = True) -> Self:
        """A copy with another dtype (the array itself if it has it and copy is False)."""
        name = dtype_name(dtype)
        if not copy and name == self._spec.dtype:
            return self
        s = self._spec
        values = self._parts[0].astype(name)
        s = spec(s.shape, name, s.device, stype=s.stype)
        return _of_parts(type(self), s, [values, *self._parts[1:]])

    def tostype(self, stype: str) -> NDArray:
        """A copy in another storage type ('default': dense). Raises ValueError between the sparse
        ones."""
        if stype not in ("default", self.stype):
            raise InvalidValue(f"cast_storage from {self.stype} to {stype} is not supported")
        return invoke(lookup("cast_storage"), (self,), {"stype": stype})

    def copyto(self, other: Any) -> NDArray:
        """Copies into an array of the same shape (dense, or of the same storage type), or to a
        device. Returns the target."""
        if isinstance(other, Context):
            other.check()
            s = self._spec
            parts = [p.copyto(other) for p in self._parts]
            return sparse_array(spec(s.shape, s.dtype, other, stype=s.stype), parts)
        if not isinstance(other, NDArray):
            raise InvalidType(f"copyto does not support type {type(other)}")
        if other.stype not in ("default", self.stype):
            raise InvalidType(f"copyto does not support destination NDArray stype {other.stype}")
        if other.shape != self.shape:
            raise InvalidValue(f"copyto: shapes must be equal, got {self.shape} and {other.shape}")
        if other is not self:
            copy_into(self, other)
        return other

    def _copy_between(self, source: NDArray, target: NDArray) -> None:
        """copy_into, if one of the two is sparse."""
        if target.stype == "default":
            copy_into(source.tostype("default"), target)
            return
        s = target._spec
        found = source
        if source.stype != s.stype:
            dense = source.tostype("default")
            found = invoke(lookup("cast_storage"), (dense,), {"stype": s.stype})
        elif source._spec is s:
            found = source.copy()
        if found._spec.dtype != s.dtype:
            found = found.astype(s.dtype)
        target._take(found.as_in_context(s.device))

    def _take(self, found: BaseSparseNDArray) -> None:
        """Takes over the contents of `found`, a temporary."""
        self._parts[:] = found._parts

    # ---- operators -------------------------------------------------------------------------------

    def __add__(self, other):
        return _elementwise("elemwise_add", add, self, other)

    def __sub__(self, other):
        return _elementwise("elemwise_sub", subtract, self, other)

    def __mul__(self, other):
        return _elementwise("elemwise_mul", multiply, self, other)

    def __truediv__(self, other):
        return _elementwise("elemwise_div", divide, self, other)

    def __radd__(self, other):
        return add(other, self)

    def __rsub__(self, other):
        return subtract(other, self)

    def __rmul__(self, other):
        return multiply(other, self)

    def __rtruediv__(self, other):
        return divide(other, self)

    __div__, __rdiv__ = __truediv__, __rtruediv__

    def __iadd__(self, other):
        return self._assigned(self + other)

    def __isub__(self, other):
        return self._assigned(self - other)

    def __imul__(self, other):
        return self._assigned(self * other)

    def __itruediv__(self, other):
        return self._assigned(self / other)

    __idiv__ = __itruediv__

    def _assigned(self, result):
        result.copyto(self)
        return self

    # ---- indexing --------------------------------------------------------------------------------

    def __setitem__(self, key, value):
        """Only x[:] = value: an array of the same shape or, for row_sparse, a number."""
        name = type(self).__name__
        if not isinstance(key, slice) or key != slice(None):
            raise InvalidValue(f"{name} only supports [:] for assignment, got [{key!r}]")
        if isinstance(value, NDArray):
            if value.shape != self.shape:
                raise InvalidValue(
                    f"{name}: shapes must be equal, got {self.shape} and {value.shape}"
                )
            if value is not self:
                copy_into(value, self)
        elif isinstance(value, (int, float)) and self.stype == "row_sparse":
            copy_into(functions.full(self.shape, value, self.context, self._spec.dtype), self)
        elif isinstance(value, (np.ndarray, np.generic)) and value.shape == self.shape:
            copy_into(functions.array(value, self.context, self._spec.dtype), self)
        else:
            raise InvalidValue(f"{name}: cannot assign {type(value).__name__} {np.shape(value)}")

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """Not for sparse arrays."""
        raise NotSupportedForSparseNDArray(self.reshape, None, shape)

    def _at(self, idx):
        raise NotSupportedForSparseNDArray(self._at, "[idx]", idx)

    def _slice(self, start, stop):
        raise NotSupportedForSparseNDArray(self._slice, None, start, stop)

    def slice_assign(self, rhs: Any, begin: Any, end: Any, step: Any) -> Any:
        """Not for sparse arrays."""
        raise NotSupportedForSparseNDArray(self.slice_assign, None, begin, end)

    def slice_assign_scalar(self, value: Any, begin: Any, end: Any, step: Any) -> Any:
        """Not for sparse arrays."""
        raise NotSupportedForSparseNDArray(self.slice_assign_scalar, None, begin, end)

    def __dlpack__(self, *args, **kwargs):
        raise NotSupportedForSparseNDArray(self.__dlpack__, None)

    def to_dlpack_for_read(self) -> Any:
        """Not for sparse arrays."""
        raise NotSupportedForSparseNDArray(self.to_dlpack_for_read, None)

    to_dlpack_for_write = to_dlpack_for_read


def _elementwise(name, general, lhs, rhs):
    """Equal shapes: the element-wise operator, which supports more storage types than the
    broadcasting one."""
    if isinstance(lhs, NDArray) and isinstance(rhs, NDArray) and lhs.shape == rhs.shape:
        return invoke(lookup(name), (lhs, rhs), {})
    return general(lhs, rhs)


class CSRNDArray(BaseSparseNDArray):
    """A matrix in compressed sparse row format: row i has the values data[indptr[i]:indptr[i + 1]]
    in the columns indices[indptr[i]:indptr[i + 1]], which are in ascending order.

    >>> x = nd.sparse.csr_matrix(([1, 2, 3], [1, 0, 2], [0, 1, 2, 2, 3]), shape=(4, 3))
    >>> x.asnumpy()[1]
    array([2., 0., 0.], dtype=float32)
    """

    __slots__ = ()

    @property
    def indptr(self) -> NDArray:
        """A copy of where each row starts among the values; int64, one element more than rows."""
        return self._parts[1].copy()

    def __getitem__(self, key):
        """Rows: x[1], x[-1], x[1:3], x[:]. Raises ValueError for other keys."""
        n = self.shape[0]
        if isinstance(key, (int, np.integer)):
            if not -n <= key < n:
                raise InvalidValue(f"CSRNDArray: row {key} is not in [{-n}, {n})")
            key = slice(key % n, key % n + 1)
        if isinstance(key, tuple):
            raise InvalidValue("Multi-dimension indexing is not supported")
        if not isinstance(key, slice):
            raise InvalidValue(f"Undefined behaviour for {key}")
        if key.step is not None:
            raise InvalidValue("CSRNDArray only supports continuous slicing on axis 0")
        if key.start is None and key.stop is None:
            return self
        begin, end, _ = key.indices(n)
        return functions.slice(self, begin=(begin,), end=(max(begin, end),))

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))

    def asscipy(self) -> Any:
        """A copy as a scipy.sparse.csr_matrix. Raises ImportError without SciPy."""
        data, indptr, indices = (p.asnumpy() for p in self._parts)
        return scipy_sparse().csr_matrix((data, indices, indptr), shape=self.shape)


class RowSparseNDArray(BaseSparseNDArray):
    """An array of which some rows are stored: x[indices[i]] = data[i], all others are zero. The
    indices are in ascending order.

    >>> x = nd.sparse.row_sparse_array(([[1, 2], [3, 4]], [1, 4]), shape=(6, 2))
    >>> x.asnumpy()[4]
    array([3., 4.], dtype=float32)
    """

    __slots__ = ()

    def __getitem__(self, key):
        """Only x[:], the array itself."""
        if isinstance(key, slice) and key == slice(None):
            return self
        raise InvalidValue(f"RowSparseNDArray only supports [:] for __getitem__, got [{key!r}]")

    def __iter__(self):
        raise InvalidType("RowSparseNDArray: cannot be iterated\n  fix: x.tostype('default')")

    def retain(self, *args: Any, **kwargs: Any) -> RowSparseNDArray:
        """The rows at given indices; see nd.sparse.retain."""
        rows: Any = functions._sparse_retain(self, *args, **kwargs)
        return rows

    def _add_up(self, pairs, add: bool) -> None:
        """Sets this array to (or, if add, adds to it) the sum of rows: pairs of (row numbers,
        rows), or dense arrays."""
        dense = [p for p in pairs if not isinstance(p, tuple)]
        sparse: list = [p for p in pairs if isinstance(p, tuple)]
        if add and len(structure.values_of(self._parts[1])):
            sparse.append(self)
        total = row_sparse(self.shape, *added_up(self.shape, sparse)) if sparse else None
        if dense:
            made: Any = dense[0] if len(dense) == 1 else functions.add_n(*dense)
            found: Any = made if total is None else made + total
        else:
            found = functions.zeros_like(self) if total is None else total
        if found._spec is self._spec:
            self._take(found)
        else:
            copy_into(found, self)


A = TypeVar("A", bound=BaseSparseNDArray)


def sparse_array(s: Any, parts: list) -> BaseSparseNDArray:
    """An array of a sparse Spec. parts: values and indices; the list is kept."""
    cls = CSRNDArray if s.stype == "csr" else RowSparseNDArray
    return _of_parts(cls, s, parts)


def _of_parts(cls: type[A], s: Spec, parts: list) -> A:
    made = make_of(cls, 0, s)
    made._parts = parts
    return made


def csr(shape: Sequence[int], data: NDArray, indptr: NDArray, indices: NDArray) -> CSRNDArray:
    """A csr array from its parts, which are not checked."""
    s = spec(tuple(shape), data._spec.dtype, data._spec.device, stype="csr")
    return _of_parts(CSRNDArray, s, [data, indptr, indices])


def row_sparse(shape: Sequence[int], data: NDArray, indices: NDArray) -> RowSparseNDArray:
    """A row_sparse array from its parts, which are not checked."""
    s = spec(tuple(shape), data._spec.dtype, data._spec.device, stype="row_sparse")
    return _of_parts(RowSparseNDArray, s, [data, indices])


def scipy_sparse() -> Any:
    """The module scipy.sparse. Raises ImportError with the fix."""
    try:
        import scipy.sparse
    except ImportError:
        raise ImportError(
            compose(
                "scipy could not be imported. Please make sure that the scipy is installed.",
                fix="pip install scipy",
            )
        ) from None
    return scipy.sparse
