"""History: values by epoch, as a table and curves."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine import svg
from ..engine.error import InvalidType, InvalidValue


class History:
    """Values of named quantities, epoch by epoch; Jupyter shows a table and curves.

    rows: (epoch, values by name). A name may be missing in some epochs.

    >>> history = History()
    >>> history.add(1, {"loss": 0.5})
    >>> history.add(2, {"loss": 0.25, "accuracy": 0.9})
    >>> history["loss"]
    [(1, 0.5), (2, 0.25)]
    >>> print(history)
    epoch   loss  accuracy
    1        0.5
    2       0.25       0.9
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def add(self, epoch: int, values: Mapping[str, float]) -> None:
        """Adds an epoch. Raises TypeError for values that are no numbers."""
        try:
            self.rows.append((epoch, {str(k): float(v) for k, v in values.items()}))
        except (TypeError, ValueError) as error:
            raise InvalidType(f"History.add: values must be numbers: {error}") from None

    @property
    def names(self) -> list[str]:
        """The quantities, in the order in which they came."""
        return list(dict.fromkeys(name for _, values in self.rows for name in values))

    def __getitem__(self, name: str) -> list[tuple[int, float]]:
        """(epoch, value) of a quantity. Raises ValueError for an unknown one."""
        if name not in self.names:
            raise InvalidValue(f"History: {name!r} is unknown, there are {self.names}")
        return [(epoch, values[name]) for epoch, values in self.rows if name in values]

    def _cells(self) -> list[list[str]]:
        return [
            [str(epoch), *(f"{values[n]:.5g}" if n in values else "" for n in self.names)]
            for epoch, values in self.rows
        ]

    def __str__(self) -> str:
        lines = [["epoch", *self.names], *self._cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        aligned = [
            "  ".join(
                c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(x, widths))
            )
            for x in lines
        ]
        return "\n".join(line.rstrip() for line in aligned)

    def _repr_html_(self) -> str:
        curves = [svg.curve({name: self[name]}) for name in self.names]
        return f"<div>{svg.table(['epoch', *self.names], self._cells())}{''.join(curves)}</div>"
