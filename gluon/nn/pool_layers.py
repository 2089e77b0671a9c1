"""Poolings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..layer import Layer
from .arguments import known_layout, sizes


class _Pooling(Layer):
    """What all poolings have in common."""

    def __init__(
        self,
        pool_size: Sequence[int],
        strides: int | Sequence[int] | None,
        padding: int | Sequence[int],
        ceil_mode: bool,
        global_pool: bool,
        pool_type: str,
        layout: str,
        count_include_pad: bool | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        n = len(pool_size)
        self._kwargs = {
            "kernel": pool_size,
            "stride": pool_size if strides is None else sizes(strides, n, "strides"),
            "pad": sizes(padding, n, "padding"),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self):
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self):
        k = self._kwargs
        return (
            f"{type(self).__name__}(size={k['kernel']}, stride={k['stride']}, padding={k['pad']}, "
            f"ceil_mode={k['pooling_convention'] == 'full'}, global_pool={k['global_pool']}, "
            f"pool_type={k['pool_type']}, layout={k['layout']})"
        )


class MaxPool1D(_Pooling):
    """Maximum over windows.

    Args:
        pool_size: size of a window, a number.
        strides: steps from window to window; None: pool_size.
        padding: added on both sides; it is never the maximum.
        layout: "NCW" or "NWC".
        ceil_mode: incomplete last windows count, too.
    Shapes: data (N, C, W) -> (N, C, out); out = floor((size + 2 padding - pool_size) / stride) + 1,
        with ceil_mode ceil.
    Raises: ValueError for another layout.
    """

    def __init__(
        self,
        pool_size: int | Sequence[int] = 2,
        strides: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ):
        super().__init__(
            sizes(pool_size, 1, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "max",
            known_layout(layout, ("NCW", "NWC")),
            **kwargs,
        )


class MaxPool2D(_Pooling):
    """Maximum over windows.

    Args:
        pool_size: size of a window, a number, or two (height, width).
        strides: steps from window to window; None: pool_size.
        padding: added on both sides; it is never the maximum.
        layout: "NCHW" or "NHWC".
        ceil_mode: incomplete last windows count, too.
    Shapes: data (N, C, H, W) -> (N, C, out_h, out_w); out = floor((size + 2 padding - pool_size) /
        stride) + 1, with ceil_mode ceil.
    Raises: ValueError for another layout.
    """

    def __init__(
        self,
        pool_size: int | Sequence[int] = (2, 2),
        strides: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        layout: str = "NCHW",
        ceil_mode: bool = False,
        **kwargs: Any,
    ):
        super().__init__(
            sizes(pool_size, 2, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "max",
            known_layout(layout, ("NCHW", "NHWC")),
            **kwargs,
        )


class MaxPool3D(_Pooling):
    """Maximum over windows.

    Args:
        pool_size: size of a window, a number, or three (depth, height, width).
        strides: steps from window to window; None: pool_size.
        padding: added on both sides; it is never the maximum.
        layout: "NCDHW" or "NDHWC".
        ceil_mode: incomplete last windows count, too.
    Shapes: data (N, C, D, H, W) -> (N, C, out_d, out_h, out_w); out = floor((size + 2 padding -
        pool_size) / stride) + 1, with ceil_mode ceil.
    Raises: ValueError for another layout.
    """

    def __init__(
        self,
        pool_size: int | Sequence[int] = (2, 2, 2),
        strides: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        **kwargs: Any,
    ):
        super().__init__(
            sizes(pool_size, 3, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "max",
            known_layout(layout, ("NCDHW", "NDHWC")),
            **kwargs,
        )


class AvgPool1D(_Pooling):
    """Mean over windows.

    Args:
        pool_size: size of a window, a number.
        strides: steps from window to window; None: pool_size.
        padding: added on both sides.
        layout: "NCW" or "NWC".
        ceil_mode: incomplete last windows count, too.
        count_include_pad: padding counts as zeros; else the mean is over what is there.
    Shapes: data (N, C, W) -> (N, C, out); out = floor((size + 2 padding - pool_size) / stride) + 1,
        with ceil_mode ceil.
    Raises: ValueError for another layout.
    """

    def __init__(
        self,
        pool_size: int | Sequence[int] = 2,
        strides: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            sizes(pool_size, 1, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "avg",
            known_layout(layout, ("NCW", "NWC")),
            count_include_pad,
            **kwargs,
        )


class AvgPool2D(_Pooling):
    """Mean over windows.

    Args:
        pool_size: size of a window, a number, or two (height, width).
        strides: steps from window to window; None: pool_size.
        padding: added on both sides.
        layout: "NCHW" or "NHWC".
        ceil_mode: incomplete last windows count, too.
        count_include_pad: padding counts as zeros; else the mean is over what is there.
    Shapes: data (N, C, H, W) -> (N, C, out_h, out_w); out = floor((size + 2 padding - pool_size) /
        stride) + 1, with ceil_mode ceil.
    Raises: ValueError for another layout.
    """

    def __init__(
        self,
        pool_size: int | Sequence[int] = (2, 2),
        strides: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        layout: str = "NCHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            sizes(pool_size, 2, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "avg",
            known_layout(layout, ("NCHW", "NHWC")),
            count_include_pad,
            **kwargs,
        )


class AvgPool3D(_Pooling):
    """Mean over windows.

    Args:
        pool_size: size of a window, a number, or three (depth, height, width).
        strides: steps from window to window; None: pool_size.
        padding: added on both sides.
        layout: "NCDHW" or "NDHWC".
        ceil_mode: incomplete last windows count, too.
        count_include_pad: padding counts as zeros; else the mean is over what is there.
    Shapes: data (N, C, D, H, W) -> (N, C, out_d, out_h, out_w); out = floor((size + 2 padding -
        pool_size) / stride) + 1, with ceil_mode ceil.
    Raises: ValueError for another layout.
    """

    def __init__(
        self,
        pool_size: int | Sequence[int] = (2, 2, 2),
        strides: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ):
        super().__init__(
            sizes(pool_size, 3, "pool_size"),
            strides,
            padding,
            ceil_mode,
            False,
            "avg",
            known_layout(layout, ("NCDHW", "NDHWC")),
            count_include_pad,
            **kwargs,
        )


class _GlobalPooling(_Pooling):
    n_axes, pool_type, layouts = 2, "max", ("NCHW", "NHWC")

    def __init__(self, layout: str, **kwargs: Any):
        super().__init__(
            (1,) * self.n_axes,
            None,
            0,
            True,
            True,
            self.pool_type,
            known_layout(layout, self.layouts),
            **kwargs,
        )


class GlobalMaxPool1D(_GlobalPooling):
    """Maximum over W: (N, C, W) -> (N, C, 1)."""

    n_axes, pool_type, layouts = 1, "max", ("NCW", "NWC")

    def __init__(self, layout: str = "NCW", **kwargs: Any):
        super().__init__(layout, **kwargs)


class GlobalMaxPool2D(_GlobalPooling):
    """Maximum over H and W: (N, C, H, W) -> (N, C, 1, 1)."""

    n_axes, pool_type, layouts = 2, "max", ("NCHW", "NHWC")

    def __init__(self, layout: str = "NCHW", **kwargs: Any):
        super().__init__(layout, **kwargs)


class GlobalMaxPool3D(_GlobalPooling):
    """Maximum over D, H and W: (N, C, D, H, W) -> (N, C, 1, 1, 1)."""

    n_axes, pool_type, layouts = 3, "max", ("NCDHW", "NDHWC")

    def __init__(self, layout: str = "NCDHW", **kwargs: Any):
        super().__init__(layout, **kwargs)


class GlobalAvgPool1D(_GlobalPooling):
    """Mean over W: (N, C, W) -> (N, C, 1)."""

    n_axes, pool_type, layouts = 1, "avg", ("NCW", "NWC")

    def __init__(self, layout: str = "NCW", **kwargs: Any):
        super().__init__(layout, **kwargs)


class GlobalAvgPool2D(_GlobalPooling):
    """Mean over H and W: (N, C, H, W) -> (N, C, 1, 1)."""

    n_axes, pool_type, layouts = 2, "avg", ("NCHW", "NHWC")

    def __init__(self, layout: str = "NCHW", **kwargs: Any):
        super().__init__(layout, **kwargs)


class GlobalAvgPool3D(_GlobalPooling):
    """Mean over D, H and W: (N, C, D, H, W) -> (N, C, 1, 1, 1)."""

    n_axes, pool_type, layouts = 3, "avg", ("NCDHW", "NDHWC")

    def __init__(self, layout: str = "NCDHW", **kwargs: Any):
        super().__init__(layout, **kwargs)
