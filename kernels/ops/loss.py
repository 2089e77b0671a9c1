"""Loss layers (their gradient ignores the head gradient) and softmax_cross_entropy."""

from __future__ import annotations

from math import prod

from ...engine.error import DTypeError, OperatorError, ShapeError
from ..record import FLOATS, Param, Type, ints, operator, same_type, sample, uniform, values
from ..scalar import as_float, truncated
from ..traits import (
    Decomposition,
    LossLayer,
)
from .softmax import log_softmax, softmax

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
    traits=(LossLayer(when=lambda out_grad, **_: not out_grad, scaled=True),),
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
        dtype = "float64" if y.dtype == "float64" else "float32"  # labels may be int32
        number = F.sum(F.Cast(ignored, dtype=dtype), axis=(0, 1))
        count = F._rminus_scalar(number, scalar=as_float(n * positions))
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
    traits=(Decomposition(_softmax_output_grad_body),),
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
    traits=(LossLayer(),),
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
        grad=grad,
        traits=(*([Decomposition(body)] if body else []), LossLayer(scaled=True)),
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
    "LogisticRegressionOutput",
    "sigmoid of data, with the gradient of the cross entropy with label.",
    lambda xp, x, label, **_: 1 / (1 + xp.exp(-x)),
    lambda F, d: d,
    lambda F, x, label, **_: [F.sigmoid(x)],
)
_regression(
    "MAERegressionOutput",
    "data, with the gradient of the absolute error to label (-1 where they are equal).",
    lambda xp, x, label, **_: x,
    lambda F, d: (d > 0) * 2.0 - 1.0,
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
    traits=(LossLayer(),),
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
    if x.dtype not in FLOATS:
        raise DTypeError("softmax_cross_entropy", f"data must be floats, got {x.dtype}")
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
    traits=(Decomposition(_cross_entropy_body),),
    grad=_cross_entropy_grad,
    samples=(sample((4, 3), ints((4,), 0, 3)),),
    doc="Sum over the batch of -log softmax(data)[label], shape (1,).",
)
