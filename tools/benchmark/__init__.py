"""`python -m plait bench`: the speed table, plait compared with other frameworks.

table.py runs every measurement in its own process and computes ratios for each round; chart.py
draws such a table. The files with_*.py hold the workloads, each for one family of frameworks: they
run as scripts in that framework's environment and do not import plait. gpu.py and gpu_with_*.py do
the same on a GPU, dist.py and dist_with_*.py on two processes, arrays.py and arrays_with_*.py for
single calls of mx.np, decode.py and decode_with_*.py for decoders that make one token after the
other, precision.py and precision_with_*.py for products of small numbers.
"""

from . import arrays, decode, dist, gpu, precision, table

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """The command line: `plait bench --help`; with `--gpu` for GPUs, with `--dist` for ranks, with
    `--np` for functions of mx.np, with `--decode` for decoders, with `--precision` for 16-bit
    floats and int8."""
    if "--decode" in argv:
        return decode.main([a for a in argv if a != "--decode"])
    if "--precision" in argv:
        return precision.main([a for a in argv if a != "--precision"])
    if "--np" in argv:
        return arrays.main([a for a in argv if a != "--np"])
    if "--dist" in argv:
        return dist.main([a for a in argv if a != "--dist"])
    if "--gpu" in argv:
        return gpu.main([a for a in argv if a != "--gpu"])
    return table.main(argv)
