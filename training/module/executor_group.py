"""DataParallelExecutorGroup: one executor per device; batches are divided among them, outputs
joined."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...data.io import DataDesc
from ...engine import Context, cpu
from ...engine.recent import Recent
from ...ndarray import NDArray, functions
from ...ndarray.autograd import pause
from ...ndarray.launch import copy_into
from ...symbol.executor import Executor
from .described import ModuleError, descriptions
from .slices import split_batch

Targets = list[tuple[slice, NDArray]]  # which slice of an input goes into which device's array


def _load(arrays: Sequence, targets: Sequence[Targets], axes: Sequence[int]) -> None:
    """Copies the parts of each array to the devices. An array may be a list: one for each
    device."""
    with pause():
        for array, parts, axis in zip(arrays, targets, axes):
            for k, (part, target) in enumerate(parts):
                source = array[k] if isinstance(array, (list, tuple)) else _cut(array, axis, part)
                if source.shape != target.shape:
                    raise ModuleError(
                        f"forward: an array of shape {source.shape} does not fit the bound shape"
                        f" {target.shape}\n  fix: reshape(...) or bind(..., force_rebind=True)"
                    )
                copy_into(source, target)


def _cut(array: NDArray, axis: int, part: slice) -> NDArray:
    """A device's part of a batch; all of it if there is no batch axis."""
    if axis < 0 or (part.start, part.stop) == (0, array.shape[axis]):
        return array
    if axis == 0:
        return array[part]
    return functions.slice_axis(array, axis=axis, begin=part.start, end=part.stop)


def _merge_multi_context(arrays: Sequence[list[NDArray]], axes: Sequence[int]) -> list[NDArray]:
    """Concatenates the devices' parts of each array along its batch axis."""
    return [
        parts[0]
        if len(parts) == 1 or axis < 0
        else functions.concat(*[p.as_in_context(parts[0].context) for p in parts], dim=axis)
        for parts, axis in zip(arrays, axes)
    ]


def _columns(batch, field: str) -> list:
    """The inputs of a batch, none if it has no such field; of a list of batches (one per device)
    a list for each input."""
    if not isinstance(batch, list):
        return getattr(batch, field, None) or []
    return [list(arrays) for arrays in zip(*(getattr(b, field, None) or [] for b in batch))]


def _prepare_group2ctxs(group2ctxs, n: int) -> list[dict | None]:
    """group2ctx of each device, from a list of dicts or a dict of devices (or lists of them)."""
    if group2ctxs is None:
        return [None] * n
    if isinstance(group2ctxs, dict):
        lists = {
            name: [v] * n if isinstance(v, Context) else list(v) * (n if len(v) == 1 else 1)
            for name, v in group2ctxs.items()
        }
        if any(len(v) != n for v in lists.values()):
            raise ModuleError(f"group2ctxs: each group must have 1 or {n} contexts")
        return [{name: v[i] for name, v in lists.items()} for i in range(n)]
    if not isinstance(group2ctxs, list) or len(group2ctxs) != n:
        raise ModuleError(
            f"group2ctxs should be a list of {n} dicts of str to context, or a dict of str to"
            " context or list of context"
        )
    return group2ctxs


MAX_SHAPES = 2048  # that stay bound


class DataParallelExecutorGroup:
    """Executors of one symbol on several devices.

    Args:
        workload: a number per device; a batch is divided in proportion.
        data_shapes, label_shapes: descriptions of whole batches.
        shared_group: a group whose arrays are used where names and shapes are equal.
        recompute: see Symbol.bind.

    param_arrays, grad_arrays, aux_arrays, state_arrays, input_grad_arrays: for each name a list
    with one NDArray per device. data_arrays, label_arrays: for each input pairs (slice, NDArray).
    """

    def __init__(
        self,
        symbol: Any,
        contexts: Sequence[Context],
        workload: Any,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
        param_names: Sequence[str],
        for_training: Any,
        inputs_need_grad: Any,
        shared_group: Any = None,
        logger: Any = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: str = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        recompute: bool | float | str | None = None,
    ):
        self.symbol, self.contexts, self.workload = symbol, contexts, workload
        self.arg_names = symbol.list_arguments()
        self.aux_names = symbol.list_auxiliary_states()
        self.param_names = [n for n in self.arg_names if n in set(param_names)]
        self.state_names = list(state_names or ())
        self.fixed_param_names = list(fixed_param_names or ())
        self.for_training, self.inputs_need_grad = for_training, inputs_need_grad
        self.logger, self._total_exec_bytes, self._recompute = logger, 0, recompute
        self.group2ctxs = _prepare_group2ctxs(group2ctxs, len(contexts))
        self.output_names = symbol.list_outputs()
        self.num_outputs = len(self.output_names)
        self.output_layouts = [
            DataDesc.get_batch_axis(symbol[i].attr("__layout__")) for i in range(self.num_outputs)
        ]
        self.grad_req = self._requests(grad_req, {x.name for x in descriptions(data_shapes)})
        self._first: list[Executor] = []  # all others use their memory
        self._bound = Recent(MAX_SHAPES)  # executors by shapes
        self.batch_size: int | None = None
        self.slices: list[slice] = []
        self.bind_exec(data_shapes, label_shapes, shared_group)

    def _requests(self, grad_req, data_names) -> dict[str, str]:
        if not self.for_training:
            return dict.fromkeys(self.arg_names, "null")
        if isinstance(grad_req, (list, tuple)):
            if len(grad_req) != len(self.arg_names):
                raise ModuleError(
                    f"grad_req must have an entry for each of the {len(self.arg_names)} arguments,"
                    f" got {len(grad_req)}"
                )
            return dict(zip(self.arg_names, grad_req))
        if not isinstance(grad_req, (str, dict)):
            raise ModuleError("grad_req must be one of str, list, tuple, or dict.")
        usual = grad_req if isinstance(grad_req, str) else "write"
        wanted = set(self.param_names) - set(self.fixed_param_names)
        if self.inputs_need_grad:
            wanted |= data_names
        found = {n: usual if n in wanted else "null" for n in self.arg_names}
        return found | (grad_req if isinstance(grad_req, dict) else {})

    # ---- binding ---------------------------------------------------------------------------------

    def decide_slices(self, data_shapes: Sequence[Any]) -> list[int]:
        """Divides the batch; finds the batch axis of each input (-1: none)."""
        axes = [DataDesc.get_batch_axis(x.layout) for x in data_shapes]
        for desc, axis in zip(data_shapes, axes):
            if axis < 0:
                continue
            size = desc.shape[axis]
            if self.batch_size is None:
                self.batch_size, self.slices = size, split_batch(size, self.workload)
            elif size != self.batch_size:
                raise ModuleError(
                    f"all data must have the same batch size: batch_size = {self.batch_size}, but"
                    f" {desc.name} has shape {desc.shape}"
                )
        return axes

    def bind_exec(
        self,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
        shared_group: Any = None,
        reshape: bool = False,
    ) -> None:
        """Creates the executors for shapes, or (reshape) ones that share the memory of the
        first."""
        self.batch_size = None
        self.slices = [slice(i, i + 1) for i in range(len(self.contexts))]
        self.data_shapes = descriptions(data_shapes)
        self.label_shapes = None if label_shapes is None else descriptions(label_shapes)
        self.data_layouts = self.decide_slices(self.data_shapes)
        self.label_layouts = self.decide_slices(self.label_shapes or [])
        self.data_names = [x.name for x in self.data_shapes]
        self.label_names = [x.name for x in self.label_shapes or []]
        inputs = [*self.data_shapes, *(self.label_shapes or [])]
        axes = [*self.data_layouts, *self.label_layouts]
        known = set(self.arg_names)
        key = tuple((x.name, x.shape) for x in inputs)
        execs = self._bound[key] if reshape else None
        if execs is None:
            execs = self._bound[key] = [
                self._bind(
                    i,
                    [x for x in self._sliced_shape(inputs, i, axes) if x.name in known],
                    shared_group,
                )
                for i in range(len(self.contexts))
            ]
        self.execs = execs
        self._first = self._first or self.execs
        self._collect_arrays()

    def _sliced_shape(self, shapes, i: int, axes) -> list[DataDesc]:
        """The shapes of device i's part of each input."""
        part = self.slices[i].stop - self.slices[i].start
        return [
            x
            if axis < 0
            else DataDesc(x.name, (*x.shape[:axis], part, *x.shape[axis + 1 :]), x.dtype, x.layout)
            for x, axis in zip(shapes, axes)
        ]

    def _bind(self, i: int, inputs: list[DataDesc], shared_group) -> Executor:
        shapes = dict(inputs)
        if self._first:
            made = self._reshaped(self._first[i], shapes)
            if self._first[i]._monitor is not None:
                made.set_monitor_callback(self._first[i]._monitor, self._first[i]._monitor_all)
            return made
        attributes = self.symbol.attr_dict()
        return self.symbol.simple_bind(
            ctx=self.contexts[i],
            grad_req=self.grad_req,
            type_dict={
                x.name: x.dtype for x in inputs if "__dtype__" not in attributes.get(x.name, {})
            },
            group2ctx=self.group2ctxs[i],
            shared_exec=None if shared_group is None else shared_group.execs[i],
            recompute=self._recompute,
            **shapes,
        )

    def _reshaped(self, first: Executor, shapes: dict) -> Executor:
        """An executor for other input shapes. Labels that are not given change shape with them;
        parameters must not."""
        made = first.reshape(partial_shaping=True, allow_up_sizing=True, **shapes)
        before, after = first.arg_dict, made.arg_dict
        for name in self.param_names:
            if after[name] is not before[name]:
                raise ModuleError(
                    f"inputs of shapes {shapes} would change the shape of parameter {name} from"
                    f" {before[name].shape} to {after[name].shape}"
                )
        return made

    def _collect_arrays(self) -> None:
        execs = self.execs
        arguments = [e.arg_dict for e in execs]
        place = {n: i for i, n in enumerate(self.arg_names)}

        def targets(names) -> list[Targets]:
            return [
                [(part, known[n]) for part, known in zip(self.slices, arguments)]
                if n in place
                else []
                for n in names
            ]

        def gradients(names) -> list[list]:
            per_device = [e.grad_arrays or [] for e in execs]
            return [[grads[place[n]] for grads in per_device] for n in names if n in place]

        self.data_arrays = targets(self.data_names)
        self.label_arrays = None if self.label_shapes is None else targets(self.label_names)
        self.state_arrays = [[known[n] for known in arguments] for n in self.state_names]
        self.param_arrays = [[known[n] for known in arguments] for n in self.param_names]
        self.aux_arrays = [[e.aux_arrays[i] for e in execs] for i in range(len(self.aux_names))]
        self.grad_arrays = gradients(self.param_names) if self.for_training else []
        self.input_grad_arrays = gradients(self.data_names) if self.inputs_need_grad else []

    def reshape(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None) -> None:
        """Switches to other input shapes. Executors of earlier shapes are kept."""
        new = (
            descriptions(data_shapes),
            None if label_shapes is None else descriptions(label_shapes),
        )
        if new != (self.data_shapes, self.label_shapes):
            self.bind_exec(data_shapes, label_shapes, reshape=True)

    # ---- parameters ------------------------------------------------------------------------------

    def set_params(
        self,
        arg_params: dict[str, NDArray],
        aux_params: dict[str, NDArray],
        allow_extra: bool = False,
    ) -> None:
        """Copies parameters to every device."""
        with pause():
            for e in self.execs:
                e.copy_params_from(arg_params, aux_params, allow_extra_params=allow_extra)

    def get_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Writes the parameters, the mean over devices, into the arrays of two dicts."""
        with pause():
            for names, arrays, targets in (
                (self.param_names, self.param_arrays, arg_params),
                (self.aux_names, self.aux_arrays, aux_params),
            ):
                for name, parts in zip(names, arrays):
                    value = parts[0]
                    if len(parts) > 1:
                        value = functions.add_n(*[p.copyto(cpu()) for p in parts]) / len(parts)
                    copy_into(value, targets[name])

    # ---- running ---------------------------------------------------------------------------------

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Copies a batch (or a list of batches, one per device) in, and computes the outputs."""
        _load(_columns(data_batch, "data"), self.data_arrays, self.data_layouts)
        labels = _columns(data_batch, "label")
        if self.label_arrays is not None and labels:
            _load(labels, self.label_arrays, self.label_layouts)
        for e in self.execs:
            e.forward(is_train=self.for_training if is_train is None else is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Computes the gradients. out_grads: of whole batches, NDArrays."""
        if not self.for_training:
            raise ModuleError("re-bind with for_training=True to run backward")
        grads = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads or ())
        for e, part, ctx in zip(self.execs, self.slices, self.contexts):
            e.backward(
                [
                    _cut(g, axis, part).as_in_context(ctx)
                    for g, axis in zip(grads, self.output_layouts)
                ]
            )

    def get_output_shapes(self) -> list[tuple]:
        """[(name, shape)] of the outputs of whole batches."""
        return [
            (
                name,
                tuple(
                    self.batch_size if k == axis else n for k, n in enumerate(result._spec.shape)
                ),
            )
            for name, result, axis in zip(
                self.output_names, self.execs[0]._result, self.output_layouts
            )
        ]

    def get_outputs(
        self, merge_multi_context: bool = True, begin: int = 0, end: Any = None
    ) -> list:
        """Outputs begin to end of the last forward."""
        outputs = [list(parts) for parts in zip(*(e.outputs for e in self.execs))][begin:end]
        if not merge_multi_context:
            return outputs
        return _merge_multi_context(outputs, self.output_layouts[begin:end])

    def get_input_grads(self, merge_multi_context: bool = True) -> list:
        """Gradients of the inputs."""
        if not self.inputs_need_grad:
            raise ModuleError("get_input_grads: there are none\n  fix: bind(inputs_need_grad=True)")
        if not merge_multi_context:
            return self.input_grad_arrays
        return _merge_multi_context(self.input_grad_arrays, self.data_layouts)

    def get_states(self, merge_multi_context: bool = True) -> list:
        """State arrays, a list per state. They cannot be merged."""
        if merge_multi_context:
            raise ModuleError("merge_multi_context=True is not supported for get_states yet.")
        return self.state_arrays

    def set_states(self, states: Any = None, value: Any = None) -> None:
        """Sets the states from what get_states or get_outputs(False) gave, or to a number."""
        if (states is None) == (value is None):
            raise ModuleError("set_states: give one of states and value")
        with pause():
            if states is None:
                for parts in self.state_arrays:
                    for target in parts:
                        target[:] = value
                return
            for given, parts in zip(states, self.state_arrays):
                for k, target in enumerate(parts):
                    copy_into(given[k] if isinstance(given, (list, tuple)) else given, target)

    def update_metric(self, metric: Any, labels: Any, pre_sliced: bool = False) -> None:
        """Updates a metric with each device's outputs and its part of the labels."""
        for k, (e, part) in enumerate(zip(self.execs, self.slices)):
            own = (
                labels[k]
                if pre_sliced
                else [_cut(x, axis, part) for x, axis in zip(labels, self.label_layouts)]
            )
            metric.update_dict(
                dict(zip(self.label_names, own)), dict(zip(self.output_names, e.outputs))
            )

    def every_executor(self) -> list[Executor]:
        """The executors for all shapes."""
        return list({id(e): e for execs in self._bound.values() for e in execs}.values())

    def install_monitor(self, mon: Any) -> None:
        """Lets a Monitor see every operator's outputs on every device."""
        for e in self.every_executor():
            mon.install(e)
