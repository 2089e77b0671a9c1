"""The calls on which both frameworks are compared, made from the operator records: samples, then
variations of their shapes, dtypes, attributes and values."""

from __future__ import annotations

import random
import zlib
from typing import Any

import numpy as np
import samples
from plait.kernels import ops  # noqa: F401  (fills the registry)
from plait.kernels.record import REGISTRY, Operator, sample
from plait.kernels.traits import Front

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.0, 1e-30, 3e4]
SIZES = [1, 2, 3, 5, 8]
DTYPES = ["float64", "float16", "int32", "int64", "uint8", "int8"]
PAD_MODES = ("constant", "edge", "reflect")
MANY = 4000  # draws of a random operator whose moments are compared


def name_in(op: Operator, theirs: set[str]) -> str | None:
    """The record's name in MXNet, or None for an operator of our own."""
    for name in (op.name, *op.aliases):
        if name in theirs and not name.startswith("_np"):
            return name
    return None


# samples that only MXNet needs: where ours have shapes that it does not take
MORE = {
    "Pad": [
        sample((1, 2, 3, 4), pad_width=(0, 0, 0, 0, 1, 2, 2, 1), mode=mode) for mode in PAD_MODES
    ]
    + [sample((1, 1, 3, 3, 4), pad_width=(0, 0, 0, 0, 1, 2, 2, 1, 0, 1), mode="edge")],
}


def draw(rng, given, shape, dtype, edges=False) -> np.ndarray:
    """An array like a sample's input, of another shape and dtype; edges: strange values too."""
    x, own = samples.draw(rng, given, shape)
    kind, dtype = samples.kind_of(given), own or dtype
    if kind == "values":
        with np.errstate(invalid="ignore"):  # infinities as whole numbers: any will do
            return (x if dtype.startswith("float") else np.nan_to_num(x)).astype(dtype)
    if kind == "ints":
        return x.astype(dtype)
    if not dtype.startswith("float"):
        x = np.trunc(3 * x)
        return (np.abs(x) if dtype.startswith("u") else x).astype(dtype)
    x = np.asarray(x, dtype)
    if edges and x.size:
        at = rng.random(shape) < 0.4
        x[at] = rng.choice(EDGES, int(at.sum()))
    return x


def writes(op: Operator) -> bool:
    """Is it called with out=, its own inputs?"""
    return "_update" in op.name or op.name in ("_scatter_set_nd", "_slice_assign")


def vary(rng: random.Random, op: Operator, s):
    """(shapes, attrs) like a sample's: a size changes wherever it stands, an attribute is
    another."""
    sizes: dict[int, int] = {}
    keep = rng.random() < 0.4

    def size(n):
        return n if keep else sizes.setdefault(n, n if rng.random() < 0.5 else rng.choice(SIZES))

    shapes = [tuple(size(n) for n in samples.shape_of(given)) for given in s.inputs]
    attrs = dict(s.attrs)
    for p in op.params:
        value = attrs.get(p.name, p.default)
        if p.name in ("ctx", op.variadic_key) or rng.random() < 0.5:
            continue
        if isinstance(p.kind, tuple):
            attrs[p.name] = rng.choice(p.kind)
        elif p.kind == "bool":
            attrs[p.name] = rng.random() < 0.5
        elif p.kind in ("int", "int?") and isinstance(value, int):
            attrs[p.name] = rng.choice([sizes.get(value, value), 0, 1, 2, -1, -2])
        elif p.kind in ("shape", "shape?") and isinstance(value, tuple):
            attrs[p.name] = tuple(sizes.get(n, n) if n is not None else None for n in value)
        elif p.kind.startswith("float") and isinstance(value, float):
            attrs[p.name] = rng.choice([0.5, 1.0, 2.7, -1.5, 0.0, value])
        elif p.kind in ("shape?", "int?", "float?") and value is None and rng.random() < 0.5:
            attrs[p.name] = (0,) if p.kind == "shape?" else 1
    return shapes, attrs


def copies(op: Operator, n: int, attrs: dict) -> list[tuple[int, int, int]]:
    """(weight, gradient, float32 copy) of each weight of an update that keeps such copies."""
    if "mp_" not in op.name or "_update" not in op.name:
        return []
    tail = 2 if op.name.startswith("preloaded") else int("multi" in op.name and "adamw" in op.name)
    tail += 1 if op.name == "_mp_adamw_update" else 0
    count = next((attrs[k] for k in ("num_weights", "num_tensors") if k in attrs), 1)
    group = max((n - tail) // max(count, 1), 1)
    gradient = 0 if op.name.endswith("phase2") else 1
    return [(i, i + gradient, i + group - 1) for i in range(0, group * count, group)]


def given_attrs(op: Operator, attrs: dict) -> dict[str, Any]:
    """Without what is None by default, and without the device."""
    none = {p.name for p in op.params if p.default is None}
    return {k: v for k, v in attrs.items() if k != "ctx" and (v is not None or k not in none)}


def cases_of(op: Operator, name: str, seed: int, count: int) -> list[dict[str, Any]]:
    """Calls of one operator: arrays, attributes, and which inputs are differentiated."""
    start = zlib.crc32(op.name.encode()) + seed
    chance, rng = random.Random(start), np.random.default_rng(start)
    cases: list[dict[str, Any]] = []
    own = MORE.get(op.name) or op.samples
    if not own:  # operators made of graphs: tests/symbol compares them
        return []

    def add(s, shapes, dtype, attrs, edges=False):
        groups = copies(op, len(shapes), attrs) if dtype == "float32" else []
        narrow = {i for w, g, _ in groups for i in (w, g)}
        dtypes = ["float16" if i in narrow else dtype for i in range(len(shapes))]
        try:
            arrays = [
                draw(rng, given, shape, d, edges)
                for given, shape, d in zip(s.inputs, shapes, dtypes)
            ]
            for w, _, copy in groups:
                arrays[copy] = arrays[w].astype("float32")
        except (ValueError, IndexError):  # a draw that its shape does not allow
            return
        attrs = given_attrs(op, attrs)
        if op.variadic_key:
            attrs[op.variadic_key] = len(arrays)
        full = op.parse(attrs)
        mutated = op.mutates(len(arrays), **full) if callable(op.mutates) else op.mutates
        try:
            names = op.names_in(full, len(arrays))
        except (TypeError, KeyError):
            return
        smooth = [
            i
            for i, (a, n) in enumerate(zip(arrays, names))
            if a.dtype.kind == "f"
            and i not in mutated
            and n not in mutated
            and s.inputs[i][:1] not in (("values",), ("ints",))
        ]
        cases.append(
            {
                "id": f"{op.name}-{len(cases)}",
                "operator": name,
                "ours": op.name,
                "attrs": attrs,
                "arrays": arrays,
                "smooth": smooth if op.grad else [],
                "out": [i for i, _ in op.inplace][: op.visible(full)] if writes(op) else None,
                "first": names[0] if names and not op.variadic else None,
                "random": bool(op.is_random(full | {"train": True})),
                "twice": len(cases) < len(own) and len(cases) % 4 == 0,
            }
        )

    for s in own:
        add(s, [samples.shape_of(given) for given in s.inputs], "float32", s.attrs)
    for dtype in DTYPES:
        s = chance.choice(own)
        add(s, [samples.shape_of(given) for given in s.inputs], dtype, s.attrs)
    for _ in range(count):
        s = chance.choice(own)
        shapes, attrs = vary(chance, op, s)
        try:
            op.outputs(op.parse(given_attrs(op, attrs)))
        except Exception:
            continue
        dtype = "float32" if chance.random() < 0.8 else chance.choice(DTYPES)
        add(s, shapes, dtype, attrs, edges=chance.random() < 0.3)
    if op.random and any(p.name == "shape" for p in op.params):
        s = own[0]
        shapes = [samples.shape_of(given) for given in s.inputs]
        add(s, shapes, "float32", {**s.attrs, "shape": (MANY,)})
    return cases


def all_cases(theirs: set[str], only: list[str], seed: int, count: int):
    """Cases of every record, or of those named in `only`; and the records MXNet has not."""
    cases, own = [], []
    for op in sorted(set(REGISTRY.values()), key=lambda op: op.name):
        if op.has(Front):  # tests/np compares them
            continue
        name = name_in(op, theirs)
        if name is None:
            own.append(op.name)
        elif not only or {op.name, *op.aliases} & set(only):
            cases += cases_of(op, name, seed, count)
    return cases, own
