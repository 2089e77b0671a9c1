"""Products with what follows them: scale, bias, activation and addition become one operator.

A chain is followed from a product upwards while nothing else reads the values in between; only
what an activation is applied to may be read elsewhere too (gradients do) and then is an output of
the operator as well. In backward graphs the gradients of a weight and of its bias become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...kernels.activations import SLOPES
from ...kernels.backend import Backend
from ...kernels.loops import is_positive, multiplies
from ...kernels.ops.dense_fused import activation_of
from ...kernels.traits import Matmul, Reduction, SameMemory, Scale, Slope, Sum
from ..effects import Effects
from ..graph import Builder, Node, Value, topological
from .replace_uses import replace_uses

F = Builder()


def epilogue_dense(outputs: Sequence[Value], backend: Backend) -> list[Value]:
    """The graph with its products fused, of the types for which the backend has fused kernels."""
    order = topological(outputs)
    users: dict[Value, list[Node | None]] = {}
    for node in order:
        for v in node.inputs:
            users.setdefault(v, []).append(node)
    for v in outputs:
        users.setdefault(v, []).append(None)  # the caller
    pinned = Effects(order).pinned
    instead: dict[Value, Value] = {}
    for node in order:
        if node.op is not None and node not in pinned:
            matmul = _matmul(node, backend)
            if matmul is not None:
                _Chain(matmul, Value(node), users, pinned, backend).fuse(instead)
    _sums(order, users, instead, backend)
    return replace_uses(outputs, instead) if instead else list(outputs)


def _plain(dtype: str, *values: Value) -> bool:
    return all(v.dtype == dtype and not v.type.layout for v in values)


def _matmul(node: Node, backend: Backend) -> dict | None:
    """Attributes and inputs of _dense for a product of matrices."""
    matmul = node.operation.trait(Matmul)
    if matmul is None or matmul.stacked:
        return None
    dtype = node.types[0].dtype
    if dtype not in backend.fused_dtypes or not _plain(dtype, *node.inputs):
        return None
    a, b = node.inputs[:2]
    of_a, of_b = matmul.transposes(**node.attrs)
    if matmul.flattens and len(b.shape) == 2:
        a = F.reshape_to(a, shape=(prod(node.types[0].shape[:-1]), b.shape[1 if of_b else 0]))
    if len(a.shape) != 2 or len(b.shape) != 2:
        return None
    given = {"lhs": a, "rhs": b, "transpose_a": of_a, "transpose_b": of_b}
    has_bias = matmul.bias is not None and matmul.bias(**node.attrs)
    return given | {"bias": node.inputs[2]} if has_bias else given


class _Chain:
    """One product and what follows it. end: the value that the fused operator gives so far."""

    def __init__(self, given: dict, end: Value, users: dict, pinned: set[Node], backend: Backend):
        self.given, self.end, self.users, self.pinned = given, end, users, pinned
        self.dtype, self.backend = end.dtype, backend
        self.pre: Value | None = None  # what is activated, where it is read elsewhere too
        self.matrix = (prod(end.shape[:-1]), end.shape[-1])

    def fuse(self, instead: dict[Value, Value]) -> None:
        before = set(self.given)
        while self._step():
            pass
        if set(self.given) == before:
            return
        g = dict(self.given)
        inputs = [g.pop("lhs"), g.pop("rhs"), g.pop("bias", None), g.pop("residual", None)]
        made = F._dense(
            *inputs,
            bias=inputs[2] is not None,
            residual=inputs[3] is not None,
            keep=self.pre is not None,
            **g,
        )
        made = made if isinstance(made, list) else [made]
        replaced = [self.end] if self.pre is None else [self.end, self.pre]
        for old, new in zip(replaced, made):
            instead[old] = F.reshape_to(new, shape=old.shape)

    def _step(self) -> bool:
        """Takes in the operator that reads the end, if it fits."""
        if "residual" in self.given:
            return False
        readers = self.users.get(self.end, [])
        if len(readers) == 1:
            return readers[0] is not None and self._take(readers[0])
        gated = self._gated(readers)
        if gated is not None and self._ends("silu", False, False):
            self.given["act"], self.end = "silu", Value(gated)
            return True
        acts = [n for n in readers if n is not None and activation_of(n.operation, n.attrs)]
        return self.pre is None and len(acts) == 1 and self._take(acts[0], True)

    def _gated(self, readers: Sequence[Node | None]) -> Node | None:
        """The product of the end and its own sigmoid, where these two alone read it."""
        if len(readers) != 2 or self.given.get("act"):
            return None
        first, second = readers
        if first is None or second is None:
            return None
        for sigmoid, product in ((first, second), (second, first)):
            if (
                activation_of(sigmoid.operation, sigmoid.attrs) != "sigmoid"
                or product in self.pinned
            ):
                continue
            y, types = Value(sigmoid), [v.type for v in product.inputs]
            if set(product.inputs) == {self.end, y} and self.users.get(y) == [product]:
                if multiplies(product.operation, types, product.types, product.attrs) and _plain(
                    self.dtype, y
                ):
                    return product
        return None

    def _ends(self, act: str | None, keep: bool, residual: bool) -> bool:
        return self.backend.ends_matmul(self.dtype, act, keep, residual)

    def _take(self, node: Node, keep: bool = False) -> bool:
        if node in self.pinned or not _plain(self.dtype, *node.inputs, Value(node)):
            return False
        act = activation_of(node.operation, node.attrs)
        slope = self._slope(node)
        scale, end = node.operation.trait(Scale), self.end
        if node.operation.has(SameMemory):
            if prod(node.types[0].shape[:-1]) != self.matrix[0]:
                return False
        elif slope is not None:
            self.given |= {"slope": slope[0], "residual": F.reshape_to(slope[1], shape=self.matrix)}
        elif act is not None:
            if self.given.get("act") or not self._ends(act, keep, False):
                return False
            self.given["act"] = act
            self.pre = end if keep else None
        elif scale is not None and not self.given.keys() & {"bias", "act"}:
            if node.has_open_scalars:  # a kernel's scale is fixed when it is chosen
                return False
            factor = scale.factor(node.attrs)
            factor = float("inf") if factor is None else factor
            self.given["scale"] = self.given.get("scale", 1.0) * factor
        elif node.operation.has(Sum) and len(node.inputs) == len(set(node.inputs)) == 2:
            other = node.inputs[1 - node.inputs.index(end)]
            if other.shape == end.shape and self.pre is None:
                if not self._ends(self.given.get("act"), False, True):
                    return False
                self.given["residual"] = F.reshape_to(other, shape=self.matrix)
            elif other.shape == end.shape[-1:] and not self.given.keys() & {"bias", "act"}:
                self.given["bias"] = other
            else:
                return False
        else:
            return False
        self.end = Value(node)
        return True

    def _slope(self, node: Node) -> tuple[str, Value] | None:
        """(activation, where its slope is taken) of a node that multiplies the end by one."""
        if self.pre is not None or self.given.keys() & {"bias", "act"}:
            return None
        sloped = node.operation.trait(Slope)
        if sloped is not None and sloped.of in SLOPES and node.inputs[0] == self.end:
            found = sloped.of, node.inputs[1]
        elif multiplies(node.operation, [v.type for v in node.inputs], node.types, node.attrs):
            a, b = node.inputs
            mask = (b if a == self.end else a).node
            types = [v.type for v in mask.inputs]
            if mask.op is None or not is_positive(mask.op, types, mask.types, mask.attrs):
                return None
            if mask.has_open_scalars or not _plain(self.dtype, *mask.inputs):
                return None
            found = "relu", mask.inputs[0]
        else:
            return None
        act, x = found
        if x == self.end or x.shape != node.types[0].shape:
            return None
        return found if self.backend.ends_matmul(self.dtype, residual=True, slope=act) else None


def _sums(
    order: Sequence[Node], users: dict, instead: dict[Value, Value], backend: Backend
) -> None:
    """dot(v, u, transpose_a) and sum(v, axis=0) become one."""
    number = {node: i for i, node in enumerate(order)}
    for node in order:
        reduction = None if node.op is None else node.op.trait(Reduction)
        if reduction is None or reduction.kind != "sum" or node.attrs["keepdims"]:
            continue
        v = node.inputs[0]
        dtype = node.types[0].dtype
        if len(v.shape) != 2 or _axes(node) != (0,) or dtype not in backend.fused_dtypes:
            continue
        if not _plain(dtype, v):
            continue
        for dot in users[v]:
            matmul = None if dot is None else dot.op.trait(Matmul)
            if matmul is None or matmul.stacked or matmul.flattens or dot.inputs[0] != v:
                continue
            of_v, of_u = matmul.transposes(**dot.attrs)
            u = dot.inputs[1]
            if (
                of_v
                and len(u.shape) == 2
                and _plain(dtype, u)
                and Value(dot) not in instead
                and _earlier(u, number, number[node])
            ):
                made = F._dot_sum(v, u, transpose_b=of_u)
                instead[Value(dot)] = made[0]
                instead[Value(node)] = made[1]
                break


def _axes(node: Node) -> tuple[int, ...]:
    axis = node.attrs["axis"]
    axis = (axis,) if isinstance(axis, int) else tuple(axis or ())
    if node.attrs.get("exclude") or not axis:
        return tuple(range(2)) if not axis else ()
    return tuple(a % 2 for a in axis)


def _earlier(v: Value, number: dict[Node, int], place: int) -> bool:
    """Is v computed before a place in the order, so that it cannot depend on what is there?"""
    while v.node.op is not None and v.node.op.has(SameMemory):
        v = v.node.inputs[0]
    return v.node.op is None or number[v.node] < place
