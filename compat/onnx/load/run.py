"""Running a graph node by node, on arrays or, in a trace, on Symbols.

A value is one of
    np.ndarray      known now: a constant, or computed from constants and shapes alone
    array, Symbol   of NumPy's rules (mx.np), computed by plait's operators
    list            a sequence
    None            an input that is not given

Inputs that decide shapes (Rule.static) must be known: nodes whose inputs are known are computed at
once, so chains of Shape, Gather, Concat and Reshape give numbers while a signature is traced. Where
such an input depends on the data, a trace raises DynamicShape and the block runs on arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from .... import ndarray as nd
from ....engine.error import DynamicShape, MXNetError, compose
from ....kernels.spec import NUMPY_DTYPES
from ....ndarray import numpy as mx_np
from ....ndarray.ndarray import NDArray
from ..types import DTYPES, OnnxError, package
from .graph import MAX_DEPTH, Graph, Node, read_function, schema
from .moved import adapted

OWN = "plait"  # the domain of nodes that no file holds
MAX_KNOWN = 1 << 16  # elements: larger results are computed by the graph
MAX_ELEMENTS = 1 << 29  # of an array whose size a file computes
MAX_NODES = 1 << 17  # of a traced graph, functions written out


class Rule(NamedTuple):
    """How an ONNX operator is computed. static: inputs that must be known. maybe: inputs that are
    NumPy arrays where they are known. numbers: a known input of one element is a number. folds:
    computed at once where all inputs are known. raw: inputs are given as they are. random: each run
    gives others."""

    function: Callable[..., Any]
    static: tuple[int, ...] = ()
    maybe: tuple[int, ...] = ()
    numbers: bool = False
    folds: bool = True
    raw: bool = False
    random: bool = False


RULES: dict[str, Rule] = {}


def rule(*names: str, **given: Any) -> Callable[[Callable], Callable]:
    """Registers a function(call, *inputs) -> value or tuple for operators of these names."""

    def register(function: Callable) -> Callable:
        for name in names:
            RULES[name] = Rule(function, **given)
        return function

    return register


class Call:
    """What a rule asks: attributes, and the namespaces of the operators. np: mx.np or mx.sym.np;
    nn: mx.nd or mx.sym."""

    __slots__ = ("node", "run", "scope")

    def __init__(self, node: Node, run: Run, scope: Scope):
        self.node, self.run, self.scope = node, run, scope

    def __call__(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        return self.node.attrs.get(name, default)

    @property
    def np(self) -> Any:
        return self.run.np

    @property
    def nn(self) -> Any:
        return self.run.nn

    @property
    def opset(self) -> int:
        return self.node.opset

    @property
    def n_outputs(self) -> int:
        return len(self.node.outputs)

    def wants(self, i: int) -> bool:
        """Does anything read output i?"""
        return i < len(self.node.outputs) and bool(self.node.outputs[i])

    def fail(self, rule: str, fix: str | None = None) -> OnnxError:
        return OnnxError(compose(f"onnx: {self.node}: {rule}", fix=fix))

    def array(self, known: Any) -> Any:
        """A NumPy array as an array or Symbol."""
        return self.run.lift(known)

    def cast(self, x: Any, dtype: str) -> Any:
        return x if dtype_of(x) == dtype else x.astype(dtype)


class Weight(NamedTuple):
    """A constant that is a parameter of the block."""

    name: str


class Scope(dict):
    """The values of a graph by name; those of the graphs around it are found through `outer`.
    functions: the model's own, by (domain, name)."""

    def __init__(self, outer: Scope | None = None, functions: Any = None):
        super().__init__()
        self.outer = outer
        self.functions: Any = functions if outer is None else outer.functions

    def __missing__(self, name: str) -> Any:
        if self.outer is None:
            raise KeyError(name)
        return self.outer[name]


class Run:
    """One run of a graph. weights: parameters by name. constant: (known array) -> the Symbol of it;
    None where the run is on arrays."""

    def __init__(
        self,
        weights: Mapping[str, Any],
        constant: Callable[[np.ndarray], Any] | None = None,
        ctx: Any = None,
    ):
        self.weights, self.constant, self.ctx = weights, constant, ctx
        self.traced = constant is not None
        self.depth = self.nodes = 0
        self.np: Any = mx_np
        self.nn: Any = nd
        if self.traced:
            from .... import symbol
            from ....symbol import numpy as symbol_np

            self.np, self.nn = symbol_np, symbol

    def lift(self, x: Any) -> Any:
        """A known array as an array or Symbol; others as they are."""
        if not isinstance(x, np.ndarray):
            return x
        if self.constant is not None:
            return self.constant(x)
        return mx_np.array(x, dtype=dtype_of(x), ctx=self.ctx)

    def known(self, x: Any, call: Call) -> Any:
        """The NumPy array of a value. Raises DynamicShape where a trace cannot know it."""
        if x is None or isinstance(x, (np.ndarray, list)):
            return x
        if isinstance(x, NDArray):
            return x.asnumpy()
        raise DynamicShape(call.node.op, f"{call.node}: its result's shape depends on values")

    def graph(self, graph: Graph, args: Sequence[Any], outer: Scope | None = None) -> list[Any]:
        """The outputs of a graph. args: of its inputs, in order; further constants in `outer`."""
        scope = Scope(outer, graph.functions)
        scope.update(graph.constants)
        scope.update(zip(graph.inputs, args))
        if self.depth >= MAX_DEPTH:
            raise OnnxError(f"onnx: graphs and functions are nested more than {MAX_DEPTH} deep")
        self.depth += 1
        try:
            for node in graph.nodes:
                found = self.node(node, scope)
                if self.traced:
                    _name(node, found)
                scope.update((n, v) for n, v in zip(node.outputs, found) if n)
                for name in node.last:
                    scope.pop(name, None)
        finally:
            self.depth -= 1
        return [self._read(scope, n) for n in graph.outputs]

    def _read(self, scope: Scope, name: str) -> Any:
        found = scope[name]
        return self.weights[found.name] if found.__class__ is Weight else found

    def node(self, node: Node, scope: Scope) -> Sequence[Any]:
        """The outputs of a node."""
        self.nodes += 1
        if self.traced and self.nodes > MAX_NODES:
            raise OnnxError(f"onnx: the graph has more than {MAX_NODES} nodes")
        xs = [self._read(scope, n) if n else None for n in node.inputs]
        try:
            found = self.call(node, xs, scope)
        except OnnxError:
            raise
        except MXNetError as error:
            if not isinstance(error, DynamicShape) and hasattr(error, "locate"):
                error.locate(f"ONNX node {node}")
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            given = ", ".join("-" if x is None else _shown(x) for x in xs)
            raise OnnxError(
                f"onnx: {node} has attributes or inputs that do not fit: {given}"
                f" ({type(error).__name__}: {error})"
            ) from error
        if len(found) < len(node.outputs) and any(node.outputs[len(found) :]):
            raise OnnxError(f"onnx: {node} has {len(node.outputs)} outputs, it gives {len(found)}")
        return found

    def call(self, node: Node, xs: Sequence[Any], scope: Scope) -> Sequence[Any]:
        local = scope.functions.get((node.domain, node.op))
        if local is not None:
            return self.function(read_function(local, node, scope.functions, True), xs)
        found = RULES.get(node.op) if node.domain in ("", "com.microsoft", OWN) else None
        if found is None:
            return self.function(_body(node, xs), xs)
        node, xs = adapted(node, xs)
        call = Call(node, self, scope)
        if found.raw:
            return _outputs(found.function(call, *xs))
        folds = found.folds and not found.random
        if folds and all(x is None or isinstance(x, np.ndarray) for x in xs):
            made = self._evaluate(found, node, xs, scope)
        else:
            made = self._apply(found, call, xs)
        return _outputs(made)

    def _apply(self, found: Rule, call: Call, xs: Sequence[Any]) -> Any:
        last = len(xs)
        static = [i if i >= 0 else last + i for i in found.static]
        given = []
        for i, x in enumerate(xs):
            if i in static:
                given.append(self.known(x, call))
            elif i in found.maybe:
                given.append(x)
            elif found.numbers and _is_number(x, xs):
                given.append(x.item())
            else:
                given.append(self.lift(x))
        return found.function(call, *given)

    def _evaluate(self, found: Rule, node: Node, xs: Sequence[Any], scope: Scope) -> Any:
        """A node whose inputs are all known, computed now."""
        now = Run({})
        made = now._apply(found._replace(numbers=False), Call(node, now, scope), xs)
        for v in _outputs(made):
            if hasattr(v, "shape") and prod(v.shape) > MAX_ELEMENTS:
                raise OnnxError(f"onnx: {node} makes a constant of shape {tuple(v.shape)}")
        return tuple([_as_known(v) for v in _outputs(made)])

    def function(self, graph: Graph, xs: Sequence[Any]) -> list[Any]:
        """The outputs of a function."""
        args = [*xs, *[None] * (len(graph.inputs) - len(xs))]
        return self.graph(graph, args, Scope(None, graph.functions))


def _body(node: Node, xs: Sequence[Any]) -> Graph:
    """The definition of an operator by others, of the package onnx. Raises OnnxError."""
    found = schema(node.op, node.opset, node.domain)
    if found is not None and found.has_context_dependent_function:
        onnx = package()
        types = []
        for x in xs:
            t = onnx.TypeProto()
            if x is not None:
                code = CODES[dtype_of(x)]
                t.CopyFrom(onnx.helper.make_tensor_type_proto(code, tuple(x.shape)))
            types.append(t.SerializeToString())
        text = found.get_context_dependent_function(node.proto.SerializeToString(), types)
        proto = onnx.FunctionProto()
        proto.ParseFromString(text)
        return read_function(proto, node, {}, False)
    if found is not None and found.has_function:
        return read_function(found.function_body, node, {}, False)
    raise OnnxError(f"onnx: {node} has no rule")


def supported(node: Node, functions: Any) -> bool:
    """Can a node be computed, as far as its operator tells?"""
    if (node.domain, node.op) in functions:
        return True
    if node.domain in ("", "com.microsoft") and node.op in RULES:
        return True
    found = schema(node.op, node.opset, node.domain)
    return found is not None and (found.has_function or found.has_context_dependent_function)


CODES = {name: code for code, name in DTYPES.items()}
_NAMES = {np.dtype(d): name for name, d in NUMPY_DTYPES.items()}


def dtype_of(x: Any) -> str:
    """The name of a value's dtype."""
    found = np.dtype(x.dtype)
    return _NAMES[found] if found in _NAMES else found.name


def _name(node: Node, found: Sequence[Any]) -> None:
    """Gives the last operator of a node the node's name."""
    if len(found) == 1 and hasattr(found[0], "_outputs"):
        made, index = found[0]._outputs[0].node, found[0]._outputs[0].index
        if made.op is not None and index == 0:
            made.name = node.name or node.outputs[0]


def _is_number(x: Any, xs: Sequence[Any]) -> bool:
    """Is a known input one number, that does not widen the shape of the others?"""
    if not isinstance(x, np.ndarray) or x.size != 1 or x.dtype.kind not in "fiu":
        return False
    others = [y for y in xs if y is not None and not isinstance(y, np.ndarray)]
    return bool(others) and max(len(y.shape) for y in others) >= x.ndim


def _as_known(x: Any) -> Any:
    return x.asnumpy() if isinstance(x, NDArray) else x


def _outputs(made: Any) -> Sequence[Any]:
    return made if isinstance(made, tuple) else (made,)


def _shown(x: Any) -> str:
    return f"{x.dtype} {tuple(x.shape)}" if hasattr(x, "shape") else type(x).__name__
