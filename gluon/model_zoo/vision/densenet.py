"""DenseNet (Huang et al. 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engine import Context
from ....engine.error import InvalidValue
from ... import nn
from ...contrib.nn import HybridConcurrent, Identity
from ...hybrid import HybridBlock
from ..model_store import CPU, ROOT, load_pretrained

__all__ = ["DenseNet"]


def _layer(growth_rate, bn_size, dropout):
    """x and `growth_rate` new channels."""
    new = nn.HybridSequential(prefix="")
    new.add(
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(bn_size * growth_rate, kernel_size=1, use_bias=False),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.Conv2D(growth_rate, kernel_size=3, padding=1, use_bias=False),
    )
    if dropout:
        new.add(nn.Dropout(dropout))
    out = HybridConcurrent(axis=1, prefix="")
    out.add(Identity(), new)
    return out


class DenseNet(HybridBlock):
    """DenseNet.

    Args:
        num_init_features: channels of the stem. growth_rate: channels that each layer adds.
        block_config: number of layers of each block. bn_size: width of a layer's first convolution
            / growth_rate.
        dropout: probability. classes: outputs.
    """

    def __init__(
        self,
        num_init_features: Any,
        growth_rate: Any,
        block_config: Any,
        bn_size: int = 4,
        dropout: float = 0,
        classes: int = 1000,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                nn.Conv2D(num_init_features, kernel_size=7, strides=2, padding=3, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.MaxPool2D(pool_size=3, strides=2, padding=1),
            )
            channels = num_init_features
            for i, n in enumerate(block_config, 1):
                block = nn.HybridSequential(prefix=f"stage{i}_")
                with block.name_scope():
                    for _ in range(n):
                        block.add(_layer(growth_rate, bn_size, dropout))
                self.features.add(block)
                channels += n * growth_rate
                if i < len(block_config):
                    channels //= 2
                    transition = nn.HybridSequential(prefix="")
                    transition.add(
                        nn.BatchNorm(),
                        nn.Activation("relu"),
                        nn.Conv2D(channels, kernel_size=1, use_bias=False),
                        nn.AvgPool2D(pool_size=2, strides=2),
                    )
                    self.features.add(transition)
            self.features.add(
                nn.BatchNorm(), nn.Activation("relu"), nn.AvgPool2D(pool_size=7), nn.Flatten()
            )
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


SPEC = {
    121: (64, 32, [6, 12, 24, 16]),
    161: (96, 48, [6, 12, 36, 24]),
    169: (64, 32, [6, 12, 32, 32]),
    201: (64, 32, [6, 12, 48, 32]),
}


def get_densenet(
    num_layers: int,
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """DenseNet with 121, 161, 169 or 201 layers. pretrained: load its parameters from the folder
    `root` to ctx."""
    if num_layers not in SPEC:
        raise InvalidValue(f"Invalid number of layers: {num_layers}. Options are {list(SPEC)}")
    return load_pretrained(
        DenseNet(*SPEC[num_layers], **kwargs), f"densenet{num_layers}", pretrained, ctx, root
    )


def _named(n):
    def make(**kwargs):
        return get_densenet(n, **kwargs)

    make.__name__ = make.__qualname__ = f"densenet{n}"
    make.__doc__ = f"DenseNet-{n}; arguments as get_densenet."
    return make


for _n in SPEC:
    globals()[f"densenet{_n}"] = _named(_n)
    __all__.append(f"densenet{_n}")
