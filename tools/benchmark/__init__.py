"""`python -m plait bench`: the speed table, plait compared with other frameworks.

table.py runs every measurement in its own process and computes ratios for each round; chart.py
draws such a table. The files with_*.py hold the workloads, each for one family of frameworks: they
run as scripts in that framework's environment and do not import plait. gpu.py and gpu_with_*.py do
the same on a GPU, dist.py and dist_with_*.py on two processes, arrays.py and arrays_with_*.py for
single calls of mx.np, decode.py and decode_with_*.py for decoders that make one token after the
other, precision.py and precision_with_*.py for products of small numbers, onnx_files.py and
onnx_with_*.py for ONNX files, zoo.py and zoo_with_*.py for the vision networks, serve.py,
serve_client.py and serve_with_onnxruntime.py for a server under load. busy.py measures beside busy
processes; turns.py starts the workers that take turns.
"""

from . import arrays, busy, decode, dist, gpu, onnx_files, precision, serve, table, zoo

__all__ = ["main"]

MODES = {
    "--decode": decode.main,
    "--precision": precision.main,
    "--np": arrays.main,
    "--dist": dist.main,
    "--gpu": gpu.main,
    "--onnx": onnx_files.main,
    "--zoo": zoo.main,
    "--busy": busy.main,
    "--serve": serve.main,
}


def main(argv: list[str]) -> int:
    """The command line: `plait bench --help`; with `--gpu` for GPUs, with `--dist` for ranks, with
    `--np` for functions of mx.np, with `--decode` for decoders, with `--precision` for 16-bit
    floats and int8, with `--onnx` for an ONNX file, with `--zoo` for the vision networks, with
    `--busy` beside busy processes, with `--serve` for a server under load."""
    for option, run in MODES.items():
        if option in argv:
            return run([a for a in argv if a != option])
    return table.main(argv)
