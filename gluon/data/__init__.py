"""Data: datasets, samplers and the loader that makes batches, in this process or in others."""

from ...data.sampler import (  # noqa: F401
    BatchSampler,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from . import vision  # noqa: F401
from .dataloader import DataLoader  # noqa: F401
from .dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset  # noqa: F401
