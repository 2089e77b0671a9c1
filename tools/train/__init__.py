"""`plait train`: trains an image classifier, on a named data set or on a folder of pictures.

Read `command.py`, which says what happens in which order.
"""

from .command import Stopped, main, run

__all__ = ["Stopped", "main", "run"]
