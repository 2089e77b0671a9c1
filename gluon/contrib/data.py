"""contrib.data: samplers."""

from ..data.sampler import IntervalSampler  # noqa: F401
