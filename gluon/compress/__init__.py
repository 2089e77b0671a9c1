"""mx.contrib.compress: smaller networks from the training script: quantization-aware training,
pruning, weight clustering, and layers that use zeros. docs/guide/quantization.md."""

from .aware import convert, quantize_aware
from .cluster import Clusterer
from .prune import Pruner, sparsity_of
from .sparsify import SparseDense, sparsify

__all__ = [
    "Clusterer",
    "Pruner",
    "SparseDense",
    "convert",
    "quantize_aware",
    "sparsify",
    "sparsity_of",
]
