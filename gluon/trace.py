"""Tracing: one run of a block on Symbols gives its graph; nested inputs and outputs; Symbols that
escape."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..engine import Context, current_context
from ..engine.error import DynamicShape, InvalidValue, MXNetError
from ..graph.graph import Node, Value, rewrite, topological, values_of, variable, with_inputs
from ..graph.inference import typed_graph
from ..graph.passes.shard import split_graph
from ..graph.passes.shard_layouts import Split
from ..graph.placement import TO_DEVICE, Placement, crosses
from ..kernels.spec import Spec
from ..kernels.traits import Collective, PythonKernel
from ..ndarray import autograd
from ..ndarray.cached import CachedGraph
from ..ndarray.creation import zeros
from ..ndarray.monitored import Watcher, run_forward
from ..ndarray.ndarray import NDArray, state
from ..ndarray.nesting import Constant, flatten, unflatten
from . import layer_path
from .parameter import Held, Parameter, shape_is_known
from .tracing import tracing_state


class StructureError(InvalidValue):
    """Inputs of a block that are not arrays, or nested differently than before."""


class LeakedSymbolError(MXNetError):
    """A Symbol of a trace was used after the trace."""


def flatten_call(value: Any, leaf: type | tuple[type, ...], role: str) -> tuple[list, Any]:
    """(leaves, form) of the nested inputs or outputs of a block; None and constants are part of the
    form. what: "input" or "output", for the error. Raises StructureError."""
    return flatten(value, leaf, _CONSTANT[role])


def _constant(role: str, value, leaves: list) -> Any:
    if value is None:
        return -1
    if isinstance(value, (bool, int, float, str)):
        return Constant(value)
    raise StructureError(
        f"In HybridBlock, {role} must be (nested) list of Symbol or NDArray, but got "
        f"{value!r} of type {type(value).__name__}"
        + ("\n  fix: nd.array(x)" if hasattr(value, "__array__") else "")
    )


_CONSTANT = {role: partial(_constant, role) for role in ("input", "output")}


def arrays_only(structure: Any) -> Any:
    """The structure without the values of constants: it must not change between calls."""
    if structure.__class__ is tuple:
        return [arrays_only(s) for s in structure]
    return 0 if structure == 0 else -1


class Tracer:
    """The variable of each parameter in a trace, typed if its shape is known."""

    def __init__(self, training: bool):
        from ..symbol import symbol

        self.symbol = symbol
        self.params: dict[Parameter, Any] = {}
        self.bounds: list = []  # the results of inner blocks that have children
        self.scope = symbol.tracing(training)

    def __enter__(self):
        self._outer: Tracer | None = tracing_state.tracer
        tracing_state.tracer = self
        self.scope.__enter__()
        return self

    def __exit__(self, *error):
        self.scope.__exit__(*error)
        tracing_state.tracer = self._outer

    def var(self, parameter: Parameter) -> Any:
        """The Symbol of a parameter, one for each trace."""
        found = self.params.get(parameter)
        if found is None:
            found = self.params[parameter] = parameter._make_var()
            if parameter.shape == () and parameter._data is not None:  # its text means unknown
                found._outputs[0].node.types = (parameter._data[0]._spec.type,)
        return found

    def left(self, block: Any, out: Any) -> None:
        """A block's forward has returned."""
        layer = type(block).__module__.startswith(f"{__package__}.nn.")
        if block._children and not layer:
            inside, _ = flatten_symbols(out, self.symbol.Symbol, block)
            self.bounds += [v for s in inside for v in s._outputs]


class Trace:
    """A block as a graph.

    symbol: Group of the outputs. structure: how they are nested. data: the input Symbols. params:
        in order of use. is_shared: it stands for inputs of other shapes too. any_sizes: it may do
        so without another trace, where `serves` holds; compared: see symbol.tracing.
    """

    is_shared = False

    def __init__(self, block: Any, args: Any, training: bool):
        """args: as the block was called. Raises what operators raise when shapes do not fit,
        StructureError."""
        from ..symbol.compose import check_typed

        flat, self.in_structure = flatten_call(args, NDArray, "input")
        self.data_devices, self.training = [a._spec.device for a in flat], training
        mode = autograd.train_mode() if training else autograd.predict_mode()
        state.asked_recording = False
        with Tracer(training) as tracer, mode:  # is_recording() has the caller's value
            sym = tracer.symbol
            names = ["data"] if len(flat) == 1 else [f"data{i}" for i in range(len(flat))]
            self.data = [sym.var(n) for n in names]
            # typed, but without attributes: an exported graph works for any shape
            for i, a in enumerate(flat):
                self.data[i]._outputs[0].node.types = (a._spec.type,)
                if a.__class__ is not NDArray and a.stype == "default":
                    self.data[i] = self.data[i].as_np_ndarray()
            before = symbols_of(block, sym.Symbol)
            try:
                with layer_path.top(block):
                    out = block._run(*unflatten(self.in_structure, self.data))
            except DynamicShape as error:
                error.__dict__["seen"] = dict(tracer.params)
                raise
            outputs, self.structure = flatten_symbols(out, sym.Symbol, block)
            scope = tracer.scope
        self.any_sizes, self.compared = not scope.reads_sizes, scope.compared
        self.asks_recording = state.asked_recording
        seal_leaks(block, sym.Symbol, before)
        self.symbol = sym.Group(outputs)
        check_typed(self.symbol._outputs)
        self._bounds = [v for v in tracer.bounds if v not in self.symbol._outputs]
        used = self.symbol._outputs
        inputs = {n for n in topological(used) if n.op is None}
        self.data_values = [s._outputs[0] for s in self.data]
        self.unused = [n for n, v in zip(names, self.data_values) if v.node not in inputs]
        self.params = [p for p, s in tracer.params.items() if s._outputs[0].node in inputs]
        self.param_values = [tracer.params[p]._outputs[0] for p in self.params]
        self.graph: CachedGraph | None = None
        # the parameters in the graph's order, with the device of each: see compile; their arrays
        self.placed: list[tuple[Parameter, Context]] = []
        self.held = Held(())

    @staticmethod
    def complete(block: Any, args: Any, training: bool) -> None:
        """Completes the parameters of an eager block, as far as tracing can infer them."""
        try:
            Trace(block, args, training).finish_parameters()
        except DynamicShape as error:
            seen = error.__dict__.pop("seen", {})
            for p, s in seen.items():
                if p._data is None and s._outputs[0].node.is_typed:
                    p.shape = s.shape
                    p._finish_deferred_init()
            if not seen:
                raise

    def without_messages(self, block: Any) -> Trace:
        """A trace of the same inputs to predict, if this one has collectives: ranks that train, not
        a network, exchange statistics."""
        nodes = topological(self.symbol._outputs)
        if not any(n.op is not None and n.op.has(Collective) for n in nodes):
            return self
        given = [zeros(v.shape, dtype=v.type.dtype) for v in self.data_values]
        return Trace(block, unflatten(self.in_structure, given), False)

    def finish_parameters(self) -> None:
        """Sets unknown parameter shapes to those inferred by tracing, and completes their
        initialization."""
        for p, v in zip(self.params, self.param_values):
            if p._data is None:
                if not shape_is_known(p.shape) and v.node.is_typed:
                    p.shape = v.shape
                p._finish_deferred_init()

    def compile(self, name: str, recompute: bool | float | str = False) -> None:
        """recompute: see HybridBlock.hybridize. In a block without inner blocks "blocks" means
        True."""
        if recompute == "blocks":
            recompute = "blocks" if self._bounds else True
        bounds = self._bounds if recompute == "blocks" else []
        outputs, variables = self.symbol._outputs, self.param_values
        devices = self.data_devices or [current_context()]
        if self.sharded:
            graph, variables = self._split([*outputs, *bounds])
            outputs, bounds = graph[: len(outputs)], graph[len(outputs) :]
        if len({d.home for d in devices}) > 1 or crosses(outputs):
            graph, variables = self._place([*outputs, *bounds], devices[0])
            outputs, bounds = graph[: len(outputs)], graph[len(outputs) :]
        else:
            self.placed = [(p, devices[0]) for p in self.params]
        inputs, self.held = [*self.data_values, *variables], Held(self.placed)
        self.graph = CachedGraph(outputs, inputs, name, len(self.data_values), recompute, bounds)

    def has_own_code(self) -> bool:
        """Does it hold what is made for one trace: shapes of the parts of split parameters,
        operators in Python?"""
        nodes = topological(self.symbol._outputs)
        return self.sharded or any(n.op is not None and n.op.has(PythonKernel) for n in nodes)

    @property
    def sharded(self) -> bool:
        """Are parameters split over ranks?"""
        return any(p._part is not None for p in self.params)

    def _split(self, graph: list[Value]) -> tuple[list[Value], list[Value]]:
        """The graph of this rank, and its variables of the parameters."""
        splits, variables = {}, []
        for p, v in zip(self.params, self.param_values):
            if p._part is None:
                variables.append(v)
                continue
            part = p._part
            local = v.type._replace(shape=part.shape(v.shape))
            variables.append(variable(v.node.name, local, v.node.extra))
            layout = Split(part.axis, 1, part.group.ranks, part.group.rank)
            splits[v] = (variables[-1], layout)
        train = autograd.is_training()
        return split_graph(graph, splits, train), variables

    def _place(self, graph: list[Value], default: Context) -> tuple[list[Value], list[Value]]:
        """Records in `placed` on which device each parameter is read. A parameter read on several
        devices becomes one variable per device: (the new graph, the variables)."""
        place = Placement(graph, dict(zip(self.data_values, self.data_devices)), default)
        self.placed, variables = [], []
        twins: dict[tuple[Value, Context], Value] = {}
        for p, v in zip(self.params, self.param_values):
            for i, device in enumerate(place.readers.get(v, [default])):
                twin = variable(v.node.name, v.type, v.node.extra) if i else v
                self.placed.append((p, device))
                variables.append(twin)
                twins[v, device] = twin

        def replace(node: Node, inputs: tuple[Value, ...]):
            if node.op is None or node.op is TO_DEVICE:
                return None
            here = place.of(node)
            near = [twins.get((v, here), x) for v, x in zip(node.inputs, inputs)]
            return None if near == list(inputs) else values_of(with_inputs(node, near))

        return rewrite(graph, replace), variables

    def serves(self, specs: Sequence[Spec]) -> bool:
        """Would a trace of inputs that differ from this one's in sizes compose the same graph?"""
        if not self.compared:
            return True
        values = [v for a, b, _ in self.compared for v in (a, b)]
        types = {n: n.types[0] for n in topological(values) if n.op is None}
        types.update((v.node, s.type) for v, s in zip(self.data_values, specs))
        for p, v in zip(self.params, self.param_values):
            if p._data is not None:
                types[v.node] = p._data[0]._spec.type
        try:
            found = typed_graph(values, types, self.training)
        except MXNetError:  # a trace says where
            return False
        asked = zip(found[::2], found[1::2], self.compared)
        return all([(a.shape != b.shape) is differ for a, b, (*_, differ) in asked])

    def equal_graphs(self) -> tuple | None:
        """What two traces have in common that compute the same from the same parameters, for inputs
        of whatever shapes and dtypes; None where that cannot be told."""
        if self.sharded:  # its shapes are in attributes
            return None
        number = {v.node: i for i, v in enumerate([*self.data_values, *self.param_values])}
        outputs = [*self.symbol._outputs, *self._bounds]
        nodes: list[tuple] = []
        for node in topological(outputs):
            if node.op is not None:
                inputs = tuple([(number[v.node], v.index) for v in node.inputs])
                extra = tuple(node.extra.items()) if node.extra else ()
                nodes.append((node.op, *node.op.attribute_key(node.attrs), inputs, extra))
                number[node] = len(number)
        ends = tuple([(number[v.node], v.index) for v in outputs])
        found = (self.in_structure, self.structure, *self.placed, *self.unused, *nodes, *ends)
        try:
            hash(found)
        except TypeError:  # an attribute that is a list
            return None
        return found

    def warn_of_unused(self, block: Any) -> None:
        for name in self.unused:
            warnings.warn(
                f"The input {name!r} to {type(block).__name__} {block.name!r} is not used by any"
                " computation. Is this intended?",
                stacklevel=4,
            )
        used = set(self.params)
        for p in block.collect_params().values():
            if p not in used:
                warnings.warn(
                    f"Parameter {p.name} is not used by any computation. Is this intended?",
                    stacklevel=4,
                )

    def outputs(self, arrays: Sequence[NDArray]) -> Any:
        """The output arrays, nested as the block returns them."""
        return arrays[0] if self.structure == 0 else unflatten(self.structure, arrays)


def flatten_symbols(value: Any, symbol_class: Any, block: Any) -> tuple[list, Any]:
    """As flatten_call, for what a traced block returns; a Symbol of several outputs is a list."""

    def other(x, leaves: list):
        if isinstance(x, symbol_class):
            leaves.extend(x.__class__([v]) for v in x._outputs)
            return 0 if len(x._outputs) == 1 else (0,) * len(x._outputs)
        if isinstance(x, NDArray):
            raise StructureError(
                f"{type(block).__name__} {block.name!r}: hybridized code must compute its outputs"
                " from its inputs, but it returned an NDArray that was not computed by the graph\n"
                "  fix: use F (or methods of the inputs) instead of nd, and Parameters or Constants"
                " instead of arrays"
            )
        return _constant("output", x, leaves)

    return flatten(value, (), other)


# ---- Symbols that escape into attributes ---------------------------------------------------------


class Leaked:
    """Replaces a traced Symbol that was left in an attribute; any use raises LeakedSymbolError."""

    __slots__ = ("_text",)

    def __init__(self, text: str):
        object.__setattr__(self, "_text", text)

    def _fail(self, *args, **kwargs):
        raise LeakedSymbolError(object.__getattribute__(self, "_text"))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self._fail()

    def __repr__(self):
        return "<a Symbol of a finished trace>"


for _name in (
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "mod",
    "rmod",
    "pow",
    "rpow",
    "neg",
    "matmul",
    "getitem",
    "len",
    "iter",
    "bool",
    "float",
    "int",
    "call",
    "array",
    "gt",
    "ge",
    "lt",
    "le",
):
    setattr(Leaked, f"__{_name}__", Leaked._fail)


def blocks_of(block: Any) -> Iterator[Any]:
    """A block and all its descendants, each once; works for deep nesting."""
    seen, stack = {block}, [block]
    while stack:
        found = stack.pop()
        yield found
        for child in reversed(found._children.values()):
            if child not in seen:
                seen.add(child)
                stack.append(child)


_PLAIN = {bool, int, float, str, type(None), dict}  # cannot hold a Symbol, or are not searched


def holds(value: Any, symbol_class: Any) -> bool:
    """Is value a Symbol, or a list (of lists) with one?"""
    if isinstance(value, (list, tuple)):
        return any(holds(v, symbol_class) for v in value)
    return isinstance(value, symbol_class)


def symbols_of(block: Any, symbol_class: Any) -> set[tuple]:
    """(block, attribute) pairs that hold Symbols."""
    return {
        (b, key)
        for b in blocks_of(block)
        for key, value in b.__dict__.items()
        if value.__class__ not in _PLAIN and not key.startswith("__") and holds(value, symbol_class)
    }


def seal_leaks(block: Any, symbol_class: Any, before: set[tuple]) -> None:
    """Replaces Symbols that a trace left in attributes, so that a later use names the attribute."""
    for b, key in symbols_of(block, symbol_class) - before:
        value = b.__dict__[key]
        lines = {
            v.node.source
            for s in (value if isinstance(value, (list, tuple)) else [value])
            if isinstance(s, symbol_class)
            for v in s._outputs
            if v.node.source
        }
        b.__dict__[key] = Leaked(
            f'{type(b).__name__} "{b.name}": the attribute self.{key} holds a Symbol of a trace,'
            " not an array: values that "
            "hybridized code stores exist only inside its graph\n  at:"
            f" {', '.join(sorted(lines)) or 'its forward'}"
            f"\n  fix: return it as an output, or do not hybridize this block"
        )


def compare(block: Any, eager: Any, graph: Any) -> None:
    """Raises MXNetError if the outputs of the two modes differ."""
    import numpy as np

    pairs = zip(*[flatten(v, NDArray, lambda *_: -1)[0] for v in (eager, graph)])
    for i, (a, b) in enumerate(pairs):
        x, y = a.asnumpy().astype(np.float64), b.asnumpy().astype(np.float64)
        if x.shape != y.shape or not np.allclose(x, y, rtol=1e-3, atol=1e-5, equal_nan=True):
            worst = (
                np.nanmax(np.abs(x - y))
                if x.shape == y.shape
                else f"shapes {x.shape} and {y.shape}"
            )
            raise MXNetError(
                f"hybridize(check=True): {type(block).__name__} {block.name!r}: output {i} differs"
                f" between eager and hybridized mode (largest difference {worst})\n  fix: look for"
                " Python state, randomness or values that became constants in the trace"
            )


def monitored(
    graph: Sequence[Value], variables: Sequence[Value], arrays: Any, hooks: Any
) -> list[NDArray]:
    """Runs a typed graph operator by operator, telling each hook: (callback, also inputs)."""

    def watcher(callback, inputs_too: bool) -> Watcher:
        return Watcher(
            lambda name, node, a: callback(name, node.operation.name, a), inputs_too, False
        )

    devices = {v: a._spec.device for v, a in zip(variables, arrays)}
    place = Placement(graph, devices, arrays[0].context)
    known = dict(zip(variables, arrays))
    return run_forward(graph, known, place.of, [watcher(*hook) for hook in hooks])
