"""Writes C from the operator records: pointwise loops, their table, and the dispatch between
instruction sets. The build runs it; programs only use the flags of an instruction set."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..activations import ACTIVATIONS, NUMBERS, OF_NORMS, OF_PRODUCTS, SLOPES, Activation
from ..loops import IN_BOOLS, LOOPS
from ..loops.built import functions
from ..loops.c import HEAD as TRACED_HEAD
from ..pointwise import Expression
from ..record import REGISTRY
from ..spec import ITEM_BYTES
from ..statements import MADE, NATIVE_TYPES, SUFFIXES, Loop, Name, statement, translate

OPERATORS_PER_FILE = 24
FUNCTIONS_PER_FILE = 40
TRACED = ("baseline", "avx2")  # instruction sets for which loops of references are compiled
ENUM = {
    "float32": "PLK_F32",
    "float64": "PLK_F64",
    "uint8": "PLK_U8",
    "int32": "PLK_I32",
    "int8": "PLK_I8",
    "int64": "PLK_I64",
}
ISAS = {
    "baseline": "",
    "avx2": "avx2,fma,f16c,bmi,bmi2,lzcnt",
    "avx512": (
        "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi,bmi2,lzcnt,prefer-vector-width=512"
    ),
}
HEAD = "/* Written by kernels/cpu/generate.py. */\n"
# fused groups are compiled so too: a value is one number, whichever of both computes it
EXACT = '#pragma GCC optimize("fp-contract=off")\n'


def pointwise_loop(name: str, e: Expression, dtype: str) -> Loop:
    """The loop of an expression computed in a dtype; one of truth values gives bools."""
    inputs = [f"v_{v}" for v in e.variables]
    scalars = [f"s_{s}" for s in e.scalars]
    made = statement("y", e, dtype, inputs, scalars)
    if e.truth:
        made = made._replace(dtype="uint8" if ITEM_BYTES[dtype] == 1 else "bool")
    return Loop(
        name,
        [Name(v, "bool" if i in e.bools else dtype) for i, v in enumerate(inputs)],
        [Name(s, dtype) for s in scalars],
        [made],
        ["y"],
    )


def dtypes_of(e: Expression) -> list[str]:
    return [d for d in NATIVE_TYPES if e.serves(d)]


def expressions() -> dict[str, Expression]:
    """The expression of every loop by its name, from the records and LOOPS; of truth values twice,
    in the operands' dtype and in bools."""
    given = {op.name: op.pointwise for op in REGISTRY.values() if op.pointwise} | LOOPS
    found = {name: e._replace(truth=False) for name, e in given.items()}
    return found | {name + IN_BOOLS: e for name, e in given.items() if e.truth}


class Made(NamedTuple):
    """One loop in several dtypes, and the names under which it is found."""

    names: list[str]
    dtypes: list[str]
    make: Callable[[str, str], Loop]  # (C function, dtype) -> Loop


def loops() -> list[Made]:
    """Every loop: its number is its place here. Equal expressions share one."""

    def of(names: list[str], e: Expression) -> Made:
        return Made(names, dtypes_of(e), lambda function, dtype: pointwise_loop(function, e, dtype))

    sharing: dict[Expression, list[str]] = {}
    for name, e in sorted(expressions().items()):
        sharing.setdefault(e, []).append(name)
    found = [of(names, e) for e, names in sharing.items()]
    return found + [Made([name], list(SUFFIXES), MADE[name]) for name in sorted(MADE)]


def c_text(loop: Loop) -> str:
    """A loop as C; vecmath.h has those of sin, cos and tan alone."""
    known = re.fullmatch(r"plk_(sin|cos|tan)_f32 \( v_x \)", loop.statements[-1].text)
    if not known:
        return loop.text()
    return (
        f"void {loop.name}(int64_t n, void *const *bufs, const double *scalars)\n{{\n"
        f"    (void)scalars;\n    plk_{known[1]}_loop_f32(n, bufs[0], bufs[1]);\n}}\n"
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
        for k, (names, dtypes, make) in enumerate(ops[part : part + OPERATORS_PER_FILE], part):
            row = []
            for dtype in dtypes:
                loop = make(f"loop_{k}_{dtype}", dtype)
                text.append(f"/* {', '.join(names)} */\nstatic {c_text(loop)}")
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
    named = sorted((name, k) for k, made in enumerate(ops) for name in made.names)
    listed = ",\n    ".join(f'{{"{name}", {k}}}' for name, k in named)
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
static const struct {{ const char *name; int number; }} loops[] = {{
    {listed or '{"", 0}'}
}};

int plk_pointwise_find(const char *name)
{{
    int low = 0, high = (int)(sizeof loops / sizeof *loops) - 1;
    while (low <= high) {{
        int middle = (low + high) / 2, order = strcmp(name, loops[middle].name);
        if (order == 0)
            return loops[middle].number;
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


def traced_files() -> dict[str, str]:
    """The loops of references, and their table by name."""
    texts = sorted(functions().items())
    files = {}
    parts = [texts[i : i + FUNCTIONS_PER_FILE] for i in range(0, len(texts), FUNCTIONS_PER_FILE)]
    for k, part in enumerate(parts):
        body = [HEAD + EXACT, TRACED_HEAD]
        body += [f"static int {name}{text}" for name, text in part]
        listed = ",\n    ".join(name for name, _ in part)
        body.append(
            f"extern const plk_traced_function PLK_NAME(plk_traced_{k})[];\n"
            f"const plk_traced_function PLK_NAME(plk_traced_{k})[] = {{\n    {listed}\n}};\n"
        )
        files[f"traced_{k}.inc"] = "\n".join(body)
        files |= {f"traced_{k}_{isa}.c": isa_wrapper(isa, f"traced_{k}.inc") for isa in TRACED}
    names = ",\n    ".join(f'"{name}"' for name, _ in texts)
    externs = lambda isa: "".join(
        f"extern const plk_traced_function plk_traced_{k}_{isa}[];\n" for k in range(len(parts))
    )
    row = lambda isa: f"    {{{', '.join(f'plk_traced_{k}_{isa}' for k in range(len(parts)))}}},\n"
    x86 = ["avx2"] * (len(ISAS) - 1)  # with AVX-512 most take 0.8 to 1.2 of the time, and 3 MB
    files["traced_table.c"] = f"""{HEAD}#include "isa.h"
#include "kernel.h"
#include "traced.h"
{externs("baseline")}#if defined(__x86_64__)
{externs("avx2")}#endif
static const plk_traced_function *const tables[][{len(parts)}] = {{
{row("baseline")}#if defined(__x86_64__)
{"".join(map(row, x86))}#endif
}};
static const char *const names[] = {{
    {names}
}};

int plk_traced_find(const char *name)
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

plk_traced_function plk_traced_get(int function)
{{
    return tables[plk_isa_get()][function / {FUNCTIONS_PER_FILE}][function % {FUNCTIONS_PER_FILE}];
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
    for source in sorted(Path(__file__).resolve().parent.glob("*.c")):
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
    """For each exponent byte e of a float32 x, what x is multiplied by: 1/pi without the bits that
    contribute whole turns to it, as a 29-bit head and the rest. Below 2^24 it is all of 1/pi."""
    bits = 400
    one = 1 << bits
    atan = lambda n: sum((-1) ** k * (one // n ** (2 * k + 1)) // (2 * k + 1) for k in range(bits))
    one_over_pi = one * one // (4 * (4 * atan(5) - atan(239)))  # Machin's formula
    high, low = [], []
    for e in range(255):
        last = max(e - 150, 0)  # the exponent of x's last bit
        v = one_over_pi % (2 * one >> last)
        drop = max(v.bit_length() - 29, 0)
        h = v >> drop << drop
        high.append((h / one).hex())
        low.append(((v - h) / one).hex())
    rows = lambda values: ",\n    ".join(
        ", ".join([*values, "NAN"][i : i + 4]) for i in range(0, 256, 4)
    )
    return (
        f"{HEAD}#ifndef PLK_TRIG_TABLE_H\n#define PLK_TRIG_TABLE_H\n#include <math.h>\n"
        "__attribute__((unused)) static const double plk_trig_high[256] = {\n    "
        + rows(high)
        + "};\n__attribute__((unused)) static const double plk_trig_low[256] = {\n    "
        + rows(low)
        + "};\n#endif\n"
    )


def partition_table() -> str:
    """For each mask of lanes, the permutation of 4-byte lanes that puts these last;
    plk_partition_64: of lanes of 8 bytes."""

    def table(lanes: int, width: int) -> str:
        rows = []
        for mask in range(1 << lanes):
            order = sorted(range(lanes), key=lambda lane: mask >> lane & 1)
            rows.append(", ".join(str(lane * width + k) for lane in order for k in range(width)))
        name = f"plk_partition_{32 * width}[{1 << lanes}][8]"
        return f"static const uint8_t {name} = {{\n    {{" + "},\n    {".join(rows) + "}};\n"

    head = "#ifndef PLK_PARTITION_TABLE_H\n#define PLK_PARTITION_TABLE_H\n#include <stdint.h>\n"
    return f"{HEAD}{head}{table(8, 1)}{table(4, 2)}#endif\n"


def cases(dtype: str, text_of: Callable[[Activation], str], before: str = "PLK_ACT_") -> str:
    names = {n: n for n in ("x", "low", "high")}
    return "".join(
        f"    case {before}{name.upper()}: return {translate(text_of(a), names, dtype)};\n"
        for name, a in ACTIVATIONS.items()
        if text_of(a)
    )


def kinds(before: str) -> str:
    return ",\n    ".join(f"{before}{str(name).upper()}" for name in NUMBERS)


def activation_files() -> dict[str, str]:
    """The kinds of activations, and the functions of their values and slopes."""
    each = lambda names: " ".join(f"DO(PLK_ACT_{name.upper()})" for name in names)
    listed = (
        f"{HEAD}#ifndef PLK_ACTIVATIONS_H\n#define PLK_ACTIVATIONS_H\n"
        f"enum {{\n    {kinds('PLK_ACT_')},\n    PLK_ACT_COUNT\n}};\n"
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
        f"{HEAD}#ifndef PLK_ACTIVATE_H\n#define PLK_ACTIVATE_H\n"
        '#include "activations.h"\n#include "vecmath.h"\n'
        + function.format(
            doc="act(x); low, high: the numbers of some",
            name="plk_activated",
            cases=cases("float32", lambda a: a.text),
            otherwise="x",
        )
        + function.format(
            doc="the slope of act at x",
            name="plk_activation_slope",
            cases=cases("float32", lambda a: a.slope_text),
            otherwise="1",
        )
        + "#endif\n"
    )
    return {"activations.h": listed, "activate.h": values}


def write(folder: Path) -> None:
    """Writes all generated files to a folder; a file whose text is unchanged keeps its time, others
    that lie there go."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "trig_table.h": trig_table(),
        "partition_table.h": partition_table(),
        **activation_files(),
    }
    files |= {**pointwise_files(), **traced_files(), **kernel_files()}
    for old in folder.iterdir():
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
