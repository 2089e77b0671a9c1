"""The backend of CUDA GPUs."""

from __future__ import annotations

from typing import Any

from ...engine import Context
from ..backend import Backend, Bound, Branches, Fusion, bind_struct, register
from ..native import Native
from ..ops.conv_fused import activated
from ..record import Operator
from ..tables import CUDA, on_cuda
from . import conv_plan, fallback, fused_plan, matmul_plan, trace
from .pending import CompileError, pending
from .pointwise_source import METHODS

checking = False  # a source that does not compile is an error; the tests switch it on
trace.register(on_cuda)  # after all tables: it takes what they leave


def bind(op: Operator, found: Native, device: Context) -> Bound:
    """Launches as the core wants them, once they are compiled; the reference where the compiler
    refuses a source."""
    if found.params is None or type(found.params) is tuple:
        return bind_struct(op, found, device)
    try:
        waits = None if checking else pending(found, device.device_id)
        if waits is not None:
            return Bound(pending=waits)
        return Bound(found, *found.params.on(device.device_id))
    except CompileError as error:
        if checking:
            raise
        fallback.warn(op, error)
        return Bound()


def ends_matmul(
    dtype: str,
    act: str | None = None,
    keep: bool = False,
    residual: bool = False,
    slope: float | None = None,
) -> bool:
    return slope is None and matmul_plan.ends_inside(dtype, act, keep, residual)


def ends_conv(op: Operator, attrs: dict[str, Any]) -> bool:
    named = activated(op, attrs)
    return named is not None and conv_plan.activation(**named) is not None


register(
    Backend(
        "cuda",
        kernels=CUDA,
        reference=fallback.KERNEL,
        bind=bind,
        read=fallback.read,
        write=fallback.write,
        compiles="CUDA C++",
        fusion=Fusion(
            row_dtypes=fused_plan.ROW_DTYPES,
            reductions=METHODS,
            can_compile=fused_plan.can_compile,
            prepare=fused_plan.prepare,
        ),
        fused_dtypes=("float32", "float16", "bfloat16"),
        ends_matmul=ends_matmul,
        ends_conv=ends_conv,
        decomposes=False,  # trace.py makes kernels of references
        joins_in_place=False,
        # two launches' time, for two events more; a kernel on more memory fills the GPU. Not
        # measured
        branches=Branches(8 << 20, 5.0, 4),
    )
)
