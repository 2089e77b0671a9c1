"""Loops over elements as text: expressions become statements of C, for any device.

`Loop` is the unit: inputs, statements, results. A pointwise record gives a loop of one statement, a
fused group (fused.py) one of many.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .pointwise import Expression

NATIVE_TYPES = {
    "float32": "float",
    "float64": "double",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int8": "int8_t",
    "int64": "int64_t",
}
# bools: in variables as wide as a float32, so that what compares and what chooses has one width
VALUES = NATIVE_TYPES | {"bool": "int32_t"}
ARRAYS = NATIVE_TYPES | {"bool": "uint8_t"}
LIMITS = {
    "uint8": "0, UINT8_MAX",
    "int32": "INT32_MIN, INT32_MAX",
    "int8": "INT8_MIN, INT8_MAX",
    "int64": "INT64_MIN, INT64_MAX",
}
SUFFIXES = {"float32": "f32", "float64": "f64"}  # of vecmath.h's functions; integers: "int"
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
INTEGER_FUNCTIONS = {"mod", "fmod", "div", "floordiv", "pow", "abs", "gcd", "shl", "shr"}
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
    """A C variable; its dtype is a key of VALUES."""

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
            f"    const {ARRAYS[v.dtype]} *in_{v.name} = bufs[{i}];"
            for i, v in enumerate(self.inputs)
            if v.name in used
        ]
        lines += [
            f"    {ARRAYS[dtypes[r]]} *out_{i} = bufs[{len(self.inputs) + i}];"
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
        lines += [f"    {VALUES[dtypes[v]]} t_{v}[{BLOCK}];" for v in self._crossing(segments)]
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
        crossing = {
            r
            for k, segment in enumerate(segments)
            for s in segment
            for r in s.reads
            if home.get(r, k) < k
        }
        crossing |= {r for r in self.results if home.get(r, len(segments)) < len(segments) - 1}
        return [s.name for s in self.statements if s.name in crossing]

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
            f"        const {VALUES[dtypes[r]]} {r} = {arrays.get(r, f't_{r}[i]')};"
            for r in reads
            if r in dtypes and r not in made
        ]
        for s in own:
            ctype = VALUES[s.dtype]
            lines.append(f"        const {ctype} {s.name} = ({ctype})({s.text});")
        if last:
            lines += [
                f"        out_{i}[{at}] = ({ARRAYS[dtypes[r]]}){r};"
                for i, r in enumerate(self.results)
            ]
        else:
            lines += [f"        t_{s.name}[i] = {s.name};" for s in own if s.name in crossing]
        return self._small_powers([*lines, "    }"])

    def _small_powers(self, lines: list[str]) -> list[str]:
        """A loop with powers by numbers: as it is, for numbers as 2 and for those as 1/2, which
        cost no logarithm."""
        numbers = {v.name for v in self.scalars}
        powers = {y for line in lines for y in POWER.findall(line)} & numbers
        if not powers:
            return lines

        def as_kind(kind: str) -> list[str]:
            to = lambda m: m[0].replace("pow", f"pow_{kind}") if m[1] in powers else m[0]
            return [POWER.sub(to, line) for line in lines]

        def test(kind: str) -> str:
            return " && ".join(f"plk_pow_is_{kind}({y})" for y in sorted(powers))

        return [
            *(f"    if ({test('small')}) {{", *as_kind("small")),
            *(f"    }} else if ({test('root')}) {{", *as_kind("root")),
            *("    } else {", *lines, "    }"),
        ]


def statement(
    name: str, e: Expression, dtype: str, inputs: Sequence[str], scalars: Sequence[str]
) -> Statement:
    """An expression of named inputs and scalars as a statement. Raises ValueError."""
    names = dict(zip(e.variables, inputs)) | dict(zip(e.scalars, scalars))
    used = {word for kind, word in tokens(e.text) if kind == "name"}
    reads = [c for v, c in names.items() if v in used]
    return Statement(name, dtype, translate(e.text, names, dtype), reads, e.weight)


# loops beside the expressions', of float32 and float64: name -> (C function, dtype) -> Loop
MADE: dict[str, Callable[[str, str], Loop]] = {}
