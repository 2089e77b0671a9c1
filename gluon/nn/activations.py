"""Activation layers."""

from __future__ import annotations

from typing import Any

from ...engine.error import InvalidValue
from ...training import initializer
from ...training.initializer import Initializer
from ..layer import Layer

__all__ = ["ELU", "GELU", "SELU", "Activation", "LeakyReLU", "PReLU", "Swish"]

QUARTER = initializer.Constant(0.25)


class Activation(Layer):
    """An activation by its name.

    Args:
        activation: "relu", "sigmoid", "tanh", "softrelu" (log(1 + exp(x))) or "softsign".
    Shapes: data of any shape -> the same.
    """

    def __init__(self, activation: str, **kwargs: Any):
        self._act_type = activation
        super().__init__(**kwargs)

    def _alias(self):
        return self._act_type

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self):
        return f"{type(self).__name__}({self._act_type})"


class LeakyReLU(Layer):
    """x where x > 0, else alpha * x.

    Args:
        alpha: slope for negative x, >= 0.
    Shapes: data of any shape -> the same.
    """

    def __init__(self, alpha: Any, **kwargs: Any):
        if alpha < 0:
            raise InvalidValue(f"LeakyReLU: alpha must be >= 0, got {alpha}")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self):
        return f"{type(self).__name__}({self._alpha})"


class PReLU(Layer):
    """x where x > 0, else alpha * x with a learned alpha for each of in_channels channels (axis 1),
    or one for all.

    Source: He et al. 2015, arXiv:1502.01852.
    """

    def __init__(
        self,
        alpha_initializer: str | Initializer | None = QUARTER,
        in_channels: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Any, x: Any, alpha: Any) -> Any:
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


class ELU(Layer):
    """x where x > 0, else alpha * (exp(x) - 1).

    Args:
        alpha: -alpha is the limit for x -> -infinity.
    Shapes: data of any shape -> the same.
    Source: Clevert et al. 2015, arXiv:1511.07289.
    """

    def __init__(self, alpha: Any = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


class SELU(Layer):
    """Scaled ELU with the constants that keep mean and variance. Source: Klambauer et al. 2017,
    arXiv:1706.02515."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


class GELU(Layer):
    """x times the normal distribution function of x. Source: Hendrycks and Gimpel 2016,
    arXiv:1606.08415."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


class Swish(Layer):
    """x * sigmoid(beta * x).

    Args:
        beta: steepness; 1 is SiLU.
    Shapes: data of any shape -> the same.
    Source: Ramachandran et al. 2017, arXiv:1710.05941.
    """

    def __init__(self, beta: Any = 1.0, **kwargs: Any):
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x * F.sigmoid(self._beta * x, name="fwd")
