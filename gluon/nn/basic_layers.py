"""Basic layers: containers, Dense, Dropout, normalisations, Embedding, Flatten, Lambda."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import ndarray as nd
from ...engine.error import InvalidValue
from ...kernels.spec import DType
from ...training.initializer import Initializer
from ..block import Block, _indent
from ..hybrid import HybridBlock
from ..layer import Layer
from ..parameter import Parameter
from .activations import Activation

__all__ = [
    "BatchNorm",
    "BatchNormReLU",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HybridLambda",
    "HybridSequential",
    "Identity",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "Sequential",
]


class _Stack(Block):
    """What Sequential and HybridSequential have in common."""

    _is_container = True

    def add(self, *blocks: Block) -> None:
        """Appends blocks."""
        for block in blocks:
            self.register_child(block)

    def __repr__(self):
        lines = [f"  ({key}): {_indent(repr(block))}" for key, block in self._children.items()]
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    def __getitem__(self, key):
        layers = list(self._children.values())[key]
        if isinstance(layers, list):
            net = type(self)(prefix=self._prefix)
            with net.name_scope():
                net.add(*layers)
            return net
        return layers

    def __len__(self):
        return len(self._children)

    def __iter__(self):
        return iter(self._children.values())


class Sequential(_Stack):
    """Runs blocks one after another.

    >>> net = nn.Sequential()
    >>> with net.name_scope():
    ...     net.add(nn.Dense(10, activation="relu"), nn.Dense(20))
    """

    def forward(self, x: Any, *args: Any) -> Any:
        """Passes x (and args, to the first block) through all blocks; a tuple output becomes
        several inputs."""
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                x, args = x[0], tuple(x[1:])
        return (x, *args) if args else x

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Makes the children run as graphs."""
        if self._children and all(isinstance(c, HybridBlock) for c in self._children.values()):
            warnings.warn(
                f"All children of this Sequential layer '{self.prefix}' are HybridBlocks. Consider"
                " using HybridSequential for the best performance.",
                stacklevel=2,
            )
        super().hybridize(active, **kwargs)


class HybridSequential(_Stack, HybridBlock):
    """Runs hybrid blocks one after another, as one graph when hybridized."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        """Passes x (and args, to the first block) through all blocks."""
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                x, args = x[0], tuple(x[1:])
        return (x, *args) if args else x


class Dense(Layer):
    """Fully connected layer: activation(x . weight^T + bias).

    Args:
        units: size of the output.
        flatten: True: (N, ...) becomes (N, inputs) first; False: works on the last axis of (...,
            inputs).
        in_units: size of the input; 0: inferred at the first forward pass.
    Shapes: data (N, ..., in_units) -> (N, units), or (..., units) without flatten.
    """

    size_argument = "in_units"

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: DType = "float32",
        weight_initializer: str | Initializer | None = None,
        bias_initializer: str | Initializer | None = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not isinstance(units, (int, np.integer)) or units < 0:
            raise InvalidValue(f"Dense: units must be an int of at least 0, got {units!r}")
        self._flatten, self._units, self._in_units = flatten, units, in_units
        with self.name_scope():
            self.weight = self.params.get(
                "weight",
                shape=(units, in_units),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
            )
            self.bias = (
                self.params.get(
                    "bias",
                    shape=(units,),
                    init=bias_initializer,
                    dtype=dtype,
                    allow_deferred_init=True,
                )
                if use_bias
                else None
            )
            self.act = (
                Activation(activation, prefix=activation + "_") if activation is not None else None
            )

    def _macs(self, args, out) -> int:
        return out.size * self.weight._sizes()[1]

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        out = F.FullyConnected(
            x,
            weight,
            bias,
            num_hidden=self._units,
            no_bias=bias is None,
            flatten=self._flatten,
            name="fwd",
        )
        return out if self.act is None else self.act(out)

    def __repr__(self):
        n_out, n_in = self.weight._sizes()
        return f"Dense({n_in or None} -> {n_out}, {self.act if self.act else 'linear'})"


class Dropout(Layer):
    """In training, zeroes elements at random and scales the rest by 1 / (1 - rate).

    rate: probability. axes: axes along which the mask is shared.
    """

    def __init__(self, rate: float, axes: int | Sequence[int] = (), **kwargs: Any):
        super().__init__(**kwargs)
        self._rate, self._axes = rate, axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self):
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


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
    """Batch normalisation over all axes but `axis`.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167.
    """

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class BatchNormReLU(_BatchNormBase):
    """Batch normalisation followed by relu."""

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        out = F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)
        return F.relu(out, name="relu")


class InstanceNorm(Layer):
    """Normalises each sample and channel (`axis`) over the other axes.

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
    """Normalises over one axis. Source: Ba et al. 2016, arXiv:1607.06450."""

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
    """Normalises groups of channels (axis 1) of each sample. Source: Wu and He 2018,
    arXiv:1803.08494.

    gamma and beta have one value for each group, shape (num_groups,).
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


class Embedding(Layer):
    """Rows of a table: indices (...) -> vectors (..., output_dim).

    input_dim: number of rows. sparse_grad: the gradient of the table is row_sparse, so that
        optimizers update only the rows that were used.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: DType = "float32",
        weight_initializer: str | Initializer | None = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs = {
            "input_dim": input_dim,
            "output_dim": output_dim,
            "dtype": dtype,
            "sparse_grad": sparse_grad,
        }
        with self.name_scope():
            self.weight = self.params.get(
                "weight",
                shape=(input_dim, output_dim),
                init=weight_initializer,
                dtype=dtype,
                allow_deferred_init=True,
                grad_stype="row_sparse" if sparse_grad else "default",
            )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self):
        return "{}({input_dim} -> {output_dim}, {dtype})".format(
            type(self).__name__, **self._kwargs
        )


class Flatten(Layer):
    """(N, ...) -> (N, product of the rest)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Flatten(x)

    def __repr__(self):
        return type(self).__name__


class Lambda(Block):
    """A function, or the name of one in nd, as a block.

    >>> net = nn.Lambda("tanh"), nn.Lambda(lambda x: nd.LeakyReLU(x, slope=0.1))
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            if not hasattr(nd, function):
                raise InvalidValue(f"Function name {function} is not found in ndarray.")
            self._func_impl, self._func_name = getattr(nd, function), function
        elif callable(function):
            self._func_impl, self._func_name = function, function.__name__
        else:
            raise InvalidValue(
                f"Unrecognized function in lambda: {function} of type {type(function)}"
            )

    def forward(self, *args: Any) -> Any:
        return self._func_impl(*args)

    def __repr__(self):
        return f"{type(self).__name__}({self._func_name})"


class HybridLambda(HybridBlock):
    """A function of (F, x, ...), or the name of an operator, as a hybrid block.

    >>> net = nn.HybridLambda("tanh"), nn.HybridLambda(lambda F, x: F.LeakyReLU(x, slope=0.1))
    """

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None):
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            if not hasattr(nd, function):
                raise InvalidValue(f"Function name {function} is not found in ndarray/symbol.")
            self._func = lambda F, *args: getattr(F, function)(*args)
            self._func_name = function
        elif callable(function):
            self._func, self._func_name = function, function.__name__
        else:
            raise InvalidValue(
                f"Unrecognized function in lambda: {function} of type {type(function)}"
            )

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)

    def __repr__(self):
        return f"{type(self).__name__}({self._func_name})"


class Identity(Layer):
    """Returns its input."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x
