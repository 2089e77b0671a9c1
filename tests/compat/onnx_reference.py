"""onnx's reference evaluator, with the operators that it lacks or computes otherwise than ONNX
says: they are written here from ONNX's descriptions."""

import math
import warnings

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class BatchNormalization(OpRun):
    """It trains, in opset 13."""

    def _run(self, x, scale, bias, mean, var, epsilon=None, momentum=None, training_mode=None):
        assert not training_mode
        scale, bias, mean, var = (
            v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, var)
        )
        return (((x - mean) / np.sqrt(var + epsilon) * scale + bias).astype(x.dtype),)


class LRN(OpRun):
    """It goes through as many channels as there are images."""

    def _run(self, x, alpha=None, beta=None, bias=None, size=None):
        sums = np.zeros_like(x)
        for c in range(x.shape[1]):
            low, high = c - (size - 1) // 2, c + math.ceil((size - 1) / 2) + 1
            sums[:, c] = np.sum(x[:, max(low, 0) : high] ** 2, axis=1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class LogSoftmax(OpRun):
    """It is -inf where a softmax is 0 in float32."""

    def _run(self, x, axis=None):
        x = x - x.max(axis=axis, keepdims=True)
        return ((x - np.log(np.exp(x).sum(axis=axis, keepdims=True))).astype(x.dtype),)


class ConvTranspose(OpRun):
    """It knows groups of one channel only."""

    def _run(self, x, w, b=None, auto_pad=None, dilations=None, group=None, kernel_shape=None,
             output_padding=None, output_shape=None, pads=None, strides=None):  # fmt: skip
        n = w.ndim - 2
        strides, dilations = strides or [1] * n, dilations or [1] * n
        pads, more = pads or [0] * 2 * n, output_padding or [0] * n
        each, per = x.shape[1] // group, w.shape[1]
        taps = zip(x.shape[2:], w.shape[2:], strides, dilations, more)
        size = [s * (m - 1) + d * (k - 1) + 1 + a for m, k, s, d, a in taps]
        y = np.zeros((x.shape[0], per * group, *size), x.dtype)
        for k in np.ndindex(*w.shape[2:]):
            at = tuple(slice(i * d, i * d + s * (m - 1) + 1, s)
                       for i, d, s, m in zip(k, dilations, strides, x.shape[2:]))  # fmt: skip
            for g in range(group):
                of = slice(g * each, (g + 1) * each)
                made = np.einsum("nc...,co->no...", x[:, of], w[(of, slice(None), *k)])
                y[(slice(None), slice(g * per, (g + 1) * per), *at)] += made
        y = y[(..., *(slice(a, s - b) for a, b, s in zip(pads[:n], pads[n:], size)))]
        return (y if b is None else y + b.reshape(-1, *[1] * n),)


class MaxPool(OpRun):
    """It fails for three dimensions with padding."""

    def _run(self, x, auto_pad=None, ceil_mode=None, dilations=None, kernel_shape=None, pads=None,
             storage_order=None, strides=None):  # fmt: skip
        n = len(kernel_shape)
        pads, strides = pads or [0] * 2 * n, strides or [1] * n
        assert not ceil_mode and set(dilations or [1]) == {1} and auto_pad == "NOTSET"
        width = [(0, 0)] * 2 + list(zip(pads[:n], pads[n:]))
        lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        x = np.pad(x, width, constant_values=lowest)
        y = np.lib.stride_tricks.sliding_window_view(x, kernel_shape, tuple(range(2, n + 2)))
        y = y[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
        return (y.max(axis=tuple(range(-n, 0))),)


class MaxRoiPool(OpRun):
    """It has none."""

    def _run(self, x, rois, pooled_shape=None, spatial_scale=None):
        h, w = pooled_shape
        y = np.zeros((len(rois), x.shape[1], h, w), x.dtype)
        for r, roi in enumerate(rois):
            x1, y1, x2, y2 = (math.floor(v * spatial_scale + 0.5) for v in roi[1:])
            tall, wide = max(y2 - y1 + 1, 1) / h, max(x2 - x1 + 1, 1) / w
            for i, j in np.ndindex(h, w):
                rows = [y1 + math.floor(i * tall), y1 + math.ceil((i + 1) * tall)]
                columns = [x1 + math.floor(j * wide), x1 + math.ceil((j + 1) * wide)]
                a, b = np.clip(rows, 0, x.shape[2])
                c, d = np.clip(columns, 0, x.shape[3])
                if a < b and c < d:
                    y[r, :, i, j] = x[int(roi[0]), :, a:b, c:d].max(axis=(1, 2))
        return (y,)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


class _Recurrent(OpRun):
    """It leaves out sequence_lens and, of RNN, Relu."""

    def _all(self, x, w, r, b, lengths, states, activations, direction):
        steps, batch, _ = x.shape
        lengths = np.full(batch, steps) if lengths is None else lengths
        hidden = r.shape[-1]
        y = np.zeros((steps, len(w), batch, hidden), x.dtype)
        last = [np.array(s) for s in states]
        for d in range(len(w)):
            bias = np.zeros((2, w.shape[1]), x.dtype) if b is None else b[d].reshape(2, -1)
            for i in range(batch):
                order = range(lengths[i])
                state = [s[d, i] for s in states]
                for t in reversed(order) if d == 1 or direction == "reverse" else order:
                    state = self.cell(
                        x[t, i] @ w[d].T + bias[0], r[d], bias[1], activations, *state
                    )
                    y[t, d, i] = state[0]
                for s, value in zip(last, state):
                    s[d, i] = value
        return (y, *last)

    def _zeros(self, x, w, r, n):
        return [np.zeros((len(w), x.shape[1], r.shape[-1]), x.dtype) for _ in range(n)]


class LSTM(_Recurrent):
    def cell(self, pre, r, bias, _, h, c):
        i, o, f, new = np.split(pre + h @ r.T + bias, 4)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(new)
        return _sigmoid(o) * np.tanh(c), c

    def _run(self, x, w, r, b=None, lengths=None, h=None, c=None, direction=None, **_):
        zeros = self._zeros(x, w, r, 2)
        states = [zeros[0] if h is None else h, zeros[1] if c is None else c]
        return self._all(x, w, r, b, lengths, states, None, direction)


class GRU(_Recurrent):
    def cell(self, pre, r, bias, _, h):
        z, reset, new = np.split(pre, 3)
        hz, hr, hn = np.split(h @ r.T + bias, 3)
        z, reset = _sigmoid(z + hz), _sigmoid(reset + hr)
        return ((1 - z) * np.tanh(new + reset * hn) + z * h,)

    def _run(self, x, w, r, b=None, lengths=None, h=None, direction=None, linear_before_reset=0,
             **_):  # fmt: skip
        assert linear_before_reset == 1
        states = self._zeros(x, w, r, 1) if h is None else [h]
        return self._all(x, w, r, b, lengths, states, None, direction)


class RNN(_Recurrent):
    def cell(self, pre, r, bias, activations, h):
        made = pre + h @ r.T + bias
        return (np.maximum(made, 0) if activations[0] == "Relu" else np.tanh(made),)

    def _run(self, x, w, r, b=None, lengths=None, h=None, direction=None, activations=None, **_):
        states = self._zeros(x, w, r, 1) if h is None else [h]
        return self._all(x, w, r, b, lengths, states, activations, direction)


def _along(v, x, axis):
    v = np.asarray(v)
    return v if v.ndim == 0 else v.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


class QuantizeLinear(OpRun):
    """It has it from opset 19 on."""

    def _run(self, x, scale, zero=None, axis=None, **_):
        zero = np.uint8(0) if zero is None else zero
        made = np.rint(x / _along(scale, x, axis)) + _along(zero, x, axis).astype(x.dtype)
        info = np.iinfo(zero.dtype)
        return (np.clip(made, info.min, info.max).astype(zero.dtype),)


class DequantizeLinear(OpRun):
    """It has it from opset 19 on."""

    def _run(self, x, scale, zero=None, axis=None, **_):
        wide = x.astype(np.float32)
        wide = wide if zero is None else wide - _along(zero, x, axis).astype(np.float32)
        return ((wide * _along(scale, x, axis)).astype(scale.dtype),)


OWN = [BatchNormalization, LRN, LogSoftmax, ConvTranspose, MaxPool, MaxRoiPool, LSTM, GRU, RNN]


def run(model, inputs):
    """The outputs of a ModelProto for arrays by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # NumPy's, of infinities and NaN
        opset = max(x.version for x in model.opset_import if not x.domain)
        own = OWN + [QuantizeLinear, DequantizeLinear] * (opset < 19)
        return ReferenceEvaluator(model, new_ops=own).run(None, inputs)
