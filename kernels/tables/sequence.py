"""Operators on padded sequences."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from .. import cuda
from ..cpu.layout import code, cost
from ..native import Native
from ..record import NATIVE, NUMERIC, Attrs, Operator, Types
from ..spec import ITEM_BYTES
from . import on_cpu, on_cuda


class Sequences(NamedTuple):
    """(steps, batch, inner) or (batch, steps, inner)."""

    steps: int
    batch: int
    inner: int
    batch_first: bool


def _sequences(x, attrs) -> Sequences:
    axis = attrs.get("axis", 0)
    return Sequences(x.shape[axis], x.shape[1 - axis], prod(x.shape[2:]), axis == 1)


# ---- CPU -----------------------------------------------------------------------------------------


def _fields(x, attrs, **more) -> dict:
    return {**_sequences(x, attrs)._asdict(), "size": ITEM_BYTES[x.dtype], **more}


@on_cpu("SequenceMask")
def mask_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    if not attrs["use_sequence_length"] or ins[1].dtype not in NATIVE:
        return None
    dtypes = {"length_dtype": code(ins[1].dtype), "dtype": code(x.dtype)}
    fields = _fields(x, attrs, value=attrs["value"], **dtypes)
    return Native("plk_sequence_mask_run", ("plk_sequence_mask", fields), cost(x, x))


@on_cpu("SequenceReverse", "SequenceLast")
def end_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    given, last = attrs["use_sequence_length"], op.name == "SequenceLast"
    if given and ins[1].dtype not in NATIVE:
        return None
    fields = _fields(ins[0], attrs, length_dtype=code(ins[1].dtype) if given else -1)
    name = "plk_sequence_last_run" if last else "plk_sequence_reverse_run"
    us = cost(*outs, *outs)
    return Native(name, ("plk_sequence_mask", fields), us, can_fail=last and given)


# ---- CUDA ----------------------------------------------------------------------------------------


def _on_cuda(function, element, ins, y, kind, inner, sizes, *more) -> Native:
    """sizes: arguments of the function after the number of elements and `inner`."""
    size, name = prod(y.shape), f"{function}<{element}, {cuda.TYPES[ins[1].dtype]}, {kind}>"
    counts = cuda.index(size, kind), cuda.divisor(max(inner, 1), kind)
    arguments = [*counts, *sizes, *map(cuda.Buffer, range(3)), *more]
    return cuda.launches(cuda.spread("index.cu", name, size, arguments))


@on_cuda("SequenceMask")
def mask_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x = ins[0]
    if not attrs["use_sequence_length"] or ins[1].dtype not in NUMERIC:
        return None
    kind, of = cuda.index_of(prod(x.shape)), _sequences(x, attrs)
    sizes = cuda.divisor(max(x.shape[1], 1), kind), cuda.Int32(of.batch_first)
    types, value = cuda.TYPES[x.dtype], cuda.Float64(attrs["value"])
    return _on_cuda("sequence_mask", types, ins, outs[0], kind, of.inner, sizes, value)


@on_cuda("SequenceReverse", "SequenceLast")
def end_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, of = ins[0], _sequences(ins[0], attrs)
    if not attrs["use_sequence_length"] or ins[1].dtype not in NUMERIC:
        return None
    kind, word = cuda.index_of(prod(x.shape)), cuda.WORDS[ITEM_BYTES[x.dtype]]
    steps, batch = cuda.index(of.steps, kind), cuda.index(of.batch, kind)
    if op.name == "SequenceLast":
        last = steps, batch, cuda.Int32(of.batch_first)
        return _on_cuda("sequence_last", word, ins, outs[0], kind, of.inner, last)
    sizes = cuda.divisor(max(of.batch, 1), kind), steps
    return _on_cuda("sequence_reverse", word, ins, outs[0], kind, of.inner, sizes)
