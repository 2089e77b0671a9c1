"""CTC loss and its gradient."""

from __future__ import annotations

from math import prod

from .. import cuda
from ..cpu.layout import code, cost, nbytes
from ..native import Native
from ..record import FLOATS, NATIVE, NUMERIC, Attrs, Operator, Types
from . import on_cpu, on_cuda

BLOCK = 128  # ctc.cu
MAX_SHARED = 48 << 10


def _lengths(ins, attrs) -> list[tuple[int, str] | None]:
    """(index, dtype) of the inputs with the lengths of data and of labels; None: not given."""
    found: list[tuple[int, str] | None] = []
    at = 2
    for use in ("use_data_lengths", "use_label_lengths"):
        found.append((at, ins[at].dtype) if attrs[use] else None)
        at += bool(attrs[use])
    return found


@on_cpu("CTCLoss", "_ctc_grad")
def ctc_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, label = ins[:2]
    if x.dtype != "float32" or 0 in x.shape or any(t.dtype not in NATIVE for t in ins[1:]):
        return None
    steps, batch, classes = x.shape
    dtypes = [code(given[1]) if given else -1 for given in _lengths(ins, attrs)]
    fields = {
        "steps": steps,
        "batch": batch,
        "classes": classes,
        "length": label.shape[1],
        "label_dtype": code(label.dtype),
        "steps_dtype": dtypes[0],
        "count_dtype": dtypes[1],
        "blank_is_last": attrs["blank_label"] == "last",
    }
    back = op.name == "_ctc_grad"
    work = steps * batch * (4 * classes + (60 + 60 * back) * (2 * label.shape[1] + 1))
    function = "plk_ctc_backward" if back else "plk_ctc_run"
    return Native(function, ("plk_ctc", fields), cost(x, *outs, steps=work), can_fail=True)


@on_cuda("CTCLoss", "_ctc_grad")
def ctc_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    (steps, batch, classes), labels = ins[0].shape, ins[1].shape[1]
    x, states = ins[0], 2 * labels + 1
    back = op.name == "_ctc_grad"
    shared = states * ((3 * 8 + 3 * 4) if back else (2 * 8 + 4))
    if x.dtype not in FLOATS or outs[0].dtype != x.dtype or shared > MAX_SHARED:
        return None
    if any(t.dtype not in NUMERIC for t in ins[1:]):
        return None
    if max(prod(x.shape), steps * states) >= 1 << 31:
        return None
    result = cuda.Buffer(len(ins))
    if not prod(x.shape):
        return cuda.launches(cuda.Fill(result, nbytes(outs[0])))
    lengths = _lengths(ins, attrs)
    places = [cuda.Buffer(given[0]) if given else cuda.NOWHERE for given in lengths]
    dtypes = [x.dtype, ins[1].dtype, *(given[1] if given else "int32" for given in lengths)]
    sizes = (steps, batch, classes, labels, attrs["blank_label"] == "first")
    of = cuda.Struct(cuda.Buffer(1), *places, *map(cuda.Int32, sizes))
    scratch, t = cuda.ScratchSpace(), cuda.TYPES[x.dtype]
    sums = scratch.take_array("float64", steps, batch)
    name, n = f"<{', '.join(cuda.TYPES[d] for d in dtypes)}>", steps * batch
    arguments = [cuda.Int64(n), cuda.Int32(classes), cuda.Buffer(0), sums]
    grid, threads = cuda.blocks_for(n, cuda.THREADS // 32), (cuda.THREADS,)
    found = [cuda.Launch("ctc.cu", f"log_sums<{t}>", grid, threads, arguments)]
    alpha = scratch.take_array("float64", batch, steps, states) if back else cuda.NOWHERE
    totals = scratch.take_array("float64", batch) if back else cuda.NOWHERE
    given = [of, cuda.Buffer(0), sums, alpha, totals]

    def launch(function, to):
        name_of = f"{function}{name}"
        found.append(cuda.Launch("ctc.cu", name_of, (batch,), (BLOCK,), [*given, to], shared))

    launch("forward", cuda.NOWHERE if back else result)
    if back:
        launch("backward", result)
    return cuda.launches(*found, scratch_bytes=scratch.nbytes)
