"""HybridBlock: a block that can run as a graph; traced at its first call, then one program per
call."""

from __future__ import annotations

import inspect
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from .. import ndarray as nd
from ..engine import hooks, log
from ..engine.error import DynamicShape, InvalidValue, MissingMethod, MXNetError, OperatorError
from ..engine.gc_pause import gc_paused
from ..engine.recent import Recent
from ..graph.graph import topological
from ..graph.residuals import checked
from ..kernels import precision
from ..kernels.spec import DType, Spec
from ..ndarray import autograd, serialization
from ..ndarray.cached import difference
from ..ndarray.ndarray import NDArray, state
from ..ndarray.nesting import as_lists
from . import shard
from .block import Block
from .frozen import Frozen
from .parameter import DeferredInitializationError, dtype_name
from .trace import StructureError, Trace, arrays_only, compare, flatten_call, holds, monitored
from .tracing import tracing_state

if TYPE_CHECKING:
    from ..graph.report import MemoryReport, ProgramReport

MAX_TRACES = 2048  # signatures of a block that are traced,
MAX_NODES = 1 << 16  # and how many nodes different graphs may have in all
MAX_VARIANTS = 4  # traces that signatures which differ in sizes choose from


class _Format:
    """The nesting of inputs or outputs of a block's last trace, as `block._flatten` gives it; None
    before the first. Libraries that load graphs set it."""

    def __init__(self, structure: str):
        self._structure = structure

    def __get__(self, block, owner):
        trace = block and next(reversed(block._traces.values()), None)
        return trace and as_lists(getattr(trace, self._structure))


_tracing = threading.RLock()  # tracing writes into blocks and parameters: one thread at a time


def _forked() -> None:
    global _tracing
    _tracing = threading.RLock()  # the thread that held it does not exist in the child


os.register_at_fork(after_in_child=_forked)


def _weight(trace: Trace) -> int:
    """The nodes of a graph; those of a graph that several signatures share count once."""
    return 1 if trace.is_shared else len(topological(trace.symbol._outputs))


class HybridBlock(Block):
    """A block whose computation can become a graph: `hybrid_forward(F, x, ..., **parameters)` runs
    with F = nd or F = sym.

    After `hybridize()` the first call with given shapes traces hybrid_forward; later calls run the
    graph as one program. A subclass that overrides `forward` runs it in Python at every call;
    `super().forward(...)` and the blocks inside run as graphs.
    """

    _in_format, _out_format = _Format("in_structure"), _Format("structure")
    _FOUND = (*Block._FOUND, "_traces", "_distinct", "_of_any_sizes")
    _frozen: Frozen | None = None
    _n_data: int  # of a forward whose shapes depend on values: its inputs

    def __init__(self, prefix: str | None = None, params: Any = None):
        super().__init__(prefix, params)
        self._active = self._check = False
        self._recompute: bool | float | str = False
        self._traces = Recent(MAX_TRACES, MAX_NODES, _weight)
        self._distinct: WeakValueDictionary[tuple, Trace] = WeakValueDictionary()
        self._of_any_sizes: WeakValueDictionary[tuple, Trace] = WeakValueDictionary()
        self._structure: Any = None
        self._op_hooks: list[tuple] = []
        self._dynamic = self._asks_recording = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clear_traces()

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if isinstance(value, Block):
            self._clear_traces()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Makes block, which must be a HybridBlock, a child. Raises ValueError."""
        if not isinstance(block, HybridBlock):
            raise ChildError(
                f"Children of HybridBlock must also be HybridBlock, but {block} has type"
                f" {type(block)}. If you are using Sequential, please try HybridSequential instead."
            )
        super().register_child(block, name)
        self._clear_traces()

    def _clear_traces(self):
        self.__dict__["_traces"] = Recent(MAX_TRACES, MAX_NODES, _weight)
        self.__dict__["_distinct"] = WeakValueDictionary()
        self.__dict__["_of_any_sizes"] = WeakValueDictionary()
        self.__dict__["_structure"] = None
        self.__dict__["_dynamic"] = self.__dict__["_asks_recording"] = False

    def _clear_cached_op(self):
        """MXNet's name of _clear_traces; gluoncv calls it."""
        self._clear_traces()

    def hybridize(
        self,
        active: bool = True,
        backend: str | None = None,
        clear: bool = True,
        static_alloc: bool = False,
        static_shape: bool = False,
        inline_limit: int = 2,
        forward_bulk_size: Any = None,
        backward_bulk_size: Any = None,
        *,
        backend_opts: Any = None,
        partition_if_dynamic: bool = True,
        check: bool = False,
        recompute: bool | float | str | None = None,
        **kwargs: Any,
    ) -> None:
        """Switches graph execution on or off, for the children too.

        Args:
            backend, clear, static_alloc, static_shape, inline_limit, forward_bulk_size,
                backward_bulk_size, backend_opts, partition_if_dynamic: accepted for compatibility
                    with MXNet; plait plans the memory of every graph, and outputs are always new
                    arrays.
            check: compares eager and graph outputs at the first call.
            recompute: what backward recomputes instead of storing it in forward, trading time (at
                most one more forward) for memory. True: all but a few boundary values, chosen for
                the least cost. "blocks": all but the results of blocks that have children (layers
                and containers of gluon.nn aside). A fraction, 0 < f <= 1: enough to reduce the
                stored values below f of what would be stored. "mirror": all but the costly
                operators, as MXNET_BACKWARD_DO_MIRROR does. None or False: only what costs nothing,
                and operators with the attribute force_mirroring. Gradients stay the same, dropout
                masks too.
        Raises: MXNetError for unknown arguments, ValueError for another `recompute`.
        Source: Chen et al. 2016, arXiv:1604.06174.
        """
        if kwargs:
            raise MXNetError(
                f"hybridize: flag {next(iter(kwargs))!r} is unknown, the flags are"
                f" {', '.join(FLAGS)}"
            )
        if static_shape and not static_alloc:
            raise MXNetError("hybridize: static_shape=True requires static_alloc=True")
        self._active, self._check = active, check
        self._recompute = checked(recompute)
        self._clear_traces()
        if self._forward_hooks or self._forward_pre_hooks:
            warnings.warn(
                f'"{self.name}" is being hybridized while still having forward hook/pre-hook. If'
                f' "{self.name}" is a child of HybridBlock, the hooks will not take effect.',
                stacklevel=2,
            )
        super().hybridize(active, recompute=recompute)

    def freeze(self) -> None:
        """For prediction: keeps the weights once. The first call compiles the network and frees
        each parameter that its program reads only in a prepared form: folded with a batch norm, or
        in another memory layout. Results are those of the compiled network, bit for bit.

        Other shapes work; they share the prepared weights. A frozen network does not train, and
        freed parameters cannot be read, saved or exported: do that before. `load_parameters`,
        or any other new value of a parameter, makes it an ordinary network again. Raises
        MXNetError, at the call: shapes that depend on values, several devices in one call.
        """
        self._frozen = Frozen(self)

    def cast(self, dtype: DType) -> None:
        """Changes the dtype of all parameters."""
        self._clear_traces()
        super().cast(dtype)

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Calls `callback(output name, operator name, array)` for each operator of the hybridized
        graph."""
        self._op_hooks.append((callback, monitor_all))

    # ---- calling ---------------------------------------------------------------------------------

    def _call(self, *args):
        if self._forward_pre_hooks:
            for hook in list(self._forward_pre_hooks.values()):
                hook(self, args)
        out = self.forward(*args)
        if tracing_state.tracer is not None:
            tracing_state.tracer.left(self, out)
        if self._forward_hooks:
            for hook in list(self._forward_hooks.values()):
                hook(self, args, out)
        return out

    def forward(self, x: Any, *args: Any) -> Any:
        """Calls hybrid_forward with the parameters, on arrays or on Symbols; when hybridized, on
        arrays as a graph."""
        if tracing_state.tracer is None and not tracing_state.eager:
            if self._frozen is not None:
                return self._frozen((x, *args))
            if self._active:
                return self._call_graph((x, *args))
        return self._run(x, *args)

    def _run(self, x, *args):
        """hybrid_forward with the parameters, on arrays or on Symbols."""
        if not isinstance(x, NDArray):
            x_is_symbol, x_first = self._kind(x, args)
            if x_is_symbol:
                with self.name_scope():
                    params = {name: p.var() for name, p in self._reg_params.items()}
                    return self.hybrid_forward(_sym(), x, *args, **params)
        else:
            x_first = x
            if args and holds(args, object_with_data()[1:]):
                raise MixedInputs
        try:
            if not self._reg_params:
                return self.hybrid_forward(nd, x, *args)
            ctx = x_first._spec.device
            try:
                params = {name: p._data_on(ctx) for name, p in self._reg_params.items()}
            except DeferredInitializationError:
                Trace.complete(self, (x, *args), state.training)
                params = {name: p._data_on(ctx) for name, p in self._reg_params.items()}
            return self.hybrid_forward(nd, x, *args, **params)
        except OperatorError as error:
            sharded = [p.name for p in self._reg_params.values() if p._part is not None]
            if sharded:
                raise MXNetError(
                    f"{type(self).__name__} {self.name!r}: blocks with sharded parameters"
                    f" ({', '.join(sharded)}) run only as part of a graph\n  fix: net.hybridize(),"
                    " of the block that is called"
                ) from error
            error.locate(f'{type(self).__name__} "{self.name}"')
            raise

    @staticmethod
    def _kind(x, args):
        """(is there a Symbol, the first NDArray) among nested inputs. Raises StructureError without
        either."""
        flat, _ = flatten_call((x, *args), object_with_data(), "input")
        symbols = [leaf for leaf in flat if not isinstance(leaf, NDArray)]
        if symbols and len(symbols) < len(flat):
            raise MixedInputs
        if symbols:
            return True, None
        if not flat:
            raise StructureError(
                "In HybridBlock, there must be one NDArray or one Symbol in the input. Please"
                f" check the type of the args: {type(x).__name__}"
            )
        return False, flat[0]

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        """The computation, to be defined by subclasses. F: nd or sym; kwargs: the parameters by
        attribute name."""
        raise MissingMethod(f"{type(self).__name__} must define hybrid_forward(self, F, x, ...)")

    def _why_no_graph(self) -> str:
        """Advice for running a block as a graph whose forward is overridden: a line of text, or
        ""."""
        if type(self).forward is HybridBlock.forward and "forward" not in self.__dict__:
            return ""
        name = type(self).__name__
        return f"\n  fix: {name}.forward runs in Python: compute in {name}.hybrid_forward"

    def _arguments(self, *args):
        """The arguments of a call that forward takes: all, unless the block's calls add some."""
        return args

    def _call_graph(self, args):
        try:
            specs, flat = [a._spec for a in args], args
        except AttributeError:  # nested inputs, or None
            flat, structure = flatten_call(args, object_with_data(), "input")
            if any([not isinstance(a, NDArray) for a in flat]):
                return self._run(*args)
            specs = [*[a._spec for a in flat], structure]
        mode = trace_mode(self, flat)
        trace = self._traces[mode, *specs]
        if trace is None:
            if not flat:
                raise StructureError(
                    "In HybridBlock, there must be one NDArray or one Symbol in the input. Please"
                    f" check the type of the args: {', '.join(type(a).__name__ for a in args)}"
                )
            if self._dynamic:  # shapes depend on values: only the blocks inside run as graphs
                return self._run(*args)
            structure = (0,) * len(args) if flat is args else structure
            try:
                trace = self._trace((mode, *specs), args, structure)
            except DynamicShape:
                self.__dict__["_dynamic"], self.__dict__["_n_data"] = True, len(flat)
                return self._run(*args)
        if self._op_hooks:
            graph, arrays = (trace.graph.outputs, trace.graph.inputs), trace.held.arrays()
            return trace.outputs(monitored(*graph, [*flat, *arrays], self._op_hooks))
        made = trace.graph(flat, trace.held)
        return made[0] if trace.structure == 0 else trace.outputs(made)

    def _trace(self, key, args, structure) -> Trace:
        with _tracing:
            found = self._traces.get(key) or self._of_other_sizes(key)
            return found or self._new_trace(key, args, structure)

    def _of_other_sizes(self, key: tuple) -> Trace | None:
        """The trace of a signature that differs in sizes alone, if that asked for none of them."""
        specs, rest = [s for s in key[1:] if isinstance(s, Spec)], without_sizes(key)
        for i in range(MAX_VARIANTS):
            found = self._of_any_sizes.get((rest, i))
            if found is not None and found.serves(specs):
                found.is_shared = True
                self._traces[key] = found
                return found
        return None

    def _new_trace(self, key, args, structure) -> Trace:
        if self._structure is not None:
            before, now = arrays_only(self._structure), arrays_only(structure)
            if _given(before) != _given(now):
                raise StructureError(
                    "The argument structure of HybridBlock does not match the cached version."
                    f" Stored format = {before}, input format = {now}"
                )
        with gc_paused():
            trace = Trace(self, args, state.training)
        if trace.asks_recording:  # the graph is used for this result only
            self.__dict__["_asks_recording"] = True
            key = (trace_mode(self, args), *key[1:])
        trace.finish_parameters()
        if self._structure is None:
            self._warn_of_unused(trace)
            if self._check:
                trace.compile(self.name)
                self._compare_modes(trace, args)
        trace.compile(self.name, self._recompute)
        found = self._shared(key[0], trace)
        if found is trace and log.wants("hybridize"):
            log.write("hybridize", self._reason(key))
        self._structure = structure
        self._traces[key] = found
        if trace.any_sizes and not trace.has_own_code():
            rest = without_sizes(key)
            used = [i for i in range(MAX_VARIANTS) if (rest, i) in self._of_any_sizes]
            self._of_any_sizes[rest, len(used) % MAX_VARIANTS] = found
        return found

    def _warn_of_unused(self, trace: Trace) -> None:
        trace.warn_of_unused(self)

    def _shared(self, mode: int, trace: Trace) -> Trace:
        """The trace that stands for all signatures with an equal graph: what differs is in the
        entries of its graph, one for each signature."""
        if not self._traces:
            return trace
        if not self._distinct:  # the first trace had none to be equal to
            for (m, *_), first in list(self._traces.items()):
                self._distinct[(m, *(first.equal_graphs() or (first,)))] = first
        graph = trace.equal_graphs()
        if graph is None:
            return trace
        found = self._distinct.setdefault((mode, *graph), trace)
        found.is_shared = found is not trace
        return found

    def _reason(self, key) -> str:
        """Why a trace was made."""
        specs = [s for s in key[1:] if isinstance(s, Spec)]
        now = f"{self.name}: traced for {', '.join(map(str, specs))}"
        now += " while training" if key[0] & 1 else " to predict"
        if len(self._traces) == 0:
            return f"{now}: first call"
        last = list(self._traces)[-1]
        return f"{now}: {difference(last[1:], key[1:], last[0] & 1 != key[0] & 1)}"

    def _compare_modes(self, trace, args):
        flat, _ = flatten_call(args, NDArray, "input")
        with autograd.pause(train_mode=False):
            graph = trace.outputs(trace.graph(flat, trace.held))
            compare(self, self._run_eager(args), graph)

    def _run_eager(self, args):
        tracing_state.eager = True
        try:
            return self._run(*args)
        finally:
            tracing_state.eager = False

    # ---- reports ---------------------------------------------------------------------------------

    def hybrid_report(self) -> ProgramReport:
        """The graphs of this block and their costs: prints as a table with a line for each program.

        >>> net = gluon.nn.Dense(2)
        >>> net.initialize()
        >>> net.hybridize()
        >>> _ = net(nd.ones((4, 3)))
        >>> [(row.kind, row.hits) for row in net.hybrid_report().rows]
        [('predict', 1)]
        """
        from . import report

        return report.hybrid_report(self)

    def memory_report(self, *args: Any) -> MemoryReport:
        """The memory use of a call with these inputs, and of a training step, in bytes. Compiles,
        but runs nothing.

        >>> net = gluon.nn.Dense(2)
        >>> net.initialize()
        >>> net.memory_report(nd.ones((4, 3))).training["gradients"]
        32
        """
        from . import report

        return report.memory_report(self, args)

    # ---- shapes, dtypes --------------------------------------------------------------------------

    def infer_shape(self, *args: Any) -> None:
        """Infers the unknown shapes of parameters from inputs of known shape."""
        trace = Trace(self, self._arguments(*args), state.training)
        for p, v in zip(trace.params, trace.param_values):
            p.shape = v.shape

    def infer_type(self, *args: Any) -> None:
        """Infers the parameters' dtypes from the inputs' dtypes."""
        trace = Trace(self, self._arguments(*args), state.training)
        for p, v in zip(trace.params, trace.param_values):
            p.dtype = dtype_name(v.dtype)

    # ---- files -----------------------------------------------------------------------------------

    def _graphs(self) -> list:
        """The CachedGraphs of this block's calls."""
        return [trace.graph for trace in dict.fromkeys(list(self._traces.values()))]

    def _any_trace(self) -> Trace:
        if not self._traces:
            raise MXNetError(
                "Please first call block.hybridize() and then run forward with this block at least"
                " once before calling export." + self._why_no_graph()
            )
        return next(iter(self._traces.values())).without_messages(self)

    def _traced_symbol(self):
        """The graph that ran first, and the Symbols of its data."""
        trace = self._any_trace()
        return trace.symbol, trace.data

    def _untyped(self):
        """The graph of a forward whose shapes depend on values, traced without shapes."""
        sym, n = _sym(), self._n_data
        names = ["data"] if n == 1 else [f"data{i}" for i in range(n)]
        out = self._run(*map(sym.var, names))
        return out if isinstance(out, sym.Symbol) else sym.Group(list(out))

    def export(
        self, path: str | PathLike[str], epoch: int = 0, remove_amp_cast: bool = True
    ) -> None:
        """Writes `path-symbol.json` and `path-%04d.params` (epoch), which SymbolBlock.imports and
        MXNet read.

        The block must be hybridized and have run once.
        """
        symbol = self._untyped() if self._dynamic else self._any_trace().symbol
        auxiliary, arguments = set(symbol.list_auxiliary_states()), set(symbol.list_arguments())
        arrays = {}
        for name, parameter in self.collect_params().items():
            if name in arguments:
                arrays[f"arg:{name}"] = parameter._reduce()
            elif name in auxiliary:
                arrays[f"aux:{name}"] = parameter._reduce()

        def write() -> None:
            symbol.save(f"{path}-symbol.json", remove_amp_cast=remove_amp_cast)
            serialization.save(f"{path}-{epoch:04d}.params", arrays)

        shard.write(self.collect_params().values(), write)

    def export_onnx(
        self,
        path: str | PathLike[str],
        *args: Any,
        dynamic_input_shapes: Sequence[Any] | None = None,
        opset_version: int = 17,
        verify: bool = False,
    ) -> str:
        """Writes the network as it predicts as an ONNX file, and returns its path.

        args: inputs; without them, the block must be hybridized and have run once.
        dynamic_input_shapes: for each input a shape in which sizes that vary are None or a name:
            [("batch", 3, 224, 224)]. Without it, sizes are fixed. opset_version, verify, errors: as
            for mx.onnx.export_model.
        """
        if args:
            with autograd.predict_mode():
                self(*args)  # completes parameters whose shapes depend on the input
            trace = Trace(self, self._arguments(*args), False)
        else:
            trace = self._any_trace()
        arrays = {n: p._reduce() for n, p in self.collect_params().items()}
        data = {x.name: x for x in trace.data if x.name not in trace.unused}
        sizes = dynamic_input_shapes
        if sizes is not None and len(sizes) == len(trace.data):
            named = {x.name: s for x, s in zip(trace.data, sizes)}
            sizes = [named[name] for name in data]
        return hooks.get("export to ONNX")(
            trace.symbol,
            arrays,
            {name: x.shape for name, x in data.items()},
            [x.dtype for x in data.values()],
            path,
            dynamic_input_shapes=sizes,
            opset_version=opset_version,
            verify=verify,
        )

    def optimize_for(
        self, x: Any, *args: Any, backend: str | None = None, clear: bool = False, **kwargs: Any
    ) -> Any:
        """Hybridizes for the given inputs: traces and compiles now, and runs once. Returns the
        outputs.

        backend, clear: accepted, without effect: there is one compiler, which compiles every
            repeated graph anyway.
        kwargs: as for hybridize.
        """
        self.hybridize(True, backend, clear, **kwargs)
        return self(x, *args)


FLAGS = [name for name in inspect.signature(HybridBlock.hybridize).parameters][2:-1]


def without_sizes(key: tuple) -> tuple:
    """What signatures that differ in sizes alone have in common."""
    return tuple(
        [(len(s.shape), s.dtype, s.device, s.stype) if isinstance(s, Spec) else s for s in key]
    )


def trace_mode(block: HybridBlock, args: Sequence[Any]) -> int:
    """What a trace depends on besides the specs of its inputs: training (bit 0), recording if the
    trace queried it (bit 1), the rules of nd or of mx.np (bit 2), the mixed-precision policy."""
    mode = state.training + 2 * (block._asks_recording and state.recording)
    for a in args:
        if a.__class__ is not NDArray and _follows_np(a):
            mode += 4
            break
    return mode + 8 * precision.number() if precision.used else mode


def _follows_np(value: Any) -> bool:
    """Is a (nested) input an array of mx.np?"""
    if isinstance(value, (list, tuple)):
        return any([_follows_np(v) for v in value])
    return isinstance(value, NDArray) and value.stype == "default" and type(value) is not NDArray


def _given(structure: list) -> list:
    """A structure of inputs without trailing None, the default values of arguments."""
    n = len(structure)
    while n and structure[n - 1] == -1:
        n -= 1
    return structure[:n]


class MixedInputs(StructureError):
    """NDArrays mixed with Symbols."""

    def __str__(self):
        return (
            "In HybridBlock, we do not support mixed NDArrays and Symbols types for the input."
            " Please check the type of the args.\n  fix: an array that a block needs is a Parameter"
            " or Constant of it"
        )


class ChildError(InvalidValue):
    """An invalid child of a block."""


def _sym():
    from .. import symbol

    return symbol


_leaf_classes: tuple = ()


def object_with_data() -> Any:
    """The classes of leaves: NDArray and, once graphs are in use, Symbol."""
    global _leaf_classes
    if len(_leaf_classes) < 2:
        import sys

        module = sys.modules.get(f"{__package__.rpartition('.')[0]}.symbol.symbol")
        _leaf_classes = (NDArray, module.Symbol) if module is not None else (NDArray,)
    return _leaf_classes
