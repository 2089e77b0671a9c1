"""The V2 inference protocol: a request's bytes as arrays, and arrays as an answer's bytes.

Bytes are JSON, or JSON and after it the tensors' memory (the extension "binary tensor data"; the
header Inference-Header-Content-Length says how long the JSON is).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import orjson

from ...engine.error import MXNetError
from ...ndarray import codec
from ..model_folder import fit
from .refused import Refused

DATATYPES = {
    "BOOL": np.dtype(bool),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
NAMES = {dtype: name for name, dtype in DATATYPES.items()}
EXTENSIONS = ("binary_tensor_data", "classification")
MOST_AXES = 32
MOST_PIXELS = 1 << 26  # of an encoded picture
LIKELIEST = 5  # classes that an encoded picture gets


class Tensor(NamedTuple):
    """An input or output of a model. datatype, shape: None where any is taken; a size of -1
    varies. classes, resize: as model.json tells them."""

    name: str
    datatype: str | None
    shape: tuple[int, ...] | None
    classes: tuple[str, ...] = ()
    resize: int = 0

    def described(self) -> dict[str, Any]:
        """As the metadata of a model show it."""
        shape = [-1] if self.shape is None else list(self.shape)
        return {"name": self.name, "datatype": self.datatype or "FP32", "shape": shape}


class Wanted(NamedTuple):
    """An output as a request asks for it. place: among the model's. best: so many classes instead
    of all numbers, 0: the numbers."""

    place: int
    binary: bool
    best: int


class Request(NamedTuple):
    """What a request asks. arrays: in the order of the model's inputs."""

    id: str | None
    arrays: list[np.ndarray]
    outputs: list[Wanted]


# ---- requests ------------------------------------------------------------------------------------


def read(
    body: bytes,
    json_bytes: int | None,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    most_elements: int,
) -> Request:
    """The request in a body. json_bytes: how many of them are JSON; None: all; 0: none, the body is
    the only input's memory. Raises Refused."""
    if json_bytes == 0:
        return _raw(body, inputs, outputs, most_elements)
    if json_bytes is not None and json_bytes > len(body):
        raise Refused(
            400,
            f"Inference-Header-Content-Length is {json_bytes}, but the body has {len(body)} bytes",
        )
    binary = memoryview(body)[json_bytes:] if json_bytes is not None else memoryview(b"")
    try:
        found = orjson.loads(memoryview(body)[:json_bytes])
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"the body is no JSON: {error}") from None
    found = _object(found, "the body")
    parameters = _object(found.get("parameters", {}), "parameters")
    name = found.get("id")
    if name is not None and not isinstance(name, str):
        raise Refused(400, f"id must be a string, got {_shown(name)}")
    arrays, used = _inputs(found, binary, inputs, most_elements)
    if used != len(binary):
        raise Refused(
            400,
            f"after the JSON there are {len(binary)} bytes, but the inputs' binary_data_size is"
            f" {used} together",
        )
    wanted = _outputs(found.get("outputs"), outputs, parameters.get("binary_data_output") is True)
    return Request(name, arrays, wanted)


def read_picture(body: bytes, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Request:
    """The request that an encoded picture is: for the likeliest classes, or for all numbers where
    those have no names. Raises Refused."""
    picture = inputs[0]
    if len(inputs) > 1 or not picture.resize or not picture.shape or picture.shape[0] > 1:
        raise Refused(
            415, "the model takes no encoded pictures\n  fix: send numbers, as application/json"
        )
    try:
        height, width = codec.size(body) or (0, 0)
        if height * width > MOST_PIXELS:
            raise Refused(
                413, f"a picture of {height} x {width} pixels, the server takes {MOST_PIXELS}"
            )
        found = codec.decode(body, color=int(picture.shape[-1] == 3), strict=True)
    except MXNetError as error:
        raise Refused(422, str(error)) from None
    array = fit(found, picture.shape[1:], picture.resize)[None]
    wanted = [Wanted(i, False, LIKELIEST * bool(o.classes)) for i, o in enumerate(outputs)]
    return Request(None, [array], wanted)


def _raw(body, inputs, outputs, most_elements) -> Request:
    declared = inputs[0]
    if len(inputs) != 1 or declared.shape is None or declared.datatype is None:
        raise Refused(
            422, "a body without JSON needs a model with one input whose shape and type are known"
        )
    dtype = DATATYPES[declared.datatype]
    known = [n for n in declared.shape if n >= 0]
    row = prod(known) * dtype.itemsize
    if len(known) < len(declared.shape) - 1 or row == 0 or len(body) % row or not body:
        raise Refused(
            422,
            f"a body of {len(body)} bytes is no {declared.datatype} array of shape"
            f" {list(declared.shape)}",
        )
    shape = [n if n >= 0 else len(body) // row for n in declared.shape]
    if prod(shape) * dtype.itemsize != len(body):
        raise Refused(422, f"shape {shape} takes {prod(shape) * dtype.itemsize} bytes")
    _few(prod(shape), most_elements)
    array = np.frombuffer(body, dtype).reshape(shape)
    return Request(None, [array], [Wanted(i, True, 0) for i in range(len(outputs))])


def _inputs(found, binary, declared, most_elements) -> tuple[list[np.ndarray], int]:
    given = found.get("inputs")
    if not isinstance(given, list) or not given:
        raise Refused(400, f"inputs must be a list of tensors, got {_shown(given)}")
    names = [d.name for d in declared]
    arrays: dict[str, np.ndarray] = {}
    used = elements = 0
    for i, tensor in enumerate(given):
        tensor = _object(tensor, f"inputs[{i}]")
        name = tensor.get("name")
        if not isinstance(name, str):
            raise Refused(400, f"inputs[{i}].name must be a string, got {_shown(name)}")
        if name not in names:
            raise Refused(422, f"the model has no input {name!r}\n  fix: its inputs are {names}")
        if name in arrays:
            raise Refused(400, f"input {name!r} is given twice")
        at = f"input {name!r}"
        shape, dtype = _type(tensor, declared[names.index(name)], at)
        elements += prod(shape)
        _few(elements, most_elements)
        parameters = _object(tensor.get("parameters", {}), f"{at}: parameters")
        size = parameters.get("binary_data_size")
        if size is None:
            arrays[name] = _from_json(tensor.get("data"), shape, dtype, at)
            continue
        if "data" in tensor:
            raise Refused(400, f"{at} has both data and binary_data_size\n  fix: give one")
        if type(size) is not int or size != prod(shape) * dtype.itemsize:
            raise Refused(
                400,
                f"{at}: binary_data_size is {_shown(size)}, but shape {list(shape)} of"
                f" {NAMES[dtype]} takes {prod(shape) * dtype.itemsize} bytes",
            )
        if used + size > len(binary):
            raise Refused(
                400,
                f"{at}: the body ends after {len(binary)} bytes of binary data, {used + size} are"
                " needed\n  fix: Inference-Header-Content-Length must be the length of the JSON",
            )
        arrays[name] = np.frombuffer(binary[used : used + size], dtype).reshape(shape)
        used += size
    if missing := [n for n in names if n not in arrays]:
        raise Refused(422, f"inputs {missing} are missing\n  fix: the model's inputs are {names}")
    return [arrays[n] for n in names], used


def _type(tensor, declared, at) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an input, which the model takes."""
    shape, datatype = tensor.get("shape"), tensor.get("datatype")
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise Refused(400, f"{at}: shape must be a list of sizes, got {_shown(shape)}")
    if not isinstance(datatype, str):
        raise Refused(400, f"{at}: datatype must be a string, got {_shown(datatype)}")
    if datatype not in DATATYPES:
        raise Refused(422, f"{at}: no datatype {_shown(datatype)}\n  fix: one of {[*DATATYPES]}")
    if declared.datatype is not None and datatype != declared.datatype:
        raise Refused(422, f"{at}: the model takes {declared.datatype}, got {datatype}")
    if len(shape) > MOST_AXES or 0 in shape:
        raise Refused(422, f"{at}: shape {_shown(shape)} has no elements, or too many axes")
    if declared.shape is not None and (
        len(shape) != len(declared.shape)
        or any(d not in (-1, n) for n, d in zip(shape, declared.shape))
    ):
        raise Refused(
            422,
            f"{at}: the model takes shape {list(declared.shape)}, where -1 is any size, got"
            f" {_shown(shape)}",
        )
    return tuple(shape), DATATYPES[datatype]


def _from_json(data, shape, dtype, at) -> np.ndarray:
    """Numbers of JSON, nested or flat, as an array; none is rounded to an integer."""
    if not isinstance(data, list):
        raise Refused(400, f"{at}: data must be a list, got {_shown(data)}")
    try:
        array = np.array(data)
        if array.dtype.kind == "f" and dtype.itemsize == 8 and dtype.kind in "ui":
            exact = np.array(data, object)  # above 2**63 NumPy takes integers for floats
            array = exact.astype(dtype) if {type(n) for n in exact.flat} == {int} else array
    except (ValueError, OverflowError, RecursionError):
        raise Refused(400, f"{at}: data must be numbers, in lists of equal lengths") from None
    if array.size != prod(shape):
        raise Refused(
            400, f"{at}: shape {list(shape)} has {prod(shape)} elements, data has {array.size}"
        )
    takes = {"b": "b", "u": "iu", "i": "iu", "f": "iuf"}[dtype.kind]
    if array.dtype.kind not in takes:
        raise Refused(
            400, f"{at}: data must be {'true or false' if takes == 'b' else 'numbers'} of"
            f" {NAMES[dtype]}",
        )  # fmt: skip
    if dtype.kind in "ui":
        limits = np.iinfo(dtype)
        fits = int(array.min()) >= limits.min and int(array.max()) <= limits.max
        made = array.astype(dtype)
    else:
        with np.errstate(over="ignore"):
            made = array.astype(dtype)
        fits = dtype.kind == "b" or bool(np.isfinite(made).all())
    if not fits:
        raise Refused(422, f"{at}: a number of data does not fit into {NAMES[dtype]}")
    return made.reshape(shape)


def _outputs(given, declared, binary) -> list[Wanted]:
    if given is None:
        return [Wanted(i, binary, 0) for i in range(len(declared))]
    if not isinstance(given, list):
        raise Refused(400, f"outputs must be a list, got {_shown(given)}")
    names, wanted = [d.name for d in declared], {}
    for i, output in enumerate(given):
        output = _object(output, f"outputs[{i}]")
        name = output.get("name")
        if not isinstance(name, str):
            raise Refused(400, f"outputs[{i}].name must be a string, got {_shown(name)}")
        if name not in names:
            raise Refused(422, f"the model has no output {name!r}\n  fix: its outputs are {names}")
        if name in wanted:
            raise Refused(400, f"output {name!r} is asked for twice")
        parameters = _object(output.get("parameters", {}), f"output {name!r}: parameters")
        best = parameters.get("classification", 0)
        if type(best) is not int or best < 0:
            raise Refused(
                400, f"output {name!r}: classification must be a number of classes,"
                f" got {_shown(best)}",
            )  # fmt: skip
        as_binary = parameters.get("binary_data", binary)
        if not isinstance(as_binary, bool):
            raise Refused(
                400, f"output {name!r}: binary_data is true or false, got {_shown(as_binary)}"
            )
        wanted[name] = Wanted(names.index(name), as_binary, best)
    return list(wanted.values())


def _few(elements: int, most: int) -> None:
    if elements > most:
        raise Refused(413, f"the inputs have {elements} elements, the server takes {most}")


def _object(value, what) -> dict:
    if not isinstance(value, dict):
        raise Refused(400, f"{what} must be an object, got {_shown(value)}")
    return value


def _shown(value) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ---- answers -------------------------------------------------------------------------------------


def write(
    request: Request, results: Sequence[np.ndarray], model: str, version: str,
    outputs: Sequence[Tensor],
) -> tuple[bytes, int | None]:  # fmt: skip
    """(an answer's body, the bytes of it that are JSON where others follow)."""
    tensors, memory = [], []
    for wanted in request.outputs:
        declared, array = outputs[wanted.place], results[wanted.place]
        if wanted.best:
            array = _best(array, wanted.best, declared.classes)
        datatype = "BYTES" if wanted.best else NAMES[array.dtype.newbyteorder("<")]
        tensor: dict[str, Any] = {"name": declared.name, "datatype": datatype}
        tensor["shape"] = list(array.shape)
        if wanted.binary:
            memory.append(_strings(array) if wanted.best else array.tobytes())
            tensor["parameters"] = {"binary_data_size": len(memory[-1])}
        elif array.dtype.kind == "f" and array.dtype.itemsize > 2:
            tensor["data"] = np.ascontiguousarray(array).reshape(-1)
        else:
            tensor["data"] = array.reshape(-1).tolist()
        tensors.append(tensor)
    answer: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.id is not None:
        answer["id"] = request.id
    answer["outputs"] = tensors
    text = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return (b"".join([text, *memory]), len(text)) if memory else (text, None)


def _best(array: np.ndarray, n: int, classes: Sequence[str]) -> np.ndarray:
    """The n highest entries along the last axis as texts "value:index:class"; without the class
    where it has no name."""
    if array.ndim == 0:
        raise Refused(422, "an output without axes has no classes\n  fix: ask for its number")
    n = min(n, array.shape[-1])
    order = np.argsort(-array.astype(np.float64), axis=-1, kind="stable")[..., :n]
    values = np.take_along_axis(array, order, -1)
    texts = [
        f"{v:f}:{i}" + (f":{classes[i]}" if i < len(classes) else "")
        for v, i in zip(values.reshape(-1).tolist(), order.reshape(-1).tolist())
    ]
    return np.array(texts, dtype=object).reshape(order.shape)


def _strings(array: np.ndarray) -> bytes:
    """Texts as the protocol lays them out: of each its length in 4 bytes, then its bytes."""
    encoded = [text.encode() for text in array.reshape(-1)]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)
