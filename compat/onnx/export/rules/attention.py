"""Attention: the references, whose shapes follow from those of their inputs, are shorter than the
decompositions, which are for plait's kernels."""

from __future__ import annotations

from typing import Any

from ..graph import Graph
from ..rule import rule
from ..tensors import Tensor


@rule("_contrib_interleaved_matmul_selfatt_qk", "_contrib_interleaved_matmul_selfatt_valatt")
@rule("_contrib_interleaved_matmul_encdec_qk", "_contrib_interleaved_matmul_encdec_valatt")
def interleaved(g: Graph, *xs: Tensor, **attrs: Any) -> Any:
    return g.converter.by_reference(g, *xs, **attrs)


@rule("_contrib_div_sqrt_dim")
def div_sqrt_dim(g: Graph, x: Tensor) -> Tensor:
    return x / float(x.shape[-1]) ** 0.5
