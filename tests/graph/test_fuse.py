"""Fusion: fused graphs compute the same, groups hold what they should, cycles and writes are
respected, long graphs take linear time."""

import time

import dags
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import cpu, nd
from plait.graph.graph import Builder, Value, topological, variable, verify
from plait.graph.passes.fuse import fuse
from plait.graph.program import lower
from plait.kernels import backend
from plait.kernels.cpu import jit
from plait.kernels.plan import of_programs
from plait.kernels.record import FLOATS, Type

F = Builder(train=True)
needs_compiler = pytest.mark.skipif(jit.compiler() is None, reason="no C compiler here")
pytestmark = needs_compiler


def x_(*shape, dtype="float32", name="x"):
    return variable(name, Type(shape, dtype))


def names(outputs):
    return sorted(n.op.name for n in topological(outputs) if n.op is not None)


def groups(outputs):
    return [n for n in topological(outputs) if n.op is not None and n.op.name == "_fused"]


# ---- results -------------------------------------------------------------------------------------

SHAPES = (
    (4, 3, 5),
    (4, 3, 1),
    (3, 5),
    (5,),
    (1, 3, 1),
    (4, 1, 5),
    (1,),
    (60,),
    (12, 5),
    (200, 130),
)
DTYPES = ("float32", "float32", "float64", "float16", "bfloat16")
DTYPES += ("int32", "uint8", "bool", "int64", "int8")
UNARY = ("negative", "relu", "square", "abs", "BlockGrad", "sign", "logical_not")
FLOAT_UNARY = ("tanh", "sigmoid", "erf", "sqrt", "exp", "sin", "rint", "log1p")
BINARY = (
    *("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_maximum"),
    *("broadcast_minimum", "broadcast_lesser", "broadcast_div", "broadcast_not_equal"),
)
SCALAR = ("_plus_scalar", "_mul_scalar", "_rminus_scalar", "_maximum_scalar", "_greater_scalar")
REDUCTIONS = ("sum", "mean", "max", "min")


@st.composite
def pointwise_graphs(draw):
    """(outputs, variables): DAGs of pointwise operators over broadcasting arrays of many dtypes,
    views, constants, operators that do not fuse, and reductions that nothing pointwise reads."""
    pick = lambda xs: draw(st.sampled_from(list(xs)))
    variables = [
        variable(f"x{i}", Type(pick(SHAPES), pick(DTYPES))) for i in range(draw(st.integers(1, 4)))
    ]
    values, ends = list(variables), []
    for _ in range(draw(st.integers(2, 25))):
        x = pick(values[-6:] if draw(st.booleans()) else values)
        kind = draw(st.integers(0, 11))
        if kind <= 3:
            fits = [v for v in values if v.dtype == x.dtype and dags._fits(v.shape, x.shape)]
            made = getattr(F, pick(BINARY))(x, pick(fits))
        elif kind <= 5:
            made = getattr(F, pick(UNARY))(x)
        elif kind == 6:
            name = pick(FLOAT_UNARY) if x.dtype in FLOATS else "square"
            made = getattr(F, name)(x)
        elif kind == 7:
            made = getattr(F, pick(SCALAR))(x, scalar=pick((0.0, 1.0, -2.0, 3.0, 0.5)))
        elif kind == 8:
            made = F.Cast(x, dtype=pick(DTYPES))
        elif kind == 9:
            n = int(np.prod(x.shape))
            fits = [s for s in SHAPES if int(np.prod(s)) == n]
            made = F.reshape_to(x, shape=pick(fits or [x.shape]))
        elif kind == 10:
            fits = [v for v in values if v.shape == x.shape and v.dtype == x.dtype]
            y = pick(fits)
            masks = [v for v in values if v.shape == x.shape and v.dtype == "bool"]
            condition = pick(masks) if masks else F._greater_scalar(x, scalar=0.0)
            made = F.where(condition, x, y)
        elif draw(st.booleans()):
            made = F.flip(x, axis=(0,))
        else:
            if x.dtype in ("float32", "float64"):
                axes = draw(st.sets(st.integers(0, len(x.shape) - 1), min_size=1))
                name, keep = pick(REDUCTIONS), draw(st.booleans())
                ends.append(getattr(F, name)(x, axis=tuple(axes), keepdims=keep))
            continue
        values.append(made)
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return [*outputs, *ends], variables


def draw_arrays(variables, seed):
    rng = np.random.default_rng(seed)
    arrays = []
    for v in variables:
        x = rng.normal(size=v.shape) * (1 if v.dtype in FLOATS else 4)
        if v.dtype in FLOATS and seed % 3 == 0:
            odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41], size=v.shape)
            x = np.where(rng.random(v.shape) < 0.2, odd, x)
        with np.errstate(all="ignore"):
            arrays.append(
                nd.array(x.astype("int64" if v.dtype == "uint8" else x.dtype), dtype=v.dtype)
            )
    return arrays


@settings(max_examples=120)
@given(pointwise_graphs(), st.integers(0, 99))
def test_fused_is_unfused(graph, seed):
    outputs, variables = graph
    arrays = draw_arrays(variables, seed)
    want = dags.evaluate(outputs, variables, arrays)
    made = fuse(outputs, cpu())
    verify(made)
    assert [v.type for v in made] == [v.type for v in outputs]
    got = lower(outputs, variables, cpu(), tier=1).run(arrays)
    for v, g, w in zip(outputs, got, want, strict=True):
        assert g.dtype == w.dtype
        if v.dtype == "bfloat16":  # which NumPy has not
            g, w = g.astype("float32"), w.astype("float32")
        g, w = g.asnumpy(), w.asnumpy()
        if v.node.op is not None and v.node.op.name in REDUCTIONS:
            scale = np.abs(w[np.isfinite(w)]).max(initial=1)
            np.testing.assert_allclose(g, w, rtol=2e-6, atol=1e-5 * scale)
        else:  # pointwise: no operation is rounded otherwise
            np.testing.assert_array_equal(g, w)


@settings(max_examples=60)
@given(dags.graphs(random=False), st.integers(0, 99))
def test_other_graphs_keep_their_results(graph, seed):
    outputs, variables = graph
    arrays = dags.draw_arrays(variables, seed)
    want = dags.evaluate(outputs, variables, arrays)
    for g, w in zip(lower(outputs, variables, cpu(), tier=1).run(arrays), want, strict=True):
        w = w.asnumpy()
        scale = np.abs(w[np.isfinite(w)]).max(initial=1e-3)
        np.testing.assert_allclose(g.asnumpy(), w, rtol=1e-5, atol=1e-5 * scale)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_rounded_after_every_operator(dtype):
    """Else a value that one group stores and another computes again would be two numbers."""
    x, y = x_(40, 300, dtype=dtype), x_(300, dtype=dtype, name="y")
    z = F.tanh(x * y + 1.0) * 0.3
    outputs = [z, z * 3.0, F.Cast(z, dtype="float32") * 3.0, F.sum(z, axis=0), F.mean(z, axis=1)]
    assert names(fuse(outputs, cpu())).count("_fused") <= 2
    arrays = draw_arrays([x, y], 1)
    got = lower(outputs, [x, y], cpu(), tier=1).run(arrays)
    want = dags.evaluate(outputs, [x, y], arrays)
    got, want = ([a.astype("float32").asnumpy() for a in arrays] for arrays in (got, want))
    for g, w in zip(got[:3], want[:3], strict=True):
        np.testing.assert_array_equal(g, w)
    for g, w in zip(got[3:], want[3:], strict=True):  # added in another order
        np.testing.assert_allclose(g, w, rtol=1e-3 if dtype == "float16" else 8e-3)


def test_an_explicit_cast_rounds():
    x = x_(7)
    (y,) = lower(
        [F.Cast(F.Cast(x * 1.0, dtype="float16"), dtype="float32") * 2.0], [x], cpu(), tier=1
    ).run([nd.array([1.0001, 1e-9, 70000.0, np.nan, -2.5, 65519.0, 3.0])])
    with np.errstate(over="ignore"):
        want = np.float32([1.0001, 1e-9, 70000.0, np.nan, -2.5, 65519.0, 3.0]).astype("float16")
    np.testing.assert_array_equal(y.asnumpy(), want.astype("float32") * 2)


REDUCED = [
    ((60, 70), (1,), ()),
    ((60, 700), (0,), ()),
    ((5000, 7), (0,), ()),
    ((3, 5000), (1,), ()),
    ((2, 3, 100000), (2,), (1, 3, 1)),
    ((64, 8, 7, 7), (0, 2, 3), (1, 8, 1, 1)),
    ((64, 8, 7, 7), (1,), (8, 1, 1)),
    ((4, 130, 6, 200), (0, 2), (6, 200)),
    ((4, 130, 6, 200), (1, 3), (6, 1)),
    ((300, 300), (0, 1), (300,)),
    ((300, 300), (0, 1), (300, 1)),
    ((1, 1), (0, 1), ()),
    ((9, 1), (1,), ()),
    ((200000, 3), (0,), (3,)),
]


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "prod"])
@pytest.mark.parametrize("shape, axes, other", REDUCED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions(shape, axes, other, kind, dtype):
    x, y = x_(*shape, dtype=dtype), x_(*(other or shape), dtype=dtype, name="y")
    z = F.tanh(x * y) + (1.0 if kind == "prod" else 0.25)
    outputs = [getattr(F, kind)(z, axis=axes), z, F.sum(z * z, axis=axes, keepdims=True)]
    assert names(fuse(outputs, cpu())) == ["_fused"]
    arrays = draw_arrays([x, y], 1)
    want = dags.evaluate(outputs, [x, y], arrays)
    tolerance = 3e-6 if dtype == "float32" else 1e-12
    for g, w in zip(lower(outputs, [x, y], cpu(), tier=1).run(arrays), want, strict=True):
        np.testing.assert_allclose(g.asnumpy(), w.asnumpy(), rtol=tolerance, atol=tolerance * 10)


def test_a_changed_scalar_is_the_same_kernel():
    x = x_(8)
    of_programs.clear()
    for s in (1.5, 2.5):
        lower([F.tanh(x * s) + s], [x], cpu(), tier=1)
        assert [plan.op.name for plan in of_programs.values()] == ["_fused"]


# ---- groups --------------------------------------------------------------------------------------


def test_a_chain_is_one_kernel():
    v = x = x_(32, 32)
    for _ in range(50):
        v = F.relu(v * 1.01 + 0.1)
    assert names(fuse([v], cpu())) == ["_fused"]
    assert len(lower([v], [x], cpu(), tier=1).ops) == 1


def test_a_value_that_others_read_is_an_output():
    x, w = x_(4, 4), x_(4, 4, name="w")
    y = F.tanh(x * 2.0)
    made = fuse([F.relu(y + 1.0), F.dot(y, w)], cpu())
    (group,) = groups(made)
    assert len(group.types) == 2 and names(made) == ["_fused", "dot"]


def test_no_cycle_through_an_operator_that_does_not_fuse():
    x, w = x_(4, 4), x_(4, 4, name="w")
    y = F.tanh(x * 2.0)
    made = fuse([F.relu(y + F.dot(y, w)) * 3.0], cpu())
    assert names(made) == ["_fused", "_fused", "dot"]


def test_bias_gradient_joins_what_it_sums():
    dy, y, w = x_(64, 10), x_(64, 10, name="y"), x_(10, 5, name="w")
    d = dy * F._greater_scalar(y, scalar=0.0)
    made = fuse([F.sum(d, axis=0), F.dot(d, w)], cpu())
    assert names(made) == ["_fused", "dot"]


def test_views_between_and_behind():
    x, y = x_(4, 6), x_(24, name="y")
    flat = F.reshape_to(F.tanh(x), shape=(24,)) * y
    made = fuse([flat, F.reshape_to(flat, shape=(2, 12)), F.flip(flat, axis=(0,))], cpu())
    assert names(made) == ["_fused", "reshape_to", "reverse"]


def test_constants_are_made_inside():
    x = x_(64, 1024)
    made = fuse([F.tanh(x * F._full(shape=(64, 1024), value=3.0)) - F._ones(shape=(1024,))], cpu())
    (group,) = groups(made)
    assert names(made) == ["_fused"] and len(group.inputs) == 1


def test_in_place_operators_are_not_fused():
    m, g = x_(4, name="m"), x_(4, name="g")
    before = F.tanh(m * 2.0)
    written = F.sgd_update(m, g * 2.0 + 1.0, lr=0.1)
    outputs = [before, written, F.tanh(m) * 3.0]
    arrays = draw_arrays([m, g], 1)
    want = [a.asnumpy() for a in dags.evaluate(outputs, [m, g], [a.copy() for a in arrays])]
    assert "sgd_update" in names(fuse(outputs, cpu()))
    for got, w in zip(lower(outputs, [m, g], cpu(), tier=1).run(arrays), want, strict=True):
        np.testing.assert_allclose(got.asnumpy(), w, rtol=1e-6)


def test_groups_that_fail_to_compile_run_unfused(monkeypatch):
    here = backend.of(cpu())
    refuse = here.fusion._replace(prepare=lambda groups, device: [False] * len(groups))
    monkeypatch.setattr(here, "fusion", refuse)
    x = x_(4)
    outputs = [F.tanh(x * 2.0) + 1.0]
    assert names(fuse(outputs, cpu())) == names(outputs)


def test_limits_hold():
    xs = [x_(8, name=f"x{i}") for i in range(60)]
    total = xs[0]
    for x in xs[1:]:
        total = F.tanh(total) * x
    many = [F.tanh(xs[0] * float(k)) for k in range(40)]
    made = fuse([total, *many], cpu())
    for node in groups(made):
        assert len(node.inputs) <= 16 and len(node.types) <= 8


def test_long_graphs_take_linear_time():
    v = x = x_(4)
    for i in range(10_000):
        v = F.relu(v * 1.01 + 0.1) if i % 3 else F.tanh(v + x)
    start = time.thread_time()
    made = fuse([v], cpu())
    assert time.thread_time() - start < 20  # quadratic: many minutes
    assert len(topological(made)) < 700
    assert isinstance(made[0], Value)


def test_shape_only_inputs_are_not_inputs_of_a_group():
    x, like = x_(30, 7), x_(15, 2, 4, name="like")
    view = F.reshape_like(F.square(x), like, lhs_begin=0, lhs_end=1, rhs_begin=0, rhs_end=2)
    outputs = [F.tanh(view * 2)]
    (group,) = groups(fuse(outputs, cpu()))
    assert [v.shape for v in group.inputs] == [(30, 7)]
    arrays = dags.draw_arrays([x, like], 0)
    want = dags.evaluate(outputs, [x, like], arrays)[0].asnumpy()
    got = lower(fuse(outputs, cpu()), [x, like], cpu(), "t").run(arrays)[0].asnumpy()
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
