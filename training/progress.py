"""Progress: a progress bar whose loss is some steps old, so that the loop does not wait for it."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..dist import is_main


class Progress:
    """A tqdm bar on a terminal, nothing elsewhere.

    The loss shown is EVERY steps old, so it is usually ready. Waiting for it also limits how far
    the loop runs ahead of the engine, which bounds memory.

    Args:
        total: steps of the bar; None where not known. label: text before it. unit: what it counts.
    """

    EVERY = 20

    def __init__(self, total: int | None, label: str, unit: str = "batch"):
        self._bar: Any = None
        self._pending: Any = None  # the loss to show next
        self._count = 0
        plain = os.environ.get("CI") or os.environ.get("NO_COLOR")
        if is_main() and sys.stderr.isatty() and not plain:
            from tqdm import tqdm

            self._bar = tqdm(total=total, desc=label, leave=False, unit=unit)

    def step(self, loss: Any = None, n: int = 1) -> None:
        """One step is done, of n units. loss: NDArray, its mean is shown."""
        self._count += 1
        if self._bar is not None:
            self._bar.update(n)
        if self._count % self.EVERY == 0:
            if self._pending is not None:
                shown = float(self._pending.asnumpy().mean())
                if self._bar is not None:
                    self._bar.set_postfix(loss=f"{shown:.4f}")
            self._pending = loss

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
