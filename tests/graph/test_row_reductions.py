"""Fused row reductions: softmax, norms and losses with their neighbours in one loop over rows give
what the operators give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plait import cpu, nd
from plait.graph.graph import Builder, topological, variable, verify
from plait.graph.passes import row_reductions
from plait.graph.passes.fuse import fuse
from plait.graph.program import lower
from plait.kernels.cpu import jit
from plait.kernels.record import Type, lookup
from plait.kernels.traits import RowForm

F = Builder(train=True)


@pytest.fixture(autouse=True, scope="module")
def small_ones_too():
    with pytest.MonkeyPatch.context() as patch:
        norm = lookup("LayerNorm")
        patch.setitem(norm.kinds, RowForm, norm.kinds[RowForm]._replace(from_size=0))
        patch.setattr(row_reductions, "SHORTEST_WHOLE", 16)
        yield


pytestmark = pytest.mark.skipif(jit.compiler() is None, reason="no C compiler here")


def v(name, *shape, dtype="float32"):
    return variable(name, Type(shape, dtype))


def names(outputs):
    return sorted(n.op.name for n in topological(outputs) if n.op is not None)


def check(outputs, variables, arrays, tolerance=2e-5):
    """Compares fused and unfused results; the fused graph."""
    fused = fuse(outputs, cpu())
    verify(fused)
    found = []
    for graph in (outputs, fused):
        given = [nd.array(a, dtype=x.dtype) for a, x in zip(arrays, variables)]
        found.append([y.asnumpy() for y in lower(graph, variables, cpu(0)).run(given)])
    for want, got in zip(*found, strict=True):
        scale = np.abs(want[np.isfinite(want)]).max(initial=0)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * (1 + scale))
    return fused


def draw(shape, seed, odd=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if odd:
        special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-41], size=shape)
        x = np.where(rng.random(shape) < 0.02, special, x)
    return x.astype("float32")


# ---- the patterns that programs have -------------------------------------------------------------

N = 40
PATTERNS = {
    "softmax of scale and mask": lambda x, m, c: [F.softmax(F.broadcast_add(x * 0.25, m))],
    "log_softmax, scaled": lambda x, m, c: [F.log_softmax(F.tanh(x)) * 2.0],
    "layer norm of a sum": lambda x, m, c: layer_norm(x + m, c),
    "its gradients' rows": lambda x, m, c: [F._softmax_grad(x * 2.0, m) + m],
    "log gradient": lambda x, m, c: [F._log_softmax_grad(x * 2.0, m)],
    "rms": lambda x, m, c: [
        F.broadcast_mul(
            F.broadcast_mul(x, F.rsqrt(F.mean(F.square(x), axis=-1, keepdims=True) + 1e-5)), c
        )
    ],
    "entropy": lambda x, m, c: [F.sum(F.softmax(x * 2.0) * F.log_softmax(x * 2.0), axis=-1)],
    "normalised twice": lambda x, m, c: [F.softmax(F.log_softmax(x + m) * 3.0) + m],
    "a number kept": lambda x, m, c: [
        F.broadcast_sub(x, top := F.max(x * 2.0, axis=-1, keepdims=True)),
        F.reshape_to(top, shape=(6, 5)),
    ],
}


def layer_norm(x, c):
    y, mean, std = F.apply(
        lookup("LayerNorm"), [x, c, F.negative(c)], {"axis": -1, "output_mean_var": True}
    )
    return [y * 2.0, x, mean, std]


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name, odd):
    variables = [v("x", 6, 5, N), v("m", 6, 5, N), v("c", N)]
    outputs = PATTERNS[name](*variables)
    arrays = [draw(x.shape, i, odd) for i, x in enumerate(variables)]
    left = names(check(outputs, variables, arrays))
    left = [n for n in left if n != "reshape_to"]
    assert left == ["_fused"] or left == ["_fused", "negative"], left


@pytest.mark.parametrize("mask", [(1, 5, N), (6, 1, 1), (6, 1, N), (5, 1), (1,)])
def test_masks_broadcast(mask):
    x, m = v("x", 6, 5, N), v("m", *mask)
    outputs = [F.softmax(F.broadcast_add(x, m) * 0.5)]
    assert names(check(outputs, [x, m], [draw(x.shape, 0), draw(mask, 1)])) == ["_fused"]


def test_rows_without_a_key_are_nan():
    x, m = v("x", 4, 3, 20), v("m", 4, 3, 20)
    mask = np.zeros(m.shape, "float32")
    mask[1, 2] = -np.inf
    mask[0, 0, 3] = np.inf
    fused = check([F.softmax(F.broadcast_add(x, m))], [x, m], [draw(x.shape, 0), mask])
    assert names(fused) == ["_fused"]


def test_unsupported_row_reductions_are_not_fused():
    short, wide, other = v("s", 4, 3), v("w", 8, 40, dtype="float64"), v("o", 40, 8)
    for outputs in (
        [F.softmax(short * 2.0)],
        [F.softmax(wide * 2.0)],
        [F.softmax(other * 2.0, axis=0)],
    ):
        assert "softmax" in names(fuse(outputs, cpu()))
    x = v("x", 8, 40)
    assert names(fuse([F.softmax(x)], cpu())) == ["softmax"]  # the kernel of its own
    between = F.Convolution(F.reshape_to(x, shape=(8, 1, 40)), v("k", 1, 1, 1), num_filter=1,
                            kernel=(1,), no_bias=True)  # fmt: skip
    assert "softmax" in names(fuse([F.softmax(F.reshape_to(between, shape=(8, 40)))], cpu()))


def test_as_many_rows_as_columns():
    """A number for each row is not one for each column, and an output never lies over one."""
    x, c = v("x", 20, 20), v("c", 20)
    s = F.sum(F.exp(x), axis=-1)
    outputs = [F.broadcast_mul(F.exp(x), s), s, F.broadcast_add(F.softmax(x * c), F.log(s))]
    check(outputs, [x, c], [draw(x.shape, 0), draw(c.shape, 1)])
    y = F.softmax(F.broadcast_mul(x, c))
    check([y, F.max(y, axis=-1)], [x, c], [draw(x.shape, 0), draw(c.shape, 1)])


# ---- random graphs -------------------------------------------------------------------------------

SHAPE = (3, 4, 17)
UNARY = ("tanh", "negative", "relu", "sigmoid", "square")
ROWS = ("softmax", "log_softmax", "LayerNorm", "mean", "max", "min", "sum")


@st.composite
def graphs(draw):
    pick = lambda xs: draw(st.sampled_from(list(xs)))
    shapes = [SHAPE, SHAPE, (17,), (3, 1, 17), (3, 4, 1), (12, 17)]
    variables = [v(f"x{i}", *s) for i, s in enumerate(shapes)]
    full, single = variables[:2], [variables[4]]
    for _ in range(draw(st.integers(3, 18))):
        x, kind = pick(full[-5:]), draw(st.integers(0, 8))
        if kind <= 1:
            full.append(getattr(F, pick(UNARY))(x))
        elif kind == 2:
            full.append(F.broadcast_add(x, pick([*full, *single, *variables[2:5]])))
        elif kind == 3:
            full.append(F.broadcast_mul(x, pick([*full, *single])))
        elif kind == 4:
            full.append(F._mul_scalar(x, scalar=pick((0.5, -1.5))))
        elif kind <= 6:
            op = pick(ROWS)
            if op == "LayerNorm":
                full.append(F.LayerNorm(x, variables[2], variables[2], axis=-1, eps=1e-2))
            elif "softmax" in op:
                full.append(getattr(F, op)(x, axis=-1))
            else:
                single.append(getattr(F, op)(x, axis=(2,), keepdims=True))
        elif kind == 7:
            single.append(getattr(F, pick(("sigmoid", "square", "negative")))(pick(single)))
        else:
            flat = F.broadcast_add(F.reshape_to(x, shape=(12, 17)), variables[5])
            full.append(F.reshape_to(flat, shape=SHAPE))
    outputs = [full[-1], *draw(st.lists(st.sampled_from([*full, *single]), max_size=3))]
    return outputs, variables


@settings(max_examples=25)
@given(graphs(), st.integers(0, 99))
def test_random_graphs(graph, seed):
    outputs, variables = graph
    arrays = [draw(x.shape, seed + i) for i, x in enumerate(variables)]
    check(outputs, variables, arrays, 3e-4)
