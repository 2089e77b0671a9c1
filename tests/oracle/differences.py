"""The differences from MXNet that we know and mean, each with its reason. A difference that no line
explains is a bug."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class Known(NamedTuple):
    """operator, what, text: patterns that match whole names, kinds and parts of messages."""

    operator: str
    what: str
    reason: str
    text: str = ""
    when: Callable = lambda call: True


ANY = ".*"
UPDATES = r".*(update.*|lamb.*|multi_lars)"


def strange(call) -> bool:
    """inf or nan among the inputs."""
    return not call.finite


def whole(call) -> bool:
    return any("int" in d for d in call.dtypes)


def double(call) -> bool:
    return "float64" in call.dtypes


KNOWN = [
    # gradients that MXNet has wrong: ours are the derivatives
    Known("LeakyReLU", "gradient", "selu's is scaled twice", "", lambda c: "selu" in str(c)),
    Known("SoftmaxActivation", "gradient", "wrong for more than 2 dimensions"),
    Known("_image_(flip.*|to_tensor|normalize)", "gradient", "MXNet passes dy on unchanged"),
    Known(
        "SoftmaxOutput",
        "gradient",
        "out_grad with use_ignore takes the output for the gradient from above",
        "",
        lambda c: c.attrs.get("out_grad") and c.attrs.get("use_ignore"),
    ),
    Known("_contrib_hawkesll", "gradient", "none for the state, nor from the second output"),
    Known("RNN", ANY, "MXNet clips states on GPUs only", "", lambda c: "clip" in str(c)),
    Known(
        "RNN", ANY, "MXNet minds lengths on GPUs only", "", lambda c: "sequence_length" in str(c)
    ),
    Known("_image_flip_.*", "values", "the middle one of an odd number of rows is lost"),
    Known(
        "(multi_)?all_finite",
        "values",
        "MXNet reads its uninitialised output",
        "",
        lambda c: c.attrs.get("init_output") is False,
    ),
    # inputs that MXNet writes
    Known(
        "BatchNorm(_v1)?|_contrib_SyncBatchNorm",
        "input after",
        "fix_gamma writes ones into gamma; ours takes them for ones",
        r"x1\[",
        lambda c: c.attrs.get("fix_gamma", True),
    ),
    Known(".*adamw_update", "input after", "the gradient is MXNet's scratch memory", r"x1\["),
    Known(
        "(mp_)?nag_mom_update",
        "input after",
        "MXNet decays the momentum with the weight that it has already replaced",
        r"x2\[",
    ),
    Known("mp_lamb_update_phase2", "input after", "MXNet forgets to write weight32", r"x4\["),
    # precision
    Known("Cast|amp_cast|.*", "values", "MXNet rounds to bfloat16 otherwise", "bfloat16"),
    Known(UPDATES, "values|input after", "MXNet keeps rates in float32", "", double),
    Known(
        ".*multi.*adamw.*",
        ANY,
        "MXNet reads rescale_grad as float32 whatever it is",
        "",
        lambda c: c.dtypes[-1] != "float32",
    ),
    Known("_image_resize", "values", "float64 through OpenCV's tables", "", double),
    # NaN and infinities
    Known("_linalg_.*", "values|gradient", "LAPACK and BLAS promise nothing on NaN", "", strange),
    Known(
        "Pooling|_contrib_AdaptiveAvg.*|_image_resize", "values|gradient", "windows", "", strange
    ),
    Known("relu|clip", "gradient", "of NaN", "", strange),
    Known("_contrib_RROIAlign", "values", "boxes of images that are not there"),
    Known(
        "_contrib_SyncBatchNorm|BatchNorm_v1",
        "values",
        "statistics that MXNet leaves unwritten, or takes of a negative eps",
        r"y[12]\[",
        lambda c: c.attrs.get("use_global_stats") or c.attrs.get("eps", 1) < 0,
    ),
    Known("BilinearSampler|.*ROI.*", "values|gradient", "NaN in a neighbour", "", strange),
    Known("CTCLoss|SVMOutput|MAE.*|LeakyReLU", "values|gradient", "comparisons", "", strange),
    Known("topk|sort|argsort", "values|gradient", "NaN comes last here", "", strange),
    Known(
        ".*Norm|norm|moments|nansum|prod|gammaln|log_softmax|L2Normalization",
        "values|gradient",
        "inf - inf, 0 * inf and their order",
        "",
        strange,
    ),
    Known(UPDATES, "values|input after", "sign and max of NaN, inf - inf", "", strange),
    Known("_random_pdf_.*", "values|gradient", "infinite parameters", "", strange),
    Known("_random_pdf_.*", "gradient", "a density beyond the type", "inf|e[+]30"),
    Known(
        "_linalg_trsm", "gradient", "MXNet divides by alpha", "", lambda c: c.attrs["alpha"] == 0
    ),
    Known(
        "softmax|softmin|log_softmax",
        "values|gradient",
        "division by zero",
        "",
        lambda c: c.attrs.get("temperature") == 0,
    ),
    Known("SoftmaxActivation|softmax.*|.*Softmax.*", "values|gradient", "NaN", "", strange),
    # whole numbers
    Known(
        "moments|norm|_contrib_(div_sqrt_dim|hawkesll)|mean|_image_normalize|_square_sum",
        "values",
        "MXNet computes in the whole numbers' type, ours in float",
        "",
        whole,
    ),
    Known(
        "_image_resize|_cvimresize",
        "values",
        "OpenCV's rounding; other whole types garbage",
        "",
        whole,
    ),
    Known("_histogram", "values|dtype", "MXNet makes whole numbers of the edges", "", whole),
    Known("erfinv|_r?div.*|elemwise_div|_r?power.*", "values", "inf as a whole number", "", whole),
    Known(
        ".*_scalar",
        "dtype",
        "is_int=False makes float64 of whole numbers; no function passes it",
        "",
        lambda c: c.attrs.get("is_int") is False,
    ),
    # indices, labels and sizes that do not fit: MXNet reads what lies there
    Known("gather_nd|scatter_nd|_backward_gather_nd|_scatter_set_nd", ANY, "negative indices wrap"),
    Known("softmax_cross_entropy", "values", "labels beyond the classes"),
    Known("CTCLoss", "values|gradient", "labels that the data's length cannot spell"),
    Known("_contrib_arange_like", "values", "repeat below 1", "", lambda c: "repeat=-" in str(c)),
    Known("repeat", "shape", "nothing left", "", lambda c: c.attrs.get("repeats") == 0),
    Known("SequenceLast|_contrib_index_copy", "refusal", "indices out of range"),
    Known("Sequence.*", "values|gradient", "lengths beyond the data"),
    Known(
        "(log_)?softmax|softmin",
        "values|gradient",
        "lengths beyond the data",
        "",
        lambda c: bool(c.attrs.get("use_length")),
    ),
    Known(
        ".*(PSROI|ROI).*",
        "values|gradient",
        "boxes of images that are not there: zeros here, any memory in MXNet",
        r"MXNet np[.]float\d+\((0[.]0|.*e[+]\d\d|1.381e[+]04|nan)\)|inf|e[+]\d\d",
    ),
    Known(".*ROI.*|.*Proposal.*|Correlation", "refusal", "sizes and strides below 1"),
    Known(
        "_contrib_bipartite_matching",
        "values",
        "topk=0: all",
        "",
        lambda c: c.attrs.get("topk") == 0,
    ),
    Known("_split_v2|transpose", "refusal", "sections and axes that do not fit"),
    Known(
        "dot|batch_dot",
        ANY,
        "sparse results are matrices here",
        "",
        lambda c: c.attrs.get("forward_stype") in ("csr", "row_sparse"),
    ),
    Known("_random_.*|.*adamw.*", "refusal", "parameters out of their range"),
    Known("CTCLoss|LRN|_image_.*|_histogram", "refusal", "arguments without a meaning"),
    Known("BatchNorm|_contrib_interleaved_.*", "refusal", "sizes that do not fit together"),
    Known("_contrib_index_array|broadcast_like", "refusal", "axes that are not there"),
    Known("amp_multicast", "refusal", "whole numbers, which it is not for"),
    Known(UPDATES, "refusal", "betas and steps that divide by zero", "ZeroDivision"),
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
