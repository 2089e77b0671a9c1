"""Caffe's layers as operators of plait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import symbol
from ...engine.error import compose
from ...symbol import Symbol
from .network import Entry, Network, Normalized, layer
from .schema import CaffeError

F: Any = symbol  # its functions take inputs in sequences, too


def refuse(entry: Entry, rule: str, fix: str | None = None) -> CaffeError:
    return CaffeError(compose(f"caffe: {entry.name}: {rule}", fix=fix))


def sizes(entry: Entry, p: Any, name: str, default: int, n: int) -> tuple[int, ...]:
    """A size for each spatial axis: name_h and name_w, one for all, or one for each."""
    short = name.removesuffix("_size")
    if p.HasField(f"{short}_h") or p.HasField(f"{short}_w"):
        return getattr(p, f"{short}_h"), getattr(p, f"{short}_w")
    given = getattr(p, name)
    given = list(given) if hasattr(given, "__len__") else [given] if p.HasField(name) else []
    given = given or [default]
    if len(given) not in (1, n):
        raise refuse(entry, f"{name} must have 1 or {n} numbers, got {given}")
    return tuple(given) * (n if len(given) == 1 else 1)


# ---- inputs, and what only training has ----------------------------------------------------------


@layer("Input")
def _input(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    shapes = [tuple(s.dim) for s in e.proto.input_param.shape]
    shapes = shapes * len(e.tops) if len(shapes) == 1 else shapes or [()] * len(e.tops)
    return [net.add_input(top, shape) for top, shape in zip(e.tops, shapes)]


@layer("Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "DummyData", "AnnotatedData")
def _data(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    return [net.add_input(top, ()) for top in e.tops]


@layer(
    "Accuracy", "Silence", "HDF5Output", "EuclideanLoss", "HingeLoss", "ContrastiveLoss",
    "InfogainLoss", "MultinomialLogisticLoss", "SigmoidCrossEntropyLoss", "MultiBoxLoss",
    "DetectionEvaluate",
)  # fmt: skip
def _nothing(net: Network, e: Entry, ins: list[Symbol]) -> None:
    return None


# ---- products ------------------------------------------------------------------------------------


def _convolution_attrs(net: Network, e: Entry, blobs: Sequence[np.ndarray]) -> dict[str, Any]:
    p = e.proto.convolution_param
    if p.axis != 1:
        raise refuse(e, f"axis must be 1, got {p.axis}")
    n = blobs[0].ndim - 2 if blobs else max(2, len(p.kernel_size))
    dilation = list(p.dilation) or [1]
    return {
        "num_filter": p.num_output,
        "kernel": sizes(e, p, "kernel_size", 0, n),
        "stride": sizes(e, p, "stride", 1, n),
        "pad": sizes(e, p, "pad", 0, n),
        "dilate": tuple(dilation) * (n if len(dilation) == 1 else 1),
        "num_group": p.group,
        "no_bias": not p.bias_term,
        "name": net.name(e),
    }


def _parameters(net: Network, e: Entry, blobs: Sequence[np.ndarray], n: int) -> list[Symbol]:
    """weight and, where n is 2, bias."""
    values: list[Any] = [*blobs, None, None][:2] if not blobs else list(blobs)
    if len(values) < n:
        raise refuse(e, f"the model has {len(values)} blobs, and the layer {n}")
    if n == 2 and values[1] is not None:
        values[1] = values[1].reshape(-1)
    return [net.variable(e, kind, v) for kind, v in zip(("weight", "bias"), values[:n])]


@layer("Convolution", "ConvolutionDepthwise", "DepthwiseConvolution")
def _convolution(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    blobs = net.blobs(e)
    if blobs and net.swaps(ins[0]):
        order = [2, 1, 0, *range(3, blobs[0].shape[1])]
        blobs[0] = blobs[0][:, order]
    attrs = _convolution_attrs(net, e, blobs)
    given = _parameters(net, e, blobs, 2 - attrs["no_bias"])
    return [F.Convolution(x, *given, **attrs) for x in ins]


@layer("Deconvolution")
def _deconvolution(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    blobs = net.blobs(e)
    attrs = _convolution_attrs(net, e, blobs)
    given = _parameters(net, e, blobs, 2 - attrs["no_bias"])
    return [F.Deconvolution(x, *given, **attrs) for x in ins]


@layer("InnerProduct")
def _inner_product(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    p, blobs, outs = e.proto.inner_product_param, net.blobs(e), []
    if blobs:
        weight = blobs[0].reshape(blobs[0].shape[-2:])
        blobs[0] = weight.T if p.transpose else weight
    given = _parameters(net, e, blobs, 1 + p.bias_term)
    for x in ins:
        flatten = p.axis == 1
        if not flatten:
            shape = net.shape(e, x)
            axis = p.axis % len(shape)
            x = F.reshape(x, shape=(*((0,) * axis), -1))
        x = F.FullyConnected(
            x, *given, num_hidden=p.num_output, no_bias=not p.bias_term, flatten=flatten,
            name=net.name(e),
        )  # fmt: skip
        outs.append(x)
    return outs


@layer("Embed")
def _embed(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, blobs = e.proto.embed_param, net.blobs(e)
    weight, *bias = _parameters(net, e, blobs, 1 + p.bias_term)
    out = F.Embedding(ins[0], weight, input_dim=p.input_dim, output_dim=p.num_output)
    return F.broadcast_add(out, F.reshape(bias[0], shape=(1, 1, -1))) if bias else out


# ---- pooling and normalization -------------------------------------------------------------------


@layer("Pooling")
def _pooling(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    """Windows are counted up; one that would begin outside the padded input is left out."""
    p, x = e.proto.pooling_param, ins[0]
    if p.pool > 1:
        raise refuse(e, "STOCHASTIC pooling draws its windows' elements: there is no such operator")
    kind = ("max", "avg")[p.pool]
    if p.global_pooling:
        return F.Pooling(x, pool_type=kind, global_pool=True, kernel=(1, 1), name=net.name(e))
    kernel, stride, pad = (
        sizes(e, p, name, default, 2)
        for name, default in (("kernel_size", 0), ("stride", 1), ("pad", 0))
    )
    out = F.Pooling(
        x, pool_type=kind, kernel=kernel, stride=stride, pad=pad, pooling_convention="full",
        name=net.name(e),
    )  # fmt: skip
    if not any(pad):
        return out
    for axis, (n, k, s, a) in enumerate(zip(net.shape(e, x)[2:], kernel, stride, pad), 2):
        count = -(-(n + 2 * a - k) // s) + 1
        if (count - 1) * s >= n + a:
            out = F.slice_axis(out, axis=axis, begin=0, end=count - 1)
    return out


@layer("LRN")
def _lrn(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.lrn_param, ins[0]
    if p.norm_region == 0:
        return F.LRN(x, alpha=p.alpha, beta=p.beta, knorm=p.k, nsize=p.local_size, name=net.name(e))
    size, pad = (p.local_size,) * 2, ((p.local_size - 1) // 2,) * 2
    mean = F.Pooling(F.square(x), pool_type="avg", kernel=size, pad=pad, stride=(1, 1))
    return x * (1.0 + p.alpha * mean) ** -p.beta


@layer("BatchNorm")
def _batch_norm(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    blobs, at = net.blobs(e), net.name(e)
    if blobs:
        factor = float(blobs[2].reshape(-1)[0]) if len(blobs) > 2 else 1.0
        factor = 1 / factor if factor else 0.0
        mean, var = (b.reshape(-1) * np.float32(factor) for b in blobs[:2])
        net.aux[f"{at}_moving_mean"], net.aux[f"{at}_moving_var"] = mean, var
        net.params[f"{at}_gamma"] = np.ones_like(mean)
        net.params[f"{at}_beta"] = np.zeros_like(mean)
    p = e.proto.batch_norm_param
    attrs = {"use_global_stats": True, "eps": p.eps, "name": at}
    if net.used_once(e):
        net.normalized[e.tops[0]] = Normalized(e, ins[0], attrs)
    return F.BatchNorm(ins[0], fix_gamma=True, **attrs)


def _along(net: Network, e: Entry, kind: str, value: Any, x: Symbol, axis: int, n: int) -> Symbol:
    """A parameter that lies along n axes of x from `axis` on, with ones for the others."""
    shape = net.shape(e, x)
    axis %= len(shape)
    own = shape[axis:] if n == -1 else shape[axis : axis + n]
    whole = (1,) * axis + own + (1,) * (len(shape) - axis - len(own))
    return net.variable(e, kind, None if value is None else value.reshape(whole), shape=whole)


@layer("Scale")
def _scale(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.scale_param, ins[0]
    normalized = net.normalized.get(e.bottoms[0])
    blobs = net.blobs(e) if len(ins) == 1 or p.bias_term else []
    if len(ins) == 1 and normalized is not None and (p.axis, p.num_axes) == (1, 1):
        at = net.name(normalized.entry)
        if blobs:
            net.params[f"{at}_gamma"] = blobs[0].reshape(-1)
            if p.bias_term:
                net.params[f"{at}_beta"] = blobs[1].reshape(-1)
        return F.BatchNorm(normalized.data, fix_gamma=False, **normalized.attrs)
    if len(ins) == 1:
        value = blobs.pop(0) if blobs else None
        gamma = _along(net, e, "gamma", value, x, p.axis, p.num_axes)
    else:
        gamma = _placed(net, e, ins[1], x, p.axis)
    out = F.broadcast_mul(x, gamma)
    if not p.bias_term:
        return out
    n = p.num_axes if len(ins) == 1 else len(net.shape(e, ins[1]))
    value = blobs.pop(0) if blobs else None
    return F.broadcast_add(out, _along(net, e, "beta", value, x, p.axis, n))


def _placed(net: Network, e: Entry, other: Symbol, x: Symbol, axis: int) -> Symbol:
    """A blob that lies along the axes of x from `axis` on."""
    shape, own = net.shape(e, x), net.shape(e, other)
    axis %= len(shape)
    whole = (1,) * axis + own + (1,) * (len(shape) - axis - len(own))
    return F.reshape(other, shape=whole)


@layer("Bias")
def _bias(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.bias_param, ins[0]
    if len(ins) == 2:
        return F.broadcast_add(x, _placed(net, e, ins[1], x, p.axis))
    blobs = net.blobs(e)
    value = blobs[0] if blobs else None
    return F.broadcast_add(x, _along(net, e, "beta", value, x, p.axis, p.num_axes))


@layer("MVN")
def _mvn(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.mvn_param, ins[0]
    axes = tuple(range(1 if p.across_channels else 2, len(net.shape(e, x))))
    x = F.broadcast_sub(x, F.mean(x, axis=axes, keepdims=True))
    if not p.normalize_variance:
        return x
    deviation = F.sqrt(F.mean(F.square(x), axis=axes, keepdims=True))
    return F.broadcast_div(x, deviation + p.eps)


@layer("Normalize")
def _normalize(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p = e.proto.norm_param
    mode = "instance" if p.across_spatial else "channel"
    out = F.L2Normalization(ins[0], mode=mode, eps=p.eps, name=net.name(e))
    blobs = net.blobs(e)
    shape = (1, 1 if p.channel_shared else -1, 1, 1)
    value = blobs[0].reshape(shape) if blobs else None
    known = value.shape if value is not None else (1, 1 if p.channel_shared else 0, 1, 1)
    return F.broadcast_mul(out, net.variable(e, "scale", value, shape=known))


# ---- element by element --------------------------------------------------------------------------


@layer("ReLU")
def _relu(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    slope = e.proto.relu_param.negative_slope
    if slope:
        return F.LeakyReLU(ins[0], act_type="leaky", slope=slope, name=net.name(e))
    return F.Activation(ins[0], act_type="relu", name=net.name(e))


@layer("PReLU")
def _prelu(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    blobs = net.blobs(e)
    gamma = net.variable(e, "gamma", blobs[0].reshape(-1) if blobs else None)
    return F.LeakyReLU(ins[0], gamma, act_type="prelu", name=net.name(e))


@layer("Power")
def _power(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p = e.proto.power_param
    inner = ins[0] * p.scale + p.shift
    return inner if p.power == 1 else inner**p.power


def _exponent(p: Any, x: Symbol) -> Symbol:
    inner = x * p.scale + p.shift
    return F.exp(inner if p.base == -1 else inner * float(np.log(p.base)))


def _logarithm(p: Any, x: Symbol) -> Symbol:
    found = F.log(x * p.scale + p.shift)
    return found if p.base == -1 else found / float(np.log(p.base))


ELEMENTWISE = {
    "Sigmoid": lambda p, x: F.sigmoid(x),
    "TanH": lambda p, x: F.tanh(x),
    "AbsVal": lambda p, x: F.abs(x),
    "BNLL": lambda p, x: F.Activation(x, act_type="softrelu"),
    "ELU": lambda p, x: F.LeakyReLU(x, act_type="elu", slope=p.alpha),
    "Exp": _exponent,
    "Log": _logarithm,
    "Threshold": lambda p, x: x > p.threshold,
    "Dropout": lambda p, x: F.Dropout(x, p=p.dropout_ratio),
}


def _elementwise(name: str, rule: Any) -> None:
    field = f"{name.lower()}_param"

    @layer(name)
    def convert(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
        return rule(getattr(e.proto, field, None), ins[0])


for _name, _rule in ELEMENTWISE.items():
    _elementwise(_name, _rule)


@layer("Eltwise")
def _eltwise(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p = e.proto.eltwise_param
    if p.coeff and (p.operation != 1 or len(p.coeff) != len(ins)):
        raise refuse(e, f"coeff must have a number for each of {len(ins)} summands")
    if p.operation == 1:
        ins = [x * c if c != 1 else x for x, c in zip(ins, list(p.coeff) or [1.0] * len(ins))]
    combine = (F.elemwise_mul, F.elemwise_add, F.broadcast_maximum)[p.operation]
    out = ins[0]
    for x in ins[1:]:
        out = combine(out, x)
    return out


# ---- shapes --------------------------------------------------------------------------------------


@layer("Split")
def _split(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    return ins * len(e.tops)


@layer("Flatten")
def _flatten(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.flatten_param, ins[0]
    if (p.axis, p.end_axis) == (1, -1):
        return F.Flatten(x, name=net.name(e))
    shape = net.shape(e, x)
    end = p.end_axis % len(shape)
    return F.reshape(x, shape=(*((0,) * (p.axis % len(shape))), -1, *shape[end + 1 :]))


@layer("Reshape")
def _reshape(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.reshape_param, ins[0]
    dims = list(p.shape.dim)
    if p.axis == 0 and p.num_axes == -1:
        return F.reshape(x, shape=tuple(dims), name=net.name(e))
    shape = net.shape(e, x)
    axis = p.axis if p.axis >= 0 else p.axis + len(shape) + 1
    end = len(shape) if p.num_axes == -1 else axis + p.num_axes
    dims = [shape[axis + i] if d == 0 else d for i, d in enumerate(dims)]
    return F.reshape(x, shape=(*((0,) * axis), *dims, *shape[end:]), name=net.name(e))


@layer("Concat")
def _concat(net: Network, e: Entry, ins: list[Symbol]) -> Symbol | None:
    p = e.proto.concat_param
    axis = p.concat_dim if p.HasField("concat_dim") else p.axis
    if all(b in net.constants for b in e.bottoms):
        net.constants[e.tops[0]] = np.concatenate([net.constants[b] for b in e.bottoms], axis)
        return None
    return F.concat(*ins, dim=axis, name=net.name(e))


@layer("Slice")
def _slice(net: Network, e: Entry, ins: list[Symbol]) -> list[Symbol]:
    p, x = e.proto.slice_param, ins[0]
    axis = p.slice_dim if p.HasField("slice_dim") else p.axis
    ends: list[int | None] = list(p.slice_point)
    if not ends:
        whole = net.shape(e, x)[axis]
        ends = [whole // len(e.tops) * (i + 1) for i in range(len(e.tops) - 1)]
    if len(ends) != len(e.tops) - 1:
        raise refuse(e, f"slice_point must have {len(e.tops) - 1} numbers, got {ends}")
    pairs = zip([0, *ends], [*ends, None])
    return [F.slice_axis(x, axis=axis, begin=a, end=b) for a, b in pairs]


@layer("Crop")
def _crop(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.crop_param, ins[0]
    like = net.shape(e, ins[1])
    axes = range(p.axis % len(like), len(like))
    offsets = list(p.offset) or [0]
    offsets = offsets * len(axes) if len(offsets) == 1 else offsets
    if len(offsets) != len(axes):
        raise refuse(e, f"offset must have 1 or {len(axes)} numbers, got {offsets}")
    for axis, offset in zip(axes, offsets):
        x = F.slice_axis(x, axis=axis, begin=offset, end=offset + like[axis])
    return x


@layer("Permute")
def _permute(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    order = list(e.proto.permute_param.order)
    n = max(4, len(order))
    axes = (*order, *(i for i in range(n) if i not in order))
    return F.transpose(ins[0], axes=axes, name=net.name(e))


@layer("Tile")
def _tile(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, n = e.proto.tile_param, len(net.shape(e, ins[0]))
    return F.tile(ins[0], reps=tuple(p.tiles if i == p.axis % n else 1 for i in range(n)))


# ---- reductions ----------------------------------------------------------------------------------


@layer("Softmax", "SoftmaxWithLoss")
def _softmax(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    return F.softmax(ins[0], axis=e.proto.softmax_param.axis, name=net.name(e))


@layer("Reduction")
def _reduction(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.reduction_param, ins[0]
    n = len(net.shape(e, x))
    x = {2: F.abs, 3: F.square}.get(p.operation, lambda a: a)(x)
    reduce = F.mean if p.operation == 4 else F.sum
    return reduce(x, axis=tuple(range(p.axis % n, n))) * p.coeff


@layer("ArgMax")
def _argmax(net: Network, e: Entry, ins: list[Symbol]) -> Symbol:
    p, x = e.proto.argmax_param, ins[0]
    if p.HasField("axis"):
        kind = "value" if p.out_max_val else "indices"
        return F.topk(x, axis=p.axis, k=p.top_k, ret_typ=kind)
    flat = F.Flatten(x)
    parts = [F.topk(flat, axis=1, k=p.top_k, ret_typ="indices")]
    if p.out_max_val:
        parts.append(F.topk(flat, axis=1, k=p.top_k, ret_typ="value"))
    return F.stack(*parts, axis=1)
