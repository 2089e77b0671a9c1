"""Derived from every operator record and sample: results, gradients, edge shapes, aliasing, graphs,
errors."""

import itertools

import numpy as np
import pytest
import samples
from plait import MXNetError, autograd, current_context, nd
from plait.engine.error import DTypeError, OperatorError, ShapeError
from plait.graph.graph import Value, typed_node, variable, verify
from plait.graph.program import lower
from plait.kernels.compose import vjp
from plait.kernels.plan import infer, make_plan, scalars_of
from plait.kernels.record import DTYPES, FLOATS, KIND_TEXT, REGISTRY, mutated_inputs
from plait.kernels.reference import run_reference, store
from plait.kernels.spec import NUMPY_DTYPES, from_bfloat16
from plait.kernels.traits import Eager, Front, LossLayer, Specialised
from plait.ndarray.cached import CachedGraph
from plait.ndarray.invoke import invoke
from plait.ndarray.launch import launch
from plait.ndarray.ndarray import from_memory

device = current_context()  # test_reference_backend.py and tests/gpu/ have others
# an operator with `eager` has a test of its own, fronts have tests/np/test_fronts.py
OPERATORS = sorted(
    {op.name: op for op in REGISTRY.values() if not op.has(Eager) and not op.has(Front)}.items()
)
CASES = [
    pytest.param(op, s, id=f"{name}-{i}")
    for name, op in OPERATORS
    for i, s in enumerate(op.samples)
]
TOLERANCE = {"float64": 1e-11, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
PUBLIC = {name for name, op in OPERATORS if samples.is_public(op)}
PUBLIC_CASES = [c for c in CASES if c.values[0].name in PUBLIC]


# ---- drawing and evaluating ----------------------------------------------------------------------


def draw(rng, given, dtype):
    """(values as float64 or their own dtype, dtype name, differentiable) of a sample's input."""
    x, own = samples.draw(rng, given)
    kind, dtype = samples.kind_of(given), own or dtype
    if kind == "values":
        return (x if dtype in FLOATS else np.nan_to_num(x)), dtype, False
    if kind in ("normal", "uniform") and dtype not in FLOATS:
        x = np.trunc(3 * x)
    return x, dtype, dtype in FLOATS and kind != "ints"


def arrays_of(op, case, dtype, seed=7):
    rng = np.random.default_rng(seed)
    return [draw(rng, given, dtype) for given in case.inputs]


def nd_of(x, dtype):
    if dtype in ("uint8", "uint16", "uint32", "uint64"):
        x = np.abs(x)
    return from_memory(np.asarray(x, np.float64), device, dtype)


def complete(op, attrs, train=False):
    return op.parse(attrs) | ({"train": train} if op.train_aware else {})


def execute(op, attrs, inputs):
    """Every output and the new values of the mutated inputs, as nd computes them."""
    plan = make_plan(op, attrs, [a._spec for a in inputs], device)
    outs = launch(plan, inputs, scalars_of(op, attrs))
    return [*outs, *(inputs[i] for i in plan.mutated)]


def expected(op, attrs, inputs):
    """The reference's results in the inferred dtypes, then the mutated inputs."""
    plan = make_plan(op, attrs, [a._spec for a in inputs], device)
    specs = [*plan.out_specs, *(inputs[i]._spec for i in plan.mutated)]
    results = run_reference(op, attrs, [a.asnumpy() for a in inputs])
    assert len(results) == len(specs), "the reference gives another number of arrays than infer"
    out = []
    for value, s in zip(results, specs):
        assert np.shape(value) == s.shape, "the reference's shape is not the inferred one"
        made = np.zeros(s.shape, NUMPY_DTYPES[s.dtype])
        store(made, value)
        out.append(np.ma.masked_array(made, unspecified(np.asarray(value), made.dtype)))
    return out


def unspecified(value, dtype):
    """Where a float becomes an integer that cannot hold it: C leaves the result open."""
    if value.dtype.kind != "f" or dtype.kind not in "iu":
        return False
    limits = np.iinfo(dtype)
    with np.errstate(invalid="ignore"):
        return ~((value > float(limits.min) - 1) & (value < float(limits.max) + 1))


def wide(a):
    a = a if isinstance(a, np.ndarray) else a.asnumpy()
    return from_bfloat16(a) if a.dtype == NUMPY_DTYPES["bfloat16"] else a


def assert_close(got, want, dtype=None):
    got_dtype = dtype or got._spec.dtype
    g, w = wide(got).astype(np.float64), wide(want).astype(np.float64)
    assert g.shape == w.shape
    g, w = g[~np.ma.getmaskarray(w)], np.ma.compressed(w)
    tolerance = TOLERANCE.get(got_dtype, 0)
    np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


def accepted(op, attrs, inputs):
    """Does the operator take these inputs? A refusal must be an error of the stated form."""
    try:
        infer(op, attrs, [a._spec.type for a in inputs])
    except OperatorError as error:
        assert str(error).splitlines()[0].count(": ") >= 1
        return False
    return True


# ---- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("op, case", CASES)
def test_nd_equals_reference_and_inference(op, case):
    attrs = complete(op, case.attrs, train=True)
    taken = []
    for dtype in FLOATS if op.random or op.mutates else DTYPES:
        inputs = [nd_of(x, d) for x, d, _ in arrays_of(op, case, dtype)]
        if not accepted(op, attrs, inputs):
            continue
        taken.append(dtype)
        types = infer(op, attrs, [a._spec.type for a in inputs])
        if op.random:
            for got, t in zip(execute(op, attrs, inputs), types):
                assert (got.shape, got._spec.dtype) == (tuple(t.shape), t.dtype)
                got.wait_to_read()
            continue
        try:
            want = expected(op, attrs, inputs)
        except (TypeError, OperatorError) as error:
            # NumPy does no arithmetic on bools; whole or wrapped values may be refused
            assert (
                not op.pointwise
                and dtype == "bool"
                or dtype not in FLOATS
                and isinstance(error, OperatorError)
            )
            continue
        got = execute(op, attrs, inputs)
        for g, w, t in itertools.zip_longest(got, want, types):
            assert t is None or (g.shape, g._spec.dtype) == (tuple(t.shape), t.dtype)
            # a 16-bit input is rounded before the operator: its results are compared in that
            # precision
            assert_close(
                g,
                w,
                dtype if dtype in ("float16", "bfloat16") and g._spec.dtype in FLOATS else None,
            )
    assert samples.usual_dtype(op) in taken


# ---- edges: empty, one element, no axes, aliased out= --------------------------------------------


def cut(x, how):
    if how == "empty":
        return x[:0] if x.ndim else x
    if how == "one":
        return x[tuple(slice(1) for _ in x.shape)]
    return x.reshape(-1)[0] if x.size else x


@pytest.mark.parametrize("how", ["empty", "one", "0-d"])
@pytest.mark.parametrize("op, case", [c for c in PUBLIC_CASES if not c.id.startswith("_image_")])
def test_edge_shapes(op, case, how):
    attrs = complete(op, case.attrs)
    inputs = [nd_of(cut(x, how), d) for x, d, _ in arrays_of(op, case, samples.usual_dtype(op))]
    if not accepted(op, attrs, inputs):
        assert not op.pointwise or len(inputs) > 1, (
            "a pointwise operator of one array takes every shape"
        )
        return
    if op.random:
        for out in execute(op, attrs, inputs):
            out.wait_to_read()
        return
    try:
        want = expected(op, attrs, inputs)
    except (OperatorError, IndexError):  # the given indices do not fit the cut array
        return
    for g, w in zip(execute(op, attrs, inputs), want, strict=True):
        assert_close(g, w)


@pytest.mark.parametrize("op, case", CASES)
def test_out_may_be_an_input(op, case):
    attrs = complete(op, case.attrs)
    drawn = arrays_of(op, case, samples.usual_dtype(op))
    inputs = [nd_of(x, d) for x, d, _ in drawn]
    plan = make_plan(op, attrs, [a._spec for a in inputs], device)
    if op.random or plan.n_visible != 1 or plan.mutated:
        return
    want = wide(execute(op, attrs, inputs)[0])
    for i, a in enumerate(inputs):
        if a._spec is not plan.out_spec:
            continue
        fresh = [nd_of(x, d) for x, d, _ in drawn]
        assert invoke(op, fresh, case.attrs, out=fresh[i]) is fresh[i]
        assert_close(fresh[i], want)


@pytest.mark.parametrize(
    "name, op", [(n, o) for n, o in OPERATORS if o.pointwise and len(o.inputs) > 1]
)
def test_broadcasting(name, op):
    rng = np.random.default_rng(3)
    for shapes in (
        ((3, 4), (4,)),
        ((1, 4), (3, 1)),
        ((2, 1, 3), (4, 1)),
        ((), (2, 3)),
        ((5, 0), (1, 1)),
    ):
        inputs = [
            nd_of(rng.uniform(0.3, 2, shapes[i % 2]), samples.usual_dtype(op))
            for i in range(len(op.inputs))
        ]
        attrs = complete(op, op.samples[0].attrs)
        (got,) = execute(op, attrs, inputs)
        assert got.shape == np.broadcast_shapes(*shapes)
        assert_close(got, expected(op, attrs, inputs)[0])


# ---- gradients -----------------------------------------------------------------------------------


class Direction:
    """The function t -> <w, f(x + t u)> of an operator in float64, and its derivatives by autograd
    at t = 0."""

    def __init__(self, op, case):
        rng = np.random.default_rng(11)
        self.op, self.case = op, case
        self.attrs = complete(op, case.attrs, train=True)
        self.drawn = arrays_of(op, case, "float64")
        mutated = mutated_inputs(op, self.attrs, len(self.drawn))
        self.moved = [
            i for i, (_, _, smooth) in enumerate(self.drawn) if smooth and i not in mutated
        ]
        self.u = {i: rng.normal(size=np.shape(self.drawn[i][0])) for i in self.moved}
        for i in self.moved:
            if case.inputs[i][:1] == ("definite",):
                self.u[i] = self.u[i] + np.swapaxes(self.u[i], -1, -2)
        # statistics give no gradient, as in MXNet
        with autograd.train_mode():
            outs = self.outputs([nd_of(x, d) for x, d, _ in self.drawn])
        n = 1 if case.attrs.get("output_mean_var") else len(outs)
        self.w = [
            rng.normal(size=o.shape) if o._spec.dtype == "float64" else None for o in outs[:n]
        ]

    def defined(self) -> bool:
        return bool(self.moved) and any(w is not None for w in self.w)

    def inputs(self, t=0.0):
        arrays = [
            nd_of(x + t * self.u[i] if i in self.u else x, d)
            for i, (x, d, _) in enumerate(self.drawn)
        ]
        for i in self.moved:
            arrays[i].attach_grad()
        return arrays

    def outputs(self, arrays):
        outs = invoke(self.op, arrays, self.case.attrs)
        return outs if isinstance(outs, list) else [outs]

    def weighed(self, arrays):
        pairs = zip(self.outputs(arrays), self.w)
        return [(o, nd_of(w, "float64")) for o, w in pairs if w is not None]

    def recorded(self, arrays):
        """The outputs that depend on inputs, and their weights: a front may give constants."""
        pairs = [(o, w) for o, w in self.weighed(arrays) if o._tape is not None]
        return [o for o, _ in pairs], [w for _, w in pairs]

    def value(self, t):
        with autograd.train_mode():
            return sum(float((wide(o) * wide(w)).sum()) for o, w in self.weighed(self.inputs(t)))

    def backward(self):
        """d value / dt by the backward program."""
        arrays = self.inputs()
        with autograd.record():
            heads, weights = self.recorded(arrays)
        if heads:
            autograd.backward(heads, weights)
        return self.along([arrays[i].grad for i in self.moved])

    def along(self, grads):
        return sum(
            float((wide(g) * self.u[i]).sum()) for g, i in zip(grads, self.moved) if g is not None
        )

    def slope(self, arrays):
        """d value / dt as an array that can be differentiated again."""
        heads, weights = self.recorded(arrays)
        variables = [arrays[i]._tape for i in self.moved]
        grads = autograd.interpret(heads, weights, variables, create_graph=True)
        parts = [
            (g * nd_of(self.u[i], "float64")).reshape((-1,)).sum()
            for g, i in zip(grads, self.moved)
            if g is not None
        ]
        parts = parts or [nd_of(np.zeros(1), "float64")]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def slope_at(self, t):
        with autograd.record():
            return float(wide(self.slope(self.inputs(t)))[0])

    def curvature(self):
        """d^2 value / dt^2."""
        arrays = self.inputs()
        with autograd.record():
            slope = self.slope(arrays)
        if slope._tape is None:
            return 0.0
        slope.backward()
        return self.along([arrays[i].grad for i in self.moved])


def central(f, h=1e-5):
    return (f(h) - f(-h)) / (2 * h)


@pytest.mark.parametrize("op, case", [c for c in CASES if samples.is_differentiable(c.values[0])])
def test_gradient(op, case):
    d = Direction(op, case)
    if not d.defined():
        return
    want = central(d.value)
    got = d.backward()
    assert got == pytest.approx(want, rel=1e-5, abs=1e-6)
    assert d.slope_at(0.0) == pytest.approx(got, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("op, case", [c for c in CASES if samples.is_differentiable(c.values[0])])
def test_second_gradient(op, case):
    d = Direction(op, case)
    if not d.defined():
        return
    try:
        curvature = d.curvature()
    except MXNetError as error:  # refused, not silently wrong
        assert "no derivative of second order is defined" in str(error)
    else:
        assert curvature == pytest.approx(central(d.slope_at), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "op, case", [c for c in CASES if c.values[0].trait(LossLayer) == LossLayer()]
)
def test_loss_gradient_ignores_what_comes_from_above(op, case):
    grads = []
    for factor in (1.0, 3.0):
        d = Direction(op, case)
        arrays = d.inputs()
        with autograd.record():
            out = invoke(op, arrays, case.attrs)
        out.backward(nd_of(np.full(out.shape, factor), out._spec.dtype))
        grads.append([wide(arrays[i].grad) for i in d.moved])
    for a, b in zip(*grads):
        np.testing.assert_array_equal(a, b)


# ---- nd = sym = hybridized -----------------------------------------------------------------------


def graph_of(op, attrs, inputs):
    variables = [variable(f"x{i}", a._spec.type) for i, a in enumerate(inputs)]
    node = typed_node(op, attrs, variables, op.name)
    return [Value(node, i) for i in range(op.visible(attrs))], variables


@pytest.mark.parametrize("op, case", [c for c in CASES if not c.values[0].random])
def test_graph_equals_nd(op, case):
    attrs = complete(op, case.attrs)
    drawn = arrays_of(op, case, samples.usual_dtype(op))
    inputs = [nd_of(x, d) for x, d, _ in drawn]
    want = execute(op, attrs, [nd_of(x, d) for x, d, _ in drawn])
    outputs, variables = graph_of(op, attrs, inputs)
    verify(outputs)
    program = lower(outputs, variables, device, op.name)
    for got, w in zip(program.run(inputs), want):
        np.testing.assert_array_equal(wide(got), wide(w))


@pytest.mark.parametrize("op, case", [c for c in CASES if samples.is_differentiable(c.values[0])])
def test_hybridized_equals_nd(op, case):
    d = Direction(op, case)
    if not d.defined():
        return
    outputs, variables = graph_of(op, d.attrs, d.inputs())
    hybrid = CachedGraph(outputs, variables, op.name)
    arrays = d.inputs()
    with autograd.record():
        outs = hybrid(arrays)
    plain = d.inputs()
    with autograd.record():
        pairs = d.weighed(plain)
    kept = [o for o, w in zip(outs, d.w) if w is not None]
    for got, (want, _) in zip(kept, pairs, strict=True):
        np.testing.assert_array_equal(wide(got), wide(want))
    autograd.backward(kept, [w for _, w in pairs])
    autograd.backward([o for o, _ in pairs], [w for _, w in pairs])
    for i in d.moved:
        np.testing.assert_allclose(
            wide(arrays[i].grad), wide(plain[i].grad), rtol=1e-12, atol=1e-12
        )


# ---- wrong calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name, op", [(n, o) for n, o in OPERATORS if o.samples])
def test_wrong_calls_are_refused(name, op):
    case = op.samples[0]
    inputs = [nd_of(x, d) for x, d, _ in arrays_of(op, case, samples.usual_dtype(op))]
    if op.params:  # without parameters it ignores them
        with pytest.raises(OperatorError, match="has no parameter 'no_such_parameter'"):
            invoke(op, inputs, {**case.attrs, "no_such_parameter": 1})
    else:
        invoke(op, inputs, {"no_such_parameter": 1})
    if not op.variadic:
        with pytest.raises(
            OperatorError,
            match=rf"needs {len(op.names_in(complete(op, case.attrs), len(inputs)))} inputs",
        ):
            invoke(op, [*inputs, nd_of(np.ones(1), "float32")], case.attrs)
    for p in op.params:
        if isinstance(p.kind, tuple):
            with pytest.raises(OperatorError, match=f"{p.name} must be one of"):
                invoke(op, inputs, {**case.attrs, p.name: "no such value"})
        elif p.kind.rstrip("?") in ("int", "float", "shape", "bool"):
            kind = p.kind.rstrip("?")
            with pytest.raises(
                OperatorError, match=f"{p.name} must be {KIND_TEXT.get(kind, kind)}"
            ):
                invoke(op, inputs, {**case.attrs, p.name: "no such value"})


@pytest.mark.parametrize(
    "name, op", [(n, o) for n, o in OPERATORS if o.pointwise and len(o.inputs) > 1]
)
def test_shapes_and_dtypes_that_do_not_fit(name, op):
    attrs = op.samples[0].attrs
    good = nd_of(np.ones((2, 3)), samples.usual_dtype(op))
    with pytest.raises(ShapeError, match=r"shapes must be equal or broadcast.*\(2, 3\)"):
        invoke(
            op,
            [good] * (len(op.inputs) - 1) + [nd_of(np.ones((4, 5)), samples.usual_dtype(op))],
            attrs,
        )
    with pytest.raises(
        DTypeError, match=r"dtypes must be equal, got .* (float|int)32 and .* int64"
    ):
        invoke(op, [good] * (len(op.inputs) - 1) + [nd_of(np.ones((2, 3)), "int64")], attrs)


STRANGE = ((), (0,), (1,), (3,), (2, 0), (2, 3, 4, 5, 6))


@pytest.mark.parametrize(
    "op, case",
    [
        c
        for c in PUBLIC_CASES
        if c.values[1] is c.values[0].samples[0] and not c.id.startswith("_image_")
    ],
)
def test_strange_shapes_are_refused_or_right(op, case):
    """Whatever shapes come, inference refuses them in our form or the reference agrees with it."""
    attrs = complete(op, case.attrs)
    n = len(case.inputs)
    for shapes in {(s,) * n for s in STRANGE} | {
        (*(s,) * (n - 1), t) for s, t in itertools.product(STRANGE[2:], STRANGE)
    }:
        inputs = [nd_of(np.ones(s), samples.usual_dtype(op)) for s in shapes]
        if n and accepted(op, attrs, inputs) and not op.random:
            try:
                expected(op, attrs, inputs)
            except MXNetError:
                pass  # refused by its values, e.g. indices


def test_records_are_documented_and_sampled():
    for name, op in OPERATORS:
        assert op.doc.strip().endswith((".", ")")), f"{name}: its doc must be sentences"
        assert op.samples or op.has(Specialised), f"{name}: has no sample"


@pytest.mark.parametrize("way", ["interpreted", "compiled", "composed"])
def test_gradients_have_the_shape_and_dtype_of_their_input(way, monkeypatch):
    """Whoever asks a record for them: each way used to check something else."""

    def gradient():
        x = nd.ones((3, 17))
        if way == "composed":
            return vjp(nd, lambda F, x: F.arcsinh(x), [x], [x])[0]
        x.attach_grad()
        with autograd.record():
            y = nd.arcsinh(x)
        return autograd.grad(y, [x], create_graph=way == "interpreted")[0]

    op = REGISTRY["arcsinh"]
    monkeypatch.setattr(op, "grad", lambda F, dys, xs, ys: [F.cast(dys[0], dtype="float64")])
    assert gradient().dtype == np.float32
    op.gradients.clear()
    monkeypatch.setattr(op, "grad", lambda F, dys, xs, ys: [F.sum(dys[0])])
    with pytest.raises(ShapeError, match=r"arcsinh: its gradient must have its input's shape"):
        gradient()
