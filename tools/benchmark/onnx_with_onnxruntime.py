"""An ONNX file in ONNX Runtime: see onnx_timing.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import onnxruntime
from onnx_timing import serve


def make(file: str, inputs: dict[str, Any]) -> Callable[[], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


if __name__ == "__main__":
    serve(make)
