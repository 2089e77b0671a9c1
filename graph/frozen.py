"""Programs of a network whose parameters do not change: they read prepared weights, which the
programs for all shapes share, and no longer the parameters that these were made of.

A prepared value is known by the digest of its expression, without a change of memory layout at its
end, and by that layout. Changes of layout are exact and can be undone, so a program that wants
another layout gets it from the one that is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..engine.error import MXNetError
from ..kernels.record import lookup
from .branches import at_once
from .digest import expression
from .graph import Value, topological, typed_node, variable
from .passes import before_gradient, fused
from .program import Program, assemble, compiled_parts

REORDER = lookup("_reorder")


class Missing(MXNetError):
    """A prepared value is to be made of a parameter that was released."""


class Fixed:
    """Prepared arrays in the place of a Prepack."""

    __slots__ = ("arrays", "program")

    def __init__(self, arrays: Sequence[Any]):
        self.arrays = tuple(arrays)

    def results(self, inputs: Sequence, location: int, held: Sequence = ()) -> Sequence[Any]:
        """The arrays that the program reads."""
        return self.arrays


class Parts(NamedTuple):
    """A graph with prepared weights. given: its variables: the data, the parameters that it reads
    as they are (their numbers: reads), then those of the arrays constants and prepared."""

    outputs: list[Value]
    given: list[Value]
    reads: list[int]
    constants: list[Any]
    prepared: list[Any]


class Prepared:
    """The prepared arrays of a network: by digest and device, then by layout."""

    def __init__(self) -> None:
        self.arrays: dict[tuple[str, Any], dict[str, Any]] = {}

    def bytes(self) -> int:
        """Of all arrays."""
        return sum(a._spec.nbytes for made in self.arrays.values() for a in made.values())

    def program(
        self,
        outputs: Sequence[Value],
        data: Sequence[Value],
        parameters: Sequence[Value],
        names: Sequence[str],
        arrays: Sequence[Any],
        device: Any,
        name: str,
    ) -> tuple[Program, list[int]]:
        """(a program, the numbers of the parameters that it reads as they are, after its data). See
        parts. Raises Missing."""
        parts = self.parts(outputs, data, parameters, names, arrays, device)
        program = assemble(parts.outputs, parts.given, device, name, 1, at_once(device))
        program.n_in, program.tier = len(data) + len(parts.reads), 1
        program.constants = tuple(parts.constants)
        if parts.prepared:
            program.prepack = Fixed(parts.prepared)
        return program, parts.reads

    def parts(
        self,
        outputs: Sequence[Value],
        data: Sequence[Value],
        parameters: Sequence[Value],
        names: Sequence[str],
        arrays: Sequence[Any],
        device: Any,
    ) -> Parts:
        """The graph that is left when everything that follows from parameters alone is prepared.

        outputs: a typed graph of the variables data and parameters. names: of the parameters;
        arrays: theirs, None where one was released. Raises Missing.
        """
        outputs = before_gradient(outputs, device)
        outputs, variables, constants, wanted, results = compiled_parts(
            outputs, [*data, *parameters], device, stable=parameters
        )
        outputs = fused(outputs, device)
        kept = dict(zip(variables[len(data) :], range(len(parameters))))
        nodes = set(topological(outputs))
        reads = [i for v, i in kept.items() if v.node in nodes]
        given = [*variables[: len(data)], *(v for v in kept if v.node in nodes)]
        found = [self._value(v, kept, names, arrays, constants, device) for v in wanted]
        return Parts(
            outputs, [*given, *constants, *results], reads, list(constants.values()), found
        )

    def _value(self, v: Value, kept, names, arrays, constants, device) -> Any:
        """The array of a prepared value: as it is there, in another layout, or computed."""
        reordered = v.node.op is REORDER
        base = v.node.inputs[0] if reordered else v
        by_name = {x: names[i] for x, i in kept.items()}
        expr = expression(base, by_name, constants)
        used, fixed, key = expr.used, expr.fixed, (expr.key, device)
        known = self.arrays.setdefault(key, {})
        layout = v.type.layout
        if layout not in known and known:
            other, array = next(iter(known.items()))
            source = variable("prepared", base.type._replace(layout=other))
            made = Value(typed_node(REORDER, {"layout": layout}, [source]))
            known[layout] = assemble([made], [source], device, "prepare", 1).run([array])[0]
        elif layout not in known:
            gone = [names[kept[x]] for x in used if arrays[kept[x]] is None]
            if gone:
                del self.arrays[key]
                raise Missing(", ".join(gone))
            program = assemble(fused([v], device), [*used, *fixed], device, "prepare", 1)
            inputs = [*(arrays[kept[x]] for x in used), *(constants[x] for x in fixed)]
            known[layout] = program.run(inputs)[0]
        return known[layout]
