"""Loss layers (their gradient ignores the head gradient), softmax_cross_entropy, and connectionist
temporal loss."""

from __future__ import annotations

from math import prod

from ...engine.error import OperatorError, ShapeError
from ..compose import vjp
from ..record import FLOATS, Param, Type, ints, operator, same_type, sample, uniform, values
from ..scalar import truncated
from .activation import log_softmax, softmax

_SCALE = Param("grad_scale", "float", 1.0)
_NORMALIZATION = Param("normalization", ("batch", "null", "valid"), "null")


# SoftmaxOutput


def _classes_view(shape, multi_output, preserve_shape):
    """data as (examples, classes, positions) and the softmax axis of that view."""
    if multi_output:
        return shape[0], shape[1], prod(shape[2:])
    if preserve_shape:
        return prod(shape[:-1]), shape[-1], 1
    return shape[0], prod(shape[1:]), 1


def _label_shape(shape, multi_output):
    return (shape[0], *shape[2:]) if multi_output else shape[:-1]


def _softmax_output_infer(ins, multi_output, preserve_shape, smooth_alpha, **_):
    x, label = ins[0], ins[1]
    op = "SoftmaxOutput"
    if len(x.shape) < 2:
        raise ShapeError(op, f"data must have at least 2 dimensions, got {x.shape}")
    if not 0 <= smooth_alpha <= 1:
        raise OperatorError(op, f"smooth_alpha must be in [0, 1], got {smooth_alpha}")
    n, _, positions = _classes_view(x.shape, multi_output, preserve_shape)
    want = _label_shape(x.shape, multi_output)
    flat = (n, positions) if multi_output else (n,)
    with_one = (n, 1, *x.shape[2:]) if multi_output else want
    if label.shape not in (x.shape, want, flat, with_one):
        raise ShapeError(
            op,
            f"label must have shape {want} (class numbers) or {x.shape} (probabilities), "
            f"got data {x.shape} and label {label.shape}",
            fix=(
                None
                if multi_output or len(x.shape) == 2
                else (
                    "set multi_output=True (classes on axis 1) or preserve_shape=True (classes on"
                    " the last axis)"
                )
            ),
        )
    return [x]


def _softmax_output_fill(ins, multi_output, **_):
    if ins[0] is not None and ins[1] is None:
        return [ins[0], Type(_label_shape(ins[0].shape, multi_output), ins[0].dtype)]
    return list(ins)


def _softmax_output_ref(xp, x, label, *, multi_output, preserve_shape, **_):
    view = _classes_view(x.shape, multi_output, preserve_shape)
    return softmax(xp, x.reshape(view), 1).reshape(x.shape)


def _softmax_output_grad(F, dys, xs, ys, out_grad, **attrs):
    g = F._softmax_output_grad(ys[0], xs[1], **attrs)
    return [g * dys[0] if out_grad else g, None]


_SOFTMAX_OUTPUT = (
    _SCALE,
    Param("ignore_label", "float", -1.0),
    Param("multi_output", "bool", False),
    Param("use_ignore", "bool", False),
    Param("preserve_shape", "bool", False),
    _NORMALIZATION,
    Param("smooth_alpha", "float", 0.0),
)

operator(
    "SoftmaxOutput",
    aliases=("Softmax",),
    inputs=("data", "label"),
    params=(*_SOFTMAX_OUTPUT[:-1], Param("out_grad", "bool", False), _SOFTMAX_OUTPUT[-1]),
    infer=_softmax_output_infer,
    fill=_softmax_output_fill,
    ref=_softmax_output_ref,
    grad=_softmax_output_grad,
    no_head_grad=lambda out_grad, **_: not out_grad,
    samples=(
        sample((4, 3), ints((4,), 0, 3)),
        sample(
            (4, 3), values([0, -1, 2, 1]), use_ignore=True, normalization="valid", grad_scale=2.0
        ),
        sample((4, 3), ints((4,), 0, 3), normalization="batch", smooth_alpha=0.1),
        sample((2, 3, 4), ints((2, 4), 0, 3), multi_output=True, normalization="batch"),
        sample(
            (2, 3, 4),
            values([[0, 1, -1, 2], [1, 1, 2, 0]]),
            multi_output=True,
            use_ignore=True,
            normalization="valid",
        ),
        sample((2, 3, 2, 2), ints((2, 2, 2), 0, 3), multi_output=True),
        sample((2, 3, 4), ints((2, 3), 0, 4), preserve_shape=True, normalization="batch"),
        sample((4, 3), uniform((4, 3), 0, 1), grad_scale=2.0),
    ),
    doc=(
        "softmax of data whose gradient is (output - target) * grad_scale, whatever the head"
        " gradient (out_grad=True multiplies by it). label holds class numbers or, with data's"
        " shape, probabilities. normalization divides by the batch size or by the number of valid"
        " labels; labels equal to ignore_label count for nothing with use_ignore; smooth_alpha is"
        " spread over the other classes (not with multi_output, as in MXNet)."
    ),
)


def _softmax_output_grad_ref(
    xp,
    y,
    label,
    *,
    grad_scale,
    ignore_label,
    multi_output,
    use_ignore,
    preserve_shape,
    normalization,
    smooth_alpha,
):
    if label.shape == y.shape:
        return (y - label) * grad_scale
    n, classes, positions = view = _classes_view(y.shape, multi_output, preserve_shape)
    label = label.reshape(-1)[: n * positions].reshape(n, 1, positions)
    here = xp.arange(classes)[:, None] == label.astype("int64")
    if multi_output:
        smooth_alpha = 0.0  # MXNet smooths the labels of matrices only
    rest = smooth_alpha / max(classes - 1, 1)
    g = y.reshape(view) - xp.where(here, 1 - smooth_alpha, rest if smooth_alpha else 0).astype(
        y.dtype
    )
    if use_ignore:
        g = xp.where(label == truncated(ignore_label), 0, g)
    scale = grad_scale
    if normalization == "valid":
        scale = scale / xp.maximum((label != truncated(ignore_label)).sum(), 1)
    else:
        scale = (
            scale
            / max(positions if multi_output else 1, 1)
            / (max(n, 1) if normalization == "batch" else 1)
        )
    return (g * scale).reshape(y.shape)


def _softmax_output_grad_body(
    F,
    y,
    label,
    *,
    grad_scale,
    ignore_label,
    multi_output,
    use_ignore,
    preserve_shape,
    normalization,
    smooth_alpha,
):
    if 0 in y.shape or y.dtype not in FLOATS:
        return None
    if label.shape == y.shape:
        return [F._mul_scalar(F.elemwise_sub(y, label), scalar=grad_scale)]
    n, classes, positions = view = _classes_view(y.shape, multi_output, preserve_shape)
    if prod(label.shape) != n * positions:
        return None
    rest = 0.0 if multi_output else smooth_alpha / max(classes - 1, 1)
    on = 1.0 if multi_output else 1 - smooth_alpha
    label = F.reshape_to(label, shape=(n, positions))
    hot = F.one_hot(label, depth=classes, on_value=on, off_value=rest, dtype=y.dtype)
    if positions == 1:
        hot = F.reshape_to(hot, shape=view)
    else:
        hot = F.transpose(hot, axes=(0, 2, 1))
    g = F.elemwise_sub(F.reshape_to(y, shape=view), hot)
    ignored = F._equal_scalar(label, scalar=truncated(ignore_label))
    if use_ignore:
        where = F.broadcast_to(F.reshape_to(ignored, shape=(n, 1, positions)), shape=view)
        g = F.where(where, F.zeros_like(g), g)
    if normalization == "valid":
        count = F._rminus_scalar(F.sum(ignored, axis=(0, 1)), scalar=float(n * positions))
        scale = F._rdiv_scalar(F._maximum_scalar(count, scalar=1.0), scalar=grad_scale)
        g = F.broadcast_mul(g, F.Cast(F.reshape_to(scale, shape=(1, 1, 1)), dtype=y.dtype))
    else:
        scale = grad_scale / max(positions if multi_output else 1, 1)
        g = F._mul_scalar(g, scalar=scale / (max(n, 1) if normalization == "batch" else 1))
    return [F.reshape_to(g, shape=y.shape)]


def _affine_in_output(F, dys, xs, ys, **attrs):
    """The operator is w * (output - target) with w and target from the label: its transpose is w *
    dy."""
    zeros = F._zeros(shape=xs[0].shape, dtype=xs[0].dtype)
    return [
        F._softmax_output_grad(dys[0], xs[1], **attrs)
        - F._softmax_output_grad(zeros, xs[1], **attrs),
        None,
    ]


def _softmax_output_grad_infer(ins, **attrs):
    if len(ins[0].shape) < 2:
        raise ShapeError(
            "_softmax_output_grad", f"output must have at least 2 dimensions, got {ins[0].shape}"
        )
    return same_type(ins, **attrs)


operator(
    "_softmax_output_grad",
    inputs=("output", "label"),
    params=_SOFTMAX_OUTPUT,
    infer=_softmax_output_grad_infer,
    ref=_softmax_output_grad_ref,
    body=_softmax_output_grad_body,
    grad=_affine_in_output,
    samples=(
        sample((4, 3), ints((4,), 0, 3), smooth_alpha=0.2),
        sample(
            (2, 3, 4),
            ints((2, 4), -1, 3),
            multi_output=True,
            use_ignore=True,
            normalization="valid",
        ),
    ),
    doc="Gradient of SoftmaxOutput with respect to its data, from its output.",
)


# MakeLoss and regression outputs


def _make_loss_grad(F, dys, xs, ys, grad_scale, valid_thresh, normalization):
    x = xs[0]
    if normalization == "valid":
        n = F.sum(x > valid_thresh, axis=tuple(range(len(x.shape))), keepdims=True)
        scale = grad_scale / F.broadcast_maximum(n, F._ones(shape=n.shape, dtype=n.dtype))
        return [F.broadcast_mul(F._ones(shape=x.shape, dtype=x.dtype), scale)]
    n = x.shape[0] if x.shape and normalization == "batch" else 1
    value = grad_scale / max(n, 1)
    return [F._full(shape=x.shape, value=value, dtype=x.dtype)]


operator(
    "MakeLoss",
    params=(_SCALE, Param("valid_thresh", "float", 0.0), _NORMALIZATION),
    infer=same_type,
    ref=lambda xp, x, **_: x,
    grad=_make_loss_grad,
    no_head_grad=True,
    inplace=((0, 0),),
    samples=(
        sample((3, 4)),
        sample((3, 4), normalization="batch", grad_scale=2.0),
        sample((3, 4), normalization="valid", valid_thresh=0.2),
    ),
    doc=(
        "data itself, whose gradient is grad_scale, divided by the batch size or the number of"
        " elements above valid_thresh; any head gradient is ignored."
    ),
)


def _regression(name, doc, ref, difference, body=None):
    def infer(ins, grad_scale):
        x, label = ins
        if prod(label.shape) != prod(x.shape) or x.shape[:1] != label.shape[:1]:
            raise ShapeError(
                name,
                "label must have as many elements as data and the same first axis, got data "
                f"{x.shape} and label {label.shape}",
            )
        return [x]

    def fill(ins, grad_scale):
        x, label = ins
        if x is not None and label is None:
            label = Type(x.shape[:1] if len(x.shape) == 2 and x.shape[1] == 1 else x.shape, x.dtype)
        return [x, label]

    def grad(F, dys, xs, ys, grad_scale):
        y, label = ys[0], F.reshape_to(xs[1], shape=ys[0].shape)
        return [difference(F, y - label) * (grad_scale / max(prod(y.shape[1:]), 1)), None]

    operator(
        name,
        aliases=("_sparse_" + name,),
        inputs=("data", "label"),
        params=(_SCALE,),
        infer=infer,
        fill=fill,
        ref=ref,
        body=body,
        grad=grad,
        no_head_grad=True,
        inplace=((0, 0),),
        samples=(sample((3, 4), (3, 4)), sample((3, 1), (3,), grad_scale=2.0)),
        doc=doc
        + " The gradient ignores the head gradient; it is times grad_scale / number of outputs of"
        " an example.",
    )


_regression(
    "LinearRegressionOutput",
    "data, with the gradient of half the squared error to label.",
    lambda xp, x, label, **_: x,
    lambda F, d: d,
)
_regression(
    "MAERegressionOutput",
    "data, with the gradient of the absolute error to label (-1 where they are equal).",
    lambda xp, x, label, **_: x,
    lambda F, d: (d > 0) * 2.0 - 1.0,
)
_regression(
    "LogisticRegressionOutput",
    "sigmoid of data, with the gradient of the cross entropy with label.",
    lambda xp, x, label, **_: 1 / (1 + xp.exp(-x)),
    lambda F, d: d,
    lambda F, x, label, **_: [F.sigmoid(x)],
)


def _svm_infer(ins, **_):
    x, label = ins
    if len(x.shape) != 2 or label.shape != x.shape[:1]:
        raise ShapeError(
            "SVMOutput",
            f"data must be (batch, classes) and label (batch,), got data {x.shape} and label "
            f"{label.shape}",
        )
    return [x]


def _svm_grad(F, dys, xs, ys, margin, regularization_coefficient, use_linear):
    y = ys[0]
    sign = F.one_hot(xs[1], depth=y.shape[1], on_value=1.0, off_value=-1.0, dtype=y.dtype)
    short = margin - sign * y
    loss = short > 0
    pull = loss if use_linear else loss * short * 2.0
    return [sign * pull * -regularization_coefficient, None]


operator(
    "SVMOutput",
    inputs=("data", "label"),
    infer=_svm_infer,
    no_head_grad=True,
    inplace=((0, 0),),
    params=(
        Param("margin", "float", 1.0),
        Param("regularization_coefficient", "float", 1.0),
        Param("use_linear", "bool", False),
    ),
    fill=lambda ins, **_: [ins[0], ins[1] or ins[0] and Type(ins[0].shape[:1], ins[0].dtype)],
    ref=lambda xp, x, label, **_: x,
    grad=_svm_grad,
    samples=(
        sample((3, 4), ints((3,), 0, 4)),
        sample((3, 4), ints((3,), 0, 4), use_linear=True),
        sample((3, 4), ints((3,), 0, 4), margin=0.5, regularization_coefficient=2.0),
    ),
    doc=(
        "data, with the gradient of the one-against-all hinge loss: squared, or with use_linear"
        " plain."
    ),
)


# softmax_cross_entropy


def _cross_entropy_infer(ins):
    x, label = ins
    if len(x.shape) != 2 or label.shape != x.shape[:1]:
        raise ShapeError(
            "softmax_cross_entropy",
            f"data must be (batch, classes) and label (batch,), got data {x.shape} "
            f"and label {label.shape}",
        )
    return [Type((1,), x.dtype)]


def _cross_entropy_ref(xp, x, label):
    index = label.astype("int64")
    picked = log_softmax(xp, x, 1)[xp.arange(x.shape[0]), xp.clip(index, 0, x.shape[1] - 1)]
    return -picked.sum(keepdims=True)


def _cross_entropy_body(F, x, label):
    if 0 in x.shape:
        return None
    picked = F.pick(F.log_softmax(x, axis=1), label, axis=1, mode="clip")
    return [F.negative(F.sum(picked, axis=(0,)))]


def _cross_entropy_grad(F, dys, xs, ys):
    x, label = xs
    target = F.one_hot(label, depth=x.shape[1], dtype=x.dtype)
    return [
        F.broadcast_mul(F.softmax(x, axis=-1) - target, F.reshape_to(dys[0], shape=(1, 1))),
        None,
    ]


operator(
    "softmax_cross_entropy",
    inputs=("data", "label"),
    infer=_cross_entropy_infer,
    ref=_cross_entropy_ref,
    body=_cross_entropy_body,
    grad=_cross_entropy_grad,
    samples=(sample((4, 3), ints((4,), 0, 3)),),
    doc="Sum over the batch of -log softmax(data)[label], shape (1,).",
)


# CTCLoss

_NEVER = -1e30  # log of an impossible event: large, yet differences stay finite


def _ctc_inputs(use_data_lengths, use_label_lengths, **_):
    return (
        ("data", "label")
        + (("data_lengths",) if use_data_lengths else ())
        + (("label_lengths",) if use_label_lengths else ())
    )


def _ctc_infer(ins, use_data_lengths, use_label_lengths, blank_label):
    x, label = ins[0], ins[1]
    if len(x.shape) != 3 or len(label.shape) != 2 or label.shape[0] != x.shape[1]:
        raise ShapeError(
            "CTCLoss",
            "data must be (time, batch, classes) and label (batch, length), got data "
            f"{x.shape} and label {label.shape}",
            fix=(
                "transpose data: its first axis is time"
                if len(x.shape) == 3 and label.shape[:1] == x.shape[:1]
                else None
            ),
        )
    for t, name in zip(ins[2:], _ctc_inputs(use_data_lengths, use_label_lengths)[2:]):
        if t.shape != (x.shape[1],):
            raise ShapeError(
                "CTCLoss", f"{name} must have shape (batch,) = ({x.shape[1]},), got {t.shape}"
            )
    if x.shape[2] < 2:
        raise ShapeError(
            "CTCLoss", f"data must have at least 2 classes (one is blank), got {x.shape}"
        )
    return [Type((x.shape[1],), x.dtype)]


class _Lattice:
    """The extended labels (blank, l1, blank, l2, ..., blank) of a batch and which of its states
    count."""

    def __init__(self, xp, x, label, lengths, use_data_lengths, use_label_lengths, blank_label):
        n_steps, n, classes = x.shape
        lengths = list(lengths)
        self.steps = (
            xp.minimum(lengths.pop(0).astype("int64"), n_steps)
            if use_data_lengths
            else xp.full(n, n_steps)
        )
        label = label.astype("int64")
        blank, padding = (0, 0) if blank_label == "first" else (classes - 1, -1)
        if use_label_lengths:
            count = xp.minimum(lengths.pop(0).astype("int64"), label.shape[1])
        else:
            ended = xp.cumsum(label == padding, axis=1) > 0
            count = label.shape[1] - ended.sum(axis=1)
        inside = xp.arange(label.shape[1]) < count[:, None]
        self.states = xp.full((n, 2 * label.shape[1] + 1), blank)
        self.states[:, 1::2] = xp.where(inside, xp.clip(label, 0, classes - 1), blank)
        self.n_states = 2 * count + 1
        number = xp.arange(self.states.shape[1])
        self.valid = number < self.n_states[:, None]
        before = xp.concatenate([xp.full((n, 2), blank), self.states], axis=1)[:, :-2]
        self.skip = (self.states != blank) & (self.states != before) & (number >= 2)
        self.last = self.valid & (number >= self.n_states[:, None] - 2)
        self.running = xp.arange(n_steps)[:, None] < self.steps


def _log_sum(xp, *terms):
    top = terms[0]
    for t in terms[1:]:
        top = xp.maximum(top, t)
    return top + xp.log(sum(xp.exp(t - top) for t in terms))


def _shifted(xp, a, by):
    """a moved along its last axis, with impossible events moving in."""
    gap = xp.full((*a.shape[:-1], min(abs(by), a.shape[-1])), _NEVER, dtype=a.dtype)
    return (
        xp.concatenate([gap, a[..., :-by]], axis=-1)
        if by > 0
        else xp.concatenate([a[..., -by:], gap], axis=-1)
    )


def _ctc_forward(xp, x, lattice):
    """log P(prefix ends in state s at time t), (time, batch, states); emissions; log likelihood
    (batch,)."""
    logp = log_softmax(xp, x.astype("float64"), 2)
    index = xp.broadcast_to(lattice.states[None], (x.shape[0], *lattice.states.shape))
    emit = xp.take_along_axis(logp, index, axis=2)
    alpha = xp.full(emit.shape, _NEVER, dtype=emit.dtype)
    start = (xp.arange(alpha.shape[2]) < 2) & lattice.valid
    a = xp.full(emit.shape[1:], _NEVER, dtype=emit.dtype)
    for t in range(x.shape[0]):
        if t == 0:
            new = xp.where(start, emit[0], _NEVER)
        else:
            skip = xp.where(lattice.skip, _shifted(xp, a, 2), _NEVER)
            new = xp.maximum(_log_sum(xp, a, _shifted(xp, a, 1), skip) + emit[t], _NEVER)
        a = xp.where(lattice.running[t][:, None] & lattice.valid, new, a if t else _NEVER)
        alpha[t] = a
    ends = xp.where(lattice.last, a, _NEVER)
    top = ends.max(axis=1, keepdims=True)
    return alpha, emit, logp, top[:, 0] + xp.log(xp.exp(ends - top).sum(axis=1))


def _ctc_ref(xp, x, label, *lengths, **attrs):
    if x.size == 0:
        return xp.zeros(x.shape[1])
    return -_ctc_forward(xp, x, _Lattice(xp, x, label, lengths, **attrs))[3]


def _ctc_grad_ref(xp, x, label, *lengths, **attrs):
    """softmax - P(class at t | labels), 0 after the end of an example."""
    if x.size == 0:
        return xp.zeros(x.shape)
    lattice = _Lattice(xp, x, label, lengths, **attrs)
    alpha, emit, logp, total = _ctc_forward(xp, x, lattice)
    b = None
    posterior = xp.zeros(x.shape)
    rows = xp.arange(x.shape[1])[:, None]
    skip = xp.concatenate([lattice.skip, xp.zeros((x.shape[1], 2), bool)], axis=1)[:, 2:]
    for t in reversed(range(x.shape[0])):
        ends = xp.where(lattice.last, emit[t], _NEVER)
        if b is None:
            b = ends
        else:
            far = xp.where(skip, _shifted(xp, b, -2), _NEVER)
            moved = xp.maximum(_log_sum(xp, b, _shifted(xp, b, -1), far) + emit[t], _NEVER)
            b = xp.where((lattice.steps == t + 1)[:, None], ends, moved)
        weight = xp.exp(xp.minimum(alpha[t] + b - emit[t] - total[:, None], 0))
        xp.add.at(posterior[t], (rows, lattice.states), xp.where(lattice.valid, weight, 0))
    return xp.where(lattice.running[:, :, None], xp.exp(logp) - posterior, 0)


_CTC_PARAMS = (
    Param("use_data_lengths", "bool", False),
    Param("use_label_lengths", "bool", False),
    Param("blank_label", ("first", "last"), "first"),
)


def _ctc_fill(ins, use_data_lengths, use_label_lengths, **_):
    if ins[0] is None:
        return list(ins)
    return [*ins[:2], *(t or Type((ins[0].shape[1],), "float32") for t in ins[2:])]


def _ctc_loss_grad(F, dys, xs, ys, **attrs):
    dy = F.reshape_to(dys[0], shape=(1, dys[0].shape[0], 1))
    return [F.broadcast_mul(F._ctc_grad(*xs, **attrs), dy)] + [None] * (len(xs) - 1)


_CTC_SAMPLES: tuple = (
    ((5, 2, 4), values([[1, 2], [3, 0]]), {}),
    ((6, 2, 4), values([[1, 1, 2], [3, 0, 0]]), {}),
    ((5, 2, 4), values([[0, 2], [1, -1]]), {"blank_label": "last"}),
)
_CTC_ALL = tuple(sample(x, label, **kw) for x, label, kw in _CTC_SAMPLES) + (
    sample(
        (5, 2, 4),
        values([[1, 2], [3, 2]]),
        values([5, 3]),
        values([2, 1]),
        use_data_lengths=True,
        use_label_lengths=True,
    ),
    sample(
        (4, 2, 3),
        values([[1, 0], [0, 0]]),
        values([2, 1]),
        use_label_lengths=True,
        blank_label="last",
    ),
    sample((4, 2, 3), values([[1, 2], [2, 0]]), values([4, 2]), use_data_lengths=True),
)

operator(
    "CTCLoss",
    aliases=("_contrib_CTCLoss", "_contrib_ctc_loss", "ctc_loss"),
    output_names=("output0",),
    inputs=("data", "label", "data_lengths", "label_lengths"),
    input_names=_ctc_inputs,
    params=_CTC_PARAMS,
    infer=_ctc_infer,
    fill=_ctc_fill,
    ref=_ctc_ref,
    grad=_ctc_loss_grad,
    samples=_CTC_ALL,
    doc=(
        "-log P(label | softmax(data)) for each example. data (time, batch, classes), label (batch,"
        " length). The blank class is 0 (first; labels are padded with 0) or the last one (labels"
        " are padded with -1), unless label_lengths says where labels end. Source: Graves et al."
        " 2006."
    ),
)


def _ctc_composed(F, x, states, skip, start, last, running):
    """CTCLoss in simple operators over the constants of a lattice; differentiable to any order."""
    n_steps = x.shape[0]
    logp = F.log_softmax(x, axis=-1)
    n, s = states.shape
    flat = F.reshape_to(
        F.one_hot(states, depth=x.shape[2], dtype=x.dtype), shape=(n, s, x.shape[2])
    )
    row = lambda a, t: F.reshape_to(
        F.slice_axis(a, axis=0, begin=t, end=t + 1), shape=tuple(a.shape[1:])
    )

    def shift(a, by):
        gap = F._full(shape=(n, by), value=_NEVER, dtype=x.dtype)
        return (
            F.concat(gap, F.slice_axis(a, axis=1, begin=0, end=s - by), dim=1)
            if s > by
            else F._full(shape=(n, s), value=_NEVER, dtype=x.dtype)
        )

    def log_sum(*terms):
        stacked = F.stack(*terms, axis=0)
        # the largest of each place cancels in the derivative: it only keeps exp in range
        top = F.BlockGrad(F.max(stacked, axis=0))
        moved = F.exp(F.broadcast_sub(stacked, F.expand_dims(top, axis=0)))
        return top + F.log(F.sum(moved, axis=0))

    a = None
    for t in range(n_steps):
        emit = F.reshape_to(F.batch_dot(flat, F.expand_dims(row(logp, t), axis=2)), shape=(n, s))
        if a is None:
            a = emit + start
            continue
        new = log_sum(a, shift(a, 1), shift(a, 2) + skip) + emit
        on = F.reshape_to(row(running, t), shape=(n, 1))
        a = F.broadcast_mul(new, on) + F.broadcast_mul(a, 1.0 - on)
    ends = a + last
    top = F.BlockGrad(F.max(ends, axis=1, keepdims=True))
    total = F.log(F.sum(F.exp(F.broadcast_sub(ends, top)), axis=1))
    return -(total + F.reshape_to(top, shape=(n,)))


def _ctc_grad_grad(F, dys, xs, ys, **attrs):
    states, *masks = F._ctc_lattice(*xs, **attrs)

    def gradient(T, x, *constants):
        ones = T._ones(shape=(x.shape[1],), dtype=x.dtype)
        return vjp(T, _ctc_composed, [x, *constants], [ones])[0]

    return vjp(F, gradient, [xs[0], states, *masks], dys)[:1] + [None] * (len(xs) - 1)


operator(
    "_ctc_grad",
    inputs=("data", "label", "data_lengths", "label_lengths"),
    input_names=_ctc_inputs,
    params=_CTC_PARAMS,
    infer=lambda ins, **attrs: [_ctc_infer(ins, **attrs) and ins[0]],
    fill=_ctc_fill,
    ref=_ctc_grad_ref,
    grad=_ctc_grad_grad,
    samples=_CTC_ALL,
    doc="Gradient of the sum of CTCLoss over the batch with respect to data.",
)


def _ctc_lattice_infer(ins, **attrs):
    _ctc_infer(ins, **attrs)
    (n_steps, n, _), dtype = ins[0].shape, ins[0].dtype
    state = Type((n, 2 * ins[1].shape[1] + 1), dtype)
    return [state, state, state, state, Type((n_steps, n), dtype)]


def _ctc_lattice_ref(xp, x, label, *lengths, **attrs):
    lattice = _Lattice(xp, x, label, lengths, **attrs)
    log = lambda possible: xp.where(possible, 0.0, _NEVER)
    start = (xp.arange(lattice.states.shape[1]) < 2) & lattice.valid
    return lattice.states, log(lattice.skip), log(start), log(lattice.last), lattice.running


operator(
    "_ctc_lattice",
    inputs=("data", "label", "data_lengths", "label_lengths"),
    input_names=_ctc_inputs,
    params=_CTC_PARAMS,
    n_outputs=5,
    output_names=("states", "skip", "start", "last", "running"),
    infer=_ctc_lattice_infer,
    fill=_ctc_fill,
    ref=_ctc_lattice_ref,
    samples=_CTC_ALL[:1] + _CTC_ALL[3:4],
    doc=(
        "The constants of CTCLoss: extended labels (batch, 2 length + 1) and the log weights 0 or"
        " -1e30 of skipping a blank, starting and ending in a state; 1 where (time, batch) is"
        " inside its example."
    ),
)
