"""Which convolutions our own kernels run: dense, float32, channels first, 1 or 2 dimensions."""

from __future__ import annotations

from math import prod

from ...engine import lib, settings
from ..native import Native

# Winograd's transforms
MIN_CHANNELS = 16  # fewer do not fill the vectors
# below, transforming the weights costs more than the products save (measured at 7x7, 512 channels)
MIN_TILES = 12
MIN_COVER = 0.5  # of the 4x4 tiles by real outputs

FEW_CHANNELS = 8  # below, oneDNN's forward kernels for few channels are the faster ones
MAX_IMAGE = 1 << 30  # floats: offsets have 32 bits


def own_convolution(fields: dict, us: float, onednn: bool) -> Native | None:
    """The kernel for a convolution given by the fields of plk_conv, where ours is the faster one.

    us: estimated microseconds. onednn: whether oneDNN could serve.
    """
    if fields["groups"] != 1 or fields["channels_last"] or fields["nd"] > 2:
        return None
    two = {
        k: ((0,) if k == "pad" else (1,)) * (2 - fields["nd"]) + tuple(fields[k])
        for k in ("space", "kernel", "out", "stride", "dilate", "pad")
    }
    common = {k: fields[k] for k in ("n", "channels", "filters", "kind", "bias")}
    if _suits_winograd(common, **two):
        sizes = {
            "height": two["space"][0],
            "width": two["space"][1],
            "out_height": two["out"][0],
            "out_width": two["out"][1],
            "pad_h": two["pad"][0],
            "pad_w": two["pad"][1],
        }
        return Native("plk_winograd_nchw_run", ("plk_winograd_nchw", {**common, **sizes}), us)
    # oneDNN splits sums over the batch by the number of threads
    weight = fields["kind"] == lib.PLK_CONV_WEIGHT
    few = fields["channels"] < FEW_CHANNELS
    is_matmul = (prod(two["kernel"]), prod(two["stride"]), *two["pad"]) == (1, 1, 0, 0)
    if (
        onednn
        and not weight
        and (few or is_matmul)
        or fields["channels"] * prod(two["space"]) > MAX_IMAGE
    ):
        return None
    two["size"] = two.pop("space")
    return Native("plk_conv_nchw_run", ("plk_conv_nchw", {**common, **two}), us)


def _suits_winograd(common, *, space, kernel, out, stride, dilate, pad) -> bool:
    tiles = -(-out[0] // 4) * -(-out[1] // 4)
    return (
        settings.get("PLAIT_TIER") != 0  # exact: its sums spread what is not finite over a tile
        and (kernel, stride, dilate) == ((3, 3), (1, 1), (1, 1))
        and max(pad) <= 2
        and min(common["channels"], common["filters"]) >= MIN_CHANNELS
        and common["n"] * tiles >= MIN_TILES
        and prod(out) >= MIN_COVER * 16 * tiles
    )
