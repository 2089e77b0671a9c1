"""plait's server with ONNX Runtime in it: the same application, another model. It runs in the
environment of ONNX Runtime; the last argument is a folder of packages that this may lack."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

FOLDER, QUEUE, BATCH, PACKAGES = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
sys.path += PACKAGES

from plait.tools import serve  # noqa: E402
from plait.tools.serve.app import App, Limits  # noqa: E402
from plait.tools.serve.protocol import Tensor  # noqa: E402

TYPES = {"tensor(float)": "FP32"}


class Session:
    """An ONNX file in ONNX Runtime: a Model of plait's server."""

    platform = "onnxruntime_onnx"

    def __init__(self, file: Path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(
            str(file), options, providers=["CPUExecutionProvider"]
        )
        self.inputs = [self._tensor(i) for i in self.session.get_inputs()]
        self.outputs = [Tensor(o.name, None, None) for o in self.session.get_outputs()]

    @staticmethod
    def _tensor(found: Any) -> Tensor:
        shape = tuple(n if isinstance(n, int) else -1 for n in found.shape)
        return Tensor(found.name, TYPES[found.type], shape)

    def run(self, arrays: Any) -> list[np.ndarray]:
        """The outputs."""
        return self.session.run(None, dict(zip((i.name for i in self.inputs), arrays)))


def load(folder: Path) -> Session:
    """The model of a folder."""
    return Session(next(folder.glob("*.onnx")))


if __name__ == "__main__":
    limits = Limits(rows=BATCH, queue=QUEUE)
    sys.exit(serve.serve(lambda told: App(FOLDER, limits, load, told), "127.0.0.1", 0, 1))
