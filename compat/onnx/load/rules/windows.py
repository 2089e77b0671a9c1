"""Windows of convolutions and pools: kernel, strides, dilations and padding of each axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..run import Call


class Windows(NamedTuple):
    """One number for each spatial axis. before, after: padding; out: how many windows there are."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def symmetric(self) -> bool:
        return self.before == self.after


def windows(c: Call, shape: Sequence[int], kernel: Sequence[int]) -> Windows:
    """Of an input (batch, channels, ...). `after` is what the last window needs, no more."""
    n = len(shape) - 2
    size = shape[2:]
    stride, dilate = tuple(c("strides", [1] * n)), tuple(c("dilations", [1] * n))
    pads, auto, ceil = c("pads", [0] * 2 * n), c("auto_pad", "NOTSET"), c("ceil_mode", 0)
    if not len(kernel) == len(stride) == len(dilate) == n or len(pads) != 2 * n:
        raise c.fail(f"kernel, strides, dilations and pads must fit {n} axes")
    if min(*kernel, *stride, *dilate, 1) < 1 or min(*pads, 0) < 0:
        raise c.fail("kernel, strides and dilations must be positive, pads not negative")
    before, after, out = [], [], []
    for i in range(n):
        span = (kernel[i] - 1) * dilate[i] + 1
        low, high = pads[i], pads[i + n]
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            count = -(-size[i] // stride[i])
            total = max(0, (count - 1) * stride[i] + span - size[i])
            low = total // 2 if auto == "SAME_UPPER" else total - total // 2
            high = total - low
        elif auto == "VALID":
            low = high = 0
        free = size[i] + low + high - span
        if free < 0:
            raise c.fail(f"a window of {span} is longer than the padded axis of {span + free}")
        count = (-(-free // stride[i]) if ceil else free // stride[i]) + 1
        if ceil and (count - 1) * stride[i] >= size[i] + low:
            count -= 1  # a window must not begin in the padding behind
        before.append(low)
        after.append(max((count - 1) * stride[i] + span - size[i] - low, high if not ceil else 0))
        out.append(count)
    return Windows(tuple(kernel), stride, dilate, tuple(before), tuple(after), tuple(out))


def spatial(values: Any) -> list[tuple[int, int]]:
    return [(0, 0), (0, 0), *values]
