"""The differences from MXNet that we know and mean, each with its reason and the call that shows
it. A difference that no entry explains is a bug; an entry that explains nothing in a run of all
operators is reported as stale."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Known(NamedTuple):
    """operator, what, text: patterns that match whole names, kinds and parts of messages; when: a
    condition on the call. The reason was found by the call in `shows`."""

    operator: str
    what: str
    reason: str
    shows: str
    when: Callable = lambda call: True
    text: str = ""


ANY = ".*"
VALUES = "values|gradient"
UPDATES = r".*(update.*|lamb.*|multi_lars)"


def nan(call) -> bool:
    """NaN among the inputs."""
    return any(np.isnan(a).any() for a in call.arrays if a.dtype.kind == "f")


def strange(call) -> bool:
    """inf or NaN among the inputs."""
    return not call.finite


def whole(call) -> bool:
    return any("int" in d for d in call.dtypes)


def double(call) -> bool:
    return "float64" in call.dtypes


def has(*values, **attrs) -> Callable:
    """Attributes with these values: has(alpha=0)."""
    return lambda call: all(call.attrs.get(k) == v for k, v in attrs.items())


def below(low, *names) -> Callable:
    """One of these attributes, or a number in it, is below a bound."""

    def small(value):
        if isinstance(value, (list, tuple)):
            return any(small(v) for v in value)
        return isinstance(value, (int, float)) and value < low

    return lambda call: any(small(call.attrs.get(n)) for n in names)


def lengths_beyond(call) -> bool:
    """Lengths (the second input) that are not from 1 to the size of the axis."""
    if len(call.arrays) < 2 or not call.arrays[1].size:
        return False
    axis = call.attrs.get("axis", 0 if call.ours.startswith("Sequence") else -1)
    n, lengths = call.arrays[0].shape[axis], call.arrays[1].astype(np.float64)
    return not ((lengths >= 1) & (lengths <= n)).all()


def no_such_image(call) -> bool:
    """Boxes (image, ...) of images that are not there."""
    x, boxes = call.arrays[:2]
    return (
        boxes.ndim == 2
        and boxes.size > 0
        and not ((boxes[:, 0] >= 0) & (boxes[:, 0] < x.shape[0])).all()
    )


def negative_index(call) -> bool:
    return any(a.size and np.nan_to_num(a).min() < 0 for a in call.arrays)


def no_such_class(call) -> bool:
    x, label = call.arrays[:2]
    return label.size > 0 and not ((label >= 0) & (label < x.shape[-1])).all()


KNOWN = [
    Known(
        "LeakyReLU",
        "gradient",
        "MXNet scales selu's twice below 0",
        'LeakyReLU([-1], act_type="selu"): 0.59, the derivative is 0.647',
        has(act_type="selu"),
    ),
    Known("LeakyReLU", "gradient", "of NaN: 1 in MXNet", 'LeakyReLU([nan], act_type="elu")', nan),
    Known(
        "SoftmaxActivation",
        "gradient",
        "MXNet takes all but the first axis for one",
        "SoftmaxActivation of (2, 3, 4)",
        lambda c: c.arrays[0].ndim > 2,
    ),
    Known(
        "_image_(flip_.*|to_tensor|normalize)",
        "gradient",
        "MXNet passes dy on unchanged",
        "_image_normalize(x, std=2)",
    ),
    Known(
        "_image_flip_.*",
        "values",
        "MXNet loses the middle one of an odd number of rows",
        "_image_flip_top_bottom of (3, 2, 1)",
        lambda c: any(n % 2 for n in c.arrays[0].shape),
    ),
    Known(
        "SoftmaxOutput",
        "gradient",
        "MXNet takes the output for the gradient from above",
        "SoftmaxOutput(x, label, out_grad=True, smooth_alpha=0.1)",
        lambda c: (
            c.attrs.get("out_grad") and (c.attrs.get("use_ignore") or c.attrs.get("smooth_alpha"))
        ),
    ),
    Known(
        "_contrib_hawkesll",
        "gradient",
        "MXNet has none for the state, nor from the second output",
        "every call",
    ),
    Known(
        "RNN",
        ANY,
        "MXNet clips states on GPUs only",
        "RNN(..., lstm_state_clip_min=-0.1, lstm_state_clip_max=0.1)",
        lambda c: "clip" in str(c),
    ),
    Known(
        "RNN",
        ANY,
        "MXNet minds lengths on GPUs only",
        "RNN(..., use_sequence_length=True)",
        has(use_sequence_length=True),
    ),
    Known("RNN", "refusal|symbol", "p=1 divides by zero", "RNN(..., p=1)", has(p=1)),
    Known(
        "(multi_)?all_finite",
        "values",
        "MXNet reads its uninitialised output",
        "all_finite([inf], init_output=False)",
        has(init_output=False),
    ),
    Known(
        "BatchNorm(_v1)?|_contrib_(SyncBatchNorm|BatchNormWithReLU)",
        "input after",
        "fix_gamma writes ones into gamma; ours takes them for ones",
        "BatchNorm(x, gamma, ...)",
        lambda c: c.attrs.get("fix_gamma", True),
        text=r"x1\[",
    ),
    Known(
        "_contrib_BatchNormWithReLU",
        "gradient",
        "of NaN after max(x, 0)",
        "_contrib_BatchNormWithReLU with beta=nan",
        strange,
    ),
    Known(
        "BatchNorm",
        "refusal|symbol",
        "gamma of another size, which MXNet does not look at",
        "BatchNorm(x (5, 3, 2), gamma (3,), axis=2)",
        lambda c: (
            c.arrays[1].size not in c.arrays[0].shape
            or c.arrays[1].size != (*c.arrays[0].shape, 0)[c.attrs.get("axis", 1)]
        ),
    ),
    Known(
        ".*adamw_update",
        "input after",
        "the gradient is MXNet's scratch memory",
        "every call",
        text=r"x1\[",
    ),
    Known(
        "(mp_)?nag_mom_update",
        "input after",
        "MXNet decays the momentum with the weight that it has already replaced",
        "nag_mom_update(w, g, m, lr=1, wd=0.1, momentum=0.9)",
        text=r"x2\[",
    ),
    Known(
        "mp_lamb_update_phase2",
        "input after",
        "MXNet forgets to write weight32",
        "every call",
        text=r"x4\[",
    ),
    Known(
        ".*",
        "values",
        "MXNet rounds to bfloat16 otherwise",
        'Cast([1.005], dtype="bfloat16")',
        text="bfloat16",
    ),
    Known(
        UPDATES,
        "values|input after",
        "MXNet keeps rates in float32",
        "_multi_adamw_update of float64",
        double,
    ),
    Known(
        ".*multi.*adamw.*",
        ANY,
        "MXNet reads rescale_grad as float32 whatever it is",
        "_multi_adamw_update of float64",
        lambda c: c.dtypes[-1] != "float32",
    ),
    Known(
        "_image_resize",
        "values",
        "MXNet resizes float64 with OpenCV's float32 tables",
        "_image_resize of float64",
        double,
    ),
    Known(
        "_linalg_.*",
        VALUES,
        "LAPACK and BLAS promise nothing on inf and NaN",
        "_linalg_syrk([[inf, 0], [1, 2]])",
        strange,
    ),
    Known(
        "_linalg_trsm",
        "gradient",
        "MXNet divides by alpha",
        "_linalg_trsm([[2, 0], [1, 3]], [[1], [2]], alpha=0)",
        has(alpha=0),
    ),
    Known(
        "Pooling",
        VALUES,
        "MXNet's maxima skip NaN",
        "Pooling([[[[1, nan, 2, 3]]]], kernel=(1, 2), stride=(1, 1))",
        nan,
    ),
    Known(
        "_contrib_AdaptiveAvgPooling2D",
        VALUES,
        "inf and NaN reach other windows of their row: a product with 0",
        "_contrib_AdaptiveAvgPooling2D([[[[1, inf, 2, nan]]]], output_size=(1, 2))",
        strange,
    ),
    Known(
        "_image_resize",
        VALUES,
        "inf and NaN beside a weight of 0",
        "_image_resize with inf",
        strange,
    ),
    Known(
        "relu|clip",
        "gradient",
        "of NaN: NaN (relu) and dy (clip) in MXNet, 0 here",
        "relu([nan])",
        nan,
    ),
    Known(
        "_contrib_RROIAlign",
        "values",
        "boxes of images that are not there, and sizes below 1",
        "_contrib_RROIAlign with batch index 5",
    ),
    Known(
        "_contrib_SyncBatchNorm|BatchNorm_v1",
        "values",
        "statistics that MXNet leaves unwritten, or takes of a negative eps",
        "BatchNorm_v1(..., use_global_stats=True, output_mean_var=True)",
        lambda c: c.attrs.get("use_global_stats") or c.attrs.get("eps", 1) < 0,
        text=r"y[12]\[",
    ),
    Known(
        "BilinearSampler|SpatialTransformer",
        VALUES,
        "NaN coordinates are outside: 0 here",
        "SpatialTransformer(x, [[1, 0, 0, 0, 1, nan]])",
        strange,
    ),
    Known(".*ROI.*", VALUES, "NaN: maxima skip it in MXNet", "ROIPooling with NaN", strange),
    Known("CTCLoss", VALUES, "inf - inf", "CTCLoss with inf", strange),
    Known(
        "SVMOutput|MAERegressionOutput",
        "gradient",
        "of NaN: MXNet's comparison is false",
        "MAERegressionOutput([[nan]], [[2]])",
        strange,
    ),
    Known(
        "topk|sort|argsort",
        VALUES,
        "NaN comes last here; MXNet's order is that of a sort with a broken comparison",
        "sort([1, nan, 3, 2, inf])",
        nan,
    ),
    Known(
        ".*Norm|norm|moments|nansum|nanprod|prod|gammaln|L2Normalization",
        VALUES,
        "inf - inf, 0 * inf and their order",
        "norm([[1, nan], [inf, 0]], axis=1)",
        strange,
    ),
    Known(
        "_contrib_(MultiBox.*|box_.*|bipartite_matching|MultiProposal)",
        "values",
        "NaN in boxes and scores: comparisons",
        "_contrib_bipartite_matching([[nan, 1]], threshold=0.5)",
        strange,
    ),
    Known(
        "_contrib_box_iou",
        "values",
        "0 / 0 of areas that overflow float16",
        "_contrib_box_iou of float16",
        lambda c: "float16" in c.dtypes,
        text="nan",
    ),
    Known(
        "_contrib_box_encode",
        VALUES,
        "a match with a reference box that is not there: MXNet reads foreign memory",
        "_contrib_box_encode(samples=[[1]], matches=[[1]], anchors (1, 1, 4), refs (1, 1, 4), ...)",
        lambda c: c.arrays[1].max() >= c.arrays[3].shape[1] or c.arrays[1].min() < 0,
    ),
    Known(
        "_contrib_MultiProposal",
        "values",
        "fewer proposals than asked for before the choice: MXNet reads beyond them",
        "_contrib_MultiProposal(..., rpn_pre_nms_top_n=2, rpn_post_nms_top_n=6)",
        lambda c: (
            0 < c.attrs.get("rpn_pre_nms_top_n", 6000) < c.attrs.get("rpn_post_nms_top_n", 300)
        ),
    ),
    Known(
        UPDATES,
        "values|input after",
        "sign and max of NaN, inf - inf",
        "signsgd_update(w, [nan])",
        strange,
    ),
    Known(
        "_random_pdf_.*",
        VALUES,
        "infinite parameters",
        "_random_pdf_gamma([1], [inf], [1])",
        strange,
    ),
    Known(
        "_random_pdf_.*",
        "gradient",
        "a density beyond the type",
        "_random_pdf_gamma([1e-30], [0.5], [1])",
        text="inf|e[+]30",
    ),
    Known(
        "softmax|softmin|log_softmax",
        VALUES,
        "division by zero",
        "softmax([[1, 2, 3]], temperature=0)",
        has(temperature=0),
    ),
    Known(
        "SoftmaxActivation|SoftmaxOutput|softmax.*|softmin|log_softmax|softmax_cross_entropy",
        VALUES,
        "NaN and inf reach the whole row here, in MXNet their own places",
        "softmax([[1, nan, 3]]): [0, nan, 0]",
        strange,
    ),
    Known(
        "moments|norm|_contrib_div_sqrt_dim|_contrib_hawkesll|mean|_image_normalize|_square_sum",
        "values",
        "MXNet computes in the whole numbers' type, ours in float",
        "_contrib_div_sqrt_dim([[4, 8]], dtype int32)",
        whole,
    ),
    Known(
        "_image_resize|_cvimresize",
        "values",
        "OpenCV's rounding; whole types but uint8 are garbage there",
        "_image_resize of int32",
        whole,
    ),
    Known(
        "_histogram",
        "values|dtype|symbol",
        "MXNet makes whole numbers of the edges",
        "_histogram([1, 2, 5], bin_cnt=3, range=(0, 5))",
        whole,
    ),
    Known(
        "erfinv|_r?div.*|elemwise_div|_r?power.*",
        "values",
        "inf as a whole number",
        "erfinv([1], dtype int32)",
        whole,
    ),
    Known(
        ".*_scalar",
        "dtype|symbol",
        "is_int=False makes float64 of whole numbers; no function passes it",
        "_mul_scalar([1], dtype int32, scalar=1, is_int=False)",
        has(is_int=False),
    ),
    Known(
        "gather_nd|scatter_nd|_backward_gather_nd|_scatter_set_nd",
        ANY,
        "negative indices wrap",
        "scatter_nd([9], [[-1]], shape=(3,)): MXNet aborts",
        negative_index,
    ),
    Known(
        "softmax_cross_entropy",
        "values",
        "labels beyond the classes: MXNet reads what lies there",
        "softmax_cross_entropy([[1, 2]], [5])",
        no_such_class,
    ),
    Known(
        "CTCLoss",
        VALUES,
        "labels that the data's length cannot spell",
        "CTCLoss of 2 steps, labels [1, 1]",
    ),
    Known(
        "_contrib_arange_like",
        "values",
        "repeat below 1",
        "_contrib_arange_like([1, 2, 5], repeat=-1)",
        below(1, "repeat"),
    ),
    Known(
        "_contrib_arange_like",
        "values",
        "MXNet counts nothing in float16: [1, 1, 1, 1]",
        "_contrib_arange_like of float16, start=1, step=0.5",
        lambda c: "float16" in c.dtypes,
    ),
    Known(
        "fill_element_0index",
        "refusal|symbol",
        "columns that are not there: MXNet writes there",
        "fill_element_0index([[1, 1]], [0], [2])",
    ),
    Known(
        "scatter_nd|_scatter_set_nd",
        "refusal|symbol",
        "indices that are not there: MXNet writes there",
        "_scatter_set_nd(x (3, 4), v, [[0, 2, 255], ...])",
    ),
    Known(
        "_image_adjust_lighting",
        "values",
        "one channel: MXNet writes three",
        "_image_adjust_lighting of (2, 2, 1)",
        lambda c: c.arrays[0].shape[-1] != 3,
    ),
    Known(
        "_random_pdf_.*",
        "gradient",
        "MXNet's digamma in float16",
        "_random_pdf_generalized_negative_binomial of float16",
        lambda c: "float16" in c.dtypes,
    ),
    Known(
        "_contrib_PSROIPooling",
        "refusal|symbol",
        "channels that are not output_dim * group_size^2: MXNet reads beyond them",
        "_contrib_PSROIPooling(x (2, 2, 5, 2), output_dim=1, group_size=2)",
    ),
    Known("repeat", "shape", "nothing left", "repeat([1, 2], repeats=0)", has(repeats=0)),
    Known(
        "_contrib_index_copy",
        "refusal",
        "indices out of range: MXNet writes there",
        "_contrib_index_copy([[1], [2]], [5], [[9]])",
    ),
    Known(
        "SequenceLast|SequenceReverse",
        "refusal|values|gradient",
        "lengths below 1 or beyond the data: MXNet reads there",
        "SequenceReverse of 3 steps with length 5",
        lengths_beyond,
    ),
    Known(
        "softmax",
        VALUES,
        "lengths beyond the data: MXNet reads there",
        "softmax([[1, 2, 3]], [5], use_length=True)",
        lambda c: c.attrs.get("use_length") and lengths_beyond(c),
    ),
    Known(
        ".*(PSROI|ROI).*",
        VALUES,
        "boxes of images that are not there: zeros here, any memory in MXNet",
        "ROIPooling with batch index 5",
        no_such_image,
    ),
    Known(
        "_contrib_DeformablePSROIPooling",
        "gradient",
        "MXNet rounds coordinates to float32",
        "_contrib_DeformablePSROIPooling of float64",
        double,
    ),
    Known(
        ".*ROI.*|.*Proposal.*|Correlation",
        "refusal|symbol",
        "sizes and strides below 1",
        "_contrib_PSROIPooling(..., group_size=-2)",
        below(
            1,
            "pooled_size",
            "group_size",
            "output_dim",
            "part_size",
            "sample_per_part",
            "kernel_size",
            "stride1",
            "stride2",
            "max_displacement",
            "feature_stride",
            "sample_ratio",
            "rpn_min_size",
        ),
    ),
    Known(
        "_contrib_Proposal|_contrib_MultiProposal",
        "refusal|symbol",
        "more or fewer proposals than there are",
        "_contrib_Proposal(..., rpn_post_nms_top_n=-1)",
        below(1, "rpn_post_nms_top_n", "rpn_pre_nms_top_n"),
    ),
    Known(
        "_contrib_box_nms",
        "refusal|symbol",
        "an index below -1, which MXNet takes for -1",
        "_contrib_box_nms(x, id_index=-2)",
        below(-1, "id_index", "background_id"),
    ),
    Known(
        "_contrib_bipartite_matching",
        "values",
        "topk=0: all",
        "_contrib_bipartite_matching([[0.5, 0.6], [0.1, 0.2]], threshold=1e-12, topk=0)",
        has(topk=0),
    ),
    Known(
        "_split_v2",
        "refusal|symbol",
        "sections that do not divide the axis, and indices beyond it",
        "_split_v2([1, 2, 3, 4, 5], sections=2)",
    ),
    Known(
        "transpose",
        "refusal|symbol",
        "axes named twice",
        "transpose([[1, 2]], axes=(0, 0))",
        lambda c: len(set(c.attrs.get("axes", ()))) < len(c.attrs.get("axes", ())),
    ),
    Known(
        "dot|batch_dot",
        ANY,
        "sparse results are matrices here",
        'dot(x, w, forward_stype="csr")',
        lambda c: c.attrs.get("forward_stype") in ("csr", "row_sparse"),
    ),
    Known(
        "_random_.*|_sample_.*",
        "refusal|symbol",
        "parameters out of their range",
        "_random_randint(low=3, high=1)",
    ),
    Known(
        ".*adamw.*",
        "refusal|symbol",
        "rates out of their range",
        "_multi_mp_adamw_update(..., lrs=(-1.5,))",
    ),
    Known(
        "LRN",
        "refusal|symbol",
        "nsize below 1: MXNet adds nothing up",
        "LRN(x, nsize=-1)",
        below(1, "nsize"),
    ),
    Known(
        "_image_random_.*",
        "refusal|symbol",
        "factors from a lower to a higher bound",
        "_image_random_hue(x, min_factor=0.5, max_factor=0.0)",
        lambda c: (
            not c.attrs.get("min_factor", 0) < c.attrs.get("max_factor", 1) or "alpha" in str(c)
        ),
    ),
    Known(
        "_image_crop",
        "refusal|symbol",
        "a part outside the image: MXNet reads there",
        "_image_crop(x, x=0, y=-1, width=4, height=3)",
        below(0, "x", "y"),
    ),
    Known(
        "CTCLoss|_histogram|_image_(resize|to_tensor|normalize|adjust_lighting)",
        "refusal|symbol",
        "arguments without a meaning",
        "_histogram(x, bin_cnt=3)",
    ),
    Known(
        "_contrib_interleaved_.*",
        "refusal|symbol",
        "sizes that heads do not divide",
        "_contrib_interleaved_matmul_selfatt_qk(x (3, 8, 2), heads=1)",
    ),
    Known(
        "_contrib_index_array|broadcast_like",
        "refusal|symbol",
        "axes that are not there",
        "_contrib_index_array([[1]], axes=(5,))",
    ),
    Known(
        "amp_multicast",
        "refusal|symbol",
        "whole numbers, which it is not for",
        "amp_multicast([1], dtype int32)",
        whole,
    ),
    Known(
        UPDATES,
        "refusal",
        "betas and steps that divide by zero",
        "lamb_update_phase1(..., beta1=1)",
        text="ZeroDivision",
    ),
    Known(
        "UpSampling",
        "symbol",
        "MXNet gives the second of several images the start of a bilinear weight",
        'UpSampling(a, b, sample_type="nearest", num_args=2)',
        has(sample_type="nearest"),
    ),
    Known(
        "_contrib_getnnz",
        "symbol",
        "the dtype of the count is found with shapes only",
        "infer_type of _contrib_getnnz without shapes",
    ),
    Known(
        "_eye|_linspace",
        "symbol",
        "a size of 0 is unknown in shapes",
        "_eye(N=0, M=4)",
        lambda c: 0 in (c.attrs.get("N"), c.attrs.get("num")),
    ),
    Known(
        "norm",
        "symbol",
        "infer_type of a norm that is refused",
        "norm(x, ord=-1, out_dtype='float64')",
        lambda c: c.attrs.get("ord", 2) not in (1, 2),
    ),
    Known(
        "Pooling_v1",
        "values|gradient",
        "comparisons with NaN",
        "Pooling_v1 with NaN",
        nan,
    ),
    Known(
        "SequenceLast",
        "gradient",
        "MXNet's is zero for one step; a second call of the kind hangs",
        "SequenceLast([[-1.1, 0.2]])",
        lambda c: 1 in c.arrays[0].shape,
    ),
    Known(
        "amp_cast|amp_multicast",
        "symbol",
        "tojson leaves out casts that are outputs, too",
        'amp_cast(x, dtype="float16")',
    ),
]


def explanation(call, what: str, text: str) -> Known | None:
    for k in KNOWN:
        if (
            re.fullmatch(k.operator, call.ours)
            and re.fullmatch(k.what, what)
            and re.search(k.text, text)
            and k.when(call)
        ):
            return k
    return None
