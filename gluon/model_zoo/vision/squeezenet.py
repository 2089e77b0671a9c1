"""SqueezeNet 1.0 and 1.1 (Iandola et al. 2016)."""

from __future__ import annotations

from typing import Any

from ....engine.error import InvalidValue
from ... import nn
from ...contrib.nn import HybridConcurrent
from ...hybrid import HybridBlock
from ..model_store import CPU, ROOT, load_pretrained

__all__ = ["SqueezeNet", "squeezenet1_0", "squeezenet1_1"]

POOL = "pool"
VERSIONS = {
    "1.0": ((96, 7), [POOL, 16, 16, 32, POOL, 32, 48, 48, 64, POOL, 64]),
    "1.1": ((64, 3), [POOL, 16, 16, POOL, 32, 32, POOL, 48, 48, 64, 64]),
}


def _conv(channels, kernel_size, padding=0):
    out = nn.HybridSequential(prefix="")
    out.add(nn.Conv2D(channels, kernel_size, padding=padding), nn.Activation("relu"))
    return out


def _fire(squeeze):
    """Squeeze to few channels, then 1 x 1 and 3 x 3 convolutions side by side."""
    paths = HybridConcurrent(axis=1, prefix="")
    out = nn.HybridSequential(prefix="")
    out.add(_conv(squeeze, 1))
    paths.add(_conv(4 * squeeze, 1), _conv(4 * squeeze, 3, 1))
    out.add(paths)
    return out


class SqueezeNet(HybridBlock):
    """SqueezeNet. version: "1.0" or "1.1". classes: outputs."""

    def __init__(self, version: str, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        if version not in VERSIONS:
            raise InvalidValue(f"Unsupported SqueezeNet version {version}: 1.0 or 1.1 expected")
        (channels, kernel), modules = VERSIONS[version]
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                nn.Conv2D(channels, kernel_size=kernel, strides=2), nn.Activation("relu")
            )
            for module in modules:
                self.features.add(
                    nn.MaxPool2D(pool_size=3, strides=2, ceil_mode=True)
                    if module is POOL
                    else _fire(module)
                )
            self.features.add(nn.Dropout(0.5))
            self.output = nn.HybridSequential(prefix="")
            self.output.add(
                nn.Conv2D(classes, kernel_size=1),
                nn.Activation("relu"),
                nn.AvgPool2D(13),
                nn.Flatten(),
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def _get(version, pretrained=False, ctx=CPU, root=ROOT, **kwargs):
    return load_pretrained(
        SqueezeNet(version, **kwargs), f"squeezenet{version}", pretrained, ctx, root
    )


def squeezenet1_0(**kwargs: Any) -> Any:
    """SqueezeNet 1.0. pretrained: load its parameters from the folder `root` to ctx."""
    return _get("1.0", **kwargs)


def squeezenet1_1(**kwargs: Any) -> Any:
    """SqueezeNet 1.1: 2.4 times less work. Arguments as squeezenet1_0."""
    return _get("1.1", **kwargs)
