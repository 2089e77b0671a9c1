"""Every native kernel against its operator's reference: samples, dtypes, odd sizes, broadcasting,
aliasing."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import plait.engine.error
import pytest
from native_calls import NAMES, check, compare, complete, draw, expected, normal, run_native
from plait.engine import callback, cpu
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import infer, make_plan
from plait.kernels.record import FLOATS, REGISTRY, Type
from plait.kernels.spec import NUMPY_DTYPES, spec


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
    ],
)
def test_what_a_plan_owns_goes_with_it(name, shapes, attrs):
    """What a reference kernel needs is released with the plan."""
    op = REGISTRY[name]
    op.plans.clear()
    before = set(callback._objects)
    plan = make_plan(op, op.parse(attrs), [spec(s, "float32", cpu()) for s in shapes], cpu())
    assert len(set(callback._objects) - before) == 1
    op.plans.clear()
    del plan
    assert not set(callback._objects) - before


@pytest.mark.parametrize(
    "name, shapes, dtypes, attrs",
    [
        (
            "_contrib_int8_dense",
            [(9, 0), (3, 0), (3,), (3,)],
            ["float32", "int8", "float32", "float32"],
            {"num_hidden": 3},
        ),
        ("softmax", [(3, 0)], ["float16"], {}),
        ("_shuffle", [(0, 2)], ["float32"], {}),
    ],
)
def test_scratch_memory_of_no_bytes_is_not_out_of_memory(name, shapes, dtypes, attrs):
    """In a thread that has had no scratch memory yet."""
    op = REGISTRY[name]
    arrays = [np.zeros(s, NUMPY_DTYPES[d]) for s, d in zip(shapes, dtypes)]
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(run_native, op, arrays, dtypes, complete(op, attrs))
        results, _ = call.result()
    assert all((r == 0).all() for r in results)


@pytest.mark.parametrize("starts", [[7], [-1, 2], [0, 2**31 - 1, -(2**31)], [0, 2, 1]])
def test_rows_of_a_sparse_weight_that_are_not_in_order(starts):
    op = REGISTRY["_contrib_sparse_dense"]
    arrays = [
        np.ones((2, 3), "f4"),
        np.ones((2, 1), "f4"),
        np.zeros(2, "i4"),
        np.array(starts, "i4"),
    ]
    attrs = complete(op, {"num_hidden": len(starts) - 1, "no_bias": True})
    for call in (
        lambda: run_native(op, arrays, ["float32", "float32", "int32", "int32"], attrs),
        lambda: expected(op, arrays, attrs, []),
    ):
        with pytest.raises(plait.engine.error.OperatorError, match="not in order"):
            call()
