"""Quantization of Gluon networks: quantize_net, quantize_net_v2."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ... import ndarray as nd
from ...data import io
from ...engine import Context, cpu
from ...engine.error import InvalidType, InvalidValue
from ...ndarray import NDArray
from ...symbol import symbol as symbols
from ..block import Block
from ..hybrid import HybridBlock
from ..symbol_block import SymbolBlock
from ..trace import StructureError
from .model import (
    MODES,
    _device,
    _list_of,
    calib_graph,
    one_of,
    quantize_graph,
    run_calibration,
)


def batches_of(calib_data: Any, n_inputs: int) -> Iterator[list[NDArray]]:
    """The network's inputs in each batch of a DataIter or a DataLoader; labels are left out."""
    if isinstance(calib_data, io.DataIter):
        calib_data.reset()
        for batch in calib_data:
            yield list(batch.data)[:n_inputs]
        return
    for batch in calib_data:
        arrays = list(batch) if isinstance(batch, (list, tuple)) else [batch]
        if len(arrays) < n_inputs or not all(isinstance(a, NDArray) for a in arrays[:n_inputs]):
            raise InvalidValue(
                f"calib_data must give {n_inputs} arrays for the network's inputs, got"
                f" {[type(a).__name__ for a in arrays]}"
            )
        yield arrays[:n_inputs]


def _first(calib_data: Any, data_shapes: Any) -> list[NDArray]:
    """Arrays to trace the network with."""
    if data_shapes:
        found = []
        for d in data_shapes:
            shape = getattr(d, "shape", None) or (d[1] if isinstance(d[0], str) else d)
            found.append(nd.zeros(tuple(shape), dtype=getattr(d, "dtype", "float32")))
        return found
    if calib_data is None:
        raise InvalidValue(
            "data_shapes must be given where there is no calib_data\n  fix: data_shapes=["
            "mx.io.DataDesc('data', (batch, ...))]"
        )
    if isinstance(calib_data, io.DataIter):
        given: Any = calib_data
        return [nd.zeros(d.shape, dtype=d.dtype) for d in given.provide_data]
    if not isinstance(calib_data, Iterable):
        raise InvalidType(
            f"calib_data must be a DataIter or a DataLoader, got {type(calib_data).__name__}"
        )
    batch = next(iter(calib_data), None)
    if batch is None:
        raise InvalidValue("calib_data must have at least one batch, got none")
    return list(batch) if isinstance(batch, (list, tuple)) else [batch]


def _traced(network: HybridBlock, arrays: Sequence[NDArray]) -> tuple[symbols.Symbol, list[str]]:
    """(the network's graph, names of its inputs). arrays: as many of them as it takes complete its
    parameters."""
    for n in range(len(arrays), 0, -1):
        try:
            network(*arrays[:n])
        except (TypeError, StructureError):
            if n == 1:
                raise
            continue
        names = ["data"] if n == 1 else [f"data{i}" for i in range(n)]
        made = network(*map(symbols.var, names))
        return symbols.Group(made) if isinstance(made, (list, tuple)) else made, names
    raise InvalidValue("a network must have at least one input, got none")


def graph_of(
    network: HybridBlock, calib_data: Any, data_shapes: Any
) -> tuple[symbols.Symbol, list[str]]:
    """(a network's graph, names of its inputs), for data like these."""
    return _traced(network, _first(calib_data, data_shapes))


def as_block(
    symbol: symbols.Symbol, names: Sequence[str], given: dict[str, NDArray], device: Context
) -> SymbolBlock:
    """A network of a graph with these parameters, which do not train."""
    made = SymbolBlock(symbol, [symbols.var(n) for n in names])
    for name, p in made.collect_params().items():
        value = given[name].as_in_context(device)
        p.shape, p.dtype = value.shape, value.dtype
        p.grad_req = "null"
        p.initialize(ctx=device)
        p.set_data(value)
    return made


def quantize_net_v2(
    network: Block,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    exclude_layers: list[str] | None = None,
    exclude_layers_match: list[str] | None = None,
    exclude_operators: list[str] | None = None,
    calib_data: Any = None,
    data_shapes: Any = None,
    calib_mode: str | None = "none",
    num_calib_examples: int | None = None,
    ctx: Context | None = None,
    LayerOutputCollector: Any = None,
    logger: Any = None,
) -> SymbolBlock:
    """A network on 8-bit integers, made of a float HybridBlock, which stays as it is.

    calib_data: a DataIter or DataLoader; what it gives beyond the network's inputs (labels) is
        ignored. data_shapes: of the inputs, where there is no calib_data. exclude_layers: names of
        nodes; exclude_layers_match: parts of such names; exclude_operators: names of operators.
        calib_mode: none, naive, entropy, customize: see quantize_graph.

    Raises InvalidValue for unknown modes and missing data.
    """
    if not isinstance(network, HybridBlock):
        raise InvalidType(f"network must be a HybridBlock, got {type(network).__name__}")
    device, mode = _device(cpu() if ctx is None else ctx), calib_mode or "none"
    one_of("calib_mode", mode, MODES)
    one_of("quantized_dtype", quantized_dtype, ("int8", "uint8", "auto"))
    if mode != "none" and calib_data is None:
        raise InvalidValue(f"calib_data must be provided when calib_mode={mode!r}")
    sym, names = graph_of(network, calib_data, data_shapes)
    held = {n: p.data(p.list_ctx()[0]) for n, p in network.collect_params().items()}
    args = {n: held[n] for n in sym.list_arguments() if n in held}
    aux = {n: held[n] for n in sym.list_auxiliary_states()}
    excluded = [*_list_of("exclude_layers", exclude_layers)]
    for part in _list_of("exclude_layers_match", exclude_layers_match):
        excluded += [s.name for s in sym.get_internals() if s.name and part in s.name]
    fused = sym.get_backend_symbol("MKLDNN_QUANTIZE")
    qsym, qargs, qaux, collector = quantize_graph(
        *(fused, args, aux, device, excluded, exclude_operators, mode, quantized_dtype),
        *(quantize_mode, quantize_granularity, LayerOutputCollector, logger),
    )
    if mode != "none":
        batches = batches_of(calib_data, len(names))
        count = run_calibration(
            fused, {**args, **aux}, batches, names, collector, device, num_calib_examples
        )
        if logger:
            logger.info("collected values from %d examples", count)
        qsym, qargs, qaux = calib_graph(qsym, args, aux, collector, mode, quantized_dtype, logger)
    qsym = qsym.get_backend_symbol("MKLDNN_QUANTIZE")
    return as_block(qsym, names, {**qargs, **qaux}, device)


def quantize_net(
    network: Block,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    exclude_layers: list[str] | None = None,
    exclude_layers_match: list[str] | None = None,
    exclude_operators: list[str] | None = None,
    calib_data: Any = None,
    data_shapes: Any = None,
    calib_mode: str | None = "none",
    num_calib_examples: int | None = None,
    ctx: Context | None = None,
    logger: Any = None,
) -> SymbolBlock:
    """As quantize_net_v2, which has the granularity and the collector too."""
    return quantize_net_v2(
        *(network, quantized_dtype, quantize_mode, "tensor-wise", exclude_layers),
        *(exclude_layers_match, exclude_operators, calib_data, data_shapes, calib_mode),
        *(num_calib_examples, ctx, None, logger),
    )
