"""Quantization-aware training: layers that compute with rounded weights and inputs, as the network
on bytes will, while gradients pass as if nothing were rounded (Jacob et al. 2018,
arXiv:1712.05877)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine import Context, cpu
from ...engine.error import InvalidValue
from ...graph.graph import rewrite, topological
from ...graph.names import output_name
from ...graph.passes.quantize import RANGE_KEPT
from ...kernels.record import lookup
from ...kernels.traits import Subgraphs
from ...ndarray import autograd
from ...symbol import Symbol
from ..block import Block
from ..hybrid import HybridBlock
from ..nn import Conv1D, Conv2D, Conv3D, Dense
from ..quantization.model import calib_graph, one_of, quantize_graph, run_calibration
from ..quantization.net import as_block, batches_of, graph_of
from ..replace import replace_layers, share_parameters
from ..symbol_block import SymbolBlock
from ..trace import blocks_of

LAYERS = (Dense, Conv1D, Conv2D, Conv3D)
FAKE = lookup("_contrib_fake_quantize")


class FakeQuantized(HybridBlock):
    """A layer whose input and weight are rounded to the levels that the network on bytes will have:
    the weight's by the largest magnitude of each filter, the input's by `input_range`, (2,)."""

    _layer: Any

    def __init__(self, layer: Any, momentum: float):
        super().__init__(prefix=layer.prefix)
        object.__setattr__(self, "_layer", layer)  # not a child: its parameters are those of self
        self._momentum, self._learned = momentum, False
        share_parameters(self, layer, ("weight", "bias"))
        self.act = layer.act
        self.input_range = self.params.get("input_range", shape=(2,), init="zeros", grad_req="null")
        self.input_range.initialize(ctx=layer.weight.list_ctx() if layer.weight._data else None)

    def learn(self) -> None:
        """From now on the range is trained by its gradient."""
        self._learned = True
        self.input_range.grad_req = "write"
        self._clear_traces()

    def hybrid_forward(
        self, F: Any, x: Any, weight: Any, bias: Any = None, input_range: Any = None
    ) -> Any:
        if autograd.is_training() and not self._learned:
            plain = F.BlockGrad(x)
            found = F.concat(F.min(plain), F.max(plain), dim=0)
            seen = F.max(F.abs(input_range)) > 0
            m = self._momentum
            moved = F.where(
                F.broadcast_mul(seen, F.ones_like(input_range)),
                input_range * m + found * (1 - m),
                found,
            )
            input_range = F._internal._running(moved, input_range, momentum=0.0)
        low = F.slice_axis(input_range, axis=0, begin=0, end=1)
        high = F.slice_axis(input_range, axis=0, begin=1, end=2)
        ndim = len(self._layer.weight.shape)
        rounded = F.contrib.fake_quantize(x, *(F.reshape(v, shape=(1,)) for v in (low, high)))
        top = F.max(F.abs(F.BlockGrad(weight)), axis=tuple(range(1, ndim)), keepdims=True)
        of_weight = F.contrib.fake_quantize(weight, F.negative(top), top)
        given = {} if bias is None else {"bias": bias}
        return self._layer.hybrid_forward(F, rounded, of_weight, **given)

    def __repr__(self):
        return f"FakeQuantized({self._layer!r})"


def quantize_aware(
    net: Block,
    ranges: str = "moving",
    momentum: float = 0.95,
    calib_data: Any = None,
    exclude: Sequence[str] = (),
) -> Block:
    """Replaces the Dense and Conv layers inside net by FakeQuantized ones, which share their
    parameters. Train it as before, hybridized or not; `convert` makes the network on bytes.

    ranges: of the layers' inputs: "moving", averages over the batches that training sees, or
        "learned", trained by their gradients from what calib_data (a DataLoader or DataIter) says;
        make the Trainer after this call. exclude: parts of names of layers that stay. The ranges
        are parameters: they are saved and loaded with the network.

    Returns net. Raises InvalidValue where there is nothing to replace.
    """
    one_of("ranges", ranges, ("moving", "learned"))
    if not 0 <= momentum < 1:
        raise InvalidValue(f"momentum must be in [0, 1), got {momentum}")
    if ranges == "learned" and calib_data is None:
        raise InvalidValue("ranges='learned' needs calib_data, from which the ranges start")

    def make(layer: Any) -> FakeQuantized | None:
        if any(part in layer.name for part in exclude):
            return None
        if layer.weight._data is None:
            raise InvalidValue(
                f"parameter {layer.weight.name!r} has no values yet\n  fix: net.initialize(), and"
                " call net once"
            )
        return FakeQuantized(layer, momentum)

    if not replace_layers(net, LAYERS, make):
        raise InvalidValue(
            "quantize_aware: net must contain Dense or Conv layers\n  fix: give the block that they"
            " are part of"
        )
    layers = [b for b in blocks_of(net) if isinstance(b, FakeQuantized)]
    if ranges == "learned":
        for batch in batches_of(calib_data, 1):
            with autograd.train_mode():
                net(*batch)
        for layer in layers:
            layer.learn()
    return net


def convert(
    net: HybridBlock,
    calib_data: Any = None,
    data_shapes: Any = None,
    quantized_dtype: str = "auto",
    num_calib_examples: int | None = None,
    ctx: Context | None = None,
) -> SymbolBlock:
    """The network on bytes of one that quantize_aware prepared and training has trained.

    calib_data: a DataLoader or DataIter, needed where values are quantized that are no layer's
        input, such as the sums of a residual network; data_shapes: as for quantize_net.
    """
    device = cpu() if ctx is None else ctx
    symbol, names = graph_of(net, calib_data, data_shapes)
    held = {n: p.data(p.list_ctx()[0]) for n, p in net.collect_params().items()}
    ranges: dict[str, tuple[float, float]] = {}

    def replace(node: Any, inputs: Any) -> Any:
        if node.op is not FAKE:
            return None
        known = [n.name for n in topological([node.inputs[1]]) if n.op is None]
        if len(known) == 1 and known[0].endswith("input_range"):
            low, high = (float(v) for v in held[known[0]].asnumpy())
            if low == high == 0:
                raise InvalidValue(
                    f"convert: {known[0]} has not been trained\n  fix: train the network with"
                    " autograd.record() first"
                )
            ranges[output_name(node.inputs[0])] = (min(low, 0.0) if low < 0 else 0.0, high)
        return [inputs[0]]

    plain = Symbol(rewrite(symbol._outputs, replace))
    if not ranges:
        raise InvalidValue("convert: net has no layers of quantize_aware")
    fused = plain.get_backend_symbol("MKLDNN_QUANTIZE")
    order = topological(fused._outputs)
    for node in order:  # a fused layer gives what the last of its nodes gave
        found = None if node.op is None else node.op.trait(Subgraphs)
        if found is not None:
            inner = output_name(found.graphs[0][0])
            if inner in ranges:
                ranges[f"{node.name}_output"] = ranges[inner]
    for node in reversed(order):  # pooling and reshaping keep the range of what they read
        name = None if node.op is None else f"{node.name}_output"
        if name in ranges and node.op is not None and node.op.name in RANGE_KEPT:
            ranges.setdefault(output_name(node.inputs[0]), ranges[name])
    args = {n: held[n] for n in fused.list_arguments() if n in held}
    aux = {n: held[n] for n in fused.list_auxiliary_states()}
    qsym, _, _, collector = quantize_graph(
        fused, args, aux, device, calib_mode="naive", quantized_dtype=quantized_dtype
    )
    if calib_data is not None:
        run_calibration(
            *(fused, {**args, **aux}, batches_of(calib_data, len(names)), names, collector),
            *(device, num_calib_examples),
        )
    collector.min_max_dict.update(ranges)
    qsym, qargs, qaux = calib_graph(qsym, args, aux, collector, "naive", quantized_dtype)
    qsym = qsym.get_backend_symbol("MKLDNN_QUANTIZE")
    return as_block(qsym, names, {**qargs, **qaux}, device)
