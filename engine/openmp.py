"""Loads the core, and with it libgomp, on whose threads oneDNN runs."""

import os

# libgomp's threads spin for milliseconds after a region, on cores that our own team needs. Less
# than 100 us last to the next one of a primitive. libgomp reads this when it is loaded.
_ours = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
if _ours:
    os.environ["GOMP_SPINCOUNT"] = "3000"
from ._core import lib  # noqa: E402, F401

if _ours:
    del os.environ["GOMP_SPINCOUNT"]
