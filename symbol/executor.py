"""Executor: a graph bound to arrays. It runs programs: one to predict, one forward that keeps what
backward reads, one backward. A monitor makes it run operator by operator."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..engine import Context, lib, location
from ..engine.error import DynamicShape, InvalidValue, MXNetError, ShapeError
from ..engine.gc_pause import gc_paused
from ..graph.effects import variables_of
from ..graph.graph import Node, Value, as_python
from ..graph.inference import typed_graph
from ..graph.names import output_name, output_names
from ..graph.placement import Placement, grouped, without_copies
from ..graph.residuals import checked
from ..graph.runner import ROWS, Forward, MissingHeadGradient, Signature
from ..kernels.spec import spec
from ..kernels.traits import LossLayer
from ..ndarray.autograd import pause
from ..ndarray.backward import deliver_rows
from ..ndarray.creation import zeros
from ..ndarray.interpreter import call
from ..ndarray.launch import copy_into
from ..ndarray.monitored import Watcher, run_backward, run_forward
from ..ndarray.ndarray import NDArray, check_nd, empty_like_spec
from ..ndarray.sparse.graphs import infer_storage
from .arrays import BoundArrays, keep_memory, reshaped
from .storage import StorageRun, keep

if TYPE_CHECKING:
    from ..graph.report import MemoryReport, ProgramReport


class _Mode(Signature):
    """The Signature of an executor for a value of `train`, with gradients or without.

    owner: the executor. placement: where nodes run; None if all on one device. versions: of the
    arrays when this was made. n_backward: the runs of each gradient program.
    """

    owner: weakref.ref[Executor]
    placement: Placement | None
    versions: list[int]
    n_backward: Counter[tuple]

    def in_use(self) -> bool:
        return self.owner() is not None

    def place(self, node: Node) -> Context:
        """The device of a node."""
        return self.device if self.placement is None else self.placement.of(node)


class _Last(NamedTuple):
    """The last training forward, and what backward may read of it: the inputs and what the program
    returned. seen: every value, where a monitor saw it."""

    mode: _Mode
    forward: Forward
    inputs: list[NDArray]
    made: list[NDArray]
    seen: dict[Value, NDArray] | None = None


class Executor(BoundArrays):
    """A Symbol bound to arrays; made by Symbol.bind and simple_bind.

    arg_arrays, grad_arrays (None where none is wanted), aux_arrays: in the order of list_arguments
    and list_auxiliary_states. outputs: the arrays that the last forward wrote.
    """

    def __init__(
        self,
        symbol: Any,
        ctx: Context,
        args: list[NDArray],
        grads: list[NDArray | None] | None,
        requests: list[str],
        aux: list[NDArray],
        group2ctx: dict[str, Context] | None = None,
        recompute: bool | float | str | None = None,
        data: Sequence[str] = (),
    ):
        """recompute: see Symbol.bind. data: names of the arguments that reports show."""
        self._recompute = checked(recompute, "bind", blocks=False)
        self._symbol, self._ctx, self._group2ctx = symbol, ctx, group2ctx
        self._values = list(symbol._outputs)
        self._arguments, self._auxiliary = variables_of(self._values)
        self._nodes = self._arguments + self._auxiliary
        named = [i for i, n in enumerate(self._arguments) if n.name in data]
        self._data = named or list(range(len(self._arguments)))[:1]
        self._losses = [is_loss(v) for v in without_copies(self._values)]
        self.arg_arrays, self.aux_arrays = list(args), list(aux)
        self.grad_arrays = None if grads is None else list(grads)
        self._requests = [
            r if grads is not None and grads[i] is not None else "null"
            for i, r in enumerate(requests)
        ]
        self._monitor: Callable | None = None
        self._monitor_all = False
        self._modes: dict[tuple[bool, bool], _Mode] = {}  # by `train`, and with gradients?
        self._monitored: dict[bool, tuple[_Mode, Forward]] = {}  # what a monitor sees: tier 0
        self._last: _Last | None = None
        self._train = False
        # the graph is compiled for these types: an array put in an array's place must be the same
        self._types = {n: a._spec.type for n, a in zip(self._nodes, [*args, *aux])}
        self._storage: StorageRun | None = None
        self._storage_trained = False  # the last forward through it was a training
        self._dynamic = False
        try:
            typed = self._typed(False)
        except DynamicShape:
            self._dynamic, self._result = True, []
            self._storage = StorageRun(self._values, self._nodes)
            return
        typed = typed[: len(self._values)]
        values, placement = self._placed(typed)
        arrays = self.arg_arrays + self.aux_arrays
        stored = infer_storage(self._values, {n: a.stype for n, a in zip(self._nodes, arrays)})
        stypes = {g.stype for g in self.grad_arrays or () if g is not None}
        sparse = "csr" in stypes or any(s != "default" for s in stored.values())
        self._storage = StorageRun(self._values, self._nodes) if sparse else None
        devices = [placement.of(v.node) if placement else ctx for v in values]
        self._result = [
            empty_like_spec(spec(v.shape, v.dtype, device))
            if stored[plain] == "default"
            else zeros(v.shape, device, v.dtype, stype=stored[plain])
            for plain, v, device in zip(self._values, typed, devices)
        ]

    def _typed(self, train: bool) -> list[Value]:
        """The outputs of the typed graph, then its arguments and auxiliary states."""
        variables = [Value(n) for n in self._nodes]
        return typed_graph([*self._values, *variables], self._types, train)

    def _placed(self, values: Sequence[Value]) -> tuple[list[Value], Placement | None]:
        """A form of the graph with the copies between devices, and where its nodes run; None where
        all run on one device."""
        return grouped(values, self._ctx, self._group2ctx)

    # ---- running ---------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Computes the outputs. kwargs: new values of arguments, NDArray or NumPy of the bound
        shape.

        Raises TypeError for an unknown argument, ValueError for a wrong shape.
        """
        if kwargs:
            self._set_arguments(kwargs)
        self._train, self._last = bool(is_train), None
        arrays = self.arg_arrays + self.aux_arrays
        if self._storage is not None:
            self._run_storage(self._train)
        elif self._monitor is not None:
            self._run_monitored(arrays)
        elif is_train and any(r != "null" for r in self._requests):
            self._run_training(arrays)
        else:
            program = self._mode(False).use().program
            program.run(arrays, self._result, location.capture() if program.can_fail else -1)
        return self.outputs

    def _run_storage(self, train: bool):
        def compute(node, inputs):
            return call(node, inputs, self._ctx)

        if self._monitor is not None:
            compute = self._watcher.watch(compute)
        arrays = self.arg_arrays + self.aux_arrays
        grads = self.grad_arrays or [None] * len(self.arg_arrays)
        assert self._storage is not None
        made = self._storage.forward(arrays, grads, self._requests, train, compute)
        if self._dynamic:
            self._result = made
        else:
            keep(made, self._result)
        self._storage_trained = train

    def _mode(self, records: bool) -> _Mode:
        """What counts the next forward."""
        mode = self._modes.get((self._train, records))
        if mode is None:
            with gc_paused():
                mode = self._signature(self._train, records)
                mode.begin()
            self._modes[self._train, records] = mode
        if not self._train and not mode.queued and mode.hits + 1 >= mode.due:
            pairs = zip(mode.versions, self._versions())
            mode.stable = [i for i, (before, now) in enumerate(pairs) if before == now]
        return mode

    def _signature(self, train: bool, records: bool) -> _Mode:
        values, placement = self._placed(self._typed(train))
        n = len(self._values)
        values, variables = values[:n], values[n:]
        devices = [placement.of(v.node) if placement else self._ctx for v in variables]
        grads = self.grad_arrays or [None] * len(self._arguments)
        asked = [
            ROWS if r != "null" and g is not None and g.stype == "row_sparse" else r
            for g, r in zip(grads if records else (), self._requests)
        ]
        mode = _Mode(
            "forward",
            lambda source: (values, variables, ()),
            [spec(v.shape, v.dtype, device) for v, device in zip(variables, devices)],
            self._ctx,
            requests=asked + ["null"] * (len(variables) - len(asked)),
            data=self._data,
            recompute=self._recompute,
            mode=(train, records),
        )
        mode.owner, mode.placement = weakref.ref(self), placement
        mode.versions, mode.n_backward = self._versions(), Counter()
        return mode

    def _versions(self) -> list[int]:
        """How often each argument and auxiliary state was written."""
        arrays = self.arg_arrays + self.aux_arrays
        return [lib.pl_array_version(a._handle) if a.stype == "default" else 0 for a in arrays]

    def _run_training(self, arrays: list[NDArray]):
        mode = self._mode(True)
        forward = mode.use()
        program = forward.program
        made = program.run(arrays, self._result, location.capture() if program.can_fail else -1)
        self._last = _Last(mode, forward, arrays, made)

    def backward(self, out_grads: Any = None, is_train: bool = True) -> None:
        """Computes the gradients of the arguments into grad_arrays, as grad_req says.

        out_grads: gradients of the outputs: an NDArray, a list, or a dict by output name; other
            dtypes are converted. May be left out where no gradient reads it: for losses, after
            BlockGrad, for comparisons. What goes beyond the outputs is ignored.
        Without a forward before it, that is run first. Raises MXNetError where a head gradient is
        missing, ShapeError where its shape is wrong.
        """
        if all(r == "null" for r in self._requests):
            return
        grads = self._head_grads(out_grads)
        if self._storage is not None:
            if not self._storage_trained:
                self._run_storage(True)
            for i, (g, loss) in enumerate(zip(grads, self._losses)):
                if g is None and not loss:
                    raise self._missing(i)
            self._storage.backward(grads)
            return
        if self._last is None:  # the last forward was a prediction
            self._run_training(self.arg_arrays + self.aux_arrays)
        assert self._last is not None and self.grad_arrays is not None
        mode, forward, inputs, made, seen = self._last
        # a loss needs no head gradient, nor does an output whose gradient nothing reads
        with_grad = tuple(
            [True if g is not None else False if x else None for g, x in zip(grads, self._losses)]
        )
        try:
            back = forward.gradient(with_grad)
        except MissingHeadGradient as error:
            raise self._missing(error.index) from None
        mode.n_backward[with_grad] += 1
        of: dict[str, Sequence] = {
            "input": inputs,
            "saved": made,
            "head_grad": grads,
            "grad": self.grad_arrays,
        }
        results = back.program.run(
            [of[at[0]][at[-1]] for at in back.sources],
            [self.grad_arrays[i] for i in back.written],
            location.capture() if back.program.can_fail else -1,
        )
        for i, parts in back.rows:
            with pause():
                deliver_rows(self.grad_arrays[i], parts, results, self._requests[i] == "add")
        if self._monitor is not None and seen is not None:
            run_backward(forward.outputs, seen, grads, mode.place, self._watcher)

    def _head_grads(self, out_grads) -> list[NDArray | None]:
        if isinstance(out_grads, NDArray):
            out_grads = [out_grads]
        if isinstance(out_grads, dict):
            out_grads = [out_grads.get(n) for n in output_names(self._values)]
        n = len(self._values)
        grads = [*(out_grads or ()), *[None] * n][:n]
        for i, (g, out) in enumerate(zip(grads, self._result)):
            if g is None:
                continue
            check_nd(g, "backward: every head gradient")
            if g.shape != out.shape:
                raise ShapeError(
                    "backward",
                    f"a head gradient must have its output's shape {out.shape}, got {g.shape}",
                )
            if g._spec is not out._spec:
                grads[i] = g.astype(out._spec.dtype, copy=False).as_in_context(out.context)
        return grads

    def _missing(self, i: int) -> MXNetError:
        return MXNetError(
            "backward: Because the last operator is not Loss function, head_gradient is required"
            f" when calling backward; {output_name(self._values[i])} has none\n"
            "  fix: backward(out_grads=...), or pass the output through make_loss"
        )

    # ---- the monitor -----------------------------------------------------------------------------

    def set_monitor_callback(self, callback: Callable | None, monitor_all: bool = False) -> None:
        """Calls callback(name, NDArray) for the outputs of every operator (monitor_all: its inputs
        too) at forward, and for the gradients that it gives to its inputs at backward."""
        self._monitor, self._monitor_all = callback, monitor_all

    @property
    def _watcher(self) -> Watcher:
        see = self._monitor
        assert see is not None
        return Watcher(lambda name, node, a: see(name, a), self._monitor_all, True)

    def _run_monitored(self, arrays: list[NDArray]):
        records = self._train and any(r != "null" for r in self._requests)
        found = self._monitored.get(self._train)
        if found is None:
            made = self._signature(self._train, records)
            found = self._monitored[self._train] = made, made.forward(0)
        mode, forward = found
        known = dict(zip(forward.variables, arrays))
        with pause(self._train):
            run_forward(forward.outputs, known, mode.place, [self._watcher])
        for v, target in zip(forward.outputs, self._result):
            copy_into(known[v], target)
        if records:
            results = [known[v] for v in [*forward.outputs, *forward.kept]]
            self._last = _Last(mode, forward, arrays, results, known)

    # ---- reports ---------------------------------------------------------------------------------

    def report(self) -> ProgramReport:
        """What the programs of this executor are and cost: prints as a table with a line for each,
        as HybridBlock.hybrid_report does.

        >>> executor = (sym.var("x") * 2).simple_bind(x=(2, 3))
        >>> _ = executor.forward()
        >>> [(row.kind, row.hits) for row in executor.report().rows]
        [('predict', 1)]
        """
        from ..graph.report import ProgramReport, Row

        rows = []
        for (train, records), mode in self._modes.items():
            rows.append(
                Row.of_signature(mode, "record" if records else "train" if train else "predict")
            )
            change = mode.change_at, mode.waited_s
            for with_grad, back in mode.serving.gradients.items():
                hits = mode.n_backward[with_grad]
                rows.append(Row.of("backward", mode.inputs, hits, change, back))
        return ProgramReport(self._name, rows, self._why_no_programs or "fix: call forward")

    def memory_report(self) -> MemoryReport:
        """What the memory of a forward, and of a training step, is used for, in bytes; see
        HybridBlock.memory_report. Compiles for it, but runs nothing.

        Raises ValueError where the executor runs operator by operator: with sparse arrays, and
        where shapes depend on values.
        """
        from ..graph.report import MemoryReport, memory

        return MemoryReport(self._name, *(memory([s] if s else []) for s in self.signatures()))

    def signatures(self) -> tuple[_Mode, _Mode | None]:
        """For memory reports: (of a prediction, of a training step); they count no calls."""
        if self._why_no_programs:
            raise InvalidValue(f"memory_report: {self._why_no_programs}")
        trains = any(r != "null" for r in self._requests)
        return self._signature(False, False), self._signature(True, True) if trains else None

    @property
    def _name(self) -> str:
        return self._symbol.name or "executor"

    @property
    def _why_no_programs(self) -> str:
        if self._storage is None:
            return ""
        why = "shapes depend on values" if self._dynamic else "there are sparse arrays"
        return f"{why}: it runs operator by operator"

    # ---- shapes ----------------------------------------------------------------------------------

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Any
    ) -> Executor:
        """An executor for other input shapes that shares the memory of this one.

        partial_shaping: shapes of arguments not named may change too. allow_up_sizing: larger
            arrays are made anew.
        Raises MXNetError.
        """
        arg_shapes, _, aux_shapes = self._symbol.infer_shape(**kwargs)
        if arg_shapes is None:
            raise InvalidValue("reshape: the shapes given must be sufficient to infer all others")
        for node, old, shape in zip(self._arguments, self.arg_arrays, arg_shapes):
            if old.shape != shape and node.name not in kwargs and not partial_shaping:
                raise MXNetError(
                    f"reshape: the shape of unspecified array arg:{node.name} changes from"
                    f" {old.shape} to {shape}\n  fix: give its shape, or partial_shaping=True"
                )

        def new(node: Node, old: NDArray, shape: tuple[int, ...]) -> NDArray:
            return reshaped(node.name, old, shape, allow_up_sizing)

        args, grads = [*map(new, self._arguments, self.arg_arrays, arg_shapes)], None
        if self.grad_arrays is not None:
            like = zip(self._arguments, self.grad_arrays, arg_shapes)
            grads = [None if g is None else new(n, g, shape) for n, g, shape in like]
        aux = [*map(new, self._auxiliary, self.aux_arrays, aux_shapes)]
        more = self._group2ctx, self._recompute, [self._arguments[i].name for i in self._data]
        made = Executor(self._symbol, self._ctx, args, grads, self._requests, aux, *more)
        keep_memory(self._result, made._result)
        return made

    def debug_str(self) -> str:
        """The graph, and the memory that its programs plan."""
        made = [mode.serving for mode in self._modes.values()]
        programs = [f.program for f in made]
        programs += [g.program for f in made for g in f.gradients.values()]
        total = sum(p.arena_bytes for p in programs)
        typed = self._typed(self._train)[: len(self._values)]
        return (
            f"{self._symbol.debug_str()}\n{as_python(typed)}\nTotal"
            f" {total / 2**20:.3f} MB allocated, {sum(p.naive_bytes for p in programs) / 2**20:.3f}"
            " MB without sharing"
        )

    def get_optimized_symbol(self) -> Any:
        """The Symbol that is executed."""
        return self._symbol


def is_loss(v: Value) -> bool:
    """Is a value the output of a loss operator, which needs no head gradient?"""
    if v.node.op is None:
        return False
    loss = v.node.op.trait(LossLayer)
    return loss is not None and loss.holds(v.node.attrs)
