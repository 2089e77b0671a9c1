"""Writes C from the operator records: pointwise loops, their table, and the dispatch between
instruction sets.

`Loop` is the unit: named inputs, C statements, one output. A pointwise record gives a loop of one
statement; a fused group will give one of many.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .loops import LOOPS
from .pointwise import Expression
from .record import REGISTRY

CPU = Path(__file__).resolve().parent / "cpu"
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
INTEGER_IDENTITY = {"floor", "ceil", "trunc", "rint", "round"}
INTEGER_FUNCTIONS = {"mod", "fmod", "div", "floordiv", "pow", "abs"}
CONSTANTS = {"INFINITY", "NAN", "M_PI"}


def tokens(text: str):
    """(kind, text) pairs of an expression. Raises ValueError at the first character that does not
    belong."""
    at = 0
    while at < len(text.rstrip()):
        match = TOKEN.match(text, at)
        if not match:
            raise ValueError(f"expression {text!r}: cannot read {text[at:]!r}")
        yield match.lastgroup, match[match.lastgroup or 0]
        at = match.end()


def translate(text: str, names: Mapping[str, str], dtype: str) -> str:
    """An expression as C for one dtype; `names` maps its variables to C names. Raises
    ValueError."""
    suffix = SUFFIXES.get(dtype, "int")
    found = list(tokens(text))
    out = []
    for i, (kind, word) in enumerate(found):
        if kind == "number" and dtype == "float32":
            word = (word if re.search(r"[.eE]", word) else word + ".0") + "f"
        elif kind == "name" and found[i + 1 : i + 2] == [("sign", "(")]:
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


class Loop(NamedTuple):
    """One C loop over contiguous arrays: bufs are the inputs, then the output."""

    name: str
    dtype: str
    inputs: Sequence[str]
    scalars: Sequence[str]
    statements: Sequence[str]  # C; may define locals
    result: str  # a C expression

    def text(self) -> str:
        ctype, limits = NATIVE_TYPES[self.dtype], LIMITS.get(self.dtype)
        used = set(re.findall(r"[A-Za-z_]\w*", " ".join([*self.statements, self.result])))
        inputs = [(i, v) for i, v in enumerate(self.inputs) if v in used]
        lines = [
            f"static void {self.name}(int64_t n, void *const *bufs, const double *scalars)",
            "{",
            "    (void)scalars;",
        ]
        lines += [f"    const {ctype} *in_{v} = bufs[{i}];" for i, v in inputs]
        lines += [f"    {ctype} *out = bufs[{len(self.inputs)}];"]
        lines += [
            f"    const {ctype} {s} = ({ctype})"
            + (f"plk_whole(scalars[{i}], {limits});" if limits else f"scalars[{i}];")
            for i, s in enumerate(self.scalars)
            if s in used
        ]
        lines += ["#pragma GCC ivdep", "    for (int64_t i = 0; i < n; i++) {"]
        lines += [f"        const {ctype} {v} = in_{v}[i];" for _, v in inputs]
        lines += [f"        {s}" for s in self.statements]
        return "\n".join([*lines, f"        out[i] = ({ctype})({self.result});", "    }", "}", ""])


def pointwise_loop(name: str, e: Expression, dtype: str) -> Loop:
    names = {v: f"v_{v}" for v in e.variables} | {s: f"s_{s}" for s in e.scalars}
    return Loop(
        name,
        dtype,
        [f"v_{v}" for v in e.variables],
        [f"s_{s}" for s in e.scalars],
        (),
        translate(e.text, names, dtype),
    )


def dtypes_of(e: Expression) -> list[str]:
    return list(NATIVE_TYPES) if e.dtypes == "all" else list(SUFFIXES)


def expressions() -> list[tuple[str, Expression]]:
    """Every expression by name, from the records and LOOPS: a loop's number is its place here."""
    return sorted(
        ({op.name: op.pointwise for op in REGISTRY.values() if op.pointwise} | LOOPS).items()
    )


def isa_wrapper(isa: str, body: str) -> str:
    """A C file that compiles `body` for one instruction set."""
    if isa == "baseline":
        return f'{HEAD}#define PLK_ISA baseline\n#include "{body}"\n'
    return (
        f'{HEAD}#if defined(__x86_64__)\n#pragma GCC target("{ISAS[isa]}")\n#define PLK_ISA {isa}\n'
        f'#include "{body}"\n#else\ntypedef int plk_empty;\n#endif\n'
    )


def pointwise_files() -> dict[str, str]:
    ops, files, tables = expressions(), {}, []
    for part in range(0, max(len(ops), 1), OPERATORS_PER_FILE):
        body = f"pointwise_{part // OPERATORS_PER_FILE}"
        text = [
            HEAD,
            (
                '#include "kernel.h"\n#include "pointwise.h"\n#include "vecmath.h"\n'
                '#pragma GCC diagnostic ignored "-Wtype-limits"\n'
            ),
        ]
        rows = []
        for k, (name, e) in enumerate(ops[part : part + OPERATORS_PER_FILE], part):
            row = []
            for dtype in dtypes_of(e):
                loop = pointwise_loop(f"loop_{k}_{dtype}", e, dtype)
                text.append(f"/* {name}: {e.text} */\n{loop.text()}")
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
    names = ",\n    ".join(f'"{name}"' for name, _ in ops)
    by_isa = {isa: ", ".join(f"{t}_{isa}" for t in tables) for isa in ISAS}
    externs = lambda isa: "".join(
        f"extern const plk_loop {t}_{isa}[][PLK_DTYPE_COUNT];\n" for t in tables
    )
    x86 = [isa for isa in ISAS if isa != "baseline"]
    files["pointwise_table.c"] = f"""{HEAD}#include "pointwise.h"
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
    for source in sorted(CPU.glob("*.c")):
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
    files["dispatch.c"] = f'{HEAD}#include "kernel.h"\n#include "kernels.h"\n' + "\n".join(dispatch)
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


def write(folder: Path) -> None:
    """Writes all generated files to a folder; a file whose text is unchanged keeps its time, others
    that lie there go."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"trig_table.h": trig_table(), **pointwise_files(), **kernel_files()}
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
