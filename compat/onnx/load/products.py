"""Products of bytes in a graph that says them in floats, as tools write quantized networks:

    DequantizeLinear -> Conv, Gemm or MatMul -> QuantizeLinear    becomes one node on bytes
    QLinearConv, QLinearMatMul                                     too
    DequantizeLinear -> Reshape, MaxPool, ... -> QuantizeLinear    keeps bytes, if both scales agree

Before that int8 whose zero point is -128, as tools store what relu gives, becomes uint8 whose zero
point is 0: padding is 0 then. Scales, zero points and weights must be constants.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .graph import Graph, Node, find_last
from .run import OWN

PRODUCT = "ProductOfBytes"
CONVOLUTIONS = ("Conv", "QLinearConv")
MOVES = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity", "MaxPool")
RANGES = {np.dtype("int8"): (-128, 127), np.dtype("uint8"): (0, 255)}


class Levels(NamedTuple):
    """What bytes stand for: (x - zero) * scale. scale, zero: (1,), or (n,) along `axis`."""

    scale: np.ndarray
    zero: np.ndarray
    axis: int

    def equals(self, other: Levels | None) -> bool:
        if other is None or self.zero.dtype != other.zero.dtype or self.axis != other.axis:
            return False
        return all(np.array_equal(a, b) for a, b in zip(self[:2], other[:2]))


class Product(NamedTuple):
    """A product of bytes, sums * scale + shift for each filter.

    kind: Conv or MatMul. weight: int8, a filter in each row. pad: the byte that stands for 0.
    out: dtype of the result, bytes or float32.
    """

    kind: str
    weight: np.ndarray
    scale: np.ndarray
    shift: np.ndarray
    pad: int
    relu: bool
    out: str


def join_products(graph: Graph) -> None:
    """Changes a graph, and those in it, as the head of this file says."""
    for node in graph.nodes:
        for inner in node.graphs():
            join_products(inner)
    run = _Joiner(graph)
    run.without_negatives()
    for node in list(graph.nodes):
        if node.domain or not node.inputs or not node.outputs:
            continue
        if node.op in ("Conv", "Gemm", "MatMul") and len(node.inputs) > 1:
            run.product(node)
        elif node.op in ("QLinearConv", "QLinearMatMul") and len(node.inputs) > 7:
            run.q_linear(node)
        elif node.op in MOVES and len(node.outputs) == 1:
            run.move(node)
    run.sweep()


def _of_one_scale(found: Levels) -> bool:
    return found.scale.size == 1 and found.zero.dtype in RANGES


class _Joiner:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.makers = {name: n for n in graph.nodes for name in n.outputs if name}
        self.readers: dict[str, list[Node]] = {}
        self.inner = {name for n in graph.nodes for g in n.graphs() for name in g.outer}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)

    # ---- what is there ---------------------------------------------------------------------------

    def maker(self, name: str, op: str) -> Node | None:
        found = self.makers.get(name)
        if found is None or found.op != op or found.domain or len(found.inputs) < 2:
            return None
        return found

    def only_reader(self, name: str, op: str) -> Node | None:
        """The one node that reads a value, if it is such an operator."""
        found = self.readers.get(name, ())
        if len(found) != 1 or name in self.graph.outputs or name in self.inner:
            return None
        return found[0] if found[0].op == op and not found[0].domain else None

    def levels(self, node: Node | None, at: int = 1, axis: int | None = None) -> Levels | None:
        """Of a node whose inputs `at` and `at` + 1 are a scale and a zero point."""
        if node is None or len(node.inputs) < at + 1:
            return None
        scale, zero = self.graph.constants.get(node.inputs[at]), self._zero(node, at + 1)
        if not isinstance(scale, np.ndarray) or not isinstance(zero, np.ndarray):
            return None
        if scale.dtype != np.float32 or scale.ndim > 1 or not (scale > 0).all():
            return None
        if zero.size not in (1, scale.size) or zero.ndim > 1 or not scale.size:
            return None
        axis = node.attrs.get("axis", 1) if axis is None else axis
        zero = np.broadcast_to(zero.reshape(-1), scale.size)
        return Levels(scale.reshape(-1), zero, axis if scale.size > 1 else 0)

    def _zero(self, node: Node, at: int) -> np.ndarray | None:
        """The zero point; 0 in the dtype of the bytes where the node has none."""
        name = node.inputs[at] if len(node.inputs) > at else ""
        if name:
            return self.graph.constants.get(name)
        if node.op != "DequantizeLinear":
            return np.zeros(1, np.uint8)
        source, maker = (f.get(node.inputs[0]) for f in (self.graph.constants, self.makers))
        if isinstance(source, np.ndarray):
            return np.zeros(1, source.dtype)
        found = self._zero(maker, 2) if maker is not None and maker.op == "QuantizeLinear" else None
        return None if found is None else np.zeros(1, found.dtype)

    def bytes_of(self, name: str) -> tuple[str, Levels] | None:
        """(the bytes behind a float value, what they stand for)."""
        node = self.maker(name, "DequantizeLinear")
        found = self.levels(node)
        if node is None or found is None or not _of_one_scale(found):
            return None
        return node.inputs[0], found

    # ---- changes ---------------------------------------------------------------------------------

    def without_negatives(self) -> None:
        """int8 with the zero point -128, which only QuantizeLinear makes and only DequantizeLinear
        reads, as uint8."""
        for node in self.graph.nodes:
            found = self.levels(node) if node.op == "QuantizeLinear" and not node.domain else None
            if found is None or found.zero.dtype != np.int8 or (found.zero != -128).any():
                continue
            y = node.outputs[0] if node.outputs else ""
            readers = self.readers.get(y, [])
            if y in self.graph.outputs or y in self.inner:
                continue
            if all(r.op == "DequantizeLinear" and found.equals(self.levels(r)) for r in readers):
                name = f"{y}_unsigned_zero"
                shape = self.graph.constants[node.inputs[2]].shape
                self.graph.constants[name] = np.zeros(shape, np.uint8)
                for each in (node, *readers):
                    each.inputs[2:3] = [name]

    def product(self, node: Node) -> None:
        data, source = self.bytes_of(node.inputs[0]), self.maker(node.inputs[1], "DequantizeLinear")
        if data is None or source is None:
            return
        weight = self._rows(node, source.inputs[0], self.levels(source))
        bias = None if weight is None else self._bias(node, len(weight[0]))
        if weight is None or bias is None:
            return
        y, relu, last = node.outputs[0], False, node
        after = self.only_reader(y, "Relu")
        if after is not None:
            y, relu, last = after.outputs[0], True, after
        quantize = self.only_reader(y, "QuantizeLinear")
        result = self.levels(quantize)
        if result is not None and not _of_one_scale(result):
            result = None
        if result is not None and relu:  # whose negative numbers rounding must cut
            result = result if result.zero[0] == RANGES[result.zero.dtype][0] else None
        if quantize is not None and result is not None:
            relu, last = False, quantize
        self._put(node, data, weight, bias, relu, result, last)

    def q_linear(self, node: Node) -> None:
        given, result = self.levels(node, 1), self.levels(node, 6)
        levels = self.levels(node, 4, axis=0 if node.op == "QLinearConv" else 1)
        weight = self._rows(node, node.inputs[3], levels)
        if weight is None or given is None or result is None:
            return
        if not _of_one_scale(given) or not _of_one_scale(result):
            return
        bias: Any = np.zeros(len(weight[0]))
        if len(node.inputs) > 8 and node.inputs[8]:
            bias = self.graph.constants.get(node.inputs[8])
            if not isinstance(bias, np.ndarray) or bias.shape != np.shape(weight[0])[:1]:
                return
            bias = bias * given.scale.astype(np.float64) * weight[1]
        self._put(node, (node.inputs[0], given), weight, bias, False, result, node)

    def _put(
        self,
        node: Node,
        data: tuple[str, Levels],
        weight: tuple[np.ndarray, np.ndarray],
        bias: np.ndarray,
        relu: bool,
        result: Levels | None,
        last: Node,
    ) -> None:
        """One node for those that end with `last`. result: what its bytes stand for; None: it gives
        floats."""
        (x, given), (rows, w_scale) = data, weight
        scale = np.broadcast_to(given.scale * w_scale, len(rows))
        shift = bias - int(given.zero[0]) * rows.reshape(len(rows), -1).sum(axis=1) * scale
        if result is not None:
            scale = scale / result.scale
            shift = shift / result.scale + int(result.zero[0])
        product = Product(
            kind="Conv" if node.op in CONVOLUTIONS else "MatMul",
            weight=rows.astype(np.int8),
            scale=scale.astype(np.float32),
            shift=shift.astype(np.float32),
            pad=int(given.zero[0]),
            relu=relu,
            out="float32" if result is None else result.zero.dtype.name,
        )
        attrs = {**node.attrs, "product": product}
        outputs = list(last.outputs)
        made = Node(node.name, PRODUCT, OWN, node.opset, [x], outputs, attrs, node.proto)
        self.graph.nodes[self.graph.nodes.index(last)] = made
        self.makers.update(dict.fromkeys(outputs, made))
        self.readers.setdefault(x, []).append(made)

    def _rows(
        self, node: Node, name: str, found: Levels | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """(weights with a filter in each row, without their zero point; a scale for each row, or
        one). found: what the weights stand for."""
        w = self.graph.constants.get(name)
        if found is None or not isinstance(w, np.ndarray) or w.dtype not in RANGES or w.size == 0:
            return None
        if found.zero.dtype != w.dtype:
            return None
        a, is_conv = node.attrs, node.op in CONVOLUTIONS
        if w.ndim < 3 if is_conv else w.ndim != 2:
            return None
        if a.get("transA", 0) or not a.get("alpha", 1.0) == a.get("beta", 1.0) == 1:
            return None
        by_rows = is_conv or a.get("transB", 0)
        axis = 0 if by_rows else 1
        fits = (found.axis % w.ndim, found.scale.size) == (axis, w.shape[axis])
        if found.scale.size > 1 and not fits:
            return None
        shape = [-1 if i == axis else 1 for i in range(w.ndim)]
        rows = w.astype(np.int64) - found.zero.astype(np.int64).reshape(shape)
        if rows.min() < -128 or rows.max() > 127:
            return None
        return rows if by_rows else rows.T, found.scale.astype(np.float64)

    def _bias(self, node: Node, n: int) -> np.ndarray | None:
        """In float64, (n,); None: it is not constant."""
        name = node.inputs[2] if len(node.inputs) > 2 else ""
        if not name:
            return np.zeros(n)
        bias, source = self.graph.constants.get(name), self.maker(name, "DequantizeLinear")
        if source is not None:
            bias, found = self.graph.constants.get(source.inputs[0]), self.levels(source)
            if found is None or not isinstance(bias, np.ndarray) or bias.shape != (n,):
                return None
            if found.scale.size not in (1, n):
                return None
            return (bias.astype(np.float64) - found.zero) * found.scale
        if not isinstance(bias, np.ndarray) or bias.dtype.kind != "f" or bias.shape[-1:] != (n,):
            return None
        return bias.reshape(-1).astype(np.float64) if bias.size == n else None

    def move(self, node: Node) -> None:
        data = self.bytes_of(node.inputs[0])
        after = self.only_reader(node.outputs[0], "QuantizeLinear")
        if data is None or after is None or not data[1].equals(self.levels(after)):
            return
        node.inputs[0] = data[0]
        node.outputs[0] = after.outputs[0]
        self.makers[node.outputs[0]] = node
        self.readers.setdefault(data[0], []).append(node)
        after.outputs[0] = ""

    def sweep(self) -> None:
        """Takes out nodes that nothing reads any more, and says anew who reads a value last."""
        kept, wanted = [], {*self.graph.outputs, *self.inner}
        for node in reversed(self.graph.nodes):
            if wanted.isdisjoint(n for n in node.outputs if n):
                continue
            wanted.update(node.inputs, *(g.outer for g in node.graphs()))
            kept.append(node)
        self.graph.nodes = kept[::-1]
        find_last(self.graph.nodes, set(self.graph.outputs))
