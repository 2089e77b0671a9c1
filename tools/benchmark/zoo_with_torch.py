"""Inference with a network of plait's zoo on torch, or on ONNX Runtime.

usage: zoo_with_torch.py NETWORK SECONDS torch|onnxruntime BATCH SIZE SYMBOL.json
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import torch
from symbol_with_torch import network
from timing import time_workload


def make() -> Any:
    batch, size = map(int, sys.argv[4:6])
    x = torch.rand(batch, 3, size, size)
    net = network(Path(sys.argv[6]).read_text(), x)
    if sys.argv[3] == "torch":
        torch.set_grad_enabled(False)
        return lambda: net(x)
    import onnxruntime

    file = io.BytesIO()
    torch.onnx.export(net, (x,), input_names=["x"], dynamo=True, verbose=False).save(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    session = onnxruntime.InferenceSession(
        file.getvalue(), options, providers=["CPUExecutionProvider"]
    )
    feed = {"x": x.numpy()}
    return lambda: session.run(None, feed)


time_workload({sys.argv[1]: make})
