"""CheckpointHandler: saves parameters and optimizer states periodically, and resumes from them."""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import numpy as np

from ....dist import is_main
from ....engine import files
from ....engine.error import InvalidValue
from ....training.checkpoint import Checkpoint, is_checkpoint
from ....training.metric import EvalMetric
from ...hybrid import HybridBlock
from ...shard import is_split
from .event import BatchEnd, EpochEnd, TrainBegin, better, worst


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Writes PREFIX-epochNbatchM.params and .states, and once PREFIX-symbol.json for a hybridized
    net.

    Each file is written to a temporary file and renamed, `.params` last, so every `.params` file in
    the folder is a complete checkpoint, also after a crash. `.states` is an mx.checkpoint of the
    complete training state, including parameters; `Trainer.load_states` takes it as well. Resumed
    training is bitwise equal to uninterrupted training. Of handlers it stores the attributes named
    in `kept`. Of several ranks the first writes the files, which all read.

    Args:
        model_dir: folder, created if missing. model_prefix: prefix of file names.
        monitor, save_best, mode: with save_best, PREFIX-best.params is the checkpoint with the best
            value of the metric `monitor`; mode: "min", "max", or "auto": max for accuracy and F1,
            min for the rest.
        verbose: 1 logs every checkpoint.
        epoch_period, batch_period: epochs, batches between checkpoints; None for never.
        max_checkpoints: older ones are deleted; the best one is kept in addition.
        resume_from_checkpoint: loads the latest checkpoint and trains the remaining epochs or
            batches; counting continues from it. Starts from scratch if there is none.
    """

    kept = ("best",)

    def __init__(
        self,
        model_dir: Any,
        model_prefix: str = "model",
        monitor: Any = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ):
        if save_best and not isinstance(monitor, EvalMetric):
            raise InvalidValue(
                "CheckpointHandler: save_best needs as monitor one of the metric objects from"
                f" estimator.train_metrics and estimator.val_metrics, got {monitor!r}"
            )
        os.makedirs(model_dir, exist_ok=True)
        self.model_dir, self.model_prefix = model_dir, model_prefix
        self.monitor, self.verbose, self.save_best = monitor, verbose, save_best
        self.epoch_period, self.batch_period = epoch_period, batch_period
        self.max_checkpoints = max_checkpoints
        self.resume_from_checkpoint = resume_from_checkpoint
        self.current_batch = self.current_epoch = 0
        self.trained_epoch = self.trained_batch = -1
        self.saved_checkpoints: list[str] = []
        if save_best:
            self.monitor_op = better(mode, monitor, "ModelCheckpoint")
            self.best = worst(self.monitor_op)

    # ---- events ----------------------------------------------------------------------------------

    def train_begin(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        self.current_epoch = self.current_batch = 0
        self.trained_epoch = self.trained_batch = -1
        if self.save_best:
            self.best = worst(self.monitor_op)
        if is_main():
            files.remove_leftovers(self.model_dir, f"{self.model_prefix}-")
        if self.resume_from_checkpoint:
            wanted, other = (
                ("batch_period", "epoch_period")
                if estimator.max_batch
                else ("epoch_period", "batch_period")
            )
            if not getattr(self, wanted) or getattr(self, other):
                raise CheckpointError(
                    "To use resume from checkpoint, save by the same period that you train by:"
                    f" {wanted} must be set and {other} None, got"
                    f" epoch_period={self.epoch_period} and batch_period={self.batch_period}"
                )
            self._resume(estimator)

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.current_batch == 0:
            self._save_symbol(estimator)
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._save_checkpoint(estimator)
        self.current_batch += 1

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save_checkpoint(estimator)
        self.current_epoch += 1

    # ---- writing ---------------------------------------------------------------------------------

    def _save_symbol(self, estimator) -> None:
        path = os.path.join(self.model_dir, f"{self.model_prefix}-symbol.json")
        net = estimator.net
        if not is_main():
            return
        if isinstance(net, HybridBlock) and net._traces:
            net._any_trace().symbol.save(path)
        else:
            estimator.logger.info(
                "Model architecture(symbol file) is not saved, please use HybridBlock to construct"
                " your model, and call net.hybridize() before passing to Estimator in order to"
                " save model architecture as %s.",
                path,
            )

    def _save_checkpoint(self, estimator) -> None:
        epoch, batch = self.current_epoch, self.current_batch
        if self.trained_epoch >= 0:  # counting continues from the checkpoint
            epoch += self.trained_epoch + 1
            # at the end of an epoch the batch is already counted
            batch += self.trained_batch + (0 if estimator.max_epoch else 1)
        prefix = f"{self.model_prefix}-epoch{epoch}batch{batch}"
        said = self._save_best(estimator) if self.save_best else None
        self._save(estimator, prefix)  # after the best one, because it stores the best value
        if prefix in self.saved_checkpoints:
            self.saved_checkpoints.remove(prefix)
        self.saved_checkpoints.append(prefix)
        while len(self.saved_checkpoints) > self.max_checkpoints:
            old = os.path.join(self.model_dir, self.saved_checkpoints.pop(0))
            for suffix in (".params", ".states"):
                if is_main() and os.path.exists(old + suffix):
                    os.remove(old + suffix)
        if self.verbose > 0:
            estimator.logger.info(
                "[Epoch %d] CheckpointHandler: trained total %d batches, saving model at %s with"
                " prefix: %s",
                self.current_epoch,
                self.current_batch + 1,
                self.model_dir,
                prefix,
            )
        if self.verbose > 0 and said:
            estimator.logger.info("[Epoch %d] CheckpointHandler: %s", self.current_epoch, said)

    def _save_best(self, estimator) -> str | None:
        """Saves the checkpoint if it is the best so far; returns a message for the log."""
        name, value = self.monitor.get()
        if np.isnan(value):
            warnings.warn(
                f"Skipping save best because {name} is not updated, make sure you pass one of the"
                " metric objects estimator.train_metrics and estimator.val_metrics as monitor",
                RuntimeWarning,
                stacklevel=4,
            )
            return None
        before, prefix = self.best, f"{self.model_prefix}-best"
        if not self.monitor_op(value, before):
            return f"{name} did not improve from {before:0.5f}, skipping updating best model"
        self.best = value
        self._save(estimator, prefix)
        return (
            f"{name} improved from {before:0.5f} to {value:0.5f}, updating best model at"
            f" {self.model_dir} with prefix: {prefix}"
        )

    def _save(self, estimator, prefix: str) -> None:
        path = os.path.join(self.model_dir, prefix)
        Checkpoint(f"{path}.states", net=estimator.net, run=estimator).save()
        if is_main() or is_split(estimator.net.collect_params().values()):
            estimator.net.save_parameters(f"{path}.params")  # last: it completes the checkpoint

    # ---- resuming --------------------------------------------------------------------------------

    def _found(self) -> list[tuple[int, int]]:
        """(epoch, batch) of the checkpoints in the folder, oldest first."""
        pattern = re.compile(rf"{re.escape(self.model_prefix)}-epoch(.*)batch(.*)\.params")
        found = []
        for name in os.listdir(self.model_dir):
            match = pattern.fullmatch(name)
            if match is None:
                continue
            try:
                found.append((int(match[1]), int(match[2])))
            except ValueError:
                raise CheckpointError(
                    f"Error parsing checkpoint file {name}: checkpoints are called"
                    f" {self.model_prefix}-epochNbatchM.params with whole numbers\n  fix: rename"
                    " the file, or use another model_dir"
                ) from None
        return sorted(found)

    def _resume(self, estimator) -> None:
        found = self._found()
        self.saved_checkpoints = [f"{self.model_prefix}-epoch{e}batch{b}" for e, b in found]
        unit, total = (
            ("epoch", estimator.max_epoch)
            if estimator.max_epoch
            else ("batch", estimator.max_batch)
        )
        plural = "epochs" if unit == "epoch" else "batches"
        if not found:
            estimator.logger.info(
                "CheckpointHandler: No checkpoint found, training from scratch for %d %s",
                total,
                plural,
            )
            return
        epoch, batch = found[-1]
        done = (epoch if unit == "epoch" else batch) + 1
        if done >= total:
            raise CheckpointError(
                f"Found checkpoint with maximum number of {unit} {total} reached"
                f" ({self.saved_checkpoints[-1]} in {self.model_dir})\n  fix: train for more"
                f" {plural}, or pass resume_from_checkpoint=False to train from scratch"
            )
        path = os.path.join(self.model_dir, self.saved_checkpoints[-1])
        if not os.path.exists(f"{path}.states"):
            raise CheckpointError(f"Failed to load checkpoint, {path}.states does not exist")
        if is_checkpoint(f"{path}.states"):
            Checkpoint(f"{path}.states", net=estimator.net, run=estimator).restore()
        else:  # written by an earlier version
            estimator.net.load_parameters(f"{path}.params", ctx=estimator.context)
            estimator.trainer.load_states(f"{path}.states")
        self.trained_epoch, self.trained_batch = epoch, batch
        setattr(estimator, f"max_{unit}", total - done)
        estimator.logger.warning(
            "CheckpointHandler: Checkpoint resumed from epoch %d batch %d, continue to train for"
            " %d %s ",
            epoch,
            batch,
            total - done,
            plural,
        )


class CheckpointError(InvalidValue):
    """Checkpoints that cannot be resumed from."""
