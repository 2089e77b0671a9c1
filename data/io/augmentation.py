"""The augmentation of ImageRecordIter: from a decoded uint8 image (H, W, C) to the pixels that go
into the batch."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist
from typing import Any

import numpy as np

from ...engine import lib
from ...engine._core import ffi
from ...engine.error import InvalidValue, MXNetError
from ...kernels.ops.image_resize import AREA, LANCZOS, LINEAR, NEAREST, resized, rule_for
from .options import option

AUTO, RANDOM = 9, 10
DRAWS = 64  # uniform numbers for one image; few images need more
ATTEMPTS = 10
HUES = 180  # OpenCV's hue in bytes counts half degrees
ANY_SIZE = 1e10
# Eigenvectors times eigenvalues of the colours of ImageNet's pixels, red, green, blue in rows.
# Source: Krizhevsky et al. 2012, section 4.1.
PRINCIPAL = np.array(
    [
        (55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009),
        (55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140),
        (55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203),
    ]
)
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


class Draws:
    """The random numbers of one image, drawn in advance so that results do not depend on
    threads."""

    def __init__(self, uniform: np.ndarray):
        self._numbers = iter(uniform.tolist())
        self._last = 0.5

    def _next(self) -> float:
        number = next(self._numbers, None)
        if number is None:
            more = np.random.default_rng(int(self._last * 2**53)).random(DRAWS)
            self._numbers = iter(more.tolist())
            number = next(self._numbers)
        self._last = number
        return number

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._next()

    def whole(self, low: int, high: int) -> int:
        """low, ..., high, equally likely."""
        return min(high, low + int((high - low + 1) * self._next()))

    def normal(self, deviation: float) -> float:
        return NormalDist(0, deviation).inv_cdf(min(max(self._next(), 1e-12), 1 - 1e-12))


@dataclasses.dataclass
class Augmentation:
    """Augmentations of an image before normalisation, in this order."""

    aug_seq: str = option("aug_default", "accepted: the sequence of this list")
    resize: int = option(-1, "length of the shorter edge in pixels, before all else; -1: as it is")
    rand_crop: bool = option(False, "crop at a random place, not in the middle")
    random_resized_crop: bool = option(False, "crop a part of random area and ratio, and resize it")
    max_rotate_angle: int = option(0, "turn by a random angle in [-v, v] degrees")
    max_aspect_ratio: float = option(
        0.0, "change width / height by a random factor in [1 - v, 1 + v], or [min_aspect_ratio, v]"
    )
    min_aspect_ratio: float | None = option(None, "see max_aspect_ratio")
    max_shear_ratio: float = option(0.0, "shear (x, y) -> (x + m y, y) by a random m in [-v, v]")
    max_crop_size: int = option(
        -1, "crop a square of random size in [min_crop_size, v] pixels and resize it"
    )
    min_crop_size: int = option(-1, "see max_crop_size")
    max_random_scale: float = option(1.0, "resize by a random factor in [min_random_scale, v]")
    min_random_scale: float = option(1.0, "see max_random_scale")
    max_random_area: float = option(1.0, "random_resized_crop: most of the image's area")
    min_random_area: float = option(1.0, "random_resized_crop: least of the image's area")
    max_img_size: float = option(ANY_SIZE, "most pixels of an edge after scaling and turning")
    min_img_size: float = option(0.0, "least pixels of an edge after scaling and turning")
    brightness: float = option(0.0, "times a random factor in 1 +- v")
    contrast: float = option(0.0, "distance from the mean grey times a random factor in 1 +- v")
    saturation: float = option(0.0, "distance from grey times a random factor in 1 +- v")
    pca_noise: float = option(0.0, "principal colours with normal weights of this deviation")
    random_h: int = option(0, "add a random number in [-v, v] to the hue (of 180)")
    random_s: int = option(0, "add a random number in [-v, v] to the saturation (of 255)")
    random_l: int = option(0, "add a random number in [-v, v] to the lightness (of 255)")
    rotate: int = option(-1, "turn by this angle in degrees, in place of max_rotate_angle")
    fill_value: int = option(255, "colour of what lies outside the image")
    inter_method: int = option(
        1, "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 chosen by the sizes, 10 random"
    )
    pad: int = option(0, "margin in pixels on all sides, before the crop")

    def check(self, where: str) -> None:
        """Raises ValueError where parameters contradict each other."""
        if self.inter_method not in (*range(5), AUTO, RANDOM):
            raise InvalidValue(f"{where}: invalid inter_method {self.inter_method}")
        if self.aug_seq not in ("", "aug_default"):
            raise InvalidValue(f"{where}: aug_seq must be 'aug_default', got {self.aug_seq!r}")
        for name in ("random_scale", "random_area", "crop_size", "img_size"):
            low, high = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if low > high:
                raise InvalidValue(f"{where}: min_{name} = {low} is above max_{name} = {high}")
        others = (self.min_random_scale, self.max_random_scale, self.min_crop_size)
        if self.random_resized_crop and (
            self.rand_crop or (*others, self.max_crop_size) != (1.0, 1.0, -1, -1)
        ):
            raise InvalidValue(
                f"{where}: random_resized_crop conflicts with rand_crop, min_random_scale,"
                " max_random_scale, min_crop_size and max_crop_size"
            )

    @property
    def aspect_ratios(self) -> tuple[float, float]:
        if self.min_aspect_ratio is not None:
            return self.min_aspect_ratio, self.max_aspect_ratio
        return 1 - self.max_aspect_ratio, 1 + self.max_aspect_ratio

    @property
    def is_affine(self) -> bool:
        return (
            self.max_rotate_angle > 0
            or self.max_shear_ratio > 0
            or self.rotate > 0
            or (self.min_random_scale, self.max_random_scale) != (1.0, 1.0)
            or self.aspect_ratios != (1.0, 1.0)
            or (self.min_img_size, self.max_img_size) != (0.0, ANY_SIZE)
        )

    # ---- the steps -------------------------------------------------------------------------------

    def apply(self, image: Any, shape: Any, draws: Draws, full_size: Any = None) -> np.ndarray:
        """The pixels of an image that go into the batch; may be a view.

        Args:
            image: uint8 (H, W, C).
            shape: (channels, height, width) wanted.
            full_size: (height, width) before a decoder reduced the image.
        """
        _, height, width = shape
        if self.resize > 0:
            before = full_size or image.shape[:2]
            size = resized(before[0], before[1], (self.resize,), keep_ratio=True)
            image = self._resized(image, size[0], size[1], draws)
        part = self._random_part(image, draws) if self.random_resized_crop else None
        if part is not None:
            image = self._resized(part, height, width, draws)
        else:
            if self.is_affine and not self.random_resized_crop:
                image = self._warped(image, draws)
            if self.pad > 0:
                margin = ((self.pad, self.pad), (self.pad, self.pad), (0, 0))
                image = np.pad(image, margin, constant_values=self.fill_value)
            image = self._cropped(image, height, width, draws)
        return self._coloured(image, draws)

    def _method(self, height, width, out_height, out_width, draws) -> int:
        if self.inter_method == AUTO:
            if out_height > height and out_width > width:
                return 2
            return AREA if out_height < height and out_width < width else LINEAR
        return draws.whole(0, LANCZOS) if self.inter_method == RANDOM else self.inter_method

    def _resized(self, image, height, width, draws) -> np.ndarray:
        method = self._method(image.shape[0], image.shape[1], height, width, draws)
        return resize_bytes(image, height, width, method)

    def _random_part(self, image, draws):
        """A crop of random area and aspect ratio; None if no draw fits."""
        height, width = image.shape[:2]
        for _ in range(ATTEMPTS):
            area = draws.uniform(self.min_random_area, self.max_random_area) * height * width
            ratio = draws.uniform(*self.aspect_ratios)
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if draws.uniform(0, 1) > 0.5:
                h, w = w, h
            if 0 < h <= height and 0 < w <= width:
                return _part(image, draws.whole(0, height - h), draws.whole(0, width - w), h, w)
        return None

    def _warped(self, image, draws) -> np.ndarray:
        """Sheared, rotated, scaled and stretched about the centre."""
        height, width = image.shape[:2]
        shear = draws.uniform(-self.max_shear_ratio, self.max_shear_ratio)
        angle = draws.whole(-self.max_rotate_angle, self.max_rotate_angle)
        angle = math.radians(self.rotate if self.rotate > 0 else angle)
        cos, sin = math.cos(angle), math.sin(angle)
        scale = draws.uniform(self.min_random_scale, self.max_random_scale)
        ratio = draws.uniform(*self.aspect_ratios)
        tall = 2 * scale / (1 + ratio)
        wide = ratio * tall
        new_width, new_height = (
            max(self.min_img_size, min(self.max_img_size, scale * extent))
            for extent in (width, height)
        )
        matrix = np.array(
            [
                [tall * cos - shear * sin * wide, tall * sin + shear * cos * wide],
                [-sin * wide, cos * wide],
            ]
        )
        shift = (np.array([new_width, new_height]) - matrix @ [width, height]) / 2
        linear = self._method(height, width, new_height, new_width, draws) != NEAREST
        return warp_bytes(
            image, matrix, shift, int(new_height), int(new_width), linear, self.fill_value
        )

    def _cropped(self, image, height, width, draws) -> np.ndarray:
        rows, columns = image.shape[:2]
        if self.max_crop_size != -1 or self.min_crop_size != -1:
            if min(rows, columns) < self.max_crop_size:
                raise MXNetError(
                    f"input image size {columns} x {rows} is smaller than max_crop_size ="
                    f" {self.max_crop_size}"
                )
            size = draws.whole(self.min_crop_size, self.max_crop_size)
            return self._resized(self._placed(image, size, size, draws), height, width, draws)
        if rows < height:
            image = self._resized(image, height, int(height / rows * columns), draws)
        if image.shape[1] < width:
            image = self._resized(image, int(width / image.shape[1] * image.shape[0]), width, draws)
        return self._placed(image, height, width, draws)

    def _placed(self, image, height, width, draws) -> np.ndarray:
        y, x = image.shape[0] - height, image.shape[1] - width
        if self.rand_crop:
            return _part(image, draws.whole(0, y), draws.whole(0, x), height, width)
        return _part(image, y // 2, x // 2, height, width)

    def _coloured(self, image, draws) -> np.ndarray:
        if image.shape[2] != 3:
            return image
        if self.brightness > 0 or self.contrast > 0 or self.saturation > 0:
            image = self._jittered(image, draws)
        if self.random_h or self.random_s or self.random_l:
            image = shifted_hls(
                image,
                *(
                    int((draws.uniform(0, 1) + 4 * draws.uniform(0, 1)) / 5 * 2 * most - most)
                    for most in (self.random_h, self.random_l, self.random_s)
                ),
            )
        if self.pca_noise > 0:
            weights = np.array([draws.normal(self.pca_noise) for _ in range(3)])
            image = as_bytes(image + (PRINCIPAL @ weights).astype(np.float32))
        return image

    def _jittered(self, image, draws) -> np.ndarray:
        factors = [
            1 + draws.uniform(-most, most)
            for most in (self.brightness, self.contrast, self.saturation)
        ]
        order = sorted(range(3), key=lambda _: draws.uniform(0, 1))
        for kind in order:
            factor = np.float32(factors[kind])
            if kind == 0:
                image = as_bytes(image * factor)
            else:
                grey = (image @ LUMA)[..., None]
                grey = grey.mean() if kind == 1 else grey
                image = as_bytes(image * factor + (1 - factor) * grey)
        return image


# ---- pixels --------------------------------------------------------------------------------------


def _part(image, y, x, height, width) -> np.ndarray:
    return image[y : y + height, x : x + width]


def as_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def with_rows(image: np.ndarray) -> np.ndarray:
    """The image, copied unless its rows are contiguous."""
    c = image.shape[2]
    if image.strides[2] != 1 or image.strides[1] != c or image.strides[0] < 0:
        return np.ascontiguousarray(image)
    return image


def address(image: np.ndarray) -> Any:
    return ffi.cast("void *", image.__array_interface__["data"][0])


def run(kernel: Any, params: Any, image: np.ndarray, out: Any) -> None:
    """Calls a kernel of one input and one output. Raises MXNetError."""
    if kernel(params, ffi.new("void *[]", [address(image), out]), ffi.NULL) != lib.PL_OK:
        raise MXNetError(ffi.string(lib.pl_error_message()).decode())


def resize_bytes(image: np.ndarray, height: int, width: int, method: int) -> np.ndarray:
    """A uint8 image (H, W, C) in another size, with OpenCV's values."""
    h, w, c = image.shape
    if (h, w) == (height, width):
        return image
    image = with_rows(image)
    out = np.empty((height, width, c), np.uint8)
    rule = rule_for(h, w, height, width, method)
    params = ffi.new("plk_resize *", [1, h, w, c, image.strides[0], height, width, rule])
    run(lib.plk_resize_run, params, image, address(out))
    return out


def warp_bytes(
    image: Any, matrix: Any, shift: Any, height: int, width: int, linear: Any, fill: Any
) -> np.ndarray:
    """A uint8 image transformed by (x, y) -> matrix @ (x, y) + shift, with a new size."""
    image = with_rows(image)
    h, w, c = image.shape
    inverse = np.linalg.inv(matrix)
    back = -inverse @ shift
    m = [*inverse[0], back[0], *inverse[1], back[1]]
    out = np.empty((height, width, c), np.uint8)
    params = ffi.new(
        "plk_warp *", [h, w, c, image.strides[0], height, width, m, int(linear), int(fill)]
    )
    run(lib.plk_warp_run, params, image, address(out))
    return out


def shifted_hls(image: Any, hue: int, lightness: int, saturation: int) -> np.ndarray:
    """Adds to hue (of 180), lightness and saturation (of 255); the results are clipped."""
    x = image.astype(np.float32) / 255
    high, low = x.max(axis=2), x.min(axis=2)
    spread, light = high - low, (high + low) / 2
    safe = np.where(spread == 0, 1, spread)
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    sixths = np.where(
        high == r, (g - b) / safe, np.where(high == g, 2 + (b - r) / safe, 4 + (r - g) / safe)
    )
    full = 1 - np.abs(2 * light - 1)
    sat = np.where(spread == 0, 0, spread / np.where(full == 0, 1, full))
    sixths = np.where(spread == 0, 0, sixths) % 6
    h = np.clip(np.rint(sixths * (HUES / 6)) + hue, 0, HUES) / (HUES / 6)
    light = np.clip(np.rint(light * 255) + lightness, 0, 255) / 255
    sat = np.clip(np.rint(sat * 255) + saturation, 0, 255) / 255
    chroma = (1 - np.abs(2 * light - 1)) * sat
    # each channel is a trapezoid over the colour circle, a third of it apart
    channels = [
        light + chroma * (np.clip(np.abs((h + turn) % 6 - 3) - 1, 0, 1) - 0.5) for turn in (0, 4, 2)
    ]
    return as_bytes(np.stack(channels, axis=-1) * 255)
