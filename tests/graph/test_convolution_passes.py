"""Tier 1 of convolution networks: epilogues, Winograd, layouts; always against tier 0."""

import numpy as np
import plait as mx
import pytest
from plait import nd
from plait.graph import passes
from plait.graph.graph import Builder, topological, variable
from plait.graph.program import lower
from plait.kernels.cpu.backend import CPU
from plait.kernels.layouts import parse
from plait.kernels.ops.conv import conv_forward, geometry
from plait.kernels.record import Type
from plait.kernels.tables import conv_fused

F = Builder()


@pytest.fixture(autouse=True)
def verified(monkeypatch):
    monkeypatch.setattr(passes, "checking", True)


def given(**shapes):
    return {name: variable(name, Type(shape)) for name, shape in shapes.items()}


def arrays_of(variables, seed=0):
    rng = np.random.default_rng(seed)
    return {
        k: nd.array((rng.random(v.shape) + (0.5 if k == "var" else -0.5)).astype("f"))
        for k, v in variables.items()
    }


def both(outputs, variables, arrays=None, stable=()):
    """(program of tier 1, its results, the results of tier 0) as NumPy arrays."""
    arrays = arrays or arrays_of(variables)
    ins, values = list(variables.values()), [arrays[k] for k in variables]
    plain = lower(outputs, ins, mx.cpu(), "plain")
    fast = lower(outputs, ins, mx.cpu(), "fast", tier=1, stable=[variables[k] for k in stable])
    get = lambda program: [y.asnumpy() for y in program.run(values)]
    return fast, get(fast), get(plain)


def operators(program):
    return [op.name for op in program.ops]


def kernel_of_conv(outputs, v):
    """The C function that runs the one `_conv` of tier 1."""
    made = passes.compile_passes(outputs, mx.cpu(), stable=[v["w"]])
    (node,) = [n for n in topological(made) if n.op and n.op.name == "_conv"]
    found = CPU.choose(node.op, [x.type for x in node.inputs], node.types, node.attrs)
    return found.function


def assert_same(got, want, tolerance=1e-5):
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * np.abs(w).max())


def choose(monkeypatch, winograd):
    monkeypatch.setattr(conv_fused, "suits_winograd", lambda *_: winograd)


def conv(v, x="x", w="w", **attrs):
    w = v[w]
    kernel = w.shape[1:-1] if (attrs.get("layout") or "").endswith("C") else w.shape[2:]
    return F.Convolution(v[x], w, num_filter=w.shape[0], kernel=kernel, no_bias=True, **attrs)


def normalised(v, y, axis=1):
    stats = [v[k] for k in ("gamma", "beta", "mean", "var")]
    return F.BatchNorm(y, *stats, fix_gamma=False, axis=axis)


def statistics(n):
    return dict.fromkeys(("gamma", "beta", "mean", "var"), (n,))


STABLE = ("w", "gamma", "beta", "mean", "var")
ACTIVATIONS = {
    "relu": lambda y: F.relu(y),
    "relu6": lambda y: F.clip(y, a_min=0.0, a_max=6.0),
    "sigmoid": lambda y: F.Activation(y, act_type="sigmoid"),
    "leaky": lambda y: F.LeakyReLU(y, slope=0.1),
    "hard": lambda y: F.hard_sigmoid(y),
    "none": lambda y: y,
}


@pytest.mark.parametrize("act", ACTIVATIONS)
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("winograd", [False, True])
def test_epilogue(act, norm, add, winograd, monkeypatch):
    choose(monkeypatch, winograd)
    v = given(x=(2, 16, 7, 9), w=(32, 16, 3, 3), a=(2, 32, 7, 9), **statistics(32))
    y = conv(v, pad=(1, 1))
    y = normalised(v, y) if norm else y
    y = ACTIVATIONS[act](y + v["a"] if add else y)
    program, got, want = both([y], v, stable=STABLE)
    assert_same(got, want)
    assert [n for n in operators(program) if n not in ("_reorder", "_zeros")] == ["_conv"]


SHAPES = {
    "first layer": ((1, 3, 20, 17), (16, 3, 7, 7), dict(stride=(2, 2), pad=(3, 3))),
    "one by one": ((2, 32, 5, 6), (16, 32, 1, 1), {}),
    "depthwise": ((1, 32, 9, 8), (32, 1, 3, 3), dict(num_group=32, pad=(1, 1))),
    "grouped": ((1, 32, 6, 6), (64, 16, 3, 3), dict(num_group=2)),
    "small groups": ((1, 12, 6, 6), (24, 3, 3, 3), dict(num_group=4)),
    "dilated": ((1, 16, 9, 9), (16, 16, 3, 3), dict(dilate=(2, 2), pad=(2, 2))),
    "odd channels": ((2, 13, 6, 7), (21, 13, 3, 3), dict(pad=(1, 1))),
    "1-d": ((2, 16, 11), (24, 16, 3), dict(stride=(2,), pad=(1,))),
    "3-d": ((1, 8, 4, 5, 6), (16, 8, 2, 3, 3), dict(pad=(0, 1, 1))),
    "channels last": ((2, 6, 5, 16), (24, 3, 3, 16), dict(layout="NHWC")),
    "channels last, groups": ((2, 6, 5, 16), (16, 3, 3, 1), dict(layout="NHWC", num_group=16)),
}


@pytest.mark.parametrize("case", SHAPES)
def test_geometry(case):
    shape, weight, attrs = SHAPES[case]
    last = "layout" in attrs
    v = given(x=shape, w=weight, **statistics(weight[0]))
    y = F.relu(normalised(v, conv(v, **attrs), axis=len(shape) - 1 if last else 1))
    program, got, want = both([y + y], v, stable=STABLE)
    assert_same(got, want)
    assert "Convolution" not in operators(program) and not program.can_fail


@pytest.mark.parametrize(
    "layout, shape, weight",
    [
        ("NHWC", (2, 6, 5, 19), (21, 1, 1, 19)),
        ("NHWC", (2, 6, 5, 19), (21, 3, 2, 19)),
        ("NCDHW", (2, 19, 3, 4, 5), (21, 19, 1, 1, 1)),
        ("NCDHW", (2, 20, 3, 4, 5), (20, 2, 2, 2, 2)),
        ("NCHW", (2, 6, 9, 9), (21, 6, 3, 3)),
        ("NCHW", (2, 24, 9, 9), (21, 24, 3, 3)),
    ],
)
@pytest.mark.parametrize("act", ["relu", "sigmoid"])
def test_sum_and_activation_of_any_layout(layout, shape, weight, act):
    groups = shape[1] // weight[1] if layout == "NCDHW" else 1
    v = given(x=shape, w=weight)
    y = conv(v, layout=layout, num_group=groups)
    v |= given(a=y.shape)
    program, got, want = both([ACTIVATIONS[act](y + v["a"])], v, stable=("w",))
    assert_same(got, want)
    assert operators(program).count("_conv") == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("winograd", [False, True])
def test_not_finite(value, winograd, monkeypatch):
    """NaN and infinity go exactly where they go without fusion."""
    choose(monkeypatch, winograd)
    v = given(x=(1, 16, 12, 12), w=(16, 16, 3, 3))
    arrays = arrays_of(v)
    x = arrays["x"].asnumpy()
    x[0, 3, 4, 5] = value
    x[0, 5, 11, 0] = value
    arrays["x"] = nd.array(x)
    y = conv(v, pad=(1, 1))
    _, got, want = both([F.relu(y)], v, arrays)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5)


SHAPES_AND_PADS = [
    (shape, pad)
    for shape in [(2, 2), (3, 7), (8, 8), (13, 5), (31, 33)]
    for pad in [(0, 0), (1, 1), (0, 2), (3, 1)]
    if min(n + 2 * p for n, p in zip(shape, pad)) >= 3  # else there is no output
]


@pytest.mark.parametrize("channels", [3, 9])
@pytest.mark.parametrize("shape, pad", SHAPES_AND_PADS)
def test_winograd(channels, shape, pad, monkeypatch):
    """Odd tiles at the edges, an odd number of filter blocks, weights in one and several pieces."""
    choose(monkeypatch, True)
    b = conv_fused.block()
    v = given(x=(2, channels * b, *shape), w=(5 * b, channels * b, 3, 3))
    arrays = arrays_of(v)
    _, got, _ = both([conv(v, pad=pad)], v, arrays, stable=("w",))
    exact = [arrays[k].asnumpy().astype(np.float64) for k in v]
    want = conv_forward(np, geometry("_conv", (3, 3), (), (), pad, 1, None), *exact)
    assert np.abs(got[0] - want).max() < 3e-5 * np.sqrt(np.mean(want**2))


@pytest.mark.parametrize("kernel", [(3, 3), (1, 5), (4, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("pad, dilate", [((0, 0), (1, 1)), ((1, 1), (1, 1)), ((5, 4), (2, 3))])
@pytest.mark.parametrize("add", [False, True])
def test_depthwise_kernel(kernel, stride, pad, dilate, add):
    """Our own kernel: windows over every edge, and wholly outside."""
    b = conv_fused.block()
    v = given(x=(2, 3 * b, 9, 29), w=(3 * b, 1, *kernel))
    y = conv(v, stride=stride, pad=pad, dilate=dilate, num_group=3 * b)
    v |= given(a=y.shape)
    program, got, want = both([F.relu(y + v["a"] if add else y)], v, stable=("w",))
    assert_same(got, want)
    assert operators(program).count("_conv") == 1


@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("act", ["relu", "relu6", "none"])
def test_depthwise_rows_of_every_width(kernel, stride, act):
    """Tiles of 1 to 8 columns; a NaN at the end of a row is not in the next one."""
    b = conv_fused.block()
    for width in [*range(1, 18), 33]:
        for pad in (0, kernel // 2, kernel // 2 + 1):
            if width + 2 * pad < kernel:
                continue
            v = given(x=(1, 2 * b, 6, width), w=(2 * b, 1, kernel, kernel))
            arrays = arrays_of(v)
            x = arrays["x"].asnumpy()
            x[:, :, 2, 0] = x[:, 1, 3, -1] = np.nan
            arrays["x"] = nd.array(x)
            taps = {"stride": (stride, stride), "pad": (kernel // 2, pad), "num_group": 2 * b}
            outputs = [ACTIVATIONS[act](conv(v, **taps))]
            _, got, _ = both(outputs, v, arrays, stable=("w",))
            g = geometry("_conv", (kernel, kernel), taps["stride"], (), taps["pad"], 2 * b, None)
            want = conv_forward(np, g, *[arrays[k].asnumpy().astype(np.float64) for k in v])
            if act != "none":
                want = np.clip(want, 0, 6 if act == "relu6" else np.inf)
            np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-5)
            assert kernel_of_conv(outputs, v) == "plk_conv_depth_run"


@pytest.mark.parametrize("shape, stride", [((1, 1), 1), ((5, 7), 1), ((14, 15), 2), ((20, 9), 1)])
@pytest.mark.parametrize("channels", [1, 40])
@pytest.mark.parametrize("add", [False, True])
def test_one_element_kernel(shape, stride, channels, add):
    """Our own kernel: odd numbers of pixels and filter blocks, channels in several visits."""
    b = conv_fused.block()
    out = tuple((n - 1) // stride + 1 for n in shape)
    v = given(x=(2, channels * b, *shape), w=(81 * b, channels * b, 1, 1), a=(2, 81 * b, *out))
    y = conv(v, stride=(stride, stride))
    program, got, want = both([F.relu(y + v["a"] if add else y)], v, stable=("w",))
    assert_same(got, want)
    assert operators(program).count("_conv") == 1


@pytest.mark.parametrize("kernel", [(3, 3), (1, 5), (7, 2)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("pad, dilate", [((0, 0), (1, 1)), ((6, 4), (1, 1)), ((3, 9), (2, 3))])
@pytest.mark.parametrize("channels", ["3", "5b"])
@pytest.mark.parametrize("size", [(15, 20), (70, 33)])
def test_direct_kernel(kernel, stride, pad, dilate, channels, size, monkeypatch):
    """Our own kernel: images in parts, windows over every edge and wholly outside, sums in several
    visits, 1 to 5 blocks of filters."""
    choose(monkeypatch, False)
    b = conv_fused.block()
    n, blocks = (3, (1, 2)) if channels == "3" else (5 * b, (3, 5))
    for filters in blocks:
        v = given(x=(2, n, *size), w=(filters * b, n, *kernel))
        outputs = [ACTIVATIONS["relu6"](conv(v, stride=stride, pad=pad, dilate=dilate))]
        _, got, want = both(outputs, v, stable=("w",))
        assert_same(got, want)
        assert kernel_of_conv(outputs, v) == "plk_conv_blocked_run"


@pytest.mark.parametrize("pixels", [1, 5, 7, 12, 13, 23])
@pytest.mark.parametrize("deep", [False, True])
def test_register_tiles(pixels, deep, monkeypatch):
    """1 to 9 blocks of filters, and every number of outputs that the last tile may have."""
    choose(monkeypatch, False)
    b = conv_fused.block()
    n, blocks = b * (5 if deep else 1), range(1, 10)
    filters = {f"w{i}": (i * b, n, 1, 1) for i in blocks}
    v = given(x=(1, n, 1, pixels), **filters)
    outputs = [F.relu(conv(v, w=w)) for w in filters]
    arrays = arrays_of(v)
    _, got, _ = both(outputs, v, arrays, stable=tuple(filters))
    x, *weights = (arrays[k].asnumpy().astype("float64") for k in v)
    want = [np.maximum(np.einsum("nchw,fc->nfhw", x, w[:, :, 0, 0]), 0) for w in weights]
    assert_same(got, want)


def test_large_padding_is_not_copied(monkeypatch):
    choose(monkeypatch, False)
    v = given(x=(1, 64, 9, 9), w=(16, 64, 3, 3))
    for reach in (2, 60):
        y = conv(v, pad=(reach, reach), dilate=(reach, reach))
        _, got, want = both([y], v, stable=("w",))
        assert_same(got, want)
        assert (kernel_of_conv([y], v) == "plk_conv_blocked_run") == (reach == 2)


@pytest.mark.parametrize("act", ["relu", "relu6"])
def test_rectified_in_the_tile(act, monkeypatch):
    """NaN stays NaN, and zeros have the sign that the operator gives them."""
    choose(monkeypatch, False)
    v = given(x=(1, 16, 5, 5), w=(16, 16, 1, 1), a=(1, 16, 5, 5))
    arrays = {k: nd.zeros(t.shape) for k, t in v.items()}
    values = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 7, -7, 3], "f")
    arrays["a"][:] = nd.array(np.resize(values, (1, 16, 5, 5)))
    _, got, want = both([ACTIVATIONS[act](conv(v) + v["a"])], v, arrays, stable=("w",))
    np.testing.assert_array_equal(np.signbit(got[0]), np.signbit(want[0]))
    np.testing.assert_array_equal(got[0], want[0])


def test_several_readers():
    """Nothing is fused that somebody else reads; values are stored once in each layout."""
    v = given(x=(1, 16, 8, 8), w=(16, 16, 1, 1))
    y = conv(v)
    z = F.relu(y)
    outs = [y, z, F.sum(y), z * y]
    program, got, want = both(outs, v)
    assert_same(got, want)


def test_pooling_concat_and_norm_keep_the_layout():
    b = conv_fused.block()
    v = given(x=(2, 2 * b, 9, 9), w=(2 * b, 2 * b, 1, 1), **statistics(6 * b))
    y = conv(v)
    parts = [
        F.Pooling(y, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type=kind, **more)
        for kind, more in (("max", {}), ("avg", {}), ("avg", {"count_include_pad": False}))
    ]
    y = F.relu(normalised(v, F.Concat(*parts)))
    y = F.Pooling(y, global_pool=True, kernel=(1, 1), pool_type="avg")
    program, got, want = both([y], v, stable=STABLE)
    assert_same(got, want)
    # in, and out
    assert operators(program).count("_reorder") <= 2


def test_blocks_of_channels_are_joined_in_place():
    """The blocks of one picture lie one after the other; those of several do not."""
    b = conv_fused.block()
    each = {}
    for n in (1, 2):
        v = given(x=(n, b, 8, 8), w=(2 * b, b, 1, 1), p=(b, 3 * b, 1, 1))
        first = conv(v)
        y = F.Concat(first, F.relu(conv(v)), dim=1, num_args=2)
        y = F.Concat(y, F.tanh(first), dim=1, num_args=2)
        y = conv({"x": F.slice_axis(y, axis=1, begin=b, end=4 * b), "w": v["p"]})
        program, got, want = both([y], v, stable=("w", "p"))
        assert_same(got, want)
        assert operators(program).count("Concat") == 2
        each[n] = program.naive_bytes / n
    assert each[1] < 0.8 * each[2]


def test_channels_are_scaled_in_blocks():
    """Squeeze and excitation: an array of one number per channel is broadcast."""
    v = given(x=(2, 16, 5, 5), w=(32, 16, 1, 1))
    y = conv(v)
    gate = F.Activation(
        F.Pooling(y, global_pool=True, kernel=(1, 1), pool_type="avg"), act_type="sigmoid"
    )
    spatial = F.mean(y, axis=1, keepdims=True)
    _, got, want = both([F.broadcast_mul(y, gate) * 2.0, F.broadcast_add(y, spatial)], v)
    assert_same(got, want)


GROUPS = {
    "swish": lambda y: y * F.sigmoid(y),
    "hard swish": lambda y: y * F.clip(y + 3.0, a_min=0.0, a_max=6.0) / 6.0,
    "mish": lambda y: y * F.tanh(F.log1p(F.exp(y))),
}


@pytest.mark.parametrize("act", GROUPS)
@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    "weight, attrs",
    [
        ((32, 16, 3, 3), {"pad": (1, 1)}),
        ((32, 16, 1, 1), {}),
        ((16, 1, 3, 3), {"num_group": 16}),
        ((21, 16, 3, 3), {}),
    ],
)
def test_groups_of_one_array_are_activations(act, add, weight, attrs):
    v = given(x=(2, 16, 9, 7), w=weight, **statistics(weight[0]))
    y = normalised(v, conv(v, **attrs))
    v |= given(a=y.shape)
    program, got, want = both([GROUPS[act](y + v["a"] if add else y)], v, stable=STABLE)
    assert_same(got, want)
    assert [n for n in operators(program) if n not in ("_reorder", "_zeros")] == ["_conv"]


@pytest.mark.parametrize(
    "act",
    [
        lambda y: F.clip(y, a_min=0.0, a_max=np.inf),
        lambda y: y * F.clip(y + 3.0, a_min=0.0, a_max=np.inf) / 6.0,
        lambda y: y * F.sigmoid(y) * np.nan,
    ],
)
def test_scalars_without_literals_are_not_inlined(act):
    v = given(x=(2, 16, 9, 7), w=(16, 16, 3, 3))
    _, got, want = both([act(conv(v))], v, stable=("w",))
    assert_same(got, want)


def test_other_groups_are_not_activations():
    """What else reads the convolution, other arrays, sums, and results of another shape."""
    v = given(x=(2, 16, 9, 7), w=(16, 16, 3, 3), a=(2, 16, 7, 5))
    y = conv(v)
    swish = GROUPS["swish"](y)
    for outputs in ([swish, y], [swish + v["a"] * y], [F.sum(swish, axis=(2, 3))]):
        program, got, want = both(outputs, v, stable=("w",))
        assert_same(got, want)
        assert operators(program).count("_conv") == 1
    program, got, want = both([F.reshape_to(swish, shape=(2, -1))], v, stable=("w",))
    assert_same(got, want)
    assert operators(program).count("_conv") == 1 and "_fused" not in operators(program)


def test_prepack_follows_its_inputs():
    """Weights and running statistics that change after compiling change the result."""
    v = given(x=(1, 16, 8, 8), w=(16, 16, 3, 3), **statistics(16))
    y = F.relu(normalised(v, conv(v, pad=(1, 1))))
    arrays = arrays_of(v)
    program, _, before = both([y], v, arrays, STABLE)
    names = [op.name for op in program.ops]
    assert names.count("_conv") == 1 and program.prepack is not None
    for name in STABLE:
        arrays[name][:] = arrays[name] * 1.5
        _, _, want = both([y], v, arrays)
        got = [a.asnumpy() for a in program.run([arrays[k] for k in v])]
        assert_same(got, want)
        assert np.abs(want[0] - before[0]).max() > 1e-3
        before = want


def test_training_keeps_batch_statistics():
    v = given(x=(4, 8, 6, 6), w=(8, 8, 3, 3), **statistics(8))
    T = Builder(train=True)
    stats = [v[k] for k in ("gamma", "beta", "mean", "var")]
    y = T.relu(T.BatchNorm(conv(v), *stats, fix_gamma=False))
    ins = list(v.values())
    programs = [lower([y], ins, mx.cpu(), "t", tier=tier) for tier in (0, 1)]
    results = []
    for program in programs:
        arrays = arrays_of(v)
        out = program.run([arrays[k] for k in v])[0].asnumpy()
        results.append([out, arrays["mean"].asnumpy(), arrays["var"].asnumpy()])
    assert_same(*results)


@pytest.mark.parametrize("channels, filters", [(37, 74), (64, 10), (100, 100), (5, 3), (20, 20)])
@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize("add", [False, True])
def test_odd_channels_have_compiled_kernels(channels, filters, size, add):
    """Filled up to whole blocks, also where the next convolution reads them."""
    v = given(x=(1, channels, size, size), w=(filters, channels, 1, 1), a=(1, filters, size, size))
    outputs = [F.relu(conv(v) + v["a"] if add else conv(v))]
    _, got, want = both(outputs, v, stable=("w",))
    assert_same(got, want)
    made = passes.compile_passes(outputs, mx.cpu(), stable=[v["w"]])
    (node,) = [n for n in topological(made) if n.op and n.op.name == "_conv"]
    found = CPU.choose(node.op, [x.type for x in node.inputs], node.types, node.attrs)
    assert found.function == "plk_conv_blocked_run"


def test_layouts_have_tags():
    """What the table wants can be stored: the reference kernels convert it."""
    v = given(x=(1, 32, 8, 8), w=(32, 16, 3, 3))
    y = conv(v, num_group=2)
    for node in topological(passes.compile_passes([y], mx.cpu(), free=[0])):
        for t in node.types:
            assert t.layout == "" or len(parse(t.layout).order) == len(t.shape)


def test_layers_in_blocks():
    b = conv_fused.block()
    v = given(x=(1, 3, 33, 33), w=(2 * b, 3, 3, 3), d=(2 * b, 1, 3, 3), p=(3 * b, 2 * b, 1, 1))
    y = F.relu(conv(v, stride=(2, 2), pad=(1, 1)))
    y = F.relu(conv({"x": y, "w": v["d"]}, num_group=2 * b, pad=(1, 1)))
    y = F.relu(conv({"x": y, "w": v["p"]}))
    program, got, want = both([y], v, stable=("w", "d", "p"))
    assert_same(got, want)
    assert operators(program).count("_conv") == 3
    assert not program.can_fail


NETWORKS = ("resnet18_v2", "squeezenet1.1", "mobilenetv2_0.25", "densenet121")


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name):
    net = mx.gluon.model_zoo.vision.get_model(name, classes=10)
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    size = 64 if name.startswith(("resnet", "mobile")) else 224
    x = nd.random.uniform(shape=(2, 3, size, size))
    net(x)
    for p in net.collect_params().values():
        if p.name.endswith(("running_mean", "beta", "bias")):
            p.set_data(nd.random.uniform(-0.1, 0.1, shape=p.shape))
        if p.name.endswith(("running_var", "gamma")):
            p.set_data(nd.random.uniform(0.5, 1.5, shape=p.shape))
    want = net(x).asnumpy()
    net.hybridize()
    for _ in range(3):
        net(x).wait_to_read()
    mx.wait_compiled()
    assert_same([net(x).asnumpy()], [want])
    for p in net.collect_params().values():
        if len(p.shape) == 4:
            p.set_data(p.data() * 1.5)
    changed = net(x).asnumpy()
    net.hybridize(active=False)
    assert_same([changed], [net(x).asnumpy()])
    assert np.abs(changed - want).max() > 1e-3 * np.abs(want).max()
