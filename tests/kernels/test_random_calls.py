"""Random shapes and attributes, starting from each record's samples: where a native kernel serves,
it equals the reference."""

import random

import native_calls as native
import numpy as np
import pytest
from plait.engine.error import MXNetError
from plait.kernels.record import REGISTRY

SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 17)
DTYPES = ("float32",) * 5 + (
    "float64",
    "float16",
    "bfloat16",
    "int32",
    "int64",
    "uint8",
    "int8",
    "bool",
)
CALLS = 40  # for each operator


def sort_first(arrays, attrs):
    arrays[0].sort()


def count_first(arrays, attrs):
    attrs["count"] = int(np.count_nonzero(arrays[0]))


def histogram(arrays, attrs):
    counts = np.arange(arrays[0].size).reshape(arrays[0].shape) % 5 + 1
    arrays[0][...] = counts.astype(arrays[0].dtype)
    arrays[1].sort()


# what operators ask of their values
ASKED = {
    "_searchsorted": sort_first,
    "_places": count_first,
    "_contrib_calibrate_entropy": histogram,
}
OPERATORS = [name for name in native.NAMES if not REGISTRY[name].random]


def shape_of(given):
    if not given or not isinstance(given[0], str):
        return given
    return np.shape(given[1]) if given[0] == "values" else given[1]


def vary(rng, op, case):
    """Shapes and attributes like a sample's: sizes are renamed alike everywhere, axes join or go,
    attributes change."""
    sizes = {}

    def size(n):
        return sizes.setdefault(n, n if rng.random() < 0.5 else rng.choice(SIZES))

    more, first = rng.choice([(), (), (), (2,), (3, 2)]), rng.random() < 0.5
    shapes = [tuple(map(size, shape_of(given))) for given in case.inputs]
    shapes = [more + s if first else s + more for s in shapes]
    attrs = dict(case.attrs)
    for p in op.params:
        value = attrs.get(p.name, p.default)
        if isinstance(p.kind, tuple) and rng.random() < 0.3:
            attrs[p.name] = rng.choice(p.kind)
        elif p.kind == "bool" and rng.random() < 0.3:
            attrs[p.name] = rng.random() < 0.5
        elif p.kind in ("int", "int?") and isinstance(value, int):
            attrs[p.name] = rng.choice([value, sizes.get(value, value), rng.randint(-3, 3)])
        elif p.kind in ("shape", "shape?") and isinstance(value, tuple):
            attrs[p.name] = tuple(
                sizes.get(n, n) if rng.random() < 0.7 else rng.choice([1, 2, 0, -1]) for n in value
            )
        elif p.kind == "float" and rng.random() < 0.3:
            attrs[p.name] = rng.choice([0.5, 1.0, 2.7, -1.5])
    if op.variadic_key:
        attrs[op.variadic_key] = len(shapes)
    return shapes, attrs


@pytest.mark.parametrize("name", OPERATORS)
def test_random_calls(name):
    op, rng, numbers = REGISTRY[name], random.Random(name), np.random.default_rng(len(name))
    for _ in range(CALLS):
        case = rng.choice(op.samples)
        shapes, attrs = vary(rng, op, case)
        dtype = rng.choice(DTYPES)
        arrays, dtypes = [], []
        for given, shape in zip(case.inputs, shapes):
            kind = given[0] if given and isinstance(given[0], str) else ""
            if kind == "definite" and (len(shape) < 2 or shape[-1] != shape[-2]):
                kind = ""
            of = given[2] if kind == "values" and given[2] != "float32" else dtype
            draw = (
                ("ints", shape, -2, 6)
                if kind in ("ints", "values")
                else (kind, shape, *given[2:])
                if kind
                else shape
            )
            arrays.append(native.draw(numbers, draw, of))
            dtypes.append(of)
        ASKED.get(name, lambda *_: None)(arrays, attrs)
        try:
            full = native.complete(op, attrs)
            got, outs = native.run_native(op, arrays, dtypes, full)
        except MXNetError:
            continue  # inference refuses the call
        if got is not None and sum(a.size for a in arrays) < 100_000:
            with np.errstate(all="ignore"):
                native.compare(op, got, native.expected(op, arrays, full, outs), dtype)
