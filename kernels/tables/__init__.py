"""Table entries of operators, those of all backends in one file. Tables of one backend are in
cpu/ and cuda/."""

import importlib
from collections.abc import Callable

from .. import module_names
from ..native import Entry, Table

ENTRIES: dict[str, list[tuple[tuple[str, ...], Entry]]] = {}  # name of a backend -> its entries


def entry(backend: str, *names: str) -> Callable[[Entry], Entry]:
    """Registers an entry of a backend, as Table.native does, before the backend is imported."""

    def add(found: Entry) -> Entry:
        ENTRIES.setdefault(backend, []).append((names, found))
        return found

    return add


def fill(table: Table, backend: str) -> None:
    """Puts the entries of a backend into its table."""
    for names, found in ENTRIES.get(backend, ()):
        table.native(*names)(found)


for _name in module_names(__file__):
    importlib.import_module(f"{__name__}.{_name}")
