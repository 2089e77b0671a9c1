"""CUDA of traced references: the printer of loops/ for GPUs, and the entry of operators without a
kernel of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ..loops import trace as tracing
from ..loops.arguments import Copy, Float64, Int32, Int64, Scalar, Scratch
from ..loops.nodes import (
    INDEX,
    JOINS,
    Leaf,
    Node,
    Reduce,
    Scan,
    Scatter,
    Text,
    Untraceable,
    Write,
    literal,
)
from ..native import Native
from ..record import Operator, Type
from ..shapes import lines
from . import scatter_plan
from .launch import Launch, Struct, launches
from .layout import THREADS, TYPES, blocks_for, index_of

LAUNCH_US = 2.5
MAX_LINES = 400  # of one kernel: compilers take long for more
MAX_TABLE = 1 << 12  # elements of a constant array that stands in the text


class CudaText(Text):
    """The statements of one kernel."""

    def __init__(self, kind: str, tables: list[str]):
        """kind: the type of indices. tables: those of the module, to which ours are added."""
        super().__init__()
        self.kind, self.tables = kind, tables

    def load(self, leaf: Leaf, at: Sequence[str]) -> str:
        name = self.argument(f"const {TYPES[leaf.stored]} *", leaf.place)
        return self.value(
            leaf.kind, f"value_of({name}[{self.flat(at, leaf.strides, leaf.offset)}])"
        )

    def converted(self, dtype: np.dtype, source: np.dtype, name: str) -> str:
        kind = TYPES[dtype.name]
        return f"({kind})(as<{kind}>({name}))"

    def scalar(self, dtype: np.dtype, scalar: Scalar) -> str:
        kind = TYPES[dtype.name]
        return self.value(kind, f"number<{kind}>({self.argument('double', scalar)})")

    def number(self, dtype: np.dtype, number: Any) -> str:
        kind = TYPES[dtype.name]
        if number in (0, 1) and not (number == 0 and np.signbit(number)):
            return self.value(kind, f"{int(number)}")
        if dtype.kind == "f":
            return self.value(kind, f"({kind}){self.argument('double', Float64(float(number)))}")
        return self.value(kind, f"({kind}){self.argument('int64_t', Int64(int(number)))}")

    def table(self, values: np.ndarray, flat: str) -> str:
        if values.size > MAX_TABLE:
            raise Untraceable("a large array of constants")
        numbers = ",".join(map(literal, values.reshape(-1).tolist()))
        line = f"{TYPES[values.dtype.name]} NAME[{values.size}] = {{{numbers}}};"
        if line not in self.tables:
            self.tables.append(line)
        return f"t{self.tables.index(line)}[{flat}]"

    def size(self, n: int) -> str:
        if n in (0, 1):
            return str(n)
        return self.argument("I", Int32(n) if self.kind == "int32_t" else Int64(n))

    def split(self, flat: str, shape: Sequence[int]) -> list[str]:
        found: list[str] = []
        for d in range(len(shape) - 1, -1, -1):
            n = shape[d]
            if n == 1:
                found.insert(0, "0")
            elif d == 0 or prod(shape[:d]) == 1:
                found.insert(0, flat)
                flat = "0"
            else:
                rest = self.place(f"{flat} / {self.size(n)}")
                found.insert(0, self.place(f"{flat} - {rest} * {self.size(n)}"))
                flat = rest
        return found

    def flat(self, at: Sequence[str], strides: Sequence[int], offset: int | None = None) -> str:
        parts = []
        for i, s in zip(at, strides):
            if i != "0" and s:
                parts.append(i if s == 1 else f"{i} * {self.size(s)}")
        if offset or not parts:
            parts.append(self.size(offset or 0))
        return self.place(" + ".join(parts))

    def own(self, x: Node, at: Sequence[str], shape: Sequence[int]) -> tuple[str, ...]:
        own = at[len(at) - len(x.shape) :] if x.shape else ()
        return tuple("0" if n == 1 else i for n, i in zip(x.shape, own))

    def within(self, i: str, n: int) -> str:
        if n <= 1:
            return "0"
        last = self.size(n - 1)
        return self.place(f"{i} < 0 ? 0 : {i} < {last} ? {i} : {last}")


class Module:
    """The kernels of a call: one text, of which equal ones are one function."""

    def __init__(self) -> None:
        self.tables: list[str] = []
        self._names: dict[str, str] = {}
        self.steps: list[Launch | Copy] = []

    def text(self) -> str:
        tables = [
            f"__device__ const {t.replace('NAME', f't{i}')}" for i, t in enumerate(self.tables)
        ]
        start = 'extern "C" __global__ void __launch_bounds__(256) '
        return "\n".join(
            [
                '#include "math.cuh"',
                '#include "reduce.cuh"',
                *tables,
                "",
                *(f"{start}{name}{text}" for text, name in self._names.items()),
            ]
        )

    def _launch(
        self,
        k: CudaText,
        members: Sequence[str],
        before: Sequence[str],
        after: Sequence[str],
        grid: tuple[int],
        arguments: Sequence[Any],
    ) -> None:
        """members, arguments: declarations and values of the function's arguments before those that
        `k` asked for."""
        if len(k.lines) > MAX_LINES:
            raise Untraceable("too long a kernel")
        own = [
            kind + name if kind.endswith("*") else f"{kind} {name}"
            for kind, name in k.arguments.values()
        ]
        text = [f"({', '.join([*members, *own])})", "{"]
        text += [f"    {line}" for line in [*before, *k.lines, *after]]
        joined = INDEX.sub(k.kind, "\n".join([*text, "}", ""]))
        name = self._names.setdefault(joined, f"plk_traced_{len(self._names)}")
        given = [*arguments, *(argument for _, argument, _ in k.arguments)]
        self.steps.append(Launch("", name, grid, (THREADS,), given))

    def write(self, step: Write) -> None:
        shape = step.nodes[0].shape
        n = prod(shape)
        k = CudaText(index_of(n, 1 << 20), self.tables)
        at = k.split("e", shape)
        after = []
        members = ["const I n", *(f"{TYPES[d]} *out_{i}" for i, (_, d) in enumerate(step.to))]
        for i, (x, (_, d)) in enumerate(zip(step.nodes, step.to)):
            after.append(f"out_{i}[e] = as<{TYPES[d]}>({k.element(x, tuple(at))});")
        before = ["const I e = (I)blockIdx.x * 256 + (I)threadIdx.x;", "if (e >= n)", "    return;"]
        size = Int32(n) if k.kind == "int32_t" else Int64(n)
        self._launch(
            k, members, before, after, blocks_for(n, THREADS), [size, *(p for p, _ in step.to)]
        )

    def reduce(self, step: Reduce) -> None:
        method, x, axes, kept, made = step
        shape = [x.shape[a] for a in axes]
        n, m = prod(kept), prod(shape)
        kind = index_of(prod(x.shape), 1 << 20)
        k = CudaText(kind, self.tables)
        outer = k.split("o", kept)
        n_before = len(k.lines)
        inner = dict(zip(axes, k.split("r", shape)))
        e = k.element(x, tuple(inner.get(a, o) for a, o in enumerate(outer)))
        lines, k.lines = k.lines, []
        index = method.startswith("arg")
        threads = 1 if index or m <= 32 else 32 if m <= 1024 else THREADS
        wide = "double" if x.dtype.kind == "f" and method in ("sum", "prod") else x.kind
        wide = "int" if wide == "bool" else wide
        before = [
            f"const I e = ((I)blockIdx.x * 256 + (I)threadIdx.x) / {threads};",
            f"const int lane = (int)threadIdx.x % {threads};",
            "const I o = e < n ? e : 0;",
            *lines[:n_before],
        ]
        body = lines[n_before:]
        if index:
            order = "<" if method == "argmin" else ">"
            before += [f"{x.kind} best = 0;", "int64_t total = -1;"]
            body += [
                f"if (total < 0 || {e} {order} best || ({e} != {e} && best == best)) {{",
                f"    best = {e};",
                "    total = r;",
                "}",
            ]
        else:
            start, join = JOINS[method]
            if start:
                before.append(f"{wide} total = {start};")
                body.append(f"total = {join.format('total', f'({wide}){e}')};")
            else:
                before += [f"{wide} total = 0;", "bool empty = true;"]
                one = f"({wide}){e}"
                body += [f"total = empty ? {one} : {join.format('total', one)};", "empty = false;"]
        after = [f"for (I r = lane; r < m; r += {threads}) {{"]
        after += [f"    {line}" for line in body] + ["}"]
        if threads > 1:
            # every lane has an element where there is no number to start with: m > threads - 1
            before.insert(0, f"__shared__ One<{wide}> scratch[WARP];")
            joined = JOINS[method][1].format("a.v", "b.v")
            after.append(
                f"total = joined<{threads}>(One<{wide}>{{total}}, scratch, [](One<{wide}> a, "
                f"One<{wide}> b) {{ return One<{wide}>{{({wide})({joined})}}; }}).v;"
            )
        after.append(f"if (e < n && lane == 0) out_0[e] = as<{TYPES[made.stored]}>(total);")
        size = Int32 if kind == "int32_t" else Int64
        members = ["const I n", "const I m", f"{TYPES[made.stored]} *out_0"]
        arguments = [size(n), size(m), made.place]
        grid = blocks_for(n, THREADS // threads)
        self._launch(k, members, before, after, grid, arguments)

    def scan(self, step: Scan) -> None:
        """A thread for each line."""
        method, x, axis, made = step
        outer, n, inner = lines("scan", x.shape, axis)
        kind = index_of(prod(x.shape), 1 << 20)
        k = CudaText(kind, self.tables)
        at = k.split("e", [*x.shape[:axis], *x.shape[axis + 1 :]])
        at.insert(axis, "r")
        e = k.element(x, tuple(at))
        wide = "double" if x.dtype.kind == "f" else x.kind
        start, join = JOINS[method]
        before = [
            "const I e = (I)blockIdx.x * 256 + (I)threadIdx.x;",
            "if (e >= n)",
            "    return;",
            f"{wide} total = {start};",
            "for (I r = 0; r < m; r++) {",
        ]
        after = [
            f"    total = {join.format('total', f'({wide}){e}')};",
            "    const I at = (e / inner * m + r) * inner + e % inner;",
            f"    out_0[at] = as<{TYPES[made.stored]}>(total);",
            "}",
        ]
        size = Int32 if kind == "int32_t" else Int64
        members = ["const I n", "const I m", "const I inner", f"{TYPES[made.stored]} *out_0"]
        sizes = [size(outer * inner), size(n), size(inner)]
        arguments = [*sizes, made.place]
        self._launch(k, members, before, after, blocks_for(outer * inner, THREADS), arguments)

    def scatter(self, step: Scatter, scratch: Callable[[int], Scratch]) -> None:
        """scratch: gives memory, from where the last was given."""
        n_places, n_rows, base = prod(step.rows.shape), prod(step.to.shape), scratch(0).offset_bytes
        given = Struct(step.places.place, Int64(n_rows), Int32(0))
        steps, end = scatter_plan.scatter(
            *("TakenRows<int64_t>", given, n_places, 1, n_rows, 1),
            *(step.to.stored, step.add, step.rows.place, step.to.place, base),
        )
        scratch(end - base)
        self.steps += steps


def trace(op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict) -> Native:
    """The kernel of a call. Raises Untraceable, and what the reference raises."""
    t, module = tracing.trace(op, ins, outs, attrs), Module()
    for step in t.needed():
        if isinstance(step, Copy):
            module.steps.append(step)
        elif isinstance(step, Write):
            module.write(step)
        elif isinstance(step, Reduce):
            module.reduce(step)
        elif isinstance(step, Scan):
            module.scan(step)
        else:
            module.scatter(step, t.scratch)
    source, steps = module.text(), module.steps
    steps = [s if isinstance(s, Copy) or s.source else s._replace(source=source) for s in steps]
    return launches(*steps, scratch_bytes=t.scratch_bytes, cost_us=LAUNCH_US * max(len(steps), 1))


def traced_entry(
    op: Operator, ins: Sequence[Type], outs: Sequence[Type], attrs: dict[str, Any]
) -> Native | None:
    """The reference's kernel, None where it has to run as it is: what it does cannot be traced, or
    its expressions are too deep. Any other exception is a fault, of the reference or of ours."""
    try:
        return trace(op, ins, outs, attrs)
    except (Untraceable, RecursionError):
        return None


def register(native: Callable) -> None:
    """Makes the tracer an entry (Table.native) of every operator that it may run. After every other
    entry: an operator's own kernel is asked first."""
    native(*tracing.traceable(), derived=True)(traced_entry)
