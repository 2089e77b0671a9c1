"""Settings of every test process."""

import os

# Test processes share the cores: an OpenMP thread that spins at a barrier takes the core from the
# one it waits for.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("MPLBACKEND", "Agg")
