"""Calls of detection, spatial and deprecated operators whose results in MXNet 1.9.1 are in
fixtures/vision.npz; test_vision.py compares. `python vision_cases.py FILE` writes them with MXNet.
"""

import sys

import numpy as np

SEED = 5


class Draw:
    """Random inputs, float32; the same on every machine."""

    def __init__(self):
        self.rng = np.random.RandomState(SEED)

    def normal(self, *shape):
        return self.rng.randn(*shape).astype("float32")

    def unit(self, *shape):
        return self.rng.rand(*shape).astype("float32")

    def boxes(self, *shape):
        """Corner boxes in the unit square."""
        a, b = self.unit(*shape, 2), self.unit(*shape, 2)
        return np.concatenate([np.minimum(a, b), np.maximum(a, b) + np.float32(0.02)], axis=-1)

    def regions(self, n, images, size, positive=False):
        """(image, x1, y1, x2, y2) in pixels, some beyond the border or turned round."""
        low = self.rng.uniform(-3, size, (n, 2))
        high = low + self.rng.uniform(0.2 if positive else -1, size, (n, 2))
        image = self.rng.randint(0, images, (n, 1))
        return np.concatenate([image, low, high], axis=1).astype("float32")

    def detections(self, *shape):
        """(class, score, box) with scores that repeat."""
        kind = self.rng.randint(-1, 3, (*shape, 1))
        score = np.round(self.unit(*shape, 1) * 8) / 8
        return np.concatenate([kind, score, self.boxes(*shape)], axis=-1).astype("float32")

    def labels(self, counts, rows):
        """(class, box), rows of -1 behind."""
        label = np.full((len(counts), rows, 5), -1, "float32")
        for one, n in zip(label, counts):
            one[:n, 0] = self.rng.randint(0, 3, n)
            one[:n, 1:] = self.boxes(n)
        return label


def cases():
    """(path below nd, inputs, attributes, is there a gradient) of every call."""
    d = Draw()
    found = []

    def add(name, *inputs, grad=True, **attrs):
        found.append((name, inputs, attrs, grad))

    up = {"sample_type": "nearest"}
    add("UpSampling", d.normal(1, 2, 2, 3), scale=3, num_args=1, **up)
    add("UpSampling", d.normal(1, 2, 4, 4), d.normal(1, 1, 2, 2), scale=2, num_args=2, **up)
    both = (d.normal(1, 2, 4, 4), d.normal(1, 2, 2, 2))
    add("UpSampling", *both, scale=2, num_args=2, multi_input_mode="sum", **up)
    for scale, kernel in ((2, 4), (3, 5)):
        inputs = (d.normal(1, 2, 3, 4), d.normal(2, 1, kernel, kernel))
        bilinear = {"sample_type": "bilinear", "num_filter": 2, "num_args": 2}
        add("UpSampling", *inputs, scale=scale, **bilinear)
    for attrs in ({"offset": (1, 2), "h_w": (3, 4)}, {"h_w": (2, 4), "center_crop": True}):
        add("Crop", d.normal(1, 2, 5, 7), num_args=1, **attrs)
    add("Crop", d.normal(1, 2, 5, 7), d.normal(1, 1, 2, 4), num_args=2, center_crop=True)
    for align in (True, False):
        for size in ((7, 3), (1, 4), (4, 5), (8, 10)):
            attrs = {"height": size[0], "width": size[1], "align_corners": align}
            add("contrib.BilinearResize2D", d.normal(1, 2, 4, 5), **attrs)
        scales = {"scale_height": 1.7, "scale_width": 0.6}
        add("contrib.BilinearResize2D", d.normal(1, 2, 4, 5), align_corners=align, **scales)
        like = (d.normal(1, 2, 4, 5), d.normal(1, 1, 6, 3))
        add("contrib.BilinearResize2D", *like, mode="like", align_corners=align)
    for mode in ("odd_scale", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"):
        scales = {"scale_height": 2.0, "scale_width": 1.5} if mode == "odd_scale" else {}
        add("contrib.BilinearResize2D", d.normal(1, 1, 4, 5), mode=mode, **scales)
    for size in ((), (3,), (2, 4), (7, 9)):
        add("contrib.AdaptiveAvgPooling2D", d.normal(1, 2, 4, 5), output_size=size)

    for scale in (1.0, 0.5):
        of = {"pooled_size": (3, 2), "spatial_scale": scale}
        add("ROIPooling", d.normal(2, 2, 6, 5), d.regions(5, 2, 6 / scale), **of)
        for aligned in (False, True):
            for ratio in (-1, 2):
                more = {**of, "aligned": aligned, "sample_ratio": ratio}
                rois = d.regions(4, 2, 6 / scale, positive=aligned)
                add("contrib.ROIAlign", d.normal(2, 2, 6, 5), rois, **more)
        rois = d.regions(4, 2, 6 / scale)
        add("contrib.ROIAlign", d.normal(2, 6, 6, 5), rois, position_sensitive=True, **of)
        turned = np.abs(np.concatenate([rois, d.normal(4, 1) * 90], axis=1))
        for ratio in (-1, 2):
            inputs = (d.normal(2, 2, 6, 5), turned.astype("float32"))
            add("contrib.RROIAlign", *inputs, grad=False, sampling_ratio=ratio, **of)
    of = {"spatial_scale": 0.7, "output_dim": 2}
    add("contrib.PSROIPooling", d.normal(2, 8, 6, 5), d.regions(4, 2, 7), pooled_size=2, **of)
    more = {**of, "pooled_size": 3, "group_size": 2}
    add("contrib.PSROIPooling", d.normal(2, 8, 6, 5), d.regions(4, 2, 7), **more)
    more = {**more, "trans_std": 0.2, "sample_per_part": 2, "part_size": 2}
    inputs = (d.normal(2, 8, 6, 5), d.regions(4, 2, 7), d.normal(4, 4, 2, 2))
    add("contrib.DeformablePSROIPooling", *inputs, **more)
    add("contrib.DeformablePSROIPooling", *inputs[:2], **{**more, "no_trans": True})

    for shape in ((3, 4), (1, 6)):
        grid = (d.unit(2, 2, *shape) - np.float32(0.5)) * np.float32(2.8)
        add("BilinearSampler", d.normal(2, 2, 4, 5), grid)
    affine = {"target_shape": (3, 4), "transform_type": "affine"}
    inputs = (d.normal(2, 2, 4, 5), d.normal(2, 6))
    add("SpatialTransformer", *inputs, sampler_type="bilinear", **affine)
    add("GridGenerator", d.normal(2, 6), **affine)
    add("GridGenerator", d.normal(2, 2, 3, 4), transform_type="warp")
    wide = {"max_displacement": 2, "pad_size": 2}
    for attrs in (
        {},
        {"kernel_size": 3, "stride1": 2, **wide},
        {"stride2": 2, "is_multiply": False, **wide},
        {"kernel_size": 3, "max_displacement": 3, "stride1": 2, "stride2": 2, "pad_size": 4},
    ):
        add("Correlation", d.normal(1, 2, 5, 6), d.normal(1, 2, 5, 6), **attrs)
    taps = {"kernel": (3, 3), "stride": (2, 1), "pad": (1, 2), "dilate": (1, 2)}
    add("im2col", d.normal(1, 2, 5, 6), **taps)
    add("col2im", d.normal(1, 18, 18), output_size=(5, 6), **taps)
    for taps, groups, n_out in (
        ({"kernel": (3, 3), "pad": (1, 1)}, 1, (5, 6)),
        ({"kernel": (3, 2), "stride": (2, 1), "dilate": (1, 2)}, 2, (2, 4)),
    ):
        n_taps = taps["kernel"][0] * taps["kernel"][1]
        offset = d.normal(2, 2 * groups * n_taps, *n_out) * 2
        inputs = (d.normal(2, 4, 5, 6), offset, d.normal(4, 4 // groups, *taps["kernel"]))
        more = {"num_filter": 4, "num_group": groups, "num_deformable_group": groups, **taps}
        add("contrib.DeformableConvolution", *inputs, d.normal(4), **more)
        add("contrib.DeformableConvolution", *inputs, no_bias=True, **more)

    for attrs in (
        {},
        {"id_index": 0},
        {"id_index": 0, "force_suppress": True, "overlap_thresh": 0.1},
        {"id_index": 0, "background_id": 1, "topk": 5},
        {"valid_thresh": 0.4, "in_format": "center"},
        {"topk": 3, "out_format": "center"},
        {"topk": 0},
    ):
        add("contrib.box_nms", d.detections(2, 15), **attrs)
    for form in ("corner", "center"):
        add("contrib.box_iou", d.boxes(2, 3), d.boxes(4), format=form)
        add("contrib.box_iou", d.normal(5, 4), d.normal(3, 4), format=form)
        add("contrib.box_decode", d.normal(2, 5, 4), d.boxes(1, 5), format=form, std0=0.1, clip=0.3)
    chosen = d.rng.randint(-1, 2, (2, 5)).astype("float32")
    matches = d.rng.randint(0, 3, (2, 5)).astype("float32")
    means, stds = d.normal(4), d.unit(4) + np.float32(0.1)
    add("contrib.box_encode", chosen, matches, d.boxes(2, 5), d.boxes(2, 3), means, stds)
    for attrs in (
        {"threshold": 0.3},
        {"threshold": 0.5, "is_ascend": True},
        {"threshold": 0.01, "topk": 2},
    ):
        scores = np.round(d.unit(2, 4, 6) * 5) / np.float32(5)
        add("contrib.bipartite_matching", scores, **attrs)
    for attrs in (
        {"sizes": (0.5, 0.25, 0.1), "ratios": (1, 2, 0.5)},
        {"sizes": (0.4,), "ratios": (2, 1), "clip": True},
        {"sizes": (0.4, 0.8), "steps": (0.3, 0.2), "offsets": (0.1, 0.9)},
    ):
        add("contrib.MultiBoxPrior", d.normal(1, 1, 3, 2), **attrs)
    anchors = d.boxes(1, 20)
    for attrs in (
        {},
        {"overlap_threshold": 0.2},
        {"overlap_threshold": -1, "variances": (0.2, 0.3, 0.4, 0.5)},
        {"negative_mining_ratio": 3, "negative_mining_thresh": 0.2},
        {"negative_mining_ratio": 1, "minimum_negative_samples": 7, "ignore_label": -2},
    ):
        inputs = (anchors, d.labels((2, 0, 4), 4), np.round(d.normal(3, 4, 20)))
        add("contrib.MultiBoxTarget", *inputs, **attrs)
    for attrs in (
        {},
        {"threshold": 0.4, "clip": False},
        {"nms_threshold": 0.2, "nms_topk": 4},
        {"force_suppress": True, "background_id": 1},
        {"nms_threshold": 0},
    ):
        prob = np.round(d.unit(2, 3, 20) * 8) / np.float32(8)
        add("contrib.MultiBoxDetection", prob, d.normal(2, 80) / 2, anchors, **attrs)
    for name, n in (("Proposal", 1), ("MultiProposal", 2)):
        for attrs in (
            {"rpn_post_nms_top_n": 10, "rpn_min_size": 4},
            {"rpn_pre_nms_top_n": 20, "rpn_post_nms_top_n": 20, "iou_loss": True},
        ):
            of = {"scales": (1, 2), "ratios": (0.5, 1.5), "output_score": True, "threshold": 0.5}
            info = np.asarray([[70, 60, 1.0], [50, 80, 1.3]][:n], "float32")
            inputs = (d.unit(n, 8, 4, 5), d.normal(n, 16, 4, 5) / 3, info)
            add(f"contrib.{name}", *inputs, grad=False, **of, **attrs)

    for kind in ("max", "avg", "sum"):
        for attrs in (
            {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pooling_convention": "full"},
            {"kernel": (3, 2), "stride": (3, 3), "pooling_convention": "full"},
            {"kernel": (2, 3), "pad": (1, 1)},
            {"global_pool": True, "kernel": (1, 1)},
        ):
            add("Pooling_v1", d.normal(1, 2, 6, 5), pool_type=kind, **attrs)
    inputs = (d.normal(2, 4, 5, 6), d.normal(4, 2, 3, 3), d.normal(4))
    add("Convolution_v1", *inputs, kernel=(3, 3), num_filter=4, num_group=2, pad=(1, 1))
    return found


def run(mx, name, inputs, attrs, grad):
    """Outputs and gradients of one call, NumPy arrays. Heads are drawn anew for each call."""
    function = mx.nd
    for part in name.split("."):
        function = getattr(function, part)
    arrays = [mx.nd.array(a, dtype="float32") for a in inputs]
    for a in arrays:
        a.attach_grad()
    with mx.autograd.record():
        ys = function(*arrays, **attrs)
    ys = list(ys) if isinstance(ys, (list, tuple)) else [ys]
    found = [y.asnumpy() for y in ys]
    if grad:
        rng = np.random.RandomState(3)
        heads = [mx.nd.array(rng.randn(*y.shape), dtype="float32") for y in ys]
        mx.autograd.backward(ys, heads)
        found += [a.grad.asnumpy() for a in arrays]
    return found


if __name__ == "__main__":
    import mxnet

    results = [a for case in cases() for a in run(mxnet, *case)]
    np.savez_compressed(
        sys.argv[1],
        values=np.concatenate([a.reshape(-1) for a in results]),
        shapes=np.concatenate([[a.ndim, *a.shape] for a in results]).astype("uint8"),
    )
