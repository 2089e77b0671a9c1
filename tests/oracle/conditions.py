"""What may be said of a call, and of where its results differ: the conditions of the table in
known/. Those of `when` take the call, those of `where` the call and the difference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def either(*conditions) -> Callable:
    return lambda *given: any(c(*given) for c in conditions)


def both(*conditions) -> Callable:
    return lambda *given: all(c(*given) for c in conditions)


# ---- the call: when ------------------------------------------------------------------------------


def nan(call) -> bool:
    """NaN among the inputs."""
    return any(np.isnan(a).any() for a in call.arrays if a.dtype.kind == "f")


def strange(call) -> bool:
    """inf or NaN among the inputs."""
    return not call.finite


def whole(call) -> bool:
    """The first input holds whole numbers."""
    return call.arrays[0].dtype.kind in "iu"


def of_type(dtype: str) -> Callable:
    return lambda call: dtype in call.dtypes


def has(*values, **attrs) -> Callable:
    """Attributes with these values: has(alpha=0)."""
    return lambda call: all(call.attrs.get(k) == v for k, v in attrs.items())


def given(*names) -> Callable:
    """These attributes are given, and not None."""
    return lambda call: all(call.attrs.get(n) is not None for n in names)


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


def negative_index(call) -> bool:
    """A negative number among the indices, the last input."""
    return bool((call.arrays[-1] < 0).any())


def no_such_class(call) -> bool:
    x, label = call.arrays[:2]
    return label.size > 0 and not ((label >= 0) & (label < x.shape[-1])).all()


def no_such_row(call) -> bool:
    """Indices (the second input) that the first axis has not."""
    n, index = len(call.arrays[0]), call.arrays[1]
    return bool(((index < 0) | (index >= n)).any())


def no_such_place(call) -> bool:
    """Indices of a scatter (the last input, one row for each axis) outside the shape."""
    index = call.arrays[-1].astype(np.int64)
    shape = np.array(call.attrs["shape"][: len(index)]).reshape(-1, *[1] * (index.ndim - 1))
    return bool(((index < -shape) | (index >= shape)).any())


def no_such_axis(*names) -> Callable:
    def when(call):
        n = max(a.ndim for a in call.arrays)
        values = [call.attrs.get(name) or () for name in names]
        axes = [a for v in values for a in (v if isinstance(v, (list, tuple)) else [v])]
        return any(not -n <= a < n for a in axes)

    return when


def uneven_heads(call) -> bool:
    """Sizes of interleaved attention that heads do not divide, or attention of other heads."""
    heads, name = call.attrs["heads"], call.ours
    first = call.arrays[0].shape
    if heads < 1:
        return True
    if "selfatt" in name:
        batch, uneven = first[1], first[2] % (3 * heads)
    elif "valatt" in name:
        batch, uneven = first[1], first[2] % (2 * heads)
    else:
        batch, second = first[1], call.arrays[1].shape
        uneven = first[2] % heads or second[2] != 2 * first[2] or second[1] != batch
    if "valatt" in name:
        return bool(uneven) or call.arrays[1].shape[0] != batch * heads
    return bool(uneven)


def other_channels(call) -> bool:
    """gamma has not the size of the axis that is normalised."""
    shape, axis = call.arrays[0].shape, call.attrs.get("axis", 1)
    return not -len(shape) <= axis < len(shape) or call.arrays[1].shape != (shape[axis],)


def uneven_psroi(call) -> bool:
    """Channels that are not output_dim * group_size^2."""
    attrs = call.attrs
    group = attrs.get("group_size") or attrs["pooled_size"]
    return call.arrays[0].shape[1] != attrs["output_dim"] * group**2


def images_of(call) -> np.ndarray:
    """Of each box (image, ...): is there such an image?"""
    number = np.nan_to_num(call.arrays[1][:, 0].astype(np.float64), nan=-1)
    return (number >= 0) & (number < len(call.arrays[0]))


def no_such_image(call) -> bool:
    boxes = call.arrays[1]
    return boxes.ndim == 2 and boxes.size > 0 and not images_of(call).all()


def _labels(call, n: int) -> list:
    """The labels of one sequence, as CTCLoss reads them."""
    row, attrs = call.arrays[1][n], call.attrs
    if attrs.get("use_label_lengths"):
        return row[: int(call.arrays[-1][n])].tolist()
    padding = 0 if attrs.get("blank_label", "first") == "first" else -1
    ends = np.flatnonzero(row == padding)
    return row[: ends[0] if len(ends) else len(row)].tolist()


def impossible_label(call, n: int) -> bool:
    """Labels that are blanks or no classes, or more of them than the data's length can spell."""
    labels, attrs = _labels(call, n), call.attrs
    steps, _, classes = call.arrays[0].shape
    first = attrs.get("blank_label", "first") == "first"
    lowest, highest = (1, classes - 1) if first else (0, classes - 2)
    if attrs.get("use_label_lengths") and call.arrays[-1][n] > call.arrays[1].shape[1]:
        return True
    if attrs.get("use_data_lengths"):
        if call.arrays[2][n] > steps or call.arrays[2][n] < 1:
            return True
        steps = int(call.arrays[2][n])
    needed = len(labels) + sum(a == b for a, b in zip(labels, labels[1:]))
    return needed > steps or any(not lowest <= v <= highest for v in labels)


def any_impossible_label(call) -> bool:
    return any(impossible_label(call, n) for n in range(call.arrays[0].shape[1]))


def no_histogram(call) -> bool:
    """Bins that decrease; or neither bins nor a number of them and a range."""
    if len(call.arrays) > 1:
        return bool((np.diff(call.arrays[1].astype(np.float64)) < 0).any())
    bins, span = call.attrs.get("bin_cnt"), call.attrs.get("range")
    return not bins or bins < 1 or not span or not span[0] < span[1]


def out_of_range(call) -> bool:
    """Parameters that no distribution has."""
    attrs = call.attrs
    if attrs.get("low", 0) >= attrs.get("high", 1):
        return True
    positive = ("scale", "sigma", "lam", "alpha", "beta", "k", "mu", "p")
    if any(attrs.get(n, 1) <= 0 for n in positive) or attrs.get("p", 1) > 1:
        return True
    if not call.ours.startswith("_sample_"):
        return False
    if not all(np.isfinite(a).all() for a in call.arrays):
        return True
    if call.ours == "_sample_uniform":
        return bool((call.arrays[0] > call.arrays[1]).any())
    return any((a <= 0).any() for a in call.arrays[call.ours == "_sample_normal" :])


def missing_inputs(call) -> bool:
    """Fewer arrays than the weights of an update need."""
    count = call.attrs.get("num_weights", call.attrs.get("num_tensors"))
    return count is not None and (count < 1 or len(call.arrays) / count % 1 > 0 or count > 2)


# ---- the elements that differ: where -------------------------------------------------------------


def everywhere(call, d) -> bool:
    return True


def _elements(call, d):
    """Ours and MXNet's where they differ."""
    return call.made[d.key][d.wrong], call.expected[d.key][d.wrong]


def not_finite(call, d) -> bool:
    """Ours or MXNet's are inf or NaN wherever they differ."""
    a, b = _elements(call, d)
    return bool((~np.isfinite(a) | ~np.isfinite(b)).all())


def few(call, d) -> bool:
    """At most a tenth of the elements differ."""
    return d.wrong.mean() <= 0.1


def opposite(call, d) -> bool:
    """Ours are MXNet's with the other sign."""
    a, b = _elements(call, d)
    return bool(np.allclose(a, -b, rtol=1e-3))


def at_nan(call, d) -> bool:
    """Elementwise: the first input is NaN wherever the results differ."""
    x = call.arrays[0]
    return x.shape == d.wrong.shape and bool(np.isnan(x[d.wrong]).all())


def at_nan_or_tiny(call, d) -> bool:
    """Elementwise: the first input is NaN or next to 0 wherever the results differ."""
    x = call.arrays[0]
    return x.shape == d.wrong.shape and not (np.abs(x[d.wrong]) > 1e-20).any()


def in_the_middle(call, d) -> bool:
    """Only the middle row or column of an image that is flipped differs."""
    axis = d.wrong.ndim - (2 if "left" in call.ours else 3)
    return set(np.argwhere(d.wrong)[:, axis].tolist()) == {d.wrong.shape[axis] // 2}


def of_strange_sequences(call, d) -> bool:
    """Only sequences whose data holds inf or NaN differ."""
    sequences = np.argwhere(d.wrong)[:, 0 if d.key == "y0" else 1]
    strange_ones = ~np.isfinite(call.arrays[0]).all(axis=(0, 2))
    return bool(strange_ones[sequences].all())


def close(tolerance: float) -> Callable:
    """Nearly equal, in parts of the largest number."""

    def where(call, d):
        a, b = (v.astype(np.float64) for v in _elements(call, d))
        scale = np.abs(call.expected[d.key].astype(np.float64)).max(initial=1e-6)
        return bool((np.abs(a - b) <= tolerance * scale).all())

    return where


def unchanged(call, d) -> bool:
    """The input that differs after the call is as it was in plait."""
    return np.array_equal(call.made[d.key], call.arrays[int(d.key[1:])], equal_nan=True)


def unwritten(call, d) -> bool:
    """The input that differs after the call is as it was in MXNet."""
    return np.array_equal(call.expected[d.key], call.arrays[int(d.key[1:])], equal_nan=True)


def ones_in_mxnet(call, d) -> bool:
    return unchanged(call, d) and bool((call.expected[d.key] == 1).all())


def zero_in_mxnet(call, d) -> bool:
    return not call.expected[d.key].any()


def passed_on(call, d) -> bool:
    """MXNet's gradient is the one from above."""
    return np.array_equal(call.expected["g0"].ravel(), call.expected["h0"].ravel())


def of_missing_images(call, d) -> bool:
    """In the rows of boxes without an image; or 0 in MXNet at the place that has the number of such
    a box: it writes its 0 there."""
    missing = np.flatnonzero(~images_of(call))
    at = np.argwhere(d.wrong)
    others = at[~np.isin(at[:, 0], missing)]
    flat = [np.ravel_multi_index(tuple(p), d.wrong.shape) for p in others]
    return all(f in missing and call.expected[d.key].flat[f] == 0 for f in flat)


def of_impossible_labels(call, d) -> bool:
    """Only sequences whose labels are impossible differ."""
    sequences = np.argwhere(d.wrong)[:, 0 if d.key == "y0" else 1]
    return all(impossible_label(call, n) for n in set(sequences.tolist()))


def decays_after(call, d) -> bool:
    """MXNet's momentum has the decay of the new weight instead of the old one's."""
    w, new = call.arrays[0].astype(np.float64), call.made["y0"].astype(np.float64)
    if call.ours.startswith("mp_"):
        w, new = call.arrays[3].astype(np.float64), call.made["x3"].astype(np.float64)
    moved = call.made["x2"] - call.attrs["lr"] * call.attrs.get("wd", 0) * (new - w)
    error = np.abs(moved - call.expected["x2"])
    return bool((error <= 2e-2 * np.maximum(np.abs(moved), 1)).all())


def first_output_only(call, d) -> bool:
    """MXNet's gradient is ours from the first output alone."""
    import plait as mx
    from plait.kernels.record import lookup
    from plait.ndarray.invoke import invoke

    arrays = [mx.nd.array(a, dtype=a.dtype) for a in call.arrays]
    for i in call.case["smooth"]:
        arrays[i].attach_grad()
    with mx.autograd.record():
        outs = invoke(lookup(call.ours), arrays, call.attrs)
    outs[0].backward(mx.nd.array(call.expected["h0"], dtype=call.expected["h0"].dtype))
    found = arrays[int(d.key[1:])].grad.asnumpy().astype(np.float64)
    expected = call.expected[d.key].astype(np.float64)
    return np.allclose(found, expected, rtol=3e-2, atol=1e-3, equal_nan=True)
