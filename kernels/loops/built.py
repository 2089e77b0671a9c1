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
    "_contrib_MultiBoxPrior": ALL,
    "_contrib_allclose": ALL,
    "_contrib_group_adagrad_update": ALL,
    "_ctc_lattice": ALL,
    "_image_to_tensor": ALL,
    "_linalg_extracttrian": ALL,
    "_linalg_maketrian": ALL,
    "_pick_log_softmax_grad": (2,),
    "_pool_pick": ALL,
    "Crop": ALL,
    "diag": (3,),
    "multi_lars": ALL,
    "multi_sum_sq": ALL,
    "shape_array": ALL,
    "size_array": ALL,
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
                    with contextlib.suppress(OperatorError, ValueError, IndexError):
                        found |= _printed(op, other, list(op.infer(list(other), **attrs)), attrs)
    return found


def _printed(op: Operator, ins: list[Type], outs: list[Type], attrs: dict) -> dict[str, str]:
    try:
        made = c.functions(trace(op, ins, outs, attrs, in_stages=False))
    except (Untraceable, RecursionError):
        return {}
    return {f.name: f.text for f in made}
