"""An exported file in ONNX Runtime, beside the network itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import ndarray as nd
from ....engine.error import MissingPackage, compose
from ....graph.graph import topological
from ....kernels.spec import NUMPY_DTYPES
from ....symbol import Symbol
from ..types import OnnxError
from .inputs import Input, Network

TOLERANCE = {"float16": 1e-2, "bfloat16": 5e-2}  # relative to the largest value; 1e-4 for others
QUANTIZED = ("_contrib_quantize", "_contrib_quantize_v2", "_contrib_quantize_asym")
ON_BYTES = 4 / 127  # of a quantized network: what is near a half is rounded either way


def compare(net: Network, given: Sequence[Input], path: str) -> float:
    """Runs both on random inputs. Returns the largest difference relative to the outputs' largest
    values. Raises OnnxError where they differ, MissingPackage."""
    try:
        import onnxruntime
    except ImportError:
        rule = "onnx: verify=True needs ONNX Runtime"
        raise MissingPackage(compose(rule, fix="pip install onnxruntime")) from None
    rng = np.random.default_rng(0)
    arrays = {x.name: _drawn(rng, x) for x in given}
    want = evaluate(net, arrays)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    taken = {x.name for x in session.get_inputs()}
    got = session.run(None, {k: v for k, v in arrays.items() if k in taken})
    quantized = any(n.op and n.op.name in QUANTIZED for n in topological(net.outputs))
    least = ON_BYTES if quantized else 1e-4
    worst = 0.0
    for output, a, b in zip(session.get_outputs(), want, got):
        worst = max(worst, _difference(output.name, a, np.asarray(b), least))
    logging.info("onnx: %s agrees with ONNX Runtime to %.1e", path, worst)
    return worst


def _drawn(rng: np.random.Generator, x: Input) -> np.ndarray:
    shape = x.sizes(False)
    values = rng.normal(size=shape) if x.dtype.startswith(("float", "bfloat")) else np.zeros(shape)
    return values.astype(NUMPY_DTYPES[x.dtype] if x.dtype != "bfloat16" else np.float32)


def evaluate(net: Network, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The network's outputs, by plait."""
    symbol = Symbol(net.outputs)
    given: dict[str, Any] = {k: nd.array(v, dtype=v.dtype) for k, v in arrays.items()}
    given |= {k: v for k, v in net.params.items() if k in set(net.variables)}
    for name in net.labels:
        shapes = symbol.infer_shape_partial(**{k: tuple(v.shape) for k, v in given.items()})
        given[name] = nd.zeros(dict(zip(symbol.list_arguments(), shapes[0]))[name])
    return [y.asnumpy() for y in symbol.eval(**given)]


def _difference(name: str, a: np.ndarray, b: np.ndarray, least: float = 1e-4) -> float:
    if a.shape != b.shape:
        raise OnnxError(f"onnx: verify: output {name} has shape {b.shape} there, {a.shape} here")
    wide = [np.asarray(x, np.float64) for x in (a, b)]
    scale = max(float(np.max(np.abs(wide[0]), initial=0)), 1e-6)
    found = float(np.max(np.abs(wide[0] - wide[1]), initial=0)) / scale
    if not found <= max(TOLERANCE.get(str(a.dtype), 0.0), least):
        raise OnnxError(
            f"onnx: verify: output {name} differs by {found:.1e} of its largest value, {scale:.3g}"
        )
    return found
