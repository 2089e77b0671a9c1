"""contrib.nn: parallel blocks, sparse embeddings, pixel shuffling, SyncBatchNorm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import dist
from ...dist import Group
from ...engine.error import InvalidValue
from ...kernels.record import several
from ...kernels.spec import DType
from ...ndarray.autograd import is_training
from ...training.initializer import Initializer
from ..block import Block
from ..layer import Layer
from ..nn import BatchNorm, HybridSequential, Identity, Sequential
from .sync_norm import normalised

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


class Concurrent(Sequential):
    """Runs all blocks on the same input and concatenates their outputs along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        from ... import ndarray as nd

        return nd.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class HybridConcurrent(HybridSequential):
    """Runs all hybrid blocks on the same input and concatenates their outputs along `axis`."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: Any = None):
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class SparseEmbedding(Block):
    """Indices in [0, input_dim) -> vectors of output_dim, for very large tables: weight and
    gradient are of storage type row_sparse, so that optimizers with lazy updates touch only the
    rows of a batch.

    data (any shape) -> (*shape, output_dim).
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: DType = "float32",
        weight_initializer: str | Initializer | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._kwargs: dict[str, Any] = {
            "input_dim": input_dim,
            "output_dim": output_dim,
            "dtype": dtype,
            "sparse_grad": True,
        }
        self.weight = self.params.get(
            "weight",
            shape=(input_dim, output_dim),
            init=weight_initializer,
            dtype=dtype,
            grad_stype="row_sparse",
            stype="row_sparse",
        )

    def forward(self, x: Any) -> Any:
        from ... import ndarray as nd

        return nd.Embedding(x, self.weight.row_sparse_data(x), name="fwd", **self._kwargs)

    def __repr__(self):
        k = self._kwargs
        return f"SparseEmbedding({k['input_dim']} -> {k['output_dim']}, {k['dtype']})"


class _PixelShuffle(Layer):
    """Moves channels into space: (N, C * prod(factor), *space) -> (N, C, *(space * factor)).

    factor: number, or one number an axis. Source: Shi et al. 2016.
    """

    n_axes = 1

    def __init__(self, factor: int | Sequence[int]):
        super().__init__()
        self._factors = tuple(map(int, several(factor, self.n_axes)))
        if len(self._factors) != self.n_axes:
            raise InvalidValue(
                f"{type(self).__name__}: wrong length {len(self._factors)} of factor, "
                f"expected {self.n_axes}"
            )

    def __repr__(self):
        return f"{type(self).__name__}({self._factors if self.n_axes > 1 else self._factors[0]})"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        n, f = self.n_axes, self._factors
        channels = 1
        for factor in f:
            channels *= factor
        # (N, C, prod f, *space)
        x = F.reshape(x, shape=(0, -4, -1, channels, *[0] * n))
        # (N, C, f1, .., fn, *space)
        for i in range(n - 1):
            rest = channels = channels // f[i]
            x = F.reshape(x, shape=(*[0] * (2 + i), -4, f[i], rest, *[0] * n))
        order = [0, 1]
        for i in range(n):
            order += [2 + n + i, 2 + i]
        # (N, C, s1, f1, s2, f2, ..)
        x = F.transpose(x, axes=tuple(order))
        return F.reshape(x, shape=(0, 0, *[-3] * n))


class PixelShuffle1D(_PixelShuffle):
    """(N, C f, W) -> (N, C, W f)."""


class PixelShuffle2D(_PixelShuffle):
    """(N, C f1 f2, H, W) -> (N, C, H f1, W f2)."""

    n_axes = 2


class PixelShuffle3D(_PixelShuffle):
    """(N, C f1 f2 f3, D, H, W) -> (N, C, D f1, H f2, W f3)."""

    n_axes = 3


class SyncBatchNorm(BatchNorm):
    """Batch normalisation over axis 1 by the statistics of all ranks' batches: as if they were one.
    While training all ranks of the group must call it alike. Several devices of one process use
    each its own statistics; MXNet combines them over num_devices GPUs.

    Args: see BatchNorm; num_devices is kept in the graph. group: the ranks; default: those along
        the axis "data" of the current mesh (`mx.dist.mesh`), without a mesh all of the job.
    Source: Zhang et al. 2018, arXiv:1803.08904.
    """

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: str | Initializer | None = "zeros",
        gamma_initializer: str | Initializer | None = "ones",
        running_mean_initializer: str | Initializer | None = "zeros",
        running_variance_initializer: str | Initializer | None = "ones",
        group: Group | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            axis=1,
            momentum=momentum,
            epsilon=epsilon,
            center=center,
            scale=scale,
            use_global_stats=use_global_stats,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            running_mean_initializer=running_mean_initializer,
            running_variance_initializer=running_variance_initializer,
            in_channels=in_channels,
            **kwargs,
        )
        self._kwargs = {k: v for k, v in self._kwargs.items() if k != "axis"} | {
            "ndev": num_devices or 1,
            "key": self.prefix,
        }
        self._sync_ranks = group

    def hybrid_forward(
        self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any
    ) -> Any:
        group = self._sync_ranks
        if group is None and dist.is_initialized():
            group = dist.data_group("SyncBatchNorm")
        given, k = (x, gamma, beta, running_mean, running_var), self._kwargs
        if group is not None and group.size > 1 and is_training() and not k["use_global_stats"]:
            numbers = {name: k[name] for name in ("eps", "momentum", "fix_gamma")}
            return normalised(F, *given, group=group, wide=self.gamma.dtype, **numbers)
        return F.contrib.SyncBatchNorm(*given, name="fwd", **self._kwargs)
