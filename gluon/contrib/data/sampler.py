"""contrib.data.sampler: where MXNet keeps IntervalSampler."""

from ....data.sampler import IntervalSampler  # noqa: F401
