"""Every native kernel against its operator's reference: samples, dtypes, odd sizes, broadcasting, aliasing."""
import numpy as np
import pytest

import plait.kernels.cpu
import plait.kernels.ops
from plait.engine import ffi, lib
from plait.kernels.native import TABLE, choose
from plait.kernels.plan import infer, mutated_inputs, run_reference, scalars_of, store
from plait.kernels.record import FLOATS, REGISTRY, Type
from plait.kernels.spec import NUMPY_DTYPES, from_bfloat16, round_to_bfloat16

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "float16": 4e-3, "bfloat16": 3e-2}
NAMES = sorted(TABLE)


def draw(rng, spec, dtype):
    """A sample's input as an array of dtype (whole numbers and given values keep theirs where they must)."""
    kind = spec[0] if spec and isinstance(spec[0], str) else "normal"
    if kind == "uniform":
        x = rng.uniform(spec[2], spec[3], spec[1])
    elif kind == "ints":
        x = rng.integers(spec[2], spec[3], spec[1])
    elif kind == "values":
        x = np.array(spec[1])
        dtype = spec[2] if spec[2] != "float32" else dtype
    else:
        x = rng.normal(size=spec)
    x = np.asarray(x) * (3 if dtype in ("uint8", "int8", "int32", "int64") and kind != "ints" else 1)
    if dtype == "bfloat16":
        return round_to_bfloat16(np.asarray(x, np.float32))
    with np.errstate(invalid="ignore"):           # NaN as an integer: any value will do
        return np.array(x.astype(np.int64) if dtype == "uint8" else x).astype(NUMPY_DTYPES[dtype])


def types_of(arrays, dtypes):
    return [Type(a.shape, d) for a, d in zip(arrays, dtypes)]


def complete(op, attrs):
    attrs = op.parse(attrs)
    return attrs | ({"train": True} if op.train_aware else {})


def run_native(op, arrays, dtypes, attrs, alias=None):
    """The native kernel's outputs and mutated inputs, or None where the table has no kernel."""
    ins = types_of(arrays, dtypes)
    outs = infer(op, attrs, ins)
    found = choose(op, ins, outs, attrs)
    if found is None:
        return None, outs
    params = found.setup(ffi, lib) if found.setup else ffi.new(found.params[0] + " *", found.params[1]) \
        if found.params else ffi.NULL
    arrays = [np.array(a) for a in arrays]
    results = [arrays[alias] if i == 0 and alias is not None else
               np.full(t.shape, 77).astype(NUMPY_DTYPES[t.dtype]) for i, t in enumerate(outs)]
    bufs = ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in [*arrays, *results]] or 1)
    scalars = ffi.new("double[]", [*scalars_of(op, attrs), 5.0, 3.0])
    assert getattr(lib, found.function)(params, bufs, scalars) == lib.PL_OK, ffi.string(lib.pl_error_last())
    return results + [arrays[i] for i in mutated_inputs(op, attrs, len(ins))], outs


def expected(op, arrays, attrs, outs):
    results = run_reference(op, attrs, arrays)
    dtypes = [t.dtype for t in outs]
    out = []
    for i, value in enumerate(results):
        target = np.zeros(np.shape(value), NUMPY_DTYPES[dtypes[i]]) if i < len(dtypes) else None
        if target is None:
            out.append(np.asarray(value))
        else:
            store(target, value)
            out.append(target)
    return out


def widen(a):
    return from_bfloat16(a) if a.dtype == NUMPY_DTYPES["bfloat16"] and a.dtype.kind != "f" else a


def compare(op, got, want, dtype):
    for g, w in zip(got, want, strict=True):
        g, w = widen(g), widen(w)
        assert g.shape == w.shape
        if g.dtype.kind == "f":
            tolerance = max(TOLERANCE.get(dtype, 0), TOLERANCE.get(g.dtype.name, 3e-2))
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=tolerance, atol=tolerance,
                                       err_msg=op.name)
        else:
            np.testing.assert_array_equal(g, w, err_msg=op.name)


def cases():
    for name in NAMES:
        op = REGISTRY[name]
        if op.random:
            continue
        for i, s in enumerate(op.samples):
            for dtype in (*FLOATS, "int32", "uint8", "int8", "int64", "bool"):
                yield pytest.param(op, s, dtype, id=f"{name}-{i}-{dtype}")


@pytest.mark.parametrize("op, case, dtype", list(cases()))
def test_sample(op, case, dtype):
    rng = np.random.default_rng(1)
    arrays = [draw(rng, spec, dtype) for spec in case.inputs]
    dtypes = [next(d for d, n in NUMPY_DTYPES.items() if n == a.dtype) if a.dtype != NUMPY_DTYPES[dtype] else dtype
              for a in arrays]
    attrs = complete(op, case.attrs)
    try:
        got, outs = run_native(op, arrays, dtypes, attrs)
        want = expected(op, arrays, attrs, outs)
    except (plait.engine.error.MXNetError, OverflowError, TypeError):
        return                                    # a dtype that the operator or its reference refuses
    if got is not None:
        compare(op, got, want, dtype)
