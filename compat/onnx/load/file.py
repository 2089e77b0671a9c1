"""ONNX files: read and checked before anything is computed."""

from __future__ import annotations

import os
from os import PathLike
from typing import Any

from ....engine.error import compose
from ..types import OnnxError, package

SUPPORTED = range(1, 22)  # opsets whose operators are known


def read(path: str | PathLike[str]) -> Any:
    """The ModelProto of a file, with its external data. Raises OnnxError, OSError."""
    package()
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    name = os.fspath(path)
    with open(name, "rb") as file:
        content = file.read()
    model = ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise OnnxError(f"onnx: {name} is no ONNX file, or it is cut short: {error}") from None
    if not model.HasField("graph"):
        raise OnnxError(f"onnx: {name} has no graph")
    _load_external(model, name)
    return model


def opsets(imports: Any) -> dict[str, int]:
    """The version of each domain; "" is ONNX's own. Raises OnnxError."""
    found = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in imports}
    version = found.get("", SUPPORTED[-1])
    if version not in SUPPORTED:
        rule = f"onnx: opset must be {SUPPORTED[0]} to {SUPPORTED[-1]}, the file has {version}"
        raise OnnxError(compose(rule, fix="onnx.version_converter.convert_version(model, 17)"))
    return found


def tensors(graph: Any) -> Any:
    """All TensorProtos of a graph: initializers, attributes, those of inner graphs."""
    stack = [graph]
    while stack:
        found = stack.pop()
        yield from getattr(found, "initializer", ())
        for s in getattr(found, "sparse_initializer", ()):
            yield from (s.values, s.indices)
        for node in found.node:
            for a in node.attribute:
                yield from a.tensors
                if a.HasField("t"):
                    yield a.t
                if a.HasField("g"):
                    stack.append(a.g)
                stack += a.graphs


def _load_external(model: Any, path: str) -> None:
    """Reads tensors whose data is in other files: only in the folder of the model."""
    from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

    folder = os.path.realpath(os.path.dirname(os.path.abspath(path)))
    for part in (model.graph, *model.functions):
        for t in tensors(part):
            if not uses_external_data(t):
                continue
            where = {e.key: e.value for e in t.external_data}
            location = where.get("location", "")
            file = os.path.realpath(os.path.join(folder, location))
            if os.path.commonpath([folder, file]) != folder or not os.path.isfile(file):
                raise OnnxError(
                    f"onnx: the data of {t.name!r} must be in a file below the model's folder, "
                    f"got {location!r}"
                )
            try:
                start, length = int(where.get("offset", 0)), int(where.get("length", 0))
                if start < 0 or length < 0 or start + length > os.path.getsize(file):
                    raise ValueError(f"bytes {start} to {start + length} are not in {location}")
                load_external_data_for_tensor(t, folder)
            except (ValueError, OSError, RuntimeError) as error:
                raise OnnxError(f"onnx: {t.name!r} has no data: {error}") from None
