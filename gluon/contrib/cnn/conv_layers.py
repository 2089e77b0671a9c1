"""Deformable convolutions: a plain convolution of the input says where the kernel reads."""

from __future__ import annotations

from ....engine.error import InvalidValue
from ...hybrid import HybridBlock
from ...nn import Activation

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class _Deformable(HybridBlock):
    """Parameters of both convolutions. offsets: numbers that a point of the kernel gets."""

    offsets = 2

    def __init__(
        self,
        channels,
        kernel_size,
        strides,
        padding,
        dilation,
        groups,
        num_deformable_group,
        layout,
        use_bias,
        in_channels,
        activation,
        weight_initializer,
        bias_initializer,
        offset_weight_initializer,
        offset_bias_initializer,
        offset_use_bias,
        op_name,
        prefix,
        params,
    ):
        super().__init__(prefix=prefix, params=params)
        if layout not in ("NCHW", "NHWC"):
            raise LayoutError(
                f"Only supports 'NCHW' and 'NHWC' layout for now, got layout={layout!r}"
            )
        kernel, stride, pad, dilate = (
            (n, n) if hasattr(n, "__index__") else tuple(n)
            for n in (kernel_size, strides, padding, dilation)
        )
        self._channels, self._in_channels, self._op_name = channels, in_channels, op_name
        points = kernel[0] * kernel[1] * num_deformable_group
        self.offset_split_index = 2 * points
        shared = {
            "kernel": kernel,
            "stride": stride,
            "pad": pad,
            "dilate": dilate,
            "num_group": groups,
            "layout": layout,
        }
        n_offsets = self.offsets * points
        self._kwargs_offset = {
            **shared,
            "num_filter": n_offsets,
            "no_bias": not offset_use_bias,
        }
        self._kwargs_deformable_conv = {
            **shared,
            "num_filter": channels,
            "num_deformable_group": num_deformable_group,
            "no_bias": not use_bias,
        }
        n_in = in_channels // groups
        offset_shape = (
            (n_offsets, n_in, *kernel) if layout == "NCHW" else (n_offsets, *kernel, n_in)
        )
        with self.name_scope():
            self._parameter("offset_weight", offset_shape, offset_weight_initializer)
            self._parameter(
                "offset_bias", (n_offsets,) if offset_use_bias else None, offset_bias_initializer
            )
            self._parameter("deformable_conv_weight", (channels, n_in, *kernel), weight_initializer)
            self._parameter(
                "deformable_conv_bias", (channels,) if use_bias else None, bias_initializer
            )
            self.act = Activation(activation, prefix=f"{activation}_") if activation else None

    def _parameter(self, name, shape, init) -> None:
        parameter = None
        if shape is not None:
            parameter = self.params.get(name, shape=shape, init=init, allow_deferred_init=True)
        setattr(self, name, parameter)

    def hybrid_forward(
        self,
        F,
        x,
        offset_weight,
        deformable_conv_weight,
        offset_bias=None,
        deformable_conv_bias=None,
    ):
        biases = [] if offset_bias is None else [offset_bias]
        offset = F.Convolution(x, offset_weight, *biases, **self._kwargs_offset)
        weights = [deformable_conv_weight]
        weights += [] if deformable_conv_bias is None else [deformable_conv_bias]
        out = self._convolve(F, x, offset, weights)
        return out if self.act is None else self.act(out)

    def _convolve(self, F, x, offset, weights):
        raise NotImplementedError


class LayoutError(InvalidValue, AssertionError):
    """A layout that the layer does not know."""


class DeformableConvolution(_Deformable):
    """2D convolution that reads at points moved by offsets, which a convolution of the same input
    finds. data (N, C, H, W) -> (N, channels, out_h, out_w).

    Args:
        kernel_size, strides, padding, dilation: a number or one an axis, of both convolutions.
        num_deformable_group: groups of input channels with offsets of their own.
        op_name, adj: accepted.
    Source: Dai et al. 2017, arXiv:1703.06211.
    """

    def __init__(
        self,
        channels,
        kernel_size=(1, 1),
        strides=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        num_deformable_group=1,
        layout="NCHW",
        use_bias=True,
        in_channels=0,
        activation=None,
        weight_initializer=None,
        bias_initializer="zeros",
        offset_weight_initializer="zeros",
        offset_bias_initializer="zeros",
        offset_use_bias=True,
        op_name="DeformableConvolution",
        adj=None,
        prefix=None,
        params=None,
    ):
        super().__init__(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            num_deformable_group,
            layout,
            use_bias,
            in_channels,
            activation,
            weight_initializer,
            bias_initializer,
            offset_weight_initializer,
            offset_bias_initializer,
            offset_use_bias,
            op_name,
            prefix,
            params,
        )

    def _alias(self):
        return "deformable_conv"

    def __repr__(self):
        k, n_in = self._kwargs_deformable_conv, self.deformable_conv_weight.shape[1]
        text = (
            f"{n_in or None} -> {self._channels}, kernel_size={k['kernel']}, stride={k['stride']}"
        )
        text += f", padding={k['pad']}" if k["pad"] != (0, 0) else ""
        text += f", dilation={k['dilate']}" if k["dilate"] != (1, 1) else ""
        text += f", groups={k['num_group']}" if k["num_group"] != 1 else ""
        text += ", bias=False" if k["no_bias"] else ""
        text += f", {self.act}" if self.act is not None else ""
        return f"DeformableConvolution({text})"

    def _convolve(self, F, x, offset, weights):
        return F.contrib.DeformableConvolution(
            x, offset, *weights, name="fwd", **self._kwargs_deformable_conv
        )


class ModulatedDeformableConvolution(_Deformable):
    """DeformableConvolution that also weighs each point by a factor in (0, 2) found like the
    offsets.

    Source: Zhu et al. 2018, arXiv:1811.11168.
    """

    offsets = 3

    def __init__(
        self,
        channels,
        kernel_size=(1, 1),
        strides=(1, 1),
        padding=(0, 0),
        dilation=(1, 1),
        groups=1,
        num_deformable_group=1,
        layout="NCHW",
        use_bias=True,
        in_channels=0,
        activation=None,
        weight_initializer=None,
        bias_initializer="zeros",
        offset_weight_initializer="zeros",
        offset_bias_initializer="zeros",
        offset_use_bias=True,
        op_name="ModulatedDeformableConvolution",
        adj=None,
        prefix=None,
        params=None,
    ):
        super().__init__(
            channels,
            kernel_size,
            strides,
            padding,
            dilation,
            groups,
            num_deformable_group,
            layout,
            use_bias,
            in_channels,
            activation,
            weight_initializer,
            bias_initializer,
            offset_weight_initializer,
            offset_bias_initializer,
            offset_use_bias,
            op_name,
            prefix,
            params,
        )

    def _alias(self):
        return "modulated_deformable_conv"

    def _convolve(self, F, x, offset, weights):
        where = F.slice_axis(offset, axis=1, begin=0, end=self.offset_split_index)
        factor = F.slice_axis(offset, axis=1, begin=self.offset_split_index, end=None)
        return F.contrib.ModulatedDeformableConvolution(
            x,
            where,
            F.sigmoid(factor) * 2,
            *weights,
            name="fwd",
            **self._kwargs_deformable_conv,
        )
