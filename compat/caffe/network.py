"""A Caffe network while it becomes a Symbol: its layers in order, the Symbols of its blobs, and the
arrays of its parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import symbol
from ...engine.error import compose, did_you_mean
from ...symbol import Symbol
from .schema import CaffeError, messages

F: Any = symbol  # its functions take inputs in sequences, too

V1_NAMES = {"softmaxloss": "softmaxwithloss"}
Convert = Callable[["Network", Any, list[Symbol]], Symbol | list[Symbol] | None]
LAYERS: dict[str, Convert] = {}  # by type, in lower case


def layer(*types: str) -> Callable[[Convert], Convert]:
    """Registers what converts layers of these types: (network, layer, inputs) -> its tops."""

    def register(convert: Convert) -> Convert:
        for name in types:
            LAYERS[name.lower()] = convert
        return convert

    return register


class Blobs(list):
    """The bottoms or tops of a layer, of which a file may have too few."""

    def __init__(self, layer: str, what: str, found: Iterable[Any]):
        super().__init__(found)
        self._layer, self._what = layer, what

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, int) and i >= len(self):
            rule = f"caffe: {self._layer} needs {self._what} {i + 1}, it has {len(self)}"
            raise CaffeError(rule)
        return super().__getitem__(i)


class Entry(NamedTuple):
    """A layer of either version. kind: its type in lower case."""

    name: str
    kind: str
    proto: Any
    bottoms: list[str]
    tops: list[str]


class Normalized(NamedTuple):
    """A BatchNorm that a Scale may complete."""

    entry: Entry
    data: Symbol
    attrs: dict[str, Any]


def entries(net: Any, what: str) -> list[Entry]:
    """The layers of a NetParameter that run in the phase TEST."""
    found = []
    if net.layer and net.layers:
        raise CaffeError(f"caffe: {what} has layers of both versions")
    for proto in net.layer or net.layers:
        if not net.layer and proto.HasField("layer"):
            rule = f"caffe: {what} is in Caffe's first format"
            raise CaffeError(compose(rule, fix="Caffe's upgrade_net_proto_text and _binary"))
        if not _runs(proto):
            continue
        kind = proto.type
        if not all(isinstance(t, str) for t in (proto.name, *proto.bottom, *proto.top)):
            raise CaffeError(f"caffe: {what} has a name that is no text: {proto.name!r}")
        if isinstance(kind, bytes):
            raise CaffeError(f"caffe: {proto.name} of {what} has the type {kind!r}")
        if not isinstance(kind, str):
            kind = messages()["V1Types"].V1Type.Name(kind).replace("_", "")
        kind = V1_NAMES.get(kind.lower(), kind.lower())
        bottoms, tops = (
            Blobs(proto.name, "bottom", proto.bottom),
            Blobs(proto.name, "top", proto.top),
        )
        found.append(Entry(proto.name, kind, proto, bottoms, tops))
    return found


def _runs(proto: Any) -> bool:
    """In the phase TEST, at level 0, without stages."""

    def meets(rule: Any) -> bool:
        phase = not rule.HasField("phase") or rule.phase == 1
        level = rule.min_level <= 0 and (not rule.HasField("max_level") or rule.max_level >= 0)
        return phase and level and not rule.stage

    if proto.include:
        return any(meets(rule) for rule in proto.include)
    return not any(meets(rule) for rule in proto.exclude)


def array_of(blob: Any, what: str) -> np.ndarray:
    """A BlobProto's array, float32. Raises CaffeError."""
    legacy = (blob.num, blob.channels, blob.height, blob.width)
    shape = tuple(blob.shape.dim) if blob.HasField("shape") else legacy
    values = np.array(blob.data or blob.double_data, np.float32)
    size = 1
    for n in shape:
        size *= n
    if min(shape, default=0) < 0 or size != values.size:
        raise CaffeError(f"caffe: {what} has the shape {shape} and {values.size} values")
    return values.reshape(shape)


class Network:
    """symbols: of blobs. params: arrays by argument name; aux: of running statistics. constants:
    blobs whose values are known, prior boxes."""

    def __init__(self, layers: Sequence[Entry], weights: Sequence[Entry], rgb: bool):
        self.layers, self.rgb = list(layers), rgb
        self.weights = {e.name: e for e in weights}
        self.symbols: dict[str, Symbol] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.params: dict[str, np.ndarray] = {}
        self.aux: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.normalized: dict[str, Normalized] = {}
        self._uses = _uses(layers)
        self._swaps: set[str] = set()  # inputs whose first convolution takes RGB

    # ---- what layers ask -------------------------------------------------------------------------

    def name(self, entry: Entry) -> str:
        return entry.name.replace("-", "_").replace("/", "_")

    def blobs(self, entry: Entry) -> list[np.ndarray]:
        """The arrays of a layer: of the caffemodel, else of the prototxt."""
        source = self.weights.get(entry.name, entry)
        made = [array_of(b, f"blob {i} of {entry.name}") for i, b in enumerate(source.proto.blobs)]
        if not made and self.weights:
            near = did_you_mean(entry.name, self.weights)
            raise CaffeError(compose(f"caffe: the model has no blobs for {entry.name}", fix=near))
        return made

    def variable(self, entry: Entry, kind: str, value: np.ndarray | None, **attrs: Any) -> Symbol:
        """A parameter of a layer. value: None where there is no model."""
        name = f"{self.name(entry)}_{kind}"
        if value is not None:
            self.params[name] = np.ascontiguousarray(value, np.float32)
        return F.var(name, **attrs)

    def shape(self, entry: Entry, symbol: Symbol) -> tuple[int, ...]:
        """The shape of a blob. Raises CaffeError where the inputs' shapes are not known."""
        wanted = set(symbol.list_inputs())
        given = {name: s for name, s in self.inputs.items() if name in wanted and s}
        given |= {n: a.shape for n, a in self.params.items() if n in wanted}
        _, found, _ = symbol.infer_shape_partial(**given)
        if not found or found[0] is None or 0 in found[0] or not found[0]:
            rule = f"caffe: {entry.name} needs the shape of its input"
            raise CaffeError(compose(rule, fix="input_shape { dim: ... } in the prototxt"))
        return found[0]

    def used_once(self, entry: Entry) -> bool:
        """Does one layer read the first top of this one?"""
        return self._uses[id(entry)] == 1

    def swaps(self, data: Symbol) -> bool:
        """Shall a convolution of this blob take its channels in reverse?"""
        return self.rgb and data.name in self._swaps

    # ---- the conversion --------------------------------------------------------------------------

    def convert(self) -> Symbol:
        """The outputs: blobs that no layer reads. Raises CaffeError."""
        for e in self.layers:
            convert = LAYERS.get(e.kind)
            if convert is None:
                known = f"known are {', '.join(sorted(LAYERS))}"
                fix = did_you_mean(e.kind, LAYERS) or known
                kind = e.proto.type if isinstance(e.proto.type, str) else e.kind
                raise CaffeError(compose(f"caffe: {e.name} is a {kind} layer", fix=fix))
            bottoms = Blobs(e.name, "bottom", [self._blob(e, b) for b in e.bottoms])
            tops = convert(self, e, bottoms)
            if tops is None:
                continue
            tops = tops if isinstance(tops, list) else [tops]
            self.symbols.update(zip(e.tops, tops))
        read = {b for e in self.layers for b in e.bottoms if b not in e.tops}
        made = [t for e in self.layers for t in e.tops if t in self.symbols]
        ends = [t for t in dict.fromkeys(made) if t not in read]
        if not ends:
            raise CaffeError("caffe: the network has no output")
        outputs = [self.symbols[t] for t in ends]
        return outputs[0] if len(outputs) == 1 else F.Group(outputs)

    def add_input(self, name: str, shape: Sequence[int]) -> Symbol:
        """An input; its channels come in reverse where the network shall take RGB."""
        self.inputs[name] = tuple(shape)
        data = F.var(name)
        if self.rgb and (len(shape) < 2 or shape[1] in (3, 4)):
            readers = [e for e in self.layers if name in e.bottoms]
            if all(
                e.kind == "convolution" and e.proto.convolution_param.group == 1 for e in readers
            ):
                self._swaps.add(name)
            else:
                first = F.reverse(F.slice_axis(data, axis=1, begin=0, end=3), axis=1)
                rest = F.slice_axis(data, axis=1, begin=3, end=None)
                four = len(shape) > 1 and shape[1] == 4
                data = F.concat(first, rest, dim=1) if four else first
        self.symbols[name] = data
        return data

    def _blob(self, entry: Entry, name: str) -> Symbol:
        if name not in self.symbols and name in self.constants:
            self.symbols[name] = self.variable(
                Entry(name, "", None, [], []), "constant", self.constants[name]
            )
        if name not in self.symbols:
            near = did_you_mean(name, self.symbols)
            raise CaffeError(
                compose(f"caffe: {entry.name} reads {name!r}, which no layer makes", fix=near)
            )
        return self.symbols[name]


def _uses(layers: Sequence[Entry]) -> Counter:
    """How many layers read the first top of each; layers that write their input make a new blob."""
    made: dict[str, Entry] = {}
    found: Counter = Counter()
    for e in layers:
        for b in e.bottoms:
            if b in made:
                found[id(made[b])] += 1
        made.update((t, e) for t in e.tops)
    return found


def chunks(values: Sequence[int], n: int) -> Iterator[Sequence[int]]:
    for i in range(0, len(values), n):
        yield values[i : i + n]
