"""ONNX files as networks of plait."""

from .block import OnnxBlock, load
from .mxnet import get_model_metadata, import_model, import_to_gluon
