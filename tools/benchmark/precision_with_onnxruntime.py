"""The rows of `plait bench --precision` with ONNX Runtime: float32 and int8, whose weights it
prepares once."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from precision_rows import Product, main

TYPES = {"float32": onnx.TensorProto.FLOAT, "int8": onnx.TensorProto.INT8}


def make(row: Any, dtype: str) -> Any:
    if dtype not in TYPES:
        return None
    rng = np.random.default_rng(0)
    of = lambda *shape: rng.integers(-3, 4, size=shape).astype(dtype)
    taps: dict[str, Any] = {}
    if isinstance(row, Product):
        x, w = of(row.m, row.k), of(row.k, row.n)
        kind = "MatMul" if dtype == "float32" else "MatMulInteger"
    else:
        x = of(1, row.channels, row.size, row.size)
        w = of(row.filters, row.channels, row.kernel, row.kernel)
        taps = {"strides": [row.stride] * 2, "pads": [row.kernel // 2] * 4}
        kind = "Conv" if dtype == "float32" else "ConvInteger"
        if dtype == "int8":  # ONNX Runtime has a kernel for unsigned data alone
            x = x.view("uint8")
    sums = TYPES[dtype] if dtype == "float32" else onnx.TensorProto.INT32
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w"], ["y"], **taps)],
        "row",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info("y", sums, None)],
        [numpy_helper.from_array(w, "w")],
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["OMP_NUM_THREADS"])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})


main(make, lambda: None)
