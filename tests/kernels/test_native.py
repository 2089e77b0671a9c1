"""Every native kernel against its operator's reference: samples, dtypes, odd sizes, broadcasting,
aliasing."""

import numpy as np
import plait.kernels.cpu.onednn
import plait.kernels.ops
import pytest
import samples
from plait.engine import callback, cpu, ffi, lib, wait
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import infer, make_plan, scalars_of
from plait.kernels.record import FLOATS, REGISTRY, Type, mutated_inputs
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


def run_native(op, arrays, dtypes, attrs, alias=None):
    """The native kernel's outputs and mutated inputs, or None where the table has no kernel."""
    ins = types_of(arrays, dtypes)
    outs = infer(op, attrs, ins)
    found = CPU.choose(op, ins, outs, attrs)
    if found is None:
        return None, outs
    params = ffi.new(found.params[0] + " *", found.params[1]) if found.params else ffi.NULL
    arrays = [np.array(a) for a in arrays]
    results = [
        (
            arrays[alias]
            if i == 0 and alias is not None
            else np.full(t.shape, 77).astype(NUMPY_DTYPES[t.dtype])
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
    dtypes = [
        (
            next(d for d, n in NUMPY_DTYPES.items() if n == a.dtype)
            if a.dtype != NUMPY_DTYPES[dtype]
            else dtype
        )
        for a in arrays
    ]
    attrs = complete(op, case.attrs)
    try:
        got, outs = run_native(op, arrays, dtypes, attrs)
        want = expected(op, arrays, attrs, outs)
    except (plait.engine.error.MXNetError, OverflowError, TypeError):
        # a dtype that the operator or its reference refuses
        return
    if got is not None:
        compare(op, got, want, dtype)


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


def test_table_names_are_operators():
    assert {
        name for name in CPU.entries if REGISTRY.get(name) is None or REGISTRY[name].name != name
    } == set()


@pytest.mark.parametrize(
    "shapes",
    [
        ((5,), (5,)),
        ((1,), (7,)),
        ((3, 1), (1, 4)),
        ((2, 3, 130), (130,)),
        ((2, 3, 5), (5,)),
        ((2, 3, 5), (3, 1)),
        ((4, 1, 6), (1, 5, 1)),
        ((300, 3), (3,)),
        ((300, 3), (300, 1)),
        ((2, 200), (2, 1)),
        ((2, 3, 4, 5), (2, 1, 4, 1)),
        ((0, 4), (1, 4)),
        ((), (3,)),
        ((), ()),
        ((2, 1, 2, 1, 2, 1, 2), (1, 3, 1, 3, 1, 3, 1)),
        ((1025,), (1,)),
        ((2000, 5), (5,)),
        ((3, 400, 8), (3, 1, 8)),  # a short row for many rows
        ((70, 5, 3), (70, 1, 3)),
        ((4, 200, 3), (4, 1, 3)),
        ((2, 3, 150, 7), (1, 3, 1, 7)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "uint8"])
def test_broadcast(shapes, dtype):
    arrays = [
        (normal(*s) * 5).astype(np.int64 if dtype == "uint8" else dtype).astype(dtype)
        for s in shapes
    ]
    for name in (
        "broadcast_add",
        "broadcast_maximum",
        "broadcast_mod" if dtype != "float16" else "broadcast_mul",
    ):
        check(name, arrays, dtype)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000, 1024, 1025, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_in_place(n, dtype):
    arrays = [normal(n, dtype=dtype), normal(n, dtype=dtype)]
    check("elemwise_sub", arrays, dtype, alias=0)
    check("elemwise_sub", arrays, dtype, alias=1)
    check("exp", arrays[:1], dtype, alias=0)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64", "bool"])
def test_integer_arithmetic(dtype):
    a, b = (g.reshape(-1).astype(dtype) for g in np.meshgrid(np.arange(-9, 10), np.arange(-9, 10)))
    for name in (
        "elemwise_add",
        "elemwise_mul",
        "elemwise_sub",
        "_maximum",
        "_equal",
        "_lesser",
        "_logical_xor",
    ):
        check(name, [a, b], dtype)
    if dtype != "bool":
        check("elemwise_div", [a, b], dtype)
        check("_mod", [a, b], dtype)
        for scalar in (2.7, -1.0, 0.0, 300.0, float("inf")):
            check("_mod_scalar", [a], dtype, scalar=scalar)
            check("_plus_scalar", [a], dtype, scalar=scalar)


@pytest.mark.parametrize(
    "shape", [(7,), (3, 17), (2, 3, 33), (5, 1, 4), (2, 300, 3), (0, 3), (3, 0)]
)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, -1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reduction(shape, axis, dtype):
    x = normal(*shape, dtype=dtype)
    for name in ("sum", "nansum", "prod", *(("mean", "max", "min") if x.size else ())):
        if len(shape) > 1 or axis != (0, -1):
            check(name, [x], dtype, axis=axis)
    if len(shape) > 1 or axis != (0, -1):
        check("norm", [x], dtype, axis=axis)


def test_nan_in_reductions():
    x = np.array([[1, np.nan, 3], [4, 5, 6], [np.nan, np.nan, 9]], np.float32)
    for name in ("max", "min", "nansum", "sum", "argmax", "argmin"):
        for axis in (0, 1):
            check(name, [x], axis=axis)


@pytest.mark.parametrize(
    "shape, axis", [((4, 1000), -1), ((3, 17), 0), ((2, 5, 70), 1), ((6, 1), -1), ((0, 3), -1)]
)
def test_softmax(shape, axis):
    x = normal(*shape) * 20
    for name in ("softmax", "log_softmax", "softmin"):
        check(name, [x], axis=axis, temperature=1.5)
    for name in ("_softmax_grad", "_log_softmax_grad"):
        check(name, [normal(*shape), normal(*shape)], axis=axis)


@pytest.mark.parametrize(
    "shape, axes",
    [
        ((33, 70), (1, 0)),
        ((2, 19, 35), (0, 2, 1)),
        ((3, 4, 5, 6), (3, 1, 0, 2)),
        ((8, 1, 8), (2, 1, 0)),
        ((0, 3), (1, 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "float16"])
def test_transpose(shape, axes, dtype):
    check("transpose", [(normal(*shape) * 9).astype(np.int64).astype(dtype)], dtype, axes=axes)


@pytest.mark.parametrize(
    "shape, axis", [((3, 37), 1), ((2, 300, 5), 1), ((5, 300), 0), ((19,), None)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_cumsum(shape, axis, dtype):
    check("_np_cumsum", [(normal(*shape) * 9).astype(dtype)], dtype, axis=axis)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize(
    "shape, pads",
    [
        ((2, 3, 5, 6), (0, 0, 0, 0, 2, 1, 3, 0)),
        ((2, 5, 4, 3), (0, 0, 1, 2, 0, 2, 0, 0)),
        ((4, 3, 2), (1, 1, 0, 0, 1, 1)),
        ((5,), (4, 0)),
    ],
)
def test_pad(mode, shape, pads):
    x = normal(*shape)
    constant = {"constant_value": 2.5} if mode == "constant" else {}
    check("Pad", [x], mode=mode, pad_width=pads, **constant)
    check("Pad", [x.astype("uint8")], mode=mode, pad_width=pads, **constant)
    if mode != "constant":
        dy = normal(*[n + a + b for n, a, b in zip(shape, pads[::2], pads[1::2])])
        check("_pad_grad", [dy], mode=mode, pad_width=pads, shape=shape)


@pytest.mark.parametrize("is_ascend", [True, False])
def test_topk_passes_blocks_over(is_ascend):
    x = np.round(normal(6, 200) * 4)  # with ties
    x[1, ::3] = np.nan
    x[2, 1:] = np.nan
    x[3, :] = np.inf
    for k in (1, 5):
        attrs = {"k": k, "ret_typ": "both", "is_ascend": is_ascend, "dtype": "int32"}
        check("topk", [x], **attrs)


CONVOLUTIONS = [
    {"x": (2, 3, 9, 8), "f": 5, "kernel": (3, 3), "stride": (2, 1), "pad": (1, 1)},
    {"x": (1, 4, 7, 7), "f": 6, "kernel": (3, 2), "num_group": 2},
    {"x": (2, 4, 11), "f": 4, "kernel": (3,), "dilate": (2,), "pad": (2,)},
    {"x": (1, 2, 5, 6, 7), "f": 3, "kernel": (2, 3, 3), "pad": (0, 1, 1)},
    {"x": (2, 8, 6, 6), "f": 8, "kernel": (3, 3), "pad": (1, 1), "num_group": 8},
]


@pytest.fixture(params=["onednn", "plain"])
def path(request, monkeypatch):
    """Runs a test through oneDNN (where it is installed) and through our own products and
    convolutions."""
    from plait.kernels.cpu import onednn
    from plait.kernels.tables import conv

    if request.param == "onednn" and not onednn.load():
        pytest.skip("oneDNN is not installed")
    plain = request.param == "plain"
    monkeypatch.setattr(conv, "FORCE_PLAIN", plain)
    yield request.param


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(path, case):
    case = dict(case)
    x, f, groups = normal(*case.pop("x")), case.pop("f"), case.get("num_group", 1)
    w = normal(f, x.shape[1] // groups, *case["kernel"])
    op = REGISTRY["Convolution"]
    (out,) = infer(
        op, complete(op, dict(case, num_filter=f, no_bias=True)), types_of([x, w], ["float32"] * 2)
    )
    dy = normal(*out.shape)
    check("Convolution", [x, w, normal(f)], num_filter=f, **case)
    check("_conv_grad_data", [dy, w], data_shape=x.shape, **case)
    check("_conv_grad_weight", [dy, x], weight_shape=w.shape, **case)


@pytest.mark.parametrize(
    "m, n, k",
    [
        (1, 1, 1),
        (5, 1, 3),
        (70, 1, 33),
        (5, 7, 3),
        (6, 16, 8),
        (64, 10, 128),
        (97, 33, 300),
        (3, 0, 4),
        (2, 3, 0),
    ],
)
@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_products(path, m, n, k, ta, tb):
    a, b = normal(*((k, m) if ta else (m, k))), normal(*((n, k) if tb else (k, n)))
    check("dot", [a, b], "float16", transpose_a=ta, transpose_b=tb)
    check(
        "batch_dot",
        [np.stack([a, a + 1]), np.stack([b, b - 1])],
        "float16",
        transpose_a=ta,
        transpose_b=tb,
    )
    if tb and not ta:
        check("FullyConnected", [a, b, normal(n)], "float16", num_hidden=n)


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers(dtype):
    (x,) = random_call("_random_uniform", shape=(200, 101), low=-1.0, high=3.0, dtype=dtype)
    assert x.min() >= -1 and x.max() < 3 and abs(x.mean() - 1) < 0.05
    (z,) = random_call("_random_normal", shape=(200, 101), loc=2.0, scale=3.0, dtype=dtype)
    assert (
        abs(z.mean() - 2) < 0.1
        and abs(z.std() - 3) < 0.1
        and abs(((z - 2) ** 4).mean() / 81 - 3) < 0.3
    )
    (short,) = random_call("_random_uniform", shape=(50,), low=-1.0, high=3.0, dtype=dtype)
    np.testing.assert_array_equal(short, x.reshape(-1)[:50])
    assert not np.array_equal(
        short, random_call("_random_uniform", 4.0, shape=(50,), low=-1.0, high=3.0, dtype=dtype)[0]
    )


@pytest.mark.parametrize(
    "low, high, dtype", [(-3, 7, "int32"), (0, 100_000, "int32"), (-(2**62), 2**62, "int64")]
)
def test_whole_numbers(low, high, dtype):
    (x,) = random_call("_random_randint", shape=(20_000,), low=low, high=high, dtype=dtype)
    x = (x.astype(np.float64) - low) / (high - low)
    assert (
        x.min() >= 0 and x.max() < 1 and abs(x.mean() - 0.5) < 0.06 and abs(x.std() - 0.289) < 0.01
    )
    if high - low == 10:
        assert np.array_equal(np.unique(x), np.arange(10) / 10)


def test_exponential():
    for dtype in ("float32", "float64"):
        (x,) = random_call("_random_exponential", shape=(20_000,), lam=2.0, dtype=dtype)
        assert x.min() >= 0 and abs(x.mean() - 0.5) < 0.02 and abs(x.std() - 0.5) < 0.03


def test_philox_known_answer():
    """The first words of key 0, counter 0 in the paper's known-answer file (Salmon et al. 2011)."""
    (x,) = random_call("_random_uniform", 0.0, 0.0, shape=(4,), dtype="float32")
    words = np.array([0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], np.uint32)
    np.testing.assert_array_equal(x, (words >> 8).astype(np.float32) * np.float32(2.0**-24))


def test_random_numbers_are_those_of_every_machine():
    found = []
    for isa in range(lib.plk_isa_best() + 1):
        lib.plk_isa_set(isa)
        call = {"shape": (301,), "low": -1.0, "high": 3.0, "dtype": "float32"}
        found.append(random_call("_random_uniform", 7.0, 2.0**33 + 5, **call)[0])
    lib.plk_isa_set(lib.plk_isa_best())
    for x in found:
        np.testing.assert_array_equal(x, found[0])


@pytest.mark.parametrize("axes", [(), (1,)])
def test_dropout(axes):
    x = normal(40, 30) + 5
    y, mask = random_call("Dropout", arrays=[x], p=0.3, axes=axes, mode="always")
    np.testing.assert_array_equal(y, x * mask)
    assert (
        set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.7)}
        and 0.4 < (mask > 0).mean() < 0.95
    )


@pytest.mark.parametrize("kind", ["leaky", "elu", "selu", "gelu", "prelu"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_leaky_relu(kind, dtype):
    x = np.linspace(-6, 6, 60).astype(np.float32).reshape(4, 5, 3)
    arrays = [x, np.linspace(0.1, 0.5, 5).astype(np.float32)] if kind == "prelu" else [x]
    arrays = [round_to_bfloat16(a) if dtype == "bfloat16" else a.astype(dtype) for a in arrays]
    op = REGISTRY["LeakyReLU"]
    attrs = complete(op, {"act_type": kind, "slope": 0.3})
    got, outs = run_native(op, arrays, [dtype] * len(arrays), attrs)
    compare(op, got, expected(op, arrays, attrs, outs), dtype)


@pytest.mark.parametrize("mode", ["rnn_relu", "rnn_tanh", "lstm", "gru"])
@pytest.mark.parametrize("layers, bidirectional", [(1, False), (2, True), (3, False)])
@pytest.mark.parametrize(
    "steps, batch, inputs, hidden", [(4, 3, 5, 6), (1, 1, 1, 1), (3, 2, 20, 17)]
)
@pytest.mark.parametrize("train", [True, False])
def test_rnn(path, mode, layers, bidirectional, steps, batch, inputs, hidden, train):
    from plait.kernels.ops.recurrent_cells import layout

    op, grad = REGISTRY["RNN"], REGISTRY["_rnn_grad"]
    attrs = {
        "mode": mode,
        "state_size": hidden,
        "num_layers": layers,
        "bidirectional": bidirectional,
    }
    lay = layout((steps, batch, inputs), projection_size=None, **attrs)
    x, weights = (
        normal(steps, batch, inputs),
        normal(sum(int(np.prod(s)) for s in lay.parameter_shapes())) * 0.3,
    )
    states = [normal(len(lay.cells), batch, hidden) + i for i in range(1 + (mode == "lstm"))]
    full = op.parse(dict(attrs, state_outputs=True)) | {"train": train}
    arrays = [x, weights, *states]
    got, outs = run_native(op, arrays, ["float32"] * len(arrays), full)
    assert got is not None
    want = expected(op, arrays, full, outs)
    compare(op, got, want, "float32")
    if train:
        given = [normal(*a.shape) for a in want[:-1]] + arrays + [want[-1]]
        back = grad.parse({p.name: full[p.name] for p in grad.params})
        got, outs = run_native(grad, given, ["float32"] * len(given), back)
        assert got is not None
        compare(grad, got, expected(grad, given, back, outs), "float16")


def test_rnn_masks():
    """Dropout between layers: the masks in the reserve are zeros and 1 / (1 - p), and the output
    obeys them."""
    op = REGISTRY["RNN"]
    x, weights, state = (
        normal(5, 40, 3),
        normal(30 + 100 + 100 + 100 + 40) * 0.3,
        np.zeros((2, 40, 10), np.float32),
    )
    y, reserve = random_call(
        "RNN", arrays=[x, weights, state], mode="rnn_tanh", state_size=10, num_layers=2, p=0.4
    )
    mask = reserve[: 5 * 40 * 10]
    assert (
        set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.6)}
        and 0.55 < (mask > 0).mean() < 0.65
    )
    plain = run_native(
        op,
        [x, weights, state],
        ["float32"] * 3,
        complete(op, {"mode": "rnn_tanh", "state_size": 10, "num_layers": 2}),
    )[0][0]
    assert y.shape == (5, 40, 10) and not np.array_equal(y, plain)


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


THREADED = [
    ("broadcast_add", [(700, 301), (301,)], {}),
    ("broadcast_mul", [(70000, 3), (70000, 1)], {}),
    ("exp", [(100003,)], {}),
    ("sum", [(300, 1001)], {}),
    ("sum", [(3000, 101)], {"axis": 0}),
    ("max", [(300, 1001)], {"axis": 1}),
    ("sum", [(16, 8, 4096)], {"axis": (0, 2)}),
    ("softmax", [(300, 501)], {}),
    ("softmax", [(20, 300, 50)], {"axis": 1}),
    ("argmax", [(3000, 100)], {"axis": 1}),
    ("transpose", [(700, 801)], {}),
    ("transpose", [(64, 33, 257)], {"axes": (1, 0, 2)}),
    ("LayerNorm", [(700, 301), (301,), (301,)], {}),
    ("GroupNorm", [(16, 8, 3000), (4,), (4,)], {"num_groups": 4}),
    ("Pooling", [(16, 16, 40, 41)], {"kernel": (3, 3), "stride": (2, 2)}),
    ("Concat", [(300, 400), (300, 501)], {"num_args": 2}),
    ("FullyConnected", [(128, 300), (257, 300), (257,)], {"num_hidden": 257}),
    ("batch_dot", [(16, 64, 70), (16, 70, 65)], {}),
    ("slice_axis", [(900, 500)], {"axis": 1, "begin": 3, "end": 498}),
    ("Convolution", [(4, 8, 40, 40), (16, 8, 3, 3), (16,)], {"kernel": (3, 3), "num_filter": 16}),
    (
        "_norm_grad",
        [(700, 301), (700, 301), (1, 301), (700, 1), (700, 1)],
        {"axes": (1,), "eps": 1e-5},
    ),
    (
        "_norm_grad",
        [(16, 8, 3000), (16, 8, 3000), (1, 8, 1), (1, 8, 1), (1, 8, 1)],
        {"axes": (0, 2), "eps": 1e-5},
    ),
]


@pytest.mark.parametrize("name, shapes, attrs", THREADED)
def test_threads(name, shapes, attrs):
    arrays = [normal(*s) for s in shapes]
    got = on_lane(name, arrays, ["float32"] * len(arrays), attrs)
    op = REGISTRY[name]
    full = complete(op, attrs)
    want = expected(op, arrays, full, infer(op, full, types_of(arrays, ["float32"] * len(arrays))))
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(w).max())))


def test_random_numbers_do_not_depend_on_the_batch():
    """Element i is a function of seed, call and i: any part of a stream can be computed alone, so
    by any thread."""
    (whole,) = random_call("_random_uniform", 1.0, 9.0, shape=(300000,), dtype="float32")
    parts = [
        random_call("_random_uniform", 1.0, 9.0, shape=(n,), dtype="float32")[0][-64:]
        for n in (64, 128, 192)
    ]
    np.testing.assert_array_equal(np.concatenate(parts), whole[:192])


def test_random_numbers_on_the_lane():
    """With as many threads as there are, a seed gives the numbers of one thread."""
    lib.pl_seed(11)
    attrs = {"shape": (300, 1001), "low": 0.0, "high": 1.0, "dtype": "float32"}
    (lane,) = on_lane("_random_uniform", [], [], attrs)
    serial = [random_call("_random_uniform", float(call), 11.0, **attrs)[0] for call in range(3)]
    assert any(np.array_equal(lane, s) for s in serial)


# ---- found by test_random_calls.py ---------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax"])
def test_softmax_of_infinities(name, axis):
    """Rows and columns agree: a row of -inf has no softmax, also where other columns stand beside
    it."""
    x = np.array(
        [[-np.inf, 1, np.inf, np.nan], [-np.inf, -np.inf, 2, 3], [-np.inf, 3, 4, 5]], np.float32
    )
    check(name, [x], axis=axis)
    check(name, [x.reshape(3, 2, 2)], axis=axis)


def test_softmax_temperature_zero():
    """Division by zero, as the reference does; the kernel multiplies by the inverse, so it does not
    serve here."""
    op, x = REGISTRY["softmax"], [Type((2, 3))]
    attrs = complete(op, {"temperature": 0.0})
    assert CPU.choose(op, x, infer(op, attrs, x), attrs) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lengths_that_are_not_whole(dtype):
    check(
        "SequenceMask",
        [normal(4, 2, 3), np.array([2.5, 1.0], dtype)],
        use_sequence_length=True,
        value=-1.0,
    )


@pytest.mark.parametrize(
    "shape, axes",
    [((4, 1), (1,)), ((4, 1), (-1,)), ((1, 5), (0, -1)), ((3, 4), ()), ((4, 1, 1), (0, 2))],
)
def test_norm_gradient_of_single_elements(shape, axes):
    """gamma has one element here, which is not one for each of the four rows."""
    op, at = REGISTRY["_norm_grad"], {a % len(shape) for a in axes or range(len(shape))}
    stats = [1 if a in at else n for a, n in enumerate(shape)]
    gamma = [n if a == len(shape) - 1 else 1 for a, n in enumerate(shape)]
    arrays = [normal(*shape), normal(*shape), normal(*gamma), normal(*stats), abs(normal(*stats))]
    attrs = complete(op, {"axes": axes, "eps": 1e-3})
    got, outs = run_native(op, arrays, ["float32"] * 5, attrs)
    if got is not None:
        compare(op, got, expected(op, arrays, attrs, outs), "float32")


def test_layer_norm_over_one_element():
    """The gradient reached beyond gamma: a row's only element is not a channel."""
    op = REGISTRY["_norm_grad"]
    x, gamma, stats = Type((4, 1)), Type((1, 1)), Type((4, 1))
    attrs = complete(op, {"axes": (1,), "eps": 1e-5})
    found = CPU.choose(
        op, [x, x, gamma, stats, stats], infer(op, attrs, [x, x, gamma, stats, stats]), attrs
    )
    assert found is not None and found.params[1].get("channels") is None


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_cast_of_what_an_integer_cannot_hold(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 6e4, -1.5] * 5, dtype)
    op = REGISTRY["Cast"]
    attrs = op.parse({"dtype": "int32"})
    got, outs = run_native(op, [x], [dtype], attrs)
    compare(op, got, expected(op, [x], attrs, outs), "int32")


# kernels trust shapes, so inference must refuse these: a graph read from a file may hold them
WRONG_SHAPES = [
    ("_take_grad", [(2, 5), (2,)], {"shape": (3, 4)}),
    ("_pick_grad", [(7,), (3,)], {"shape": (3, 4)}),
    ("_pick_grad", [(3,), (7,)], {"shape": (3, 4)}),
    ("_softmax_grad", [(3, 4), (3, 4)], {"axis": 2}),
    ("_norm_grad", [(4, 3), (4, 3), (1, 3), (1, 1), (4, 1)], {"axes": (1,), "eps": 1e-5}),
    ("_norm_grad", [(4, 3), (4, 3), (1, 2), (4, 1), (4, 1)], {"axes": (1,), "eps": 1e-5}),
    ("_norm_grad", [(1, 3), (4, 3), (1, 3), (4, 1), (4, 1)], {"axes": (1,), "eps": 1e-5}),
    ("_conv_grad_data", [(2, 4, 3), (4, 3, 3)], {"kernel": (3,), "data_shape": (2, 2, 5)}),
    ("_conv_grad_weight", [(3, 4, 3), (2, 2, 5)], {"kernel": (3,), "weight_shape": (4, 2, 3)}),
    (
        "_pool_grad",
        [(1, 2, 3, 2), (1, 1, 6, 5)],
        {"kernel": (2, 2), "stride": (2, 2), "data_shape": (1, 2, 6, 5)},
    ),
    (
        "_rnn_grad",
        [(3, 2, 5), (1, 2, 4), (3, 2, 6), (48,), (1, 2, 4), (0,)],
        {"mode": "rnn_tanh", "state_size": 4, "num_layers": 1},
    ),
    (
        "_rnn_grad",
        [(3, 2, 4), (1, 2, 4), (3, 2, 6), (48,), (1, 2, 4), (3,)],
        {"mode": "rnn_tanh", "state_size": 4, "num_layers": 1},
    ),
    ("preloaded_multi_sgd_update", [(3,), (3,), (2,), (2,), (1,), (2,)], {"num_weights": 2}),
    ("broadcast_to", [(1, 3)], {"shape": (-1, 3)}),
    (
        "Deconvolution",
        [(1, 2, 5, 5), (2, 1, 3, 3)],
        {"kernel": (3, 3), "num_filter": 1, "target_shape": (2, -2)},
    ),
]


@pytest.mark.parametrize("name, shapes, attrs", WRONG_SHAPES)
def test_shapes_that_do_not_belong_together(name, shapes, attrs):
    op = REGISTRY[name]
    with pytest.raises(plait.engine.error.ShapeError):
        infer(op, complete(op, attrs), [Type(s) for s in shapes])


@pytest.mark.parametrize(
    "name, shapes, attrs",
    [
        ("khatri_rao", [(9, 7), (2, 7)], {"num_args": 2}),
        (
            "Convolution",
            [(1, 5, 9, 9), (4, 5, 3, 3)],
            {"kernel": (3, 3), "num_filter": 4, "no_bias": True},
        ),
    ],
)
def test_what_a_plan_owns_goes_with_it(name, shapes, attrs):
    """What a reference kernel needs, and a oneDNN primitive, are released with the plan."""
    if name == "Convolution" and not plait.kernels.cpu.onednn.load():
        pytest.skip("oneDNN is not installed")
    op = REGISTRY[name]
    op.plans.clear()
    before = set(callback._objects)
    plan = make_plan(op, op.parse(attrs), [spec(s, "float32", cpu()) for s in shapes], cpu())
    assert len(set(callback._objects) - before) == 1
    op.plans.clear()
    del plan
    assert not set(callback._objects) - before
