"""`python -m plait bench`: the speed table, plait beside other frameworks.

table.py runs every measurement in a process of its own and forms ratios round by round. The files
with_*.py hold the workloads, each for one family of frameworks: they run as scripts, under the
interpreter of an environment that has that framework, and know nothing of plait.
"""

from .table import main

__all__ = ["main"]
