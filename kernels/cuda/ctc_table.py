"""Entries of connectionist temporal classification."""

from __future__ import annotations

from math import prod

from ..record import FLOATS
from .index_table import INDICES
from .launch import Buffer, Fill, Int32, Int64, Launch, Struct, launches
from .layout import THREADS, TYPES, blocks_for, nbytes
from .matmul_plan import NOWHERE, ScratchSpace
from .table import native

BLOCK = 128  # ctc.cu
MAX_SHARED = 48 << 10


@native("CTCLoss", "_ctc_grad")
def ctc_entry(op, ins, outs, attrs):
    (steps, batch, classes), labels = ins[0].shape, ins[1].shape[1]
    x, states = ins[0], 2 * labels + 1
    back = op.name == "_ctc_grad"
    given = [t.dtype for t in ins[1:]]
    shared = states * ((3 * 8 + 3 * 4) if back else (2 * 8 + 4))
    if x.dtype not in FLOATS or outs[0].dtype != x.dtype or shared > MAX_SHARED:
        return None
    if any(d not in INDICES for d in given) or max(prod(x.shape), steps * states) >= 1 << 31:
        return None
    if not prod(x.shape):
        return launches(Fill(Buffer(len(ins)), nbytes(outs[0])))
    at, places, types = 2, [], [given[0]]
    for use in ("use_data_lengths", "use_label_lengths"):
        places.append(Buffer(at) if attrs[use] else NOWHERE)
        types.append(given[at - 1] if attrs[use] else "int32")
        at += attrs[use]
    sizes = (steps, batch, classes, labels, attrs["blank_label"] == "first")
    of = Struct(Buffer(1), *places, *map(Int32, sizes))
    scratch, t = ScratchSpace(), TYPES[x.dtype]
    sums = scratch.take_array("float64", steps, batch)
    name = f"<{', '.join(TYPES[d] for d in (x.dtype, *types))}>"
    lines, result = steps * batch, Buffer(len(ins))
    arguments = [Int64(lines), Int32(classes), Buffer(0), sums]
    grid = blocks_for(lines, THREADS // 32)
    first = Launch("ctc.cu", f"log_sums<{t}>", grid, (THREADS,), arguments)
    alpha = scratch.take_array("float64", batch, steps, states) if back else NOWHERE
    totals = scratch.take_array("float64", batch) if back else NOWHERE
    arguments = [of, Buffer(0), sums, alpha, totals, NOWHERE if back else result]
    found = [first, Launch("ctc.cu", f"forward{name}", (batch,), (BLOCK,), arguments, shared)]
    if back:
        arguments = [of, Buffer(0), sums, alpha, totals, result]
        found.append(Launch("ctc.cu", f"backward{name}", (batch,), (BLOCK,), arguments, shared))
    return launches(*found, scratch_bytes=scratch.nbytes)
