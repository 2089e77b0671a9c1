"""Which operators compute in which float dtype under mixed precision, and the policy in force.

The sets are MXNet's for float16. They are lists of names, not traits, because users read them
(`amp.list_*`) and replace them (`policy`). They serve bfloat16 as well, whose range is float32's:
MXNet's own list for it says what its CPU library could do.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..engine import hooks
from ..engine.error import InvalidType, InvalidValue, compose, did_you_mean
from .record import HALVES, REGISTRY, Operator, dtype_name
from .traits import Front

TARGETS = HALVES
# inputs are cast to the target dtype: these gain most, and sum in float32
LOW = ("Convolution", "Deconvolution", "FullyConnected", "RNN")
# inputs are cast to float32: sums of many terms, and functions that leave the range of 16 bits
FULL = tuple(
    """
    CTCLoss Custom GroupNorm IdentityAttachKLSparseReg InstanceNorm L2Normalization LRN LayerNorm
    LinearRegressionOutput LogisticRegressionOutput MAERegressionOutput MakeLoss SVMOutput
    SoftmaxActivation SoftmaxOutput _contrib_DeformableConvolution _contrib_DeformablePSROIPooling
    _contrib_MultiBoxDetection _contrib_MultiBoxPrior _contrib_MultiBoxTarget _contrib_SyncBatchNorm
    _contrib_count_sketch _contrib_fft _contrib_hawkesll _hypot _hypot_scalar _linalg_det
    _linalg_extractdiag _linalg_extracttrian _linalg_gelqf _linalg_gemm _linalg_gemm2
    _linalg_inverse _linalg_makediag _linalg_maketrian _linalg_potrf _linalg_potri _linalg_slogdet
    _linalg_sumlogdiag _linalg_syevd _linalg_syrk _linalg_trmm _linalg_trsm _power _power_scalar
    _rdiv_scalar _rpower_scalar _square_sum arccos arcsin arctanh argsort broadcast_hypot
    broadcast_power cosh erfinv exp expm1 gamma gammaln khatri_rao log log10 log1p log2 log_softmax
    make_loss mean moments nanprod nansum norm prod rcbrt reciprocal rsqrt sinh smooth_l1 softmax
    softmax_cross_entropy softmin square sum tan topk
    """.split()
)
# the same, where a parameter has one of these values
CONDITIONAL = (
    ("Activation", "act_type", ("softrelu",)),
    ("LeakyReLU", "act_type", ("elu", "selu")),
)
# where inputs differ, all are cast to the wider dtype
WIDEST = tuple(
    """
    Concat Correlation _contrib_MultiProposal _contrib_PSROIPooling _contrib_Proposal
    _contrib_ROIAlign _contrib_box_iou _contrib_box_nms _contrib_edge_id
    _contrib_interleaved_matmul_encdec_qk _contrib_interleaved_matmul_encdec_valatt
    _contrib_interleaved_matmul_selfatt_qk _contrib_interleaved_matmul_selfatt_valatt _equal
    _greater _greater_equal _lesser _lesser_equal _logical_and _logical_or _logical_xor _maximum
    _minimum _mod _not_equal _random_pdf_dirichlet _random_pdf_exponential _random_pdf_gamma
    _random_pdf_generalized_negative_binomial _random_pdf_negative_binomial _random_pdf_normal
    _random_pdf_poisson _random_pdf_uniform _scatter_elemwise_div add_n batch_dot broadcast_add
    broadcast_div broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser
    broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor
    broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul broadcast_not_equal
    broadcast_sub dot elemwise_add elemwise_div elemwise_mul elemwise_sub stack where
    """.split()
)


class Policy(NamedTuple):
    """What mixed precision does to each operator; see `policy`. Names are the records' own."""

    target: str
    low: frozenset[str]
    full: frozenset[str]
    conditional: tuple[tuple[str, str, tuple[str, ...]], ...]
    widest: frozenset[str]

    def rule(self, op: Operator, attrs: dict[str, Any]) -> str | None:
        """The dtype in which a call computes: the target, "float32", "widest" of its inputs'; None:
        any. Of a front the most careful one of what it stands for. attrs: complete."""
        name = op.name
        if name in self.low:
            return self.target
        if name in self.full:
            return "float32"
        for listed, parameter, values in self.conditional:
            if listed == name and str(attrs[parameter]) in values:
                return "float32"
        if name in self.widest:
            return "widest"
        if not op.has(Front):
            return None
        rules = [self.rule(o, a) for o, a in hooks.get("operators of a front")(op, attrs)]
        return next((r for r in ("float32", self.target, "widest") if r in rules), None)

    def casts(
        self, op: Operator, attrs: dict[str, Any], dtypes: Sequence[str]
    ) -> list[str | None] | None:
        """The dtype to which each input of a call is cast, None: it stays; None in place of the
        list: all stay. Only float32 and the target dtype are ever cast, and no input that the
        operator writes."""
        rule = self.rule(op, attrs)
        if rule is None or (rule == "widest" and "float32" not in dtypes):
            return None
        dtype = "float32" if rule == "widest" else rule
        written = op.mutates if isinstance(op.mutates, tuple) else ()
        names = op.names_in(attrs, len(dtypes))
        found = [
            dtype if d != dtype and d in ("float32", self.target) and n not in written else None
            for d, n in zip(dtypes, names)
        ]
        return found if any(found) else None


def policy(
    target: Any = "float16",
    low: Sequence[str] | None = None,
    conditional: Sequence[tuple] | None = None,
    full: Sequence[str] | None = None,
) -> Policy:
    """The policy for a target dtype; lists of operator names, or of (operator, parameter, values),
    replace the ones above. Raises InvalidType, InvalidValue."""
    target = dtype_name(target)
    if target not in TARGETS:
        raise InvalidType(f"amp: target_dtype must be one of {', '.join(TARGETS)}, got {target!r}")
    chosen = Policy(
        target,
        _records("target_precision_ops", LOW if low is None else low),
        _records("fp32_ops", FULL if full is None else full),
        tuple(
            (next(iter(_records("conditional_fp32_ops", [name]))), p, tuple(map(str, values)))
            for name, p, values in (CONDITIONAL if conditional is None else conditional)
        ),
        frozenset(WIDEST),
    )
    if low is None:
        chosen = chosen._replace(low=chosen.low - chosen.full)
    elif full is None:
        chosen = chosen._replace(full=chosen.full - chosen.low)
    both = chosen.low & chosen.full
    if both:
        raise InvalidValue(
            f"amp: {', '.join(sorted(both))} must not be both in target_precision_ops and fp32_ops"
        )
    return chosen._replace(widest=chosen.widest - chosen.low - chosen.full)


def _records(what: str, names: Iterable[str]) -> frozenset[str]:
    found = set()
    for name in names:
        if name not in REGISTRY:
            rule = f"amp: {what}: there is no operator {name!r}"
            raise InvalidValue(compose(rule, fix=did_you_mean(str(name), REGISTRY)))
        found.add(REGISTRY[name].name)
    return frozenset(found)


# ---- the policy in force -------------------------------------------------------------------------


class _Force(threading.local):
    """The policy of this thread; UNSET: that of the process."""

    policy: Any = "unset"
    number: int | None = None  # the policy's; None: unset

    def __init__(self) -> None:
        self.outer: list[tuple[Any, int | None]] = []  # what each `with` covers


_thread = _Force()
_process: Policy | None = None
_process_number = 0
_scaler: Any = None
_numbers: dict[Policy, int] = {}
_n_open, _n_scopes = 0, 0  # scopes in all threads; those with a policy
_lock = threading.Lock()
used = False  # is there a policy anywhere? Else calls do not ask


def active() -> Policy | None:
    """The policy by which calls of this thread cast their inputs."""
    found = _thread.policy
    return _process if found == "unset" else found


def number() -> int:
    """A number for the policy in force, 0 for none: what was made under another one is not
    used."""
    found = _thread.number if _n_open else None  # asked by each call: a thread's own is slow
    return _process_number if found is None else found


def _number(chosen: Any) -> int:
    return 0 if chosen is None else _numbers.setdefault(chosen, len(_numbers) + 1)


def set_default(chosen: Policy | None, scaler: Any = None) -> None:
    """The policy of all threads that set none of their own. scaler: its loss_scale multiplies the
    grad_scale of losses that are `scaled`."""
    global _process, _process_number, _scaler, used
    with _lock:
        _process, _process_number, _scaler = chosen, _number(chosen), scaler
        used = chosen is not None or _n_scopes > 0


def loss_scale() -> float:
    """By what losses that are `scaled` (traits.LossLayer) multiply their gradients."""
    return 1.0 if _scaler is None or active() is None else _scaler.loss_scale


class forced:
    """Scope in which a policy, or None, is in force in this thread."""

    __slots__ = ("_chosen",)

    def __init__(self, chosen: Policy | None):
        self._chosen = chosen

    def __enter__(self):
        self._count(1)
        _thread.outer.append((_thread.policy, _thread.number))
        _thread.policy, _thread.number = self._chosen, _number(self._chosen)
        return self

    def __exit__(self, *error):
        _thread.policy, _thread.number = _thread.outer.pop()
        self._count(-1)

    def _count(self, change: int) -> None:
        global _n_open, _n_scopes, used
        with _lock:
            _n_open += change
            if self._chosen is not None:
                _n_scopes += change
                used = _process is not None or _n_scopes > 0
