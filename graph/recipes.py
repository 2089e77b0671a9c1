"""Recipes: optimised graphs of which some sizes are open. A structure that is called with many
lengths goes through gradient and passes once; other lengths are put into what came of it.

A recipe is written by running the same code on Sizes (kernels/size.py) in the place of those that
vary. It serves sizes for which all questions that this code asked have the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from ..kernels.record import Type
from ..kernels.size import NoValue, Script, is_size
from ..kernels.spec import Spec
from .graph import Node, Value, topological, values_of
from .passes.fold import evaluate
from .program import Exact, Program, exact_program

MAX_RECIPES = 4  # of one structure
Graphs = Mapping[str, Sequence[Value]]


# For None: the graphs for the sizes at hand, and what else is known: (device, ...). For Sizes: the
# same of a recipe. Graphs without the groups of Exact are no single program.
Write = Callable[[Sequence | None], tuple[Graphs, tuple]]


def exact_of(graphs: Graphs) -> Exact:
    """The groups of an Exact."""
    return Exact(*[list(graphs[group]) for group in Exact._fields])


class Sized:
    """A Spec some of whose sizes are Sizes."""

    __slots__ = ("device", "type")

    def __init__(self, type: Type, device: Any):
        self.type, self.device = type, device


def sizes_of(specs: Sequence[Spec]) -> tuple[int, ...]:
    """The sizes of all axes, in their order."""
    return tuple([n for s in specs for n in s.shape])


def kinds_of(specs: Sequence[Spec]) -> tuple:
    """All of specs but their sizes."""
    return tuple([(len(s.shape), s.dtype, s.device, s.layout, s.stype) for s in specs])


def with_sizes(specs: Sequence[Spec], sizes: Sequence) -> list[Sized]:
    """The specs with other sizes, in the order of `sizes_of`."""
    made, at = [], 0
    for s in specs:
        n = len(s.shape)
        made.append(Sized(Type(tuple(sizes[at : at + n]), s.dtype, s.layout), s.device))
        at += n
    return made


def _picker(places: Sequence[int]) -> Callable[[Sequence], tuple]:
    """A function that gives the numbers in these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda numbers: tuple([numbers[i] for i in places])


class Recipe:
    """Graphs for any sizes that answer the same questions in the same way.

    varying: which of the sizes are open; graphs: made of the Sizes of `script` in their place, by
    the names of their groups, among them those of Exact. about: what else is known of them.
    Raises NoValue where a Size stands in an attribute of another form than a number or a shape.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        varying: Sequence[int],
        script: Script,
        graphs: Graphs,
        about: tuple = (),
    ):
        self.about = about
        self._given = _picker(varying)
        self._rest = _picker([i for i in range(len(sizes)) if i not in varying])
        self._fixed = self._rest(sizes)
        self._script = script
        # tables, of which what has open sizes is filled in: (its place, ...)
        self._types: list[Any] = []
        self._open_types: list[tuple] = []
        self._typings: list[Any] = []  # the types of a node
        self._open_typings: list[tuple] = []
        self._attrs: list[Any] = []
        self._open_attrs: list[tuple] = []
        self._nodes: list[tuple] = []
        self._known: dict[Any, int] = {}  # places in the tables, while this is written
        self._write(graphs)
        self._known = {}
        script.end()
        self._arrays: dict[int, Any] = {}  # of constants without open sizes

    # ---- writing ---------------------------------------------------------------------------------

    def _write(self, graphs: Graphs) -> None:
        place: dict[Value, int] = {}
        sized: set[Node] = set()
        for node in topological([v for values in graphs.values() for v in values]):
            typing, attrs = self._typing(node.types), self._attributes(node)
            if (
                self._typings[typing] is None
                or self._attrs[attrs] is None
                or any(v.node in sized for v in node.inputs)
            ):
                sized.add(node)
            inputs = tuple([place[v] for v in node.inputs])
            self._nodes.append((node.op, attrs, inputs, node.name, typing, node.extra, node.source))
            for v in values_of(node):
                place[v] = len(place)
        self._groups = [(name, [place[v] for v in values]) for name, values in graphs.items()]
        self._sizeless = [v.node not in sized for v in graphs.get("constants", ())]

    def _number(self, n: Any) -> int:
        """The place of a number of a shape, or None, among the script's values."""
        place = self._script.place(n)
        return self._script.constant(n) if place is None else place

    def _type(self, t: Type) -> int:
        is_open = any([is_size(n) for n in t.shape])
        places = [self._number(n) for n in t.shape] if is_open else t.shape
        key = ("type", is_open, *places, t.dtype, t.layout)
        if key not in self._known:
            self._known[key] = len(self._types)
            if is_open:
                self._open_types.append((len(self._types), _picker(places), t.dtype, t.layout))
            self._types.append(None if is_open else t)
        return self._known[key]

    def _typing(self, types: Sequence[Type]) -> int:
        places = tuple([self._type(t) for t in types])
        key = ("types", places)
        if key not in self._known:
            self._known[key] = len(self._typings)
            is_open = any([self._types[i] is None for i in places])
            if is_open:
                self._open_typings.append((len(self._typings), _picker(places)))
            self._typings.append(None if is_open else tuple(types))
        return self._known[key]

    def _attributes(self, node: Node) -> int:
        given = node.attrs
        opened = [name for name, value in given.items() if _has_size(value)]
        key: tuple = ("attributes", node.op, repr(given)) if opened else ("same", id(given))
        if key not in self._known:
            self._known[key] = len(self._attrs)
            if opened:
                filled = []
                for name in opened:
                    several = given[name].__class__ is tuple
                    numbers = given[name] if several else (given[name],)
                    filled.append((name, several, _picker([self._number(n) for n in numbers])))
                self._open_attrs.append((len(self._attrs), given, filled))
            self._attrs.append(None if opened else given)
        return self._known[key]

    # ---- reading ---------------------------------------------------------------------------------

    def make(self, sizes: Sequence) -> dict[str, list[Value]] | None:
        """The graphs for these sizes; None where it does not serve them. sizes: ints, or Sizes of
        another script."""
        if self._rest(sizes) != self._fixed:
            return None
        numbers = self._script.read(self._given(sizes))
        if numbers is None:
            return None
        types, typings, attrs = self._types[:], self._typings[:], self._attrs[:]
        for at, pick, dtype, layout in self._open_types:
            types[at] = Type(pick(numbers), dtype, layout)
        for at, pick in self._open_typings:
            typings[at] = pick(types)
        for at, given, filled in self._open_attrs:
            made = attrs[at] = dict(given)
            for name, several, pick in filled:
                made[name] = pick(numbers) if several else pick(numbers)[0]
        values: list[Value] = []
        for op, attr, inputs, name, typing, extra, source in self._nodes:
            ins = tuple([values[i] for i in inputs])
            values += values_of(Node(op, attrs[attr], ins, name, typings[typing], extra, source))
        return {name: [values[i] for i in places] for name, places in self._groups}

    def program(self, graphs: Graphs, name: str) -> Program:
        """The program of what `make` gave."""
        exact, device = exact_of(graphs), self.about[0]
        return exact_program(exact, self._constants(exact.constants, device), device, name)

    def _constants(self, wanted: Sequence[Value], device: Any) -> list[Any]:
        """The arrays of constants; those without open sizes are computed once."""
        arrays = self._arrays
        missing = [i for i in range(len(wanted)) if i not in arrays]
        if not missing:
            return [arrays[i] for i in range(len(wanted))]
        made = dict(zip(missing, evaluate([wanted[i] for i in missing], device)))
        arrays.update((i, made[i]) for i in missing if self._sizeless[i])
        return [made[i] if i in made else arrays[i] for i in range(len(wanted))]


def _has_size(attribute: Any) -> bool:
    """Is an attribute a Size, or has it some? Raises NoValue where they are nested."""
    if is_size(attribute):
        return True
    if attribute.__class__ not in (tuple, list):
        return False
    found = [_has_size(x) for x in attribute]
    if any(f and not is_size(x) for f, x in zip(found, attribute)) or (
        any(found) and attribute.__class__ is list
    ):
        raise NoValue
    return any(found)


class Made(NamedTuple):
    """Graphs, what else is known of them, and their program; None where it is no single one.
    recipe: by which they were made, or that makes them too."""

    graphs: Graphs
    about: tuple
    program: Program | None
    recipe: Recipe | None


class Recipes:
    """The recipes of a structure: graphs that differ only in sizes. n_calls: recorded ones, of a
    structure of a tape."""

    __slots__ = ("_last", "_made", "_refused", "_varying", "n_calls")

    def __init__(self, n_calls: int = 1) -> None:
        self.n_calls = n_calls
        self._made: list[Recipe] = []
        self._last: tuple[int, ...] | None = None
        self._varying: frozenset[int] = frozenset()
        self._refused = 0

    def find(self, sizes: Sequence[int]) -> tuple[Recipe, dict[str, list[Value]]] | None:
        """A recipe that serves these sizes, and its graphs for them."""
        for recipe in self._made:
            graphs = recipe.make(sizes)
            if graphs is not None:
                return recipe, graphs
        return None

    def made(self, sizes: tuple[int, ...], write: Write, name: str) -> Made:
        """What is compiled for these sizes, by a recipe or from scratch. Raises what `write`
        raises."""
        found = self.find(sizes)
        if found is not None:
            recipe, filled = found
            return Made(filled, recipe.about, recipe.program(filled, name), recipe)
        graphs, about = write(None)
        if "steps" not in graphs:
            return Made(graphs, about, None, None)
        exact = exact_of(graphs)
        arrays = evaluate(exact.constants, about[0])
        program = exact_program(exact, arrays, about[0], name)
        return Made(graphs, about, program, self.learn(sizes, write, graphs, about))

    def learn(
        self, sizes: tuple[int, ...], write: Write, graphs: Graphs, about: tuple = ()
    ) -> Recipe | None:
        """Writes a recipe, where other sizes were seen before. graphs, about: made for these sizes,
        which no recipe serves."""
        last, self._last = self._last, sizes
        if last is None or last == sizes or len(self._made) + self._refused >= MAX_RECIPES:
            return None
        self._varying |= {i for i, (a, b) in enumerate(zip(last, sizes)) if a != b}
        varying = sorted(self._varying)
        script = Script([sizes[i] for i in varying])
        given: list[Any] = list(sizes)
        for i, size in zip(varying, script.given):
            given[i] = size
        try:
            recipe = Recipe(sizes, varying, script, *write(given))
            again = None if script.is_lost else recipe.make(sizes)
        except Exception:  # whatever a rule or a pass raises that cannot do without the numbers
            again = None
        if again is None or recipe.about != about or not equal(again, graphs):
            self._refused += 1
            return None
        self._made.append(recipe)
        return recipe


def equal(a: Graphs, b: Graphs) -> bool:
    """Are two sets of graphs the same, node by node?"""
    return _described(a) == _described(b)


def _described(graphs: Graphs) -> list:
    order = topological([v for values in graphs.values() for v in values])
    number = {n: i for i, n in enumerate(order)}
    ref = lambda values: [(number[v.node], v.index) for v in values]
    found: list = [
        (n.op, repr(n.attrs), ref(n.inputs), n.name, n.types, n.extra and dict(n.extra))
        for n in order
    ]
    return [*found, *((name, ref(values)) for name, values in graphs.items())]
