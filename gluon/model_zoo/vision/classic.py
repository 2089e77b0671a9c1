"""AlexNet (Krizhevsky et al. 2012) and VGG (Simonyan and Zisserman 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engine import Context
from ....engine.error import InvalidValue
from ....training.initializer import Xavier
from ... import nn
from ...hybrid import HybridBlock
from ..model_store import CPU, ROOT, load_pretrained

__all__ = ["AlexNet", "alexnet", "VGG", "get_vgg"]


class AlexNet(HybridBlock):
    """AlexNet in its one-column form. classes: outputs."""

    def __init__(self, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            with self.features.name_scope():
                self.features.add(
                    nn.Conv2D(64, kernel_size=11, strides=4, padding=2, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Conv2D(192, kernel_size=5, padding=2, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Conv2D(384, kernel_size=3, padding=1, activation="relu"),
                    nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                    nn.Conv2D(256, kernel_size=3, padding=1, activation="relu"),
                    nn.MaxPool2D(pool_size=3, strides=2),
                    nn.Flatten(),
                    nn.Dense(4096, activation="relu"),
                    nn.Dropout(0.5),
                    nn.Dense(4096, activation="relu"),
                    nn.Dropout(0.5),
                )
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def alexnet(
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """AlexNet. pretrained: load its parameters from the folder `root` to ctx. kwargs: classes,
    prefix."""
    return load_pretrained(AlexNet(**kwargs), "alexnet", pretrained, ctx, root)


class VGG(HybridBlock):
    """VGG.

    Args:
        layers, filters: number of convolutions of each stage, and their channels.
        classes: outputs.
        batch_norm: normalise after each convolution.
    """

    def __init__(
        self,
        layers: Any,
        filters: Any,
        classes: int = 1000,
        batch_norm: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if len(layers) != len(filters):
            raise InvalidValue(
                f"VGG: layers and filters must be of one length, got {len(layers)} and"
                f" {len(filters)}"
            )
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            for n, channels in zip(layers, filters):
                for _ in range(n):
                    self.features.add(
                        nn.Conv2D(
                            channels,
                            kernel_size=3,
                            padding=1,
                            bias_initializer="zeros",
                            weight_initializer=Xavier(
                                rnd_type="gaussian", factor_type="out", magnitude=2
                            ),
                        )
                    )
                    if batch_norm:
                        self.features.add(nn.BatchNorm())
                    self.features.add(nn.Activation("relu"))
                self.features.add(nn.MaxPool2D(strides=2))
            for _ in range(2):
                self.features.add(
                    nn.Dense(
                        4096,
                        activation="relu",
                        weight_initializer="normal",
                        bias_initializer="zeros",
                    ),
                    nn.Dropout(rate=0.5),
                )
            self.output = nn.Dense(classes, weight_initializer="normal", bias_initializer="zeros")

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


SPEC = {11: [1, 1, 2, 2, 2], 13: [2, 2, 2, 2, 2], 16: [2, 2, 3, 3, 3], 19: [2, 2, 4, 4, 4]}


def get_vgg(
    num_layers: int,
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """VGG with 11, 13, 16 or 19 layers.

    pretrained: load its parameters from the folder `root` to ctx. kwargs: classes, batch_norm,
        prefix.
    """
    if num_layers not in SPEC:
        raise InvalidValue(f"Invalid number of layers: {num_layers}. Options are {list(SPEC)}")
    net = VGG(SPEC[num_layers], [64, 128, 256, 512, 512], **kwargs)
    return load_pretrained(
        net, f"vgg{num_layers}{'_bn' if kwargs.get('batch_norm') else ''}", pretrained, ctx, root
    )


def _named(n, batch_norm):
    def make(**kwargs):
        return get_vgg(n, **(kwargs | {"batch_norm": True} if batch_norm else kwargs))

    make.__name__ = make.__qualname__ = f"vgg{n}{'_bn' if batch_norm else ''}"
    make.__doc__ = (
        f"VGG-{n}{' with batch normalisation' if batch_norm else ''}; arguments as get_vgg."
    )
    return make


for _n in SPEC:
    for _batch_norm in (False, True):
        _function = _named(_n, _batch_norm)
        globals()[_function.__name__] = _function
        __all__.append(_function.__name__)
