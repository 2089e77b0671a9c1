"""Quantization of Symbols and their parameters: quantize_graph, calib_graph, quantize_model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...data import io
from ...engine import Context, cpu
from ...engine.error import InvalidType, InvalidValue
from ...graph.fused_layers import DENSE
from ...graph.graph import topological
from ...graph.passes import quantize as passes
from ...kernels.ops.quantize import LEVELS, WHOLE
from ...ndarray import NDArray
from ...symbol import Symbol
from ...symbol import load as load_symbol
from .collect import _LayerHistogramCollector, _LayerOutputMinMaxCollector

Params = dict[str, NDArray]
Ranges = dict[str, tuple[float, float]]
MODES = ("none", "naive", "entropy", "customize")


def one_of(what: str, value: Any, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidValue(f"{what} must be one of {', '.join(known)}, got {value!r}")
    return value


def _list_of(what: str, value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise InvalidValue(f"{what} must be a list of strings, got {value!r}")
    return value


def _device(ctx: Any) -> Context:
    if isinstance(ctx, (list, tuple)) and len(ctx) == 1:
        ctx = ctx[0]
    if not isinstance(ctx, Context):
        raise InvalidValue(f"ctx must be one device, got {ctx!r}")
    return ctx


def _symbol_of(sym: Any) -> Symbol:
    if isinstance(sym, (str, os.PathLike)):
        return load_symbol(os.fspath(sym))
    if not isinstance(sym, Symbol):
        raise InvalidType(f"sym must be a Symbol or the path of its file, got {type(sym).__name__}")
    return sym


def unfit(parameters: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Raises InvalidValue for parameters that bytes cannot represent."""
    for name in names:
        if name not in parameters:
            raise InvalidValue(f"{what} has no parameter {name!r}, which is to be quantized")
        values = parameters[name].asnumpy()
        if not np.issubdtype(values.dtype, np.floating) or not np.isfinite(values).all():
            raise InvalidValue(
                f"parameter {name!r} must be finite floats to be quantized, got {values.dtype} from"
                f" {values.min() if values.size else None} to"
                f" {values.max() if values.size else None}"
            )


def _parameters_of(qsym: Symbol, given: Params) -> Params:
    """Parameters for a quantized graph: `<name>_quantize` and its range, other ones as they are.

    Fused layers read a weight by LEVELS, others by WHOLE: each gets what it reads exactly.
    """
    names, known = qsym.list_arguments(), set(qsym.list_arguments())
    fused = {
        v.node.name
        for node in topological(qsym._outputs)
        if node.op is not None and node.op.name == DENSE
        for v in node.inputs
    }
    made: Params = {}
    for name in names:
        if name in given:
            made[name] = given[name]
        if not name.endswith("_quantize") or name + "_min" not in known:
            continue
        source = name.removesuffix("_quantize")
        unfit(given, [source], "arg_params")
        values = given[source].asnumpy().astype("float32")
        r = max(float(np.abs(values).max(initial=0)), 1e-30)
        levels = (LEVELS if name in fused else WHOLE)["int8"]
        as_bytes = np.clip(np.rint(values * np.float32(levels / r)), -128, 127).astype("int8")
        made[name] = nd.array(as_bytes, dtype="int8")
        made[name + "_min"], made[name + "_max"] = nd.array([-r]), nd.array([r])
    return made


def _quantized(
    sym: Symbol,
    params: Collection[str],
    names: Collection[str],
    operators: Collection[str],
    dtype: str,
    mode: str,
    granularity: str,
    calib_mode: str,
) -> tuple[Symbol, list[str]]:
    """(the quantized Symbol, names of the values to calibrate)."""
    if calib_mode == "none":
        operators = [*operators, "BatchNorm"]  # on bytes it needs a range
    chosen = passes.selected(sym._outputs, names, operators, mode)
    made, wanted = passes.quantize(
        sym._outputs, chosen, params, dtype, granularity == "channel-wise"
    )
    return Symbol(made), wanted


def quantize_graph(
    sym: Symbol | str,
    arg_params: Params,
    aux_params: Params,
    ctx: Context | None = None,
    excluded_sym_names: list[str] | None = None,
    excluded_op_names: list[str] | None = None,
    calib_mode: str | None = "entropy",
    quantized_dtype: str = "int8",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    LayerOutputCollector: Any = None,
    logger: Any = None,
) -> tuple[Symbol, Params, Params, Any]:
    """(quantized Symbol, its arguments, its auxiliary states, collector): the graph without
    calibrated ranges, and what collects these: run the float graph with `collector.collect` as its
    monitor (monitor_all=True), then call calib_graph.

    excluded_sym_names, excluded_op_names: nodes and operators that stay floats. calib_mode: none,
        naive (least and largest number), entropy, customize (LayerOutputCollector: an object with
        `collect(name, array)` and `min_max_dict`). quantized_dtype: int8, uint8, or auto: uint8
        where a range has no negative number. quantize_mode: full (all operators that can be), smart
        (products, and what lies between them). quantize_granularity: tensor-wise, channel-wise.

    Raises InvalidValue for an unknown mode and parameters that cannot be quantized.
    """
    sym, mode = _symbol_of(sym), calib_mode or "none"
    names = _list_of("excluded_sym_names", excluded_sym_names)
    operators = _list_of("excluded_op_names", excluded_op_names)
    _device(cpu() if ctx is None else ctx)
    one_of("quantized_dtype", quantized_dtype, ("int8", "uint8", "auto"))
    one_of("quantize_granularity", quantize_granularity, ("tensor-wise", "channel-wise"))
    one_of("quantize_mode", quantize_mode, ("full", "smart"))
    one_of("calib_mode", mode, MODES)
    qsym, wanted = _quantized(
        *(sym, arg_params, names, operators, quantized_dtype, quantize_mode),
        *(quantize_granularity, mode),
    )
    if logger:
        logger.info("quantized the graph: %d ranges are wanted", len(wanted))
    collector: Any = None
    if mode == "naive":
        collector = _LayerOutputMinMaxCollector(quantized_dtype, wanted, logger)
    elif mode == "entropy":
        collector = _LayerHistogramCollector(
            include_layer=wanted, logger=logger, quantized_dtype=quantized_dtype
        )
    elif mode == "customize":
        collector = LayerOutputCollector
        if not callable(getattr(collector, "collect", None)):
            raise InvalidValue(
                "calib_mode='customize' needs LayerOutputCollector, an object with collect(name,"
                f" array) and min_max_dict, got {collector!r}"
            )
        if getattr(collector, "include_layer", wanted) is None:
            collector.include_layer = wanted
    return qsym, _parameters_of(qsym, arg_params), aux_params, collector


def ranges_of(collector: Any, calib_mode: str | None, wanted: Collection[str]) -> Ranges:
    """What a collector found. Raises InvalidValue where it saw nothing, or no range."""
    one_of("calib_mode", calib_mode, MODES[1:])
    found = getattr(collector, "post_collect", lambda: collector.min_max_dict)()
    found = {k: tuple(float(np.asarray(x).ravel()[0]) for x in v) for k, v in found.items()}
    for name, (low, high) in found.items():
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise InvalidValue(
                f"calibration: the range of {name} must be finite and its minimum at most its"
                f" maximum, got {low} and {high}"
            )
    missing = [n for n in wanted if n not in found]
    if missing:
        raise InvalidValue(
            f"calibration: there is no range of {', '.join(missing[:5])}"
            f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}\n  fix: run the float"
            " network on calibration data with collector.collect as its monitor"
        )
    return found


def calib_graph(
    qsym: Symbol | str,
    arg_params: Params,
    aux_params: Params,
    collector: Any,
    calib_mode: str | None = "entropy",
    quantized_dtype: str = "int8",
    logger: Any = None,
) -> tuple[Symbol, Params, Params]:
    """(calibrated Symbol, its arguments, its auxiliary states) of what quantize_graph made, with
    the ranges that its collector found. arg_params: those of the float graph."""
    qsym = _symbol_of(qsym)
    wanted = passes.wanted_names(qsym._outputs)
    ranges = ranges_of(collector, calib_mode, wanted)
    if logger:
        logger.info("calibrated %d ranges", len(ranges))
    made = Symbol(passes.calibrate(qsym._outputs, ranges))
    return made, _parameters_of(made, arg_params), aux_params


def run_calibration(
    sym: Symbol,
    params: Params,
    batches: Iterable[Sequence[NDArray]],
    data_names: Sequence[str],
    collector: Any,
    ctx: Context,
    num_examples: int | None,
) -> int:
    """Runs the float graph on batches, with `collector.collect` as its monitor; returns how many
    examples there were. Raises InvalidValue where there was none."""
    executor, shapes, seen = None, None, 0
    inputs = sym.list_inputs()
    for batch in batches:
        given = dict(zip(data_names, batch))
        if executor is None or shapes != {k: v.shape for k, v in given.items()}:
            shapes = {k: v.shape for k, v in given.items()}
            known: dict[str, Any] = {k: v for k, v in shapes.items() if k in inputs}
            executor = sym.simple_bind(ctx=ctx, grad_req="null", **known)
            executor.copy_params_from(
                {k: v for k, v in params.items() if k in executor.arg_dict},
                {k: v for k, v in params.items() if k in executor.aux_dict},
            )
            executor.set_monitor_callback(collector.collect, monitor_all=True)
        executor.forward(is_train=False, **{k: v for k, v in given.items() if k in inputs})
        nd.waitall()
        seen += batch[0].shape[0]
        if num_examples is not None and seen >= num_examples:
            break
    if seen == 0:
        raise InvalidValue("calib_data must have at least one batch, got none")
    return seen


def quantize_model(
    sym: Symbol | str,
    arg_params: Params,
    aux_params: Params,
    data_names: Sequence[str] = ("data",),
    label_names: Sequence[str] | None = ("softmax_label",),
    ctx: Context | None = None,
    excluded_sym_names: list[str] | None = None,
    excluded_op_names: list[str] | None = None,
    calib_mode: str | None = "entropy",
    calib_data: Any = None,
    num_calib_examples: int | None = None,
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: Any = None,
) -> tuple[Symbol, Params, Params]:
    """(quantized Symbol, its arguments, its auxiliary states) of a float model.

    calib_data: a DataIter, for the modes naive and entropy; num_calib_examples: how many of its
    examples count (default: all). See quantize_graph for the others.
    """
    sym, ctx, mode = _symbol_of(sym), _device(cpu() if ctx is None else ctx), calib_mode or "none"
    one_of("calib_mode", mode, MODES[:3])
    if mode != "none":
        if calib_data is None:
            raise InvalidValue(f"calib_data must be provided when calib_mode={mode!r}")
        if not isinstance(calib_data, io.DataIter):
            raise InvalidValue(
                f"calib_data must be a DataIter, got {type(calib_data).__name__}\n  fix:"
                " mx.io.NDArrayIter(array, batch_size=...)"
            )
    qsym, qargs, aux, collector = quantize_graph(
        *(sym, arg_params, aux_params, ctx, excluded_sym_names, excluded_op_names, mode),
        *(quantized_dtype, quantize_mode, quantize_granularity),
        logger=logger,
    )
    if mode == "none":
        return qsym, qargs, aux
    names = [*data_names, *(label_names or ())]
    calib_data.reset()
    batches = ([*b.data, *(b.label or ())] for b in calib_data)
    count = run_calibration(
        sym, {**arg_params, **aux_params}, batches, names, collector, ctx, num_calib_examples
    )
    if logger:
        logger.info("collected values from %d examples", count)
    return calib_graph(qsym, arg_params, aux, collector, mode, quantized_dtype, logger)


def quantize_model_mkldnn(
    sym: Symbol | str,
    arg_params: Params,
    aux_params: Params,
    data_names: Sequence[str] = ("data",),
    label_names: Sequence[str] | None = ("softmax_label",),
    ctx: Context | None = None,
    excluded_sym_names: list[str] | None = None,
    excluded_op_names: list[str] | None = None,
    calib_mode: str | None = "entropy",
    calib_data: Any = None,
    num_calib_examples: int | None = None,
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: Any = None,
) -> tuple[Symbol, Params, Params]:
    """As quantize_model, with what follows a layer (batch normalisation, a sum, an activation) as
    part of it: the faster and more accurate form."""
    fused = _symbol_of(sym).get_backend_symbol("MKLDNN_QUANTIZE")
    qsym, qargs, aux = quantize_model(
        *(fused, arg_params, aux_params, data_names, label_names, ctx, excluded_sym_names),
        *(excluded_op_names, calib_mode, calib_data, num_calib_examples, quantized_dtype),
        *(quantize_mode, quantize_granularity, logger),
    )
    return qsym.get_backend_symbol("MKLDNN_QUANTIZE"), qargs, aux
