"""The project's fuzzer: `make fuzz`.

What a run covers:

operators: every record with samples. Half of the cases go through all records in order, one after
    the other: a sample with one of its axes at each length around vector widths and blocks (1, 7 to
    9, 15 to 17, ... 127 to 129, primes), in each dtype; the results are compared with the reference
    in float64, the gradients with differences of it. The other half is hostile: wrong numbers of
    inputs, shapes, dtypes and attributes, NaN and infinities, views, `out`; eager call, symbol and
    graph must agree. All arrays lie between guard pages.
graphs: programs of up to 25 lines, run by plait and by NumPy in float64: shared values, writes
    through views, devices, gradients. A hybridized program is called in turn with several sizes,
    dtypes and modes, so that what a cache's key forgets is seen.
files: each format that plait reads, with bytes or values changed, cut, inserted.
nets: small nets of Gluon with random parameters, biases and statistics too: eager, tier 0, tier 1,
    outputs and gradients, several dtypes and sizes of one net; recomputation.
processes: forks, exits, Ctrl-C, pools, DataLoaders whose workers are killed: each is a program that
    must end within a deadline.

Cases run in processes of some hundred. Each process draws its instruction set (among those of this
machine), PLAIT_TIER and number of threads from the seed; in three processes each value comes once.

Not covered: GPUs, more than one machine, sizes beyond some thousand elements, and what two fused
programs do to each other (`tests/gluon/test_threads.py`). docs/design/fuzzing.md says how it works.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # samples.py and isa.py
