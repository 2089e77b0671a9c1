"""Data: datasets, samplers and the loader, which makes batches in this process, in threads or in
worker processes."""

from ...data import sampler  # noqa: F401
from ...data.sampler import (  # noqa: F401
    BatchSampler,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SplitSampler,
)
from . import vision  # noqa: F401
from .dataloader import DataLoader  # noqa: F401
from .dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset  # noqa: F401
