"""Counting values in bins."""

from __future__ import annotations

from ...engine.error import OperatorError
from ..record import FLOATS, Param, Type, operator, sample, values


def _infer(ins, bin_cnt, range):
    if len(ins) == 2:
        if bin_cnt is not None or len(ins[1].shape) != 1 or ins[1].shape[0] < 2:
            raise OperatorError(
                "_histogram",
                "bins must be a vector of at least 2 edges, without bin_cnt, got shape "
                f"{ins[1].shape} and bin_cnt {bin_cnt}",
            )
        return [Type((ins[1].shape[0] - 1,), "int64"), ins[1]]
    if (
        bin_cnt is None
        or bin_cnt < 1
        or range is None
        or len(range) != 2
        or not range[0] < range[1]
    ):
        raise OperatorError(
            "_histogram",
            f"needs bins, or bin_cnt >= 1 and an increasing range, got bin_cnt {bin_cnt} and "
            f"range {range}",
        )
    return [
        Type((bin_cnt,), "int64"),
        Type((bin_cnt + 1,), ins[0].dtype if ins[0].dtype in FLOATS else "float32"),
    ]


def _ref(xp, data, bins=None, *, bin_cnt, range):
    data = data.astype("uint8") if data.dtype.kind == "b" else data
    if bins is not None and bool(xp.any(bins[1:] < bins[:-1])):
        raise OperatorError("_histogram", "bins must not decrease")
    return xp.histogram(data, bins=bin_cnt if bins is None else bins, range=range)


operator(
    "_histogram",
    aliases=("_npi_histogram",),
    inputs=("data", "bins"),
    n_outputs=2,
    infer=_infer,
    ref=_ref,
    input_names=lambda bin_cnt, range: ("data",) if bin_cnt is not None else ("data", "bins"),
    params=(Param("bin_cnt", "int?", None), Param("range", "floats?", None)),
    samples=(sample((3, 4), bin_cnt=5, range=(-1.0, 1.0)), sample((6,), values([-1, 0, 2]))),
    doc=(
        "(counts int64, edges): how many values fall in each bin; the last bin holds its right edge"
        " too."
    ),
)
