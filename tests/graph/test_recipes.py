"""Recipes: for sizes that one serves it gives the graph that would be made from scratch, node by
node; others it refuses."""

import random

import numpy as np
import pytest
import samples
from plait import cpu
from plait.engine.error import MXNetError
from plait.graph.graph import Builder, Node, values_of, variable
from plait.graph.inference import typed_graph
from plait.graph.passes.gradient import gradient
from plait.graph.program import optimized
from plait.graph.recipes import Recipes, equal, sizes_of, with_sizes
from plait.kernels.record import REGISTRY, Type, lookup
from plait.kernels.size import is_size
from plait.kernels.spec import spec
from plait.kernels.traits import Lowered, PythonKernel

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


def made_of(outputs, variables, types, train=True):
    """What is made of a graph for inputs of these types: its gradient, after the exact passes."""
    types = dict(zip([v.node for v in variables], types))
    graph = typed_graph([*outputs, *variables], types, train)
    n = len(graph) - len(variables)  # of an operator that stands for others, there may be fewer
    outputs, variables = graph[:n], graph[n:]
    heads = [variable(f"dy{i}", v.type) for i, v in enumerate(outputs)]
    wanted = [v for v in variables if "float" in v.dtype]
    gradients = [g for g in gradient(outputs, heads, wanted) if g is not None]
    exact = optimized([*outputs, *gradients], [*variables, *heads], cpu(), None, 0)
    return {"outputs": outputs, "variables": variables, **exact._asdict()}


def check(known, make, specs, seen):
    """make: the graphs for inputs of these types."""
    found = known.find(sizes_of(specs))
    try:
        fresh = make([s.type for s in specs])
    except (MXNetError, ArithmeticError, LookupError, TypeError, ValueError):
        assert found is None, f"serves {specs}, for which there is no graph"
        return
    if found is not None:
        assert equal(found[1], fresh), specs
        seen["served"] += 1
        return
    write = lambda given: (make([s.type for s in with_sizes(specs, given)]), ())
    seen["written"] += known.learn(sizes_of(specs), write, fresh) is not None


@pytest.mark.parametrize("seed", range(8))
def test_recipes_give_what_is_made_from_scratch(seed):
    rng, seen = random.Random(seed), {"served": 0, "written": 0}
    for _ in range(40):
        outputs, variables, shapes = random_graph(rng)
        known = Recipes()
        for _ in range(10):
            sizes = [rng.choice(SIZES) for _ in range(3)]
            specs = [spec(typed(s, sizes).shape, "float32", cpu()) for s in shapes]
            check(known, lambda types: made_of(outputs, variables, types), specs, seen)
    assert seen["served"] > 20 and seen["written"] > 20


def test_recipes_of_every_operator():
    """A sample of each, of which axes of one length get another together."""
    rng, seen = random.Random(0), {"served": 0, "written": 0}
    lookup("_np_cumsum")  # mx.np registers its operators when it is first used
    for op in sorted({op.name: op for op in REGISTRY.values()}.values(), key=lambda op: op.name):
        if not op.samples or op.has(Lowered) or op.has(PythonKernel):
            continue
        case, train = rng.choice(op.samples), rng.random() < 0.5
        shapes = [samples.shape_of(given) for given in case.inputs]
        dtypes = [
            given[2] if samples.kind_of(given) == "values" else samples.usual_dtype(op)
            for given in case.inputs
        ]
        variables = [variable(f"x{i}") for i in range(len(shapes))]
        attrs = op.parse(op.counted(dict(case.attrs), len(shapes)))
        attrs |= {"train": train} if op.train_aware else {}
        outputs = values_of(Node(op, attrs, variables, "node"))
        known, lengths = Recipes(), sorted({n for shape in shapes for n in shape})
        for _ in range(4):
            new = {n: n if rng.random() < 0.4 else rng.choice((*SIZES, 2 * n)) for n in lengths}
            specs = [
                spec(tuple([new[n] for n in shape]), dtype, cpu())
                for shape, dtype in zip(shapes, dtypes)
            ]
            check(known, lambda types: made_of(outputs, variables, types, train), specs, seen)
    assert seen["served"] > 100 and seen["written"] > 300


def learnt(make, *lengths):
    """The recipes after graphs of vectors of these lengths."""
    known = Recipes()
    for n in lengths:
        check(known, make, [spec((n,), "float32", cpu())], {"served": 0, "written": 0})
    return known


def test_attributes_may_become_equal_to_a_constant():
    def make(types):
        x = variable("x", types[0])
        return made_of([x * 0.25, x * (1 / x.shape[0])], [x], types)

    learnt(make, 5, 7, 4)


def asks(question):
    """Graphs of x, or of -x where a size is 1 for a question that cannot be written down."""

    def make(types):
        x = variable("x", types[0])
        return made_of([-x if question(x.shape[0]) else x], [x], types)

    return make


def guarded(n):
    try:
        return int(n) == 1
    except TypeError:
        return False


@pytest.mark.parametrize(
    "question", [guarded, lambda n: n == np.int64(1), lambda n: isinstance(n, int) and n == 1]
)
def test_a_question_that_is_not_written_down_refuses_the_recipe(question):
    assert learnt(asks(question), 5, 7).find((1,)) is None
    learnt(asks(question), 5, 7, 4, 1)


def test_no_cache_keeps_what_is_open():
    def make(types):
        x = variable("x", types[0])
        zeros = F._full(shape=(x.shape[0], 3), value=0.0, dtype="float32")
        return made_of([F.broadcast_add(F.expand_dims(x, axis=1), zeros)], [x], types)

    assert learnt(make, 5, 7).find((9,)) is not None
    kept = [dict(a) for op in set(REGISTRY.values()) for a in op.attributes.values()]
    assert not [
        a
        for a in kept
        for v in a.values()
        if any(map(is_size, (v if isinstance(v, tuple) else [v])))
    ]
