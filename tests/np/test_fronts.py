"""Derived from every front of mx.np and sample: results and dtypes against the NumPy reference,
graphs, files, gradients of both orders against central differences. Samples make a front join."""

import warnings

import numpy as np
import pytest
import test_records as derived
from plait import autograd, sym
from plait.engine.error import DTypeError, DynamicShape, MXNetError
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY
from plait.kernels.traits import Front
from plait.ndarray.cached import CachedGraph
from plait.ndarray.invoke import invoke
from plait.symbol.symbol import apply

FRONTS = sorted({op.name: op for op in REGISTRY.values() if op.has(Front)}.items())
CASES = [
    pytest.param(op, case, id=f"{name}-{i}")
    for name, op in FRONTS
    for i, case in enumerate(op.samples)
    if not op.random
]
DTYPES = ("float32", "float64", "float16", "int32", "bool")
KINDS = {"u": "i"}  # NumPy's unsigned results are compared by their values only


def arrays_of(op, case, dtype):
    return [derived.nd_of(x, d) for x, d, _ in derived.arrays_of(op, case, dtype)]


def outputs(op, inputs, attrs):
    made = invoke(op, inputs, attrs)
    return made if isinstance(made, list) else [made]


def reference(op, inputs, attrs):
    """NumPy's results, on float32 instead of float16."""
    xs = [derived.wide(a) for a in inputs]
    xs = [x.astype(np.float32) if x.dtype == np.float16 else x for x in xs]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of means of nothing
        made = op.ref(np, *xs, **op.parse(attrs))
    return [np.asarray(m) for m in (made if isinstance(made, (tuple, list)) else [made])]


def kind(dtype):
    found = np.dtype(dtype).kind
    return KINDS.get(found, found)


def compare(op, got, want, dtype):
    assert len(got) == len(want)
    for g, w in zip(got, want):
        assert g.shape == w.shape
        assert kind(g.dtype) == kind(w.dtype), f"{op.name} of {dtype}: {g.dtype}, not {w.dtype}"
        tolerance = max(derived.TOLERANCE.get(t, 0) for t in (dtype, g._spec.dtype, w.dtype.name))
        g, w = derived.wide(g).astype(np.float64), w.astype(np.float64)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op, case", CASES)
def test_front_equals_reference(op, case, dtype):
    """Where NumPy has no answer, or floats alone have a meaning, the front refuses by a DTypeError;
    it never refuses float32. A matrix of whole numbers may be singular."""
    inputs = arrays_of(op, case, dtype)
    try:
        got = outputs(op, inputs, case.attrs)
        [g.wait_to_read() for g in got]
    except DTypeError:
        assert dtype != "float32"
        return
    except MXNetError:
        with pytest.raises(np.linalg.LinAlgError):
            reference(op, inputs, case.attrs)
        return
    want = reference(op, inputs, case.attrs)
    if op.name == "_npi_qr" and len(got) == 2 and is_singular(derived.wide(inputs[0])):
        assert [g.shape for g in got] == [w.shape for w in want]
        got, want = [invoke(REGISTRY["_npi_matmul"], got, {})], [np.matmul(*want)]
    compare(op, got, want, dtype)


def is_singular(a):
    """Then its factors are not unique, and rounding decides their signs."""
    return bool((np.linalg.matrix_rank(a.astype(np.float64)) < min(a.shape[-2:])).any())


@pytest.mark.parametrize("how", ["empty", "one", "0-d"])
@pytest.mark.parametrize("op, case", CASES)
def test_edge_shapes(op, case, how):
    """Arrays without elements, of one, and without axes: what NumPy answers, or a plain error."""
    drawn = derived.arrays_of(op, case, "float32")
    inputs = [derived.nd_of(derived.cut(x, how), d) for x, d, _ in drawn]
    try:
        got = outputs(op, inputs, case.attrs)
        [g.wait_to_read() for g in got]
    except MXNetError as error:
        assert str(error).splitlines()[0].count(": ") >= 1
        return
    compare(op, got, reference(op, inputs, case.attrs), "float32")


def has_graph(op, case):
    """Do types alone say which shapes come out?"""
    inputs = arrays_of(op, case, "float32")
    try:
        infer(op, derived.complete(op, case.attrs), [a._spec.type for a in inputs])
    except DynamicShape:
        return False
    return True


@pytest.mark.parametrize("op, case", CASES)
def test_graph_and_file_equal_eager(op, case):
    """A Symbol, and the one that its JSON text gives, compute what the eager call does."""
    if not has_graph(op, case):
        return
    inputs = arrays_of(op, case, "float32")
    want = outputs(op, inputs, case.attrs)
    variables = [sym.Variable(f"x{i}") for i in range(len(inputs))]
    made = apply(op, op.name, variables, case.attrs)
    text = made.tojson()
    assert f'"{op.name}"' in text
    for graph in (made, sym.load_json(text)):
        args = {f"x{i}": a for i, a in enumerate(inputs)}
        found = graph.bind(derived.device, args, grad_req="null").forward()
        for g, w in zip(found, want, strict=True):
            assert (g.shape, g.dtype) == (w.shape, w.dtype)
            np.testing.assert_allclose(derived.wide(g), derived.wide(w), rtol=1e-5, atol=1e-6)


def direction(op, case):
    found = derived.Direction(op, case)
    return found if found.defined() else None


@pytest.mark.parametrize("op, case", CASES)
def test_gradient(op, case):
    d = direction(op, case)
    if d is None:
        return
    want = derived.central(d.value)
    assert d.backward() == pytest.approx(want, rel=1e-5, abs=1e-6)
    if has_graph(op, case):
        outs, variables = derived.graph_of(op, d.attrs, d.inputs())
        arrays = d.inputs()
        with autograd.record():
            made = CachedGraph(outs, variables, op.name)(arrays)
        pairs = [(o, derived.nd_of(w, "float64")) for o, w in zip(made, d.w) if w is not None]
        autograd.backward(*[list(p) for p in zip(*pairs)])
        got = d.along([arrays[i].grad for i in d.moved])
        assert got == pytest.approx(want, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("op, case", CASES)
def test_second_gradient(op, case):
    d = direction(op, case)
    if d is None:
        return
    assert d.curvature() == pytest.approx(derived.central(d.slope_at), rel=1e-5, abs=1e-6)


def test_fronts_are_documented_and_sampled():
    for name, op in FRONTS:
        assert op.doc.strip().endswith((".", ")")), f"{name}: its doc must be sentences"
        assert op.samples, f"{name}: has no sample"
    assert not [name for name, _ in FRONTS if not name.startswith("_np")]
