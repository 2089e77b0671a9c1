"""CUDA text of pointwise loops: generate.Loop's statements over arrays that broadcast, alone, with
reductions of their values (map_reduce.cuh), or as fused row reductions (kernels/row_reductions.py).

A source depends on dtypes, on operators and on which inputs broadcast how; never on sizes or
scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..record import NATIVE_FLOATS
from ..statements import NATIVE_TYPES, VALUES, Loop, Name, Statement
from .layout import TYPES

FUNCTION = "plk_compiled"
METHODS = {
    "sum": "Sum",
    "mean": "Sum",
    "nansum": "NanSum",
    "_square_sum": "SumSquare",
    "prod": "Prod",
    "nanprod": "NanProd",
    "max": "Max",
    "min": "Min",
}

# how an input broadcasts: not at all; one element; along outer dimensions; along the innermost too
FULL, ONE, OUTER, INNER = "full", "one", "outer", "inner"


class Pattern(NamedTuple):
    """How the arrays of a loop lie: what its source depends on beside its statements."""

    in_dtypes: tuple[str, ...]  # in memory
    out_dtypes: tuple[str, ...]
    kinds: tuple[str, ...]  # of the inputs
    ndim: int  # of the collapsed space, where inputs are OUTER or INNER
    index_type: str
    vector: int  # elements that are loaded at once
    unroll: int  # vectors of a thread

    @property
    def spread(self) -> list[int]:
        """The inputs that have strides."""
        return [i for i, k in enumerate(self.kinds) if k in (OUTER, INNER)]

    @property
    def places(self) -> str:
        """The type of what finds them."""
        return f"Places<I, {max(self.ndim, 1)}, {max(len(self.spread), 1)}>"


def _used(loop: Loop) -> set[str]:
    return {r for s in loop.statements for r in s.reads} | set(loop.results)


def _members(loop: Loop, pattern: Pattern) -> list[str]:
    """Declarations of arrays and scalars, in the order of arguments."""
    lines = [f"const {TYPES[d]} *in_{v.name}" for v, d in zip(loop.inputs, pattern.in_dtypes)]
    lines += [f"{TYPES[d]} *out_{i}" for i, d in enumerate(pattern.out_dtypes)]
    return lines + [f"{_given(s.dtype)} g_{s.name}" for s in loop.scalars]


def _given(dtype: str) -> str:
    """The type in which a scalar is handed over: integers as double, to be cut here."""
    return NATIVE_TYPES[dtype] if dtype in NATIVE_FLOATS else "double"


def _scalars(loop: Loop) -> list[str]:
    used = _used(loop)
    return [
        f"const {NATIVE_TYPES[s.dtype]} {s.name} = number<{NATIVE_TYPES[s.dtype]}>(g_{s.name});"
        for s in loop.scalars
        if s.name in used
    ]


def _loads(loop: Loop, pattern: Pattern, at: str, vector: str, of: str) -> list[str]:
    """Loads of `vector` elements from element `at` on; `of`: what the names end in."""
    lines, spread = [], pattern.spread
    used = _used(loop)
    if spread:
        lines += [f"I offsets[{len(spread)}];", f"places.find({at}, offsets);"]
    for i, v in enumerate(loop.inputs):
        if v.name not in used or pattern.kinds[i] == ONE:
            continue
        where = f"offsets[{spread.index(i)}]" if i in spread else at
        if pattern.kinds[i] == INNER:
            lines.append(f"l_{v.name}{of} = in_{v.name}[{where}];")
        else:
            lines.append(f"l_{v.name}{of} = load<{vector}>(in_{v.name} + {where});")
    return lines


def _loaded(loop: Loop, pattern: Pattern, vector: str, of: str) -> list[str]:
    """Declarations of what is loaded."""
    used, lines = _used(loop), []
    for v, kind, d in zip(loop.inputs, pattern.kinds, pattern.in_dtypes):
        if v.name in used and kind != ONE:
            t = TYPES[d] if kind == INNER else f"Vector<{TYPES[d]}, {vector}>"
            lines.append(f"{t} l_{v.name}{of};")
    return lines


def _ones(loop: Loop, pattern: Pattern) -> list[str]:
    used = _used(loop)
    return [
        f"const {VALUES[v.dtype]} {v.name} = value_of(*in_{v.name});"
        for v, kind in zip(loop.inputs, pattern.kinds)
        if kind == ONE and v.name in used
    ]


def _element(loop: Loop, pattern: Pattern, of: str) -> list[str]:
    """Element k of what was loaded, and all statements of it."""
    used, lines = _used(loop), []
    for v, kind in zip(loop.inputs, pattern.kinds):
        if v.name in used and kind != ONE:
            item = "" if kind == INNER else ".at[k]"
            t = VALUES[v.dtype]
            lines.append(f"const {t} {v.name} = value_of(l_{v.name}{of}{item});")
    return lines + [_assign(s) for s in loop.statements]


def _assign(s: Statement) -> str:
    return f"const {VALUES[s.dtype]} {s.name} = ({VALUES[s.dtype]})({s.text});"


def _indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return ["    " * depth + line for line in lines]


def _aligned(loop: Loop, pattern: Pattern, outs: Sequence[int]) -> str:
    used = _used(loop)
    names = [
        f"in_{v.name}"
        for v, kind in zip(loop.inputs, pattern.kinds)
        if v.name in used and kind in (FULL, OUTER)
    ]
    return f"is_aligned({', '.join([*names, *(f'out_{i}' for i in outs)])})"


def _head(pattern: Pattern, *more: str) -> list[str]:
    headers = ("math.cuh", *more)
    return [*(f'#include "{h}"' for h in headers), f"typedef {pattern.index_type} I;"]


def elementwise(loop: Loop, pattern: Pattern) -> str:
    """`FUNCTION(I n, I size, inputs, outputs, scalars[, places])`, blocks of 256 threads, each for
    `size` elements: 256 * vector * unroll of them, or any number one by one."""
    members = _members(loop, pattern)
    names = [m.rsplit(" ", 1)[1].lstrip("*") for m in members]
    if pattern.spread:
        members.append(f"const {pattern.places} places")
        names.append("places")
    outs = range(len(loop.results))
    v, u, aligned = pattern.vector, pattern.unroll, _aligned(loop, pattern, outs)
    lines = _head(pattern)
    lines += [
        "",
        "/* U vectors of V elements, `step` apart; all loads come before the stores. */",
        f"template<int V, int U> DEVICE void tile(I first, I step, {', '.join(members)})",
        "{",
        *_indent(_scalars(loop)),
        *_indent(_ones(loop, pattern)),
        *_indent(_loaded(loop, pattern, "V", "[U]")),
        "#pragma unroll",
        "    for (int u = 0; u < U; u++) {",
        "        const I i = first + u * step;",
        *_indent(_loads(loop, pattern, "i", "V", "[u]"), 2),
        "    }",
        "#pragma unroll",
        "    for (int u = 0; u < U; u++) {",
        "        const I i = first + u * step;",
        *(f"        Vector<{TYPES[pattern.out_dtypes[i]]}, V> r_{i};" for i in outs),
        "#pragma unroll",
        "        for (int k = 0; k < V; k++) {",
        *_indent(_element(loop, pattern, "[u]"), 3),
        *(
            f"            r_{i}.at[k] = as<{TYPES[pattern.out_dtypes[i]]}>({r});"
            for i, r in enumerate(loop.results)
        ),
        "        }",
        *(f"        store<V>(out_{i} + i, r_{i});" for i in outs),
        "    }",
        "}",
        "",
        'extern "C" __global__ void __launch_bounds__(256)',
        f"{FUNCTION}(const I n, const I size, {', '.join(members)})",
        "{",
        "    const I first = (I)blockIdx.x * size;",
        f"    if (size == 256 * {v * u} && n - first >= size && {aligned}) {{",
        f"        tile<{v}, {u}>(first + (I)threadIdx.x * {v}, 256 * {v}, {', '.join(names)});",
        "        return;",
        "    }",
        "    const I end = n - first < size ? n : first + size;",
        "    for (I i = first + (I)threadIdx.x; i < end; i += 256)",
        f"        tile<1, 1>(i, 0, {', '.join(names)});",
        "}",
        "",
    ]
    return "\n".join(lines)


def reduced(loop: Loop, pattern: Pattern, reductions: Sequence[str]) -> str:
    """The Map of map_reduce.cuh: `reductions[i]` is the method of result i, "" where it is stored
    whole. Its members: inputs, outputs, scalars, a factor of each reduced result, places."""
    wide = {"float32": "float", "float64": "double"}
    values: list[Name | Statement] = [*loop.inputs, *loop.statements]
    named = {v.name: v.dtype for v in values}
    sums = [
        (i, wide[named[r]], f"{METHODS[m]}<{wide[named[r]]}>", r)
        for i, (r, m) in enumerate(zip(loop.results, reductions))
        if m
    ]
    whole = [i for i, m in enumerate(reductions) if not m]
    fields = [f"{t} a_{i};" for i, t, _, _ in sums]
    lines = _head(pattern, "map_reduce.cuh")
    lines += [
        "",
        "struct Map {",
        "    struct Sums {",
        *_indent(fields, 2),
        "        DEVICE Sums shuffled(int step) const { return {"
        + ", ".join(f"shuffle_xor(a_{i}, step)" for i, *_ in sums)
        + "}; }",
        "        static DEVICE Sums join(const Sums &a, const Sums &b) { return {"
        + ", ".join(f"{m}::join(a.a_{i}, b.a_{i})" for i, _, m, _ in sums)
        + "}; }",
        "    };",
        *(f"    {m};" for m in _members(loop, pattern)),
        *(f"    {t} factor_{i};" for i, t, _, _ in sums),
        *([f"    {pattern.places} places;"] if pattern.spread else []),
        "",
        "    DEVICE void start(Sums &s) const { "
        + " ".join(f"s.a_{i} = {m}::start();" for i, _, m, _ in sums)
        + " }",
        f"    DEVICE bool aligned() const {{ return {_aligned(loop, pattern, whole)}; }}",
        "    template<int V> DEVICE void add(Sums &s, I e, I) const",
        "    {",
        *_indent(_scalars(loop), 2),
        *_indent(_ones(loop, pattern), 2),
        *_indent(_loaded(loop, pattern, "V", ""), 2),
        *_indent(_loads(loop, pattern, "e", "V", ""), 2),
        *(f"        Vector<{TYPES[pattern.out_dtypes[i]]}, V> r_{i};" for i in whole),
        "#pragma unroll",
        "        for (int k = 0; k < V; k++) {",
        *_indent(_element(loop, pattern, ""), 3),
        *(f"            s.a_{i} = {m}::step(s.a_{i}, {r});" for i, _, m, r in sums),
        *(
            f"            r_{i}.at[k] = as<{TYPES[pattern.out_dtypes[i]]}>({loop.results[i]});"
            for i in whole
        ),
        "        }",
        *(f"        store<V>(out_{i} + e, r_{i});" for i in whole),
        "    }",
        "    DEVICE void finish(const Sums &s, int64_t o) const",
        "    {",
        *(
            f"        out_{i}[o] = as<{TYPES[pattern.out_dtypes[i]]}>(s.a_{i} * factor_{i});"
            for i, *_ in sums
        ),
        "    }",
        "};",
        "",
    ]
    return "\n".join(lines)
