"""nd.contrib: operators that MXNet calls contributed."""

from math import log

from ..engine import current_context
from .namespaces import derive
from .random import uniform

__getattr__, __dir__ = derive(__name__, "_contrib_")


def rand_zipfian(true_classes, num_sampled, range_max, ctx=None):
    """Draws classes with the probabilities log((k + 2) / (k + 1)) / log(range_max + 1), as sampled
    softmax does when classes are numbered by falling frequency.

    Args:
        true_classes: NDArray (n,): the classes that are right.
        num_sampled: how many to draw. range_max: the number of classes. ctx: device.
    Returns: classes (num_sampled,) int64, the expected counts of true_classes (n,) float64 and
        those of the drawn classes (num_sampled,) float64.
    """
    ctx = current_context() if ctx is None else ctx
    high = log(range_max + 1)
    drawn = uniform(0, high, shape=(num_sampled,), dtype="float64", ctx=ctx)
    classes = (drawn.exp() - 1).astype("int64") % range_max

    def expected(given):
        k = given.as_in_context(ctx).astype("float64")
        return ((k + 2) / (k + 1)).log() / high * num_sampled

    return classes, expected(true_classes), expected(classes)
