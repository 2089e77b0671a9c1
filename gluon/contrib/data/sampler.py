"""contrib.data.sampler: MXNet's module path of IntervalSampler."""

from ....data.sampler import IntervalSampler  # noqa: F401
