"""Matrix products: float32, 16-bit floats, int8 and uint8 on CPUs; on GPUs all float dtypes. 16-bit
floats are summed in float32, integers in int32; GPUs round float32 to TF32 if PLAIT_TF32 is set."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ...engine import lib
from .. import cuda
from ..activations import NUMBERS
from ..cpu.layout import FLOPS_PER_US, code, cost
from ..native import Native, Wanted
from ..record import FLOATS, Attrs, Operator, Types
from ..spec import ITEM_BYTES
from . import CPU, on_cpu, on_cuda
from .conv_fused import block


class Call(NamedTuple):
    """n_batch matrix products (m, k) . (k, n); either operand may be stored transposed."""

    m: int
    n: int
    k: int
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    n_batch: int = 1


def _dense(ins, outs, attrs) -> Call:
    n, k = ins[1].shape
    return Call(prod(outs[0].shape[:-1]), n, k, False, True)


def _dot(ins, outs, attrs) -> Call:
    (a, b), ta, tb = (t.shape for t in ins), attrs["transpose_a"], attrs["transpose_b"]
    k, m = (a[0], prod(a[1:])) if ta else (a[-1], prod(a[:-1]))
    return Call(m, prod(b[:-1] if tb else b[1:]), k, ta, tb)


def _batch_dot(ins, outs, attrs) -> Call | None:
    a, ta, tb = ins[0].shape, attrs["transpose_a"], attrs["transpose_b"]
    if attrs.get("axis", -2) not in (-2, len(a) - 2):
        return None
    (m, n), k = outs[0].shape[-2:], a[-2] if ta else a[-1]
    return Call(m, n, k, ta, tb, attrs.get("alpha", 1.0), prod(a[:-2]))


def _fused(ins, outs, attrs) -> Call:
    a, (m, n), ta = ins[0].shape, outs[0].shape, attrs["transpose_a"]
    return Call(m, n, a[0] if ta else a[1], ta, attrs["transpose_b"], attrs["scale"])


def _dot_sum(ins, outs, attrs) -> Call:
    (k, m), n = ins[0].shape, outs[0].shape[1]
    return Call(m, n, k, True, attrs["transpose_b"])


# ---- CPU -----------------------------------------------------------------------------------------


SUMMED = ("float32", "float16", "bfloat16", "int8", "uint8")
# steps of which sums in int32 cannot overflow
MOST_STEPS = {"int8": 2**31 // 128**2 - 1, "uint8": 2**31 // 255**2 - 1}


def _panels(call: Call) -> str:
    """The layout of a product's right operand in panels of adjacent columns."""
    return f"{'Ab' if call.transpose_b else 'Ba'}{2 * block()}{'a' if call.transpose_b else 'b'}"


def _product_wants(call: Call, ins: Types, outs: Types) -> Wanted | None:
    """Panels for weights, but for those that kernels pack in no time or that are no float32."""
    small = call.n <= 64 and -(-call.n // 32) * 32 * call.k <= lib.PLK_SMALL
    sizes = (call.m, call.n, call.k)
    if small or 0 in sizes or call.transpose_a or any(t.dtype != "float32" for t in (*ins, *outs)):
        return None
    tags = [_panels(call) if i == 1 else "" for i in range(len(ins))]
    return Wanted(tags, [""] * len(outs), prepared=(1,))


@CPU.wants("FullyConnected")
def dense_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    return _product_wants(_dense(ins, outs, attrs), ins, outs)


@CPU.wants("dot")
def dot_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    if len(ins[0].shape) < 1 or len(ins[1].shape) != 2:
        return None
    return _product_wants(_dot(ins, outs, attrs), ins, outs)


@CPU.wants("_dense")
def fused_dense_wants(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Wanted | None:
    return _product_wants(_fused(ins, outs, attrs), ins, outs)


def _on_cpu(call: Call | None, ins, outs, **epilogue) -> Native | None:
    dtype = ins[0].dtype
    if call is None or dtype not in SUMMED or any(t.dtype != dtype for t in (*ins, *outs)):
        return None
    if ins[1].layout:
        if ins[1].layout != _panels(call) or any(t.layout for t in (ins[0], *ins[2:], *outs)):
            return None
        epilogue["panel"] = 2 * block()
    elif any(t.layout for t in (*ins, *outs)):
        return None
    n_batch, m, n, k = call.n_batch, call.m, call.n, call.k
    plain = call.alpha == 1 and not any(v for name, v in epilogue.items() if name != "bias")
    if dtype in MOST_STEPS and (k > MOST_STEPS[dtype] or not plain):
        return None
    fields = {**call._asdict(), "a_step": m * k, "b_step": k * n, "dtype": code(dtype), **epilogue}
    us = cost(*ins, *outs) + 0.3 + 2 * n_batch * m * n * k / FLOPS_PER_US
    kernel = "plk_gemm_run" if dtype == "float32" else "plk_gemm_narrow"
    return Native(kernel, ("plk_gemm", fields), us)


@on_cpu("FullyConnected", layouts=True)
def dense_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu(_dense(ins, outs, attrs), ins, outs, bias=not attrs["no_bias"])


@on_cpu("dot", layouts=True)
def dot_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu(_dot(ins, outs, attrs), ins, outs)


@on_cpu("batch_dot", "_linalg_gemm2")
def batch_dot_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cpu(_batch_dot(ins, outs, attrs), ins, outs)


@on_cpu("_dense", layouts=True)
def fused_dense_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    numbers = {k: NUMBERS[attrs[k]] for k in ("act", "slope")}
    flags = {k: attrs[k] for k in ("bias", "residual", "keep")}
    return _on_cpu(_fused(ins, outs, attrs), ins, outs, **numbers, **flags)


@on_cpu("_dot_sum")
def dot_sum_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = _dot_sum(ins, outs, attrs)
    return _on_cpu(call, ins, outs, sums=True) if call.n else None


# ---- CUDA ----------------------------------------------------------------------------------------


def _same(types) -> bool:
    return types[0].dtype in FLOATS and all(t.dtype == types[0].dtype for t in types)


def _on_cuda(call: Call | None, ins, outs, **more) -> Native | None:
    if call is None or not _same((*ins, *outs)):
        return None
    scratch = cuda.ScratchSpace()
    if call.n_batch > 1:
        more |= {"a_step": call.m * call.k, "b_step": call.k * call.n}
    return cuda.steps(_matmul(call, ins, scratch, **more), scratch)


def _matmul(call: Call, ins, scratch, **more):
    """The steps of the matrix product of buffers 0 and 1."""
    flags = {k: getattr(call, k) for k in ("transpose_a", "transpose_b", "alpha", "n_batch")}
    a, b, y = map(cuda.Buffer, (0, 1, len(ins)))
    return cuda.matmul(ins[0].dtype, call.m, call.n, call.k, a, b, y, scratch, **flags, **more)


@on_cuda("FullyConnected")
def dense_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    bias = None if attrs["no_bias"] else cuda.Buffer(2)
    return _on_cuda(_dense(ins, outs, attrs), ins, outs, bias=bias)


@on_cuda("dot")
def dot_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    is_scalar = not ins[0].shape or not ins[1].shape
    return None if is_scalar else _on_cuda(_dot(ins, outs, attrs), ins, outs)


@on_cuda("batch_dot", "_linalg_gemm2")
def batch_dot_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _on_cuda(_batch_dot(ins, outs, attrs), ins, outs)


@on_cuda("_dense")
def fused_dense_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if attrs["slope"]:
        return None
    at = {"bias": 2, "residual": len(ins) - 1, "kept": len(ins) + 1}
    given = {"bias": attrs["bias"], "residual": attrs["residual"], "kept": attrs["keep"]}
    arrays = {k: cuda.Buffer(at[k]) if given[k] else None for k in at}
    return _on_cuda(_fused(ins, outs, attrs), ins, outs, act=attrs["act"], **arrays)


@on_cuda("_dot_sum")
def dot_sum_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _same((*ins, *outs)):
        return None
    call, scratch = _dot_sum(ins, outs, attrs), cuda.ScratchSpace()
    found = _matmul(call, ins, scratch)
    if found is None:
        return None
    sums = cuda.column_sums(ins[0].dtype, cuda.Buffer(0), cuda.Buffer(3), call.k, call.m)
    return cuda.steps([*found, sums], scratch)


# ---- matrix products of attention on packed projections: CUDA ------------------------------------


def _part(shape: tuple[int, ...], heads: int, parts: int) -> tuple[int, int, int]:
    """(size of a head, stride of heads, stride of rows), in elements, of a packed array
    (length, batch, width)."""
    _, batch, width = shape
    size = width // (heads * parts)
    return size, parts * size, batch * width


def _scores(ins, outs, attrs, parts, at, place) -> Native | None:
    """queries . keys^T / sqrt(size). parts: of each operand's array; at: which of them; place: the
    array's number among the inputs."""
    if not _same((*ins, *outs)):
        return None
    heads, item, scratch = attrs["heads"], ITEM_BYTES[ins[0].dtype], cuda.ScratchSpace()
    (size, a_step, a_row), (_, b_step, b_row) = (
        _part(ins[i].shape, heads, n) for i, n in zip(place, parts)
    )
    n_batch, m, n = outs[0].shape
    a, b = (cuda.Buffer(i, k * size * item) for i, k in zip(place, at))
    found = cuda.matmul(
        ins[0].dtype,
        *(m, n, size),
        *(a, b, cuda.Buffer(len(ins))),
        scratch,
        n_batch=n_batch,
        a_step=a_step,
        b_step=b_step,
        rows=(a_row, b_row, n),
        transpose_b=True,
        alpha=size**-0.5,
    )
    return cuda.steps(found, scratch)


@on_cuda("_contrib_interleaved_matmul_selfatt_qk")
def self_scores_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _scores(ins, outs, attrs, (3, 3), (0, 1), (0, 0))


@on_cuda("_contrib_interleaved_matmul_encdec_qk")
def pair_scores_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return _scores(ins, outs, attrs, (1, 2), (0, 0), (0, 1))


@on_cuda(
    "_contrib_interleaved_matmul_selfatt_valatt",
    "_contrib_interleaved_matmul_encdec_valatt",
)
def attended_values_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _same((*ins, *outs)):
        return None
    heads, parts = attrs["heads"], 3 if "selfatt" in op.name else 2
    size, step, row = _part(ins[0].shape, heads, parts)
    n_batch, m, k = ins[1].shape
    scratch = cuda.ScratchSpace()
    values = cuda.Buffer(0, (parts - 1) * size * ITEM_BYTES[ins[0].dtype])
    found = cuda.matmul(
        ins[0].dtype,
        *(m, size, k),
        *(cuda.Buffer(1), values, cuda.Buffer(2)),
        scratch,
        n_batch=n_batch,
        a_step=m * k,
        b_step=step,
        y_step=size,
        rows=(k, row, n_batch * size),
    )
    return cuda.steps(found, scratch)
