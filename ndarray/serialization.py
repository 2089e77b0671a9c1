"""nd.save and nd.load: MXNet's binary format for lists and dicts of arrays, byte for byte.

A file is: magic, 0, number of arrays, the arrays, number of names (0 or as many), the names;
little-endian. An array of version 2 (3: 0-d arrays, and those of mx.np) is: magic, storage type,
shape, device, dtype, values. Version 1 has no storage type; version 0 has 32-bit dimensions and its
number of dimensions where the others have a magic. A sparse array has the shape of its values
before its own, and for each index array dtype and shape before the values and the indices after
them (csr: indptr, then columns).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from math import prod
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from ..engine import Context, cpu, files
from ..engine._array import exchange
from ..engine.error import InvalidType, InvalidValue, MXNetError, compose
from ..engine.files import DamagedFile
from ..kernels.record import DTYPES
from ..kernels.spec import ITEM_BYTES, NUMPY_DTYPES, STYPES
from .ndarray import NDArray, from_memory
from .sparse.sparse_array import csr, row_sparse

LIST_MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
DENSE, ROW_SPARSE, CSR = range(len(STYPES))
MAX_DIMS = 64
MAX_ELEMENTS = (1 << 63) // 8 - 1  # of 8 bytes in the address space
MAX_ITEMS = 1 << 40  # above any real file: a larger count means another kind of file


class Record(NamedTuple):
    """One array of a file: values (a view of the file's bytes) and, if it is sparse, its shape and
    indices: of rows, or indptr and columns."""

    values: np.ndarray
    shape: tuple[int, ...] = ()
    indices: tuple[np.ndarray, ...] = ()


# ---- writing -------------------------------------------------------------------------------------


def save(fname: str | PathLike[str], data: Any) -> None:
    """Writes an array, a list of arrays or a dict of name -> array to a file. A name that ends in
    .safetensors gives a file of that format, which needs a dict.

    The file is written atomically. Raises ValueError or TypeError for other data, OSError if it
    cannot be written.
    """
    path = _path(fname, "save")
    if files.is_safetensors(path):
        from . import safetensors

        return safetensors.save(path, data)
    # everything is checked and computed before a file is touched
    chunks = _chunks(data)
    with files.replacing(path) as part, open(part, "wb") as file:
        file.writelines(chunks)


def save_tobuffer(data: Any) -> bytes:
    """The file content of `save`, as bytes."""
    return b"".join(_chunks(data))


def _path(fname, who: str) -> str:
    try:
        return os.fspath(fname)
    except TypeError:
        raise InvalidType(f"{who}: fname must be a path, got {type(fname).__name__}") from None


def _chunks(data) -> list:
    names: list[str] = []
    if isinstance(data, NDArray):
        data = [data]
    if isinstance(data, dict):
        names, arrays = list(data), list(data.values())
    elif isinstance(data, list):
        arrays = data
    else:
        raise InvalidValue(
            "save: data must be an NDArray, a list of NDArrays or a dict of str to NDArray, got "
            f"{type(data).__name__}"
        )
    for name in names:
        if not isinstance(name, str):
            raise InvalidType(f"save: names must be str, got {type(name).__name__} {name!r}")
    for i, array in enumerate(arrays):
        if not isinstance(array, NDArray):
            at = repr(names[i]) if names else f"number {i}"
            raise InvalidType(
                compose(
                    f"save: every value must be an NDArray, got {type(array).__name__} for {at}",
                    fix="nd.array(x)",
                )
            )
    chunks = [struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays))]
    for array in arrays:
        chunks += _record(array)
    chunks.append(struct.pack("<Q", len(names)))
    for name in names:
        text = name.encode()
        chunks += [struct.pack("<Q", len(text)), text]
    return chunks


def _record(array: NDArray) -> list:
    s = array._spec
    n = len(s.shape)
    if s.stype != "default":
        return _sparse_record(array)
    device_id = s.device.device_id if s.device.on_host else 0
    version = V2 if n and array._element else V3  # arrays of mx.np: 0 is a size in their shapes
    head = struct.pack(
        f"<Iii{n}qiii", version, DENSE, n, *s.shape, 1, device_id, DTYPES.index(s.dtype)
    )
    return [head, array.asnumpy().tobytes()]


def _sparse_record(array: NDArray) -> list:
    s = array._spec
    parts = [p.asnumpy() for p in array._parts]
    stored, device_id = parts[0].shape, s.device.device_id if s.device.on_host else 0
    head = struct.pack("<Iii", V2, STYPES.index(s.stype), len(stored))
    for shape in (stored, s.shape):
        head += struct.pack(f"<{len(shape)}q", *shape)
        if shape is stored:
            head += struct.pack("<i", len(s.shape))
    head += struct.pack("<iii", 1, device_id, DTYPES.index(s.dtype))
    for places in parts[1:]:
        head += struct.pack("<iiq", DTYPES.index("int64"), 1, len(places))
    return [head, *(p.tobytes() for p in parts)]


# ---- reading -------------------------------------------------------------------------------------


def load(fname: str | PathLike[str]) -> list[NDArray] | dict[str, NDArray]:
    """The arrays of a file: a list, or a dict if they have names.

    Every version of MXNet's format is read, and safetensors files, by the name's end: their arrays
    are the file's memory, read when they are used; writing to them does not change the file. Raises
    DamagedFile if the file has another format, is truncated or damaged, MXNetError if it cannot be
    read; nothing is loaded then.
    """
    path = _path(fname, "load")
    where = None if os.path.isabs(path) else f"the working directory is {os.getcwd()}"
    if files.is_safetensors(path):
        from . import safetensors

        return safetensors.load(path, where)
    return _load(files.read(path, "load", where), f"load: {path!r}")


def load_frombuffer(buf: Any) -> list[NDArray] | dict[str, NDArray]:
    """Like `load`, from the bytes of a file."""
    if not isinstance(buf, (bytes, bytearray, memoryview)):
        raise InvalidType(f"load_frombuffer: buf must be bytes, got {type(buf).__name__}")
    return _load(bytes(buf), "load_frombuffer: the buffer")


def _load(content: bytes, what: str):
    records, names = _Reader(content, what).read_list()
    arrays = [_array(r) for r in records]
    return dict(zip(names, arrays)) if names else arrays


def _array(record: Record) -> NDArray:
    values = from_memory(record.values, cpu(0))
    if not record.indices:
        return values
    places = [from_memory(i, cpu(0)) for i in record.indices]
    make = row_sparse if len(places) == 1 else csr
    return make(record.shape, values, *places)


class _Reader:
    """Reads fields in sequence and rejects invalid values."""

    def __init__(self, content: bytes, what: str):
        self.content, self.what, self.at = content, what, 0

    def fail(self, rule: str) -> Any:
        raise DamagedFile(
            f"{self.what} is no whole MXNet array file: {rule} (Invalid NDArray file format)"
        )

    def take(self, n_bytes: int, field: str) -> memoryview:
        end = self.at + n_bytes
        if n_bytes < 0 or end > len(self.content):
            self.fail(
                f"{field} needs {n_bytes} bytes at offset {self.at}, the file ends at"
                f" {len(self.content)}"
            )
        part = memoryview(self.content)[self.at : end]
        self.at = end
        return part

    def numbers(self, format: str, field: str) -> tuple:
        return struct.unpack("<" + format, self.take(struct.calcsize("<" + format), field))

    def read_list(self) -> tuple[list[Record], list[str]]:
        if len(self.content) >= 8 and struct.unpack_from("<Q", self.content)[0] != LIST_MAGIC:
            self.fail(
                f"it must start with the number {LIST_MAGIC:#x}, got the bytes"
                f" {self.content[:8].hex(' ')}"
            )
        _, _, n = self.numbers("QQQ", "the header")
        if n > MAX_ITEMS:
            self.fail(f"it claims {n} arrays")
        records = []
        for i in range(n):
            records.append(self.record(f"array {i} of {n}"))
        (n_names,) = self.numbers("Q", "the number of names")
        if n_names not in (0, n):
            self.fail(f"it has {n} arrays and {n_names} names")
        names = []
        for i in range(n_names):
            (length,) = self.numbers("Q", f"the length of name {i}")
            try:
                names.append(str(self.take(length, f"name {i}"), "utf-8"))
            except UnicodeDecodeError:
                self.fail(f"name {i} is not UTF-8")
        return records, names

    def record(self, which: str) -> Record:
        (magic,) = self.numbers("I", which)
        if magic in (V2, V3):
            (stype,) = self.numbers("i", f"the storage type of {which}")
            if stype in (ROW_SPARSE, CSR):
                return self.sparse(which, stype)
            if stype != DENSE:
                self.fail(f"{which} has the unknown storage type {stype}")
            shape = self.shape(which)
            return Record(self.dense(which, shape, empty=magic == V2 and not shape))
        if magic == V1:
            shape = self.shape(which)
        else:
            if magic > MAX_DIMS:
                self.fail(f"{which} starts with the unknown number {magic:#x}")
            shape = self.sized(which, self.numbers(f"{magic}I", f"the shape of {which}"))
        return Record(self.dense(which, shape, empty=not shape))

    def shape(self, which: str) -> tuple[int, ...]:
        (n,) = self.numbers("i", f"the shape of {which}")
        if not 0 <= n <= MAX_DIMS:
            self.fail(f"{which} has {n} dimensions")
        shape = self.numbers(f"{n}q", f"the shape of {which}")
        return self.sized(which, shape)

    def sized(self, which: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A valid shape of an array, checked even if a dimension of 0 makes it empty."""
        if any(d < 0 for d in shape) or prod(d for d in shape if d) > MAX_ELEMENTS:
            self.fail(f"{which} has the shape {shape}")
        return shape

    def dtype(self, which: str) -> str:
        (flag,) = self.numbers("i", f"the dtype of {which}")
        if not 0 <= flag < len(DTYPES):
            self.fail(f"{which} has the unknown dtype number {flag}")
        return DTYPES[flag]

    def values(self, which: str, shape: Sequence[int], dtype: str) -> np.ndarray:
        part = self.take(
            prod(shape) * ITEM_BYTES[dtype], f"the values of {which}, {dtype} {tuple(shape)},"
        )
        if dtype == "bool":
            return (np.frombuffer(part, np.uint8) != 0).reshape(shape)
        return np.frombuffer(part, NUMPY_DTYPES[dtype]).reshape(shape)

    def dense(self, which: str, shape: Sequence[int], empty: bool) -> np.ndarray:
        # an array without memory: the record ends here
        if empty:
            return np.empty((0,), np.float32)
        self.numbers("ii", f"the device of {which}")
        return self.values(which, shape, self.dtype(which))

    def sparse(self, which: str, stype: int) -> Record:
        stored, shape = self.shape(which), self.shape(which)
        self.numbers("ii", f"the device of {which}")
        dtype = self.dtype(which)
        indices = []
        for _ in range(1 if stype == ROW_SPARSE else 2):
            index_dtype = self.dtype(which)
            indices.append((index_dtype, self.shape(which)))
        values = self.values(which, stored, dtype)
        places = [self.values(which, s, d).astype(np.int64) for d, s in indices]
        if not self.fits(stype, shape, values.shape, places):
            self.fail(f"the indices of {which} do not fit its shape {shape}")
        return Record(values, shape, tuple(places))

    @staticmethod
    def fits(stype: int, shape: Sequence[int], stored: Any, places: Any) -> bool:
        """Are the index arrays valid for a sparse array of this shape?"""
        if any(p.ndim != 1 for p in places) or stored[:1] != places[-1].shape or not shape:
            return False
        limit = shape[0] if stype == ROW_SPARSE else shape[-1]
        inside = not places[-1].size or 0 <= places[-1].min() <= places[-1].max() < limit
        if stype == ROW_SPARSE:
            return inside and stored[1:] == shape[1:]
        starts = places[0]
        whole = len(shape) == 2 and len(starts) == shape[0] + 1 and len(stored) == 1
        return bool(
            whole
            and inside
            and starts[0] == 0
            and starts[-1] == len(places[1])
            and (np.diff(starts) >= 0).all()
        )


# ---- pickling and copying ------------------------------------------------------------------------


def _unpickle(content: bytes, device_type: str, device_id: int) -> NDArray:
    (array,) = load_frombuffer(content)
    assert isinstance(array, NDArray)  # save_tobuffer() wrote it without a name
    device = Context(device_type, device_id)
    if device == array.context:
        return array
    try:
        device.check()
    except MXNetError:  # pickled on a machine with a GPU
        return array
    return array.as_in_context(device)


def reduce(self: NDArray) -> tuple:
    """Pickles the values and the device; not gradients and tape entries."""
    device = self.context
    return _unpickle, (save_tobuffer(self), device.device_type, device.device_id)


def _set_state(self: NDArray, state: dict) -> None:
    """Fills a new array from a pickle in MXNet's format: {"handle": the bytes of one array, or
    None}.

    Raises DamagedFile if they are not an array, or one of another storage type.
    """
    content = state.get("handle") if isinstance(state, dict) else b""
    if content is None:
        return
    what = "pickle: an NDArray"
    if not isinstance(content, (bytes, bytearray)):
        raise DamagedFile(f"{what} must hold bytes, got {type(content).__name__}")
    found = _array(_Reader(bytes(content), what).record("the array"))
    if not isinstance(self, type(found)):
        raise DamagedFile(f"{what} of class {type(self).__name__} holds a {type(found).__name__}")
    exchange(self, found)
    if found._spec is not self._spec and self._spec.stype != "default":
        self._parts = found._parts  # type: ignore[attr-defined]  # both are of one sparse class


_METHODS = {
    "__reduce__": reduce,
    "__setstate__": _set_state,
    "__copy__": lambda self: self.detach().copy(),
    "__deepcopy__": lambda self, memo: self.detach().copy(),
}
for _name, _method in _METHODS.items():
    setattr(NDArray, _name, _method)
