"""mx.contrib: mixed precision, quantization, ONNX, text, TensorBoard, data iterators, old autograd,
namespaces."""

from typing import TYPE_CHECKING

from ...engine import missing
from ...engine.lazy import submodule

if TYPE_CHECKING:
    from ...data import text
    from ...gluon import amp, compress, quantization
    from ...training import svrg_optimization
    from .. import onnx
    from . import autograd, io, ndarray, symbol, tensorboard
    from . import ndarray as nd
    from . import symbol as sym
else:

    def __getattr__(name: str):
        found = submodule(__name__, name)
        if found is None:
            raise missing.attribute("contrib", name)
        return found

    def __dir__():
        names = "amp autograd compress io nd ndarray onnx quantization"
        names += " svrg_optimization sym symbol tensorboard text"
        return names.split()
