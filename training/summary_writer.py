"""The writer of TensorBoard files: from the first installed of tensorboardX, mxboard and torch."""

from __future__ import annotations

import importlib
from typing import Any

from ..engine.error import MissingPackage

WRITERS = ("tensorboardX", "mxboard", "torch.utils.tensorboard")


def summary_writer(logging_dir: str | None) -> Any:
    """A SummaryWriter for a folder. Raises MissingPackage."""
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
    raise MissingPackage(
        f"TensorBoard: needs one of the packages {', '.join(WRITERS)}\n  fix: pip install"
        " tensorboardX"
    )
