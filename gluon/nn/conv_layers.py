"""Convolutions, transposed convolutions, poolings, padding."""

from __future__ import annotations

from math import prod

from ...engine.error import InvalidValue
from ...kernels.record import several
from ..layer import Layer
from .activations import Activation

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


def _tuple(value, n: int, name: str) -> tuple[int, ...]:
    value = tuple(several(value, n))
    if len(value) != n:
        raise InvalidValue(f"{name} must be a number or {n} of them, got {value}")
    return value


def _layout(layout: str, allowed: tuple[str, ...]) -> str:
    if layout not in allowed:
        raise InvalidValue(f"layout must be one of {', '.join(allowed)}, got {layout!r}")
    return layout


class _Conv(Layer):
    """What all convolutions have in common. weight: (out, in / groups, *kernel), in the layout's
    order."""

    size_argument = "in_channels"

    def __init__(
        self,
        channels,
        kernel_size,
        strides,
        padding,
        dilation,
        groups,
        layout,
        in_channels=0,
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        op_name="Convolution",
        adj=None,
        prefix=None,
        params=None,
    ):
        super().__init__(prefix=prefix, params=params)
        n = len(kernel_size)
        self._channels, self._in_channels, self._op_name = channels, in_channels, op_name
        self._kwargs = {
            "kernel": kernel_size,
            "stride": _tuple(strides, n, "strides"),
            "dilate": _tuple(dilation, n, "dilation"),
            "pad": _tuple(padding, n, "padding"),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        if adj is not None:
            self._kwargs["adj"] = _tuple(adj, n, "output_padding")
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
        weights = prod(self.weight.shape)
        if self._op_name == "Deconvolution":
            return args[0].size * weights // self.weight.shape[0]
        return out.size * weights // self._channels

    def hybrid_forward(self, F, x, weight, bias=None):
        out = (
            getattr(F, self._op_name)(x, weight, bias, name="fwd", **self._kwargs)
            if bias is not None
            else getattr(F, self._op_name)(x, weight, name="fwd", **self._kwargs)
        )
        return out if self.act is None else self.act(out)

    def __repr__(self):
        k, n = self._kwargs, len(self._kwargs["kernel"])
        shape = self.weight.shape
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
    """1D convolution. data (N, C, W) -> (N, channels, out), out = (W + 2 pad - dilation (kernel -
    1) - 1) / stride + 1.

    layout: NCW or NWC.
    """

    def __init__(
        self,
        channels,
        kernel_size,
        strides=1,
        padding=0,
        dilation=1,
        groups=1,
        layout="NCW",
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        in_channels=0,
        **kwargs,
    ):
        super().__init__(
            channels,
            _tuple(kernel_size, 1, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            _layout(layout, ("NCW", "NWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv2D(_Conv):
    """2D convolution. data (N, C, H, W) -> (N, channels, out_h, out_w). layout: NCHW or NHWC."""

    def __init__(
        self,
        channels,
        kernel_size,
        strides=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        layout="NCHW",
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        in_channels=0,
        **kwargs,
    ):
        super().__init__(
            channels,
            _tuple(kernel_size, 2, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            _layout(layout, ("NCHW", "NHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv3D(_Conv):
    """3D convolution. data (N, C, D, H, W) -> (N, channels, out_d, out_h, out_w). layout: NCDHW or
    NDHWC."""

    def __init__(
        self,
        channels,
        kernel_size,
        strides=(1, 1, 1),
        padding=(0, 0, 0),
        dilation=(1, 1, 1),
        groups=1,
        layout="NCDHW",
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        in_channels=0,
        **kwargs,
    ):
        super().__init__(
            channels,
            _tuple(kernel_size, 3, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            _layout(layout, ("NCDHW", "NDHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            **kwargs,
        )


class Conv1DTranspose(_Conv):
    """Transposed 1D convolution: out = (W - 1) stride - 2 pad + kernel + output_padding. layout:
    NCW or NWC."""

    def __init__(
        self,
        channels,
        kernel_size,
        strides=1,
        padding=0,
        output_padding=0,
        dilation=1,
        groups=1,
        layout="NCW",
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        in_channels=0,
        **kwargs,
    ):
        super().__init__(
            channels,
            _tuple(kernel_size, 1, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            _layout(layout, ("NCW", "NWC")),
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
    """Transposed 2D convolution: out = (size - 1) stride - 2 pad + kernel + output_padding. layout:
    NCHW or NHWC."""

    def __init__(
        self,
        channels,
        kernel_size,
        strides=(1, 1),
        padding=(0, 0),
        output_padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        layout="NCHW",
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        in_channels=0,
        **kwargs,
    ):
        super().__init__(
            channels,
            _tuple(kernel_size, 2, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            _layout(layout, ("NCHW", "NHWC")),
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
    """Transposed 3D convolution. layout: NCDHW or NDHWC."""

    def __init__(
        self,
        channels,
        kernel_size,
        strides=(1, 1, 1),
        padding=(0, 0, 0),
        output_padding=(0, 0, 0),
        dilation=(1, 1, 1),
        groups=1,
        layout="NCDHW",
        activation=None,
        use_bias=True,
        weight_initializer=None,
        bias_initializer="zeros",
        in_channels=0,
        **kwargs,
    ):
        super().__init__(
            channels,
            _tuple(kernel_size, 3, "kernel_size"),
            strides,
            padding,
            dilation,
            groups,
            _layout(layout, ("NCDHW", "NDHWC")),
            in_channels,
            activation,
            use_bias,
            weight_initializer,
            bias_initializer,
            op_name="Deconvolution",
            adj=output_padding,
            **kwargs,
        )


class _Pooling(Layer):
    """What all poolings have in common."""

    def __init__(
        self,
        pool_size,
        strides,
        padding,
        ceil_mode,
        global_pool,
        pool_type,
        layout,
        count_include_pad=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        n = len(pool_size)
        self._kwargs = {
            "kernel": pool_size,
            "stride": pool_size if strides is None else _tuple(strides, n, "strides"),
            "pad": _tuple(padding, n, "padding"),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self):
        return "pool"

    def hybrid_forward(self, F, x):
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self):
        k = self._kwargs
        return (
            f"{type(self).__name__}(size={k['kernel']}, stride={k['stride']}, padding={k['pad']}, "
            f"ceil_mode={k['pooling_convention'] == 'full'}, global_pool={k['global_pool']}, "
            f"pool_type={k['pool_type']}, layout={k['layout']})"
        )


class MaxPool1D(_Pooling):
    """Maximum over windows of (N, C, W). strides: default pool_size. ceil_mode: incomplete last
    windows count, too."""

    def __init__(
        self, pool_size=2, strides=None, padding=0, layout="NCW", ceil_mode=False, **kwargs
    ):
        super().__init__(
            _tuple(pool_size, 1, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "max",
            _layout(layout, ("NCW", "NWC")),
            **kwargs,
        )


class MaxPool2D(_Pooling):
    """Maximum over windows of (N, C, H, W)."""

    def __init__(
        self, pool_size=(2, 2), strides=None, padding=0, layout="NCHW", ceil_mode=False, **kwargs
    ):
        super().__init__(
            _tuple(pool_size, 2, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "max",
            _layout(layout, ("NCHW", "NHWC")),
            **kwargs,
        )


class MaxPool3D(_Pooling):
    """Maximum over windows of (N, C, D, H, W)."""

    def __init__(
        self,
        pool_size=(2, 2, 2),
        strides=None,
        padding=0,
        ceil_mode=False,
        layout="NCDHW",
        **kwargs,
    ):
        super().__init__(
            _tuple(pool_size, 3, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "max",
            _layout(layout, ("NCDHW", "NDHWC")),
            **kwargs,
        )


class AvgPool1D(_Pooling):
    """Mean over windows of (N, C, W). count_include_pad: padding counts as zeros."""

    def __init__(
        self,
        pool_size=2,
        strides=None,
        padding=0,
        layout="NCW",
        ceil_mode=False,
        count_include_pad=True,
        **kwargs,
    ):
        super().__init__(
            _tuple(pool_size, 1, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "avg",
            _layout(layout, ("NCW", "NWC")),
            count_include_pad,
            **kwargs,
        )


class AvgPool2D(_Pooling):
    """Mean over windows of (N, C, H, W)."""

    def __init__(
        self,
        pool_size=(2, 2),
        strides=None,
        padding=0,
        ceil_mode=False,
        layout="NCHW",
        count_include_pad=True,
        **kwargs,
    ):
        super().__init__(
            _tuple(pool_size, 2, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "avg",
            _layout(layout, ("NCHW", "NHWC")),
            count_include_pad,
            **kwargs,
        )


class AvgPool3D(_Pooling):
    """Mean over windows of (N, C, D, H, W)."""

    def __init__(
        self,
        pool_size=(2, 2, 2),
        strides=None,
        padding=0,
        ceil_mode=False,
        layout="NCDHW",
        count_include_pad=True,
        **kwargs,
    ):
        super().__init__(
            _tuple(pool_size, 3, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "avg",
            _layout(layout, ("NCDHW", "NDHWC")),
            count_include_pad,
            **kwargs,
        )


class _GlobalPooling(_Pooling):
    n_axes, pool_type, layouts = 2, "max", ("NCHW", "NHWC")

    def __init__(self, layout, **kwargs):
        super().__init__(
            (1,) * self.n_axes,
            None,
            0,
            True,
            True,
            self.pool_type,
            _layout(layout, self.layouts),
            **kwargs,
        )


class GlobalMaxPool1D(_GlobalPooling):
    """Maximum over W: (N, C, W) -> (N, C, 1)."""

    n_axes, pool_type, layouts = 1, "max", ("NCW", "NWC")

    def __init__(self, layout="NCW", **kwargs):
        super().__init__(layout, **kwargs)


class GlobalMaxPool2D(_GlobalPooling):
    """Maximum over H and W: (N, C, H, W) -> (N, C, 1, 1)."""

    n_axes, pool_type, layouts = 2, "max", ("NCHW", "NHWC")

    def __init__(self, layout="NCHW", **kwargs):
        super().__init__(layout, **kwargs)


class GlobalMaxPool3D(_GlobalPooling):
    """Maximum over D, H and W: (N, C, D, H, W) -> (N, C, 1, 1, 1)."""

    n_axes, pool_type, layouts = 3, "max", ("NCDHW", "NDHWC")

    def __init__(self, layout="NCDHW", **kwargs):
        super().__init__(layout, **kwargs)


class GlobalAvgPool1D(_GlobalPooling):
    """Mean over W: (N, C, W) -> (N, C, 1)."""

    n_axes, pool_type, layouts = 1, "avg", ("NCW", "NWC")

    def __init__(self, layout="NCW", **kwargs):
        super().__init__(layout, **kwargs)


class GlobalAvgPool2D(_GlobalPooling):
    """Mean over H and W: (N, C, H, W) -> (N, C, 1, 1)."""

    n_axes, pool_type, layouts = 2, "avg", ("NCHW", "NHWC")

    def __init__(self, layout="NCHW", **kwargs):
        super().__init__(layout, **kwargs)


class GlobalAvgPool3D(_GlobalPooling):
    """Mean over D, H and W: (N, C, D, H, W) -> (N, C, 1, 1, 1)."""

    n_axes, pool_type, layouts = 3, "avg", ("NCDHW", "NDHWC")

    def __init__(self, layout="NCDHW", **kwargs):
        super().__init__(layout, **kwargs)


class ReflectionPad2D(Layer):
    """Pads H and W of (N, C, H, W) with their reflection. padding: a number, or 8 of them, before
    and after each axis."""

    def __init__(self, padding=0, **kwargs):
        super().__init__(**kwargs)
        self._padding = (
            (0, 0, 0, 0) + (padding,) * 4 if isinstance(padding, int) else tuple(padding)
        )
        if len(self._padding) != 8:
            raise InvalidValue(
                f"ReflectionPad2D: padding must be a number or 8 of them, got {padding}"
            )

    def hybrid_forward(self, F, x):
        return F.pad(x, mode="reflect", pad_width=self._padding)
