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
    Known("_contrib_hawkesll", "gradient", "none for the state, nor from the second output"),
    Known(
        "RNN", "gradient", "clipping of states has no gradient there", "", lambda c: "clip" in str(c)
    ),
    Known("_image_flip_top_bottom", "values", "the middle one of an odd number of rows is lost"),
    # inputs that MXNet writes
    Known(
        "BatchNorm",
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
    # precision
    Known("Cast|amp_cast|.*", "values", "MXNet rounds to bfloat16 otherwise", "bfloat16"),
    Known(UPDATES, "values|input after", "MXNet keeps rates in float32", "", double),
    Known(".*multi.*adamw.*", ANY, "MXNet reads a float64 rescale_grad as float32", "", double),
    # NaN and infinities
    Known("_linalg_.*", "values|gradient", "LAPACK and BLAS promise nothing on NaN", "", strange),
    Known("Pooling|_contrib_AdaptiveAvg.*", "values|gradient", "NaN in a window", "", strange),
    Known("CTCLoss|SVMOutput", "values|gradient", "NaN", "", strange),
    Known("topk|sort|argsort", "values|gradient", "NaN comes last here", "", strange),
    Known(UPDATES, "values|input after", "sign and max of NaN, inf - inf", "", strange),
    Known("_random_pdf_.*", "gradient", "samples of density 0 or infinity", "", strange),
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
        "moments|norm|_contrib_div_sqrt_dim|mean|_image_normalize|_square_sum",
        "values",
        "MXNet computes in the whole numbers' type, ours in float",
        "",
        whole,
    ),
    Known("_image_resize", "values", "OpenCV's rounding; other whole types garbage", "", whole),
    Known("_histogram", "values|dtype", "MXNet makes whole numbers of the edges", "", whole),
    Known("erfinv|_r?div.*|elemwise_div|_r?power.*", "values", "inf as a whole number", "", whole),
    Known(
        ".*_scalar",
        "dtype",
        "is_int=False makes float64 of whole numbers; no function passes it",
        "",
        lambda c: c.attrs.get("is_int") is False,
    ),
    Known("gather_nd|scatter_nd|_backward_gather_nd|_scatter_set_nd", ANY, "negative indices wrap"),
    # what MXNet takes and ours refuses
    Known("CTCLoss|LRN|_image_.*", "refusal", "arguments without a meaning"),
    Known("_contrib_interleaved_.*", "refusal", "sizes that do not fit together"),
    Known("amp_multicast", "refusal", "whole numbers, which it is not for"),
]


def explanation(call, what: str, text: str) -> str | None:
    for k in KNOWN:
        if (
            re.fullmatch(k.operator, call.ours)
            and re.fullmatch(k.what, what)
            and re.search(k.text, text)
            and k.when(call)
        ):
            return k.reason
    return None
