"""contrib.estimator: a training loop with event handlers."""

from .batch_processor import BatchProcessor
from .checkpoint import CheckpointHandler
from .estimator import Estimator
from .event import BatchBegin, BatchEnd, EpochBegin, EpochEnd, TrainBegin, TrainEnd
from .event_handler import (
    EarlyStoppingHandler,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    ValidationHandler,
)
from .history import HistoryHandler
from .progress import ProgressBarHandler
from .tensorboard import TensorBoardHandler
