"""Writes C from the operator records: pointwise loops, their table, and the dispatch between
instruction sets.

`Loop` is the unit: inputs, statements, results. A pointwise record gives a loop of one statement, a
fused group (fused.py) one of many.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .activations import ACTIVATIONS, NUMBERS, OF_NORMS, OF_PRODUCTS, SLOPES, Activation
from .loops import LOOPS
from .pointwise import Expression
from .record import REGISTRY

if TYPE_CHECKING:
    from pathlib import Path

OPERATORS_PER_FILE = 24
NATIVE_TYPES = {
    "float32": "float",
    "float64": "double",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int8": "int8_t",
    "int64": "int64_t",
}
ENUM = {
    "float32": "PLK_F32",
    "float64": "PLK_F64",
    "uint8": "PLK_U8",
    "int32": "PLK_I32",
    "int8": "PLK_I8",
    "int64": "PLK_I64",
}
LIMITS = {
    "uint8": "0, UINT8_MAX",
    "int32": "INT32_MIN, INT32_MAX",
    "int8": "INT8_MIN, INT8_MAX",
    "int64": "INT64_MIN, INT64_MAX",
}
SUFFIXES = {"float32": "f32", "float64": "f64"}  # of vecmath.h's functions; integers: "int"
ISAS = {
    "baseline": "",
    "avx2": "avx2,fma,f16c,bmi,bmi2,lzcnt",
    "avx512": (
        "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt,prefer-vector-width=512"
    ),
}
HEAD = "/* Written by kernels/generate.py. */\n"
# fused groups are compiled so too: a value is one number, whichever of both computes it
EXACT = '#pragma GCC optimize("fp-contract=off")\n'
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><=|>=|==|!=|&&|\|\||<<|>>|[-+*/%<>?:(),!&|^~]))"
)
SYNONYMS = {
    "power": "pow",
    "gamma": "tgamma",
    "gammaln": "lgamma",
    "fabs": "abs",
    "fix": "trunc",
    "floor_divide": "floordiv",
}
POWER = re.compile(r"\bplk_pow_f\d\d \( \w+ , (\w+) \)")  # of a name, its exponent
INTEGER_IDENTITY = {"floor", "ceil", "trunc", "rint", "round"}
INTEGER_FUNCTIONS = {"mod", "fmod", "div", "floordiv", "pow", "abs"}
CONSTANTS = {"INFINITY", "NAN", "M_PI"}


@functools.cache
def tokens(text: str) -> tuple[tuple[str, str], ...]:
    """(kind, text) pairs of an expression. Raises ValueError at the first character that does not
    belong."""
    at, found = 0, []
    while at < len(text.rstrip()):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"expression {text!r}: cannot read {text[at:]!r}")
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        at = match.end()
    return tuple(found)


def translate(text: str, names: Mapping[str, str], dtype: str) -> str:
    """An expression as C for one dtype; `names` maps its variables to C names. Raises
    ValueError."""
    suffix = SUFFIXES.get(dtype, "int")
    found = tokens(text)
    out = []
    for i, (kind, word) in enumerate(found):
        if kind == "number" and dtype == "float32":
            word = (word if re.search(r"[.eE]", word) else word + ".0") + "f"
        elif kind == "name" and found[i + 1 : i + 2] == (("sign", "("),):
            word = SYNONYMS.get(word, word)
            if suffix != "int" or word in INTEGER_FUNCTIONS:
                word = f"plk_{word}_{suffix}"
            elif word in INTEGER_IDENTITY:
                word = ""
            else:
                raise ValueError(f"expression {text!r}: {word} is no function of integers")
        elif kind == "name" and word in names:
            word = names[word]
        elif kind == "name" and word not in CONSTANTS:
            raise ValueError(f"expression {text!r}: {word} is neither an input nor a parameter")
        out.append(word)
    return " ".join(out)


class Name(NamedTuple):
    """A C variable; its dtype is a key of NATIVE_TYPES."""

    name: str
    dtype: str


class Statement(NamedTuple):
    """One value of a loop: `name` is `text`, a C expression of names, cast to the dtype."""

    name: str
    dtype: str
    text: str
    reads: Sequence[str] = ()  # inputs, scalars and earlier statements
    weight: int = 1


BLOCK = 1024  # elements of a segment's temporaries: they stay in the L1 cache
SEGMENT_WEIGHT = 24  # of statements that run in one C loop


class Loop(NamedTuple):
    """A C function over contiguous arrays: bufs are the inputs, then the results.

    A long loop runs in segments, blocks of elements at a time: a processor looks some hundred
    instructions ahead, so one long chain of dependent ones would leave its units idle.
    """

    name: str
    inputs: Sequence[Name]
    scalars: Sequence[Name | Statement]  # scalars[i] as a C variable; or text in double of them
    statements: Sequence[Statement]
    results: Sequence[str]  # names of inputs or statements

    def text(self) -> str:
        """The C function. A result may be stored over an input: all stores are in the last
        segment."""
        named: list[Name | Statement] = [*self.inputs, *self.scalars, *self.statements]
        dtypes = {n.name: n.dtype for n in named}
        segments = self._segments()
        used = {r for s in self.statements for r in s.reads} | set(self.results)
        lines = [
            f"void {self.name}(int64_t n, void *const *bufs, const double *scalars)",
            "{",
            "    (void)scalars;",
        ]
        lines += [
            f"    const {NATIVE_TYPES[v.dtype]} *in_{v.name} = bufs[{i}];"
            for i, v in enumerate(self.inputs)
            if v.name in used
        ]
        lines += [
            f"    {NATIVE_TYPES[dtypes[r]]} *out_{i} = bufs[{len(self.inputs) + i}];"
            for i, r in enumerate(self.results)
        ]
        for i, v in enumerate(self.scalars):
            ctype, limits = NATIVE_TYPES[v.dtype], LIMITS.get(v.dtype)
            value = v.text if isinstance(v, Statement) else f"scalars[{i}]"
            value = f"plk_whole({value}, {limits})" if limits else value
            if v.name in used:
                lines.append(f"    const {ctype} {v.name} = ({ctype}){value};")
        if len(segments) == 1:
            return "\n".join([*lines, *self._segment(segments, 0, "i", "n"), "}", ""])
        lines += [
            f"    {NATIVE_TYPES[dtypes[v]]} t_{v}[{BLOCK}];" for v in self._crossing(segments)
        ]
        lines += [
            f"    for (int64_t at = 0, some; at < n; at += {BLOCK}) {{",
            f"        some = n - at < {BLOCK} ? n - at : {BLOCK};",
        ]
        for k in range(len(segments)):
            lines += ["    " + line for line in self._segment(segments, k, "at + i", "some")]
        return "\n".join([*lines, "    }", "}", ""])

    def _segments(self) -> list[Sequence[Statement]]:
        segments: list[list[Statement]] = [[]]
        weight = 0
        for s in self.statements:
            if weight + s.weight > SEGMENT_WEIGHT and segments[-1]:
                segments.append([])
                weight = 0
            segments[-1].append(s)
            weight += s.weight
        return list(segments)

    def _crossing(self, segments) -> list[str]:
        """The values that a later segment than their own reads."""
        home = {s.name: k for k, segment in enumerate(segments) for s in segment}
        late = {
            r
            for k, segment in enumerate(segments)
            for s in segment
            for r in s.reads
            if home.get(r, k) < k
        }
        late |= {r for r in self.results if home.get(r, len(segments)) < len(segments) - 1}
        return [s.name for s in self.statements if s.name in late]

    def _segment(self, segments, k: int, at: str, n: str) -> list[str]:
        own = segments[k]
        last = k == len(segments) - 1
        named: list[Name | Statement] = [*self.inputs, *self.statements]
        dtypes = {v.name: v.dtype for v in named}
        arrays = {v.name: f"in_{v.name}[{at}]" for v in self.inputs}
        made = {s.name for s in own}
        reads = dict.fromkeys(
            [r for s in own for r in s.reads] + (list(self.results) if last else [])
        )
        crossing = self._crossing(segments)
        lines = ["#pragma GCC ivdep", f"    for (int64_t i = 0; i < {n}; i++) {{"]
        lines += [
            f"        const {NATIVE_TYPES[dtypes[r]]} {r} = {arrays.get(r, f't_{r}[i]')};"
            for r in reads
            if r in dtypes and r not in made
        ]
        for s in own:
            ctype = NATIVE_TYPES[s.dtype]
            lines.append(f"        const {ctype} {s.name} = ({ctype})({s.text});")
        if last:
            lines += [f"        out_{i}[{at}] = {r};" for i, r in enumerate(self.results)]
        else:
            lines += [f"        t_{s.name}[i] = {s.name};" for s in own if s.name in crossing]
        return self._small_powers([*lines, "    }"])

    def _small_powers(self, lines: list[str]) -> list[str]:
        """A loop with powers by numbers, as it is and for numbers as 2, which cost no logarithm."""
        numbers = {v.name for v in self.scalars}
        powers = {y for line in lines for y in POWER.findall(line)} & numbers
        if not powers:
            return lines
        small = [
            POWER.sub(lambda m: m[0].replace("pow", "pow_small") if m[1] in powers else m[0], line)
            for line in lines
        ]
        test = " && ".join(f"plk_pow_is_small({y})" for y in sorted(powers))
        return [f"    if ({test}) {{", *small, "    } else {", *lines, "    }"]


def statement(name: str, e: Expression, dtype: str, inputs, scalars) -> Statement:
    """An expression of named inputs and scalars as a statement. Raises ValueError."""
    names = dict(zip(e.variables, inputs)) | dict(zip(e.scalars, scalars))
    used = {word for kind, word in tokens(e.text) if kind == "name"}
    reads = [c for v, c in names.items() if v in used]
    return Statement(name, dtype, translate(e.text, names, dtype), reads, e.weight)


def pointwise_loop(name: str, e: Expression, dtype: str) -> Loop:
    inputs = [f"v_{v}" for v in e.variables]
    scalars = [f"s_{s}" for s in e.scalars]
    return Loop(
        name,
        [Name(v, dtype) for v in inputs],
        [Name(s, dtype) for s in scalars],
        [statement("y", e, dtype, inputs, scalars)],
        ["y"],
    )


def dtypes_of(e: Expression) -> list[str]:
    return list(NATIVE_TYPES) if e.dtypes == "all" else list(SUFFIXES)


def expressions() -> dict[str, Expression]:
    """Every expression by name, from the records and LOOPS."""
    return {op.name: op.pointwise for op in REGISTRY.values() if op.pointwise} | LOOPS


# loops beside the expressions', of float32 and float64: name -> (C function, dtype) -> Loop
MADE: dict[str, Callable[[str, str], Loop]] = {}


def loops() -> list[tuple[str, list[str], Callable[[str, str], Loop]]]:
    """(name, dtypes, (C function, dtype) -> Loop) of every loop: its number is its place here."""

    def of(e: Expression):
        return dtypes_of(e), lambda function, dtype: pointwise_loop(function, e, dtype)

    found = {name: of(e) for name, e in expressions().items()}
    found |= {name: (list(SUFFIXES), make) for name, make in MADE.items()}
    return [(name, *found[name]) for name in sorted(found)]


def isa_wrapper(isa: str, body: str) -> str:
    """A C file that compiles `body` for one instruction set."""
    if isa == "baseline":
        return f'{HEAD}#define PLK_ISA baseline\n#include "{body}"\n'
    return (
        f'{HEAD}#if defined(__x86_64__)\n#pragma GCC target("{ISAS[isa]}")\n#define PLK_ISA {isa}\n'
        f'#include "{body}"\n#else\ntypedef int plk_empty;\n#endif\n'
    )


def pointwise_files() -> dict[str, str]:
    ops, files, tables = loops(), {}, []
    for part in range(0, max(len(ops), 1), OPERATORS_PER_FILE):
        body = f"pointwise_{part // OPERATORS_PER_FILE}"
        text = [
            HEAD + EXACT,
            (
                '#include "dtype.h"\n#include "kernel.h"\n#include "loop.h"\n#include "vecmath.h"\n'
                '#pragma GCC diagnostic ignored "-Wtype-limits"\n'
            ),
        ]
        rows = []
        for k, (name, dtypes, make) in enumerate(ops[part : part + OPERATORS_PER_FILE], part):
            row = []
            for dtype in dtypes:
                loop = make(f"loop_{k}_{dtype}", dtype)
                text.append(f"/* {name} */\nstatic {loop.text()}")
                row.append(f"[{ENUM[dtype]}] = {loop.name}")
            rows.append(f"    {{{', '.join(row)}}},")
        table = f"plk_{body}_table"
        text.append(
            f"extern const plk_loop PLK_NAME({table})[][PLK_DTYPE_COUNT];\n"
            f"const plk_loop PLK_NAME({table})[][PLK_DTYPE_COUNT] = {{\n"
            + "\n".join(rows or ["    {0},"])
            + "\n};\n"
        )
        files[f"{body}.inc"] = "\n".join(text)
        files |= {f"{body}_{isa}.c": isa_wrapper(isa, f"{body}.inc") for isa in ISAS}
        tables.append(table)
    names = ",\n    ".join(f'"{name}"' for name, *_ in ops)
    by_isa = {isa: ", ".join(f"{t}_{isa}" for t in tables) for isa in ISAS}
    externs = lambda isa: "".join(
        f"extern const plk_loop {t}_{isa}[][PLK_DTYPE_COUNT];\n" for t in tables
    )
    x86 = [isa for isa in ISAS if isa != "baseline"]
    files["pointwise_table.c"] = f"""{HEAD}#include "dtype.h"
#include "isa.h"
#include "kernel.h"
#include "loop.h"
#include "pointwise.h"
typedef const plk_loop (*loop_table)[PLK_DTYPE_COUNT];
{externs("baseline")}#if defined(__x86_64__)
{"".join(map(externs, x86))}#endif
static const loop_table tables[][{len(tables)}] = {{
    {{{by_isa["baseline"]}}},
#if defined(__x86_64__)
{"".join(f"    {{{by_isa[isa]}}},{chr(10)}" for isa in x86)}#endif
}};
static const char *const names[] = {{
    {names or '""'}
}};

int plk_pointwise_find(const char *name)
{{
    int low = 0, high = (int)(sizeof names / sizeof *names) - 1;
    while (low <= high) {{
        int middle = (low + high) / 2, order = strcmp(name, names[middle]);
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }}
    return -1;
}}

plk_loop plk_pointwise_loop(int op, int dtype)
{{
    return tables[plk_isa_get()][op / {OPERATORS_PER_FILE}][op % {OPERATORS_PER_FILE}][dtype];
}}
"""
    return files


def kernel_files() -> dict[str, str]:
    """Wrappers and dispatchers of the kernel files; the kernels are those that PLK_KERNEL
    defines."""
    signature = "(const void *params, void *const *bufs, const double *scalars)"
    files: dict[str, str] = {}
    declared: list[str] = []
    dispatch: list[str] = []
    from pathlib import Path  # here: the library itself needs no more of this file than its types

    for source in sorted((Path(__file__).resolve().parent / "cpu").glob("*.c")):
        text = source.read_text()
        kernels = dict.fromkeys(re.findall(r"^PLK_KERNEL\((\w+)\)", text, re.MULTILINE))
        declared += [f"int {k}{signature};" for k in kernels]
        if not is_simd(text):
            continue
        files |= {f"{source.stem}_{isa}.c": isa_wrapper(isa, source.name) for isa in ISAS}
        for k in kernels:
            dispatch.append(
                f"int {k}_baseline{signature};\n#if defined(__x86_64__)\n"
                + "".join(f"int {k}_{isa}{signature};\n" for isa in ISAS if isa != "baseline")
                + "#endif\n"
                f"int {k}{signature}\n{{\n    static const pl_kernel by_isa[] = {{{k}_baseline,\n"
                "#if defined(__x86_64__)\n        "
                + ", ".join(f"{k}_{isa}" for isa in ISAS if isa != "baseline")
                + "\n#endif\n    };\n    return by_isa[plk_isa_get()](params, bufs, scalars);\n}\n"
            )
    files["kernels.h"] = (
        f"{HEAD}#ifndef PLK_KERNELS_H\n#define PLK_KERNELS_H\n/* cffi reads from here on: */\n"
        + "\n".join(declared)
        + "\n/* cffi stops reading here */\n#endif\n"
    )
    includes = '#include "engine/core/plan.h"\n#include "isa.h"\n#include "kernels.h"\n'
    files["dispatch.c"] = HEAD + includes + "\n".join(dispatch)
    return files


def is_simd(text: str) -> bool:
    """Whether a kernel file is compiled through wrappers, once for each instruction set."""
    return '#include "simd.h"' in text


def trig_table() -> str:
    """2/pi times 2^(e - 150) modulo 4, for each exponent byte e of a float32, as a 28-bit head and
    the rest."""
    bits = 400
    one = 1 << bits
    atan = lambda n: sum((-1) ** k * (one // n ** (2 * k + 1)) // (2 * k + 1) for k in range(bits))
    two_over_pi = (2 * one * one) // (4 * (4 * atan(5) - atan(239)))  # Machin's formula
    high, low = [], []
    for e in range(256):
        shift = max(e, 1) - 150
        v = two_over_pi << shift if shift >= 0 else two_over_pi >> -shift
        v %= 4 * one
        drop = max(v.bit_length() - 28, 0)
        h = v >> drop << drop
        high.append((h / one).hex() if e < 255 else "NAN")
        low.append(((v - h) / one).hex() if e < 255 else "NAN")
    rows = lambda values: ",\n    ".join(", ".join(values[i : i + 4]) for i in range(0, 256, 4))
    return (
        f"{HEAD}#ifndef PLK_TRIG_TABLE_H\n#define PLK_TRIG_TABLE_H\n#include <math.h>\n"
        "__attribute__((unused)) static const double plk_trig_high[256] = {\n    "
        + rows(high)
        + "};\n__attribute__((unused)) static const double plk_trig_low[256] = {\n    "
        + rows(low)
        + "};\n#endif\n"
    )


def _cases(dtype: str, text_of: Callable[[Activation], str], before: str = "PLK_ACT_") -> str:
    names = {n: n for n in ("x", "low", "high")}
    return "".join(
        f"    case {before}{name.upper()}: return {translate(text_of(a), names, dtype)};\n"
        for name, a in ACTIVATIONS.items()
        if text_of(a)
    )


def _kinds(before: str) -> str:
    return ",\n    ".join(f"{before}{str(name).upper()}" for name in NUMBERS)


def activation_files() -> dict[str, str]:
    """The kinds of activations, for all files, and their values and slopes, for those that include
    simd.h."""
    each = lambda names: " ".join(f"DO(PLK_ACT_{name.upper()})" for name in names)
    kinds = (
        f"{HEAD}#ifndef PLK_ACTIVATIONS_H\n#define PLK_ACTIVATIONS_H\n"
        f"enum {{\n    {_kinds('PLK_ACT_')},\n    PLK_ACT_COUNT\n}};\n"
        "/* What a product applies, whose slope it takes, what follows a batch normalisation. */\n"
        f"#define PLK_EACH_ACT(DO) {each(OF_PRODUCTS)}\n"
        f"#define PLK_EACH_SLOPE(DO) {each(SLOPES)}\n"
        f"#define PLK_EACH_NORM_ACT(DO) {each(OF_NORMS)}\n#endif\n"
    )
    function = (
        "/* {doc} */\nPLK_INLINE float {name}(float x, const int act, float low, float high)\n{{\n"
        "    switch (act) {{\n{cases}    }}\n    return {otherwise};\n}}\n"
    )
    values = (
        f'{HEAD}#ifndef PLK_ACTIVATE_H\n#define PLK_ACTIVATE_H\n#include "activations.h"\n'
        + function.format(
            doc="act(x); low, high: the numbers of some",
            name="plk_activated",
            cases=_cases("float32", lambda a: a.text),
            otherwise="x",
        )
        + function.format(
            doc="the slope of act at x",
            name="plk_activation_slope",
            cases=_cases("float32", lambda a: a.slope_text),
            otherwise="1",
        )
        + "#endif\n"
    )
    return {"activations.h": kinds, "activate.h": values}


def activation_cuda() -> str:
    """activations.cuh: the same for CUDA kernels, in float and double."""
    functions = "".join(
        f"DEVICE {ctype} activated(int act, {ctype} x, {ctype} low, {ctype} high)\n{{\n"
        f"    switch (act) {{\n{_cases(dtype, lambda a: a.text, 'ACT_')}    }}\n    return x;\n}}\n"
        for dtype, ctype in (("float32", "float"), ("float64", "double"))
    )
    return (
        f'{HEAD}#pragma once\n#include "math.cuh"\n'
        f"enum {{\n    {_kinds('ACT_')}\n}};\n/* act(x); low, high: the numbers of some */\n"
        f"{functions}"
    )


def write(folder: Path) -> None:
    """Writes all generated files to a folder; a file whose text is unchanged keeps its time, others
    that lie there go."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"trig_table.h": trig_table(), **activation_files()}
    files |= {**pointwise_files(), **kernel_files()}
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
