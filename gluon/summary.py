"""Block.summary: a table of layers, output shapes and numbers of parameters."""

from __future__ import annotations

from math import prod
from typing import Any

from ..engine.error import MXNetError
from ..engine.log import size
from ..kernels.record import dtype_name
from ..kernels.spec import ITEM_BYTES
from ..ndarray import autograd
from ..ndarray.ndarray import NDArray
from .parameter import Parameter
from .tracing import tracing_state

ROW = "{:>20}  {:>42} {:>15}"
WIDTH = 80


class SummaryError(MXNetError, AssertionError):
    """A block that cannot be summarised."""


class _Row:
    """The table row of one call of one layer."""

    def __init__(
        self,
        block: Any,
        key: str,
        depth: int,
        begin: int,
        macs: int,
        out: Any,
        n_params: int,
        n_trainable: int,
        n_shared: int,
    ):
        self.block, self.key, self.depth, self.macs = block, key, depth, macs
        self.shape, self.out_bytes = _shape_text(out), _bytes(out)
        self.param_bytes = sum(_bytes(p) for p in block.params.values())
        # rows[begin:own index] belong to calls inside this one
        self.begin = begin
        self.n_params, self.n_trainable, self.n_shared = n_params, n_trainable, n_shared


def print_summary(block: Any, inputs: Any, style: str) -> None:
    """Runs the block once on inputs and prints the table."""
    if style not in ("mxnet", "tree"):
        raise SummaryError(f"summary: style must be 'mxnet' or 'tree', got {style!r}")
    rows = _collect(block, inputs)
    print(_flat(block, inputs, rows) if style == "mxnet" else _tree(rows))


def _shape_text(value) -> str:
    def shapes(v):
        if isinstance(v, NDArray):
            return v.shape
        return [shapes(a) for a in v] if isinstance(v, (list, tuple)) else None

    found = shapes(value)
    while isinstance(found, list) and len(found) == 1:
        found = found[0]
    return str(found)


def _bytes(value) -> int:
    """Of arrays, of lists of them, or of a parameter."""
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    known = isinstance(value, (NDArray, Parameter))
    return prod(value.shape) * ITEM_BYTES[dtype_name(value.dtype)] if known else 0


def _collect(block, inputs) -> list[_Row]:
    rows: list[_Row] = []
    seen: set = set()
    handles: list = []
    begins: list[int] = []

    def watch(b, depth, key):
        def before(called, args):
            begins.append(len(rows))

        def hook(called, args, out):
            begin = begins.pop()
            if tracing_state.tracer is not None:
                return
            own = list(called.params.values())
            count = {p: prod(p.shape) for p in own}
            rows.append(
                _Row(
                    called,
                    key,
                    depth,
                    begin,
                    called._macs(args, out) if isinstance(out, NDArray) else 0,
                    out,
                    sum(count.values()),
                    sum(n for p, n in count.items() if p.grad_req != "null"),
                    sum(n for p, n in count.items() if p in seen),
                )
            )
            seen.update(own)

        handles.extend([b.register_forward_pre_hook(before), b.register_forward_hook(hook)])
        for name, child in b._children.items():
            watch(child, depth + 1, name)

    eager, tracing_state.eager = tracing_state.eager, True  # layer by layer, even if hybridized
    try:
        watch(block, 0, "")
        with autograd.pause():
            block(*inputs)
    finally:
        tracing_state.eager = eager
        for h in handles:
            h.detach()
    return rows


def _flat(block, inputs, rows) -> str:
    rows = [row for row in rows if not row.block._is_container]
    lines = [
        "-" * WIDTH,
        ROW.format("Layer (type)", "Output Shape", "Param #"),
        "=" * WIDTH,
        ROW.format("Input", _shape_text(inputs), 0),
    ]
    for i, row in enumerate(rows, 1):
        lines.append(ROW.format(f"{type(row.block).__name__}-{i}", row.shape, row.n_params))
    total, trainable = sum(r.n_params for r in rows), sum(r.n_trainable for r in rows)
    shared = sum(r.n_shared for r in rows)
    unique = sum(prod(p.shape) for p in {p for r in rows for p in r.block.params.values()})
    lines += [
        "=" * WIDTH,
        "Parameters in forward computation graph, duplicate included",
        f"   Total params: {total}",
        f"   Trainable params: {trainable}",
        f"   Non-trainable params: {total - trainable}",
        f"Shared params in forward computation graph: {shared}",
        f"Unique parameters in model: {unique}",
        "-" * WIDTH,
    ]
    return "\n".join(lines)


def _tree(rows) -> str:
    """Blocks below each other, those inside indented, with multiply-adds and bytes."""
    head = ["Layer", "Output shape", "Parameters", "Multiply-adds", "Weights", "Output"]
    cells = [head]
    for row in _parents_first(rows, 0, len(rows)):
        name = "  " * row.depth + f"{row.key} {type(row.block).__name__}".strip()
        numbers = f"{row.n_params:,}", f"{row.macs:,}", size(row.param_bytes), size(row.out_bytes)
        cells.append([name, row.shape, *(["", "", "", ""] if row.block._is_container else numbers)])
    parameters = {p for row in rows for p in row.block.params.values()}
    layers = [row for row in rows if not row.block._is_container]
    n, nbytes = sum(prod(p.shape) for p in parameters), sum(map(_bytes, parameters))
    macs = sum(r.macs for r in layers)
    cells.append(["Total", "", f"{n:,}", f"{macs:,}", size(nbytes), ""])
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    lines = [
        "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(x, widths)))
        for x in cells
    ]
    rule = "-" * len(lines[0])
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:-1], rule, lines[-1]])


def _parents_first(rows, begin, end):
    """Reorders rows from the order in which calls end to one in which a call precedes the calls
    inside it."""
    if begin == end:
        return []
    last = rows[end - 1]
    return [
        *_parents_first(rows, begin, last.begin),
        last,
        *_parents_first(rows, last.begin, end - 1),
    ]
