"""safetensors files: arrays by name, as torch and others write and read them. The arrays that are
read are the file's memory, of which a page is copied when it is first written to."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..engine import files
from ..engine.error import InvalidType, InvalidValue, MissingPackage, compose
from ..engine.files import DamagedFile
from ..kernels.spec import ITEM_BYTES, NUMPY_DTYPES
from .interop import from_numpy
from .ndarray import NDArray

DTYPES = {  # the format's names
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}


def _library() -> Any:
    try:
        import safetensors
    except ImportError:
        rule = "a .safetensors file needs the package safetensors"
        raise MissingPackage(compose(rule, fix="pip install 'plait[safetensors]'")) from None
    return safetensors


def save(path: str, data: Any) -> None:
    """Writes a dict of name -> dense array, atomically."""
    library = _library()
    if not isinstance(data, dict):
        rule = f"save: {path!r} holds arrays by name, got {type(data).__name__}"
        raise InvalidValue(compose(rule, fix="a dict of name -> NDArray; or .params for a list"))
    for name, x in data.items():
        if not isinstance(name, str) or not isinstance(x, NDArray) or x.stype != "default":
            kind = getattr(x, "stype", type(x).__name__)
            rule = f"save: {path!r} holds dense NDArrays by name, got {name!r}: {kind}"
            raise InvalidType(compose(rule, fix="x.tostype('default'); or .params"))
    values = {name: np.ascontiguousarray(x.asnumpy()) for name, x in data.items()}
    specs = {
        name: library.TensorSpec(
            dtype=data[name]._spec.dtype,
            shape=list(data[name].shape),
            data_ptr=v.ctypes.data,
            data_len=v.nbytes,
        )
        for name, v in values.items()
    }
    with files.replacing(path, of_arrays=True) as part:
        library.serialize_file(specs, part, {"format": "np"})


def load(path: str, where: str | None = None) -> dict[str, NDArray]:
    """The arrays of a file by name. Raises DamagedFile for one that is damaged, or has a dtype that
    plait lacks."""
    library = _library()
    with files.reading(path, "load", where, of_arrays=True):
        try:
            with library.safe_open(path, "numpy") as file:
                names = file.offset_keys()
                parts = [file.get_slice(name) for name in names]
                types = [(part.get_dtype(), tuple(part.get_shape())) for part in parts]
        except library.SafetensorError as error:
            raise DamagedFile(f"load: {path!r} is no safetensors file: {error}") from None
        for name, (dtype, _) in zip(names, types):
            if dtype not in DTYPES:
                known = ", ".join(DTYPES)
                raise DamagedFile(
                    f"load: {path!r}: {name} has the dtype {dtype}, plait has {known}"
                )
        memory = np.memmap(path, np.uint8, "c")  # copies a page when it is written to
    # the library has checked that the arrays fill the file's end in this order
    sizes = [prod(shape) * ITEM_BYTES[DTYPES[dtype]] for dtype, shape in types]
    at, found = len(memory) - sum(sizes), {}
    for name, (dtype, shape), size in zip(names, types, sizes):
        found[name] = _array(memory[at : at + size], DTYPES[dtype], shape)
        at += size
    return {name: found[name] for name in sorted(found)}


def _array(memory: np.ndarray, dtype: str, shape: tuple[int, ...]) -> NDArray:
    if dtype == "bool":  # any byte but 0 is true
        return from_numpy((memory != 0).reshape(shape))
    values = memory.view(np.ndarray)
    aligned = values.ctypes.data % ITEM_BYTES[dtype] == 0
    values = (values if aligned else values.copy()).view(NUMPY_DTYPES[dtype]).reshape(shape)
    return from_numpy(values)
