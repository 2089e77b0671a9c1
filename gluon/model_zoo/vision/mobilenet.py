"""MobileNet (Howard et al. 2017) and MobileNetV2 (Sandler et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engine import Context
from ... import nn
from ...hybrid import HybridBlock
from ..model_store import CPU, ROOT, load_pretrained

__all__ = ["MobileNet", "MobileNetV2", "get_mobilenet", "get_mobilenet_v2"]


class RELU6(nn.HybridBlock):
    """min(max(x, 0), 6)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.clip(x, a_min=0, a_max=6, name="relu6")


def _add_conv(out, channels=1, kernel=1, stride=1, pad=0, num_group=1, active=True, relu6=False):
    out.add(
        nn.Conv2D(channels, kernel, stride, pad, groups=num_group, use_bias=False),
        nn.BatchNorm(scale=True),
    )
    if active:
        out.add(RELU6() if relu6 else nn.Activation("relu"))


def _add_conv_dw(out, dw_channels, channels, stride, relu6=False):
    _add_conv(
        out,
        channels=dw_channels,
        kernel=3,
        stride=stride,
        pad=1,
        num_group=dw_channels,
        relu6=relu6,
    )
    _add_conv(out, channels=channels, relu6=relu6)


class LinearBottleneck(nn.HybridBlock):
    """Expand by t, convolve each channel, project without activation; plus x where shapes agree."""

    def __init__(self, in_channels: int, channels: int, t: Any, stride: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.use_shortcut = stride == 1 and in_channels == channels
        with self.name_scope():
            self.out = nn.HybridSequential()
            _add_conv(self.out, in_channels * t, relu6=True)
            _add_conv(
                self.out,
                in_channels * t,
                kernel=3,
                stride=stride,
                pad=1,
                num_group=in_channels * t,
                relu6=True,
            )
            _add_conv(self.out, channels, active=False, relu6=True)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        out = self.out(x)
        return F.elemwise_add(out, x) if self.use_shortcut else out


class MobileNet(HybridBlock):
    """MobileNet. multiplier: of all channels. classes: outputs."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        widths = [
            int(x * multiplier) for x in [32, 64] + [128] * 2 + [256] * 2 + [512] * 6 + [1024] * 2
        ]
        strides = [1, 2] * 3 + [1] * 5 + [2, 1]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                _add_conv(self.features, channels=widths[0], kernel=3, pad=1, stride=2)
                for before, after, stride in zip(widths, widths[1:], strides):
                    _add_conv_dw(self.features, before, after, stride)
                self.features.add(nn.GlobalAvgPool2D(), nn.Flatten())
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


class MobileNetV2(nn.HybridBlock):
    """MobileNetV2. multiplier: of all channels. classes: outputs."""

    def __init__(self, multiplier: float = 1.0, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        widths = [
            int(x * multiplier)
            for x in [32] + [16] + [24] * 2 + [32] * 3 + [64] * 4 + [96] * 3 + [160] * 3 + [320]
        ]
        strides = [1, 2, 1, 2, 1, 1, 2] + [1] * 6 + [2] + [1] * 3
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="features_")
            with self.features.name_scope():
                _add_conv(self.features, widths[0], kernel=3, stride=2, pad=1, relu6=True)
                for i, (before, after, stride) in enumerate(zip(widths, widths[1:], strides)):
                    self.features.add(
                        LinearBottleneck(before, after, t=1 if i == 0 else 6, stride=stride)
                    )
                _add_conv(
                    self.features, int(1280 * multiplier) if multiplier > 1.0 else 1280, relu6=True
                )
                self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.HybridSequential(prefix="output_")
            with self.output.name_scope():
                self.output.add(nn.Conv2D(classes, 1, use_bias=False, prefix="pred_"), nn.Flatten())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def _suffix(multiplier: float) -> str:
    text = f"{multiplier:.2f}"
    return text[:-1] if text in ("1.00", "0.50") else text


def get_mobilenet(
    multiplier: float,
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """MobileNet. pretrained: load its parameters from the folder `root` to ctx. kwargs: classes,
    prefix."""
    return load_pretrained(
        MobileNet(multiplier, **kwargs), f"mobilenet{_suffix(multiplier)}", pretrained, ctx, root
    )


def get_mobilenet_v2(
    multiplier: float,
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """MobileNetV2. pretrained: load its parameters from the folder `root` to ctx. kwargs: classes,
    prefix."""
    return load_pretrained(
        MobileNetV2(multiplier, **kwargs),
        f"mobilenetv2_{_suffix(multiplier)}",
        pretrained,
        ctx,
        root,
    )


def _named(get, name, multiplier):
    def make(**kwargs):
        return get(multiplier, **kwargs)

    make.__name__ = make.__qualname__ = name + _suffix(multiplier).replace(".", "_")
    make.__doc__ = f"{get.__name__} with multiplier {multiplier}."
    return make


for _multiplier in (1.0, 0.75, 0.5, 0.25):
    for _get, _name in ((get_mobilenet, "mobilenet"), (get_mobilenet_v2, "mobilenet_v2_")):
        _function = _named(_get, _name, _multiplier)
        globals()[_function.__name__] = _function
        __all__.append(_function.__name__)
