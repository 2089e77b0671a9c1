"""What passes ask of a device: which types its fused kernels take, and whether there is one."""

from __future__ import annotations

from collections.abc import Sequence

from ...kernels.native import choose
from ...kernels.record import HALVES, Operator, Type

# kind of device -> dtypes of fused matrix products, convolutions and attention
FUSED_DTYPES = {"cpu": ("float32",), "gpu": ("float32", *HALVES)}


def has_kernel(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict, device: str
) -> bool:
    """Is there a kernel written for this call on a device of the kind?"""
    if device == "gpu":
        from ...kernels import cuda  # noqa: F401  (here: it fills the table)
    return choose(op, ins, outs, attrs, device, derived=False) is not None


def ends_product(dtype: str, act: str | None, kept: bool, residual: bool, device: str) -> bool:
    """Is it cheaper that a product ends so than that a group of pointwise operators follows it?"""
    if device == "cpu":
        return True
    from ...kernels.cuda.steps import ends_inside

    return ends_inside(dtype, act, kept, residual)
