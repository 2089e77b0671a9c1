"""Every operator at the sizes where kernels change their way: around the widths of vectors, of
blocks and of what threads share. The results are the reference's, computed in float64, and the
tape's gradients are differences of it.

One case is one axis of one sample. The cases go through all records in order, so that each meets
every size soon.
"""

from __future__ import annotations

import functools
import random
import time

import numpy as np
import plait as mx
import samples
from plait.kernels.plan import infer
from plait.kernels.record import REGISTRY, Operator, Type, lookup
from plait.kernels.reference import run_reference
from plait.ndarray.invoke import invoke

from .operators import OPERATORS, Call, attempt, wider

# ---- what scripts call ---------------------------------------------------------------------------

MOST = 300_000  # elements of an input
PATIENCE_S = 2  # of one sample: what is slower is not tried at all sizes
STEP = 1e-5  # of differences
SLOPE = {"float64": 1e-5, "float32": 2e-3}  # how near gradients are to differences


class Sample:
    """A record's sample in which what is `axis` long, in shapes and attributes, gets another
    length."""

    def __init__(self, name: str, number: int, axis: int, dtype: str, seed: int):
        self.op, self.axis, self.dtype, self.seed = lookup(name), axis, dtype, seed
        self.case = self.op.samples[number]
        self.end = time.monotonic() + PATIENCE_S

    def at(self, n: int) -> None:
        """The result at one length. Raises AssertionError, or what the call raises if the reference
        has a result."""
        call = self._call(n, self.dtype)
        if call is not None and not call.random() and not self._promises():
            eager, refusal = attempt(call.eager)
            if refusal is None:
                call.hold_result(eager)
            elif samples.is_public(self.op) and call.reference() is not None:
                raise AssertionError(f"{self.op.name}: the reference has a result: {refusal}")

    def slope(self, n: int) -> None:
        """The gradient along a random direction, at one length. Raises AssertionError."""
        dtype = self.dtype if self.dtype in SLOPE else "float64"
        call = self._call(n, dtype)
        if call is None or self._draws_places(n):
            return
        attrs = call.full() | ({"train": True} if self.op.train_aware else {})
        smooth = [samples.kind_of(given) not in ("ints", "values") for given in self.case.inputs]
        moved = [i for i in call.variables() if smooth[i] and call.given[i][1] == dtype]
        if not moved or self.op.is_random(attrs):
            return
        arrays = call.inputs()
        values = [
            # places keep their dtype, in which bins are rounded
            wider(a.asnumpy(), a._spec.dtype) if kept else a.asnumpy()
            for a, kept in zip(arrays, smooth)
        ]
        rng = np.random.default_rng(self.seed)
        u = {i: self._direction(rng, i, values[i].shape) for i in moved}
        heads: list[np.ndarray | None] = []

        def value(t: float) -> float:
            given = [x + t * u[i] if i in u else x for i, x in enumerate(values)]
            outs = run_reference(self.op, attrs, given)[: len(heads)]
            return sum(float((o * w).sum()) for o, w in zip(outs, heads) if w is not None)

        for i in moved:
            arrays[i].attach_grad()
        with mx.autograd.record():
            made, refusal = attempt(lambda: invoke(self.op, arrays, self.case.attrs | call.attrs))
        made = made if isinstance(made, list) else [made]
        made = [m for m in made if m is not None and m._tape is not None]
        if refusal is not None or not made:
            return
        if call.attrs.get("output_mean_var"):  # statistics give no gradient, as in MXNet
            made = made[:1]
        heads += [rng.normal(size=m.shape) if m._spec.dtype == dtype else None for m in made]
        given = [
            mx.nd.zeros(m.shape, dtype=m.dtype) if w is None else mx.nd.array(w, dtype=m.dtype)
            for m, w in zip(made, heads)
        ]
        heads[:] = [None if w is None else g.asnumpy().astype(float) for g, w in zip(given, heads)]
        mx.autograd.backward(made, given)
        got = sum(float((wider(arrays[i].grad.asnumpy(), dtype) * u[i]).sum()) for i in moved)
        size = sum(float(np.abs(arrays[i].grad.asnumpy() * u[i]).sum()) for i in moved)
        slopes = differences(value)
        assert not slopes or any(abs(got - s) <= SLOPE[dtype] * (1 + size) for s in slopes), (
            f"{self.op.name}: gradient: {got} by backward, {slopes[0]} by differences"
        )

    def _promises(self) -> bool:
        """Would values be drawn anew that the callers of an operator of plait's own promise: a
        vector in order, so many places?"""
        return not samples.is_public(self.op) and self.axis in self._kinds().get("values", ())

    def _kinds(self) -> dict[str, set[int]]:
        """The sizes of the sample's inputs, by how these are drawn."""
        kinds: dict[str, set[int]] = {}
        for given in self.case.inputs:
            kinds.setdefault(samples.kind_of(given), set()).update(samples.shape_of(given))
        return kinds

    def _draws_places(self, n: int) -> bool:
        """Are indices drawn that are equal, where the sample's are not, or beyond the end? There
        results jump."""
        kinds = self._kinds()
        return self.axis in kinds.get("values", ()) or (
            n < self.axis and not kinds.keys().isdisjoint(("ints", "values"))
        )

    def _direction(self, rng, i: int, shape) -> np.ndarray:
        u = rng.normal(size=shape)
        definite = samples.kind_of(self.case.inputs[i]) == "definite"
        return u + np.swapaxes(u, -1, -2) if definite else u

    def _call(self, n: int, dtype: str) -> Call | None:
        """The call with this length, where the record accepts one. An attribute that equals the
        length goes with it, or else stays."""
        for keep in (False, True):
            call = Call(self.op.name)
            call.attrs = resized(self.op, self.case.attrs, self.axis, n, keep)
            shapes = [
                tuple(n if k == self.axis else k for k in samples.shape_of(g))
                for g in self.case.inputs
            ]
            if any(np.prod(shape) > MOST for shape in shapes) or time.monotonic() > self.end:
                return None
            for i, (what, shape) in enumerate(zip(self.case.inputs, shapes)):
                call.give(what, dtype, seed=self.seed + i, shape=shape)
            call.guard("after" if (n + self.seed) % 2 else "before")
            types = [Type(np.shape(values), own) for values, own, _ in call.given]
            if attempt(functools.partial(self._infer, call, types))[1] is None:
                return call
        return None

    def _infer(self, call: Call, types: list[Type]) -> None:
        infer(self.op, call.full(), types)


def resized(op: Operator, attrs: dict, axis: int, n: int, keep: bool) -> dict:
    made = dict(attrs)
    for p in op.params:
        value = attrs.get(p.name)
        if keep or p.name == op.variadic_key:
            continue
        if p.kind in ("shape", "shape?") and isinstance(value, (tuple, list)):
            made[p.name] = tuple(n if k == axis else k for k in value)
        elif p.kind in ("int", "int?") and value == axis:
            made[p.name] = n
    return made


def differences(value) -> list[float]:
    """Central differences of several steps; none where they say nothing: beside kinks and jumps."""
    with np.errstate(all="ignore"):
        up, here, down = (value(t) for t in (STEP, 0.0, -STEP))
        halves = (value(STEP / 2) - value(-STEP / 2)) / STEP
    slope, curve = (up - down) / (2 * STEP), abs(up + down - 2 * here) / STEP
    change = max(curve, 100 * abs(slope - halves))
    if not np.isfinite(slope) or abs(slope) > 1e6 or change > 1e-2 * (1 + abs(slope)):
        return []
    with np.errstate(all="ignore"):
        return [slope, *((value(t) - value(-t)) / (2 * t) for t in (STEP / 10, STEP * 10))]


# ---- cases ---------------------------------------------------------------------------------------

WIDTHS = (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129)
PRIMES = (2, 3, 5, 11, 13, 19, 23, 29, 37, 41, 53, 61, 67, 97, 101, 131, 191, 257, 1009)
DTYPES = ("float32",) * 6 + ("float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8")


@functools.cache
def order() -> list[str]:
    """All records, mixed: neighbours in the alphabet cost alike."""
    return random.Random(1).sample(OPERATORS, len(OPERATORS))


def script(rng: random.Random, seed: int, index: int) -> tuple[str, str]:
    """The first visit to a record takes the last axis of a sample's first input, in float32."""
    names = order()
    op = REGISTRY[names[(7919 * seed + index) % len(names)]]
    first = index < len(names)
    number = rng.randrange(len(op.samples))
    shapes = [samples.shape_of(given) for given in op.samples[number].inputs]
    lengths = [n for shape in shapes for n in shape if n]
    lasts = [shape[-1] for shape in shapes[:1] if shape and shape[-1]]
    axis = rng.choice(lasts if first and lasts else lasts * len(lengths) + lengths or [1])
    sizes = sorted({*WIDTHS, *rng.sample(PRIMES, 4)})
    dtype = "float32" if first else rng.choice(DTYPES)
    lines = ["from tests.fuzz.sizes import Sample", ""]
    lines.append(
        f"sample = Sample({op.name!r}, {number}, axis={axis}, dtype={dtype!r}, "
        f"seed={rng.randrange(1000)})"
    )
    lines += [f"sample.at({n})" for n in sizes]
    if samples.is_differentiable(op):
        lines += [f"sample.slope({n})" for n in rng.sample(sizes, 4)]
    return op.name, "\n".join([*lines, ""])
