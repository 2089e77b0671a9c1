"""Layers with what follows them as one node, as oneDNN's files have them: `_sg_mkldnn_conv` is a
convolution [+ batch normalisation] [+ sum] [+ activation], `_sg_mkldnn_fully_connected` a dense
layer [+ activation]. The float graph stands in the node, and a node with `quantized` computes it on
bytes. Fills the hook "fused layer": each node has a record of its own, with a decomposition.

    float       the graph itself
    quantized   weights to bytes, of each filter by its own range, batch normalisation folded in;
                _conv_int8: sum * scale + shift, + addend, relu, rounded to the calibrated range

Weights, scales and shifts depend on parameters alone, so prediction computes them once (prepack).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.error import OperatorError
from ..kernels.ops.conv import TAPS
from ..kernels.ops.conv_int8 import product_of_rows
from ..kernels.ops.quantize import (
    BYTES,
    CALIBRATION,
    LEAST,
    LEVELS,
    NAMES,
    RANGE,
    WHOLE,
    References,
    as_levels,
    byte_dtype,
    calibrated,
    check_ranges,
    constant,
    dequantized,
    magnitude,
    range_found,
    step_of,
)
from ..kernels.record import Operator, Param, Type, Types, dtype_name, lookup
from ..kernels.traits import Activates, Auxiliary, BatchNorm, Decomposition, Subgraphs
from .graph import Node, Value, topological
from .inference import Inference, typed_graph

CONV, DENSE = "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"
PRODUCTS = {CONV: "Convolution", DENSE: "FullyConnected"}
SUMS = ("elemwise_add", "broadcast_add", "_npi_add")
# activations whose results are never negative: these become uint8
POSITIVE = {
    "Activation": ("relu", "sigmoid", "softrelu"),
    **dict.fromkeys(("relu", "sigmoid", "abs", "square", "sqrt", "exp"), ()),
}
_FLAGS = (
    *("quantized", "with_bn", "with_act", "with_sum", "with_postsum_act", "with_eltwise"),
    *("channel_wise_quantize", "enable_float_output"),
)
PARAMS = (*(Param(n, "bool", False) for n in _FLAGS), *CALIBRATION)


def is_positive(node: Node) -> bool:
    """Is a node an activation without negative results?"""
    assert node.op is not None
    if node.op.name == "clip":
        return node.attrs["a_min"] >= 0
    kinds = POSITIVE.get(node.op.name)
    return kinds is not None and (not kinds or node.attrs["act_type"] in kinds)


class Layer:
    """The float graph of one node: its product, the batch normalisation that is folded into it, and
    what follows."""

    def __init__(self, name: str, outputs: Sequence[Value]):
        self.name, self.outputs, self.order = name, list(outputs), topological(outputs)
        products = [n for n in self.order if n.op is lookup(PRODUCTS[name])]
        if len(products) != 1 or len(outputs) != 1:
            raise OperatorError(
                name,
                f"its graph must have one output and one {PRODUCTS[name]}, got"
                f" {len(outputs)} and {len(products)}",
            )
        self.product = products[0]
        self.variables = [n for n in self.order if n.op is None]
        after = [n for n in self.order if n.op is not None and n is not self.product]
        follows = bool(after) and after[0].inputs[0].node is self.product
        self.norm = after[0] if follows and after[0].operation.has(BatchNorm) else None
        self.start = self.norm or self.product
        self.tail = [n for n in after if n is not self.norm]
        self.no_bias = self.product.attrs["no_bias"]
        self.addend: Node | None = None
        for node in self.tail:
            for v in node.inputs:
                if v.node.op is None:
                    self.addend = v.node
        self.roles = [self._role(n) for n in self.variables]

    def _role(self, variable: Node) -> str:
        for node in (self.product, self.norm):
            if node is not None and variable in (v.node for v in node.inputs):
                names = node.operation.names_in(node.attrs, len(node.inputs))
                return names[[v.node for v in node.inputs].index(variable)]
        return "sum"

    def inputs(self, attrs: dict[str, Any]) -> tuple[str, ...]:
        """Names of the node's inputs: those of the graph, then ranges."""
        if not attrs["quantized"]:
            return tuple(self.roles)
        ranged = ["data"]
        if self.name == DENSE and not attrs["channel_wise_quantize"]:
            ranged += ["weight"] if self.no_bias else ["weight", "bias"]
        if self.addend is not None:
            ranged.append("sum")
        return (*self.roles, *(f"{end}_{n}" for n in ranged for end in ("min", "max")))

    def by_name(self, xs: Sequence, attrs: dict[str, Any]) -> dict[str, Any]:
        return dict(zip(self.inputs(attrs), xs))

    def out_dtype(self, attrs: dict[str, Any]) -> str:
        if attrs["enable_float_output"]:
            return "float32"
        if not calibrated(self.name, attrs["min_calib_range"], attrs["max_calib_range"]):
            return "int32"
        return "uint8" if self.tail and is_positive(self.tail[-1]) else "int8"

    def infer(self, ins: Types, **attrs: Any) -> list[Type]:
        floats = [Type(t.shape, "float32") for t in ins[: len(self.variables)]]
        known = dict(zip(self.variables, floats))
        y = typed_graph(self.outputs, known, False)[0].type
        if not attrs["quantized"]:
            return [y]
        names = self.inputs(attrs)
        for name, t in zip(names, ins):
            if name in ("data", "sum"):
                byte_dtype(self.name, name, t, BYTES if name == "data" else (*BYTES, "float32"))
        check_ranges(self.name, ins, names, len(self.variables))
        made = Type(y.shape, self.out_dtype(attrs))
        return [made] if made.dtype == "float32" else [made, RANGE, RANGE]

    def fill(self, ins: Sequence[Type | None], **attrs: Any) -> list[Type | None]:
        n = len(self.variables)
        known = {v: t for v, t in zip(self.variables, ins) if t is not None}
        whole = dict.fromkeys(known, "float32")
        found = Inference(
            [*self.outputs, *map(Value, self.variables)],
            {v: t.shape for v, t in known.items()},
            whole,
        )
        bytes_too = attrs["quantized"] and self.name == DENSE and not attrs["channel_wise_quantize"]
        made: list[Type | None] = []
        for v, role, given in zip(self.variables, self.roles, ins):
            t = given or found.type(Value(v))
            small = given is None and bytes_too and role in ("weight", "bias")
            made.append(t._replace(dtype="int8") if t is not None and small else t)
        return [*made, *(t or RANGE for t in ins[n:])]

    # ---- what it computes ------------------------------------------------------------------------

    def rule(self, F: Any, *xs: Any, **attrs: Any) -> list:
        given = self.by_name(xs, attrs)
        if not attrs["quantized"]:
            return [self.run(F, dict(zip(map(Value, self.variables), xs)))]
        dtype = self.out_dtype(attrs)
        if dtype in BYTES:
            low, high = (constant(F, attrs[k]) for k in ("min_calib_range", "max_calib_range"))
            return [self._on_bytes(F, given, dtype, (low, high)), low, high]
        y = self._on_bytes(F, given, "float32", None)
        if dtype == "float32":
            return [y]
        r = magnitude(F, *range_found(F, y))
        return [as_levels(F, y, WHOLE["int32"] / r, "int32"), F.negative(r), r]

    def _on_bytes(self, F, given, out, ranges):
        """The result as `out`: float32, or bytes of the range."""
        x = given["data"]
        per_x = step_of(F, x.dtype, given["min_data"], given["max_data"])
        w, per_w, bias = self.parameters(F, given)
        scale = F.broadcast_mul(per_w, per_x)
        addend, per_addend = given.get("sum"), None
        if addend is not None and dtype_name(addend.dtype) in BYTES:
            per_addend = step_of(F, addend.dtype, given["min_sum"], given["max_sum"])
        relu = self._ends_as_kernels_do()
        if relu is None:
            y = self._product(F, x, w, [scale, bias], out_type="float32")
            env = {Value(self.start): y}
            if addend is not None and self.addend is not None:
                wide = F.Cast(addend, dtype="float32")
                wide = wide if per_addend is None else F.broadcast_mul(wide, per_addend)
                env[Value(self.addend)] = wide
            y = self.run(F, env)
            if out == "float32":
                return y
            return as_levels(F, y, LEVELS[out] / magnitude(F, *ranges), out)
        if out in BYTES:
            per_out = LEVELS[out] / magnitude(F, *ranges)
            scale, bias = (F.broadcast_mul(v, per_out) for v in (scale, bias))
            per_addend = per_out if per_addend is None else per_addend * per_out
        elif per_addend is None:
            per_addend = constant(F, 1)
        more = [] if addend is None else [addend, per_addend]
        flags = {"add": addend is not None, "relu": relu, "out_type": out}
        return self._product(F, x, w, [scale, bias, *more], **flags)

    def _ends_as_kernels_do(self) -> bool | None:
        """Does what follows end with relu? None where it is something else than [a sum] [relu]."""
        tail = list(self.tail)
        if self.addend is not None:
            if not tail or tail[0].operation.name not in SUMS or self.name == DENSE:
                return None
            tail = tail[1:]
        if not tail:
            return False
        activates = tail[0].operation.trait(Activates)
        act = None if activates is None else activates.of(**tail[0].attrs)
        return True if len(tail) == 1 and act is not None and act.name == "relu" else None

    def _product(self, F, x, w, more, **attrs):
        node = self.product
        if self.name == DENSE:
            n, flatten = node.attrs["num_hidden"], node.attrs["flatten"]
            return product_of_rows(F, x, w, more, n, flatten, **attrs)
        if (node.attrs["layout"] or "").endswith("C"):
            raise OperatorError(self.name, "layout must have channels first")
        taps = {k: node.attrs[k] for k in (*(p.name for p in TAPS), "num_filter", "num_group")}
        return F._conv_int8(x, w, *more, **taps, **attrs)

    def parameters(self, F: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
        """(weights as bytes, what 1 stands for in each filter, biases as floats)."""
        w, bias = given["weight"], given.get("bias")
        n = w.shape[0]
        if dtype_name(w.dtype) == "int8":
            per_w = step_of(F, "int8", given["min_weight"], given["max_weight"])
            per_w = F.broadcast_mul(F._ones(shape=(n,), dtype="float32"), per_w)
            if bias is not None and dtype_name(bias.dtype) == "int8":
                bias = dequantized(F, bias, given["min_bias"], given["max_bias"])
        else:
            shape = (n, *[1] * (len(w.shape) - 1))
            if self.norm is not None:
                scale = F.rsqrt(given["moving_var"] + self.norm.attrs["eps"])
                scale = scale if self.norm.attrs["fix_gamma"] else given["gamma"] * scale
                w = F.broadcast_mul(w, F.reshape_to(scale, shape=shape))
                shift = given["beta"] - given["moving_mean"] * scale
                bias = shift if bias is None else bias * scale + shift
            largest = F.max(F.abs(w), axis=tuple(range(1, len(w.shape))))
            largest = F._maximum_scalar(F.reshape_to(largest, shape=(n,)), scalar=LEAST)
            w = as_levels(F, w, F.reshape_to(LEVELS["int8"] / largest, shape=shape), "int8")
            per_w = largest * (1 / LEVELS["int8"])
        return w, per_w, F._zeros(shape=(n,), dtype="float32") if bias is None else bias

    def run(self, F: Any, env: dict[Value, Any]) -> Any:
        """The graph's output, from values of some of its nodes."""
        for node in self.order:
            if node.op is None or Value(node) in env:
                continue
            if any(v not in env for v in node.inputs):
                continue  # it lies below a given value
            attrs = {k: v for k, v in node.attrs.items() if k != "train"}
            made = F.apply(node.op, [env[v] for v in node.inputs], attrs)
            env[Value(node)] = made[0] if isinstance(made, (list, tuple)) else made
        return env[self.outputs[0]]


def fused_layer(
    name: str, given: dict[str, str], graphs: Sequence[Sequence[Value]] = ()
) -> Operator:
    """The record of one node, from its graph."""
    if len(graphs) != 1:
        raise OperatorError(name, f"needs one subgraph, got {len(graphs)}")
    layer = Layer(name, graphs[0])

    def ref(xp, *xs, **attrs):
        return tuple(layer.rule(References(xp), *xs, **attrs))

    states = tuple(i for i, r in enumerate(layer.roles) if r in ("moving_mean", "moving_var"))
    return Operator(
        name=name,
        inputs=tuple(layer.roles),
        input_names=lambda **attrs: layer.inputs(attrs),
        params=PARAMS,
        n_outputs=lambda quantized, enable_float_output, **_: (
            3 if quantized and not enable_float_output else 1
        ),
        output_names=NAMES,
        infer=layer.infer,
        fill=layer.fill,
        ref=ref,
        traits=(
            Decomposition(layer.rule),
            Subgraphs(tuple(map(tuple, graphs))),
            *([Auxiliary(states)] if states else ()),
        ),
    )
