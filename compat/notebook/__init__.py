"""mx.notebook: callbacks that show training progress in a notebook."""

from . import callback
