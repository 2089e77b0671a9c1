"""What reading and writing ONNX share: the package onnx, dtypes, tensors, attributes, the error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...engine.error import MissingPackage, MXNetError, compose
from ...kernels.spec import NUMPY_DTYPES

OPSETS = range(13, 22)  # that export writes
DEFAULT_OPSET = 17
CODES = {  # dtype -> TensorProto.DataType
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}
DTYPES = {code: name for name, code in CODES.items()}


class OnnxError(MXNetError, ValueError):
    """A network that cannot be written as ONNX, or a file that cannot be read."""


def package() -> Any:
    """The package onnx. Raises MissingPackage."""
    try:
        import onnx
    except ImportError:
        rule = "onnx: reading and writing ONNX files needs the package onnx"
        raise MissingPackage(compose(rule, fix="pip install 'plait[onnx]'")) from None
    return onnx


def tensor(name: str, x: np.ndarray) -> Any:
    """A TensorProto of a NumPy array; bfloat16 is kernels.spec.BFLOAT16, as asnumpy() gives it."""
    onnx = package()
    if x.dtype == NUMPY_DTYPES["bfloat16"]:
        bits = np.ascontiguousarray(x).view(np.uint16)
        return onnx.helper.make_tensor(name, CODES["bfloat16"], x.shape, bits.tobytes(), raw=True)
    return onnx.numpy_helper.from_array(np.ascontiguousarray(x).reshape(x.shape), name)


def array(found: Any, base_dir: str = "") -> np.ndarray:
    """The NumPy array of a TensorProto; base_dir: where its external data is."""
    onnx = package()
    x = onnx.numpy_helper.to_array(found, base_dir)
    if found.data_type == CODES["bfloat16"]:
        return x.view(np.uint16).view(NUMPY_DTYPES["bfloat16"])
    return x


def attributes(node: Any) -> dict[str, Any]:
    """The attributes of a NodeProto as Python values: texts as str, tensors as NumPy arrays,
    graphs as GraphProto."""
    onnx = package()

    def value(a: Any) -> Any:
        found = onnx.helper.get_attribute_value(a)
        if a.type == onnx.AttributeProto.TENSOR:
            return array(found)
        if a.type == onnx.AttributeProto.STRING:
            return found.decode()
        if a.type == onnx.AttributeProto.STRINGS:
            return [text.decode() for text in found]
        return list(found) if a.type in _LISTS else found

    return {a.name: value(a) for a in node.attribute}


_LISTS = (6, 7, 9, 10)  # FLOATS, INTS, TENSORS, GRAPHS
