"""HybridBlock.freeze: a network that only predicts, and keeps its weights once, as its kernels read
them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine import Context, location
from ..engine.error import DynamicShape, MXNetError
from ..engine.gc_pause import gc_paused
from ..graph.frozen import Missing, Prepared
from ..graph.graph import Value
from ..graph.inference import typed_graph
from ..graph.program import Program
from ..kernels.spec import Spec, spec
from ..ndarray.ndarray import NDArray, state
from .parameter import Parameter
from .trace import Trace, blocks_of, flatten_call


class Call(NamedTuple):
    """What runs for inputs of given specs. parameters: those that it reads as they are."""

    program: Program
    parameters: list[Parameter]
    trace: Trace


class TypedTrace(NamedTuple):
    """The graph of a trace with types: what graph.frozen.Prepared asks for. arrays: of the
    parameters, None where one was released."""

    outputs: list[Value]
    data: list[Value]
    parameters: list[Value]
    names: list[str]
    arrays: list[Any]


def typed_trace(trace: Trace, specs: Sequence[Spec], device: Context) -> TypedTrace:
    """The graph of a compiled trace for inputs of these specs, without training."""
    graph = trace.graph
    assert graph is not None
    arrays = [p._data_on(device) if p._data is not None else None for p in trace.params]
    types = {v.node: s.type for v, s in zip(graph.inputs, specs)}
    known = graph.inputs[len(specs) :]
    for v, p in zip(known, trace.params):
        types[v.node] = v.type._replace(shape=p._sizes())
    typed = typed_graph([*graph.outputs, *graph.inputs], types, False)
    n, end = len(graph.outputs), len(graph.outputs) + len(specs)
    return TypedTrace(typed[:n], typed[n:end], typed[end:], [p.name for p in trace.params], arrays)


class Frozen:
    """The programs of a frozen block, by the specs and the nesting of its inputs."""

    def __init__(self, block: Any):
        """block: a HybridBlock."""
        self.block, self.prepared = block, Prepared()
        self.calls: dict[tuple, Call] = {}
        self.parameters: dict[Parameter, None] = {}  # of the first trace

    def __call__(self, args: Sequence[Any]) -> Any:
        name = self.block.name
        if state.recording or state.training:
            raise MXNetError(
                f"freeze: {name} is frozen and only predicts, but autograd records or trains\n"
                "  fix: net.load_parameters(file) makes it an ordinary network again"
            )
        flat, structure = flatten_call(args, NDArray, "input")
        if not flat:
            raise MXNetError(f"freeze: {name} must be called with at least one array")
        key = (structure, *[a._spec for a in flat])
        call = self.calls.get(key)
        if call is None:
            with gc_paused():
                call = self._first_call(key, args)
        device = flat[0]._spec.device
        arrays = [*flat, *[p._data_on(device) for p in call.parameters]]
        where = location.capture() if call.program.can_fail else -1
        return call.trace.outputs(call.program.run(arrays, (), where))

    def _first_call(self, key: tuple, args: Sequence[Any]) -> Call:
        structure, *specs = key
        try:
            trace = Trace(self.block, args, False)
        except DynamicShape as error:
            raise MXNetError(
                f"freeze: {self.block.name} has shapes that depend on values, so it has no program"
            ) from error
        trace.finish_parameters()
        trace.compile(self.block.name)
        device = specs[0].device
        if trace.sharded or any(c != device for _, c in trace.placed):
            raise MXNetError(
                f"freeze: {self.block.name} must run on one device, and its parameters must not be"
                " split"
            )
        begins = not self.parameters
        devices = [device]
        if begins:  # on all devices that have parameters, before these are freed
            contexts = dict.fromkeys(c for p in trace.params for c in p.list_ctx())
            devices = [device, *(c for c in contexts if c != device)]
        for d in devices:
            moved = [spec(s.shape, s.dtype, d) for s in specs]
            self.calls[(structure, *moved)] = self._compiled(trace, moved, d)
        if begins:
            self.parameters = dict.fromkeys(trace.params)
            read = {p for call in self.calls.values() for p in call.parameters}
            for block in blocks_of(self.block):  # their programs hold parameters
                getattr(block, "_clear_traces", lambda: None)()
            for p in trace.params:
                p._frozen = self
                if p not in read:
                    p._data, p._grad, p._freed = None, None, True
            device.empty_cache()  # else the memory stays in the pool
        return self.calls[key]

    def _compiled(self, trace: Trace, specs: Sequence[Spec], device: Context) -> Call:
        typed = typed_trace(trace, specs, device)
        arrays, names = typed.arrays, typed.names
        given = *typed, device, self.block.name
        try:
            program, reads = self.prepared.program(*given)
        except Missing as missing:
            raise self._gone(str(missing), specs) from None
        if gone := [names[i] for i in reads if arrays[i] is None]:
            raise self._gone(", ".join(gone), specs)
        return Call(program, [trace.params[i] for i in reads], trace)

    def _gone(self, names: str, specs: Sequence[Spec]) -> MXNetError:
        return MXNetError(
            f"freeze: {self.block.name} needs {names} in another form for"
            f" {', '.join(map(str, specs))}, but only what the first call needs was kept\n  fix:"
            " net.load_parameters(file), and call it with these inputs before any others"
        )

    def end(self) -> None:
        """A parameter got a new value: the block is an ordinary one again."""
        for p in self.parameters:
            p._frozen = None
        if self.block._frozen is self:
            self.block._frozen = None
