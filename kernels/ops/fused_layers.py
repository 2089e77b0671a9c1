"""Layers with what follows them as one node, of oneDNN's backend in MXNet: the names. Each node has
a record of its own, made from its graph (graph/fused_layers.py)."""

from __future__ import annotations

import functools

from ...engine import hooks
from ...engine.error import OperatorError
from ..record import operator
from ..traits import Specialised


def _alone(name: str, *_, **__):
    raise OperatorError(
        name, "needs a subgraph", fix="get_backend_symbol('MKLDNN_QUANTIZE') makes such nodes"
    )


def _of_graph(name: str, given, graphs=None):
    if not graphs:
        _alone(name)
    return hooks.get("fused layer")(name, given, graphs)


for _name, _doc in (
    ("_sg_mkldnn_conv", "Convolution [+ BatchNorm] [+ sum] [+ activation], floats or bytes."),
    ("_sg_mkldnn_fully_connected", "FullyConnected [+ activation], floats or bytes."),
):
    operator(
        _name,
        infer=functools.partial(_alone, _name),
        ref=functools.partial(_alone, _name),
        inputs=("*data",),
        traits=(Specialised(functools.partial(_of_graph, _name)),),
        doc=f"{_doc} Source: MXNet 1.9.1 subgraph/mkldnn.",
    )
