"""Calls of native kernels and of the references that they must equal."""

import numpy as np
import plait
import samples
from plait.engine import cpu, ffi, lib, wait
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import infer, make_plan, scalars_of
from plait.kernels.record import REGISTRY, Type, mutated_inputs
from plait.kernels.reference import run_reference, store, view_as_numpy
from plait.kernels.spec import NUMPY_DTYPES, from_bfloat16, round_to_bfloat16, spec

TOLERANCE = {"float32": 2e-5, "float64": 1e-11, "float16": 4e-3, "bfloat16": 3e-2}
NAMES = sorted(CPU.entries)


def draw(rng, spec, dtype):
    """A sample's input as an array of dtype (whole numbers and given values keep theirs where they
    must)."""
    x, own = samples.draw(rng, spec)
    dtype = own or dtype
    if dtype in ("uint8", "int8", "int32", "int64"):
        x = x * (3 if samples.kind_of(spec) not in ("ints", "values") else 1)
    if dtype == "bfloat16":
        return round_to_bfloat16(np.asarray(x, np.float32))
    with np.errstate(invalid="ignore"):  # NaN as an integer: any value will do
        return np.array(x.astype(np.int64) if dtype == "uint8" else x).astype(NUMPY_DTYPES[dtype])


def types_of(arrays, dtypes):
    return [Type(a.shape, d) for a, d in zip(arrays, dtypes)]


def complete(op, attrs):
    attrs = op.parse(attrs)
    return attrs | ({"train": True} if op.train_aware else {})


def placed(a):
    """A copy that begins one element into its memory, as a slice of an array does."""
    a = np.asarray(a)
    room = np.empty(a.nbytes + a.itemsize, np.uint8)[a.itemsize :]
    room[:] = np.frombuffer(a.tobytes(), np.uint8)
    return room.view(a.dtype).reshape(a.shape)


def run_native(op, arrays, dtypes, attrs, alias=None):
    """The native kernel's outputs and mutated inputs, or None where the table has no kernel."""
    ins = types_of(arrays, dtypes)
    outs = infer(op, attrs, ins)
    found = CPU.choose(op, ins, outs, attrs)
    if found is None:
        return None, outs
    params = ffi.new(found.params[0] + " *", found.params[1]) if found.params else ffi.NULL
    arrays = [placed(a) for a in arrays]
    results = [
        (
            arrays[alias]
            if i == 0 and alias is not None
            else placed(np.full(t.shape, 77).astype(NUMPY_DTYPES[t.dtype]))
        )
        for i, t in enumerate(outs)
    ]
    bufs = ffi.new(
        "void *[]", [ffi.cast("void *", a.ctypes.data) for a in [*arrays, *results]] or 1
    )
    scalars = ffi.new("double[]", [*scalars_of(op, attrs), 5.0, 3.0])
    status = getattr(lib, found.function)(params, bufs, scalars)
    text = ffi.string(lib.pl_error_message()).decode() if status != lib.PL_OK else ""
    if found.can_fail and status in (lib.PL_EINVAL, lib.PL_EINDEX):
        raise plait.engine.error.OperatorError(op.name, text)
    assert status == lib.PL_OK, text
    return results + [arrays[i] for i in mutated_inputs(op, attrs, len(ins))], outs


def expected(op, arrays, attrs, outs):
    results = run_reference(op, attrs, arrays, np.random.default_rng(0))
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
            np.testing.assert_allclose(
                g.astype(np.float64),
                w.astype(np.float64),
                rtol=tolerance,
                atol=tolerance,
                err_msg=op.name,
            )
        else:
            np.testing.assert_array_equal(g, w, err_msg=op.name)


def check(name, arrays, dtype="float32", alias=None, **attrs):
    """A call must have a native kernel, and that must agree with the reference."""
    op = REGISTRY[name]
    attrs = complete(op, attrs)
    got, outs = run_native(
        op,
        arrays,
        [next(d for d, n in NUMPY_DTYPES.items() if n == a.dtype) for a in arrays],
        attrs,
        alias,
    )
    assert got is not None, f"{name} has no native kernel"
    compare(op, got, expected(op, arrays, attrs, outs), dtype)


def normal(*shape, dtype="float32"):
    return np.random.default_rng(sum(shape) + 7).normal(size=shape).astype(dtype)


def random_call(name, counter=3.0, seed=5.0, arrays=(), **attrs):
    op = REGISTRY[name]
    attrs = complete(op, attrs)
    outs = infer(op, attrs, types_of(arrays, ["float32"] * len(arrays)))
    found = CPU.choose(op, types_of(arrays, ["float32"] * len(arrays)), outs, attrs)
    results = [np.empty(t.shape, t.dtype) for t in outs]
    bufs = ffi.new("void *[]", [ffi.cast("void *", a.ctypes.data) for a in [*arrays, *results]])
    params = ffi.new(found.params[0] + " *", found.params[1])
    assert (
        getattr(lib, found.function)(params, bufs, ffi.new("double[]", [seed, counter]))
        == lib.PL_OK
    )
    return results


def on_lane(name, arrays, dtypes, attrs):
    """Runs a plan on the compute lane, where kernels use threads. Returns the outputs."""
    op = REGISTRY[name]
    attrs = complete(op, attrs)
    plan = make_plan(op, attrs, [spec(a.shape, d, cpu()) for a, d in zip(arrays, dtypes)], cpu())
    handles = [lib.pl_array_new(a.nbytes) for a in arrays]
    for handle, a in zip(handles, arrays):
        ffi.memmove(lib.pl_array_data(handle), ffi.cast("void *", a.ctypes.data), a.nbytes)
    out = ffi.new("uintptr_t[]", plan.n_out)
    scalars = ffi.new("double[]", [*plan.scalars, 0.0, 0.0])
    assert lib.pl_invoke(plan.handle, handles, out, scalars, -1) == lib.PL_OK
    results = []
    for handle, s in zip(out, plan.out_specs):
        wait(handle)
        results.append(view_as_numpy(lib.pl_array_data(handle), s).copy())
    for handle in [*handles, *out]:
        lib.pl_array_free(handle)
    return results
