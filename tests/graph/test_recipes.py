"""Recipes: for sizes that one serves it gives the graph that would be made from scratch, node by
node; others it refuses."""

import random

import pytest
from plait import cpu
from plait.engine.error import MXNetError
from plait.graph.graph import Builder, variable
from plait.graph.inference import typed_graph
from plait.graph.passes.gradient import gradient
from plait.graph.program import optimized
from plait.graph.recipes import Recipes, equal, sizes_of, with_sizes
from plait.kernels.record import Type
from plait.kernels.spec import spec

F = Builder(train=True)
SIZES = (0, 1, 1, 2, 2, 3, 4, 6)
# shapes of three sizes by their places; operators with attributes that suit any of them, or few
SHAPES = ((0, 1), (1, 0), (0, 1, 2), (1, 2), (0,), (2, 2), (0, 0))
UNARY = [
    *[(name, {}) for name in ("tanh", "relu", "square", "transpose", "Flatten", "zeros_like")],
    *[(name, {}) for name in ("ones_like", "softmax", "log_softmax", "sum", "mean", "negative")],
    *[("sum", {"axis": a, "keepdims": k}) for a in (0, 1, -1) for k in (False, True)],
    *[("mean", {"axis": a, "keepdims": k}) for a in (0, -1) for k in (False, True)],
    *[("Reshape", {"shape": s}) for s in ((-1,), (0, -1), (-1, 1), (1, -1), (-3, 0), (2, -1))],
    *[("slice_axis", {"axis": 0, "begin": 0, "end": e}) for e in (1, 2, None)],
    *[("expand_dims", {"axis": a}) for a in (0, 1)],
    *[("_mul_scalar", {"scalar": x}) for x in (1.0, 2.5)],
    ("max", {"axis": 0}),
    ("squeeze", {}),
    ("broadcast_axis", {"axis": 0, "size": 3}),
    ("tile", {"reps": (2, 1)}),
    ("repeat", {"repeats": 2, "axis": 0}),
    ("reverse", {"axis": 0}),
    ("Dropout", {"p": 0.5}),
]
BINARY = [
    *[(name, {}) for name in ("broadcast_add", "broadcast_mul", "broadcast_like", "dot")],
    *[(name, {}) for name in ("elemwise_add", "batch_dot", "reshape_like", "broadcast_div")],
    *[("Concat", {"dim": d}) for d in (0, 1)],
    ("stack", {"axis": 0}),
]


def random_graph(rng):
    """(outputs, variables, the shape of each by the places of its sizes)."""
    sizes = rng.sample((2, 3, 4, 5), 3)
    shapes = [rng.choice(SHAPES) for _ in range(rng.randint(1, 3))]
    variables = [variable(f"x{i}", typed(s, sizes)) for i, s in enumerate(shapes)]
    values = list(variables)
    for _ in range(rng.randint(1, 14)):
        name, attrs = rng.choice(UNARY + BINARY)
        n = 2 if (name, attrs) in BINARY else 1
        try:
            made = getattr(F, name)(*[rng.choice(values) for _ in range(n)], **attrs)
        except MXNetError:  # it does not suit these shapes
            continue
        values += made if isinstance(made, list) else [made]
    return rng.sample(values, min(len(values), rng.randint(1, 3))), variables, shapes


def typed(shape, sizes):
    return Type(tuple(sizes[i] for i in shape))


def made_of(outputs, variables, types):
    """What is made of a graph for inputs of these types: its gradient, after the exact passes."""
    graph = typed_graph([*outputs, *variables], dict(zip([v.node for v in variables], types)), True)
    outputs, variables = graph[: len(outputs)], graph[len(outputs) :]
    heads = [variable(f"dy{i}", v.type) for i, v in enumerate(outputs)]
    gradients = [g for g in gradient(outputs, heads, variables) if g is not None]
    exact = optimized([*outputs, *gradients], [*variables, *heads], cpu(), None, 0)
    return {"outputs": outputs, "variables": variables, **exact._asdict()}


def check(rng, seen):
    outputs, variables, shapes = random_graph(rng)
    known = Recipes()
    for _ in range(10):
        sizes = [rng.choice(SIZES) for _ in range(3)]
        specs = [spec(typed(s, sizes).shape, "float32", cpu()) for s in shapes]
        found = known.find(sizes_of(specs))
        try:
            fresh = made_of(outputs, variables, [s.type for s in specs])
        except MXNetError:
            assert found is None, f"serves {sizes}, for which there is no graph"
            continue
        if found is not None:
            assert equal(found[1], fresh), sizes
            seen["served"] += 1
            continue
        write = lambda given, specs=specs: (
            made_of(outputs, variables, [s.type for s in with_sizes(specs, given)]),
            None,
        )
        seen["written"] += known.learn(sizes_of(specs), write, fresh) is not None


@pytest.mark.parametrize("seed", range(8))
def test_recipes_give_what_is_made_from_scratch(seed):
    rng, seen = random.Random(seed), {"served": 0, "written": 0}
    for _ in range(40):
        check(rng, seen)
    assert seen["served"] > 20 and seen["written"] > 20
