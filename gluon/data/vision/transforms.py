"""Transforms of images (H, W, C), for Dataset.transform_first; several of them also take (N, H, W,
C).

Random ones draw from the package's random stream, which `mx.random.seed` restarts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....data.image.crop import cropped
from ....data.image.rotate import check_zoom, imrotate
from ....data.sampler import host_generator
from ....engine.error import InvalidValue, OperatorError
from ....kernels.record import several
from ....kernels.spec import DType
from ....ndarray import functions as nd
from ....ndarray.ndarray import NDArray, from_memory
from ....ndarray.numpy_mode import in_mode, is_np_array  # noqa: F401
from ...block import Block
from ...hybrid import HybridBlock
from ...nn import HybridSequential, Sequential  # noqa: F401

__all__ = [
    "Compose",
    "Cast",
    "ToTensor",
    "Normalize",
    "Rotate",
    "RandomRotation",
    "RandomResizedCrop",
    "CropResize",
    "CenterCrop",
    "Resize",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomBrightness",
    "RandomContrast",
    "RandomSaturation",
    "RandomHue",
    "RandomColorJitter",
    "RandomLighting",
    "RandomApply",
]


class _TakesNumpy(Block):
    """Accepts NumPy images too, as datasets in worker processes may have them."""

    def __call__(self, x: Any, *args: Any) -> Any:
        x = in_mode(from_memory(x)) if isinstance(x, np.ndarray) else x
        return super().__call__(x, *args)


class _Transform(_TakesNumpy):
    """A transform that depends on shapes or random numbers."""


class _HybridTransform(_TakesNumpy, HybridBlock):
    """A transform that is one operator."""


class Compose(_TakesNumpy, Sequential):
    """Applies transforms in sequence."""

    def __init__(self, transforms: Sequence[Any]):
        super().__init__()
        for transform in transforms:
            self.add(transform)

    def forward(self, x: Any, *args: Any) -> Any:
        steps = list(self._children.values())
        while steps:
            step: Callable[..., Any] = steps.pop(0)
            after = steps[0] if steps and type(step) is ToTensor and _is_bytes(x) else None
            if isinstance(after, Normalize) and type(after) is Normalize:
                steps.pop(0)
                step = after.of_bytes
            x = step(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                x, args = x[0], tuple(x[1:])
        return (x, *args) if args else x


def _is_bytes(x) -> bool:
    """Is it one image of bytes (H, W, C)?"""
    return isinstance(x, NDArray) and x.ndim == 3 and x.dtype == np.uint8


class Cast(_HybridTransform):
    """Converts the dtype."""

    def __init__(self, dtype: DType = "float32"):
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(x, dtype=self._dtype)


class ToTensor(_HybridTransform):
    """(H, W, C) with values in [0, 255] -> (C, H, W) float32 in [0, 1]."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_to_tensor(x)


class Normalize(_HybridTransform):
    """(x - mean) / std on (C, H, W). mean, std: number, or one number a channel."""

    def __init__(self, mean: float = 0.0, std: float = 1.0):
        super().__init__()
        self._mean, self._std = _tuple(mean), _tuple(std)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_normalize(x, mean=self._mean, std=self._std)

    def of_bytes(self, x: Any) -> Any:
        """ToTensor and Normalize of an image (H, W, C) of bytes, in one step."""
        return nd._image_tensor_normalize(x, mean=self._mean, std=self._std)


def _tuple(values) -> tuple[float, ...]:
    return (
        tuple(map(float, values))
        if isinstance(values, (tuple, list, np.ndarray))
        else (float(values),)
    )


class Resize(_HybridTransform):
    """Resizes. size: (width, height), or one number for both edges (with keep_ratio: for the
    shorter one).

    interpolation: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: Any = 1):
        super().__init__()
        self._size, self._keep, self._interpolation = _size(size), keep_ratio, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_resize(
            x, size=self._size, keep_ratio=self._keep, interp=self._interpolation
        )


def _size(size) -> tuple[int, ...]:
    return tuple(map(int, several(size)))


def _crop(x, x0, y0, width, height, size=None, interpolation=1):
    """The crop of an image at (x0, y0), resized to `size` (width, height) if it has another
    size."""
    x = cropped(x, x0, y0, width, height)
    if size is not None and tuple(size) != (width, height):
        x = nd._image_resize(x, size=tuple(size), interp=interpolation)
    return x


class CropResize(_HybridTransform):
    """The crop of `width` x `height` pixels at column x, row y, resized to `size` (number or
    (width, height)) if given."""

    def __init__(
        self, x: Any, y: Any, width: int, height: int, size: Any = None, interpolation: Any = None
    ):
        super().__init__()
        self._at = {"x": x, "y": y, "width": width, "height": height}
        self._size, self._interpolation = (
            size and _size(size),
            1 if interpolation is None else interpolation,
        )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        x = F._image_crop(x, **self._at)
        return F._image_resize(x, size=self._size, interp=self._interpolation) if self._size else x


class CenterCrop(_Transform):
    """The centre crop of `size` (number or (width, height)); in a smaller image the largest crop
    that fits, enlarged."""

    def __init__(self, size: Any, interpolation: Any = 1):
        super().__init__()
        self._size, self._interpolation = _both(size), interpolation

    def forward(self, x: Any) -> Any:
        height, width = _extent(self, x)
        w, h = _scaled_down(width, height, *self._size)
        return _crop(x, (width - w) // 2, (height - h) // 2, w, h, self._size, self._interpolation)


def _both(size) -> tuple[int, int]:
    size = _size(size)
    return size if len(size) == 2 else (size[0], size[0])


def _extent(block, x) -> tuple[int, int]:
    if len(x.shape) not in (3, 4):
        raise OperatorError(
            type(block).__name__, f"data must be (H, W, C) or (N, H, W, C), got {x.shape}"
        )
    return x.shape[-3], x.shape[-2]


def _scaled_down(width: int, height: int, w: float, h: float) -> tuple[int, int]:
    """(w, h), reduced at the same aspect ratio until it fits."""
    if height < h:
        w, h = w * height / h, height
    if width < w:
        w, h = width, h * width / w
    return int(w), int(h)


class RandomResizedCrop(_Transform):
    """A crop of random area and aspect ratio, resized to `size` (number or (width, height)).

    scale: range of the crop's fraction of the image's area. ratio: range of width / height. Source:
        Szegedy et al. 2015.
    """

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: Any = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = 1,
    ):
        super().__init__()
        self._size, self._interpolation = _both(size), interpolation
        self._scale = (scale, 1.0) if isinstance(scale, (int, float)) else tuple(scale)
        self._ratio = tuple(ratio)

    def forward(self, x: Any) -> Any:
        height, width = _extent(self, x)
        rng = host_generator()
        for _ in range(10):
            area = rng.uniform(*self._scale) * height * width
            narrow, wide = self._ratio
            ratio = math.exp(rng.uniform(math.log(narrow), math.log(wide)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return _crop(
                    x,
                    int(rng.integers(width - w + 1)),
                    int(rng.integers(height - h + 1)),
                    w,
                    h,
                    self._size,
                    self._interpolation,
                )
        w, h = _scaled_down(width, height, *self._size)
        return _crop(x, (width - w) // 2, (height - h) // 2, w, h, self._size, self._interpolation)


class RandomFlipLeftRight(_HybridTransform):
    """Mirrors left and right with probability 1/2."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_random_flip_left_right(x)


class RandomFlipTopBottom(_HybridTransform):
    """Mirrors top and bottom with probability 1/2."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_random_flip_top_bottom(x)


class _RandomFactor(_HybridTransform):
    """A colour transform by a random factor in [max(0, 1 - amount), 1 + amount)."""

    operator = ""

    def __init__(self, amount: Any):
        super().__init__()
        self._factors = {"min_factor": max(0.0, 1 - amount), "max_factor": 1 + amount}

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return getattr(F, self.operator)(x, **self._factors)


class RandomBrightness(_RandomFactor):
    """Multiplies by a random factor in [max(0, 1 - brightness), 1 + brightness)."""

    operator = "_image_random_brightness"

    def __init__(self, brightness: float):
        super().__init__(brightness)


class RandomContrast(_RandomFactor):
    """Scales the difference from the mean grey value by a random factor in [max(0, 1 - contrast), 1
    + contrast)."""

    operator = "_image_random_contrast"

    def __init__(self, contrast: float):
        super().__init__(contrast)


class RandomSaturation(_RandomFactor):
    """Scales the difference from grey by a random factor in [max(0, 1 - saturation), 1 +
    saturation)."""

    operator = "_image_random_saturation"

    def __init__(self, saturation: float):
        super().__init__(saturation)


class RandomHue(_RandomFactor):
    """Rotates the hue by a random fraction in [-hue, hue) of a full circle."""

    operator = "_image_random_hue"

    def __init__(self, hue: float):
        super().__init__(hue)


class RandomColorJitter(_HybridTransform):
    """Random changes of brightness, contrast, saturation and hue, in random order."""

    def __init__(
        self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0
    ):
        super().__init__()
        self._amounts = {
            "brightness": brightness,
            "contrast": contrast,
            "saturation": saturation,
            "hue": hue,
        }

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_random_color_jitter(x, **self._amounts)


class RandomLighting(_HybridTransform):
    """Adds the principal components of the colours, with normal weights of standard deviation
    alpha. Source: Krizhevsky et al. 2012."""

    def __init__(self, alpha: Any):
        super().__init__()
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F._image_random_lighting(x, alpha_std=self._alpha)


class RandomApply(Sequential):
    """A transform (or a list of them) with probability p."""

    def __init__(self, transforms: Block | Sequence[Block], p: float = 0.5):
        super().__init__()
        self.add(*([transforms] if isinstance(transforms, Block) else transforms))
        self.p = p

    def forward(self, x: Any, *args: Any) -> Any:
        return x if host_generator().random() >= self.p else super().forward(x, *args)


class Rotate(_Transform):
    """Rotates an image (C, H, W) of float32 counter-clockwise.

    zoom_in: enlarge until no padding shows. zoom_out: shrink until the whole image shows.
    """

    def __init__(self, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False):
        super().__init__()
        check_zoom(zoom_in, zoom_out)
        self._degrees, self._zoom_in, self._zoom_out = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: Any) -> Any:
        return imrotate(x, self._degrees, self._zoom_in, self._zoom_out)


class RandomRotation(_Transform):
    """Rotate by an angle from angle_limits = (low, high) in degrees, with probability
    rotate_with_proba."""

    def __init__(
        self,
        angle_limits: Any,
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ):
        super().__init__()
        check_zoom(zoom_in, zoom_out)
        low, high = angle_limits
        if low >= high:
            raise InvalidValue("`angle_limits` must be an ordered tuple")
        if not 0 <= rotate_with_proba <= 1:
            raise InvalidValue("Probability of rotating the image should be between 0 and 1")
        self._limits, self._zoom_in, self._zoom_out = (low, high), zoom_in, zoom_out
        self._probability = rotate_with_proba

    def forward(self, x: Any) -> Any:
        rng = host_generator()
        if rng.random() >= self._probability:
            return x
        return imrotate(x, rng.uniform(*self._limits), self._zoom_in, self._zoom_out)
