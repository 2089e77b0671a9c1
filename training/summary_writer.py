"""The writer of TensorBoard files: from the first installed of tensorboardX, mxboard and torch."""

from __future__ import annotations

import importlib
from typing import Any

from ..engine.error import MXNetError

WRITERS = ("tensorboardX", "mxboard", "torch.utils.tensorboard")


class MissingWriter(MXNetError, ImportError):
    """No package that writes TensorBoard files is installed."""


def summary_writer(logging_dir: str | None) -> Any:
    """A SummaryWriter for a folder. Raises MissingWriter (also an ImportError)."""
    for name in WRITERS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return (
            module.SummaryWriter(logdir=logging_dir)
            if name == "mxboard"
            else (module.SummaryWriter(logging_dir))
        )
    raise MissingWriter(
        f"TensorBoard: needs one of the packages {', '.join(WRITERS)}\n  fix: pip install"
        " tensorboardX"
    )
