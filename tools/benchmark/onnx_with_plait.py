"""An ONNX file in plait: see onnx_timing.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import plait as mx
from onnx_timing import serve


def make(file: str, inputs: dict[str, Any]) -> Callable[[], Any]:
    net = mx.onnx.load(file)
    given = [inputs[i.name] for i in net.inputs]

    def call() -> Any:
        found = net(*[mx.np.array(x, dtype=x.dtype) for x in given])
        return [x.asnumpy() for x in (found if isinstance(found, list) else [found])]

    call()
    if not net._dynamic:
        net.freeze()
        call()
    return call


if __name__ == "__main__":
    serve(make)
