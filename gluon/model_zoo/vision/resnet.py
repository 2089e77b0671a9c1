"""ResNet v1 (He et al. 2015) and v2 (He et al. 2016)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from ....engine import Context
from ....engine.error import InvalidValue
from ... import nn
from ...hybrid import HybridBlock
from ..model_store import CPU, ROOT, load_pretrained

__all__ = [
    "ResNetV1",
    "ResNetV2",
    "BasicBlockV1",
    "BasicBlockV2",
    "BottleneckV1",
    "BottleneckV2",
    "get_resnet",
]


def _conv3x3(channels, stride, in_channels):
    return nn.Conv2D(
        channels, kernel_size=3, strides=stride, padding=1, use_bias=False, in_channels=in_channels
    )


class _BlockV1(HybridBlock, ABC):
    """relu(body(x) + x), x through a 1 x 1 convolution where shapes change.

    Args:
        channels: of the output. stride: of the first convolution. downsample: shapes change.
        in_channels: 0: inferred at the first call.
    """

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.body = nn.HybridSequential(prefix="")
        self._fill(channels, stride, in_channels)
        self.downsample = nn.HybridSequential(prefix="") if downsample else None
        if self.downsample is not None:
            self.downsample.add(
                nn.Conv2D(
                    channels, kernel_size=1, strides=stride, use_bias=False, in_channels=in_channels
                ),
                nn.BatchNorm(),
            )

    @abstractmethod
    def _fill(self, channels: int, stride: int, in_channels: int) -> None:
        """Adds the convolutions to the body."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x if self.downsample is None else self.downsample(x)
        return F.Activation(self.body(x) + residual, act_type="relu")


class BasicBlockV1(_BlockV1):
    """Two 3 x 3 convolutions, for 18 and 34 layers."""

    def _fill(self, channels, stride, in_channels):
        self.body.add(
            _conv3x3(channels, stride, in_channels),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(channels, 1, channels),
            nn.BatchNorm(),
        )


class BottleneckV1(_BlockV1):
    """1 x 1, 3 x 3, 1 x 1 convolutions, for 50 layers and more."""

    def _fill(self, channels, stride, in_channels):
        inner = channels // 4
        self.body.add(
            nn.Conv2D(inner, kernel_size=1, strides=stride),
            nn.BatchNorm(),
            nn.Activation("relu"),
            _conv3x3(inner, 1, inner),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, kernel_size=1, strides=1),
            nn.BatchNorm(),
        )


class _BlockV2(HybridBlock, ABC):
    """x + convolutions(x), with normalisation and activation before each; arguments as for v1."""

    @abstractmethod
    def _convolutions(self, channels, stride, in_channels) -> tuple[Callable[[], nn.Conv2D], ...]:
        """What makes the convolutions, in order."""

    def __init__(
        self,
        channels: int,
        stride: int,
        downsample: bool = False,
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for i, make in enumerate(self._convolutions(channels, stride, in_channels), 1):
            setattr(self, f"bn{i}", nn.BatchNorm())
            setattr(self, f"conv{i}", make())
        self._n = i
        self.downsample = (
            nn.Conv2D(channels, 1, stride, use_bias=False, in_channels=in_channels)
            if downsample
            else None
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        residual = x
        for i in range(1, self._n + 1):
            x = F.Activation(getattr(self, f"bn{i}")(x), act_type="relu")
            if i == 1 and self.downsample is not None:
                residual = self.downsample(x)
            x = getattr(self, f"conv{i}")(x)
        return x + residual


class BasicBlockV2(_BlockV2):
    """Two 3 x 3 convolutions, for 18 and 34 layers."""

    def _convolutions(self, channels, stride, in_channels):
        return (
            lambda: _conv3x3(channels, stride, in_channels),
            lambda: _conv3x3(channels, 1, channels),
        )


class BottleneckV2(_BlockV2):
    """1 x 1, 3 x 3, 1 x 1 convolutions, for 50 layers and more."""

    def _convolutions(self, channels, stride, in_channels):
        inner = channels // 4
        return (
            lambda: nn.Conv2D(inner, kernel_size=1, strides=1, use_bias=False),
            lambda: _conv3x3(inner, stride, inner),
            lambda: nn.Conv2D(channels, kernel_size=1, strides=1, use_bias=False),
        )


class _ResNet(HybridBlock):
    features: nn.HybridSequential
    output: nn.Dense

    def _stem(self, channels, thumbnail):
        if thumbnail:
            self.features.add(_conv3x3(channels, 1, 0))
        else:
            self.features.add(
                nn.Conv2D(channels, 7, 2, 3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(3, 2, 1),
            )

    def _stages(self, block, layers, channels):
        if len(layers) != len(channels) - 1:
            raise InvalidValue(
                f"{type(self).__name__}: channels must have one entry more than layers, got "
                f"{len(channels)} and {len(layers)}"
            )
        for i, n in enumerate(layers):
            stage = nn.HybridSequential(prefix=f"stage{i + 1}_")
            with stage.name_scope():
                width, before = channels[i + 1], channels[i]
                stage.add(
                    block(width, 1 if i == 0 else 2, width != before, in_channels=before, prefix="")
                )
                for _ in range(n - 1):
                    stage.add(block(width, 1, False, in_channels=width, prefix=""))
            self.features.add(stage)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


class ResNetV1(_ResNet):
    """ResNet v1.

    Args:
        block: BasicBlockV1 or BottleneckV1.
        layers: number of blocks of each stage.
        channels: of the stem and of each stage.
        classes: outputs.
        thumbnail: for small images: a 3 x 3 stem that keeps the size.
    """

    def __init__(
        self,
        block: Any,
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self._stem(channels[0], thumbnail)
            self._stages(block, layers, channels)
            self.features.add(nn.GlobalAvgPool2D())
            self.output = nn.Dense(classes, in_units=channels[-1])


class ResNetV2(_ResNet):
    """ResNet v2; arguments as ResNetV1, with blocks of v2."""

    def __init__(
        self,
        block: Any,
        layers: Sequence[int],
        channels: Sequence[int],
        classes: int = 1000,
        thumbnail: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(nn.BatchNorm(scale=False, center=False))
            self._stem(channels[0], thumbnail)
            self._stages(block, layers, channels)
            self.features.add(
                nn.BatchNorm(), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten()
            )
            self.output = nn.Dense(classes, in_units=channels[-1])


_BASIC, _BOTTLENECK = [64, 64, 128, 256, 512], [64, 256, 512, 1024, 2048]
SPEC = {
    18: (0, [2, 2, 2, 2], _BASIC),
    34: (0, [3, 4, 6, 3], _BASIC),
    50: (1, [3, 4, 6, 3], _BOTTLENECK),
    101: (1, [3, 4, 23, 3], _BOTTLENECK),
    152: (1, [3, 8, 36, 3], _BOTTLENECK),
}
BLOCKS = {1: (BasicBlockV1, BottleneckV1), 2: (BasicBlockV2, BottleneckV2)}
NETS = {1: ResNetV1, 2: ResNetV2}


def get_resnet(
    version: int,
    num_layers: int,
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """ResNet of version 1 or 2 with 18, 34, 50, 101 or 152 layers.

    pretrained: load its parameters from the folder `root` to ctx. kwargs: of ResNetV1 (classes,
        thumbnail, prefix).
    """
    if num_layers not in SPEC:
        raise InvalidValue(f"Invalid number of layers: {num_layers}. Options are {list(SPEC)}")
    if version not in NETS:
        raise InvalidValue(f"Invalid resnet version: {version}. Options are 1 and 2.")
    kind, layers, channels = SPEC[num_layers]
    net = NETS[version](BLOCKS[version][kind], layers, channels, **kwargs)
    return load_pretrained(net, f"resnet{num_layers}_v{version}", pretrained, ctx, root)


def _named(version, n):
    def make(**kwargs):
        return get_resnet(version, n, **kwargs)

    make.__name__ = make.__qualname__ = f"resnet{n}_v{version}"
    make.__doc__ = f"ResNet-{n} v{version}; arguments as get_resnet."
    return make


for _version in (1, 2):
    for _n in SPEC:
        _function = _named(_version, _n)
        globals()[_function.__name__] = _function
        __all__.append(_function.__name__)
