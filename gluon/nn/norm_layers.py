"""Normalisations: over batches, instances, layers, groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.spec import DType
from ...training.initializer import Initializer
from ..layer import Layer
from ..parameter import Parameter

__all__ = ["BatchNorm", "BatchNormReLU", "GroupNorm", "InstanceNorm", "LayerNorm"]


class _BatchNormBase(Layer):
    """Parameters of batch normalisation: gamma, beta, and the running statistics, which are not
    trained."""

    gamma: Parameter
    beta: Parameter
    running_mean: Parameter
    running_var: Parameter
    size_argument = "in_channels"

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: str | Initializer | None = "zeros",
        gamma_initializer: str | Initializer | None = "ones",
        running_mean_initializer: str | Initializer | None = "zeros",
        running_variance_initializer: str | Initializer | None = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs: dict[str, Any] = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self._axis, self._center, self._scale = axis, center, scale
        if in_channels != 0:
            self.in_channels = in_channels
        with self.name_scope():
            for name, init, trained in (
                ("gamma", gamma_initializer, scale),
                ("beta", beta_initializer, center),
                ("running_mean", running_mean_initializer, None),
                ("running_var", running_variance_initializer, None),
            ):
                setattr(
                    self,
                    name,
                    self.params.get(
                        name,
                        grad_req="write" if trained else "null",
                        shape=(in_channels,),
                        init=init,
                        allow_deferred_init=True,
                        differentiable=bool(trained),
                    ),
                )

    def cast(self, dtype: DType) -> None:
        """Changes the dtype; statistics of 16-bit networks stay float32."""
        if (
            np.dtype(dtype).name == "float16"
            if not isinstance(dtype, str)
            else dtype in ("float16", "bfloat16")
        ):
            dtype = "float32"
        super().cast(dtype)

    def __repr__(self):
        n = self.gamma._sizes()[0]
        content = ", ".join(
            f"{k}={v!r}" for k, v in {**self._kwargs, "in_channels": n or None}.items()
        )
        return f"{type(self).__name__}({content})"


class BatchNorm(_BatchNormBase):
    """Batch normalisation: (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    In training the statistics are the batch's, else the running ones, which training updates.

    Args:
        axis: of the channels; statistics are over all other axes.
        momentum: of the running statistics: new = momentum * old + (1 - momentum) * batch's.
        epsilon: added to the variance.
        center, scale: whether beta is added, whether gamma multiplies.
        use_global_stats: the running statistics are used in training, too.
        beta_initializer, gamma_initializer, running_mean_initializer, running_variance_initializer:
            Initializer or its name.
        in_channels: size of `axis`; 0: found at the first call.
    Shapes: data of any shape -> the same; gamma, beta and statistics (in_channels,).
    Source: Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class BatchNormReLU(_BatchNormBase):
    """Batch normalisation followed by relu.

    Args:
        axis: of the channels; statistics are over all other axes.
        momentum: of the running statistics: new = momentum * old + (1 - momentum) * batch's.
        epsilon: added to the variance.
        center, scale: whether beta is added, whether gamma multiplies.
        use_global_stats: the running statistics are used in training, too.
        beta_initializer, gamma_initializer, running_mean_initializer, running_variance_initializer:
            Initializer or its name.
        in_channels: size of `axis`; 0: found at the first call.
    Shapes: data of any shape -> the same; gamma, beta and statistics (in_channels,).
    """

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        out = F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)
        return F.relu(out, name="relu")


class InstanceNorm(Layer):
    """Normalises each sample and channel over the other axes.

    Args:
        axis: of the channels.
        epsilon: added to the variance.
        center, scale: whether beta is added, whether gamma multiplies.
        beta_initializer, gamma_initializer: Initializer or its name.
        in_channels: size of `axis`; 0: found at the first call.
    Shapes: data (N, C, ...) -> the same; gamma and beta (C,).
    Source: Ulyanov et al. 2016, arXiv:1607.08022.
    """

    gamma: Parameter
    beta: Parameter
    size_argument = "in_channels"

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: str | Initializer | None = "zeros",
        gamma_initializer: str | Initializer | None = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis, self._epsilon = axis, epsilon
        _gamma_beta(self, (in_channels,), scale, center, gamma_initializer, beta_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, eps=self._epsilon, name="fwd")
        x = F.swapaxes(x, 1, self._axis)
        return F.swapaxes(
            F.InstanceNorm(x, gamma, beta, eps=self._epsilon, name="fwd"), 1, self._axis
        )

    def __repr__(self):
        return _norm_repr(self, in_channels=self.gamma._sizes()[0])


class LayerNorm(Layer):
    """Normalises over one axis: (x - mean) / sqrt(variance + epsilon) * gamma + beta.

    Args:
        axis: the axis over which mean and variance are taken.
        epsilon: added to the variance.
        center, scale: whether beta is added, whether gamma multiplies.
        beta_initializer, gamma_initializer: Initializer or its name.
        in_channels: size of `axis`; 0: found at the first call.
    Shapes: data of any shape -> the same; gamma and beta (in_channels,).
    Source: Ba et al. 2016, arXiv:1607.06450.
    """

    gamma: Parameter
    beta: Parameter
    size_argument = "in_channels"

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: str | Initializer | None = "zeros",
        gamma_initializer: str | Initializer | None = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis, self._epsilon = axis, epsilon
        _gamma_beta(self, (in_channels,), scale, center, gamma_initializer, beta_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma, beta, axis=self._axis, eps=self._epsilon)

    def __repr__(self):
        return _norm_repr(self, in_channels=self.gamma._sizes()[0])


class GroupNorm(Layer):
    """Normalises groups of channels (axis 1) of each sample.

    Args:
        num_groups: number of groups; each has C / num_groups channels.
        epsilon: added to the variance.
        center, scale: whether beta is added, whether gamma multiplies.
        beta_initializer, gamma_initializer: Initializer or its name.
    Shapes: data (N, C, ...) -> the same; gamma and beta, one value a group, (num_groups,).
    Source: Wu and He 2018, arXiv:1803.08494.
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: str | Initializer | None = "zeros",
        gamma_initializer: str | Initializer | None = "ones",
        prefix: str | None = None,
        params: Any = None,
    ):
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}
        self._num_groups, self._epsilon = num_groups, epsilon
        _gamma_beta(self, (num_groups,), scale, center, gamma_initializer, beta_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma, beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self):
        return _norm_repr(self)


def _gamma_beta(block, shape, scale, center, gamma_initializer, beta_initializer):
    with block.name_scope():
        block.gamma = block.params.get(
            "gamma",
            grad_req="write" if scale else "null",
            shape=shape,
            init=gamma_initializer,
            allow_deferred_init=True,
        )
        block.beta = block.params.get(
            "beta",
            grad_req="write" if center else "null",
            shape=shape,
            init=beta_initializer,
            allow_deferred_init=True,
        )


def _norm_repr(block, **more):
    content = ", ".join(f"{k}={v!r}" for k, v in {**block._kwargs, **more}.items())
    return f"{type(block).__name__}({content})"
