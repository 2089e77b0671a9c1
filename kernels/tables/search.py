"""Places in sorted vectors, counts of values, which values are among others, and equal arrays."""

from __future__ import annotations

from math import log2, prod

from ..cpu.layout import code, cost
from ..native import Native
from ..record import NATIVE, Attrs, Operator, Types
from . import on_cpu


@on_cpu("_searchsorted")
def search_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    a, v = ins
    if a.dtype not in NATIVE or a.dtype != v.dtype:
        return None
    n, n_values = a.shape[0], prod(v.shape)
    right = attrs["side"] == "right"
    fields = {"n": n, "n_values": n_values, "dtype": code(a.dtype), "right": right}
    steps = n_values * log2(n + 2)
    return Native("plk_search_run", ("plk_search", fields), cost(*ins, *outs, steps=steps))


@on_cpu("_histogram")
def histogram_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, edges, given = ins[0], outs[1], len(ins) == 2
    if x.dtype not in NATIVE or edges.dtype not in NATIVE:
        return None
    first, last = (0.0, 0.0) if given else attrs["range"]
    fields = {
        "n": prod(x.shape),
        "n_bins": edges.shape[0] - 1,
        "dtype": code(x.dtype),
        "edge_dtype": code(edges.dtype),
        "given": given,
        "first": first,
        "last": last,
    }
    us = cost(*ins, *outs, steps=8 * prod(x.shape))
    return Native("plk_histogram_run", ("plk_histogram", fields), us, can_fail=True)


@on_cpu("_counts")
def counts_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    n = prod(ins[0].shape)
    fields = {"n": n, "size": attrs["size"], "dtype": code(ins[0].dtype)}
    us = cost(*ins, *outs, steps=2 * n)
    return Native("plk_counts_run", ("plk_counts", fields), us, can_fail=True)


@on_cpu("_extremes")
def extremes_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    n = prod(ins[0].shape)
    fields = {"n": n, "dtype": code(ins[0].dtype)}
    return Native("plk_extremes_run", ("plk_numbers", fields), cost(*ins, *outs, steps=n / 4))


@on_cpu("_same")
def same_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    fields = {"n": prod(ins[0].shape), "dtype": code(ins[0].dtype)}
    return Native("plk_same_run", ("plk_numbers", fields), cost(*ins))


@on_cpu("_among")
def among_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    n, n_tests = (prod(t.shape) for t in ins)
    fields = {"n": n, "n_tests": n_tests, "dtype": code(ins[0].dtype), "inverts": attrs["invert"]}
    us = cost(*ins, *outs, steps=4 * (n + n_tests))
    return Native("plk_among_run", ("plk_among", fields), us, can_fail=True)


@on_cpu("_starts")
def starts_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    x, n = ins[0], prod(ins[0].shape)
    if x.dtype not in (*NATIVE, "bool"):
        return None
    fields = {"n": n, "dtype": code(x.dtype)}
    return Native("plk_sorted_starts", ("plk_sorted", fields), cost(x, *outs, steps=n))
