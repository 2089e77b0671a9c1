"""contrib.cnn: deformable convolutions, which learn their sampling positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine.error import InvalidValue
from ...kernels.record import several
from ...training.initializer import Initializer
from ..layer import Layer
from ..nn import Activation
from ..parameter import Parameter

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


def _pair(value, name: str) -> tuple[int, int]:
    value = tuple(several(value, 2))
    if len(value) != 2:
        raise InvalidValue(f"{name} must be a number or 2 of them, got {value}")
    return value


class DeformableConvolution(Layer):
    """Convolution of (N, C, H, W) whose sampling positions are shifted by offsets, computed from
    the same input by a second convolution.

    Args:
        channels: of the output.
        kernel_size, strides, padding, dilation: number, or two (height, width).
        groups: of channels, in both convolutions.
        num_deformable_group: groups of channels with separate offsets.
        use_bias, offset_use_bias: whether the two convolutions add a bias.
        in_channels: 0, found at the first call.
        activation: name of an activation that follows, or None.
        adj: kept for MXNet's signature; must be None.
    Raises: InvalidValue for another layout than NCHW, and sizes that do not fit.
    Source: Dai et al. 2017, arXiv:1703.06211.
    """

    deformable_conv_weight: Parameter
    size_argument = "in_channels"
    _operator = "DeformableConvolution"
    _numbers = 2  # outputs of the second convolution for every element of a window

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] = (1, 1),
        strides: int | Sequence[int] = (1, 1),
        padding: int | Sequence[int] = (0, 0),
        dilation: int | Sequence[int] = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        offset_weight_initializer: str | Initializer | None = "zeros",
        offset_bias_initializer: str | Initializer | None = "zeros",
        offset_use_bias: bool = True,
        op_name: str = "DeformableConvolution",
        adj: None = None,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        name = type(self).__name__
        if layout != "NCHW" or adj:
            raise InvalidValue(f"{name}: layout must be NCHW and adj None, got {layout}, {adj}")
        if channels % groups or in_channels % groups:
            raise InvalidValue(
                f"{name}: channels and in_channels must be multiples of groups, got {channels},"
                f" {in_channels} and {groups}"
            )
        kernel = _pair(kernel_size, "kernel_size")
        taps = kernel[0] * kernel[1] * num_deformable_group
        window = {
            "kernel": kernel,
            "stride": _pair(strides, "strides"),
            "dilate": _pair(dilation, "dilation"),
            "pad": _pair(padding, "padding"),
            "num_group": groups,
            "layout": layout,
        }
        n_offsets = self._numbers * taps
        self._split = 2 * taps
        self._offset = {**window, "num_filter": n_offsets, "no_bias": not offset_use_bias}
        self._kwargs = {
            **window,
            "num_filter": channels,
            "num_deformable_group": num_deformable_group,
            "no_bias": not use_bias,
        }
        each = in_channels // groups
        with self.name_scope():
            for parameter, shape, init, used in (
                ("offset_weight", (n_offsets, each, *kernel), offset_weight_initializer, True),
                ("offset_bias", (n_offsets,), offset_bias_initializer, offset_use_bias),
                ("deformable_conv_weight", (channels, each, *kernel), weight_initializer, True),
                ("deformable_conv_bias", (channels,), bias_initializer, use_bias),
            ):
                found = (
                    self.params.get(parameter, shape=shape, init=init, allow_deferred_init=True)
                    if used
                    else None
                )
                setattr(self, parameter, found)
            self.act = Activation(activation, prefix=activation + "_") if activation else None

    def _alias(self):
        return "deformable_conv"

    def _places(self, F, found):
        """The operator's inputs besides data: offsets, from the second convolution's output."""
        return [found]

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        biases = [[] if b is None else [b] for b in (offset_bias, deformable_conv_bias)]
        found = F.Convolution(x, offset_weight, *biases[0], **self._offset)
        arrays = [x, *self._places(F, found), deformable_conv_weight, *biases[1]]
        out = getattr(F.contrib, self._operator)(*arrays, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def __repr__(self):
        k, shape = self._kwargs, self.deformable_conv_weight._sizes()
        text = (
            f"{type(self).__name__}({shape[1] or None} -> {shape[0]}, kernel_size={k['kernel']},"
            f" stride={k['stride']}"
        )
        for key, label, default in (
            ("pad", "padding", (0, 0)),
            ("dilate", "dilation", (1, 1)),
            ("num_group", "groups", 1),
        ):
            text += f", {label}={k[key]}" if k[key] != default else ""
        text += ", bias=False" if k["no_bias"] else ""
        return text + (f", {self.act})" if self.act else ")")


class ModulatedDeformableConvolution(DeformableConvolution):
    """DeformableConvolution whose second convolution also computes a factor in (0, 2), twice a
    sigmoid, for every sampled element.

    Args: see DeformableConvolution.
    Source: Zhu et al. 2018, arXiv:1811.11168.
    """

    _operator = "ModulatedDeformableConvolution"
    _numbers = 3

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int] = (1, 1),
        strides: int | Sequence[int] = (1, 1),
        padding: int | Sequence[int] = (0, 0),
        dilation: int | Sequence[int] = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        offset_weight_initializer: str | Initializer | None = "zeros",
        offset_bias_initializer: str | Initializer | None = "zeros",
        offset_use_bias: bool = True,
        op_name: str = "ModulatedDeformableConvolution",
        adj: None = None,
        prefix: str | None = None,
        params: Any = None,
    ):
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        super().__init__(**given)

    def _alias(self):
        return "modulated_deformable_conv"

    def _places(self, F, found):
        offset = F.slice_axis(found, axis=1, begin=0, end=self._split)
        mask = F.sigmoid(F.slice_axis(found, axis=1, begin=self._split, end=None)) * 2
        return [offset, mask]
