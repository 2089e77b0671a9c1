"""GluonTS's MXNet models on plait: train, forecast, save, load. Run by make downstream."""

import sys
import tempfile
from pathlib import Path

import gluonts.mx as models
import numpy as np
from gluonts.dataset.common import ListDataset
from gluonts.model.predictor import Predictor
from gluonts.mx import Trainer
from gluonts.mx.trainer.callback import Callback

HOURS, HORIZON = 400, 12


def series(count: int, seed: int = 0) -> np.ndarray:
    """Daily waves with noise, (count, HOURS)."""
    rng, t = np.random.RandomState(seed), np.arange(HOURS)
    return np.array(
        [
            10 + 5 * np.sin(2 * np.pi * (t + 3 * i) / 24) + 0.3 * rng.randn(HOURS)
            for i in range(count)
        ]
    )


class Losses(Callback):
    """Keeps the loss of every epoch."""

    def __init__(self):
        self.of = []

    def on_epoch_end(self, epoch_no, epoch_loss, **kwargs):
        self.of.append(float(epoch_loss))
        return True


def run(name: str, make, data, truth: np.ndarray | None = None) -> None:
    losses = Losses()
    predictor = make(Trainer(epochs=6, num_batches_per_epoch=20, callbacks=[losses])).train(data)
    first = next(iter(predictor.predict(data)))
    error = ""
    if truth is not None:
        error = f", error {np.abs(first.mean - truth).mean():.2f}"
    print(f"{name}: loss {losses.of[0]:.3f} -> {losses.of[-1]:.3f}{error}")
    assert losses.of[-1] < losses.of[0], f"{name}: the loss did not fall: {losses.of}"
    assert np.isfinite(first.mean).all()
    with tempfile.TemporaryDirectory() as folder:
        predictor.serialize(Path(folder))
        again = next(iter(Predictor.deserialize(Path(folder)).predict(data)))
    assert again.mean.shape == first.mean.shape and np.isfinite(again.mean).all()


def main() -> None:
    values = series(6)
    data = ListDataset([{"start": "2020-01-01", "target": s[:-HORIZON]} for s in values], freq="h")
    size = {"prediction_length": HORIZON, "context_length": 48}
    run(
        "SimpleFeedForward",
        lambda trainer: models.SimpleFeedForwardEstimator(trainer=trainer, **size),
        data,
        values[0, -HORIZON:],
    )
    run(
        "DeepAR",
        lambda trainer: models.DeepAREstimator(freq="h", trainer=trainer, **size),
        data,
        values[0, -HORIZON:],
    )
    run(
        "MQCNN",
        lambda trainer: models.MQCNNEstimator(freq="h", trainer=trainer, **size),
        data,
    )
    run(
        "Transformer",
        lambda trainer: models.TransformerEstimator(freq="h", trainer=trainer, **size),
        data,
    )
    print("gluonts: all well")


if __name__ == "__main__":
    sys.exit(main())
