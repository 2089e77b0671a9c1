"""contrib.data: samplers and texts."""

from typing import TYPE_CHECKING

from ....data.sampler import IntervalSampler
from ....engine import missing
from ....engine.lazy import submodule

if TYPE_CHECKING:
    from . import sampler, text
else:

    def __getattr__(name: str):
        found = submodule(__name__, name)
        if found is None:
            raise missing.attribute("gluon.contrib.data", name)
        return found

    def __dir__():
        return ["IntervalSampler", "sampler", "text"]
