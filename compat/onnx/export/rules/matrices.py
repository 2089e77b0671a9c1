"""Linear algebra: what ONNX has of it."""

from __future__ import annotations

from typing import Any

from ..arrays import FUNCTIONS
from ..graph import Graph
from ..rule import rule, without
from ..tensors import Tensor


def _matrices(g: Graph, x: Tensor) -> Tensor:
    return g.reshape(g.Det(x, shape=x.shape[:-2]), g.outs[0].shape)


@rule("_linalg_det")
def det(g: Graph, x: Tensor, **_: Any) -> list[Tensor]:
    return [_matrices(g, x)]  # and what only the gradient reads


@rule("_linalg_slogdet")
def slogdet(g: Graph, x: Tensor, **_: Any) -> list[Tensor]:
    found = _matrices(g, x)
    return [g.Sign(found), g.Log(g.Abs(found))]


@rule("_contrib_allclose")
def allclose(
    g: Graph, a: Tensor, b: Tensor, *, rtol: float, atol: float, equal_nan: bool
) -> Tensor:
    near = FUNCTIONS["isclose"](g, a, b, rtol, atol) | (a == b)
    if equal_nan:
        near = near | (g.IsNaN(a, dtype="bool") & g.IsNaN(b, dtype="bool"))
    return FUNCTIONS["all"](g, near)


without(
    "ONNX factors and inverts no matrices",
    "_linalg_potrf _linalg_potri _linalg_gelqf _linalg_syevd _linalg_svd _linalg_svdvals"
    " _linalg_eig _linalg_eigvals _linalg_eigvalsh _linalg_pinv _linalg_inverse"
    " _linalg_inverse_or_zero _linalg_solve _linalg_cofactors _linalg_complement",
)
without("ONNX has no operator that looks at the bits of floats", "_nextafter _spacing")
without("ONNX has no greatest common divisor", "_gcd _lcm")
without("ONNX has no operator that counts", "_histogram _contrib_getnnz _counts")
without(
    "it needs sparse arrays, which ONNX's operators do not take",
    "_contrib_edge_id _csr_dot _sparse_retain _contrib_sparse_dense",
)
without("the shape of its result depends on values", "_contrib_boolean_mask _places")
without(
    "it writes its inputs, and ONNX's values do not change",
    "_contrib_cached_attention",
)
without("it prepares a network, and is no part of it", "_contrib_calibrate_entropy")
without("several processes compute it", "_all_gather _all_reduce _all_to_all _reduce_scatter")
without(
    "it is for training",
    "_contrib_MultiBoxTarget _contrib_bipartite_matching _kept_factors _no_second_order",
)
without(
    "only the passes that compile a graph make it",
    "_attention _attention_dropout _conv _dense _fused _reorder _set_value _prod_others",
)
