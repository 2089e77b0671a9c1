"""Basic layers: containers, Dense, Dropout, Embedding, Flatten, Lambda; normalisations are in
norm_layers.py."""

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
from .activations import Activation
from .norm_layers import BatchNorm, BatchNormReLU, GroupNorm, InstanceNorm, LayerNorm

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
    """Runs hybrid blocks one after another, as one graph when hybridized. A tuple that one returns
    becomes the inputs of the next.

    >>> net = nn.HybridSequential()
    >>> net.add(nn.Dense(16, activation="relu"), nn.Dense(3))
    >>> net.initialize()
    >>> net(nd.ones((2, 8))).shape
    (2, 3)
    """

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
        activation: name of an activation that follows, or None.
        use_bias: whether a number is added to each unit.
        flatten: True: (N, ...) becomes (N, inputs) first; False: works on the last axis of (...,
            inputs).
        dtype: of the parameters.
        weight_initializer, bias_initializer: Initializer or its name; None: the network's.
        in_units: size of the input; 0: inferred at the first forward pass.
    Shapes: data (N, ..., in_units) -> (N, units), or (..., units) without flatten; weight (units,
        in_units), bias (units,).
    Raises: ShapeError, at the call, for data whose size is not in_units.
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

    Args:
        rate: probability that an element becomes 0, in [0, 1).
        axes: axes along which the mask is shared; () for a mask of data's shape.
    Shapes: data of any shape -> the same.
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


class Embedding(Layer):
    """Rows of a table: whole numbers -> vectors.

    Args:
        input_dim: number of rows.
        output_dim: length of a row.
        dtype: of the table.
        weight_initializer: Initializer or its name; None: the network's.
        sparse_grad: the gradient of the table is row_sparse, so that optimizers update only the
            rows that were used.
    Shapes: data (...) with values in [0, input_dim) -> (..., output_dim); weight (input_dim,
        output_dim).
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
