"""Inference on ONNX Runtime with the networks that with_torch.py exports.

usage: with_onnxruntime.py WORKLOAD SECONDS
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any

import onnxruntime
import torch
from timing import time_workload

sys.argv.append("eager")
from with_torch import NETS  # noqa: E402


def forward(make: Any) -> Any:
    def made():
        net, x = make()
        file = io.BytesIO()
        torch.onnx.export(net.eval(), (x,), input_names=["x"], dynamo=True, verbose=False).save(
            file
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
        session = onnxruntime.InferenceSession(
            file.getvalue(), options, providers=["CPUExecutionProvider"]
        )
        feed = {session.get_inputs()[0].name: x.numpy()}
        return lambda: session.run(None, feed)

    return made


time_workload({name: forward(make) for name, make in NETS.items()})
