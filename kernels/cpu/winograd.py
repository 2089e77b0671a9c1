"""Which convolutions run through Winograd's transforms: 3x3 windows with stride 1, float32, wide enough."""

from __future__ import annotations

from ..native import Native

MIN_CHANNELS = 16  # fewer do not fill the vectors
# below, transforming the weights costs more than the products save (measured at 7x7, 512 channels)
MIN_TILES = 12
MIN_COVER = 0.5  # of the 4x4 tiles by real outputs


def winograd(fields: dict, us: float) -> Native | None:
    """The kernel for a convolution described by the fields of plk_conv, where it is the faster one."""
    if (fields["nd"], *fields["kernel"], *fields["stride"], *fields["dilate"], fields["groups"]) != (
        2, 3, 3, 1, 1, 1, 1, 1,
    ) or fields["channels_last"]:  # fmt: skip
        return None
    (height, width), (out_height, out_width), pad = fields["space"], fields["out"], fields["pad"]
    high, wide = -(-out_height // 4), -(-out_width // 4)
    if (
        max(pad) > 2
        or min(fields["channels"], fields["filters"]) < MIN_CHANNELS
        or fields["n"] * high * wide < MIN_TILES
        or out_height * out_width < MIN_COVER * 16 * high * wide
    ):
        return None
    struct = {
        **{k: fields[k] for k in ("n", "channels", "filters", "kind", "bias")},
        "height": height,
        "width": width,
        "out_height": out_height,
        "out_width": out_width,
        "pad_h": pad[0],
        "pad_w": pad[1],
    }
    return Native("plk_winograd_run", ("plk_winograd", struct), us)
