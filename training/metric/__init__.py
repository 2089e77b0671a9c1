"""Metrics: running averages over a data set. update() queues work; get() waits for it."""

from .base import (  # noqa: F401
    CompositeEvalMetric,
    CustomMetric,
    EvalMetric,
    alias,
    check_label_shapes,
    create,
    np,
    register,
)
from .classification import F1, MCC, PCC, Accuracy, TopKAccuracy  # noqa: F401
from .likelihood import (  # noqa: F401
    Caffe,
    CrossEntropy,
    Loss,
    NegativeLogLikelihood,
    Perplexity,
    Torch,
)
from .regression import MAE, MSE, RMSE, PearsonCorrelation  # noqa: F401
