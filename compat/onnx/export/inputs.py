"""What the caller of an export gives: a network, its parameters, the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from typing import Any, NamedTuple

from .... import ndarray as nd
from ....engine.error import InvalidValue, MXNetError
from ....graph.effects import variables_of
from ....graph.graph import Node, Value, topological
from ....graph.inference import Inference, typed_graph
from ....kernels.record import Type, dtype_name
from ....kernels.traits import LossLayer
from ....ndarray import NDArray, serialization
from ....symbol import Symbol
from ....symbol import load as load_symbol
from ..types import OnnxError

TRIALS = (5, 32, 224)  # sizes to infer for, where the caller gives none


class Varying:
    """A size that varies: the graph is written for `size`, and for `other` to compare."""

    def __init__(self, name: str, size: int, other: int):
        self.name, self.size, self.other = name, size, other

    def __repr__(self):
        return self.name


class Input(NamedTuple):
    """An input of the network: sizes are numbers or Varying."""

    name: str
    shape: tuple[Any, ...]
    dtype: str

    def sizes(self, other: bool) -> tuple[int, ...]:
        return tuple(
            (n.other if other else n.size) if isinstance(n, Varying) else n for n in self.shape
        )


class Network(NamedTuple):
    """Outputs of a graph, its parameters by name, its inputs in order, labels of its losses."""

    outputs: list[Value]
    params: dict[str, NDArray]
    inputs: list[str]
    labels: set[str]

    @property
    def variables(self) -> list[str]:
        return [n.name for n in topological(self.outputs) if n.op is None]

    def typed(self, given: Sequence[Input], other: bool) -> list[Value]:
        """The graph with types, for one choice of the sizes that vary. Raises OperatorError."""
        shapes: dict[Node, tuple] = {}
        dtypes: dict[Node, str] = {}
        by_name = {x.name: x for x in given}
        for node in topological(self.outputs):
            if node.op is not None:
                continue
            if node.name in by_name:
                shapes[node] = by_name[node.name].sizes(other)
                dtypes[node] = by_name[node.name].dtype
            elif node.name in self.params:
                shapes[node] = tuple(self.params[node.name].shape)
                dtypes[node] = dtype_name(self.params[node.name].dtype)
        found = Inference(self.outputs, shapes, dtypes)
        types: dict[Node, Type] = {}
        for node in found.order:
            if node.op is None:
                t = found.type(Value(node))
                if t is None:
                    raise OnnxError(f"onnx: the shape of {node.name!r} is not known")
                types[node] = t
        return typed_graph(self.outputs, types, False)


def network(sym: Any, params: Any) -> Network:
    """The network of a call of export_model. Raises OnnxError, and what loading raises."""
    if isinstance(sym, (str, PathLike)):
        sym = load_symbol(fspath(sym))
    if not isinstance(sym, Symbol):
        raise InvalidValue(f"onnx: sym must be a Symbol or a file, got {type(sym).__name__}")
    arrays = _arrays(params)
    outputs = list(sym._outputs)
    arguments, states = variables_of(outputs)
    missing = [n.name for n in states if n.name not in arrays]
    if missing:
        raise OnnxError(f"onnx: params must have the auxiliary states {', '.join(missing)}")
    labels = _labels(outputs, arrays)
    names = [n.name for n in arguments if n.name not in arrays and n.name not in labels]
    return Network(outputs, arrays, names, labels)


def _arrays(params: Any) -> dict[str, NDArray]:
    if isinstance(params, (str, PathLike)):
        params = serialization.load(params)
    if isinstance(params, (list, tuple)) and all(isinstance(p, dict) for p in params):
        params = {k: v for p in params for k, v in p.items()}
    if not isinstance(params, dict):
        raise InvalidValue(
            "onnx: params must be a file, a dict of arrays or [arguments, auxiliary states], got "
            f"{type(params).__name__}"
        )
    found = {k.split(":", 1)[-1] if k[:4] in ("arg:", "aux:") else k: v for k, v in params.items()}
    return {
        k: v if isinstance(v, NDArray) else nd.array(v, dtype=v.dtype) for k, v in found.items()
    }


def _labels(outputs: Sequence[Value], params: dict[str, NDArray]) -> set[str]:
    """Variables that only losses read, beside what they predict from."""
    read: dict[str, bool] = {}
    for node in topological(outputs):
        for i, v in enumerate(node.inputs):
            if v.node.op is None and v.node.name not in params:
                of_loss = i > 0 and node.operation.has(LossLayer)
                read[v.node.name] = read.get(v.node.name, True) and of_loss
    return {name for name, only in read.items() if only}


def declared(
    net: Network, in_shapes: Any, in_types: Any, dynamic_shapes: Any, dynamic: bool
) -> list[Input]:
    """The network's inputs as the caller describes them. Raises InvalidValue."""
    names = net.inputs
    if isinstance(in_shapes, dict):
        if set(in_shapes) != set(names):
            raise InvalidValue(
                f"onnx: in_shapes must name the inputs {', '.join(names)}, got {list(in_shapes)}"
            )
        names, in_shapes = list(in_shapes), list(in_shapes.values())
    shapes = list(in_shapes or ())
    if in_shapes is None and dynamic_shapes is not None:
        shapes = list(dynamic_shapes)
    if shapes and not isinstance(shapes[0], (tuple, list)):
        shapes = [tuple(shapes)]  # of one input
    if len(shapes) != len(names):
        raise InvalidValue(
            f"onnx: in_shapes must have a shape for each of the inputs {', '.join(names)}, got "
            f"{len(shapes)} shapes"
        )
    types = list(in_types) if isinstance(in_types, (list, tuple)) else [in_types] * len(names)
    if len(types) != len(names):
        raise InvalidValue(f"onnx: in_types must have {len(names)} dtypes, got {len(types)}")
    varies = list(dynamic_shapes or [(None,) * len(s) for s in shapes]) if dynamic else shapes
    if len(varies) != len(names) or any(len(a) != len(b) for a, b in zip(varies, shapes)):
        raise InvalidValue("onnx: dynamic_input_shapes must have as many sizes as in_shapes")
    known: dict[str, Varying] = {}
    found = []
    for name, shape, marks, dtype in zip(names, shapes, varies, types):
        sizes: list[int | Varying] = []
        for axis, (n, mark) in enumerate(zip(shape, marks)):
            size = n if isinstance(n, int) and n >= 0 else None
            if isinstance(mark, int) and mark >= 0 and size is not None:
                sizes.append(size)
                continue
            sizes.append(_varying(known, mark if isinstance(mark, str) else n, axis, size, name))
        found.append(Input(name, tuple(sizes), dtype_name(dtype)))
    return _settled(net, found, known, dynamic and dynamic_shapes is None)


def _varying(known: dict[str, Varying], mark: Any, axis: int, size: int | None, of: str) -> Varying:
    """The size of this name, or the unnamed one of this axis that is as large."""
    if not isinstance(mark, str):
        mark = ("batch" if axis == 0 else f"axis{axis}") + (f"_{size}" if size and axis else "")
    if mark not in known:
        known[mark] = Varying(mark, size or 0, 0)
    elif size and known[mark].size not in (0, size):
        raise InvalidValue(
            f"onnx: sizes named {mark!r} must be equal, got {known[mark].size} and {size} of {of}"
        )
    return known[mark]


def _settled(
    net: Network, given: list[Input], known: dict[str, Varying], fixes: bool
) -> list[Input]:
    """Chooses for each size that varies two sizes that the network takes, neither of them 1. A size
    that no other will do for is fixed, if `fixes`; else what inference raises is raised."""
    last: MXNetError | None = None
    given_sizes = {v.name: v.size for v in known.values()}
    for trial in TRIALS:
        for i, v in enumerate(known.values()):
            size = given_sizes[v.name]
            v.size = v.other = size if size > 1 else trial + i
        try:
            net.typed(given, False)
            break
        except MXNetError as error:
            last = error
    else:
        assert last is not None
        raise last
    fixed = {}
    for i, v in enumerate(known.values()):
        for more in (33 + 2 * i, 32 * (i + 1), 64 * (i + 1)):
            v.other = v.size + more
            try:
                net.typed(given, True)
                break
            except MXNetError as error:
                last, v.other = error, v.size
        else:
            if not fixes:
                raise OnnxError(f"onnx: the size {v.name!r} cannot vary: {last}") from None
            fixed[v.name] = v.size
    return [
        x._replace(
            shape=tuple(
                n.size if isinstance(n, Varying) and n.name in fixed else n for n in x.shape
            )
        )
        for x in given
    ]
