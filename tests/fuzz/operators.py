"""Every operator, at the sizes where kernels change their way, and called with what nobody should
give it, on arrays between unreadable pages: the eager call, the symbol's executor and the
hybridized graph agree with the reference, or all refuse. None writes an input that its record does
not name; the tape's gradients are the executor's, and differences of the reference.
"""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import plait as mx
import samples
from plait.engine import cpu, lib
from plait.engine.error import DynamicShape, OutOfMemory
from plait.kernels.plan import infer
from plait.kernels.record import DTYPES, FLOATS, REGISTRY, Operator, lookup, mutated_inputs
from plait.kernels.reference import run_reference, store
from plait.kernels.spec import NUMPY_DTYPES, from_bfloat16
from plait.kernels.traits import Eager, Specialised
from plait.ndarray.cached_op import CachedOp
from plait.ndarray.invoke import invoke
from plait.ndarray.ndarray import from_memory
from plait.symbol.symbol import apply

# ---- what scripts call ---------------------------------------------------------------------------

# by area, bytes are means in float32: at a half, the order of the sum decides
ROUNDING = ("_image_resize", "_cvimresize")
TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 6e-2}
SIDES = {"after": lib.PL_GUARD_AFTER, "before": lib.PL_GUARD_BEFORE}
LOW, TOP = 1e-45, 3.4e38
FLOAT_EDGES = (
    0.0,
    -0.0,
    np.nan,
    np.inf,
    -np.inf,
    LOW,
    -LOW,
    TOP,
    -TOP,
    1.0,
    -1.0,
    65504.0,
    2.0**31,
)
WHOLE_EDGES = (0, 1, -1, 2, 127, -128, 255, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


class Call:
    """One call of an operator: what it is given, and the ways in which it is made."""

    def __init__(self, name: str):
        self.op = lookup(name)
        self.given: list[tuple[np.ndarray, str, bool] | None] = []  # values, dtype, is it a view
        self.attrs: dict[str, Any] = {}
        self.out: int | tuple | None = None  # number of an input, or (shape, dtype) of an array
        self.edges = self.train = self.gradient = False
        self.before: list[bytes] = []  # what the inputs hold

    def give(self, what, dtype="float32", seed=0, edges=False, view=False, shape=None) -> None:
        """One input. what: as in a record's sample; shape: another one. edges: NaN, infinities, the
        least and the largest numbers among its values. view: a part of a larger array."""
        rng = np.random.default_rng(seed)
        shape = samples.shape_of(what) if shape is None else shape
        try:
            x, own = samples.draw(rng, what, shape)
        except (ValueError, IndexError):  # a draw that its shape does not allow
            x, own = rng.normal(size=shape), None
        dtype = own or dtype
        if samples.kind_of(what) in ("normal", "uniform") and dtype not in FLOATS:
            x = np.trunc(3 * x)
        if edges and x.size:
            self.edges = True
            pool = np.array(FLOAT_EDGES if dtype in FLOATS else WHOLE_EDGES, np.float64)
            x = np.where(rng.random(x.shape) < 0.4, rng.choice(pool, x.shape), x)
        self.given.append((np.asarray(x, np.float64), dtype, view))

    def give_none(self) -> None:
        """None where an array should be."""
        self.given.append(None)

    def guard(self, side: str) -> None:
        """New arrays have an unreadable page after or before them."""
        lib.pl_storage_guard(SIDES[side])

    def inputs(self) -> list:
        arrays = [None if g is None else array(*g) for g in self.given]
        if not self.before:
            self.before = [b"" if a is None else a.asnumpy().tobytes() for a in arrays]
        return arrays

    def target(self, arrays):
        if self.out is None or isinstance(self.out, int):
            return None if self.out is None else arrays[self.out]
        return array(np.zeros(self.out[0]), self.out[1], False)

    def full(self) -> dict[str, Any]:
        attrs = dict(self.attrs)
        if self.op.variadic_key:
            attrs.setdefault(self.op.variadic_key, len(self.given))
        return self.op.parse(attrs) | ({"train": self.train} if self.op.train_aware else {})

    def written(self) -> tuple[int, ...]:
        """The inputs that the operator writes."""
        return mutated_inputs(self.op, self.full(), len(self.given))

    def results(self, made, arrays: dict) -> list[np.ndarray]:
        """What was made, then the inputs that the operator writes, but not one that is `out` too.
        arrays: by number. Raises AssertionError if it wrote another one."""
        written = self.written()
        for i, a in arrays.items():
            if i not in written and i != self.out:
                assert a.asnumpy().tobytes() == self.before[i], (
                    f"{self.op.name}: input {i} was written:\n{a.asnumpy()}"
                )
        return numpy_of(made) + [
            arrays[i].asnumpy() for i in written if i in arrays and i != self.out
        ]

    # -- the ways --

    def eager(self) -> list[np.ndarray]:
        arrays = self.inputs()
        with mx.autograd.train_mode() if self.train else mx.autograd.predict_mode():
            made = invoke(self.op, arrays, self.attrs, out=self.target(arrays))
        return self.results(made, {i: a for i, a in enumerate(arrays) if a is not None})

    def composed(self):
        names = [None if g is None else mx.sym.Variable(f"x{i}") for i, g in enumerate(self.given)]
        symbol = apply(self.op, self.op.name.lower().strip("_"), names, dict(self.attrs))
        arrays = self.inputs()
        return symbol, {f"x{i}": a for i, a in enumerate(arrays) if a is not None}

    def symbolic(self) -> list[np.ndarray]:
        symbol, arrays = self.composed()
        args = {k: arrays[k] for k in symbol.list_arguments() if k in arrays}
        aux = {k: arrays[k] for k in symbol.list_auxiliary_states() if k in arrays}
        executor = symbol.bind(cpu(), args, aux_states=aux, grad_req="null")
        made = list(executor.forward(is_train=self.train))
        return self.results(made, {int(k[1:]): a for k, a in arrays.items()})

    def hybridized(self) -> list[np.ndarray]:
        symbol, arrays = self.composed()
        if missing := set(symbol.list_inputs()) - set(arrays):
            raise mx.MXNetError(f"no array for {missing}")  # composing made variables of them
        call = CachedOp(symbol)
        with mx.autograd.train_mode() if self.train else mx.autograd.predict_mode():
            made = call(*[arrays[k] for k in symbol.list_inputs()])
        return self.results(made, {int(k[1:]): a for k, a in arrays.items()})

    def tape(self) -> list[np.ndarray]:
        """Gradients of the sum of all outputs, by the tape."""
        arrays = self.inputs()
        wanted = [arrays[i] for i in self.variables()]
        for a in wanted:
            a.attach_grad()
        with mx.autograd.record():
            made = invoke(self.op, arrays, self.attrs)
        mx.autograd.backward(made)
        return [a.grad.asnumpy() for a in wanted]

    def executor(self) -> list[np.ndarray]:
        """The same gradients by an executor."""
        symbol, arrays = self.composed()
        grads = {f"x{i}": mx.nd.zeros_like(arrays[f"x{i}"]) for i in self.variables()}
        args = {k: arrays[k] for k in symbol.list_arguments() if k in arrays}
        aux = {k: arrays[k] for k in symbol.list_auxiliary_states() if k in arrays}
        reqs = {k: "write" if k in grads else "null" for k in symbol.list_arguments()}
        executor = symbol.bind(cpu(), args, args_grad=grads, aux_states=aux, grad_req=reqs)
        made = executor.forward(is_train=True)
        executor.backward([mx.nd.ones_like(y) for y in made])
        return numpy_of(list(grads.values()))

    def variables(self) -> list[int]:
        """The inputs of floats that the operator does not write."""
        written = self.written()
        return [i for i, g in enumerate(self.given) if g and g[1] in FLOATS and i not in written]

    def reference(self, wide: bool = False) -> list[np.ndarray] | None:
        """Its results, as of `results`, in the inferred dtypes; None where it has none for this
        call. wide: computed in float64."""
        if any(g is None for g in self.given) or self.op.has(Specialised):
            return None
        try:
            attrs, arrays = self.full(), self.inputs()
            types = infer(self.op, attrs, [a._spec.type for a in arrays])
            types = [*types, *(arrays[i]._spec.type for i in self.written())]
            values = [a.asnumpy() for a in arrays]
            if wide:
                values = [wider(v, a._spec.dtype) for v, a in zip(values, arrays)]
                if self.op.pointwise and all(a._spec.dtype != "float64" for a in arrays):
                    attrs = {k: as_float32(v) for k, v in attrs.items()}  # as kernels hold them
            results = run_reference(self.op, attrs, values)
            out = [np.zeros(np.shape(r), NUMPY_DTYPES[t.dtype]) for r, t in zip(results, types)]
            for target, value in zip(out, results):
                store(target, value)
        except (mx.MXNetError, TypeError, ValueError, ArithmeticError, MemoryError, IndexError):
            return None
        written = zip(self.written(), out[len(out) - len(self.written()) :])
        return out[: self.op.visible(attrs)] + [a for i, a in written if i != self.out]

    # -- the comparison --

    def hold(self) -> None:
        """All ways give the reference's result, or all are refused. Raises AssertionError, or what
        the calls raise."""
        eager, refusal = attempt(self.eager)
        if not self.op.has(Eager) and self.out is None and self.op.n_outputs != 0:
            for way in (self.symbolic, self.hybridized):
                other, why = attempt(way)
                name = f"{self.op.name}: {way.__name__}"
                if (refusal is None) != (why is None) and not isinstance(why, DynamicShape):
                    raise AssertionError(
                        f"{name} and eager do not refuse the same: {one_line(why)} and "
                        f"{one_line(refusal)}"
                    )
                if eager is not None and other is not None and not self.random():
                    same(f"{name} is not eager's result", other, eager, exact=True)
        if refusal is not None:
            raise refusal
        extreme = self.edges or any(
            isinstance(v, float) and v and not 1e-30 < abs(v) < 1e30 for v in self.attrs.values()
        )
        if self.gradient and not self.op.has(Eager) and self.op.n_outputs != 0:
            self.hold_gradient(extreme)
        fills = self.op.has(Eager) and self.out is not None  # the reference knows nothing of `out`
        if not self.random() and not fills and (not extreme or self.op.pointwise):
            if not self.promised():
                self.hold_result(eager)

    def hold_result(self, eager: list[np.ndarray]) -> None:
        """What an eager call gave is the reference's result, computed in float64. Where one of the
        two jumps between them (`floor` of a rounded number) it is as in its own dtype. Raises
        AssertionError."""
        want = self.reference(wide=True)
        if want is not None and not all(near(e, w).all() for e, w in zip(eager, want)):
            narrow = self.reference()
            if narrow is not None:
                want = [np.where(near(e, w), e, x) for e, x, w in zip(eager, narrow, want)]
        if want is not None and self.op.name in ROUNDING and want[0].dtype.kind in "iu":
            want = [np.where(abs(e - w.astype(float)) <= 1, e, w) for e, w in zip(eager, want)]
        if want is not None:
            same(f"{self.op.name}: not the reference's result", eager, want)

    def hold_gradient(self, extreme: bool) -> None:
        """The tape and the executor compute the same gradients, or one is refused."""
        tape, refusal = attempt(self.tape)
        executor, why = attempt(self.executor)
        train = {"train": True} if self.op.train_aware else {}  # both record
        draws = self.op.is_random(self.full() | train)
        if refusal is None and why is None and not extreme and not draws:
            same(f"{self.op.name}: the executor's gradients are not the tape's", executor, tape)

    def random(self) -> bool:
        return self.op.is_random(self.full())

    def promised(self) -> bool:
        """Is it an operator of plait's own whose samples have given values? Its callers promise
        that these fit together (so many places, a vector in order), else the result is open."""
        kinds = [[samples.kind_of(g) for g in case.inputs] for case in self.op.samples]
        return not samples.is_public(self.op) and any("values" in found for found in kinds)


def as_float32(value):
    """A number as float32 holds it; others as they are."""
    with np.errstate(over="ignore"):
        return float(np.float32(value)) if type(value) is float else value


def array(values: np.ndarray, dtype: str, view: bool):
    with np.errstate(all="ignore"):
        if NUMPY_DTYPES[dtype].kind in "iu" and dtype != "bfloat16":
            values = whole(values).astype(NUMPY_DTYPES[dtype])
    if not view or not values.ndim:
        return from_memory(np.asarray(values), cpu(), dtype)
    base = np.concatenate([values[:1], values, values[:1]]) if len(values) else values
    return from_memory(base, cpu(), dtype)[1 : 1 + len(values)] if len(values) else None


def whole(x: np.ndarray) -> np.ndarray:
    return np.clip(np.nan_to_num(x), -(2.0**63), 2.0**63 - 1024).astype(np.int64)


def numpy_of(made) -> list[np.ndarray]:
    try:
        return [a.asnumpy() for a in (made if isinstance(made, list) else [made])]
    except MemoryError as error:  # of NumPy's copy
        raise OutOfMemory(str(error)) from error


def attempt(way) -> tuple[Any, mx.MXNetError | None]:
    try:
        return way(), None
    except mx.MXNetError as error:
        return None, error


def one_line(error) -> str:
    return "a result" if error is None else str(error).split("\n")[0]


def wider(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        x = from_bfloat16(x)
    return x.astype(np.float64) if dtype in FLOATS else x


def dtype_of(x: np.ndarray) -> str:
    return next(name for name, made in NUMPY_DTYPES.items() if made == x.dtype)


def near(got: np.ndarray, want: np.ndarray, exact: bool = False) -> np.ndarray:
    """Which elements of arrays of one dtype agree within rounding, of sums of their largest."""
    dtype = dtype_of(want)
    if dtype not in FLOATS or got.shape != want.shape:
        return np.equal(got, want)
    got, want = wider(got, dtype), wider(want, dtype)
    tolerance = 0.0 if exact else TOLERANCE[dtype]
    scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
    with np.errstate(all="ignore"):
        return np.isclose(
            got, want, rtol=tolerance, atol=tolerance * min(scale, 1e3), equal_nan=True
        )


def same(what: str, got, want, exact: bool = False) -> None:
    assert len(got) == len(want), f"{what}: {len(got)} arrays, not {len(want)}"
    for g, w in zip(got, want):
        assert (g.shape, g.dtype) == (w.shape, w.dtype), (
            f"{what}: {g.dtype} {g.shape}, not {w.dtype} {w.shape}"
        )
        equal = near(g, w, exact)
        assert equal.all(), (
            f"{what} at {np.argwhere(~equal)[:3].tolist()}:\n{g[~equal]}\n{w[~equal]}"
        )


# ---- cases ---------------------------------------------------------------------------------------

OPERATORS = sorted({op.name for op in REGISTRY.values() if op.samples})
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65)  # sizes.py has more
MAX_ELEMENTS = 1 << 22  # of one input
SHAPES = ((), (0,), (1,), (3,), (2, 0), (0, 3), (2, 3), (1, 1, 1), (2, 3, 4, 5), (2, 3, 4, 5, 6))
COMMON = ("float32",) * 6 + DTYPES
INTS = (0, 1, -1, 2, 3, -2, 7, 100, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63), 2**64)
FLOATS_GIVEN = (0.0, -0.0, 0.5, -1.5, 1e-45, 1e308, -1e308, float("nan"), float("inf"))
OTHERS = (None, "", "None", "no such", [], (), (1, 2, 3), -7, 2.5, True, {}, b"x", 1e30)


def script(rng: random.Random, *_) -> tuple[str, str]:
    """Most calls are near a record's sample: what is far from one is refused at the first look."""
    op = REGISTRY[rng.choice(OPERATORS)]
    case = rng.choice(op.samples)
    hostile, edges = rng.random() < 0.4, rng.random() < 0.35
    shapes, attrs = varied(rng, op, case)
    dtype = rng.choice(COMMON)
    gives = []
    for given, shape in zip(case.inputs, shapes):
        what = reshaped(given, shape)
        options = "".join(
            f", {name}=True" for name, on in (("edges", edges), ("view", rng.random() < 0.1)) if on
        )
        gives.append([what, dtype, rng.randrange(1000), options])
    if hostile:
        for _ in range(rng.choice((1, 1, 2))):
            spoil(rng, op, gives, attrs)
    lines = ["from tests.fuzz.operators import Call", "", f"call = Call({op.name!r})"]
    lines.append(f"call.guard({rng.choice(sorted(SIDES))!r})")
    for give in gives:
        lines.append(
            "call.give_none()"
            if give is None
            else f"call.give({literal(give[0])}, {give[1]!r}, seed={give[2]}{give[3]})"
        )
    lines += [f"call.attrs[{k!r}] = {literal(v)}" for k, v in attrs.items()]
    if op.train_aware and rng.random() < 0.5:
        lines.append("call.train = True")
    if rng.random() < 0.15:
        lines.append("call.gradient = True")
    elif rng.random() < 0.15:
        other = (rng.choice(SHAPES), rng.choice(DTYPES))
        at = rng.randrange(len(gives)) if gives and rng.random() < 0.8 else other
        lines.append(f"call.out = {at}")
    return op.name, "\n".join([*lines, "call.hold()", ""])


def literal(value) -> str:
    """A value's text; NaN and infinities have none of their own."""
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(literal, value))
        comma = "," * (len(value) == 1)
        return f"({inside}{comma})" if isinstance(value, tuple) else f"[{inside}]"
    if isinstance(value, float) and not np.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def varied(rng, op: Operator, case):
    """Shapes and attributes like a sample's: a size changes wherever it stands."""
    keep, sizes = rng.random() < 0.4, {}

    def size(n):
        return n if keep else sizes.setdefault(n, n if rng.random() < 0.6 else rng.choice(SIZES))

    shapes = [tuple(map(size, samples.shape_of(given))) for given in case.inputs]
    if max(map(math.prod, shapes), default=0) > MAX_ELEMENTS:
        sizes.clear()
        shapes = [tuple(samples.shape_of(given)) for given in case.inputs]
    attrs = dict(case.attrs)
    for p in op.params:
        value = attrs.get(p.name, p.default)
        if isinstance(p.kind, tuple) and rng.random() < 0.2:
            attrs[p.name] = rng.choice(p.kind)
        elif p.kind == "bool" and rng.random() < 0.2:
            attrs[p.name] = rng.random() < 0.5
        elif p.kind == "int" and isinstance(value, int) and rng.random() < 0.3:
            attrs[p.name] = rng.choice([sizes.get(value, value), rng.randint(-3, 3)])
        elif p.kind == "shape" and isinstance(value, tuple) and rng.random() < 0.5:
            attrs[p.name] = tuple(sizes.get(n, n) for n in value)
        elif p.kind == "float" and rng.random() < 0.2:
            attrs[p.name] = rng.choice([0.0, 0.5, 1.0, 2.7, -1.5])
    return shapes, attrs


def reshaped(given, shape):
    """A sample's input with another shape, as text can say it."""
    kind = samples.kind_of(given)
    if kind == "normal":
        return tuple(shape)
    if kind == "values":
        values = np.asarray(given[1])
        if values.shape == tuple(shape):
            return ("values", values.tolist(), given[2])
        return ("ints", tuple(shape), -2, 6)
    return (kind, tuple(shape), *given[2:])


def spoil(rng, op: Operator, gives: list, attrs: dict) -> None:
    """One thing becomes wrong."""
    what = rng.random()
    if gives and what < 0.4:
        at = rng.randrange(len(gives))
        how = rng.randrange(6)
        if how == 0:
            del gives[at]
        elif how == 1:
            gives[at] = None
        elif how == 2 and gives[at]:
            gives.append(list(gives[at]))
        elif gives[at]:
            gives[at][how == 3] = rng.choice(DTYPES if how == 3 else SHAPES)
    elif op.params:
        p = rng.choice(op.params)
        kind = p.kind.rstrip("?") if isinstance(p.kind, str) else "str"
        pool = {
            "int": INTS,
            "float": FLOATS_GIVEN,
            "bool": (True, False),
            "dtype": DTYPES,
            "floats": [(), (0.5,), (float("nan"),) * 3, (1e308, -1e308)],
        }.get(kind, OTHERS)
        if kind == "shape":
            pool = [tuple(rng.choice(INTS[:12]) for _ in range(n)) for n in (0, 1, 2, 3, 5)]
        attrs[p.name] = rng.choice(OTHERS if rng.random() < 0.15 else pool)
