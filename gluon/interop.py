"""mx.interop: parameters that were trained in another framework, under the names that a block of
ours has for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..engine.error import InvalidValue, compose, did_you_mean
from ..ndarray import NDArray
from .block import Block

# what torch calls a parameter of a layer -> what a layer of ours may call it
KINDS = {
    "weight": ("weight", "gamma", "alpha"),
    "bias": ("bias", "beta"),
    "running_mean": ("running_mean",),
    "running_var": ("running_var",),
}
COUNT = "num_batches_tracked"  # of torch's batch normalization; ours needs none
OWN = re.compile(rf"(?:(.*?)[._])?({'|'.join([*KINDS, COUNT])})")
RECURRENT = re.compile(r"(?:(.*)\.)?(weight|bias)_(ih|hh)_l(\d+)(_reverse)?")
Place = str | Callable[[re.Match], str] | tuple[str, ...] | None


def torch_names(
    net: Block, state: Mapping[str, Any], table: Mapping[str, Place] | Callable[[str], Place]
) -> dict[str, NDArray]:
    """The arrays of a torch state dict under a block's structural names, for `net.load_dict`.

    state: what nd.load gives for a safetensors file.
    table: a regular expression, which must match the whole name of a layer in torch
        (`layer1.0.bn2`, and `attention.in_proj` of `attention.in_proj_weight`) -> the block's name
        of the layer; the first one that matches counts. The name may refer to groups
        (`features.\\1`), or be a function of the match. A tuple of names: the array is cut along
        axis 0 into as many equal parts. None: it is left out. A layer that none matches has the
        same name in the block. Or a function: name of a layer -> one of these.

    The last part of a name follows from the layer: weight, or gamma, or alpha; l0_i2h_weight of
    recurrent layers. Raises ValueError for a name that the block lacks, or has from two arrays.
    """
    known = net._collect_params_with_prefix()
    found: dict[str, NDArray] = {}
    for name, array in state.items():
        layer, kinds = _parsed(name)
        if not kinds:
            continue
        places = _places(table, layer)
        parts = array.split(len(places), axis=0) if len(places) > 1 else [array]
        for place, part in zip(places, parts):
            candidates = [f"{place}.{kind}" if place else kind for kind in kinds]
            ours = next((c for c in candidates if c in known), None)
            if ours is None:
                rule = f"torch_names: {name} would be {candidates[0]}, which the block lacks"
                fix = did_you_mean(candidates[0], known) or "an entry of the table"
                raise InvalidValue(compose(rule, fix=fix))
            if ours in found:
                raise InvalidValue(f"torch_names: {name} and another array are both {ours}")
            found[ours] = part
    return found


def _parsed(name: str) -> tuple[str, tuple[str, ...]]:
    """The layer, and what our layer may call this parameter; nothing where it has none."""
    if cell := RECURRENT.fullmatch(name):
        layer, kind, source, number, reverse = cell.groups()
        gate = "i2h" if source == "ih" else "h2h"
        return layer or "", (f"{'r' if reverse else 'l'}{number}_{gate}_{kind}",)
    if plain := OWN.fullmatch(name):
        return plain[1] or "", KINDS.get(plain[2], ())
    layer, _, kind = name.rpartition(".")
    return layer, (kind,)


def _places(table: Mapping[str, Place] | Callable[[str], Place], layer: str) -> tuple[str, ...]:
    place: Place = layer
    if callable(table):
        place = table(layer)
    else:
        for pattern, entry in table.items():
            if match := re.fullmatch(pattern, layer):
                place = entry
                if callable(entry):
                    place = entry(match)
                elif isinstance(entry, str):
                    place = match.expand(entry)
                elif entry is not None:
                    place = tuple([match.expand(e) for e in entry])
                break
    if place is None:
        return ()
    return (place,) if isinstance(place, str) else tuple(place)  # type: ignore[arg-type]
