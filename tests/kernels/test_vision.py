"""Detection, spatial and deprecated operators: MXNet's results, and safe on absurd boxes."""

from pathlib import Path

import numpy as np
import plait as mx
import pytest
import vision_cases
from plait import MXNetError, nd
from plait.kernels.cpu.backend import CPU
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY


def results_of_mxnet():
    """An iterator over the arrays of the fixture."""
    file = np.load(Path(__file__).parent.parent / "fixtures" / "vision.npz")
    shapes, at = file["shapes"].tolist(), 0
    while shapes:
        shape, shapes = shapes[1 : 1 + shapes[0]], shapes[1 + shapes[0] :]
        size = int(np.prod(shape))
        yield file["values"][at : at + size].reshape(shape)
        at += size


def test_equals_mxnet():
    expected = results_of_mxnet()
    for i, case in enumerate(vision_cases.cases()):
        for k, got in enumerate(vision_cases.run(mx, *case)):
            want = next(expected)
            where = f"case {i}, array {k}: {case[0]} {case[2]}"
            assert got.shape == want.shape, where
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5, err_msg=where)
    assert next(expected, None) is None


NAN, INF = np.nan, np.inf
ABSURD = np.array(
    [
        [NAN, NAN, NAN, NAN],
        [0, 0, INF, INF],
        [-INF, -INF, INF, INF],
        [5, 5, 1, 1],
        [-1e30, 0, 1e30, 1],
        [1e9, 1e9, 2e9, 2e9],
        [0, 0, 0, 0],
        [0.1, 0.2, 0.6, 0.7],
    ],
    "float32",
)


def absurd_calls():
    n = len(ABSURD)
    image = np.arange(2 * 4 * 5 * 6, dtype="float32").reshape(2, 4, 5, 6)
    for batch in (0, -1, 7, NAN, 1e30):
        rois = np.concatenate([np.full((n, 1), batch), ABSURD], axis=1).astype("float32")
        for attrs in ({}, {"aligned": True}, {"position_sensitive": True, "sample_ratio": 2}):
            of = {"pooled_size": (2, 2), "spatial_scale": 1.0}
            yield "_contrib_ROIAlign", (image, rois), {**of, **attrs}
        yield "ROIPooling", (image, rois), {"pooled_size": (2, 2), "spatial_scale": 1.0}
    scores = np.array([NAN, INF, -INF, 0.5, 0.5, 0.7, 0.2, 0.9], "float32")
    rows = np.concatenate([np.arange(n)[:, None] % 2, scores[:, None], ABSURD], axis=1)
    for attrs in ({}, {"id_index": 0}, {"in_format": "center"}, {"valid_thresh": -INF}):
        yield "_contrib_box_nms", (rows.astype("float32"),), attrs
    for form in ("corner", "center"):
        yield "_contrib_box_iou", (ABSURD, ABSURD), {"format": form}
    label = np.concatenate([np.zeros((n, 1)), ABSURD], axis=1)[None].astype("float32")
    logits = np.full((1, 3, n), NAN, "float32")
    for attrs in ({}, {"negative_mining_ratio": 3.0}):
        yield "_contrib_MultiBoxTarget", (ABSURD[None], label, logits), attrs
    prob = np.stack([scores] * 3)[None]
    yield "_contrib_MultiBoxDetection", (prob, ABSURD.reshape(1, -1), ABSURD[None]), {}
    grid = np.concatenate([ABSURD.reshape(1, 2, 4, 4)] * 2)
    yield "BilinearSampler", (image, grid), {}
    offset = np.resize(ABSURD, (2, 8, 4, 5)).astype("float32")
    weight = np.ones((1, 4, 2, 2), "float32")
    more = {"kernel": (2, 2), "num_filter": 1, "no_bias": True}
    yield "_contrib_DeformableConvolution", (image, offset, weight), more
    deltas = np.resize(ABSURD, (1, 4, 5, 6)).astype("float32")
    info = np.array([[NAN, INF, 1]], "float32")
    small = {"scales": (1,), "ratios": (1,), "rpn_post_nms_top_n": 5}
    yield "_contrib_Proposal", (image[:1, :2], deltas, info), small


def test_absurd_boxes_do_no_harm():
    """Kernels and references end, and agree on what is a number."""
    for name, inputs, attrs in absurd_calls():
        op = REGISTRY[name]
        for dtype in ("float32", "float64"):  # kernel, reference
            arrays = [nd.array(a, dtype=dtype) for a in inputs]
            types = [a._spec.type for a in arrays]
            full = op.parse(attrs)
            native = CPU.choose(op, types, infer(op, full, types), full)
            assert (native is None) == (dtype == "float64"), name
            for a in arrays:
                a.attach_grad()
            with mx.autograd.record():
                y = mx.ndarray.invoke.invoke(op, arrays, attrs)
            y = y[0] if isinstance(y, list) else y
            y.backward()
            assert y.asnumpy().dtype == dtype
            for a in arrays:
                a.grad.wait_to_read()


def test_modulated_by_ones_is_plain_inside():
    """MXNet's modulated convolution runs on GPUs only; away from the border both are one."""
    rng = np.random.default_rng(0)
    x = nd.array(rng.normal(size=(2, 4, 8, 9)))
    offset = nd.array(rng.uniform(0, 0.9, (2, 16, 6, 7)))
    weight, mask = nd.array(rng.normal(size=(3, 4, 2, 2))), nd.ones((2, 8, 6, 7))
    attrs = {"kernel": (2, 2), "num_filter": 3, "no_bias": True, "num_deformable_group": 2}
    x = nd.slice_axis(x, axis=2, begin=0, end=7)
    x = nd.slice_axis(x, axis=3, begin=0, end=8)
    plain = nd.contrib.DeformableConvolution(x, offset, weight, **attrs).asnumpy()
    ones = nd.contrib.ModulatedDeformableConvolution(x, offset, mask, weight, **attrs).asnumpy()
    np.testing.assert_allclose(ones[:, :, :-1, :-1], plain[:, :, :-1, :-1], rtol=1e-5, atol=1e-5)
    half = nd.contrib.ModulatedDeformableConvolution(x, offset, mask / 2, weight, **attrs)
    np.testing.assert_allclose(half.asnumpy(), ones / 2, rtol=1e-5, atol=1e-5)


def test_regions_of_no_image_are_zero():
    image = nd.ones((2, 1, 4, 4))
    rois = nd.array([[-1, 0, 0, 3, 3], [2, 0, 0, 3, 3], [1, 0, 0, 3, 3]])
    for f in (nd.contrib.ROIAlign, nd.ROIPooling):
        y = f(image, rois, pooled_size=(1, 1), spatial_scale=1.0)
        assert y.reshape((-1,)).asnumpy().tolist() == [0, 0, 1]


@pytest.mark.parametrize("width", [2**24 + 1, 2**24 + 3, 2**24 + 4])
def test_regions_at_the_edge_of_an_image_whose_size_no_float_holds(width):
    """Coordinates are floats, which above 2^24 are rounded, also past the last pixel."""
    x = np.zeros((1, 1, 1, width), "float32")
    x[..., -1] = 5
    x = nd.array(x)
    one = {"pooled_size": (1, 1), "spatial_scale": 1.0}
    for edge in range(-4, 9, 2):
        at = float(2**24 + edge)
        aligned = nd.contrib.ROIAlign(
            x, nd.array([[0, at - 2, 0, at + 2, 0]]), sample_ratio=1, **one
        )
        turned = nd.contrib.RROIAlign(x, nd.array([[0, at, 0, 4, 1, 0]]), sampling_ratio=1, **one)
        last = 5.0 * (width - 1 <= at <= np.float32(width))
        assert aligned.asnumpy().item() == last, (width, at)
        assert turned.asnumpy().item() == last, (width, at)
        rois = nd.array([[0, 2**24 - 8, 0, at, 0]])
        parts = nd.contrib.PSROIPooling(x, rois, pooled_size=1, spatial_scale=1.0, output_dim=1)
        assert 0 <= parts.asnumpy().item() <= 5
        assert nd.ROIPooling(x, rois, **one).asnumpy().item() in (0, 5)


def test_bins_of_whole_pixels_end_where_the_rounded_product_says():
    """Row -1 in 3 bins: 3 * float32(1 / 3) is 1 when rounded, so that none reaches row 0."""
    y = nd.contrib.PSROIPooling(
        nd.ones((1, 9, 7, 3)), nd.array([[0, 0, -1, 2, -1]]), 1.0, output_dim=1, pooled_size=3
    )
    assert (y.asnumpy() == 0).all()


def test_suppression_keeps_the_first_of_equal_scores():
    """Scores of 3000 boxes repeat; kernel and reference take the same ones in the same order."""
    rng = np.random.default_rng(0)
    low = np.round(rng.uniform(0, 1, (3000, 2)), 1)
    score = np.round(rng.uniform(0, 1, (3000, 1)), 1)
    rows = np.concatenate([score, low, low + 0.25], axis=1)
    attrs = {"coord_start": 1, "score_index": 0, "overlap_thresh": 0.3}
    fast = nd.contrib.box_nms(nd.array(rows, dtype="float32"), **attrs).asnumpy()
    exact = np.asarray(rows, "float32").astype("float64")
    slow = nd.contrib.box_nms(nd.array(exact, dtype="float64"), **attrs).asnumpy()
    np.testing.assert_array_equal(fast, slow.astype("float32"))
    again = nd.contrib.box_nms(nd.array(rows, dtype="float32"), **attrs).asnumpy()
    np.testing.assert_array_equal(fast, again)


def test_upsampling_makes_its_weight():
    data = mx.sym.var("data")
    up = mx.sym.UpSampling(
        data, scale=2, sample_type="bilinear", num_filter=3, num_args=1, name="u"
    )
    assert up.list_arguments() == ["data", "u_weight"]
    assert up.infer_shape(data=(1, 3, 4, 4))[0] == [(1, 3, 4, 4), (3, 1, 4, 4)]
    assert mx.sym.load_json(up.tojson()).list_arguments() == ["data", "u_weight"]


def test_legacy_symbols_have_their_states():
    data = mx.sym.var("data")
    norm = mx.sym.BatchNorm_v1(data, name="n")
    assert norm.list_auxiliary_states() == ["n_moving_mean", "n_moving_var"]
    assert mx.sym.IdentityAttachKLSparseReg(data, name="s").list_auxiliary_states() == [
        "s_moving_avg"
    ]
    assert mx.sym.contrib.SyncBatchNorm(data, key="k", name="b").list_arguments() == [
        "data",
        "b_gamma",
        "b_beta",
    ]


@pytest.mark.parametrize(
    "call, rule",
    [
        (lambda x: nd.UpSampling(x, scale=0, sample_type="nearest"), "scale must be from 1"),
        (lambda x: nd.Crop(x, h_w=(9, 4)), "the crop must have"),
        (lambda x: nd.Crop(x, h_w=(3, 4), offset=(6, 2)), "offset must be from 0"),
        (lambda x: nd.contrib.BilinearResize2D(x, scale_height=2.0), "must both be given"),
        (lambda x: nd.contrib.box_nms(x, id_index=9), "id_index must be from -1"),
        (lambda x: nd.contrib.MultiBoxPrior(x, steps=(-1, 0.1)), "steps must be two numbers"),
        (lambda x: nd.Correlation(x, x, kernel_size=2), "kernel_size must be odd"),
        (lambda x: nd.ROIPooling(x, x, pooled_size=(1, 1), spatial_scale=1.0), "rois must be"),
        (lambda x: nd.col2im(x, output_size=(2, 2), kernel=(2, 2)), "data must be"),
    ],
)
def test_what_cannot_be_is_refused(call, rule):
    with pytest.raises(MXNetError, match=rule):
        call(nd.ones((1, 2, 7, 8)))


def test_second_order_is_refused_only_where_it_is_taken():
    x, grid = nd.random.normal(shape=(1, 2, 4, 4)), nd.random.uniform(-1, 1, shape=(1, 2, 3, 3))
    x.attach_grad()
    with mx.autograd.record():
        y = nd.BilinearSampler(x, grid)
        (slope,) = mx.autograd.grad(y.sum(), [x], create_graph=True)
        total = (slope * x).sum()
    assert np.isfinite(total.asscalar())
    with pytest.raises(MXNetError, match="no derivative of second order is defined"):
        total.backward()
        x.grad.asnumpy()
