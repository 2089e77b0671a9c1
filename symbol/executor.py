"""Executor: a graph bound to arrays. It runs programs: one to predict, one forward that keeps what
backward reads, one backward. A monitor makes it run operator by operator."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from ..engine import Context, current_context, lib, location
from ..engine.error import (
    DTypeError,
    DynamicShape,
    InvalidType,
    InvalidValue,
    MXNetError,
    ShapeError,
)
from ..engine.gc_pause import gc_paused
from ..graph.digest import digest
from ..graph.graph import Builder, Node, Value, as_python, topological, variable
from ..graph.inference import typed_graph
from ..graph.names import output_name, output_names
from ..graph.passes import before_gradient
from ..graph.passes.gradient import gradient
from ..graph.passes.recompute import replayed
from ..graph.placement import PlacedProgram, Placement, grouped, lower
from ..graph.program import Program
from ..graph.tiers import Tiered
from ..kernels.record import Type, mutated_inputs
from ..kernels.spec import spec
from ..kernels.traits import LossLayer
from ..ndarray.autograd import pause
from ..ndarray.backward import deliver_rows, row_parts
from ..ndarray.creation import array, zeros
from ..ndarray.interpreter import call
from ..ndarray.invoke import copy_into
from ..ndarray.ndarray import NDArray, check_nd, empty_like_spec, make
from ..ndarray.residuals import free, residuals
from ..ndarray.sparse.graphs import infer_storage
from .monitored import run_backward, run_forward, watched
from .storage import StorageRun, declared, gradient_stypes, keep

REQUESTS = ("null", "write", "add")


def variables_of(outputs: Sequence[Value]) -> tuple[list[Node], list[Node]]:
    """(arguments, auxiliary states): variables in the graph's order; those that an operator writes
    are auxiliary."""
    order = topological(outputs)
    written = {
        node.inputs[i].node
        for node in order
        if node.op is not None and node.op.mutates
        for i in mutated_inputs(node.op, node.attrs, len(node.inputs))
    }
    nodes = [n for n in order if n.op is None]
    return [n for n in nodes if n not in written], [n for n in nodes if n in written]


class _Graph:
    """One way to run a bound graph: its forward program, which while training returns residuals
    too, and a backward program for each choice of outputs with a head gradient."""

    def __init__(
        self, executor: Executor, train: bool, records: bool, tier: int, stable: Sequence[int] = ()
    ):
        """stable: numbers of the arrays that seldom change."""
        start = time.perf_counter()
        self.values, self.placement = executor._placed(executor._typed(train))
        self.given = executor._inputs(self.values)
        self.requests, self.device, self.tier = executor._requests, executor._ctx, tier
        self.wanted = [i for i, r in enumerate(self.requests) if r != "null"] if records else []
        grads = enumerate(executor.grad_arrays or ())
        self.sparse = {i for i, g in grads if g is not None and g.stype == "row_sparse"}
        self.kept: list[Value] = []
        if self.wanted:
            if tier and self.placement is None:
                self.values = before_gradient(self.values, self.device.device_type)
            needed = residuals(self.values, [self.given[i] for i in self.wanted], tier)
            self.kept = [v for v in needed if v not in self.values]
        self.forward = self.lower(
            [*self.values, *self.kept],
            self.given,
            self.given,
            "forward",
            tier=tier,
            stable=[self.given[i] for i in stable],
            free=free(self.kept, len(self.values)),
        )
        specs = self.forward.out_specs[len(self.values) :]
        self.layouts = {v: s.layout for v, s in zip(self.kept, specs) if s.layout}
        self._backward: dict[tuple, _Backward] = {}
        self.seconds = time.perf_counter() - start

    def place(self, node: Node) -> Context:
        """The device of a node."""
        return self.device if self.placement is None else self.placement.of(node)

    def lower(self, outputs, inputs, known: Sequence[Value], name: str, wanted=(), **options):
        """As `lower`, with inputs, and wanted outputs, where these values of the graph are."""
        if self.placement is None:
            return lower(outputs, inputs, self.device, name, **options)
        devices, targets = ([self.place(v.node) for v in values] for values in (known, wanted))
        return PlacedProgram(outputs, inputs, devices, name, wanted=targets, **options)

    def backward(self, with_grad: tuple[bool, ...]) -> _Backward:
        """The backward program for the outputs that have a head gradient."""
        found = self._backward.get(with_grad)
        if found is None:
            found = self._backward[with_grad] = _Backward(self, with_grad)
        return found

    def programs(self) -> list[Program]:
        return [self.forward, *(b.program for b in self._backward.values() if not b.missing)]


class _Serving(Tiered):
    """The graph that serves now for a value of `train`, and how to make a better one."""

    def __init__(self, executor: Executor, train: bool, records: bool):
        self._executor, self._arguments = weakref.ref(executor), (train, records)
        self._versions = executor._versions()
        self._stable: list[int] = []  # numbers of the arrays that calls do not write
        with gc_paused():
            self.graph = _Graph(executor, train, records, 0)
        self._structure = ""
        self.begin()

    counted = (*Tiered.counted, "_stable")

    def structure(self) -> str:
        executor = self._executor()
        if not self._structure and executor is not None:
            values = executor._typed(self._arguments[0])
            more = list(executor._requests), str(executor._ctx), self._arguments
            self._structure = digest(values, executor._inputs(values), *more)
        return self._structure

    def in_use(self) -> bool:
        return self._executor() is not None

    def restart(self) -> None:
        executor = self._executor()
        if executor is not None:
            self.graph = _Graph(executor, *self._arguments, 0)

    def __str__(self):
        return "an executor's graph"

    def use(self) -> _Graph:
        """The graph for one more forward."""
        hits = self.hits = self.hits + 1
        if hits >= self.due:
            executor = self._executor()
            if not self.queued and executor is not None and not self._arguments[0]:
                pairs = zip(self._versions, executor._versions())
                self._stable = [i for i, (before, now) in enumerate(pairs) if before == now]
            self.reached(hits)
        return self.graph

    def work(self) -> tuple[int, float]:
        n_nodes = sum(n.op is not None for n in topological(self.graph.values))
        return n_nodes, self.graph.forward.cost_us * (3 if self.graph.wanted else 1)

    def compile(self) -> _Graph | None:
        """The graph at tier 1, with the backward programs in use."""
        executor = self._executor()
        if executor is None:
            return None
        made = _Graph(executor, *self._arguments, 1, self._stable)
        for with_grad in list(self.graph._backward):
            made.backward(with_grad)
        return made

    def publish(self, made: _Graph) -> None:
        self.graph = made


class _Backward:
    """A backward program. inputs: values of the forward graph, head gradients and, to add to,
    gradients of arguments.
    missing: outputs whose head gradients are read, but not given; then there is no program.
    written: indices of the arguments whose gradients its first outputs are, in their order. rows:
    what adds up to row_sparse gradients, see row_parts in ndarray/backward.py."""

    def __init__(self, forward: _Graph, with_grad: tuple[bool, ...]):
        F = Builder()
        # what is no loss gets a variable without a head gradient too, to see whether that is read
        pairs = [
            (i, v, None if is_loss(v) and not has else variable(f"dy{i}", v.type))
            for i, (v, has) in enumerate(zip(forward.values, with_grad))
        ]
        self.head_grads = {g: i for i, _, g in pairs if g is not None}
        self.before = {
            variable(f"grad{i}", forward.given[i].type): i
            for i in forward.wanted
            if forward.requests[i] == "add" and i not in forward.sparse
        }
        before = {i: v for v, i in self.before.items()}
        results = gradient(
            [v for _, v, _ in pairs],
            [g for _, _, g in pairs],
            [forward.given[i] for i in forward.wanted],
        )
        outputs: list[Value] = []
        self.written: list[int] = []
        self.rows: list[tuple[int, list[tuple]]] = []
        by_rows = []
        for i, g in zip(forward.wanted, results):
            v = forward.given[i]
            if i in forward.sparse:
                by_rows.append((i, g))
                continue
            if i in before:
                if g is None:
                    continue
                g = F.elemwise_add(before[i], g)
            outputs.append(F._zeros(shape=v.shape, dtype=v.dtype) if g is None else g)
            self.written.append(i)
        outputs.reverse()  # the last layers first: see ndarray/backward.py
        self.written.reverse()
        for i, g in by_rows:
            values, parts = row_parts(g, len(outputs))
            outputs += values
            self.rows.append((i, parts))
        known = {*forward.given, *forward.values, *forward.kept, *self.head_grads, *self.before}
        outputs, used = replayed(outputs, known, set(topological(forward.values)))
        self.inputs = list(used)
        of = {g: forward.values[i] for g, i in self.head_grads.items()}
        of |= {v: forward.given[i] for v, i in self.before.items()}
        self.missing = [i for v, i in self.head_grads.items() if v in used and not with_grad[i]]
        if self.missing:
            return
        self.program = forward.lower(
            outputs,
            list(used.values()),
            [of.get(v, v) for v in used],
            "backward",
            wanted=[forward.given[i] for i in self.written],
            tier=forward.tier,
            layouts={x: forward.layouts[v] for v, x in used.items() if v in forward.layouts},
        )


class Executor:
    """A Symbol bound to arrays; made by Symbol.bind and simple_bind.

    arg_arrays, grad_arrays (None where none is wanted), aux_arrays: in the order of list_arguments
    and list_auxiliary_states. outputs: the arrays that the last forward wrote.
    """

    def __init__(
        self,
        symbol,
        ctx,
        args: list[NDArray],
        grads: list[NDArray | None] | None,
        requests: list[str],
        aux: list[NDArray],
        group2ctx=None,
    ):
        self._symbol, self._ctx, self._group2ctx = symbol, ctx, group2ctx
        self._values = list(symbol._outputs)
        self._arguments, self._auxiliary = variables_of(self._values)
        self._nodes = self._arguments + self._auxiliary
        self.arg_arrays, self.aux_arrays = list(args), list(aux)
        self.grad_arrays = None if grads is None else list(grads)
        self._requests = [
            r if grads is not None and grads[i] is not None else "null"
            for i, r in enumerate(requests)
        ]
        self._monitor: Callable | None = None
        self._monitor_all = False
        self._serving: dict[tuple[bool, bool], _Serving] = {}  # by `train`, and with residuals?
        # the last training forward, and what backward may read of it
        self._last: tuple[_Graph, dict[Value, NDArray]] | None = None
        self._monitored: dict[bool, _Graph] = {}  # what a monitor sees: never optimized
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

    # ---- what it holds ---------------------------------------------------------------------------

    @property
    def outputs(self) -> list[NDArray]:
        """The output arrays: the same memory after every forward, under new handles."""
        return [a.detach() for a in self._result]

    @property
    def arg_dict(self) -> dict[str, NDArray]:
        return self._named([n.name for n in self._arguments], self.arg_arrays, "arguments")

    @property
    def grad_dict(self) -> dict[str, NDArray | None]:
        if self.grad_arrays is None:
            raise InvalidType(
                "grad_dict: the executor was bound without gradients\n  fix: bind(...,"
                " args_grad=...)"
            )
        return self._named([n.name for n in self._arguments], self.grad_arrays, "arguments")

    @property
    def aux_dict(self) -> dict[str, NDArray]:
        return self._named([n.name for n in self._auxiliary], self.aux_arrays, "auxiliary states")

    @property
    def output_dict(self) -> dict[str, NDArray]:
        return self._named(output_names(self._values), self.outputs, "outputs")

    @staticmethod
    def _named(names, arrays, what):
        if len(set(names)) != len(names):
            double = next(n for n in names if names.count(n) > 1)
            raise InvalidValue(
                f"the {what} must have different names, got {double!r} twice in {names}"
            )
        return dict(zip(names, arrays))

    def _typed(self, train: bool) -> list[Value]:
        return typed_graph(self._values, self._types, train)

    def _placed(self, values: Sequence[Value]) -> tuple[list[Value], Placement | None]:
        """A form of the graph with the copies between devices, and where its nodes run; None where
        all run on one device."""
        return grouped(values, self._ctx, self._group2ctx)

    def _inputs(self, values: list[Value]) -> list[Value]:
        """The variables of a typed form of the graph, in the order of arguments and auxiliary
        states."""
        plain = (n for n in topological(self._values) if n.op is None)
        twin = dict(zip(plain, (n for n in topological(values) if n.op is None)))
        return [Value(twin[n]) for n in self._nodes]

    # ---- running ---------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs) -> list[NDArray]:
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
            program = self._graph(False).forward
            program.run(arrays, self._result, location.capture() if program.can_fail else -1)
        return self.outputs

    def _run_storage(self, train: bool):
        def compute(node, inputs):
            return call(node, inputs, self._ctx)

        if self._monitor is not None:
            compute = watched(compute, self._monitor, self._monitor_all)
        arrays = self.arg_arrays + self.aux_arrays
        grads = self.grad_arrays or [None] * len(self.arg_arrays)
        assert self._storage is not None
        made = self._storage.forward(arrays, grads, self._requests, train, compute)
        if self._dynamic:
            self._result = made
        else:
            keep(made, self._result)
        self._storage_trained = train

    def _set_arguments(self, values: dict):
        arguments = self.arg_dict
        for name, value in values.items():
            if name not in arguments:
                raise InvalidType(
                    f"forward: unknown argument {name}, the arguments are {', '.join(arguments)}"
                )
            target = arguments[name]
            value = (
                value
                if isinstance(value, NDArray)
                else array(np.asarray(value), self._ctx, target._spec.dtype)
            )
            if value.shape != target.shape:
                raise InvalidValue(
                    f"Shape not match! Argument {name}, need: {target.shape}, received:"
                    f" {value.shape}"
                )
            with pause():
                copy_into(value, target)

    def _graph(self, records: bool) -> _Graph:
        found = self._serving.get((self._train, records))
        if found is None:
            found = _Serving(self, self._train, records)
            self._serving[self._train, records] = found
        return found.use()

    def _versions(self) -> list[int]:
        """How often each argument and auxiliary state was written."""
        arrays = self.arg_arrays + self.aux_arrays
        return [lib.pl_array_version(a._handle) if a.stype == "default" else 0 for a in arrays]

    def _run_training(self, arrays: list[NDArray]):
        graph = self._graph(True)
        program = graph.forward
        made = program.run(arrays, self._result, location.capture() if program.can_fail else -1)
        known = dict(zip([*graph.given, *graph.values, *graph.kept], [*arrays, *made]))
        self._last = graph, known

    def backward(self, out_grads=None, is_train: bool = True) -> None:
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
            self._require([i for i, v in enumerate(self._values) if not is_loss(v)], grads)
            self._storage.backward(grads)
            return
        if self._last is None:  # the last forward was a prediction
            self._run_training(self.arg_arrays + self.aux_arrays)
        assert self._last is not None and self.grad_arrays is not None
        graph, known = self._last
        back = graph.backward(tuple(g is not None for g in grads))
        self._require(back.missing, grads)
        added: dict = {v: grads[i] for v, i in back.head_grads.items()}
        added |= {v: self.grad_arrays[i] for v, i in back.before.items()}
        known = known | added  # none of them is None: _require looks
        made = back.program.run(
            [known[v] for v in back.inputs],
            [self.grad_arrays[i] for i in back.written],
            location.capture() if back.program.can_fail else -1,
        )
        for i, parts in back.rows:
            with pause():
                deliver_rows(self.grad_arrays[i], parts, made, self._requests[i] == "add")
        if self._monitor is not None and graph in self._monitored.values():
            run_backward(graph.values, known, grads, graph.place, self._monitor)

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

    def _require(self, needed: Sequence[int], grads: Sequence[NDArray | None]) -> None:
        """Raises MXNetError where one of these outputs has no head gradient."""
        for i in needed:
            if grads[i] is None:
                raise MXNetError(
                    "backward: Because the last operator is not Loss function, head_gradient is"
                    f" required when calling backward; {output_name(self._values[i])} has none\n"
                    "  fix: backward(out_grads=...), or pass the output through make_loss"
                )

    # ---- the monitor -----------------------------------------------------------------------------

    def set_monitor_callback(self, callback: Callable | None, monitor_all: bool = False) -> None:
        """Calls callback(name, NDArray) for the outputs of every operator (monitor_all: its inputs
        too) at forward, and for the gradients that it gives to its inputs at backward."""
        self._monitor, self._monitor_all = callback, monitor_all

    def _run_monitored(self, arrays: list[NDArray]):
        records = self._train and any(r != "null" for r in self._requests)
        graph = self._monitored.get(self._train)
        if graph is None:
            graph = _Graph(self, self._train, records, 0)
            self._monitored[self._train] = graph
        known = dict(zip(graph.given, arrays))
        assert self._monitor is not None
        run_forward(graph.values, known, graph.place, self._monitor, self._monitor_all)
        for v, target in zip(graph.values, self._result):
            copy_into(known[v], target)
        if records:
            self._last = graph, known

    # ---- parameters and shapes -------------------------------------------------------------------

    def copy_params_from(
        self, arg_params: dict, aux_params: dict | None = None, allow_extra_params: bool = False
    ) -> None:
        """Copies named arrays into the arguments and auxiliary states. Raises ValueError for an
        unknown name."""
        for given, known, what in (
            (arg_params, self.arg_dict, "arguments"),
            (aux_params, self.aux_dict, "auxiliary states"),
        ):
            for name, value in (given or {}).items():
                if name in known:
                    value = value if isinstance(value, NDArray) else array(value, self._ctx)
                    if value.shape != known[name].shape:
                        raise InvalidValue(
                            f"copy_params_from: {name} must have shape {known[name].shape}, got"
                            f" {value.shape}"
                        )
                    copy_into(value, known[name])
                elif not allow_extra_params:
                    raise InvalidValue(f'Find name "{name}" that is not in the {what}')

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs
    ) -> Executor:
        """An executor for other input shapes that shares the memory of this one.

        partial_shaping: shapes of arguments not named may change too. allow_up_sizing: larger
            arrays are made anew.
        Raises MXNetError.
        """
        arg_shapes, _, aux_shapes = self._symbol.infer_shape(**kwargs)
        if arg_shapes is None:
            raise InvalidValue("reshape: the shapes given must be sufficient to infer all others")
        args: list[NDArray] = []
        grads: list[NDArray | None] | None = None if self.grad_arrays is None else []
        for i, (node, old, shape) in enumerate(zip(self._arguments, self.arg_arrays, arg_shapes)):
            if old.shape != shape and node.name not in kwargs and not partial_shaping:
                raise MXNetError(
                    f"reshape: the shape of unspecified array arg:{node.name} changes from"
                    f" {old.shape} to {shape}\n  fix: give its shape, or partial_shaping=True"
                )
            args.append(_reshaped(node.name, old, shape, allow_up_sizing))
            if grads is not None and self.grad_arrays is not None:
                g = self.grad_arrays[i]
                grads.append(None if g is None else _reshaped(node.name, g, shape, allow_up_sizing))
        aux = [
            _reshaped(n.name, a, s, allow_up_sizing)
            for n, a, s in zip(self._auxiliary, self.aux_arrays, aux_shapes)
        ]
        made = Executor(self._symbol, self._ctx, args, grads, self._requests, aux, self._group2ctx)
        for i, (old, new) in enumerate(zip(self._result, made._result)):
            a, b = old._spec, new._spec
            same = (a.dtype, a.device, a.stype) == (b.dtype, b.device, b.stype)
            if same and a.stype == "default" and b.size <= a.size:
                made._result[i] = _view(old, b)
        return made

    def debug_str(self) -> str:
        """The graph, and the memory that its programs plan."""
        programs = [p for s in self._serving.values() for p in s.graph.programs()]
        total = sum(p.arena_bytes for p in programs)
        return (
            f"{self._symbol.debug_str()}\n{as_python(self._typed(self._train))}\nTotal"
            f" {total / 2**20:.3f} MB allocated, {sum(p.naive_bytes for p in programs) / 2**20:.3f}"
            " MB without sharing"
        )

    def get_optimized_symbol(self):
        """The Symbol that is executed."""
        return self._symbol


def is_loss(v: Value) -> bool:
    """Is a value the output of a loss operator, which needs no head gradient?"""
    if v.node.op is None:
        return False
    loss = v.node.op.trait(LossLayer)
    return loss is not None and loss.holds(v.node.attrs)


def _view(a: NDArray, s) -> NDArray:
    """The memory of an array, or its beginning, under a spec."""
    return make(lib.pl_array_view(a._handle, 0), s)


def _reshaped(name: str, old: NDArray, shape: tuple[int, ...], allow_up_sizing: bool) -> NDArray:
    if old.shape == shape:
        return old
    if old.stype != "default":
        return zeros(shape, old.context, old._spec.dtype, stype=old.stype)
    s = spec(tuple(shape), old._spec.dtype, old._spec.device)
    if s.size <= old.size:
        return _view(old, s)
    if not allow_up_sizing:
        raise MXNetError(
            f"reshape: New shape of arg: {name} is larger than original: {shape} and {old.shape}."
            " First making a big executor and then down sizing it is more efficient than the"
            " reverse\n  fix: allow_up_sizing=True"
        )
    return zeros(shape, s.device, s.dtype)


# ---- binding -------------------------------------------------------------------------------------


def requests_of(grad_req, names: Sequence[str]) -> list[str]:
    """grad_req as one string for each argument: from a string, a list, or a dict (absent: null)."""
    if isinstance(grad_req, str):
        reqs = [grad_req] * len(names)
    elif isinstance(grad_req, dict):
        reqs = [grad_req.get(n, "null") for n in names]
    else:
        reqs = list(grad_req)
    if len(reqs) != len(names) or any(r not in REQUESTS for r in reqs):
        raise InvalidValue(
            f"grad_req must be write, add or null for each of the {len(names)} arguments, got"
            f" {grad_req!r}"
        )
    return reqs


def arrays_in_order(
    given, names: Sequence[str], what: str, partial: bool = False
) -> list[NDArray | None]:
    """Arrays given as a list or dict, in the order of names. Raises ValueError, TypeError."""
    if isinstance(given, dict):
        missing = [n for n in names if n not in given]
        if missing and not partial:
            raise InvalidValue(f"key `{missing[0]}` is missing in `{what}`")
        found = [given.get(n) for n in names]
    else:
        found = list(given or ())
        if len(found) != len(names):
            raise InvalidValue(
                f"Length of {what} does not match the number of arguments: {len(found)} for "
                f"{len(names)} ({', '.join(names)})"
            )
    for n, a in zip(names, found):
        if a is not None and not isinstance(a, NDArray):
            raise InvalidType(
                f"{what}: only accept a list of NDArrays or a dict of str to NDArray, "
                f"got {type(a).__name__} for {n}"
            )
    return found


def bind(
    symbol, ctx, args, args_grad=None, grad_req="write", aux_states=None, group2ctx=None
) -> Executor:
    """An executor on given arrays; see Symbol.bind."""
    ctx = ctx or current_context()
    arguments, auxiliary = variables_of(symbol._outputs)
    names, aux_names = [n.name for n in arguments], [n.name for n in auxiliary]
    arrays = _complete(arrays_in_order(args, names, "args"), "args: every argument")
    grads = (
        None if args_grad is None else arrays_in_order(args_grad, names, "args_grad", partial=True)
    )
    aux = _complete(
        arrays_in_order(aux_states or {}, aux_names, "aux_states"),
        "aux_states: every auxiliary state",
    )
    for n, a, g in zip(names, arrays, grads or ()):
        if g is None:
            continue
        if g.shape != a.shape:
            raise ShapeError(
                "bind", f"the gradient of {n} must have its shape {a.shape}, got {g.shape}"
            )
        if g._spec.dtype != a._spec.dtype:
            raise DTypeError(
                "bind",
                f"the gradient of {n} must have its dtype {a._spec.dtype}, got {g._spec.dtype}",
            )
    return Executor(symbol, ctx, arrays, grads, requests_of(grad_req, names), aux, group2ctx)


def _complete(arrays: list[NDArray | None], which: str) -> list[NDArray]:
    """The arrays, none of them missing. Raises TypeError."""
    found = [a for a in arrays if a is not None]
    if len(found) < len(arrays):
        raise InvalidType(f"{which} must have an NDArray, got None")
    return found


def simple_bind(
    symbol, ctx, grad_req, type_dict, shapes, group2ctx=None, shared_exec=None, stype_dict=None
) -> Executor:
    """An executor on new arrays of inferred shapes; see Symbol.simple_bind."""
    ctx = ctx or current_context()
    arguments, auxiliary = variables_of(symbol._outputs)
    given = "\n".join(f"{k}: {v}" for k, v in shapes.items())
    try:
        types = symbol._infer_types(shapes, type_dict or {})
        unknown = [n for n in arguments + auxiliary if types[n] is None]
        if unknown:
            raise MXNetError(
                "the shapes of these arguments cannot be inferred: "
                + ", ".join(n.name for n in unknown)
                + "\n  fix: give them as keywords"
            )
    except MXNetError as error:
        raise _bind_error(error, given) from None
    names = [n.name for n in arguments]
    double = next((n for n in names if names.count(n) > 1), None)
    if double:
        raise _bind_error(MXNetError(f"two variables are called {double!r}"), given)
    requests = requests_of(grad_req, names)
    _, placement = grouped(symbol._outputs, ctx, group2ctx)
    stypes = {n: declared(n, stype_dict or {}) for n in arguments + auxiliary}
    stored = infer_storage(symbol._outputs, stypes)
    of_grads = gradient_stypes(symbol._outputs, stored, arguments)

    def shared(of: str, name: str, t, device: Context, stype: str) -> NDArray | None:
        """shared_exec's array of a name, if it has the type and is on the device."""
        found = getattr(shared_exec, of).get(name) if shared_exec is not None else None
        if found is None or found.stype != stype:
            return None
        like = found._spec
        same = (like.shape, like.dtype, like.device) == (t.shape, t.dtype, device)
        return found if same else None

    def new(node: Node, of: str) -> NDArray:
        t: Type = types[node]
        stype = stypes.get(node, "default")
        device = placement.of(node) if placement else ctx
        found = shared(of, node.name, t, device, stype)
        return zeros(t.shape, device, t.dtype, stype=stype) if found is None else found

    def gradient(array: NDArray, name: str, stype: str) -> NDArray:
        """The gradients of shared arguments are shared too: grad_req "add" sums over executors."""
        if shared_exec is not None and shared_exec.arg_dict.get(name) is array:
            found = shared("grad_dict", name, array._spec, array.context, stype)
            if found is not None:
                return found
        return zeros(array.shape, array.context, array._spec.dtype, stype=stype)

    args = [new(n, "arg_dict") for n in arguments]
    grads = [
        None if r == "null" else gradient(a, n, s)
        for a, n, r, s in zip(args, names, requests, of_grads)
    ]
    return Executor(
        symbol, ctx, args, grads, requests, [new(n, "aux_dict") for n in auxiliary], group2ctx
    )


def _bind_error(error: MXNetError, given: str) -> MXNetError:
    return MXNetError(f"simple_bind error. Arguments:\n{given}\n{error}")
