"""Convolutions, transposed convolutions, poolings, padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...engine.error import InvalidValue
from ...training.initializer import Initializer
from ..layer import Layer
from .activations import Activation
from .arguments import known_layout, sizes
from .pool_layers import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "ReflectionPad2D",
]


class _Conv(Layer):
    """What all convolutions have in common. weight: (out, in / groups, *kernel), in the layout's
    order."""

    size_argument = "in_channels"

    def __init__(
        self,
        channels: int,
        kernel_size: Sequence[int],
        strides: int | Sequence[int],
        padding: int | Sequence[int],
        dilation: int | Sequence[int],
        groups: int,
        layout: str,
        in_channels: int = 0,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        op_name: str = "Convolution",
        adj: int | Sequence[int] | None = None,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        n = len(kernel_size)
        self._channels, self._in_channels, self._op_name = channels, in_channels, op_name
        self._kwargs: dict[str, Any] = {
            "kernel": kernel_size,
            "stride": sizes(strides, n, "strides"),
            "dilate": sizes(dilation, n, "dilation"),
            "pad": sizes(padding, n, "padding"),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        if adj is not None:
            self._kwargs["adj"] = sizes(adj, n, "output_padding")
        if channels % groups or in_channels % groups:
            raise InvalidValue(
                f"{type(self).__name__}: channels and in_channels must be multiples of groups, got "
                f"{channels}, {in_channels} and {groups}"
            )
        first, second = (channels, in_channels // groups)
        if op_name == "Deconvolution":
            first, second = (in_channels, channels // groups)
        last = layout[-1] == "C"
        shape = (first, *kernel_size, second) if last else (first, second, *kernel_size)
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=shape, init=weight_initializer, allow_deferred_init=True
            )
            self.bias = (
                self.params.get(
                    "bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True
                )
                if use_bias
                else None
            )
            self.act = (
                Activation(activation, prefix=activation + "_") if activation is not None else None
            )

    def _alias(self):
        return "conv"

    def _macs(self, args, out) -> int:
        shape = self.weight._sizes()
        weights = prod(shape)
        if self._op_name == "Deconvolution":
            return args[0].size * weights // shape[0]
        return out.size * weights // self._channels

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        out = (
            getattr(F, self._op_name)(x, weight, bias, name="fwd", **self._kwargs)
            if bias is not None
            else getattr(F, self._op_name)(x, weight, name="fwd", **self._kwargs)
        )
        return out if self.act is None else self.act(out)

    def __repr__(self):
        k, n = self._kwargs, len(self._kwargs["kernel"])
        shape = self.weight._sizes()
        n_in = shape[-1] if k["layout"][-1] == "C" else shape[1]
        text = (
            f"{type(self).__name__}({n_in or None} -> {shape[0]}, kernel_size={k['kernel']},"
            f" stride={k['stride']}"
        )
        if k["pad"] != (0,) * n:
            text += f", padding={k['pad']}"
        if k["dilate"] != (1,) * n:
            text += f", dilation={k['dilate']}"
        if k["num_group"] != 1:
            text += f", groups={k['num_group']}"
        if self.bias is None:
            text += ", bias=False"
        return text + (f", {self.act})" if self.act else ")")


class Conv1D(_Conv):
    """1D convolution (cross-correlation, as everywhere in deep learning).

    Args:
        channels: number of filters, the channels of the output.
        kernel_size, strides, padding, dilation: a number; padding is added on both sides.
        groups: the channels are convolved in so many separate groups.
        layout: "NCW" or "NWC"; the output has it, too.
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each channel.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_channels: channels of the input; 0: found at the first call.
    Shapes: data (N, C, W) -> (N, channels, out); out = floor((size + 2 padding - dilation (kernel -
        1) - 1) / stride) + 1.
    Raises: ValueError for another layout, for numbers of channels that are no multiples of groups.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(
            channels,
            sizes(kernel_size, 1, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            known_layout(layout, ("NCW", "NWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv2D(_Conv):
    """2D convolution (cross-correlation, as everywhere in deep learning).

    Args:
        channels: number of filters, the channels of the output.
        kernel_size, strides, padding, dilation: a number, or two (height, width); padding is added
            on both sides.
        groups: the channels are convolved in so many separate groups.
        layout: "NCHW" or "NHWC"; the output has it, too.
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each channel.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_channels: channels of the input; 0: found at the first call.
    Shapes: data (N, C, H, W) -> (N, channels, out_h, out_w); out = floor((size + 2 padding -
        dilation (kernel - 1) - 1) / stride) + 1.
    Raises: ValueError for another layout, for numbers of channels that are no multiples of groups.


    >>> net = nn.Conv2D(8, kernel_size=3, padding=1, in_channels=3)
    >>> net.initialize()
    >>> net(nd.ones((2, 3, 32, 32))).shape
    (2, 8, 32, 32)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1),
        padding: int | Sequence[int] = (0, 0),
        dilation: int | Sequence[int] = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(
            channels,
            sizes(kernel_size, 2, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            known_layout(layout, ("NCHW", "NHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv3D(_Conv):
    """3D convolution (cross-correlation, as everywhere in deep learning).

    Args:
        channels: number of filters, the channels of the output.
        kernel_size, strides, padding, dilation: a number, or three (depth, height, width); padding
            is added on both sides.
        groups: the channels are convolved in so many separate groups.
        layout: "NCDHW" or "NDHWC"; the output has it, too.
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each channel.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_channels: channels of the input; 0: found at the first call.
    Shapes: data (N, C, D, H, W) -> (N, channels, out_d, out_h, out_w); out = floor((size + 2
        padding - dilation (kernel - 1) - 1) / stride) + 1.
    Raises: ValueError for another layout, for numbers of channels that are no multiples of groups.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1, 1),
        padding: int | Sequence[int] = (0, 0, 0),
        dilation: int | Sequence[int] = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(
            channels,
            sizes(kernel_size, 3, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            known_layout(layout, ("NCDHW", "NDHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv1DTranspose(_Conv):
    """Transposed 1D convolution: the gradient of a convolution by its input.

    Args:
        channels: number of filters, the channels of the output.
        kernel_size, strides, padding, dilation: a number; padding is added on both sides.
        output_padding: added to one side of the output, to choose among the sizes that a stride
            leaves open.
        groups: the channels are convolved in so many separate groups.
        layout: "NCW" or "NWC"; the output has it, too.
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each channel.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_channels: channels of the input; 0: found at the first call.
    Shapes: data (N, C, W) -> (N, channels, out); out = (size - 1) stride - 2 padding + dilation
        (kernel - 1) + output_padding + 1.
    Raises: ValueError for another layout, for numbers of channels that are no multiples of groups.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        output_padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(
            channels,
            sizes(kernel_size, 1, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            known_layout(layout, ("NCW", "NWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            op_name="Deconvolution",
            adj=output_padding,
            **kwargs,
        )


class Conv2DTranspose(_Conv):
    """Transposed 2D convolution: the gradient of a convolution by its input.

    Args:
        channels: number of filters, the channels of the output.
        kernel_size, strides, padding, dilation: a number, or two (height, width); padding is added
            on both sides.
        output_padding: added to one side of the output, to choose among the sizes that a stride
            leaves open.
        groups: the channels are convolved in so many separate groups.
        layout: "NCHW" or "NHWC"; the output has it, too.
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each channel.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_channels: channels of the input; 0: found at the first call.
    Shapes: data (N, C, H, W) -> (N, channels, out_h, out_w); out = (size - 1) stride - 2 padding +
        dilation (kernel - 1) + output_padding + 1.
    Raises: ValueError for another layout, for numbers of channels that are no multiples of groups.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1),
        padding: int | Sequence[int] = (0, 0),
        output_padding: int | Sequence[int] = (0, 0),
        dilation: int | Sequence[int] = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(
            channels,
            sizes(kernel_size, 2, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            known_layout(layout, ("NCHW", "NHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            op_name="Deconvolution",
            adj=output_padding,
            **kwargs,
        )


class Conv3DTranspose(_Conv):
    """Transposed 3D convolution: the gradient of a convolution by its input.

    Args:
        channels: number of filters, the channels of the output.
        kernel_size, strides, padding, dilation: a number, or three (depth, height, width); padding
            is added on both sides.
        output_padding: added to one side of the output, to choose among the sizes that a stride
            leaves open.
        groups: the channels are convolved in so many separate groups.
        layout: "NCDHW" or "NDHWC"; the output has it, too.
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each channel.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_channels: channels of the input; 0: found at the first call.
    Shapes: data (N, C, D, H, W) -> (N, channels, out_d, out_h, out_w); out = (size - 1) stride - 2
        padding + dilation (kernel - 1) + output_padding + 1.
    Raises: ValueError for another layout, for numbers of channels that are no multiples of groups.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1, 1),
        padding: int | Sequence[int] = (0, 0, 0),
        output_padding: int | Sequence[int] = (0, 0, 0),
        dilation: int | Sequence[int] = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(
            channels,
            sizes(kernel_size, 3, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            known_layout(layout, ("NCDHW", "NDHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            op_name="Deconvolution",
            adj=output_padding,
            **kwargs,
        )


class ReflectionPad2D(Layer):
    """Pads H and W of (N, C, H, W) with their reflection. padding: a number, or 8 numbers: before
    and after each axis."""

    def __init__(self, padding: int | Sequence[int] = 0, **kwargs: Any):
        super().__init__(**kwargs)
        self._padding = (
            (0, 0, 0, 0) + (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        )
        if len(self._padding) != 8:
            raise InvalidValue(
                f"ReflectionPad2D: padding must be a number or 8 of them, got {padding}"
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
