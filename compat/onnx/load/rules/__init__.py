"""A rule for each ONNX operator: (call, *inputs) -> output or outputs."""

from . import (  # noqa: F401
    control,
    index,
    layers,
    pointwise,
    pool,
    quantized,
    random,
    recurrent,
    reduce,
    resize,
    sequence,
    shape,
    signal,
)
