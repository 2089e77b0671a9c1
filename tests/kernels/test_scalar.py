"""Numbers known only at run time: arithmetic, and every gradient that has dynamic parameters."""

import math

import pytest
from plait.graph.graph import Builder, Value, topological, typed_node, variable
from plait.kernels.plan import open_scalars, scalars_of
from plait.kernels.record import REGISTRY
from plait.kernels.scalar import OpenScalar, UnknownScalar, given, log, value_of

N = (3.0, -0.5, 0.0)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b, c: a + b,
        lambda a, b, c: 2 - a * b + 1,
        lambda a, b, c: -(a - 1) / b,
        lambda a, b, c: 1 / (a * 4) + b / 2,
        lambda a, b, c: 2 * a - c,
    ],
)
def test_arithmetic_is_that_of_floats(f):
    assert value_of(f(*map(given, range(3))), N) == f(*N)


def test_division_and_logarithm_never_raise():
    a, b, zero = (given(k) for k in range(3))
    assert value_of(a / zero, N) == math.inf and value_of(b / zero, N) == -math.inf
    assert math.isnan(value_of(zero / zero, N)) and value_of(log(zero), N) == -math.inf
    assert math.isnan(value_of(log(b), N)) and value_of(log(a), N) == math.log(3)


def test_a_number_is_equal_to_the_same_expression_only():
    assert given(0) * 2 == given(0) * 2 and hash(given(1)) == hash(given(1))
    assert given(0) != given(1) and given(0) != 1.0 and given(0) + 0.0 != given(0) + -0.0
    for use in (float, int, bool, lambda n: n < 1, lambda n: 1 <= n):
        with pytest.raises(UnknownScalar):
            use(given(0))
    with pytest.raises(TypeError):
        given(0) + "a"


def records():
    seen = {id(op): op for op in REGISTRY.values()}.values()
    return [op for op in seen if op.grad and any(p.dynamic for p in op.params) and op.samples]


@pytest.mark.parametrize("op", records(), ids=lambda op: op.name)
def test_gradients_do_not_ask_for_values(op):
    attrs = op.parse(op.samples[0].attrs)
    if op.train_aware:
        attrs["train"] = True
    for i, p in enumerate([p for p in op.params if p.dynamic]):
        before = attrs[p.name]
        attrs[p.name] = (given(i),) * len(before) if isinstance(before, tuple) else given(i)
    shapes = [x if isinstance(x[0], int) else x[1] for x in op.samples[0].inputs]
    if not all(isinstance(n, int) for s in shapes for n in s):
        shapes = [(2, 3)] * len(shapes)
    F = Builder(True)
    xs = [variable(f"x{i}", F._zeros(shape=s).type) for i, s in enumerate(shapes)]
    node = typed_node(op, attrs, xs)
    ys = [Value(node, i) for i in range(len(node.types))]
    grads = [g for g in op.grad(F, ys, xs, ys, **attrs) if g is not None]
    for n in [node, *topological(grads)]:
        if n.op is not None:
            assert all(isinstance(s, float) for s in scalars_of(n.op, n.attrs))
            assert n.has_open_scalars == any(
                isinstance(k, OpenScalar) for k in open_scalars(n.op, n.attrs)
            )
