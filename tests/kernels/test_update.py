"""Updates of optimizers: the loops that are made from references, on large and 16-bit weights."""

import numpy as np
import pytest
import samples
from plait import nd
from plait.engine import cpu
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import infer, make_plan, scalars_of
from plait.kernels.record import REGISTRY, Type
from plait.kernels.reference import run_reference
from plait.kernels.traits import WeightUpdate
from plait.ndarray import functions
from plait.ndarray.launch import launch

NAMES = sorted({op.name for op in REGISTRY.values() if op.has(WeightUpdate)})
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "float16": 2e-3, "bfloat16": 2e-2}


def numbers(a):
    """An array's values, where NumPy has no bfloat16."""
    return a.astype("float32").asnumpy() if a._spec.dtype == "bfloat16" else a.asnumpy()


def grown(shape, n):
    """A sample's shape, so large that threads share the work; single numbers stay."""
    return (*shape[:-1], n) if len(shape) == 2 else shape


def inputs_of(op, sample, attrs, n, dtype):
    """The inputs and their dtypes; of a group with a 32-bit weight the first two are 16-bit."""
    rng = np.random.default_rng(3)
    names = op.input_names(**attrs) if callable(op.input_names) else op.inputs
    arrays = []
    for name, given in zip(names, sample.inputs):
        if samples.kind_of(given) == "normal":
            given = grown(given, n)
        else:
            given = (given[0], grown(given[1], n), *given[2:])
        x, _ = samples.draw(rng, given)
        own = (
            dtype if not name.startswith(("lrs", "wds", "rescale_grad", "r1", "r2")) else "float32"
        )
        if "mp_" in op.name:
            narrow = name.startswith("weight") and "32" not in name or name.startswith("grad")
            own = dtype if narrow else "float32"
        arrays.append(nd.array(x, dtype=own))
    return arrays


@pytest.mark.parametrize("n", [5, 40_001])
@pytest.mark.parametrize("name", NAMES)
def test_native_update_equals_its_reference(name, n):
    op = REGISTRY[name]
    for dtype in ("float16", "bfloat16") if "mp_" in name else ("float32", "float64"):
        if dtype == "float64" and "lamb" in name:
            continue
        for sample in op.samples:
            attrs = op.parse(sample.attrs)
            arrays = inputs_of(op, sample, attrs, n, dtype)
            types = [Type(a.shape, a._spec.dtype) for a in arrays]
            assert CPU.choose(op, types, infer(op, attrs, types), attrs), (name, dtype)
            expected = run_reference(op, attrs, [numbers(a) for a in arrays])
            plan = make_plan(op, attrs, [a._spec for a in arrays], cpu())
            outs = launch(plan, arrays, scalars_of(op, attrs))
            found = [*outs, *(arrays[i] for i in plan.mutated)]
            assert len(found) == len(expected)
            for a, b in zip(found, expected):
                rates = name.startswith("preloaded")  # in float32
                tolerance = max(TOLERANCE[a._spec.dtype], 1e-6 * rates)
                np.testing.assert_allclose(numbers(a), b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_overflowed_gradient_changes_nothing(scale, dtype):
    weight, grad = nd.array([1.0, 2.0], dtype=dtype), nd.array([np.inf, 1.0], dtype=dtype)
    mean, var, wide = nd.array([0.5, 0.5]), nd.array([0.25, 0.25]), nd.array([1.0, 2.0])
    given = [weight, grad, mean, var] + [wide] * (dtype == "float16")
    name = "_mp_adamw_update" if dtype == "float16" else "_adamw_update"
    update = getattr(functions, name)
    new = update(*given, nd.array([scale]), lr=0.1, eta=1.0, wd=0.1)
    assert new.asnumpy().tolist() == [1, 2]
    assert mean.asnumpy().tolist() == [0.5, 0.5] and var.asnumpy().tolist() == [0.25, 0.25]
    assert wide.asnumpy().tolist() == [1, 2]
