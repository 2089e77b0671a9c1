"""Networks for images, by name: get_model("resnet18_v1")."""

from __future__ import annotations

from typing import Any

from ....engine.error import MXNetError, compose, did_you_mean
from . import classic, densenet, inception, mobilenet, resnet, squeezenet
from .classic import *
from .densenet import *
from .inception import *
from .mobilenet import *
from .resnet import *
from .squeezenet import *

_FAMILIES = (resnet, classic, densenet, squeezenet, inception, mobilenet)
__all__ = [
    "MODELS",
    "UnknownModelError",
    "get_model",
    *(name for family in _FAMILIES for name in family.__all__),
]


def _zoo_name(function: str) -> str:
    """The name in the zoo of a function: mobilenet_v2_0_5 is mobilenetv2_0.5."""
    special = {
        "inception_v3": "inceptionv3",
        "squeezenet1_0": "squeezenet1.0",
        "squeezenet1_1": "squeezenet1.1",
    }
    if function.startswith("mobilenet"):
        family = "mobilenet_v2_" if function.startswith("mobilenet_v2_") else "mobilenet"
        return family.replace("_v2", "v2") + function.removeprefix(family).replace("_", ".")
    return special.get(function, function)


MODELS = {
    _zoo_name(name): globals()[name]
    for family in _FAMILIES
    for name in family.__all__
    if name[0].islower() and not name.startswith("get_")
}


class UnknownModelError(MXNetError, ValueError):
    """No model of the zoo has this name."""


def get_model(name: str, **kwargs: Any) -> Any:
    """A network by its name, e.g. "resnet50_v1", "mobilenetv2_0.5".

    Args:
        pretrained: load its parameters from a file of the folder `root`.
        classes: number of outputs (1000).
        ctx: device of loaded parameters.
        root: folder of .params files (~/.mxnet/models).
    Raises: UnknownModelError with the nearest names; ModelFileError where a pretrained file is
        missing.
    """
    name = name.lower()
    if name not in MODELS:
        options = "\n\t".join(sorted(MODELS))
        rule = f"Model {name} is not supported. Available options are\n\t{options}"
        raise UnknownModelError(compose(rule, fix=did_you_mean(name, MODELS, 3)))
    return MODELS[name](**kwargs)
