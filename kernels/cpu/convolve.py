"""Which kernel runs a convolution on row-major float32 arrays, or a gradient of one."""

from __future__ import annotations

from math import prod

from ...engine import lib, settings
from ..native import Native

# Winograd's transforms
MIN_CHANNELS = 16  # fewer do not fill the vectors
# below, transforming the weights costs more than the products save (measured at 7x7, 512 channels)
MIN_TILES = 12
MIN_COVER = 0.5  # of the 4x4 tiles by real outputs

MAX_IMAGE = 1 << 30  # floats: offsets have 32 bits
LANES = {lib.PLK_BASELINE: 4, lib.PLK_AVX2: 8, lib.PLK_AVX512: 16}


def own_convolution(fields: dict, us: float) -> Native | None:
    """The kernel for a convolution given by the fields of plk_conv; None: an image is too large."""
    if fields["channels"] * prod(fields["size"]) > MAX_IMAGE:
        return None
    if _suits_winograd(fields):
        function = "plk_winograd_nchw_run"
    elif fields["groups"] > 1 and _leaves_lanes_empty(fields):
        function = "plk_conv_group_run"
    else:
        function = "plk_conv_run"
    return Native(function, ("plk_conv", fields), us)


def _leaves_lanes_empty(fields: dict) -> bool:
    """Do the filters (for data's gradient the channels) of one group fill less than half a
    vector?"""
    vectors_of = "channels" if fields["kind"] == lib.PLK_CONV_DATA else "filters"
    return 2 * fields[vectors_of] // fields["groups"] <= LANES[lib.plk_isa_get()]


def _suits_winograd(fields: dict) -> bool:
    three = {k: tuple(fields[k]) for k in ("kernel", "stride", "dilate")}
    plain = not (fields["channels_last"] or fields["w_last"] or fields["add"] or "act" in fields)
    out = fields["out"]
    tiles = out[0] * -(-out[1] // 4) * -(-out[2] // 4)
    return (
        plain
        and settings.get("PLAIT_TIER") != 0  # exact: its sums spread what is not finite over a tile
        and fields["groups"] == fields["size"][0] == 1
        and three == {"kernel": (1, 3, 3), "stride": (1, 1, 1), "dilate": (1, 1, 1)}
        and max(fields["pad"]) <= 2
        and min(fields["channels"], fields["filters"]) >= MIN_CHANNELS
        and fields["n"] * tiles >= MIN_TILES
        and prod(out) >= MIN_COVER * 16 * tiles
    )
