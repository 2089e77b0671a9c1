"""mx.onnx: networks as ONNX files (export_model), ONNX files as networks (load). MXNet has it as
mx.contrib.onnx too.

Needs the package onnx: pip install 'plait[onnx]'; asked for by the first call, not by the import.
"""

from .export import export_model, get_operator_support
from .load import OnnxBlock, get_model_metadata, import_model, import_to_gluon, load
from .types import DEFAULT_OPSET, OnnxError

__all__ = [
    "OnnxBlock",
    "OnnxError",
    "export_model",
    "get_model_metadata",
    "get_operator_support",
    "import_model",
    "import_to_gluon",
    "load",
]
