"""Which references are printed and compiled when plait is built: of operators that have no kernel
written for them, the loops of the samples of their record. tests/kernels/test_traced.py says which
belong here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from ...engine.error import OperatorError
from ..record import Operator, Sample, Type, lookup
from . import c
from .nodes import Untraceable
from .trace import trace

ALL = ()
# operator -> its samples without another kernel, or ALL; their loops are not slower than NumPy
OPERATORS: dict[str, tuple[int, ...]] = {
    "Correlation": ALL,
    "_correlation_grad": ALL,
    "BatchNorm_v1": (1,),
    "Crop": ALL,
    "IdentityAttachKLSparseReg": ALL,
    "LayerNorm": (1,),
    "LeakyReLU": (4,),
    "Pooling": (7, 8, 9),
    "Pooling_v1": ALL,
    "SequenceMask": (0,),
    "_NoGradient": ALL,
    "_adaptive_avg_pool_grad": ALL,
    "_contrib_AdaptiveAvgPooling2D": (1, 2, 3),
    "_contrib_BatchNormWithReLU": ALL,
    "_contrib_DeformablePSROIPooling": ALL,
    "_contrib_MultiBoxPrior": ALL,
    "_contrib_SyncBatchNorm": (1,),
    "_contrib_allclose": ALL,
    "_contrib_box_encode": ALL,
    "_contrib_count_sketch": ALL,
    "_contrib_edge_id": ALL,
    "_contrib_getnnz": ALL,
    "_contrib_group_adagrad_update": ALL,
    "_contrib_index_array": ALL,
    "_contrib_index_copy": ALL,
    "_ctc_lattice": ALL,
    "_cvcopyMakeBorder": ALL,
    "_cvimresize": (16,),
    "_deformable_psroi_grad": ALL,
    "_diff": ALL,
    "_image_adjust_lighting": ALL,
    "_image_crop": ALL,
    "_image_random_brightness": ALL,
    "_image_random_contrast": ALL,
    "_image_random_hue": ALL,
    "_image_random_lighting": ALL,
    "_image_random_saturation": ALL,
    "_image_resize": (0, 1, 2),
    "_image_tensor_normalize": (0,),
    "_image_to_tensor": ALL,
    "_linalg_extracttrian": ALL,
    "_linalg_gemm2": (5, 6),
    "_linalg_maketrian": ALL,
    "_linalg_sumlogdiag": ALL,
    "_np_cumsum": (3,),
    "_pick_log_softmax_grad": (2,),
    "_polygamma": (0, 1),
    "_pool_pick": ALL,
    "_prod_others": ALL,
    "_random_gamma": ALL,
    "_random_gamma_like": ALL,
    "_random_generalized_negative_binomial": ALL,
    "_random_generalized_negative_binomial_like": ALL,
    "_random_negative_binomial": ALL,
    "_random_negative_binomial_like": ALL,
    "_random_pdf_dirichlet": ALL,
    "_random_pdf_exponential": ALL,
    "_random_pdf_gamma": ALL,
    "_random_pdf_generalized_negative_binomial": ALL,
    "_random_pdf_negative_binomial": ALL,
    "_random_pdf_normal": ALL,
    "_random_pdf_poisson": ALL,
    "_random_pdf_uniform": ALL,
    "_random_poisson": ALL,
    "_random_poisson_like": ALL,
    "_ravel_multi_index": ALL,
    "_running": ALL,
    "_sample_exponential": ALL,
    "_sample_gamma": ALL,
    "_sample_generalized_negative_binomial": ALL,
    "_sample_multinomial": ALL,
    "_sample_negative_binomial": ALL,
    "_sample_normal": ALL,
    "_sample_poisson": ALL,
    "_sample_uniform": ALL,
    "_slopes": ALL,
    "_sparse_retain": ALL,
    "_standard_gamma": ALL,
    "_strided_grad": (1,),
    "_unravel_index": ALL,
    "_zeros_without_dtype": ALL,
    "add_n": (1,),
    "cast_storage": ALL,
    "col2im": ALL,
    "diag": (3,),
    "fill_element_0index": ALL,
    "khatri_rao": ALL,
    "log_softmax": (2,),
    "multi_lars": ALL,
    "multi_sum_sq": ALL,
    "norm": (3,),
    "reset_arrays": ALL,
    "shape_array": ALL,
    "size_array": ALL,
    "softmax": (2,),
}


def types_of(given: Sample, dtype: str) -> list[Type]:
    """The inputs of a sample where its floats are of this dtype."""
    found = []
    for x in given.inputs:
        kind = x[0] if x and isinstance(x[0], str) else ""
        if kind == "values":
            found.append(Type(np.shape(x[1]), x[2] if x[2] != "float32" else dtype))
        else:
            found.append(Type(tuple(x[1]) if kind else tuple(x), dtype))
    return found


def calls(
    op: Operator, dtype: str, numbers: Sequence[int] = ALL
) -> Iterator[tuple[list[Type], list[Type], dict]]:
    """(inputs, outputs, attributes) of an operator's samples."""
    for number, given in enumerate(op.samples):
        if numbers and number not in numbers:
            continue
        ins = types_of(given, dtype)
        attrs = op.parse(op.counted(dict(given.attrs), len(ins)))
        for train in (True, False) if op.train_aware else (None,):
            complete = attrs if train is None else {**attrs, "train": train}
            yield ins, list(op.infer(list(ins), **complete)), complete


def _resized(ins: list[Type]) -> Iterator[list[Type]]:
    """The inputs of other calls: loops over an axis of one element, which an operand may repeat,
    are others than those over several."""
    yield [t._replace(shape=tuple(2 if n == 1 else n for n in t.shape)) for t in ins]
    if ins and ins[0].shape:
        rank, n = len(ins[0].shape), ins[0].shape[0]
        yield [
            t._replace(shape=(1, *t.shape[1:])) if (len(t.shape), *t.shape[:1]) == (rank, n) else t
            for t in ins
        ]


def functions() -> dict[str, str]:
    """Name and text of every function."""
    found: dict[str, str] = {}
    for name, numbers in OPERATORS.items():
        op = lookup(name)
        for dtype in ("float32", "float64"):
            for ins, outs, attrs in calls(op, dtype, numbers):
                found |= _printed(op, ins, outs, attrs)
                for other in _resized(ins):
                    if other == ins:
                        continue
                    with contextlib.suppress(OperatorError, ValueError, IndexError):
                        found |= _printed(op, other, list(op.infer(list(other), **attrs)), attrs)
    return found


def _printed(op: Operator, ins: list[Type], outs: list[Type], attrs: dict) -> dict[str, str]:
    try:
        made = c.candidates(trace(op, ins, outs, attrs, for_cpu=True))
    except (Untraceable, RecursionError):
        return {}
    return {f.name: f.text for ways in made for f in ways}
