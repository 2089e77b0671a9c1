"""The networks of `plait train`: small ones of its own, those of the model zoo, and the scaling of
bytes in front of each."""

from __future__ import annotations

from os import PathLike
from typing import Any

from ...engine.error import InvalidValue, MXNetError, compose
from ...gluon import HybridBlock, nn
from ...gluon.model_zoo import vision as zoo
from ...ndarray import functions as nd
from ...ndarray import serialization

OWN = ("mlp", "lenet", "convnet")
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def mlp(classes: int = 10) -> nn.HybridSequential:
    """Two hidden layers: 128 and 64 units."""
    net = nn.HybridSequential()
    net.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(classes))
    return net


def lenet(image_size: int, classes: int = 10) -> nn.HybridSequential:
    """LeNet (LeCun et al. 1998) with ReLU and max pooling; 3x3 filters for images under 16 pixels,
    else 5x5."""
    kernel, pad = (3, 1) if image_size < 16 else (5, 0)
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(20, kernel, padding=pad, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Conv2D(50, kernel, padding=pad, activation="relu"),
        nn.MaxPool2D(2, 2),
        nn.Dense(500, activation="relu"),
        nn.Dense(classes),
    )
    return net


def convnet(image_size: int, classes: int = 10) -> nn.HybridSequential:
    """3x3 convolutions with batch normalization: 16 channels, doubled at each halving of the
    picture until it has fewer than 8 pixels; then one dense layer."""
    net, channels = nn.HybridSequential(), 16
    while True:
        net.add(nn.Conv2D(channels, 3, padding=1, use_bias=False), nn.BatchNorm())
        net.add(nn.Activation("relu"))
        if image_size < 8:
            break
        net.add(nn.MaxPool2D(2, 2))
        image_size //= 2
        channels = min(2 * channels, 256)
    net.add(nn.Flatten(), nn.Dense(classes))
    return net


def check(name: str) -> None:
    """Raises UnknownModelError for a name that `build` does not know."""
    if name not in OWN and name.lower() not in zoo.MODELS:
        zoo.get_model(name)


def build(name: str, image_size: int, classes: int = 10) -> Any:
    """A network by name: mlp, lenet, convnet, or one of the model zoo."""
    if name == "mlp":
        return mlp(classes)
    if name == "lenet":
        return lenet(image_size, classes)
    if name == "convnet":
        return convnet(image_size, classes)
    return zoo.get_model(name, classes=classes)


class Classifier(HybridBlock):
    """A network with its scaling in front: bytes (N, H, W, C) -> scores (N, classes).

    mean, std: of a channel, in [0, 1].
    """

    def __init__(self, net: Any, mean: tuple[float, ...], std: tuple[float, ...]):
        super().__init__()
        self.net = net
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.net(F._image_normalize(F._image_to_tensor(x), mean=self._mean, std=self._std))


class Probabilities(HybridBlock):
    """softmax of a classifier's scores: what an exported network gives."""

    def __init__(self, net: Any):
        super().__init__()
        self.net = net

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.softmax(self.net(x))


def load_weights(net: Any, path: str | PathLike[str]) -> list[str]:
    """Gives a network, which has run once, the weights in a file, by structural or full names.

    The parameters of its last layer may be missing or have another shape, as for other classes;
    they are left as they are. Returns their names.
    Raises InvalidValue if others differ.
    """
    arrays = serialization.load(path)
    if not isinstance(arrays, dict):
        raise MXNetError(f"--weights: {path} holds arrays without names")
    arrays = {name.removeprefix("arg:").removeprefix("aux:"): a for name, a in arrays.items()}
    parameters = net._collect_params_with_prefix()
    found, other = {}, []
    for name, parameter in parameters.items():
        array = arrays.get(name, arrays.get(parameter.name))
        if array is None or tuple(array.shape) != tuple(parameter.shape):
            other.append((name, parameter.shape, None if array is None else array.shape))
        else:
            found[name] = array
    last = list(parameters)[-1].rpartition(".")[0] + "."
    wrong = [o for o in other if not o[0].startswith(last)]
    if wrong:
        name, shape, given = wrong[0]
        differs = "has no" if given is None else f"has {tuple(given)} for"
        raise InvalidValue(
            compose(
                f"--weights: {path} {differs} {name} {tuple(shape)}"
                + (f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""),
                fix="--model must be the network whose weights were saved",
            )
        )
    net.load_dict(found, allow_missing=True)
    return [name for name, _, _ in other]


def zeros(shape: tuple[int, ...], batch: int = 1) -> Any:
    """Black pictures."""
    return nd.zeros((batch, *shape), dtype="uint8")
