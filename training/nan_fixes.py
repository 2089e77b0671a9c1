"""What helps against a NaN or an Inf, by the operator that made it and what it read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

DATA = (
    "look at what loads the data: a missing value, a division by a standard deviation of 0, or a"
    " logarithm of 0"
)
PARAMETER = (
    "an earlier update made it: lower the learning rate, clip gradients"
    " (gluon.utils.clip_global_norm), and call find_nan in the step before"
)
COMPILED = "compare with net.hybridize(False), and report it: mx.runtime.report()"
LARGEST = {"float16": 65504.0, "bfloat16": 3.38e38, "float32": 3.4e38, "float64": 1.8e308}
HUGE = 1e6  # parameters and activations of a network that diverges
LOGS = {"log", "log2", "log10"}
EXPS = {"exp", "expm1", "sinh", "cosh"}
DIVISIONS = {"broadcast_div", "elemwise_div", "_div", "_rdiv_scalar", "reciprocal", "_true_divide"}
ROOTS = {"sqrt", "rsqrt", "cbrt", "rcbrt"}
INVERSE = {"arcsin", "arccos", "arctanh", "arccosh"}


def fix(operator: str, backward: bool, made: Any, read: Sequence[Any]) -> str:
    """Advice, or "". backward: the gradient of the operator made it."""
    name = operator.removeprefix("_np_").removeprefix("_npi_")
    low = min((v.low for v in read if v.low is not None), default=math.nan)
    high = max((v.high for v in read if v.high is not None), default=math.nan)
    rule = _backward(name) if backward else _forward(name, read, low, high)
    if rule:
        return rule
    size = max(abs(low), abs(high))
    if made.n_inf and "float16" in made.dtype:
        return (
            f"{made.dtype} holds numbers up to {LARGEST.get(made.dtype, 0):.4g}: compute this in"
            " float32, or train with amp.init(), which scales the loss"
        )
    if size > HUGE:
        return (
            f"its inputs reach {size:.3g}: the network diverges; lower the learning rate, clip"
            " gradients, or normalize the data"
        )
    return ""


def _forward(name: str, read: Sequence[Any], low: float, high: float) -> str:
    if name in LOGS and low <= 0:
        what = "0 is -inf" if low == 0 else "a negative number is NaN"
        return f"the logarithm of {what}: nd.{name}(x + 1e-12) or nd.{name}(nd.maximum(x, 1e-12))"
    if name == "log1p" and low <= -1:
        return "log1p needs x > -1"
    if name in EXPS and read:
        limit = math.log(LARGEST.get(read[0].dtype, 3.4e38))
        return (
            f"exp of more than {limit:.0f} is Inf in {read[0].dtype}: subtract the maximum first,"
            " or use log_softmax, nd.logaddexp, SoftmaxCrossEntropyLoss(from_logits=False)"
        )
    if name in DIVISIONS:
        return "a division by 0: add an epsilon to what is divided by, x / (y + 1e-12)"
    if name in ROOTS and low <= 0:
        what = "0" if name.startswith("r") and low == 0 else "a negative number"
        return f"a root of {what}: nd.maximum(x, 1e-12) before it"
    if name in INVERSE:
        return f"{name} is not defined for {low:.4g} to {high:.4g}: clip its input"
    if "power" in name and low <= 0:
        return "a power of 0 or of a negative number: nd.maximum(x, 1e-12) before it"
    return ""


def _backward(name: str) -> str:
    if name in ROOTS or name in ("norm", "_norm"):
        return f"the gradient of {name} is infinite at 0: nd.sqrt(x + 1e-12)"
    if name in LOGS or name in DIVISIONS:
        return f"the gradient of {name} divides by its input, which is 0 or tiny: add an epsilon"
    if "power" in name:
        return "the gradient of a power below 1 is infinite at 0: add an epsilon"
    if name == "where":
        return "gradients of both branches of where are computed: make the unused one finite too"
    return ""
