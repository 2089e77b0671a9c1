"""The derived tests of operator records on gpu(0): results against NumPy, gradients, graphs,
random numbers."""

import os

import numpy as np
import plait as mx
import pytest
import samples
import test_records as derived
from plait import cpu, gpu
from plait.kernels.record import FLOATS
from plait.ndarray.ndarray import from_memory

derived.device = gpu(0)
derived.device.check()
ALL = os.environ.get("GPU_TESTS") == "all"
# an emulated GPU compiles each kernel in a tenth of a second or more
DTYPES = derived.DTYPES if ALL else ("float32", "bfloat16", "int32")
FIRST = [c for c in derived.CASES if c.values[1] is c.values[0].samples[0]]
CASES = derived.CASES if ALL else FIRST
NUMBERED = [pytest.param(k, *c.values, id=c.id) for k, c in enumerate(CASES)]
OTHERS = [c for c in derived.CASES if not any(c is f for f in CASES)][:: 1 if ALL else 4]


def differentiable(cases):
    found = [c for c in cases if samples.is_differentiable(c.values[0])]
    return found if ALL else found[::5]


@pytest.fixture(autouse=True)
def few_dtypes(monkeypatch):
    use(monkeypatch, DTYPES)


def use(monkeypatch, dtypes):
    monkeypatch.setattr(derived, "DTYPES", dtypes)
    monkeypatch.setattr(derived, "FLOATS", tuple(d for d in FLOATS if d in dtypes))


@pytest.mark.parametrize("k, op, case", NUMBERED)
def test_values(k, op, case, monkeypatch):
    if k % (8 if op.pointwise else 3) and not ALL:
        use(monkeypatch, (samples.usual_dtype(op),))
    derived.test_nd_equals_reference_and_inference(op, case)


@pytest.mark.parametrize("op, case", OTHERS)
def test_values_of_other_samples(op, case, monkeypatch):
    use(monkeypatch, (samples.usual_dtype(op),))
    derived.test_nd_equals_reference_and_inference(op, case)


REPEATABLE = [c for c in CASES if not c.values[0].random]


@pytest.mark.parametrize("op, case", differentiable(CASES))
def test_gradient(op, case):
    derived.test_gradient(op, case)


@pytest.mark.parametrize("how", ["empty", "one"])
@pytest.mark.parametrize("op, case", derived.PUBLIC_CASES if ALL else derived.PUBLIC_CASES[::20])
def test_edge_shapes(op, case, how):
    derived.test_edge_shapes(op, case, how)


@pytest.mark.parametrize("op, case", REPEATABLE if ALL else REPEATABLE[::15])
def test_graph(op, case):
    derived.test_graph_equals_nd(op, case)


@pytest.mark.parametrize("op, case", [c for c in derived.CASES if c.values[0].random])
def test_random_numbers_are_those_of_the_cpu(op, case):
    """The same seed gives the same numbers on every device."""
    attrs = derived.complete(op, case.attrs, train=True)
    drawn = derived.arrays_of(op, case, "float32")
    got = []
    for device in (gpu(0), cpu()):
        mx.random.seed(11)
        inputs = [from_memory(np.asarray(x, np.float64), device, d) for x, d, _ in drawn]
        plan = derived.make_plan(op, attrs, [a._spec for a in inputs], device)
        outs = derived.launch(plan, inputs, derived.scalars_of(op, attrs))
        got.append([derived.wide(o) for o in outs])
    # the bits of keys that do not count are not drawn on a CPU, and nobody looks at them
    seen = 2 if op.name == "_attention_dropout" else len(got[0])
    for a, b in zip(got[0][:seen], got[1][:seen], strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
