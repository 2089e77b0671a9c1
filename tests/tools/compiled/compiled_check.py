"""Compiles the networks to C for a target, builds and runs them, and compares with plait:

    python compiled_check.py FOLDER TARGET [--run "COMMAND"] [MAKE ARGUMENT ...]

--run: what runs a program of the target, such as "qemu-aarch64 -L /usr/aarch64-linux-gnu". The
other arguments go to make: CC=..., CFLAGS=...
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import compiled_networks as networks
import numpy as np
from plait.kernels.record import Type
from plait.tools.compile import compile_block

HERE = Path(__file__).parent
TOLERANCE = 1e-5


def build(net, inputs, folder, name, target="native", arguments=()):
    """Compiles a network to C, and that to libNAME.so and NAME.o."""
    types = {k: Type(x.shape, x.dtype.name) for k, x in inputs.items()}
    network = compile_block(net, folder, types, target=target, name=name)
    command = ["make", "-s", f"-j{os.cpu_count()}", "-C", folder, *arguments]
    subprocess.run(command, check=True)
    return network


def link(folder, name, flags=(), cc="cc"):
    """Builds the driver with a network in it."""
    program = folder / f"driver-{name}"
    command = [
        *shlex.split(cc), "-O1", "-I", folder, *flags, HERE / "driver.c", folder / f"{name}.o",
        "-Wl,--gc-sections", "-lm", "-ldl", "-pthread", "-o", program,
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return program


def run(command, inputs, outputs):
    """The outputs that a filter computes; outputs: arrays of their shapes."""
    given = b"".join(x.tobytes() for x in inputs.values())
    done = subprocess.run(command, input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    made, at = [], 0
    for y in outputs:
        made.append(np.frombuffer(done.stdout[at : at + y.nbytes], y.dtype).reshape(y.shape))
        at += y.nbytes
    assert at == len(done.stdout)
    return made


def main(folder, target, *arguments):
    runner = []
    arguments = list(arguments)
    if "--run" in arguments:
        at = arguments.index("--run")
        runner = shlex.split(arguments[at + 1])
        del arguments[at : at + 2]
    given = dict(a.partition("=")[::2] for a in arguments)
    flags = shlex.split(given.get("CFLAGS", ""))
    for name in networks.NETWORKS:
        net, inputs = networks.make(name)
        build(net, inputs, Path(folder), name, target, arguments)
        program = link(Path(folder), name, flags, given.get("CC", "cc"))
        expected = networks.frozen(net, inputs)
        made = run([*runner, program, "2"], inputs, expected)
        worst = max(np.abs(y - want).max() for y, want in zip(made, expected))
        print(f"{name}: largest difference {worst:.2g}")
        assert worst <= TOLERANCE, name


if __name__ == "__main__":
    main(*sys.argv[1:])
