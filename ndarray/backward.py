"""Backward programs: the tape below some heads as a structure, and the gradient program of a
structure, cached and compiled by tiers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ..engine import log
from ..engine.error import MXNetError
from ..engine.gc_pause import gc_paused
from ..engine.recent import Recent
from ..graph.digest import hashed
from ..graph.graph import Origin, Value, topological, variable
from ..graph.recipes import Recipes, kinds_of, sizes_of, with_sizes
from ..graph.runner import Forward, Gradient, Recording, summary
from ..graph.tiers import NEVER, Tiered
from ..kernels.plan import Plan
from ..kernels.scalar import UnknownScalar, given
from ..kernels.size import NoValue
from ..kernels.spec import Spec
from .tape import TapeNode, Variable, expand, keeps_input

MAX_PROGRAMS = 4096  # that are kept,
MAX_CALLS = 1 << 17  # and of how many calls and instructions of graphs in all
MAX_RECIPES = 256  # structures that have some


def reachable(entries: Any, since: int = -1) -> list[TapeNode]:
    """Nodes below tape entries recorded after `since`, in their order. Raises MXNetError where a
    tape was freed."""
    seen: set[TapeNode] = set()
    stack = [e[0] for e in entries if e.__class__ is tuple and e[0].seq > since]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.entries is None:
            raise MXNetError(
                "Cannot differentiate node because it is not in a computational graph: its graph"
                " was already used by an earlier backward\n  fix: backward(retain_graph=True) the"
                " first time"
            )
        for e in node.entries:
            if e.__class__ is tuple and e[0] not in seen and e[0].seq > since:
                stack.append(e[0])
    return sorted(seen, key=lambda n: n.seq)


class TapeGraph:
    """The tape below some heads, numbered.

    structure: (plan, where its inputs come from, plan, ..., where the heads come from), equal for
        tapes whose gradients the same program computes. Where from: None, the number of a variable,
        (number of a node, output), and (variable, Spec) for a head that is a variable.
    scalars: the dynamic parameters of all calls, which are inputs of that program.
    """

    def __init__(self, entries: Any):
        self.nodes = reachable(entries)
        self._number = {n: i for i, n in enumerate(self.nodes)}
        self.variables: dict[Variable, int] = {}
        self.scalars: list[float] = []
        parts: list = []
        for node in self.nodes:
            parts.append(node.plan)
            self.scalars += node.scalars
            parts.append(tuple([self._ref(e) for e in node.entries or ()]))
        heads = [self._ref(e) for e in entries]
        parts.append(
            tuple((h, e.array) if h.__class__ is int else h for h, e in zip(heads, entries))
        )
        self.structure = tuple(parts)

    def _ref(self, entry):
        if entry is None:
            return None
        if entry.__class__ is tuple:
            return self._number[entry[0]], entry[1]
        return self.variables.setdefault(entry, len(self.variables))


class Translation(Recording):
    """The graph of a structure."""

    def __init__(
        self,
        structure: tuple,
        scalars: Sequence[float] | None = None,
        sizes: Sequence | None = None,
    ):
        """scalars: of the calls; None leaves them open, as OpenScalars. sizes: in the place of
        those of `sizes_in`; Sizes, if a recipe is written."""
        super().__init__()
        sized = None if sizes is None else iter(with_sizes(specs_in(structure), sizes))
        made: list[Sequence[Value]] = []
        first = 0
        for k, (plan, refs) in enumerate(zip(structure[0:-1:2], structure[1:-1:2])):
            inputs = []
            in_specs: Any = plan.in_specs
            if sized is not None:
                in_specs = [next(sized) for _ in in_specs]
            for j, ref in enumerate(refs):
                if ref.__class__ is tuple:
                    value = made[ref[0]][ref[1]]
                else:
                    value = self.variables.get(ref) or variable(f"v{k}_{j}", in_specs[j].type)
                    if ref is not None:
                        self.variables[ref] = value
                if keeps_input(plan, j):  # never computed again, nor its side effects
                    self.sources.setdefault(value, ("input", k, j))
                self.devices.setdefault(value, plan.in_specs[j].device)
                inputs.append(value)
            n = len(plan.scalars)
            of_call = [given(first + i) for i in range(n)] if scalars is None else scalars[first:]
            first += n
            if sized is not None and isinstance(plan, Forward):
                outputs, results = _expanded(plan, inputs, in_specs)
            else:
                outputs, results = expand(plan, inputs, of_call[:n])
            if not hasattr(plan, "expand") and results:
                results[0].node.source = Origin("", (k,))
            made.append(outputs)
            self.sources.update((results[i], ("saved", k, i)) for i in plan.saved)
            kept = getattr(plan, "kept_specs", plan.out_specs)
            self.devices.update((results[i], kept[i].device) for i in plan.saved)
            layouts = getattr(plan, "layouts", {})
            self.layouts.update((results[i], layout) for i, layout in layouts.items())
        for i, (a, b) in enumerate(structure[-1]):
            if b.__class__ is int:
                self.heads.append(made[a][b])
                self.head_devices.append(structure[2 * a].out_specs[b].device)
                continue
            if a not in self.variables:
                like = b if sized is None else next(sized)
                value = self.variables[a] = variable(f"head{i}", like.type)
                self.sources[value], self.devices[value] = ("head", i), b.device
            self.heads.append(self.variables[a])
            self.head_devices.append(b.device)
        self.nodes = set(topological([v for values in made for v in values]))


def specs_in(structure: tuple) -> list[Spec]:
    """The specs of all inputs in a structure, and of heads that are variables."""
    (*steps, heads) = structure
    of_calls = [s for plan in steps[0::2] for s in plan.in_specs]
    return [*of_calls, *[b for _, b in heads if b.__class__ is not int]]


def _expanded(
    plan: Any, inputs: Sequence[Value], in_specs: Sequence
) -> tuple[Sequence[Value], Sequence[Value]]:
    """A recorded graph for other sizes, by its recipe."""
    graphs = plan.recipe.make([n for s in in_specs for n in s.type.shape])
    if graphs is None:
        raise NoValue
    return plan.expand(inputs, graphs)


def _kind_of(plan: Any) -> tuple | None:
    """What calls on a tape have in common that differ in sizes; None for a graph without recipe."""
    kinds = kinds_of(plan.in_specs)
    if isinstance(plan, Plan):
        attrs = plan.op.attribute_key(plan.attrs)
        return plan.op, *attrs, "|", *kinds, plan.saved, plan.unread
    recipe = getattr(plan, "recipe", None)
    return None if recipe is None or plan.layouts else (recipe, *kinds)


def _recipes_of(key: tuple) -> Recipes | None:
    """The recipes of gradients like those of a Backward's key."""
    (*steps, heads), with_grad, reqs = key
    kinds = [_kind_of(plan) for plan in steps[0::2]]
    if None in kinds:
        return None
    ends = [(a, b if b.__class__ is int else kinds_of([b])) for a, b in heads]
    try:
        whole = (*kinds, *steps[1::2], *ends, with_grad, reqs)
        return _recipes.setdefault(whole, Recipes(n_calls=len(kinds)))
    except TypeError:  # an attribute that is a list
        return None


# the key of a tape of 1,000 calls takes 0.2 MB
_recipes = Recent(MAX_RECIPES, MAX_CALLS // 4, lambda known: known.n_calls)


class Backward(Tiered):
    """The gradients of a structure: the program that serves now, and how to make a better one.

    key: (structure, which heads have gradients, requests).
    """

    serving: Gradient | None

    def __init__(self, key: tuple):
        self.key = key
        mine = weakref.ref(self)
        for entry in self.below():
            entry.backwards = (*[ref for ref in entry.backwards if ref() is not None], mine)
        self.interpreted = any(getattr(p, "python", False) for p in self.plans)
        # graphs on the tape change in one step's backward, for the next step
        self.lead = int(any(hasattr(p, "entry") for p in self.plans))
        if not self.interpreted:
            self.begin()

    def __str__(self):
        return "backward"

    def use(self) -> Gradient | None:
        """The program for one more run; None where the gradients must be computed call by call: of
        a Python function, or where they depend on the value of a scalar."""
        if self.interpreted:
            return None
        serving = self.serving
        if serving is None:
            try:
                with gc_paused():
                    serving = self.serving = self.build(int(self.changed and self.change_at > 0))
            except UnknownScalar:
                self.interpreted = True
                return None
        hits = self.hits = self.hits + 1  # as Tiered.use, without a call
        if hits >= self.due:
            self.reached(hits)
            serving = self.serving or serving  # another thread may have put it aside
        return serving

    def described(self) -> str:
        (*steps, heads), with_grad, reqs = self.key
        plans = [_summary_of_plan(p) for p in steps[0::2]]
        ends = [(a, b if b.__class__ is int else repr(b)) for a, b in heads]
        return hashed(plans, list(steps[1::2]), ends, with_grad, reqs)

    counted = (*Tiered.counted, "parts")

    @property
    def parts(self) -> list[str]:
        """The structures of the graphs on the tape."""
        return [p.structure() for p in self.plans if hasattr(p, "entry")]

    def restart(self) -> None:
        self.serving = None

    def forget(self) -> None:
        """Drops the program; the next use makes it again, at its tier."""
        self.serving = None

    def below(self) -> list[Any]:
        """The entries of the graphs on the tape: the program is for tapes of their tier 1."""
        return [e for p in self.plans if hasattr(p, "entry") and (e := p.entry()) is not None]

    def in_use(self) -> bool:
        return all(p.entry() is not None for p in self.plans if hasattr(p, "entry"))

    @property
    def plans(self) -> tuple:
        """Of the calls on the tape."""
        return self.key[0][0:-1:2]

    def work(self) -> tuple[int, float]:
        costs = [getattr(p, "program", p).cost_us for p in self.plans]
        programs = [p.program for p in self.plans if hasattr(p, "entry")]
        if self.serving is not None:
            programs.append(self.serving.program)
            costs.append(self.serving.program.cost_us)
        return sum(len(p.ops) for p in programs), sum(costs)

    def build(self, tier: int) -> Gradient:
        return compiled(self.key, tier)

    def compile(self) -> tuple[tuple, Gradient]:
        """The program for tapes as they will be when the forward graphs below have changed."""
        key = better(self.key)
        return key, compiled(key, 1)

    def publish(self, made: tuple[tuple, Gradient]) -> None:
        key, program = made
        if key == self.key:
            self.serving = program
        else:
            _programs.pop(self.key, None)
            found = _programs[key] = Backward(key)
            found.serving, found.queued, found.changed, found.due = program, True, True, NEVER
            found.change_at, found.waited_s = self.change_at, self.waited_s
            for before, now in zip(self.plans, found.plans):
                entry = before.entry() if now is not before else None
                if entry is not None:
                    entry.change()
        log.write("hybridize", f"{self}: tier 1 from call {self.change_at} on, {summary(program)}")


def _summary_of_plan(plan) -> str:
    """What a call on the tape is, in every process."""
    if hasattr(plan, "structure"):
        return plan.structure()
    specs = [(repr(s), s.stype, s.layout) for s in plan.in_specs]
    return hashed(getattr(getattr(plan, "op", None), "name", ""), getattr(plan, "attrs", {}), specs)


def queued_with(plan: Any) -> list[Backward]:
    """The gradients of tapes with a call of this plan that are to change to tier 1 with it, and
    with them the other graphs on these tapes."""
    return [
        b
        for b in list(_programs.values())
        if b.queued and not b.changed and any(p is plan for p in b.plans)
    ]


def compiled(key: tuple, tier: int) -> Gradient:
    """The gradient program of a Backward's key. Raises UnknownScalar where a gradient depends on
    the value of a scalar."""
    structure, with_grad, reqs = key
    known = None if tier else _recipes_of(key)
    if known is None:
        return Gradient.of(Translation(structure), with_grad, reqs, tier)
    record = lambda sizes: Translation(structure, sizes=sizes)
    return Gradient.by_recipe(known, sizes_of(specs_in(structure)), record, with_grad, reqs)


def deliver_rows(grad: Any, parts: Sequence[tuple], made: Sequence, add: bool) -> None:
    """Writes a row_sparse gradient from the outputs of a program."""
    found = [tuple([made[i] for i in p]) if len(p) > 1 else made[p[0]] for p in parts]
    grad._add_up(found, add)


def better(key: tuple) -> tuple:
    """The key of tapes on which each graph stands as its newest compilation."""
    structure = list(key[0])
    for k in range(0, len(structure) - 1, 2):
        structure[k] = getattr(structure[k], "newer", None) or structure[k]
    return (tuple(structure), *key[1:])


def weight(found: Backward) -> int:
    """The calls on a tape; for a graph its instructions."""
    return sum(getattr(p, "n_steps", 1) for p in found.plans)


_programs = Recent(MAX_PROGRAMS, MAX_CALLS, weight)


def program_of(tape: TapeGraph, with_grad: tuple, reqs: tuple) -> Gradient | None:
    """The program for this tape, or None; see Backward.use."""
    key = (tape.structure, with_grad, reqs)
    found = _programs[key]
    if found is None:
        found = _programs.setdefault(key, Backward(key))
    return found.use()


def name_layers(program: Any, tape: TapeGraph) -> None:
    """Gives the instructions of a gradient program the names of the layers that made this tape."""
    try:
        of_calls = [node.layer for node in tape.nodes]
    except AttributeError:  # of calls before anybody wanted to know
        of_calls = [getattr(node, "layer", None) for node in tape.nodes]
    if of_calls == program.named_by:
        return
    program.named_by = of_calls
    program.name_layers(
        [
            tuple(dict.fromkeys(n for n in (_layer(of_calls, k) for k in found) if n))
            for found in program.calls
        ]
    )


def _layer(of_calls: Sequence[str | None], k: int | str) -> str | None:
    return of_calls[k] if isinstance(k, int) else k


def source(at: tuple, tape: TapeGraph, heads: Any, head_grads: Any, order: Any) -> Any:
    """The array that a program's input stands for."""
    kind, *place = at
    if kind == "input":
        return tape.nodes[place[0]].inputs[place[1]]
    if kind == "saved":
        return tape.nodes[place[0]].saved[place[1]]
    if kind == "head":
        return heads[place[0]]
    if kind == "head_grad":
        return head_grads[place[0]]
    return order[place[0]].grad
