"""Augmenters: transformations of one image (H, W, C), most of them random; CreateAugmenter makes
the usual list.

Colour augmenters take float images with values 0 .. 255 and work in place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...engine.error import InvalidType, InvalidValue
from ...ndarray import NDArray
from ...ndarray import functions as nd
from ...ndarray.creation import array
from .. import streams
from .pixels import (
    _area_argument,
    _get_interp_method,
    center_crop,
    color_normalize,
    imresize,
    random_crop,
    random_size_crop,
    resize_short,
)

LUMA = [[[0.299, 0.587, 0.114]]]  # of red, green, blue; ITU-R BT.601
GREY = (0.21, 0.72, 0.07)
# Of ImageNet's pixels. Source: Krizhevsky et al. 2012, section 4.1.
EIGENVALUES = (55.46, 4.794, 1.148)
EIGENVECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)
IMAGENET_MEAN = (123.68, 116.28, 103.53)
IMAGENET_STD = (58.395, 57.12, 57.375)
TO_YIQ = ((0.299, 0.587, 0.114), (0.596, -0.274, -0.321), (0.211, -0.523, 0.311))
FROM_YIQ = ((1.0, 0.956, 0.621), (1.0, -0.272, -0.647), (1.0, -1.107, 1.705))


def described(kwargs: dict) -> dict:
    """Arrays as lists, so that JSON can hold them."""
    return {
        k: v.asnumpy().tolist()
        if isinstance(v, NDArray)
        else v.tolist()
        if isinstance(v, np.ndarray)
        else v
        for k, v in kwargs.items()
    }


class Augmenter:
    """Base of augmenters: `__call__(src)` returns the transformed image. kwargs: the parameters
    that `dumps` writes."""

    def __init__(self, **kwargs: Any):
        self._kwargs = described(kwargs)

    def dumps(self) -> Any:
        """JSON text: [name, parameters]."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: Any) -> Any:
        raise InvalidType(f"{type(self).__name__} must define __call__(src)")


class SequentialAug(Augmenter):
    """Applies augmenters in sequence."""

    def __init__(self, ts: Any):
        super().__init__()
        self.ts = ts

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]

    def __call__(self, src: Any) -> Any:
        for t in self.ts:
            src = t(src)
        return src


class RandomOrderAug(Augmenter):
    """Augmenters in random order."""

    def __init__(self, ts: Any):
        super().__init__()
        self.ts = ts

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]

    def __call__(self, src: Any) -> Any:
        streams.python().shuffle(self.ts)
        for t in self.ts:
            src = t(src)
        return src


class _Sized(Augmenter):
    def __init__(self, size: Any, interp: int = 2):
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp


class ResizeAug(_Sized):
    """The shorter edge becomes `size` pixels."""

    def __call__(self, src: Any) -> Any:
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(_Sized):
    """Resizes to `size` (width, height), ignoring the aspect ratio."""

    def __call__(self, src: Any) -> Any:
        sizes = (src.shape[0], src.shape[1], self.size[1], self.size[0])
        return imresize(src, *self.size, interp=_get_interp_method(self.interp, sizes))


class RandomCropAug(_Sized):
    """A crop of `size` (width, height) at a random position."""

    def __call__(self, src: Any) -> Any:
        return random_crop(src, self.size, self.interp)[0]


class CenterCropAug(_Sized):
    """The centre crop of `size` (width, height)."""

    def __call__(self, src: Any) -> Any:
        return center_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """A crop of random area and aspect ratio, resized to `size`: see `random_size_crop`."""

    def __init__(self, size: Any, area: Any, ratio: Any, interp: int = 2, **kwargs: Any):
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.ratio, self.interp = size, ratio, interp
        self.area = _area_argument("RandomSizedCropAug", area, kwargs)

    def __call__(self, src: Any) -> Any:
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class BrightnessJitterAug(Augmenter):
    """Multiplies by a random factor in 1 +- brightness."""

    def __init__(self, brightness: float):
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: Any) -> Any:
        src *= 1.0 + streams.python().uniform(-self.brightness, self.brightness)
        return src


class ContrastJitterAug(Augmenter):
    """Scales the difference from the mean grey value by a random factor in 1 +- contrast."""

    def __init__(self, contrast: float):
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef = array(LUMA)

    def __call__(self, src: Any) -> Any:
        alpha = 1.0 + streams.python().uniform(-self.contrast, self.contrast)
        grey = src * self.coef
        grey = (3.0 * (1.0 - alpha) / grey.size) * nd.sum(grey)
        src *= alpha
        src += grey
        return src


class SaturationJitterAug(Augmenter):
    """Scales the difference from grey by a random factor in 1 +- saturation."""

    def __init__(self, saturation: float):
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef = array(LUMA)

    def __call__(self, src: Any) -> Any:
        alpha = 1.0 + streams.python().uniform(-self.saturation, self.saturation)
        grey = nd.sum(src * self.coef, axis=2, keepdims=True) * (1.0 - alpha)
        src *= alpha
        src += grey
        return src


class HueJitterAug(Augmenter):
    """Rotates the hue by a random angle in +- hue * 180 degrees, in the colour space YIQ."""

    def __init__(self, hue: float):
        super().__init__(hue=hue)
        self.hue = hue
        self.tyiq, self.ityiq = np.array(TO_YIQ), np.array(FROM_YIQ)

    def __call__(self, src: Any) -> Any:
        angle = streams.python().uniform(-self.hue, self.hue) * np.pi
        u, w = np.cos(angle), np.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, u, -w], [0.0, w, u]])
        return nd.dot(src, array((self.ityiq @ turn @ self.tyiq).T))


class ColorJitterAug(RandomOrderAug):
    """Random brightness, contrast and saturation, in random order; 0 disables one."""

    def __init__(self, brightness: float, contrast: float, saturation: float):
        kinds = (BrightnessJitterAug, ContrastJitterAug, SaturationJitterAug)
        amounts = (brightness, contrast, saturation)
        super().__init__([kind(amount) for kind, amount in zip(kinds, amounts) if amount > 0])


class LightingAug(Augmenter):
    """Adds the principal components of the colours, with normal weights of standard deviation
    alphastd.

    Args:
        eigval: (3,) eigenvalues of the colours' covariance.
        eigvec: (3, 3) eigenvectors, one per column.
    Source: Krizhevsky et al. 2012, section 4.1.
    """

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any):
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, eigval, eigvec

    def __call__(self, src: Any) -> Any:
        alpha = streams.numpy().normal(0, self.alphastd, size=(3,))
        src += array(np.dot(self.eigvec * alpha, self.eigval))
        return src


class ColorNormalizeAug(Augmenter):
    """(src - mean) / std; None skips a step."""

    def __init__(self, mean: Any, std: Any):
        super().__init__(mean=mean, std=std)
        self.mean, self.std = (
            v if v is None or isinstance(v, NDArray) else array(v) for v in (mean, std)
        )

    def __call__(self, src: Any) -> Any:
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Grey in all three channels with probability p."""

    def __init__(self, p: float):
        super().__init__(p=p)
        self.p = p
        self.mat = array([[share] * 3 for share in GREY])

    def __call__(self, src: Any) -> Any:
        return nd.dot(src, self.mat) if streams.python().random() < self.p else src


class HorizontalFlipAug(Augmenter):
    """Mirrors left and right with probability p."""

    def __init__(self, p: float):
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        return nd.flip(src, axis=1) if streams.python().random() < self.p else src


class CastAug(Augmenter):
    """Converts the dtype."""

    def __init__(self, typ: str = "float32"):
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: Any) -> Any:
        return src.astype(self.typ)


def colour_statistics(name: str, values: Any, default: Any) -> Any:
    """A mean or standard deviation: None, True (ImageNet's), or an array of 1 or 3 values."""
    if values is None:
        return None
    if values is True:
        return np.array(default)
    if isinstance(values, (tuple, list)):
        values = np.array(values, np.float32)
    if not isinstance(values, (np.ndarray, NDArray)) or values.shape[0] not in (1, 3):
        raise InvalidValue(
            f"{name} must be True, None or an array of 1 or 3 values, got {values!r}"
        )
    return values


def colour_augmenters(
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    pca_noise: float,
    rand_gray: float,
    mean: Any,
    std: Any,
) -> Any:
    """The augmenters that both lists share, starting with the cast to float."""
    found: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        found.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        found.append(HueJitterAug(hue))
    if pca_noise > 0:
        found.append(LightingAug(pca_noise, np.array(EIGENVALUES), np.array(EIGENVECTORS)))
    if rand_gray > 0:
        found.append(RandomGrayAug(rand_gray))
    mean = colour_statistics("mean", mean, IMAGENET_MEAN)
    std = colour_statistics("std", std, IMAGENET_STD)
    if mean is not None or std is not None:
        found.append(ColorNormalizeAug(mean, std))
    return found


def CreateAugmenter(  # noqa: N802 - MXNet's name
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The usual augmenters: resize, crop, mirror, cast, colour, normalise; each only if requested.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: length of the shorter edge, in pixels, before the crop.
        rand_crop: crop at a random position instead of the centre. rand_resize: crop a random size
            too.
        rand_mirror: mirror with probability 1/2.
        mean, std: (3,) of red, green, blue; True: ImageNet's.
        brightness, contrast, saturation, hue, pca_noise: strength of the random changes.
        rand_gray: probability of grey.
        inter_method: see this module.
    Raises: ValueError for rand_resize without rand_crop.
    """
    if len(data_shape) != 3:
        raise InvalidValue(
            f"CreateAugmenter: data_shape must be (channels, height, width), got {data_shape}"
        )
    size = (data_shape[2], data_shape[1])
    found: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    if rand_resize:
        if not rand_crop:
            raise InvalidValue("CreateAugmenter: rand_resize needs rand_crop=True")
        found.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    else:
        found.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        found.append(HorizontalFlipAug(0.5))
    return found + colour_augmenters(
        brightness, contrast, saturation, hue, pca_noise, rand_gray, mean, std
    )
