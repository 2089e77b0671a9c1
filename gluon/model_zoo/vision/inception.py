"""Inception v3 (Szegedy et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....engine import Context
from ... import nn
from ...contrib.nn import HybridConcurrent
from ...hybrid import HybridBlock
from ..model_store import CPU, ROOT, load_pretrained

__all__ = ["Inception3", "inception_v3"]

ROW, COLUMN = {"kernel_size": (1, 7), "padding": (0, 3)}, {"kernel_size": (7, 1), "padding": (3, 0)}


def _conv(channels, kernel_size=1, strides=1, padding=0):
    out = nn.HybridSequential(prefix="")
    out.add(
        nn.Conv2D(channels, kernel_size, strides, padding, use_bias=False),
        nn.BatchNorm(epsilon=0.001),
        nn.Activation("relu"),
    )
    return out


def _chain(*blocks):
    """Blocks in sequence."""
    out = nn.HybridSequential(prefix="")
    out.add(*blocks)
    return out


def _average():
    return nn.AvgPool2D(pool_size=3, strides=1, padding=1)


def _maximum():
    return nn.MaxPool2D(pool_size=3, strides=2)


def _a(pool_features):
    yield _chain(_conv(64))
    yield _chain(_conv(48), _conv(64, 5, padding=2))
    yield _chain(_conv(64), _conv(96, 3, padding=1), _conv(96, 3, padding=1))
    yield _chain(_average(), _conv(pool_features))


def _b():
    yield _chain(_conv(384, 3, 2))
    yield _chain(_conv(64), _conv(96, 3, padding=1), _conv(96, 3, 2))
    yield _chain(_maximum())


def _c(n):
    yield _chain(_conv(192))
    yield _chain(_conv(n), _conv(n, **ROW), _conv(192, **COLUMN))
    yield _chain(
        _conv(n), _conv(n, **COLUMN), _conv(n, **ROW), _conv(n, **COLUMN), _conv(192, **ROW)
    )
    yield _chain(_average(), _conv(192))


def _d():
    yield _chain(_conv(192), _conv(320, 3, 2))
    yield _chain(_conv(192), _conv(192, **ROW), _conv(192, **COLUMN), _conv(192, 3, 2))
    yield _chain(_maximum())


def _e():
    yield _chain(_conv(320))
    for before in (lambda: [_conv(384)], lambda: [_conv(448), _conv(384, 3, padding=1)]):
        branch = _chain(_chain(*before()))
        split = HybridConcurrent(axis=1, prefix="")
        split.add(
            _chain(_conv(384, (1, 3), padding=(0, 1))), _chain(_conv(384, (3, 1), padding=(1, 0)))
        )
        branch.add(split)
        yield branch
    yield _chain(_average(), _conv(192))


MODULES = (
    ("A1_", _a, 32),
    ("A2_", _a, 64),
    ("A3_", _a, 64),
    ("B_", _b),
    ("C1_", _c, 128),
    ("C2_", _c, 160),
    ("C3_", _c, 160),
    ("C4_", _c, 192),
    ("D_", _d),
    ("E1_", _e),
    ("E2_", _e),
)


class Inception3(HybridBlock):
    """Inception v3, for images of 299 x 299. classes: outputs."""

    def __init__(self, classes: int = 1000, **kwargs: Any):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential(prefix="")
            self.features.add(
                _conv(32, 3, 2),
                _conv(32, 3),
                _conv(64, 3, padding=1),
                _maximum(),
                _conv(80),
                _conv(192, 3),
                _maximum(),
            )
            for prefix, branches, *arguments in MODULES:
                module = HybridConcurrent(axis=1, prefix=prefix)
                with module.name_scope():
                    module.add(*branches(*arguments))
                self.features.add(module)
            self.features.add(nn.AvgPool2D(pool_size=8), nn.Dropout(0.5))
            self.output = nn.Dense(classes)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def inception_v3(
    pretrained: bool = False,
    ctx: Context | Sequence[Context] = CPU,
    root: str = ROOT,
    **kwargs: Any,
) -> Any:
    """Inception v3. pretrained: load its parameters from the folder `root` to ctx. kwargs: classes,
    prefix."""
    return load_pretrained(Inception3(**kwargs), "inceptionv3", pretrained, ctx, root)
