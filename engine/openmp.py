"""Loads the core, and with it libgomp, on whose threads oneDNN runs."""

import os

# libgomp's threads spin for milliseconds after a region, on cores that our own team needs; a few
# hundred microseconds last to the next kernel of oneDNN's. libgomp reads this when it is loaded.
_ours = not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
if _ours:
    os.environ["GOMP_SPINCOUNT"] = "10000"
from . import _core  # noqa: E402, F401

if _ours:
    del os.environ["GOMP_SPINCOUNT"]
