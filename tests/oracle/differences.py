"""The differences from MXNet that we know and mean, each with its reason and the call that shows
it. A difference that no entry explains is a bug; an entry that explains nothing in a run of all
operators is reported as stale."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from . import conditions as c


class Known(NamedTuple):
    """operator, what, text: patterns that match whole names, kinds and parts of messages; when: a
    condition on the call; where: on the elements that differ. The reason was found by the call in
    `shows`."""

    operator: str
    what: str
    reason: str
    shows: str
    when: Callable
    text: str = ""
    where: Callable = c.everywhere


ANY = ".*"
VALUES = "values|gradient"
REFUSED = "refusal|symbol"
UPDATES = r".*(update.*|lamb.*|multi_lars)"


def every_call(call) -> bool:
    """Only for entries whose text and where pin down what differs."""
    return True


KNOWN = [
    Known(
        "prod|nanprod",
        "gradient",
        "MXNet divides the product by the element: 0 / 0",
        "prod([[2, 0, 3]], axis=1): NaN at the 0, the derivative is 6",
        lambda call: (call.arrays[0] == 0).any(),
        where=c.not_finite,
    ),
    Known(
        "Deconvolution",
        "input after",
        "MXNet's gradient of the gradient writes into the weight",
        "Deconvolution(x, w), autograd.grad(..., create_graph=True)",
        lambda call: call.case.get("twice"),
        where=c.unchanged,
    ),
    Known(
        "BilinearSampler|SpatialTransformer",
        "gradient",
        "a coordinate that float16 rounds to a pixel, where the derivative jumps",
        "BilinearSampler(x, grid) of float16",
        c.of_type("float16"),
        where=c.few,
    ),
    Known(
        "Reshape",
        REFUSED,
        "a target_shape of other elements: MXNet does not look",
        "Reshape(x (2, 8, 4), target_shape=(0, 12))",
        c.given("target_shape"),
        text="^shapes|number of elements must stay",
    ),
    Known(
        "LeakyReLU",
        "gradient",
        "MXNet scales selu's twice below 0",
        'LeakyReLU([-1], act_type="selu"): 0.59, the derivative is 0.647',
        c.has(act_type="selu"),
    ),
    Known(
        "LeakyReLU",
        "gradient",
        "of NaN: 1 in MXNet; of elu just above 0: that just below",
        'LeakyReLU([nan, 1e-30], act_type="elu")',
        every_call,
        where=c.at_nan_or_tiny,
    ),
    Known(
        "SoftmaxActivation",
        "gradient",
        "MXNet takes all but the first axis for one",
        "SoftmaxActivation of (2, 3, 4)",
        lambda call: call.arrays[0].ndim > 2,
    ),
    Known(
        "_image_(flip_.*|to_tensor|normalize)",
        "gradient",
        "MXNet passes dy on unchanged",
        "_image_normalize(x, std=2)",
        every_call,
        where=c.passed_on,
    ),
    Known(
        "_image_flip_.*",
        "values",
        "MXNet loses the middle one of an odd number of rows",
        "_image_flip_top_bottom of (3, 2, 1)",
        lambda call: any(n % 2 for n in call.arrays[0].shape),
        where=c.in_the_middle,
    ),
    Known(
        "SoftmaxOutput",
        "gradient",
        "MXNet takes the output for the gradient from above",
        "SoftmaxOutput(x, label, out_grad=True, smooth_alpha=0.1)",
        c.both(c.given("out_grad"), c.either(c.has(use_ignore=True), c.given("smooth_alpha"))),
    ),
    Known(
        "_contrib_hawkesll",
        "gradient",
        "MXNet has none for the state",
        "every call",
        every_call,
        text=r"^g3\[",
        where=c.zero_in_mxnet,
    ),
    Known(
        "_contrib_hawkesll",
        "gradient",
        "MXNet has none from the second output",
        "every call whose second output is differentiated",
        every_call,
        where=c.first_output_only,
    ),
    Known(
        "_contrib_hawkesll",
        VALUES,
        "marks and lengths that are not there: MXNet reads foreign memory",
        "_contrib_hawkesll of 2 processes, marks [[0, 1, 0, 2], ...]",
        lambda call: (
            (call.arrays[5] >= call.arrays[0].shape[1]).any()
            or (call.arrays[6] > call.arrays[5].shape[1]).any()
        ),
    ),
    Known(
        "RNN",
        VALUES,
        "MXNet clips states on GPUs only",
        "RNN(..., lstm_state_clip_min=-0.1, lstm_state_clip_max=0.1)",
        c.either(c.given("lstm_state_clip_min"), c.given("lstm_state_clip_max")),
    ),
    Known(
        "RNN",
        VALUES,
        "MXNet minds lengths on GPUs only",
        "RNN(..., use_sequence_length=True)",
        c.has(use_sequence_length=True),
    ),
    Known("RNN", REFUSED, "p=1 divides by zero", "RNN(..., p=1)", c.has(p=1)),
    Known(
        "(multi_)?all_finite",
        "values",
        "MXNet reads its uninitialised output",
        "all_finite([inf], init_output=False)",
        c.has(init_output=False),
    ),
    Known(
        "BatchNorm(_v1)?|_contrib_(SyncBatchNorm|BatchNormWithReLU)",
        "input after",
        "fix_gamma writes ones into gamma; ours takes them for ones",
        "BatchNorm(x, gamma, ...)",
        lambda call: call.attrs.get("fix_gamma", True),
        text=r"^x1\[",
        where=c.ones_in_mxnet,
    ),
    Known(
        "_contrib_BatchNormWithReLU",
        "gradient",
        "of NaN after max(x, 0)",
        "_contrib_BatchNormWithReLU with beta=nan",
        c.strange,
    ),
    Known(
        "BatchNorm",
        REFUSED,
        "gamma of another size, which MXNet does not look at",
        "BatchNorm(x (5, 3, 2), gamma (3,), axis=2)",
        c.other_channels,
    ),
    Known(
        ".*adamw_update",
        "input after",
        "the gradient is MXNet's scratch memory",
        "every call",
        every_call,
        where=c.both(c.unchanged, lambda call, d: d.key == "x1"),
    ),
    Known(
        "(mp_)?nag_mom_update",
        "input after",
        "MXNet decays the momentum with the weight that it has already replaced",
        "nag_mom_update(w, g, m, lr=1, wd=0.1, momentum=0.9)",
        lambda call: call.attrs.get("wd", 0) != 0,
        text=r"^x2\[",
        where=c.decays_after,
    ),
    Known(
        "mp_lamb_update_phase2",
        "input after",
        "MXNet forgets to write weight32",
        "every call",
        every_call,
        text=r"^x4\[",
        where=c.unwritten,
    ),
    Known(
        "Cast|amp_cast|amp_multicast",
        "values",
        "MXNet rounds to bfloat16 otherwise",
        'Cast([1.005], dtype="bfloat16")',
        c.has(dtype="bfloat16"),
    ),
    Known(
        UPDATES,
        "values|input after",
        "MXNet keeps rates in float32",
        "_multi_adamw_update of float64",
        c.of_type("float64"),
        where=c.close(1e-4),
    ),
    Known(
        ".*multi.*adamw.*",
        "values|input after",
        "MXNet reads rescale_grad as float32 whatever it is",
        "_multi_adamw_update of float64",
        lambda call: call.dtypes[-1] != "float32",
    ),
    Known(
        "_image_resize",
        "values",
        "MXNet resizes float64 with OpenCV's float32 tables",
        "_image_resize of float64",
        c.of_type("float64"),
        where=c.close(1e-4),
    ),
    Known(
        "_linalg_.*",
        VALUES,
        "LAPACK and BLAS promise nothing on inf and NaN",
        "_linalg_syrk([[inf, 0], [1, 2]])",
        c.strange,
    ),
    Known(
        "_linalg_trsm",
        "gradient",
        "MXNet divides by alpha",
        "_linalg_trsm([[2, 0], [1, 3]], [[1], [2]], alpha=0)",
        c.has(alpha=0),
    ),
    Known(
        "Pooling",
        VALUES,
        "MXNet's maxima skip NaN",
        "Pooling([[[[1, nan, 2, 3]]]], kernel=(1, 2), stride=(1, 1))",
        c.nan,
    ),
    Known(
        "_contrib_AdaptiveAvgPooling2D",
        VALUES,
        "inf and NaN reach other windows of their row: a product with 0",
        "_contrib_AdaptiveAvgPooling2D([[[[1, inf, 2, nan]]]], output_size=(1, 2))",
        c.strange,
        where=c.not_finite,
    ),
    Known(
        "_image_resize",
        VALUES,
        "inf and NaN beside a weight of 0",
        "_image_resize with inf",
        c.strange,
        where=c.not_finite,
    ),
    Known(
        "relu|clip",
        "gradient",
        "of NaN: NaN (relu) and dy (clip) in MXNet, 0 here",
        "relu([nan])",
        c.nan,
        where=c.at_nan,
    ),
    Known(
        "_contrib_SyncBatchNorm|BatchNorm_v1",
        "values",
        "statistics that MXNet leaves unwritten, or takes of a negative eps",
        "BatchNorm_v1(..., use_global_stats=True, output_mean_var=True)",
        lambda call: call.attrs.get("use_global_stats") or call.attrs.get("eps", 1) < 0,
        text=r"^y[12]\[",
    ),
    Known(
        "BatchNorm|_contrib_BatchNormWithReLU",
        "input after|gradient",
        "MXNet takes the variance back out of the root of variance + eps",
        "BatchNorm(..., eps=-1.5): the running variance is NaN",
        c.below(0, "eps"),
    ),
    Known(
        "BilinearSampler|SpatialTransformer",
        VALUES,
        "NaN coordinates are outside: 0 here",
        "SpatialTransformer(x, [[1, 0, 0, 0, 1, nan]])",
        c.strange,
        where=c.not_finite,
    ),
    Known(".*ROI.*", VALUES, "NaN: maxima skip it in MXNet", "ROIPooling with NaN", c.strange),
    Known(
        "CTCLoss", VALUES, "inf - inf", "CTCLoss with inf", c.strange, where=c.of_strange_sequences
    ),
    Known(
        "SVMOutput",
        "gradient",
        "of NaN: MXNet's comparison is false",
        "SVMOutput([[nan, 1]], [0])",
        c.strange,
    ),
    Known(
        "topk|sort|argsort",
        VALUES,
        "NaN comes last here; MXNet's order is that of a sort with a broken comparison",
        "sort([1, nan, 3, 2, inf])",
        c.nan,
    ),
    Known(
        ".*Norm(_v1|WithReLU)?|LRN|UpSampling|norm|moments|nansum|nanprod|prod|gammaln|L2Normalization",
        VALUES,
        "inf - inf, 0 * inf and their order",
        "norm([[1, nan], [inf, 0]], axis=1)",
        c.strange,
        where=c.not_finite,
    ),
    Known(
        "_contrib_(MultiBox.*|box_.*|bipartite_matching|MultiProposal)",
        "values",
        "NaN in boxes and scores: comparisons",
        "_contrib_bipartite_matching([[nan, 1]], threshold=0.5)",
        c.strange,
    ),
    Known(
        "_contrib_box_iou",
        "values",
        "0 / 0 of areas that overflow float16",
        "_contrib_box_iou of float16",
        c.of_type("float16"),
        text="nan",
    ),
    Known(
        "_contrib_box_encode",
        VALUES,
        "a match with a reference box that is not there: MXNet reads foreign memory",
        "_contrib_box_encode(samples=[[1]], matches=[[1]], anchors (1, 1, 4), refs (1, 1, 4), ...)",
        lambda call: call.arrays[1].max() >= call.arrays[3].shape[1] or call.arrays[1].min() < 0,
    ),
    Known(
        "_contrib_MultiProposal",
        "values",
        "fewer proposals than asked for before the choice: MXNet reads beyond them",
        "_contrib_MultiProposal(..., rpn_pre_nms_top_n=2, rpn_post_nms_top_n=6)",
        lambda call: (
            0
            < call.attrs.get("rpn_pre_nms_top_n", 6000)
            < call.attrs.get("rpn_post_nms_top_n", 300)
        ),
    ),
    Known(
        UPDATES,
        "values|input after",
        "sign and max of NaN, inf - inf",
        "signsgd_update(w, [nan])",
        c.strange,
    ),
    Known(
        "_random_pdf_.*",
        VALUES,
        "infinite parameters",
        "_random_pdf_gamma([1], [inf], [1])",
        c.strange,
        where=c.not_finite,
    ),
    Known(
        "_random_pdf_.*",
        "gradient",
        "a density beyond the type",
        "_random_pdf_gamma([1e-30], [0.5], [1])",
        lambda call: any(0 < abs(a[a != 0]).min(initial=1) < 1e-20 for a in call.arrays),
    ),
    Known(
        "softmax|softmin|log_softmax",
        VALUES,
        "division by zero",
        "softmax([[1, 2, 3]], temperature=0)",
        c.has(temperature=0),
    ),
    Known(
        "SoftmaxActivation|SoftmaxOutput|softmax.*|softmin|log_softmax|softmax_cross_entropy",
        VALUES,
        "NaN and inf reach the whole row here, in MXNet their own places",
        "softmax([[1, nan, 3]]): [0, nan, 0]",
        c.strange,
    ),
    Known(
        "moments|norm|_contrib_div_sqrt_dim|_contrib_hawkesll|mean|_image_normalize|_square_sum",
        "values",
        "MXNet computes in the whole numbers' type, ours in float",
        "_contrib_div_sqrt_dim([[4, 8]], dtype int32)",
        c.whole,
    ),
    Known(
        "_image_resize|_cvimresize",
        "values",
        "OpenCV's rounding; whole types but uint8 are garbage there",
        "_image_resize of int32",
        c.whole,
    ),
    Known(
        "_histogram",
        "values|dtype|symbol",
        "MXNet makes whole numbers of the edges",
        "_histogram([1, 2, 5], bin_cnt=3, range=(0, 5))",
        c.whole,
    ),
    Known(
        "erfinv|_r?div.*|elemwise_div|_r?power.*",
        "values",
        "inf as a whole number",
        "erfinv([1], dtype int32)",
        c.whole,
    ),
    Known(
        ".*_scalar",
        "dtype|symbol",
        "is_int=False makes float64 of whole numbers; no function passes it",
        "_mul_scalar([1], dtype int32, scalar=1, is_int=False)",
        c.has(is_int=False),
    ),
    Known(
        "gather_nd|scatter_nd|_backward_gather_nd|_scatter_set_nd",
        ANY,
        "negative indices wrap",
        "scatter_nd([9], [[-1]], shape=(3,)): MXNet aborts",
        c.negative_index,
    ),
    Known(
        "softmax_cross_entropy",
        "values",
        "labels beyond the classes: MXNet reads what lies there",
        "softmax_cross_entropy([[1, 2]], [5])",
        c.no_such_class,
    ),
    Known(
        "CTCLoss",
        VALUES,
        "labels that the data's length cannot spell, blanks among them, and no classes",
        "CTCLoss of 2 steps, labels [1, 1]",
        c.any_impossible_label,
        where=c.of_impossible_labels,
    ),
    Known(
        "_contrib_arange_like",
        "values",
        "repeat below 1",
        "_contrib_arange_like([1, 2, 5], repeat=-1)",
        c.below(1, "repeat"),
    ),
    Known(
        "_contrib_arange_like",
        "values",
        "MXNet counts nothing in float16: [1, 1, 1, 1]",
        "_contrib_arange_like of float16, start=1, step=0.5",
        c.of_type("float16"),
    ),
    Known(
        "fill_element_0index",
        REFUSED,
        "columns that are not there: MXNet writes there",
        "fill_element_0index([[1, 1]], [0], [2])",
        lambda call: ((call.arrays[2] < 0) | (call.arrays[2] >= call.arrays[0].shape[1])).any(),
    ),
    Known(
        "scatter_nd|_scatter_set_nd",
        REFUSED,
        "indices that are not there: MXNet writes there",
        "_scatter_set_nd(x (3, 4), v, [[0, 2, 255], ...])",
        c.no_such_place,
    ),
    Known(
        "_image_adjust_lighting",
        "values",
        "one channel: MXNet writes three",
        "_image_adjust_lighting of (2, 2, 1)",
        lambda call: call.arrays[0].shape[-1] != 3,
    ),
    Known(
        "_random_pdf_.*",
        "gradient",
        "MXNet's digamma in float16",
        "_random_pdf_generalized_negative_binomial of float16",
        c.of_type("float16"),
    ),
    Known(
        "_contrib_DeformablePSROIPooling",
        REFUSED,
        "trans of another part_size: MXNet reads beyond it",
        "_contrib_DeformablePSROIPooling(x, rois, trans (4, 4, 2, 2), part_size=1)",
        lambda call: (
            call.arrays[2].shape[2] != (call.attrs.get("part_size") or call.attrs["pooled_size"])
        ),
    ),
    Known(
        "_contrib_PSROIPooling",
        REFUSED,
        "channels that are not output_dim * group_size^2: MXNet reads beyond them",
        "_contrib_PSROIPooling(x (2, 2, 5, 2), output_dim=1, group_size=2)",
        c.uneven_psroi,
    ),
    Known("repeat", "shape|symbol", "nothing left", "repeat([1, 2], repeats=0)", c.has(repeats=0)),
    Known(
        "_contrib_index_copy",
        "refusal",
        "indices out of range: MXNet writes there",
        "_contrib_index_copy([[1], [2]], [5], [[9]])",
        c.no_such_row,
    ),
    Known(
        "SequenceLast|SequenceReverse",
        "refusal|values|gradient",
        "lengths below 1 or beyond the data: MXNet reads there",
        "SequenceReverse of 3 steps with length 5",
        c.lengths_beyond,
    ),
    Known(
        "softmax",
        VALUES,
        "lengths beyond the data: MXNet reads there",
        "softmax([[1, 2, 3]], [5], use_length=True)",
        c.both(c.given("use_length"), c.lengths_beyond),
    ),
    Known(
        ".*ROI.*",
        VALUES,
        "boxes of images that are not there: zeros here, any memory in MXNet, which writes its zero"
        " at the place in the result that has the number of the box",
        "ROIPooling with batch index 5",
        c.no_such_image,
        where=c.of_missing_images,
    ),
    Known(
        "_contrib_DeformablePSROIPooling",
        "gradient",
        "MXNet rounds coordinates to float32",
        "_contrib_DeformablePSROIPooling of float64",
        c.of_type("float64"),
    ),
    Known(
        ".*ROI.*|.*Proposal.*|Correlation",
        REFUSED,
        "sizes and strides below 1",
        "_contrib_PSROIPooling(..., group_size=-2)",
        c.below(
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
        REFUSED,
        "more or fewer proposals than there are",
        "_contrib_Proposal(..., rpn_post_nms_top_n=-1)",
        c.below(1, "rpn_post_nms_top_n", "rpn_pre_nms_top_n"),
    ),
    Known(
        "_contrib_box_nms",
        REFUSED,
        "an index below -1, which MXNet takes for -1",
        "_contrib_box_nms(x, id_index=-2)",
        c.below(-1, "id_index", "background_id"),
    ),
    Known(
        "_contrib_bipartite_matching",
        "values",
        "topk=0: all",
        "_contrib_bipartite_matching([[0.5, 0.6], [0.1, 0.2]], threshold=1e-12, topk=0)",
        c.has(topk=0),
    ),
    Known(
        "_split_v2",
        VALUES,
        "MXNet leaves the last part unwritten",
        "_split_v2([1, 2, 3, 4, 5], indices=(0, 1, 3), sections=-2)",
        c.below(0, "sections"),
    ),
    Known(
        "transpose",
        REFUSED,
        "axes named twice",
        "transpose([[1, 2]], axes=(0, 0))",
        lambda call: len(set(call.attrs["axes"])) < len(call.attrs["axes"]),
    ),
    Known(
        "dot|batch_dot",
        "refusal",
        "csr arrays are matrices here",
        'dot([1, 2], [3, 4], forward_stype="csr")',
        c.has(forward_stype="csr"),
        text="a csr array has two axes",
    ),
    Known(
        "_random_(?!pdf).*|_sample_.*",
        REFUSED,
        "parameters out of their range",
        "_random_uniform(low=3, high=1)",
        c.out_of_range,
    ),
    Known(
        "_random_randint",
        REFUSED,
        "numbers beyond the dtype",
        "_random_randint(low=0, high=2**40, dtype='int32')",
        lambda call: call.attrs["high"] >= 2**31 and call.attrs.get("dtype") != "int64",
    ),
    Known(
        ".*adamw.*",
        REFUSED,
        "rescale_grad that is not one number: MXNet takes the first",
        "_multi_adamw_update(..., [1, 2, 3])",
        lambda call: call.arrays[-1].size != 1,
    ),
    Known(
        "LRN",
        REFUSED,
        "nsize below 1: MXNet adds nothing up",
        "LRN(x, nsize=-1)",
        c.below(1, "nsize"),
    ),
    Known(
        "_image_random_.*",
        REFUSED,
        "factors from a lower to a higher bound",
        "_image_random_hue(x, min_factor=0.5, max_factor=0.0)",
        c.either(
            lambda call: call.attrs.get("min_factor", 0) > call.attrs.get("max_factor", 1),
            c.below(0, "alpha_std"),
        ),
    ),
    Known(
        "_image_crop",
        REFUSED,
        "a part outside the image: MXNet reads there",
        "_image_crop(x, x=0, y=-1, width=4, height=3)",
        c.below(0, "x", "y"),
    ),
    Known(
        "CTCLoss",
        REFUSED,
        "one class, which is the blank",
        "CTCLoss(x (5, 2, 1), labels)",
        lambda call: call.arrays[0].shape[2] < 2,
    ),
    Known(
        "_histogram",
        REFUSED,
        "no bins, or decreasing ones",
        "_histogram(x, bin_cnt=3)",
        c.no_histogram,
    ),
    Known(
        "_contrib_BilinearResize2D",
        REFUSED,
        "nothing left of the image",
        "_contrib_BilinearResize2D(x, scale_height=1, scale_width=0)",
        c.either(c.below(0.3, "scale_height", "scale_width"), c.below(1, "height", "width")),
    ),
    Known(
        "_contrib_interleaved_.*",
        REFUSED,
        "sizes that heads do not divide",
        "_contrib_interleaved_matmul_selfatt_qk(x (3, 8, 2), heads=1)",
        c.uneven_heads,
    ),
    Known(
        "_contrib_index_array|broadcast_like",
        REFUSED,
        "axes that are not there",
        "_contrib_index_array([[1]], axes=(5,))",
        c.no_such_axis("axes", "lhs_axes", "rhs_axes"),
    ),
    Known(
        "_multi.*lamb.*",
        "symbol",
        "MXNet calls missing inputs by wrong names: weight_0, grad_1, grad_1",
        "_multi_lamb_update(x, num_tensors=2)",
        c.missing_inputs,
    ),
    Known(
        UPDATES,
        "refusal",
        "betas and steps that divide by zero",
        "lamb_update_phase1(..., beta1=1)",
        c.either(c.has(beta1=1), c.has(beta2=1), c.has(lr=0), c.below(1, "t", "step_count")),
        text="ZeroDivision",
    ),
    Known(
        "UpSampling",
        "symbol",
        "MXNet gives the second of several images the start of a bilinear weight",
        'UpSampling(a, b, sample_type="nearest", num_args=2)',
        c.has(sample_type="nearest"),
    ),
    Known(
        "_contrib_getnnz",
        "symbol",
        "the dtype of the count is found with shapes only",
        "infer_type of _contrib_getnnz of an axis that is not there",
        lambda call: call.attrs.get("axis") not in (None, 0, 1),
        text="^types",
    ),
    Known(
        "norm",
        "symbol",
        "infer_type of a norm that is refused",
        "norm(x, ord=-1, out_dtype='float64')",
        lambda call: call.attrs.get("ord", 2) not in (1, 2),
    ),
    Known(
        "Pooling_v1",
        "values|gradient",
        "comparisons with NaN",
        "Pooling_v1 with NaN",
        c.nan,
    ),
    Known(
        "SequenceLast",
        "gradient",
        "MXNet's is zero for one step; a second call of the kind hangs",
        "SequenceLast([[-1.1, 0.2]])",
        lambda call: call.arrays[0].shape[call.attrs.get("axis", 0)] == 1,
    ),
    Known(
        "amp_cast|amp_multicast",
        "symbol",
        "tojson leaves out casts that are outputs, too",
        'amp_cast(x, dtype="float16")',
        every_call,
        text="^(nodes|heads|arg_nodes|by name|arguments|outputs)",
    ),
]


def _explains(k: Known, call, d) -> bool:
    if not (
        re.fullmatch(k.operator, call.ours)
        and re.fullmatch(k.what, d.what)
        and re.search(k.text, d.text)
    ):
        return False
    try:
        return k.when(call) and (
            k.where is c.everywhere or d.wrong is not None and k.where(call, d)
        )
    except (
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
    ):  # not a call that the condition speaks of
        return False


def explanation(call, d) -> Known | None:
    """The first entry that explains a difference of a call."""
    return next((k for k in KNOWN if _explains(k, call, d)), None)
