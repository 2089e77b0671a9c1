"""`python -m plait bench`: the speed table, plait beside other frameworks.

table.py runs every measurement in a process of its own and forms ratios round by round; chart.py
draws such a table. The files with_*.py hold the workloads, each for one family of frameworks: they
run as scripts, under the interpreter of an environment that has that framework, and know nothing of
plait. gpu.py and gpu_with_*.py do the same on a GPU.
"""

from . import gpu, table

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """The command line: `plait bench --help`, and for GPUs `plait bench --gpu --help`."""
    if "--gpu" in argv:
        return gpu.main([a for a in argv if a != "--gpu"])
    return table.main(argv)
