"""Parameters of kernels as C: structs as initializers, and what their addresses stand for.

An address is a loop: one of those that plait was built with, or of a fused group, compiled while
the network was lowered. The loops of traced references are known by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine import ffi, lib
from ...kernels.cpu import generate, jit
from ...kernels.cpu.traced import compiled_functions
from ...kernels.loops.arguments import Buffer, Scratch
from ...kernels.loops.c import HEAD as TRACED_HEAD
from ...kernels.loops.c import Constant, Function
from .lower import CompileError, Step

ROW = 12  # numbers in a line


class Loops:
    """The loops that kernels call, and the C of each.

    pointwise, traced: the numbers by which kernels ask for them, and names.
    """

    def __init__(self) -> None:
        self.pointwise: dict[tuple[int, int], str] = {}  # (number, dtype) -> name
        self.traced: dict[int, str] = {}
        self._groups: dict[str, str] = {}  # source -> name
        self._texts: dict[str, str] = {}  # name -> text, of the others
        self._made = generate.loops()
        self._addresses: dict[int, int] = {}
        for number in range(len(self._made)):
            address = int(ffi.cast("uintptr_t", lib.plk_pointwise_loop(number, lib.PLK_F32)))
            if address:
                self._addresses.setdefault(address, number)

    def numbered(self, number: int, dtype: int) -> str:
        """The name of a loop that plait was built with."""
        key = number, dtype
        if key not in self.pointwise:
            kind = next(d for d, enum in generate.ENUM.items() if getattr(lib, enum) == dtype)
            name = self.pointwise[key] = f"loop_{number}_{kind}"
            self._texts[name] = generate.c_text(self._made[number].make(name, kind))
        return self.pointwise[key]

    def at(self, address: int) -> str:
        """The name of the loop at an address; "" where there is none."""
        source = jit.source_of(address)
        if source:
            return self._groups.setdefault(source, f"group_{len(self._groups)}")
        number = self._addresses.get(address)
        return "" if number is None else self.numbered(number, lib.PLK_F32)

    def reference(self, number: int, function: Function) -> None:
        """Notes a loop of a traced reference."""
        self.traced[number] = f"traced_{number}"
        self._texts[self.traced[number]] = f"int traced_{number}{function.text}"

    def declarations(self) -> str:
        """Of all of them, for the file that holds parameters."""
        arguments = "(int64_t n, void *const *bufs, const double *scalars);\n"
        named = [*self._groups.values(), *self.pointwise.values()]
        return "".join(f"void {name}{arguments}" for name in named)

    def files(self) -> dict[str, str]:
        """Name -> text of the C files that hold them."""
        files = {}
        plain = [text for name, text in self._texts.items() if not name.startswith("traced")]
        find = "".join(
            f"    if (op == {number} && dtype == {dtype})\n        return {name};\n"
            for (number, dtype), name in self.pointwise.items()
        )
        files["loops.c"] = (
            "/* Loops of pointwise operators. */\n"
            '#include "dtype.h"\n#include "pointwise.h"\n#include "vecmath.h"\n\n'
            + self.pointwise_declarations()
            + "\n".join(plain)
            + "\nplk_loop plk_pointwise_loop(int op, int dtype)\n{\n"
            + (find or "    (void)op, (void)dtype;\n")
            + "    return NULL;\n}\n"
        )
        if self.traced:
            texts = [self._texts[name] for name in self.traced.values()]
            cases = "".join(f"    case {k}: return {name};\n" for k, name in self.traced.items())
            files["traced_loops.c"] = (
                "/* Loops of operators without a kernel of their own. */\n"
                + TRACED_HEAD
                + "\n"
                + "\n".join(f"static {text}" for text in texts)
                + "\nplk_traced_function plk_traced_get(int function)\n{\n    switch (function) {\n"
                + f"{cases}    }}\n    return NULL;\n}}\n"
            )
        for source, name in self._groups.items():
            files[f"{name}.c"] = (
                "/* A group of pointwise operators. */\n"
                f"{jit.HEAD}#define {jit.FUNCTION} {name}\n{source}"
            )
        return files

    def pointwise_declarations(self) -> str:
        """Of those that plait was built with."""
        return "".join(
            f"void {name}(int64_t n, void *const *bufs, const double *scalars);\n"
            for name in self.pointwise.values()
        )


def number(value: Any, kind: str) -> str:
    """A number of a C type as C."""
    if kind in ("float", "double"):
        if value != value:
            return "NAN"
        if value in (float("inf"), float("-inf")):
            return "INFINITY" if value > 0 else "-INFINITY"
        short = f"{value:.9g}" if kind == "float" else repr(float(value))
        exact = short if float(short) == value else float(value).hex()
        plain = exact if any(c in exact for c in ".enpx") else exact + ".0"
        return plain + "f" * (kind == "float")
    value = ord(value) if isinstance(value, bytes) else int(value)
    if value == -(1 << 63):
        return "INT64_MIN"
    return str(value)


def rows(values: Sequence[str]) -> str:
    """Numbers as lines of an initializer."""
    return ",\n".join("    " + ", ".join(values[i : i + ROW]) for i in range(0, len(values), ROW))


class Values:
    """Prints parameters. before: text of the arrays that printed structs point to."""

    def __init__(self, loops: Loops):
        self.loops = loops
        self.before: list[str] = []

    def parameters(self, step: Step) -> str:
        """The initializer of a step's parameters. Raises CompileError."""
        made, _ = step.params
        if step.struct == "plk_traced":
            return self._traced(step, made)
        if step.struct in ("plk_pointwise", "plk_map_reduce"):
            p = made.map if step.struct == "plk_map_reduce" else made
            if not p.loop and p.op >= 0:
                self.loops.numbered(p.op, p.dtype)
        return self._struct(step, ffi.typeof(made).item, made, f"{step.struct}.")

    def _struct(self, step: Step, kind: Any, value: Any, path: str) -> str:
        fields = []
        for name, field in kind.fields:
            text = self._value(step, field.type, getattr(value, name), f"{path}{name}")
            if text not in ("0", "0.0f", "0.0", "{0}", ""):
                fields.append(f".{name} = {text}")
        return "{" + (", ".join(fields) or "0") + "}"

    def _value(self, step: Step, kind: Any, value: Any, path: str) -> str:
        if kind.kind == "struct":
            return self._struct(step, kind, value, path + ".")
        if kind.kind == "array":
            items = [self._value(step, kind.item, v, path) for v in value]
            while items and items[-1] in ("0", "0.0f", "0.0", "{0}"):
                items.pop()
            return "{" + (", ".join(items) or "0") + "}"
        if kind.kind == "pointer" or kind.cname == "uintptr_t":
            address = int(ffi.cast("uintptr_t", value))
            if not address:
                return "0"
            name = self.loops.at(address) if kind.cname == "uintptr_t" else ""
            if not name:
                raise CompileError(
                    f'compile: layer "{step.name}", operator {step.plan.op.name}: its kernel'
                    f" {step.function} has the address {path}, which is not known to be a loop"
                )
            return f"(uintptr_t){name}"
        return number(value, kind.cname)

    def _array(self, name: str, kind: str, values: Sequence[str]) -> str:
        """The name of an array that it writes."""
        self.before.append(f"static const {kind} {name}[] = {{\n{rows(values or ['0'])}\n}};\n")
        return name

    def _traced(self, step: Step, made: Any) -> str:
        plan, prefix = step.plan, f"traced_step_{len(self.before)}"
        ins, outs = [s.type for s in plan.in_specs], [s.type for s in plan.out_specs]
        steps = []
        for k, (f, function) in enumerate(compiled_functions(plan.op, ins, outs, plan.attrs)):
            self.loops.reference(function, f)
            own = f"{prefix}_{k}"
            places = self._array(
                f"{own}_places",
                "plk_traced_place",
                [self._place(p, f"{own}_{i}") for i, p in enumerate(f.places)],
            )
            sizes = self._array(f"{own}_sizes", "int64_t", [number(n, "int64_t") for n in f.sizes])
            given = made.steps[k].numbers
            numbers = self._array(
                f"{own}_numbers",
                "plk_traced_number",
                [
                    f"{{{given[i].scalar}, {number(given[i].value, 'double')}}}"
                    for i in range(len(f.numbers))
                ],
            )
            steps.append(
                f"{{.function = {function}, .n_places = {len(f.places)},"
                f" .n_numbers = {len(f.numbers)}, .places = {places}, .sizes = {sizes},"
                f" .numbers = {numbers}, .n = {f.n}, .unit = {f.unit}, .work = {f.work}}}"
            )
        named = self._array(f"{prefix}_steps", "plk_traced_step", steps)
        error = ffi.string(made.error).decode()
        return (
            f"{{.n_steps = {len(steps)}, .scratch_bytes = {made.scratch_bytes}, .steps = {named},"
            f' .error = "{error}"}}'
        )

    def _place(self, place: Any, name: str) -> str:
        if isinstance(place, Buffer):
            return f"{{{place.index}, {place.offset_bytes}}}"
        if isinstance(place, Scratch):
            return f"{{PLK_TRACED_SCRATCH, {place.offset_bytes}}}"
        assert isinstance(place, Constant)
        raw = np.ascontiguousarray(place.values).tobytes()
        self.before.append(
            f"static const _Alignas(8) unsigned char {name}[] = {{\n"
            f"{rows([str(b) for b in raw] or ['0'])}\n}};\n"
        )
        return f"{{PLK_TRACED_CONSTANT, (int64_t)(uintptr_t){name}}}"
