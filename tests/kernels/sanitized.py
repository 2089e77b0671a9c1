"""Runs the native kernels of every operator, for sanitize.sh: samples, and variations of them, in
every dtype and instruction set of this machine. The process stops at the first fault that a
sanitizer sees; results are compared by the tests of the same names.

    python tests/kernels/sanitized.py [variations of each operator] [operator ...]
"""

import random
import sys
import zlib

import native_calls as native
import numpy as np
import plait.ndarray  # noqa: F401  (bodies of operators run on its arrays)
from plait.engine import lib
from plait.engine.error import MXNetError
from plait.kernels.record import REGISTRY
from test_random_calls import vary

DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "bool")
ISAS = {lib.PLK_BASELINE: "baseline", lib.PLK_AVX2: "AVX2", lib.PLK_AVX512: "AVX-512"}
MAX_ITEMS = 100_000


def calls(name: str, n_variations: int):
    """(inputs as samples say them, shapes, attributes, dtype) of one operator."""
    op, rng = REGISTRY[name], random.Random(zlib.crc32(name.encode()))
    for case in op.samples:
        shapes = [native.samples.shape_of(given) for given in case.inputs]
        for dtype in DTYPES:
            yield case.inputs, shapes, case.attrs, dtype
    for _ in range(n_variations if op.samples else 0):
        case = rng.choice(op.samples)
        yield case.inputs, *vary(rng, op, case), rng.choice(DTYPES)


def run(name: str, given, shapes, attrs, dtype: str) -> bool:
    """Was there a kernel that ran?"""
    op, rng = REGISTRY[name], np.random.default_rng(7)
    arrays, dtypes = [], []
    for what, shape in zip(given, shapes):
        kind = native.samples.kind_of(what)
        fits = native.samples.shape_of(what) == tuple(shape)
        own = what[2] if kind == "values" and what[2] != "float32" else dtype
        if kind == "values" and not fits:
            what = ("ints", shape, -2, 6)
        elif not fits:
            what = (kind, shape, *what[2:]) if kind in ("ints", "uniform") else tuple(shape)
        arrays.append(native.draw(rng, what, own))
        dtypes.append(own)
    if sum(a.size for a in arrays) > MAX_ITEMS:
        return False
    try:
        got, _ = native.run_native(op, arrays, dtypes, native.complete(op, attrs))
    except MXNetError:
        return False  # inference refuses the call
    return got is not None


def main(n_variations: int, names: list[str]) -> None:
    for isa in range(lib.plk_isa_best() + 1):
        lib.plk_isa_set(isa)
        n_calls = 0
        for name in names or native.NAMES:
            print(end=".", flush=True)
            n_calls += sum(run(name, *call) for call in calls(name, n_variations))
        print(f"\n{ISAS[isa]}: {n_calls} calls of {len(names or native.NAMES)} kernels")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:])
