"""Native kernels of layers (convolutions, matrix products, activations, recurrent networks), and
kernels on the lane, where they use threads."""

import numpy as np
import pytest
from native_calls import (
    check,
    compare,
    complete,
    expected,
    normal,
    on_lane,
    random_call,
    run_native,
    types_of,
)
from plait.kernels.plan import infer
from plait.kernels.record import FLOATS, REGISTRY
from plait.kernels.spec import round_to_bfloat16

CONVOLUTIONS = [
    {"x": (2, 3, 9, 8), "f": 5, "kernel": (3, 3), "stride": (2, 1), "pad": (1, 1)},
    {"x": (1, 4, 7, 7), "f": 6, "kernel": (3, 2), "num_group": 2},
    {"x": (2, 4, 11), "f": 4, "kernel": (3,), "dilate": (2,), "pad": (2,)},
    {"x": (1, 2, 5, 6, 7), "f": 3, "kernel": (2, 3, 3), "pad": (0, 1, 1)},
    {"x": (2, 8, 6, 6), "f": 8, "kernel": (3, 3), "pad": (1, 1), "num_group": 8},
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolution(case):
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
def test_products(m, n, k, ta, tb):
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
def test_rnn(mode, layers, bidirectional, steps, batch, inputs, hidden, train):
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


@pytest.mark.parametrize("layout", ["NCW", "NWC", "NCHW", "NHWC", "NCDHW", "NDHWC"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_largest_bytes_of_windows(layout, dtype):
    rng, space = np.random.default_rng(5), len(layout) - 2
    for _ in range(25):
        kernel = tuple(map(int, rng.integers(1, 5, space)))
        size = [int(rng.integers(max(k - 1, 1), 9)) for k in kernel]
        pad = tuple(int(rng.integers(0, k)) for k in kernel)
        shape = (2, *size, 35) if layout[-1] == "C" else (2, 3, *size)
        x = rng.integers(0, 256, shape).astype("uint8").view(dtype)
        stride, convention = (
            tuple(map(int, rng.integers(1, 4, space))),
            rng.choice(["valid", "full"]),
        )
        attrs = {"kernel": kernel, "stride": stride, "pad": pad, "layout": layout}
        attrs["pooling_convention"] = str(convention)
        if all(k <= n + 2 * p for k, n, p in zip(kernel, size, pad)):
            check("Pooling", [x], dtype, pool_type="max", **attrs)
